"""Run a method over a data set into the store, piece by piece; an interrupted run resumes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import run_tokens
from uatlite.errors import ConfigurationError, InputError
from uatlite.lab.evaluate.store import NO_LABEL, Piece, Provenance, RunRecipe, Store, StoredRun
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


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for a model: its tokens, and how the model's columns become its classes."""

    checkpoint: Checkpoint
    dataset: Dataset
    tokens: Tokens
    alignment: Alignment
    task: str
    """its name before it was perturbed"""
    perturbation: str | None = None


def prepare(
    checkpoint: Checkpoint,
    dataset: Dataset,
    alignment: Alignment,
    *,
    task: str | None = None,
    perturbation: str | None = None,
    max_length: int | None = None,
) -> Prepared:
    """Tokenize a data set once for all methods and seeds."""
    options = {len(text.options) for text in dataset.texts if isinstance(text, Choices)}
    if options and options != {len(dataset.labels)}:
        raise InputError(
            f"{dataset.name} has questions with {sorted(options)} options; every question must have one for each of "
            f"its {len(dataset.labels)} labels."
        )
    limit = longest(checkpoint.model, checkpoint.tokenizer, max_length)
    tokens = tokenize(checkpoint.tokenizer, dataset.texts, limit)
    return Prepared(checkpoint, dataset, tokens, alignment, task or dataset.name, perturbation)


@dataclass(frozen=True, eq=False)
class StoreJob:
    """One run of the store."""

    prepared: Prepared
    method: Method
    """with all that it learns, and the seed"""
    said: PassLogits | None = None
    """what it says of all rows, where that is read off what was computed before and no model has to run"""
    seconds: float = 0.0
    """of a row: what it took to compute what that was read off"""

    @property
    def recipe(self) -> RunRecipe:
        """What determines the numbers of the run."""
        prepared = self.prepared
        return RunRecipe(
            model=prepared.checkpoint.hash,
            data=prepared.dataset.fingerprint,
            tokens=prepared.tokens.fingerprint,
            task=prepared.task,
            split=prepared.dataset.split,
            perturbation=prepared.perturbation,
            method=method_to_dict(self.method),
            seed=self.method.seed if self.method.stochastic else None,
            columns=prepared.alignment.columns,
            uatlite=version("uatlite"),
        )

    def begin(self, store: Store) -> StoredRun:
        """The run in the store, with its recipe and facts for a reader of its numbers."""
        prepared, dataset, checkpoint = self.prepared, self.prepared.dataset, self.prepared.checkpoint
        provenance = Provenance(
            recipe=self.recipe,
            method=self.method.name,
            passes=self.method.passes,
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
        return store.begin(provenance)

    def missing(self, run: StoredRun) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """The pieces of the run that are missing or broken: the number and the rows of each. Short texts come first."""
        planned = enumerate(run.plan(self.prepared.tokens.by_length()))
        return ((number, rows) for number, rows in planned if not run.has(number, rows))

    def compute(self, rows: NDArray[np.int32]) -> Piece:
        """The piece with these rows."""
        started = time.perf_counter()
        if self.said is None:
            model, tokens = self.prepared.checkpoint.model, self.prepared.tokens
            said: PassLogits = run_tokens(model, self.method, tokens, rows.tolist())
            seconds = time.perf_counter() - started
        else:
            said = self.said.take(rows)
            seconds = time.perf_counter() - started + self.seconds * len(rows)
        examples = [self.prepared.dataset.examples[row] for row in rows]
        labels = [NO_LABEL if example.label is None else example.label for example in examples]
        return Piece(rows.astype(np.int64), tuple(example.id for example in examples), np.array(labels), said, seconds)

    def fill(self, store: Store, advance: Callable[[int], None] = lambda rows: None) -> StoredRun:
        """The finished run; only pieces that the store does not have are computed.

        `advance` gets the number of rows of each piece that was computed and stored. A finished piece is never computed
        again, however this call ends.
        """
        run = self.begin(store)
        if not run.complete:
            for number, rows in self.missing(run):
                run.write(number, self.compute(rows))
                advance(len(rows))
            run.finish()
        return run


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
