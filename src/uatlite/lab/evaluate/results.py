"""The results of an evaluation, as a frozen value that goes to JSON and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from uatlite.codec import NOT_STORED, dump, load
from uatlite.lab.evaluate.answer_outcomes import PromiseCheck
from uatlite.lab.evaluate.comparison import Score, Scores
from uatlite.lab.evaluate.verdict import Verdict, verdict_of
from uatlite.metrics.intervals import Resampling
from uatlite.values import Example, Kind


@dataclass(frozen=True)
class SetFacts:
    """A set, for a reader of its numbers."""

    name: str
    source: str
    alignment: str
    rows: int
    """scored rows"""
    left_out: int
    """rows without a gold label that the model knows"""
    truncated_texts: int
    truncated_tokens: int


@dataclass(frozen=True)
class SetScores(SetFacts):
    """The scores of every contender on one set."""

    scores: Scores
    shift: Scores = field(default_factory=dict)
    """delta_ece and robustness_score against the first set; empty for the first set"""
    detection: Scores = field(default_factory=dict)
    """auroc, aupr and fpr95 of finding out-of-scope rows; empty where the task has none, or where
    `Results.out_of_scope` has them"""
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs in the store, one for each seed"""


@dataclass(frozen=True)
class OutOfScope:
    """The first set together with texts that are out of scope."""

    name: str
    source: str
    rows: int
    """texts out of scope"""
    in_scope_rows: int
    """rows of the first set that are in scope and have a gold label that the model knows"""
    note: str
    """what the scope was fitted on, or why there is none"""
    detection: Scores
    """contender, or `scope` -> auroc, aupr and fpr95 of finding the texts out of scope"""
    in_scope: Scores
    """contender -> confidence_aurc; scope_aurc, by confidence times the chance in scope; scope_change, the second less
    the first: of the rows in scope alone. The last two are missing where there is no scope."""
    mixture: Scores
    """the same of all rows, where every answer to a text out of scope is an error"""
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs over the texts out of scope"""


@dataclass(frozen=True)
class Results:
    """The scores of every contender on every set; the first set is in domain, the others are shifts of it."""

    model: str
    model_hash: str
    contenders: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    """contender -> method, model, calibrator, seeds; and of a text of the first set the cost in passes, and seconds"""
    metrics: tuple[str, ...]
    resampling: Resampling
    sets: tuple[SetScores, ...]
    calibrators: Mapping[str, tuple[Mapping[str, Any], ...]]
    """contender -> its fitted calibrator for each seed, as the codec writes an `EvaluatedCalibrator`"""
    versions: Mapping[str, str]
    out_of_scope: OutOfScope | None = None
    """None where no texts out of scope were given"""
    texts: tuple[Example, ...] = field(default=(), metadata=NOT_STORED, compare=False, repr=False)
    """those of the first set; beside the results as a file of their own"""
    calibration_runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs over the calibration rows; empty where nothing was fitted"""
    suggested: tuple[str, ...] = ()
    """methods with their natural calibrators that were left out, though the method itself is a contender"""
    kind: Kind = "one"
    """what the model says about a text: one answer (one, choice), many labels (many), or entities (tokens)"""
    promises: tuple[PromiseCheck, ...] = ()
    """of several answers a text: what each calibrated contender promises, on every set"""

    @cached_property
    def verdict(self) -> Verdict | None:
        """Which contender to use at each cost; None where there is nothing to choose."""
        costs = {name: float(about["cost"]) for name, about in self.methods.items()}
        return verdict_of([(one.name, one.scores) for one in self.sets], costs, self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an undefined score is null."""
        apart = ("out_of_scope", "texts")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart}
        values["verdict"] = self.verdict and self.verdict.to_dict()
        values["sets"] = [_with_means(of_set) for of_set in self.sets]
        if self.out_of_scope is not None:
            values["out_of_scope"] = _with_means(self.out_of_scope)
        return dump(values)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Results":
        """The inverse of `to_dict`; the verdict is computed again."""
        state = {name: value for name, value in values.items() if name != "verdict"}
        state["sets"] = [_without_means(of_set) for of_set in values["sets"]]
        if "out_of_scope" in state:
            state["out_of_scope"] = _without_means(state["out_of_scope"])
        return load(cls, state, advice="evaluate again.")


TABLES = ("scores", "shift", "detection", "in_scope", "mixture")
"""The fields that hold scores by contender and metric."""


def _with_means(of_set: SetScores | OutOfScope) -> dict[str, Any]:
    """The fields of a set, each score with its mean and deviation, for readers of the file."""

    def described(score: Score) -> dict[str, Any]:
        summary = {"mean": score.mean, "deviation": score.deviation, "low": score.low, "high": score.high}
        return {**summary, "best": score.best, "values": score.values, "differences": score.differences}

    return _each_score(vars(of_set), described)


def _without_means(of_set: Mapping[str, Any]) -> dict[str, Any]:
    return _each_score(of_set, lambda score: {k: score[k] for k in score if k not in ("mean", "deviation")})


def _each_score(of_set: Mapping[str, Any], change: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    changed = {
        table: {name: {metric: change(one) for metric, one in row.items()} for name, row in of_set[table].items()}
        for table in TABLES
        if table in of_set
    }
    return {**of_set, **changed}
