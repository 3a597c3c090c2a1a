"""Texts out of scope: what the scope says of stored rows, and a contender on rows in scope and out of it.

The scope is read off the plain pass, once for all contenders. It is fitted on training texts of the model's task,
without their labels, and ranked among the calibration rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uatlite.lab.evaluate.outcomes import class_indices, class_probabilities, doubt_of
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.methods.sampling import BASE
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.scope import Scope, chance_in_scope, fit_scope
from uatlite.values import Floats, Marks

if TYPE_CHECKING:
    from uatlite.lab.evaluate.runs import Job, Runs

REFERENCE = "reference"
"""The split under which the training texts that describe a task are stored."""
REFERENCE_ROWS = 6000
"""At most so many of them."""


@dataclass(frozen=True, eq=False)
class Strangeness:
    """What the scope says of rows: their nonconformity (rows,) and their chance to be in scope (rows,)."""

    nonconformity: Floats
    chance: Floats

    def take(self, rows: Marks | slice) -> "Strangeness":
        """The same of some rows."""
        return Strangeness(self.nonconformity[rows], self.chance[rows])

    def and_then(self, other: "Strangeness") -> "Strangeness":
        """These rows, then the other ones."""
        return Strangeness(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in vars(self)))


@dataclass(frozen=True, eq=False)
class FittedScope:
    """A scope, and how many texts it was fitted on."""

    scope: Scope
    reference: int | None
    calibration: int

    def describe(self) -> str:
        """What it was fitted on, in words."""
        rows = f"{self.calibration:,} calibration rows"
        if self.reference is None:
            return f"scope: by {rows} alone, as no training texts of the task were found"
        return f"scope: by {self.reference:,} training texts, without their labels, and {rows}"


def scope_of(job: "Job", runs: "Runs") -> FittedScope:
    """The scope of the model of a job; a CalibrationError where there can be none."""
    plain = _plain(job)
    reference, fit, count = runs.source.reference(plain.model), None, None
    if reference is not None:
        texts = runs.predictions(plain.over(reference))
        count = len(texts.ids)
        if (x := texts.passes.representations) is not None:
            fit = ScopeFit(x.shape[1], texts.logits.shape[2])
            fit.add(x, texts.passes.mean_logits.argmax(axis=1))
    rows = runs.predictions(plain.home)
    rows = rows.take(np.flatnonzero(not_labelled_outside(rows)))
    scope = fit_scope(fit, rows.passes.representations, rows.passes.mean_logits)
    return FittedScope(scope, count, len(rows.ids))


def strangeness(job: "Job", runs: "Runs") -> Strangeness:
    """What the scope of a job's model says of its rows, by the plain pass; kept, as many cells share it."""
    plain = _plain(job)
    if plain not in runs.strangeness:
        passes = runs.predictions(plain).passes
        scope, x, logits = scope_of(job, runs).scope, passes.representations, passes.mean_logits
        chance = chance_in_scope(scope.p_values(x, logits))
        runs.strangeness[plain] = Strangeness(scope.nonconformity(x, logits), chance)
    return runs.strangeness[plain]


def scope_jobs(job: "Job", runs: "Runs") -> list["Job"]:
    """The plain passes that tell what is in scope."""
    plain = _plain(job)
    reference = runs.source.reference(plain.model)
    return [plain.home, plain, *([] if reference is None else [plain.over(reference)])]


def _plain(job: "Job") -> "Job":
    return job.of(BASE, job.model.plain)


@dataclass(frozen=True, eq=False)
class Mixed:
    """One run of a contender on the test rows in scope and then on the texts out of scope: (rows,) each."""

    confidence: Floats
    doubt: Floats
    """how much a row looks out of scope: 1 - confidence, or the probability of such a class if the model has one"""
    wrong: Floats
    """1 for an error, and for every answer to a text out of scope but "out of scope" """

    def take(self, rows: slice) -> "Mixed":
        """The same of some rows."""
        return Mixed(self.confidence[rows], self.doubt[rows], self.wrong[rows])


def not_labelled_outside(rows: StoredPredictions) -> Marks:
    """(rows,): which rows are not labelled out of scope."""
    outside = rows.provenance.out_of_scope
    return np.ones(len(rows.labels), dtype=np.bool_) if outside is None else np.asarray(rows.labels != outside)


def labelled_in_scope(test: StoredPredictions) -> Marks:
    """(rows,): which test rows have a gold label that the model knows and that is not "out of scope"."""
    return np.asarray((class_indices(test) >= 0) & not_labelled_outside(test))


def mixed_of(test: StoredPredictions, outside: StoredPredictions, calibrator: LogitCalibrator | None) -> Mixed:
    """A run on the test rows that are in scope, then on the texts out of scope."""
    about, inside = test.provenance, labelled_in_scope(test)
    unknown = None if about.out_of_scope is None else about.labels[about.out_of_scope]
    right = about.classes.index(unknown) if unknown in about.classes else -1
    labels = np.append(class_indices(test)[inside], np.full(len(outside.ids), right))
    probabilities = np.concatenate(
        [class_probabilities(test, calibrator)[inside], class_probabilities(outside, calibrator)]
    )
    wrong = np.asarray(probabilities.argmax(axis=1) != labels, dtype=np.float64)
    return Mixed(probabilities.max(axis=1), doubt_of(probabilities, about.classes, unknown), wrong)
