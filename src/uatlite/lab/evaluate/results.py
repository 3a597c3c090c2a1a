"""The results of an evaluation, as a frozen value that goes to JSON and back."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from uatlite.codec import dump
from uatlite.lab.evaluate.comparison import Score, Scores
from uatlite.lab.evaluate.own_file import OwnFile
from uatlite.lab.evaluate.promise_check import PromiseCheck
from uatlite.lab.evaluate.verdict import Verdict, verdict_of
from uatlite.metrics.intervals import Interval, Resampling


@dataclass(frozen=True)
class SetScores:
    """The scores of every contender on one set."""

    name: str
    source: str
    alignment: str
    rows: int
    """scored rows"""
    left_out: int
    """rows without a gold label that the model knows"""
    truncated_texts: int
    truncated_tokens: int
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
    own_file: OwnFile | None = None
    """the user's file that the first set is from; None for a task"""
    calibration_runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs over the calibration rows; empty where nothing was fitted"""
    suggested: tuple[str, ...] = ()
    """methods with their natural calibrators that were left out, though the method itself is a contender"""
    kind: str = "one"
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
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["resampling"] = dump(self.resampling)
        values["own_file"] = self.own_file and self.own_file.to_dict()
        values["promises"] = [asdict(one) for one in self.promises]
        values["verdict"] = self.verdict and self.verdict.to_dict()
        values["sets"] = [_tables_to_dict(one, _TABLES) for one in self.sets]
        outside = values.pop("out_of_scope")
        if outside is not None:
            values["out_of_scope"] = _tables_to_dict(outside, _SCOPE_TABLES)
        return _plain(values)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Results":
        """The inverse of `to_dict`; the verdict is computed again."""
        outside = values.get("out_of_scope")
        return cls(
            **{
                **{name: value for name, value in values.items() if name != "verdict"},
                "contenders": tuple(values["contenders"]),
                "metrics": tuple(values["metrics"]),
                "resampling": Resampling(**values["resampling"]),
                "sets": tuple(SetScores(**_tables_from_dict(one, _TABLES)) for one in values["sets"]),
                "out_of_scope": None if outside is None else OutOfScope(**_tables_from_dict(outside, _SCOPE_TABLES)),
                "own_file": OwnFile(**values["own_file"]) if values["own_file"] else None,
                "calibration_runs": _keys(values["calibration_runs"]),
                "suggested": tuple(values["suggested"]),
                "promises": tuple(PromiseCheck.from_dict(one) for one in values.get("promises", ())),
                "calibrators": {name: tuple(states) for name, states in values["calibrators"].items()},
            }
        )


_TABLES = ("scores", "shift", "detection")
_SCOPE_TABLES = ("detection", "in_scope", "mixture")


def _tables_to_dict(one: SetScores | OutOfScope, tables: Sequence[str]) -> dict[str, Any]:
    return vars(one) | {table: _each_score(getattr(one, table), _score_to_dict) for table in tables}


def _tables_from_dict(values: Mapping[str, Any], tables: Sequence[str]) -> dict[str, Any]:
    scores = {table: _each_score(values[table], _score_from_dict) for table in tables}
    return {**values, **scores, "runs": _keys(values["runs"])}


def _keys(runs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {method: tuple(keys) for method, keys in runs.items()}


def _each_score(table: Mapping[str, Mapping[str, Any]], change: Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    return {name: {metric: change(score) for metric, score in scores.items()} for name, scores in table.items()}


def _score_to_dict(score: Score) -> dict[str, Any]:
    summary = {"mean": score.mean, "deviation": score.deviation, "low": score.low, "high": score.high}
    differences = {other: asdict(apart) for other, apart in score.differences.items()}
    return {**summary, "best": score.best, "values": score.values, "differences": differences}


def _score_from_dict(values: Mapping[str, Any]) -> Score:
    differences = {
        other: Interval(**{key: _number(value) for key, value in apart.items()})
        for other, apart in values["differences"].items()
    }
    return Score(
        values=tuple(_number(value) for value in values["values"]),
        low=_number(values["low"]),
        high=_number(values["high"]),
        differences=differences,
        best=bool(values["best"]),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
