"""Texts to what the model says of them: the logits of every pass, and where its representations lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from uatlite.classifier.settings import Settings
from uatlite.methods.cascade import Cascade
from uatlite.methods.method import Method, Passes
from uatlite.methods.one_pass import BASE, Deterministic
from uatlite.model.architectures import ARCHITECTURES, unwrap
from uatlite.model.plain import plain
from uatlite.model.tokens import Batch, Windows, in_order, truncated, windowed
from uatlite.predictive import Counts, checked_margin_variance, mean_logits
from uatlite.values import Text

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outputs:
    """What came out of the model, averaged over the windows of a text; rows are texts."""

    logits: FloatArray
    """(passes, rows, classes); NaN where a row has fewer passes"""
    given_variance: FloatArray | None
    """(rows,): the margin's variance, from a method that knows it without sampling"""
    representations: FloatArray | None
    """(rows, units), where they were asked for and the model has them"""
    windows: NDArray[np.int64]
    """(rows,)"""
    truncated_texts: int
    truncated_tokens: int
    counts: Counts | None = None
    """(rows,): how many passes each row has logits of, where rows differ"""
    spent: Counts | None = None
    """(rows,): how many passes were run for each row, where that is not the number that it has logits of"""

    @property
    def passes(self) -> Counts:
        """(rows,): how many passes were run for each row."""
        if self.spent is not None:
            return self.spent
        return np.full(self.logits.shape[1], len(self.logits)) if self.counts is None else self.counts

    @property
    def mean_logits(self) -> FloatArray:
        """(rows, classes)"""
        return mean_logits(self.logits, self.counts)

    @property
    def margin_variance(self) -> FloatArray | None:
        """(rows,): as the method gives it, or over the passes; None where it runs a single pass without it.

        Where rows differ in their passes, one with a single pass has the variance 0: nothing disagreed.
        """
        if self.given_variance is not None or len(self.logits) < 2:
            return self.given_variance
        return checked_margin_variance(self.logits, self.counts)


def run(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[Text],
    settings: Settings,
    *,
    represent: bool = False,
) -> Outputs:
    """The method's passes over one text or more, in batches of like length.

    With `represent` the model also runs once without dropout, for the pooled representation of each text; where the
    method begins with such a pass, that one serves both.
    """
    prepare = windowed if settings.windows else truncated
    windows = prepare(tokenizer, texts, settings.max_length)
    batches = list(windows.tokens.batches())
    passes: list[Passes] = []
    pooled: list[Tensor] = []
    for batch in batches:
        found, representation = _run(model, settings.method, batch.inputs, represent)
        passes.append(on_cpu(found))
        if representation is not None:
            pooled.append(representation.cpu())
    return gather(windows, batches, passes, pooled)


def _run(
    model: PreTrainedModel, method: Method, inputs: Mapping[str, Tensor], represent: bool
) -> tuple[Passes, Tensor | None]:
    """The method's passes over a batch and, where it is asked for, what the head reads of each text."""
    if not represent:
        return method.run(model, inputs), None
    if not isinstance(method, Deterministic | Cascade) or model.base_model_prefix not in model._modules:
        return method.run(model, inputs), pool(model, inputs)
    seen: list[Any] = []
    first = BASE.run(model, inputs, seen)
    passes = method.run(model, inputs, first) if isinstance(method, Cascade) else first
    return passes, read_by_head(model, seen[0], inputs)


def on_cpu(passes: Passes) -> Passes:
    """What outlives a batch: logits and the margin's variance, off the model's device."""
    kept = {name: getattr(passes, name) for name in ("margin_variance", "counts", "spent")}
    moved = {name: None if value is None else value.detach().cpu() for name, value in kept.items()}
    return Passes(passes.logits.cpu(), **moved)


def gather(windows: Windows, batches: Sequence[Batch], passes: Sequence[Passes], pooled: Sequence[Tensor]) -> Outputs:
    """The outputs of all texts from those of each batch; `pooled` is empty where nothing was represented."""

    def joined(name: str) -> NDArray[Any] | None:
        values = [getattr(one, name) for one in passes]
        return None if values[0] is None else in_order(batches, values).numpy()

    counts, spent, variances = joined("counts"), joined("spent"), joined("margin_variance")
    logits = in_order(batches, [one.logits for one in passes], dim=1).numpy()
    return Outputs(
        logits=windows.mean(logits, axis=1) if counts is None else windows.mean_passes(logits, counts),
        counts=None if counts is None else windows.most(counts),
        spent=None if spent is None else windows.most(spent),
        given_variance=None if variances is None else windows.mean(variances),
        representations=windows.mean(in_order(batches, pooled).numpy()) if pooled else None,
        windows=windows.counts,
        truncated_texts=windows.tokens.truncated_texts,
        truncated_tokens=windows.tokens.truncated_tokens,
    )


def pool(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the head reads of each text, without dropout, averaged over options: (batch, units).

    The pooler's output where the encoder has one, else the hidden state of the first token, or a decoder's of the last.
    (A mean over tokens would lie nearer to all other means the longer the text is.) None of a model that is no encoder
    with a head, an ensemble say: its shift is then told by scores alone.
    """
    device = next(model.parameters()).device
    flat = {name: value.to(device).flatten(0, -2) for name, value in inputs.items()}
    with plain(unwrap(model), flat) as classifier:
        output = classifier.base_model(**flat)
    return read_by_head(model, output, inputs)


def read_by_head(model: PreTrainedModel, output: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the head reads of an encoder's output, averaged over options: (batch, units); None of no encoder."""
    pooled = getattr(output, "pooler_output", None)
    if pooled is None and (hidden := getattr(output, "last_hidden_state", None)) is not None:
        row = ARCHITECTURES.get(model.config.model_type)
        real = inputs["attention_mask"].to(hidden.device).flatten(0, -2)
        pooled = hidden[_read_token(real, last=row is not None and row.reads_last)]
    if pooled is None:
        return None
    rows = next(iter(inputs.values())).shape[0]
    result: Tensor = pooled.float().view(rows, -1, pooled.shape[-1]).mean(dim=1)
    return result


def _read_token(real: Tensor, *, last: bool) -> tuple[Tensor, Tensor]:
    """The index of each row's first or last real token, whichever side the padding is on: real (rows, tokens)."""
    places = torch.arange(real.shape[1], device=real.device)
    token = (real * places).argmax(dim=1) if last else real.argmax(dim=1)
    return torch.arange(len(real), device=real.device), token
