"""Texts to the logits of every pass: the one place where a method is run over texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from uatlite.classifier.settings import Settings
from uatlite.methods.method import Method, Passes
from uatlite.model.tokens import Batch, Tokens, Windows, truncated, windowed
from uatlite.predictive import Counts, PassLogits
from uatlite.values import Text


@dataclass(frozen=True, eq=False)
class Outputs(PassLogits):
    """What a method says about some texts, averaged over the windows of a text; rows are texts."""

    cut: Counts | None = None
    """(rows,): tokens that were cut off each row; None where that was not counted"""
    spent: Counts | None = None
    """(rows,): passes run for each row, where that differs from the number of its logits"""

    @property
    def passes(self) -> Counts:
        """(rows,): passes run for each row."""
        if self.spent is not None:
            return self.spent
        return np.full(self.logits.shape[1], len(self.logits)) if self.counts is None else self.counts


def run(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[Text],
    settings: Settings,
) -> Outputs:
    """The method's passes over one text or more, long ones cut or in windows as the settings say."""
    windows = tokenized(tokenizer, texts, settings)
    batches = list(windows.tokens.batches())
    passes = [run_batch(model, settings.method, batch.inputs) for batch in batches]
    return over_windows(gather(passes, batches), windows)


def run_tokens(model: PreTrainedModel, method: Method, tokens: Tokens, rows: Sequence[int] | None = None) -> Outputs:
    """The method's passes over tokenized texts, or over those at `rows`, in their order."""
    batches = list(tokens.batches(rows))
    return gather([run_batch(model, method, batch.inputs) for batch in batches], batches, rows)


def run_batch(model: PreTrainedModel, method: Method, inputs: Mapping[str, Tensor]) -> Passes:
    """The method's passes over one batch, off the model's device; `sources` stay where they are."""
    moved = method.run(model, inputs)
    for name in ("logits", "margin_variance", "counts", "spent", "representation"):
        value = getattr(moved, name)
        moved = moved if value is None else replace(moved, **{name: value.detach().cpu()})
    return moved


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: list[Text], settings: Settings) -> Windows:
    """Tokens of each text, cut to the settings' length or in windows of it."""
    return (windowed if settings.windows else truncated)(tokenizer, texts, settings.max_length)


def gather(passes: Sequence[Passes], batches: Sequence[Batch], rows: Sequence[int] | None = None) -> Outputs:
    """The outputs of all sequences from those of each batch, in the order of `rows`; by default by their place."""
    found = [row for batch in batches for row in batch.rows]
    place = {row: index for index, row in enumerate(found)}
    order = torch.tensor([place[row] for row in (sorted(found) if rows is None else rows)])

    def joined(name: str, dim: int = 0) -> NDArray[Any] | None:
        values = [getattr(one, name) for one in passes]
        return None if values[0] is None else torch.cat(values, dim=dim).index_select(dim, order).numpy()

    logits, variance, read = joined("logits", dim=1), joined("margin_variance"), joined("representation")
    assert logits is not None
    return Outputs(
        logits=logits.astype(np.float64),
        given_variance=None if variance is None else variance.astype(np.float64),
        counts=joined("counts"),
        representations=None if read is None else read.astype(np.float64),
        spent=joined("spent"),
    )


def over_windows(outputs: Outputs, windows: Windows) -> Outputs:
    """The outputs of texts from those of their windows: means, and the most passes of a window."""
    cut = replace(outputs, cut=np.array(windows.tokens.cut, dtype=np.int64))
    if len(windows.counts) == len(windows.tokens):
        return cut
    counts, spent, variance, read = outputs.counts, outputs.spent, outputs.given_variance, outputs.representations
    return replace(
        cut,
        logits=windows.mean(outputs.logits, axis=1) if counts is None else windows.mean_passes(outputs.logits, counts),
        counts=None if counts is None else windows.most(counts),
        spent=None if spent is None else windows.most(spent),
        given_variance=None if variance is None else windows.mean(variance),
        representations=None if read is None else windows.mean(read),
    )
