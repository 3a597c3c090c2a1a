"""A classifier of another library as one of ours: `uatlite.wrap`. Texts are scored where they are given.

A reader turns what a user gives as texts into logits, and into embeddings where the library has them. The first of
`LIBRARIES` that knows a model reads it; a new library is a function and a line there.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from uatlite.classifier import saving
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.product import Files
from uatlite.classifier.runtime import Outputs, Settings
from uatlite.classifier.scores import ScoresRuntime, load_scores
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.text.scores import EMBEDDING_COLUMN, LOGITS_COLUMN, ScoreColumns
from uatlite.values import Floats, ScoredText, Text, check_array, check_probabilities

WIDEST_EMBEDDING = 4096
"""Wider features, such as counts of words, are no embedding: a scope would need their covariance."""


@dataclass(frozen=True)
class Reader:
    """How a model is read."""

    name: str
    classes: Sequence[Any]
    read: Callable[[Any], tuple[Floats, Any]]
    """texts, or what the model takes in their place, to logits (rows, classes) and features (rows, width) or None"""


@dataclass(eq=False)
class WrappedRuntime(ScoresRuntime):
    """A model of another library, whose texts become rows of scores."""

    reader: Reader
    usage = "It holds no model: uatlite.wrap(model, calibrated=DIR) puts the calibration on it again."
    example = '"a text"'
    frozen = True

    def __post_init__(self) -> None:
        self.architecture = self.reader.name

    def taken(self, given: Iterable[Any], *, learn: bool = False) -> list[Any]:
        rows: Any = given if getattr(given, "ndim", 1) == 2 else list(given)
        if not len(rows) or isinstance(next(iter(rows)), ScoredText):
            return list(rows)
        logits, features = self.reader.read(rows)
        if logits.shape != (len(rows), len(self.class_names)):
            wanted = f"{len(rows)} texts and {len(self.class_names)} classes"
            raise InputError(f"{self.architecture} gave scores of the shape {logits.shape} for {wanted}.")
        vectors = _embeddings(features, len(rows))
        if learn or self.columns.least == -np.inf:  # a model that is not calibrated predicts too
            least = logits[np.isfinite(logits)].min() - np.log(2.0)
            name = EMBEDDING_COLUMN if vectors.shape[1] else None
            self.columns = replace(self.columns, width=vectors.shape[1], embedding=name, least=float(least))
        logits = np.where(np.isneginf(logits), self.columns.least, logits)
        texts = [row if isinstance(row, str) else "" for row in rows]
        pairs = zip(logits.tolist(), vectors, texts, strict=True)
        return [ScoredText(tuple(row), vector.tobytes(), text) for row, vector, text in pairs]

    def outputs(self, texts: Sequence[Text], settings: Settings) -> Outputs:
        return super().outputs(self.taken(texts), settings)


def _embeddings(features: Any, rows: int) -> Any:
    """Features in float32, (rows, width), if they are embeddings; else (rows, 0)."""
    dense = np.array(None) if hasattr(features, "toarray") else _array(features)
    embeds = dense.ndim == 2 and dense.dtype.kind in "fiu" and dense.shape[1] <= WIDEST_EMBEDDING
    return dense.astype(np.float32) if embeds else np.zeros((rows, 0), np.float32)


def _array(values: Any) -> Any:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _said(head: Any, features: Any) -> Floats:
    """The logits of a head of scikit-learn, or of one with its methods: (rows, classes)."""
    if hasattr(head, "predict_proba"):
        tensors = import_module("torch").inference_mode() if hasattr(features, "detach") else nullcontext()
        with tensors, np.errstate(divide="ignore"):
            return np.asarray(np.log(check_probabilities(_array(head.predict_proba(features)))))
    margins = _array(head.decision_function(features))
    margins = np.column_stack([np.zeros(len(margins)), margins]) if margins.ndim == 1 else margins
    return check_array("decision_function", margins, {"rows": 0, "classes": 2})


def _estimator(model: Any, head: Any, classes: Any) -> Reader | None:
    """An estimator or a Pipeline of scikit-learn; what its last step reads may be embeddings."""
    if not hasattr(model, "predict_proba") and not hasattr(model, "decision_function"):
        return None
    steps = getattr(model, "steps", ())
    last, features = (model[-1], model[:-1].transform) if len(steps) > 1 else (model, lambda rows: rows)
    if not hasattr(last, "classes_"):
        raise ModelError(f"{type(model).__name__} has no classes_: fit it first.")

    def read(rows: Any) -> tuple[Floats, Any]:
        x = features(rows)
        return _said(last, x), x

    return Reader(type(last).__name__, last.classes_, read)


def _encoder(model: Any, head: Any, classes: Any) -> Reader | None:
    """An encoder of sentence-transformers with a head, or a SetFit model, which is one with its head inside."""
    head = getattr(model, "model_head", head)
    if not hasattr(model, "encode") or head is None:
        return None
    if getattr(model, "multi_target_strategy", None) is not None:
        raise ModelError("a SetFit model of several labels a text cannot be wrapped; it takes one class a text.")
    names = getattr(model, "labels", None) or getattr(head, "classes_", None)

    def read(rows: Any) -> tuple[Floats, Any]:
        vectors = model.encode(list(rows), show_progress_bar=False)
        return _said(head, vectors), vectors

    return Reader(type(model).__name__, range(head.out_features) if names is None else names, read)


def _function(model: Any, head: Any, classes: Any) -> Reader | None:
    """A callable texts → probabilities, or (probabilities, embeddings); rows as a file of scores may have them."""
    if not callable(model) or classes is None:
        return None
    columns = ScoreColumns(form="p", columns=("probs",), classes=tuple(map(str, classes)))

    def read(rows: Any) -> tuple[Floats, Any]:
        said = model(rows)
        probs, vectors = said if isinstance(said, tuple) and len(said) == 2 else (said, None)
        probs = probs if isinstance(probs, list) else _array(probs).tolist()
        return np.array([columns.read({"probs": row}).logits for row in probs]), vectors

    return Reader(getattr(model, "__name__", type(model).__name__), classes, read)


LIBRARIES: tuple[Callable[[Any, Any, Any], Reader | None], ...] = (_encoder, _estimator, _function)


def wrap(
    model: Any, *, head: Any = None, classes: Sequence[str] | None = None, calibrated: str | Path | None = None
) -> UncertaintyClassifier:
    """An `UncertaintyClassifier` over a fitted model of another library, which is left as it is.

    `model` is an estimator or Pipeline of scikit-learn, a SetFit model, an encoder of sentence-transformers with a
    fitted `head`, or a callable texts → probabilities (rows, classes), or (probabilities, embeddings), whose `classes`
    are named. Scope needs embeddings: those of an encoder, or what the last step of a Pipeline reads. `save_pretrained`
    writes what was calibrated, not the model; `calibrated` is such a directory, to go on with.
    """
    reader = next((reader for find in LIBRARIES if (reader := find(model, head, classes)) is not None), None)
    if reader is None:
        raise ConfigurationError(
            f"{type(model).__name__} cannot be wrapped; give an estimator of scikit-learn, a SetFit model, an encoder "
            "with head=, or a callable texts → probabilities with classes=."
        )
    given = [entry.item() if isinstance(entry, np.generic) else entry for entry in classes or reader.classes]
    names = tuple(map(str, given))
    if any(isinstance(entry, int) for entry in given) and given != list(range(len(given))):
        why = f"the classes are the numbers {', '.join(names)}, and a number means a column from 0"
        raise ConfigurationError(f"{why}; name them, as in classes=['class 1', …], and give labels by name.")
    columns = ScoreColumns(form="logit", columns=(LOGITS_COLUMN,), classes=names)
    if calibrated is None:
        return UncertaintyClassifier(WrappedRuntime(columns, reader))
    stored = load_scores(calibrated).columns
    if stored.classes != columns.classes:
        before = f"{calibrated} was calibrated for the classes {', '.join(stored.classes)}"
        raise ModelError(f"{before}, and {reader.name} has {', '.join(names)}: it is of another model.")
    files = Files(calibrated, WrappedRuntime(stored, reader), saving.read(calibrated))
    return UncertaintyClassifier.of_files(files)
