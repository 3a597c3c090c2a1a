"""Texts out of scope beside the test rows: how well they are found, and what abstention is worth on both together.

The scope is read off the plain pass, once for all contenders. It is fitted on training texts of the task, without their
labels, and ranked among the calibration rows. Its passes take seconds and are not stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import run_tokens
from uatlite.errors import CalibrationError, DataError, MissingDependency
from uatlite.lab.evaluate.comparison import Scores, compare
from uatlite.lab.evaluate.outcomes import DIRECTIONS, class_indices, class_probabilities, doubt_of
from uatlite.lab.evaluate.plan import CALIBRATION, Plan
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Estimate, Resampling, detection_estimates, difference
from uatlite.metrics.rows import Ranking
from uatlite.metrics.selective import area_under_risk
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import longest, tokenize
from uatlite.text.examples import read_examples
from uatlite.text.rows import Reject
from uatlite.text.tasks import load, sample
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.scope import Scope, chance_in_scope, fit_scope
from uatlite.values import Dataset, Example, Floats

SPLIT = "out-of-scope"
"""The split that stored predictions of these texts are under, whatever split they come from."""
SCOPE = "scope"
"""The scope's row beside the contenders."""
TRAIN = "train"
REFERENCE = 6000
"""At most so many training texts describe the task."""
BLOCK = 1024
"""Texts whose representations are held at once."""

Advance = Callable[[float], None]


def outside_texts(plan: Plan) -> Dataset:
    """The texts out of scope of a plan, without labels, as a data set of the task under test."""
    assert plan.out_of_scope is not None
    task, split = plan.out_of_scope.task, plan.out_of_scope.split
    if task.path is not None and task.layout.label is None:
        examples, source = list(map(_usable, read_examples(task.path, task.layout))), str(task.path)
    else:
        data = load(task, split, plan.data_dir)
        examples, source = list(data.examples), data.source
        if data.out_of_scope is not None:
            examples = [example for example in examples if example.label == data.out_of_scope]
            source += f", rows labelled {task.out_of_scope}"
    if not examples:
        raise DataError(f"--out-of-scope: {source} holds no text; give a file or a split with texts out of scope.")
    chosen = sample([replace(example, label=None) for example in examples], plan.limit)
    return Dataset(task.name, SPLIT, plan.test.task.labels, tuple(chosen), source)


def _usable(row: Example | Reject) -> Example:
    if isinstance(row, Reject):
        raise DataError(f"{row.file}, line {row.line}: {row.reason}.")
    return row


@dataclass(frozen=True)
class ScopeTexts:
    """What the scope is fitted on: training texts, where they can be loaded, and calibration rows."""

    reference: Dataset | None
    calibration: Dataset

    def describe(self) -> str:
        rows = f"{len(self.calibration):,} calibration rows"
        if self.reference is None:
            return f"scope: by {rows} alone, as no training texts of the task were found"
        return f"scope: by {len(self.reference):,} training texts, without their labels, and {rows}"


def scope_texts(plan: Plan) -> ScopeTexts:
    """The texts that fit the scope of a plan; without calibration rows, a CalibrationError."""
    task = plan.test.task
    if CALIBRATION not in task.splits:
        raise CalibrationError(f"{task.name} has no calibration split")
    if plan.test.split == CALIBRATION:
        raise CalibrationError(f"{task.name}/{CALIBRATION} is the set under test")
    calibration = load(task, CALIBRATION, plan.data_dir, limit=plan.limit).in_scope()
    reference = None
    if TRAIN in task.splits and plan.test.split != TRAIN:
        try:
            rows = min(REFERENCE, plan.limit or REFERENCE)
            reference = load(task, TRAIN, plan.data_dir, limit=rows).in_scope()
        except (DataError, MissingDependency):
            pass
    return ScopeTexts(reference, calibration)


@dataclass(frozen=True, eq=False)
class Strangeness:
    """What the scope says of rows: their nonconformity (rows,) and their chance to be in scope (rows,)."""

    nonconformity: Floats
    chance: Floats

    def __getitem__(self, rows: NDArray[np.bool_]) -> "Strangeness":
        return Strangeness(self.nonconformity[rows], self.chance[rows])

    def and_then(self, other: "Strangeness") -> "Strangeness":
        """These rows, then the other ones."""
        return Strangeness(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in vars(self)))


@dataclass(frozen=True, eq=False)
class PlainReader:
    """The plain pass of a model over texts."""

    checkpoint: Checkpoint
    max_length: int | None
    advance: Advance

    def blocks(self, data: Dataset) -> Iterator[tuple[list[int], Floats, Floats | None]]:
        """Places (rows,), logits (rows, classes) and representations (rows, units), some rows at a time."""
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        tokens = tokenize(tokenizer, data.texts, longest(model, tokenizer, self.max_length))
        order = tokens.by_length()
        for start in range(0, len(order), BLOCK):
            rows = order[start : start + BLOCK]
            found = run_tokens(model, BASE, tokens, rows)
            yield rows, found.logits[0], found.representations
            self.advance(len(rows))

    def scope(self, texts: ScopeTexts) -> Scope:
        """The scope fitted on these texts."""
        fit: ScopeFit | None = None
        for _, logits, x in self.blocks(texts.reference) if texts.reference is not None else ():
            if x is not None:
                fit = fit or ScopeFit(x.shape[1], logits.shape[1])
                fit.add(x, logits.argmax(axis=1))
        blocks = list(self.blocks(texts.calibration))
        read = [x for _, _, x in blocks if x is not None]
        return fit_scope(fit, np.concatenate(read) if read else None, np.concatenate([one for _, one, _ in blocks]))

    def strangeness(self, scope: Scope, data: Dataset) -> Strangeness:
        """What the scope says of each text, in the order of the data set."""
        found = Strangeness(np.empty(len(data)), np.empty(len(data)))
        for rows, logits, x in self.blocks(data):
            found.nonconformity[rows] = scope.nonconformity(x, logits)
            found.chance[rows] = chance_in_scope(scope.p_values(x, logits))
        return found


@dataclass(frozen=True, eq=False)
class Mixed:
    """One run of a contender on the test rows in scope and then on the texts out of scope: (rows,) each."""

    confidence: Floats
    doubt: Floats
    """how much a row looks out of scope: 1 - confidence, or the probability of such a class if the model has one"""
    wrong: Floats
    """1 for an error, and for every answer to a text out of scope but "out of scope" """


def in_scope(test: StoredPredictions) -> NDArray[np.bool_]:
    """(rows,): which test rows have a gold label that the model knows and that is not "out of scope"."""
    known = class_indices(test) >= 0
    return known if test.provenance.out_of_scope is None else known & (test.labels != test.provenance.out_of_scope)


def mixed_of(test: StoredPredictions, outside: StoredPredictions, calibrator: LogitCalibrator | None) -> Mixed:
    """A run on the test rows that are in scope, then on the texts out of scope."""
    about, inside = test.provenance, in_scope(test)
    unknown = None if about.out_of_scope is None else about.labels[about.out_of_scope]
    right = about.classes.index(unknown) if unknown in about.classes else -1
    labels = np.append(class_indices(test)[inside], np.full(len(outside.ids), right))
    probabilities = np.concatenate(
        [class_probabilities(test, calibrator)[inside], class_probabilities(outside, calibrator)]
    )
    wrong = np.asarray(probabilities.argmax(axis=1) != labels, dtype=np.float64)
    return Mixed(probabilities.max(axis=1), doubt_of(probabilities, about.classes, unknown), wrong)


def score_found(
    runs: Mapping[str, Sequence[Mixed]], strange: Strangeness | None, sizes: tuple[int, int], how: Resampling
) -> Scores:
    """AUROC, AUPR and FPR95 of finding texts out of scope: by each contender's doubt, and by the scope.

    `sizes` are the rows in scope and out of scope; each part is resampled by itself.
    """
    flags = np.repeat([False, True], sizes)
    estimates = {name: [detection_estimates(one.doubt, flags) for one in seeds] for name, seeds in runs.items()}
    if strange is not None:
        estimates[SCOPE] = [detection_estimates(strange.nonconformity, flags)]
    return compare(estimates, DIRECTIONS, sizes, how)


def score_answers(
    runs: Mapping[str, Sequence[Mixed]], strange: Strangeness | None, sizes: tuple[int, ...], how: Resampling
) -> Scores:
    """AURC by confidence, by confidence times the chance in scope, and the second less the first.

    `sizes` are the rows in scope, and those out of scope if they are to be answered too.
    """
    chance = None if strange is None else strange.chance
    estimates = {name: [_areas(one, chance, sum(sizes)) for one in seeds] for name, seeds in runs.items()}
    return compare(estimates, DIRECTIONS, sizes, how)


def _areas(run: Mixed, chance: Floats | None, rows: int) -> dict[str, Estimate]:
    confidence, wrong = run.confidence[:rows], run.wrong[:rows]
    by_confidence = area_under_risk(Ranking.of(confidence), wrong)
    if chance is None:
        return {"confidence_aurc": Estimate(by_confidence)}
    by_both = area_under_risk(Ranking.of(confidence * chance[:rows]), wrong)
    return {
        "confidence_aurc": Estimate(by_confidence),
        "scope_aurc": Estimate(by_both),
        "scope_change": Estimate(difference(by_both, by_confidence)),
    }
