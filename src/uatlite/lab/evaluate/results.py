"""What an evaluation found, as a frozen value that goes to JSON and back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uatlite.lab.evaluate.compare import Score
from uatlite.lab.evaluate.outcomes import Resampling, SetScores
from uatlite.metrics.bootstrap import Interval

Scores = Mapping[str, Mapping[str, Score]]


@dataclass(frozen=True)
class Results:
    """Every contender on every set; the first set is in domain, the others are shifts of it."""

    model: str
    model_hash: str
    contenders: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    """contender -> method, its model, calibrator, passes, seeds, seconds over the first set's rows and seeds"""
    metrics: tuple[str, ...]
    resampling: Resampling
    sets: tuple[SetScores, ...]
    calibrators: Mapping[str, tuple[Mapping[str, Any], ...]]
    """contender -> its fitted calibrator for each seed, as `calibrator_from_dict` takes it"""
    versions: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; a score that is not defined is null."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values |= {"resampling": asdict(self.resampling), "sets": [_set_to_dict(one) for one in self.sets]}
        return _plain(values)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Results":
        """The inverse of `to_dict`."""
        return cls(
            **{
                **values,
                "contenders": tuple(values["contenders"]),
                "metrics": tuple(values["metrics"]),
                "resampling": Resampling(**values["resampling"]),
                "sets": tuple(_set_from_dict(one) for one in values["sets"]),
                "calibrators": {name: tuple(states) for name, states in values["calibrators"].items()},
            }
        )


_TABLES = ("scores", "shift", "detection")


def _set_to_dict(one: SetScores) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in one.__dataclass_fields__}
    for table in _TABLES:
        values[table] = {
            contender: {metric: _score_to_dict(score) for metric, score in scores.items()}
            for contender, scores in values[table].items()
        }
    return values


def _score_to_dict(score: Score) -> dict[str, Any]:
    summary = {"mean": score.mean, "deviation": score.deviation, "low": score.low, "high": score.high}
    difference = None if score.difference is None else asdict(score.difference)
    return {**summary, "best": score.best, "values": score.values, "difference": difference}


def _set_from_dict(values: Mapping[str, Any]) -> SetScores:
    tables: dict[str, Scores] = {
        table: {
            contender: {metric: _score_from_dict(score) for metric, score in scores.items()}
            for contender, scores in values[table].items()
        }
        for table in _TABLES
    }
    runs = {method: tuple(keys) for method, keys in values["runs"].items()}
    return SetScores(**{**values, **tables, "runs": runs})


def _score_from_dict(values: Mapping[str, Any]) -> Score:
    difference = values["difference"]
    return Score(
        values=tuple(_number(value) for value in values["values"]),
        low=_number(values["low"]),
        high=_number(values["high"]),
        difference=None if difference is None else Interval(**{key: _number(v) for key, v in difference.items()}),
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
