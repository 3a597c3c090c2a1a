"""From what is stored to what is scored: calibrated probabilities beside the gold labels, or answers beside the gold.

Only stored predictions are needed, no model and no torch. Calibrators work on the model's own columns, before columns
are summed into classes of the task. A calibrator fitted on NLI with three classes therefore serves HANS with two.
Texts with several gold answers, labels or entities, are scored answer by answer; a rule about these is checked on the
same texts: whether its promise is kept, and how much it reports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.predictions import LOG_ODDS
from uatlite.errors import CalibrationError, DataError, StoreError
from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
from uatlite.lab.evaluate.store import StoredPredictions, read_arrays
from uatlite.metrics.answers import ANSWER_METRICS, AnswerRows, Found, LabelRows
from uatlite.metrics.intervals import METRICS, Estimate, Estimates, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows, ratio
from uatlite.text.labels import Alignment, fold
from uatlite.text.write import Pieces
from uatlite.trust import distribution
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.trust.rule import Rule, Wanted
from uatlite.values import Dataset, Floats, Integers, Kind, Marks, Text

HEADLINE = (
    "accuracy", "macro_f1", "ece", "debiased_ece", "nll", "brier", "aurc", "coverage@0.9", "accuracy@0.9", "error_auroc"
)  # fmt: skip
"""The metrics that are scored by default."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one run of a contender says about a set, beside the gold."""

    rows: Rows
    """as they are ranked: texts whose gold label is a class of the model, entities by confidence, or pairs of a text
    and a label by how sure their yes or no is"""
    applies: Rows
    """as their confidence is compared with how often it is right: of pairs the confidence that the label applies"""
    doubt: Floats | None = None
    """(labelled rows,): how much each row looks out of scope; None where the task has no such rows"""
    out_of_scope: Marks | None = None
    """(labelled rows,): which rows are out of scope"""


def fit_calibrator(name: str, predictions: StoredPredictions) -> LogitCalibrator:
    """A calibrator fitted on the stored predictions of a calibration split."""
    provenance = predictions.provenance
    if any(len(columns) != 1 for columns in provenance.recipe.columns):
        raise CalibrationError(
            f"{provenance.set_name} sums several classes of the model into one, so its labels do not say which of them "
            "is right, and no calibrator can be fitted on it. Evaluate the model's own task, with this one as --shift."
        )
    # the model's column of each gold label; -1 where there is none
    columns = np.array([*(column for (column,) in provenance.recipe.columns), -1])[class_indices(predictions)]
    try:
        passes = predictions.passes.take(columns >= 0)
        return EVALUATED[name](passes.mean_logits, columns[columns >= 0], passes.margin_variance)
    except CalibrationError as error:
        raise CalibrationError(f"{provenance.set_name}: {error}") from error


def outcome_of(predictions: StoredPredictions, calibrator: LogitCalibrator | None) -> Outcome:
    """Calibrated probabilities of the task's classes, and the gold labels in the same order."""
    provenance = predictions.provenance
    probabilities = class_probabilities(predictions, calibrator)
    labels = class_indices(predictions)
    scored = labels >= 0
    if not scored.any():
        raise DataError(f"{provenance.set_name} has no row with a gold label that the model knows: nothing to score.")
    doubt = flags = None
    if provenance.out_of_scope is not None:
        labelled = predictions.labels >= 0
        flags = (predictions.labels == provenance.out_of_scope)[labelled]
        doubt = doubt_of(probabilities, provenance.classes, provenance.labels[provenance.out_of_scope])[labelled]
    rows = Rows.of(probabilities[scored], labels[scored])
    return Outcome(rows, rows, doubt, flags)


def class_probabilities(predictions: StoredPredictions, calibrator: LogitCalibrator | None) -> Floats:
    """(rows, classes): calibrated probabilities of the task's classes that the model knows."""
    columns = distribution.probabilities(predictions.passes, calibrator)
    about = predictions.provenance
    alignment = Alignment(about.recipe.columns, about.classes, about.alignment)
    return np.asarray(alignment.apply(columns).astype(np.float64))


def class_indices(predictions: StoredPredictions) -> NDArray[np.int64]:
    """(rows,): the gold label as an index into the model's classes; -1 without a label or outside of them."""
    provenance = predictions.provenance
    column = {label: index for index, label in enumerate(provenance.classes)}
    table = np.array([column.get(label, -1) for label in provenance.labels] + [-1], dtype=np.int64)
    return np.asarray(table[predictions.labels])  # NO_LABEL, -1, reads the entry at the end


def doubt_of(probabilities: Floats, classes: tuple[str, ...], out_of_scope: str | None) -> Floats:
    """(rows,): the probability of the out-of-scope class where the model has it, else 1 - confidence."""
    if out_of_scope is not None and out_of_scope in classes:
        return np.asarray(probabilities[:, classes.index(out_of_scope)])
    return np.asarray(1 - probabilities.max(axis=1))


# ── several answers a text ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class GoldRows:
    """The texts of a set with their gold answers, by the names of the model."""

    texts: list[Text]
    gold: list[list[Any]]
    """the entities of each text, (start, end, type); or its labels"""
    note: str
    """how the names of the set fit those of the model"""

    @classmethod
    def of(cls, dataset: Dataset, classes: Sequence[str]) -> "GoldRows":
        """The rows of a data set for a model of these types or labels; names are compared without regard to case."""
        names = {fold(name): name for name in classes}
        entities = dataset.examples[0].entities is not None
        given: list[list[tuple[Any, ...]]] = [
            list(example.entities or ()) if entities else [(dataset.labels[label],) for label in example.labels or ()]
            for example in dataset.examples
        ]
        kept = [[(*span, names[fold(name)]) for *span, name in row if fold(name) in names] for row in given]
        unknown = sum(map(len, given)) - sum(map(len, kept))
        if unknown and not any(kept):
            raise DataError(
                f"{dataset.name}/{dataset.split}: none of its labels ({', '.join(dataset.labels)}) is one of the "
                f"model's: {', '.join(classes)}. Evaluate a model of this task."
            )
        note = "every gold answer is of a kind that the model knows"
        if unknown:
            note = f"{unknown:,} gold answers are of kinds that the model does not know, and are not counted"
        return cls(dataset.texts, kept if entities else [[name for (name,) in row] for row in kept], note)


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """What a contender says about some texts, beside their gold, as it is stored: (answers,) each, then (texts,)."""

    text: Integers
    column: Integers
    """the label, or the type of the entity"""
    right: Marks
    """whether an entity is right, or whether a label applies"""
    confidence: Floats
    """the probability of that"""
    score: Floats
    """what the rule ranks by"""
    reported: Marks
    gold: Integers
    """(texts, columns): how many gold answers there are"""
    cut: Integers
    """tokens that were cut off"""
    seconds: Floats
    """how long it took"""

    @classmethod
    def of(cls, said: Any, gold: NDArray[Any], columns: Integers, confidence: Floats, seconds: float) -> Self:
        """What predictions say beside checked gold; `columns` are `AnswerScores.gold` of it."""
        rule = said.rule
        return cls(
            text=said.answers.text,
            column=said.answers.kind,
            right=~said.labelled(gold, Wanted(score=LOG_ODDS)).errors,
            confidence=confidence,
            score=said.scores(LOG_ODDS if rule is None else rule.score),
            reported=np.zeros(len(said.answers), dtype=np.bool_) if rule is None else said.reports,
            gold=columns,
            cut=said.cut_tokens,
            seconds=np.full(len(said), seconds / max(len(said), 1)),
        )

    @classmethod
    def read(cls, pieces: Pieces) -> "JudgedAnswers":
        """The answers of a finished run, in the order of its texts."""
        parts = [pieces.read(name, read_arrays) for name in pieces.names("piece-*.npz")]
        if not pieces.finished or not all(parts):
            raise StoreError(f"{pieces.directory} is not finished or broken; run `uatlite evaluate` again.")
        return cls.joined([cls(**arrays) for arrays in parts if arrays])

    @classmethod
    def joined(cls, parts: Sequence["JudgedAnswers"]) -> "JudgedAnswers":
        """What is said about the texts of all parts, one after the other."""
        starts = np.cumsum([0, *(len(piece.cut) for piece in parts)])
        values = {field.name: np.concatenate([getattr(piece, field.name) for piece in parts]) for field in fields(cls)}
        moved = [piece.text + start for piece, start in zip(parts, starts, strict=False)]
        return cls(**values | {"text": np.concatenate(moved)})

    @property
    def rows(self) -> AnswerRows:
        """The confidence that each answer is right, or applies, against whether it does."""
        return AnswerRows.of(self.confidence, self.right, self.text, texts=len(self.cut))

    def outcome(self, pairs: bool) -> Outcome:
        """The same as they are ranked: entities, or pairs of a text and a label."""
        rows = self.rows
        return Outcome(Rows(rows.probabilities, rows.labels, rows.precision) if pairs else rows, rows)

    def tally(self, chosen: Marks) -> Floats:
        """(texts, columns): how many of the chosen answers there are."""
        counts = np.zeros(self.gold.shape)
        np.add.at(counts, (self.text[chosen], self.column[chosen]), 1.0)
        return counts


# ── promises ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PromiseCheck:
    """A rule that calibration rows made, on one set. Shares are None where nothing is reported."""

    contender: str
    set: str
    rule: str
    """what is promised, in a sentence"""
    promised: bool
    target: float
    covered: str
    """what the coverage is a share of"""
    reported: int
    wrong: int
    risk: float | None
    """wrong / reported"""
    risk_interval: tuple[float, float] | None
    coverage: float
    coverage_interval: tuple[float, float]
    best: float
    """the coverage at the target of the best threshold on the same score, chosen with these very labels"""


def check_promise(
    contender: str, name: str, rule: Rule, said: JudgedAnswers, pairs: bool, how: Resampling
) -> PromiseCheck:
    """The rule on the answers of the set `name`; intervals resample texts. Of pairs it covers those that apply."""
    reported, wrong, target = said.reported, said.reported & ~said.right, float(rule.target or 0.0)
    counted = said.right if pairs else np.ones(len(said.right), dtype=np.bool_)

    def share(some: Marks, every: Marks) -> Estimate:
        numerator, denominator = (said.tally(chosen).sum(axis=1) for chosen in (some, every))
        return Estimate(lambda counts: ratio(counts @ numerator, counts @ denominator))

    shares = {"risk": share(wrong, reported), "coverage": share(reported & counted, counted)}
    risk, coverage = intervals(Estimates(shares, (len(said.cut),)), how).values()
    ends = [(float(np.nan_to_num(each.low)), float(np.nan_to_num(each.high))) for each in (risk, coverage)]
    none = not reported.any()
    return PromiseCheck(
        contender=contender,
        set=name,
        rule=rule.describe(),
        promised=rule.promised,
        target=target,
        covered="gold labels" if pairs else "entities found",
        reported=int(reported.sum()),
        wrong=int(wrong.sum()),
        risk=None if none else risk.point,
        risk_interval=None if none else ends[0],
        coverage=float(np.nan_to_num(coverage.point)),
        coverage_interval=ends[1],
        best=best_coverage(said.score, said.right, counted, target),
    )


def best_coverage(scores: Floats, right: Marks, counted: Marks, target: float) -> float:
    """The largest share of the counted answers above a threshold where at most `target` of what is above is wrong."""
    order = np.argsort(-scores, kind="stable")
    wrong = np.cumsum(~right[order]) / np.arange(1, len(order) + 1)
    last = np.append(np.diff(scores[order]) != 0, True)[: len(order)]  # a threshold cannot part equal scores
    fitting = np.flatnonzero((wrong <= target) & last)
    if not len(fitting) or not counted.any():
        return 0.0
    return float(counted[order][: fitting[-1] + 1].sum() / counted.sum())


# ── what is scored ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class AnswerScores:
    """How several answers a text are scored."""

    pairs: bool
    """whether every pair of a text and a label is an answer"""
    usual: Callable[[Any], Floats]
    """predictions -> (answers,): the confidence without a method; of entities the mean probability of their tags"""
    gold: Callable[[Any, int], Integers]
    """gold and the number of columns -> (texts, columns): how many gold answers there are"""
    estimates: Callable[[JudgedAnswers], Estimates]
    """the metrics, ready to resample texts"""


def _entity_estimates(said: JudgedAnswers) -> Estimates:
    """The metrics of entities."""
    every = np.ones(len(said.text), dtype=np.bool_)
    counts = Found(said.tally(said.right), said.tally(every), said.gold.astype(np.float64))
    return Estimates({**said.rows.estimates(), **counts.estimates()}, (len(said.cut),))


LABEL_METRICS = (
    "label_nll", "label_ece", "label_brier", "pair_aurc", "micro_average_precision", "macro_average_precision",
    "micro_f1", "macro_f1",
)  # fmt: skip
ENTITY_METRICS = ("answer_nll", "answer_ece", "answer_aurc", "wrong_auroc", "f1", "precision", "recall")


@dataclass(frozen=True)
class KindScores:
    """What is scored of one kind of answers."""

    metrics: tuple[str, ...]
    """by default"""
    every: tuple[str, ...]
    """all that can be asked for"""
    ece: str
    """the one that says how well it is calibrated"""
    compared: tuple[str, str, str]
    """that tell whether a model became better: NLL, AURC and accuracy, or what stands for it"""
    answers: AnswerScores | None = None
    """None where a text has one answer"""

    def estimates(self, said: Any, gold: NDArray[Any]) -> Estimates:
        """Every metric of predictions beside checked gold, ready to resample texts."""
        if self.answers is None:
            return metric_estimates(Rows.of(said.probabilities, gold))
        columns = self.answers.gold(gold, len(said.classes))
        return self.answers.estimates(JudgedAnswers.of(said, gold, columns, said.sure, 0.0))


_ONE = KindScores(HEADLINE, tuple(METRICS), "ece", ("nll", "aurc", "accuracy"))
OUTCOMES: dict[Kind, KindScores] = {
    "one": _ONE,
    "choice": _ONE,
    "labels": KindScores(
        LABEL_METRICS, LABEL_METRICS, "label_ece", ("label_nll", "pair_aurc", "micro_f1"),
        AnswerScores(
            pairs=True,
            usual=lambda said: said.sure,
            gold=lambda gold, columns: gold.astype(np.int64),
            estimates=lambda said: LabelRows.of(said.confidence.reshape(said.gold.shape), said.gold).estimates(),
        ),
    ),
    "entities": KindScores(
        ENTITY_METRICS, (*ANSWER_METRICS, "f1", "precision", "recall", "macro_f1"), "answer_ece",
        ("answer_nll", "answer_aurc", "f1"),
        AnswerScores(
            pairs=False,
            usual=lambda said: np.array([entity.score for row in said.decoded for entity in row.entities], np.float64),
            gold=lambda gold, columns: np.array([np.bincount([c for *_, c in row], minlength=columns) for row in gold]),
            estimates=_entity_estimates,
        ),
    ),
}  # fmt: skip
