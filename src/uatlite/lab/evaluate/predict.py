"""Run methods over data sets into the store, piece by piece; an interrupted run resumes.

Most methods run on the plain model. A method with trained weights runs on the model that was trained for it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import run_tokens
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.lab.evaluate.parquet import NO_LABEL, Piece
from uatlite.lab.evaluate.store import Provenance, RunRecipe, Store, StoredRun, set_name
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.registry import method_to_dict
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.model.weights import attached
from uatlite.predictive import PassLogits
from uatlite.text.labels import Alignment
from uatlite.values import Choices, Dataset, Floats

PACKAGES = ("uatlite", "torch", "transformers", "numpy")

Advance = Callable[[int], None]
"""Called with the number of rows of each piece that was computed and stored."""


@dataclass(frozen=True, eq=False)
class Models:
    """Which model each method runs on."""

    plain: Checkpoint
    """of all methods without trained weights"""
    trained: Mapping[str, Checkpoint] = field(default_factory=dict)
    """method -> the model that was trained for it"""

    @classmethod
    def of(cls, checkpoints: Sequence[Checkpoint]) -> "Models":
        """The plain model is the one trained for no method; without such a model, the first one."""
        trained: dict[str, Checkpoint] = {}
        plain: list[Checkpoint] = []
        for checkpoint in checkpoints:
            weights = attached(checkpoint.model)
            if weights is None:
                plain.append(checkpoint)
            elif weights.method in trained:
                raise ConfigurationError(
                    f"{trained[weights.method].name} and {checkpoint.name} are both trained for {weights.method}; "
                    "evaluate one of them at a time."
                )
            else:
                trained[weights.method] = checkpoint
        if len(plain) > 1:
            names = ", ".join(checkpoint.name for checkpoint in plain)
            raise ConfigurationError(
                f"{names} are all plain models, and every method would run on the first. Give one of them, and beside "
                "it models that were trained for a method; or evaluate each by itself."
            )
        return cls((plain or list(checkpoints))[0], trained)

    def of_method(self, method: Method) -> Checkpoint:
        """The model that a method runs on; a ModelError where the method needs a trained one that is not given."""
        if not method.trained:
            return self.plain
        key = method.key
        if key not in self.trained:
            there = f" (those given are trained for {', '.join(self.trained)})" if self.trained else ""
            raise ModelError(
                f"{method.name} needs a model that was trained for it, and none was given{there}. Train one, and name "
                f"its directory beside {self.plain.name}: uatlite train --method {key} --task TASK -o DIR."
            )
        return self.trained[key]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set ready for a model: its tokens, and how the model's columns become its classes."""

    checkpoint: Checkpoint
    dataset: Dataset
    tokens: Tokens
    alignment: Alignment
    task: str
    perturbation: str | None = None
    left_out: Mapping[str, Floats] = field(default_factory=dict)
    """method -> the variance (rows,) of rows that it learned from, each as if it had not"""

    @property
    def set_name(self) -> str:
        """The rows in short: 'sst2/test', 'sst2+swap/test'."""
        return set_name(self.task, self.dataset.split, self.perturbation)


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


def learn(
    method: Method, calibration: Prepared, run: Callable[[Method], PassLogits] | None = None
) -> tuple[Method, Prepared]:
    """The method with what it learns from the texts of a calibration set, and that set; labels are not used.

    `run` gives what another method says of those texts, for instance from a store; without it the model runs.
    """
    if not method.learns:
        return method, calibration
    tokens = calibration.tokens
    run = run or partial(run_tokens, calibration.checkpoint.model, tokens=tokens)
    tuned = method.learn(CalibrationRows(len(tokens), run))
    variance = None if tuned.outputs is None else tuned.outputs.given_variance
    left_out = calibration.left_out if variance is None else {**calibration.left_out, method.name: variance}
    return tuned.method, replace(calibration, left_out=left_out)


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


def remaining(store: Store, prepared: Prepared, method: Method, seed: int) -> int:
    """The number of rows of a run without a piece in the store; a broken piece counts as present."""
    return store.remaining(recipe_of(prepared, method, seed), len(prepared.dataset))


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
    started = time.perf_counter()
    found = run_tokens(prepared.checkpoint.model, method, prepared.tokens, rows)
    seconds = time.perf_counter() - started
    variance = prepared.left_out[method.name][rows] if method.name in prepared.left_out else found.given_variance
    read = found.representations if method.passes == 1 else None
    examples = [prepared.dataset.examples[row] for row in rows]
    labels = [NO_LABEL if example.label is None else example.label for example in examples]
    return Piece(
        rows=np.array(rows, dtype=np.int32),
        ids=tuple(example.id for example in examples),
        labels=np.array(labels, dtype=np.int32),
        logits=found.logits.astype(np.float32),
        margin_variance=None if variance is None else variance[:, 0].astype(np.float32),
        seconds=seconds,
        representations=None if read is None else read.astype(np.float32),
    )
