"""The results of an evaluation, as a frozen value that goes to JSON and back, and the verdict that they give.

The verdict says which contender to use at each cost, which ones are level with it, and which ones it beats. One beats
another on a set if the paired interval of their difference in one proper score excludes 0; else the two are level. At a
cost, the contender to use is the cheapest one that no other contender within that cost beats; of equally cheap ones,
the one with the better mean. Each pair is tested by itself, at the confidence of the intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from uatlite.codec import NOT_STORED, dump, load
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.comparison import Scores, relation
from uatlite.lab.evaluate.outcomes import OUTCOMES, PromiseCheck
from uatlite.metrics.intervals import SCALES, Resampling
from uatlite.values import Example, Kind

COSTS = (1.0, 2.0, 5.0, 10.0)
"""Passes of a text; the dearest contender's own are added where it takes more."""
METRIC = "nll"
"""The proper score that the verdict is by; the first scored metric with a better direction where it was not scored."""


@dataclass(frozen=True)
class Choice:
    """The contender to use where a text may cost so many passes; the others are those within this cost."""

    passes: float
    contender: str
    level: tuple[str, ...]
    """others that it can not be told from"""
    beaten: tuple[str, ...]
    """others that it beats"""


@dataclass(frozen=True)
class Verdict:
    """What to use, by one metric on the first set; and who beats it on the other sets."""

    metric: str
    set: str
    choices: tuple[Choice, ...]
    """from the lowest cost to the highest"""
    beaten_by: Mapping[str, Mapping[str, tuple[str, ...]]]
    """shifted set -> contender to use -> those within its cost or beyond that beat it there"""

    @property
    def recommended(self) -> str:
        """The contender to use where cost is no matter: the cheapest that none beats."""
        return self.choices[-1].contender

    @property
    def distinct(self) -> tuple[str, ...]:
        """The contenders to use, each once, from cheap to dear."""
        return tuple(dict.fromkeys(choice.contender for choice in self.choices))


def verdict_of(
    sets: Iterable[tuple[str, Scores]], costs: Mapping[str, float], metrics: Sequence[str]
) -> Verdict | None:
    """The verdict from the name and the scores of each set, and what a text costs each contender, in passes.

    None where there is nothing to choose: a single contender, or no metric with a better direction.
    """
    metric = METRIC if METRIC in metrics else next((name for name in metrics if SCALES[name].better), METRIC)
    better = SCALES[metric].better
    if metric not in metrics or better is None or len(costs) < 2:
        return None

    def standing(how: str, scores: Scores, name: str, others: Iterable[str]) -> tuple[str, ...]:
        """Others that a contender is better than, level with or worse than."""
        apart = scores[name][metric].differences
        return tuple(other for other in others if other != name and relation(apart[other], better) == how)

    (first, scores), *shifted = sets
    dearest, sign = max(costs.values()), 1 if better == "lower" else -1
    choices = []
    for budget in (*COSTS, *([dearest] if dearest > COSTS[-1] else [])):
        within = [name for name in scores if costs[name] <= budget]
        if within:
            unbeaten = [name for name in within if not standing("worse", scores, name, within)]
            use = min(unbeaten, key=lambda name: (costs[name], sign * scores[name][metric].mean))
            level, beaten = (standing(how, scores, use, within) for how in ("level", "better"))
            choices.append(Choice(budget, use, level, beaten))
    used = dict.fromkeys(choice.contender for choice in choices)
    beaten_by = {name: {use: standing("worse", others, use, others) for use in used} for name, others in shifted}
    return Verdict(metric, first, tuple(choices), beaten_by)


@dataclass(frozen=True)
class SetScores:
    """A set, for a reader of its numbers, and the scores of every contender on it."""

    name: str
    source: str
    alignment: str
    rows: int
    """scored rows"""
    left_out: int
    """rows without a gold label that the model knows"""
    truncated_texts: int
    truncated_tokens: int
    scores: Scores = field(default_factory=dict)
    shift: Scores = field(default_factory=dict)
    """delta_ece and robustness_score against the first set; empty for the first set"""
    detection: Scores = field(default_factory=dict)
    """auroc, aupr and fpr95 of finding out-of-scope rows; empty where the task has none, or where
    `Results.out_of_scope` has them"""
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs in the store, one for each seed; of several answers a text by contender"""


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
    calibrators: Mapping[str, tuple[EvaluatedCalibrator, ...]]
    """contender -> its fitted calibrator for each seed; none without one"""
    versions: Mapping[str, str]
    date: str = ""
    """the day of the evaluation, 2026-11-19"""
    command: str = ""
    """the command line that asks for it"""
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

    @property
    def several(self) -> bool:
        """Whether a text has several answers: entities, or labels."""
        return OUTCOMES[self.kind].answers is not None

    @cached_property
    def verdict(self) -> Verdict | None:
        """Which contender to use at each cost; None where there is nothing to choose."""
        costs = {name: float(about["cost"]) for name, about in self.methods.items()}
        return verdict_of([(scored.name, scored.scores) for scored in self.sets], costs, self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an undefined score is null."""
        values: dict[str, Any] = dump(self)
        outside, verdict = values.pop("out_of_scope"), self.verdict
        values["verdict"] = verdict and {**dump(verdict), "recommended": verdict.recommended}
        return values if outside is None else {**values, "out_of_scope": outside}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Results":
        """The inverse of `to_dict`; the verdict is computed again."""
        return load(cls, {name: values[name] for name in values if name != "verdict"}, advice="evaluate again.")
