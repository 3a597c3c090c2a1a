"""Run a method over a data set into the store, piece by piece; an interrupted run resumes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import run_tokens
from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.evaluate.parquet import NO_LABEL, Piece
from uatlite.lab.evaluate.store import Provenance, RunRecipe, Store, StoredRun, set_name
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.predictive import PassLogits
from uatlite.text.labels import Alignment
from uatlite.values import Choices, Dataset

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

PACKAGES = ("uatlite", "torch", "transformers", "numpy")

Advance = Callable[[int], None]
"""Called with the number of rows of each piece that was computed and stored."""


@dataclass(frozen=True, eq=False)
class Known:
    """What a method says of all rows of a set, read off what was computed before."""

    said: PassLogits
    seconds: float
    """of a row: what it took to compute what this was read off"""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for a model: its tokens, and how the model's columns become its classes."""

    checkpoint: Checkpoint
    dataset: Dataset
    tokens: Tokens
    alignment: Alignment
    task: str
    perturbation: str | None = None
    known: Mapping[str, Known] = field(default_factory=dict)
    """method -> what it says of these rows, where no model has to run for it"""

    @property
    def set_name(self) -> str:
        """The rows in short: 'sst2/test', 'sst2+swap/test'."""
        return set_name(self.task, self.dataset.split, self.perturbation)


class StoreJob(NamedTuple):
    """One run of the store."""

    prepared: Prepared
    method: Method
    """with all that it learns"""
    seed: int


def prepare(
    checkpoint: Checkpoint,
    dataset: Dataset,
    alignment: Alignment,
    *,
    task: str | None = None,
    perturbation: str | None = None,
    max_length: int | None = None,
) -> Prepared:
    """Tokenize a data set once for all methods and seeds. `task` is its name before it was perturbed."""
    options = {len(text.options) for text in dataset.texts if isinstance(text, Choices)}
    if options and options != {len(dataset.labels)}:
        raise InputError(
            f"{dataset.name} has questions with {sorted(options)} options; every question must have one for each of "
            f"its {len(dataset.labels)} labels."
        )
    limit = longest(checkpoint.model, checkpoint.tokenizer, max_length)
    tokens = tokenize(checkpoint.tokenizer, dataset.texts, limit)
    return Prepared(checkpoint, dataset, tokens, alignment, task or dataset.name, perturbation)


def predict(store: Store, prepared: Prepared, method: Method, seed: int, advance: Advance | None = None) -> StoredRun:
    """The finished run of a method over a data set; only pieces that the store does not have are computed.

    Pieces of short texts come first. A finished piece is never computed again, however this call ends.
    """
    run = store.begin(provenance_of(prepared, method, seed))
    if run.complete:
        return run
    for number, rows in missing(run, prepared):
        run.write(number, compute(prepared, method.seeded(seed), rows.tolist()))
        if advance is not None:
            advance(len(rows))
    run.finish()
    return run


def missing(run: StoredRun, prepared: Prepared) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """The pieces of a run that are missing or broken: the number and the rows of each."""
    planned = enumerate(run.plan(prepared.tokens.by_length()))
    return ((number, rows) for number, rows in planned if not run.has(number, rows))


def recipe_of(prepared: Prepared, method: Method, seed: int) -> RunRecipe:
    """What determines the numbers of a run."""
    return RunRecipe(
        model=prepared.checkpoint.hash,
        data=prepared.dataset.fingerprint,
        tokens=prepared.tokens.fingerprint,
        task=prepared.task,
        split=prepared.dataset.split,
        perturbation=prepared.perturbation,
        method=method_to_dict(method),
        seed=seed if method.stochastic else None,
        columns=prepared.alignment.columns,
        uatlite=version("uatlite"),
    )


def provenance_of(prepared: Prepared, method: Method, seed: int) -> Provenance:
    """The recipe of a run, and facts for a reader of its numbers."""
    dataset, checkpoint, method = prepared.dataset, prepared.checkpoint, method.seeded(seed)
    return Provenance(
        recipe=recipe_of(prepared, method, seed),
        method=method.name,
        passes=method.passes,
        model=checkpoint.name,
        source=dataset.source,
        rows=len(dataset),
        labels=dataset.labels,
        model_labels=tuple(checkpoint.id2label.values()),
        classes=prepared.alignment.labels,
        alignment=prepared.alignment.note,
        out_of_scope=dataset.out_of_scope,
        truncated_texts=prepared.tokens.truncated_texts,
        truncated_tokens=prepared.tokens.truncated_tokens,
        versions={package: version(package) for package in PACKAGES},
    )


def compute(prepared: Prepared, method: Method, rows: list[int]) -> Piece:
    """The piece with these rows."""
    started, known = time.perf_counter(), prepared.known.get(method.name)
    if known is None:
        said: PassLogits = run_tokens(prepared.checkpoint.model, method, prepared.tokens, rows)
    else:
        said = known.said.take(np.array(rows))
    seconds = time.perf_counter() - started + (0.0 if known is None else known.seconds * len(rows))
    variance, read = said.given_variance, said.representations if len(said.logits) == 1 else None
    examples = [prepared.dataset.examples[row] for row in rows]
    labels = [NO_LABEL if example.label is None else example.label for example in examples]
    return Piece(
        rows=np.array(rows, dtype=np.int32),
        ids=tuple(example.id for example in examples),
        labels=np.array(labels, dtype=np.int32),
        logits=said.logits.astype(np.float32),
        margin_variance=None if variance is None else variance[:, 0].astype(np.float32),
        seconds=seconds,
        representations=None if read is None else read.astype(np.float32),
    )


@contextmanager
def rescaled_embeddings(model: "PreTrainedModel", factor: float) -> Iterator[None]:
    """Within the block the model's word embeddings are e_j ← c·e_j; positions and segments stay as they are.

    The weights are not touched: a hook on the embedding's output multiplies, and is removed also after an error.
    """
    if not factor > 0:
        raise ConfigurationError(f"factor={factor} is not above 0.")

    def scale(module: object, args: object, output: "Tensor") -> "Tensor":
        return output * factor

    hook = None if factor == 1 else model.get_input_embeddings().register_forward_hook(scale)
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
