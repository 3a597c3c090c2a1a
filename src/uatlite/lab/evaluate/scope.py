"""Texts out of scope: what the scope says of stored rows, and a contender on rows in scope and out of it.

The scope is read off the plain pass, once for all contenders. It is fitted on training texts of the model's task,
without their labels, and ranked among the calibration rows.
"""

from dataclasses import dataclass

import numpy as np

from uatlite.lab.evaluate.models import Job
from uatlite.lab.evaluate.outcomes import class_indices, class_probabilities, doubt_of
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.methods.sampling import BASE
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.trust.scope import Scope, ScopeFit, chance_in_scope, fit_scope
from uatlite.values import Floats, Marks


def scope_of(job: Job, runs: Runs) -> tuple[Scope, str]:
    """The scope of the model of a job, and what it was fitted on; a CalibrationError where there can be none."""
    plain = _plain(job)
    reference, fit = runs.source.reference(plain.model), None
    rows = runs.predictions(plain.home)
    rows = rows.take(not_labelled_outside(rows))
    note = f"scope: by {len(rows.ids):,} calibration rows alone, as no training texts of the task were found"
    if reference is not None:
        texts = runs.predictions(plain.over(reference))
        counts = f"{len(texts.ids):,} training texts, without their labels, and {len(rows.ids):,} calibration rows"
        note = f"scope: by {counts}"
        if (x := texts.passes.representations) is not None:
            fit = ScopeFit(x.shape[1], texts.logits.shape[2])
            fit.add(x, texts.passes.mean_logits.argmax(axis=1))
    return fit_scope(fit, rows.passes.representations, rows.passes.mean_logits), note


def strangeness(job: Job, runs: Runs) -> Floats:
    """What the scope of a job's model says of its rows: their nonconformity and their chance to be in scope, (2, rows).

    It is read off the plain pass, and kept, as many cells share it.
    """
    plain = _plain(job)
    if plain not in runs.strangeness:
        passes, (scope, _) = runs.predictions(plain).passes, scope_of(job, runs)
        x, logits = passes.representations, passes.mean_logits
        chance = chance_in_scope(scope.p_values(x, logits))
        runs.strangeness[plain] = np.stack([scope.nonconformity(x, logits), chance])
    return runs.strangeness[plain]


def scope_jobs(job: Job, runs: Runs) -> list[Job]:
    """The plain passes that tell what is in scope."""
    plain = _plain(job)
    reference = runs.source.reference(plain.model)
    return [plain.home, plain, *([] if reference is None else [plain.over(reference)])]


def _plain(job: Job) -> Job:
    return job.of(BASE, job.model.plain)


def not_labelled_outside(rows: StoredPredictions) -> Marks:
    """(rows,): which rows are not labelled out of scope."""
    outside = rows.provenance.out_of_scope
    return np.ones(len(rows.labels), dtype=np.bool_) if outside is None else np.asarray(rows.labels != outside)


def labelled_in_scope(test: StoredPredictions) -> Marks:
    """(rows,): which test rows have a gold label that the model knows and that is not "out of scope"."""
    return np.asarray((class_indices(test) >= 0) & not_labelled_outside(test))


@dataclass(frozen=True, eq=False)
class Mixture:
    """One run of a contender on the test rows in scope and then on the texts out of scope: (rows,) each."""

    confidence: Floats
    doubt: Floats
    """how much a row looks out of scope: 1 - confidence, or the probability of such a class if the model has one"""
    wrong: Floats
    """1 for an error, and for every answer to a text out of scope but "out of scope" """
    outside: Marks
    nonconformity: Floats
    """by the scope, as the next one; both are 1 where that is not asked"""
    chance: Floats
    """of being in scope"""

    @classmethod
    def of(
        cls,
        inside: StoredPredictions,
        outside: StoredPredictions,
        calibrator: LogitCalibrator | None,
        strange: Floats | None = None,
    ) -> "Mixture":
        """Rows that are in scope, then rows that are not; `strange` is their `strangeness`, (2, rows)."""
        about, sizes = inside.provenance, (len(inside.ids), len(outside.ids))
        unknown = None if about.out_of_scope is None else about.labels[about.out_of_scope]
        right = about.classes.index(unknown) if unknown in about.classes else -1
        labels = np.append(class_indices(inside), np.full(sizes[1], right))
        probs = np.concatenate([class_probabilities(rows, calibrator) for rows in (inside, outside)])
        wrong = np.asarray(probs.argmax(axis=1) != labels, dtype=np.float64)
        doubt, flags = doubt_of(probs, about.classes, unknown), np.repeat([False, True], sizes)
        return cls(probs.max(axis=1), doubt, wrong, flags, *(np.ones((2, sum(sizes))) if strange is None else strange))

    @property
    def in_scope(self) -> "Mixture":
        """Without the texts out of scope."""
        return Mixture(*(values[~self.outside] for values in vars(self).values()))
