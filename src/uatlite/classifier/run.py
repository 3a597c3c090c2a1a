"""Texts to the logits of every pass: the one place where a method is run over texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.runtime import Outputs, Runtime, outputs_of, run_batch
from uatlite.classifier.settings import Settings
from uatlite.methods.method import Method
from uatlite.model.tokens import Batch, Tokens
from uatlite.model.windows import Windows, truncated, windowed
from uatlite.values import Text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from uatlite.model.tokens import Tokenizer


def run(runtime: Runtime, texts: Sequence[Text], settings: Settings) -> Outputs:
    """The method's passes over texts, long ones cut or in windows as the settings say."""
    if not texts:
        return Outputs(np.zeros((1, 0, len(runtime.class_names) or 2)), cut=np.zeros(0, dtype=np.int64))
    windows = tokenized(runtime.tokenizer, texts, settings)
    batches = list(windows.tokens.batches(most_padding=runtime.padding))
    return over_windows(gather([runtime.run(settings.method, batch) for batch in batches], batches), windows)


def run_tokens(model: PreTrainedModel, method: Method, tokens: Tokens, rows: Sequence[int] | None = None) -> Outputs:
    """The method's passes of a PyTorch model over tokenized texts, or over those at `rows`, in their order."""
    batches = list(tokens.batches(rows))
    return gather([outputs_of(run_batch(model, method, batch.inputs)) for batch in batches], batches, rows)


def tokenized(tokenizer: Tokenizer, texts: Sequence[Text], settings: Settings) -> Windows:
    """Tokens of each text, cut to the settings' length or in windows of it."""
    return (windowed if settings.windows else truncated)(tokenizer, list(texts), settings.max_length)


def gather(parts: Sequence[Outputs], batches: Sequence[Batch], rows: Sequence[int] | None = None) -> Outputs:
    """The outputs of all sequences from those of each batch, in the order of `rows`; by default by their place."""
    found = [row for batch in batches for row in batch.rows]
    place = {row: index for index, row in enumerate(found)}
    order = np.array([place[row] for row in (sorted(found) if rows is None else rows)])
    joined: dict[str, Any] = {}
    for one in fields(Outputs):
        values = [getattr(part, one.name) for part in parts]
        if isinstance(values[0], np.ndarray):
            axis = 1 if one.name == "logits" else 0
            joined[one.name] = np.concatenate(values, axis=axis).take(order, axis=axis)
    return Outputs(**joined)


def over_windows(outputs: Outputs, windows: Windows) -> Outputs:
    """The outputs of texts from those of their windows: means."""
    cut = replace(outputs, cut=np.array(windows.tokens.cut, dtype=np.int64))
    if len(windows.counts) == len(windows.tokens):
        return cut
    variance, read = outputs.given_variance, outputs.representations
    return replace(
        cut,
        logits=windows.mean(outputs.logits, axis=1),
        given_variance=None if variance is None else windows.mean(variance),
        representations=None if read is None else windows.mean(read),
    )
