"""The menu of risks: which can be promised, with what coverage, and how many labelled rows the others would take."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.trust.answers import TextScores
from uatlite.trust.grouped import GroupedRule, check_grouped, check_most, grouped_at, texts_needed
from uatlite.trust.promise import RISKS, promise_at, rows_needed, starting_scores
from uatlite.trust.rule import AbstentionRule, check_rows, check_target
from uatlite.values import Floats, check_share

CURVE_POINTS = 40
"""The curve has its points at every fortieth of the rows."""


Rule = TypeVar("Rule", AbstentionRule, GroupedRule)


@dataclass(frozen=True, kw_only=True)
class RiskLine(Generic[Rule]):
    """A target risk: its rule, or None and the labelled rows that a promise would take in all, by estimate.

    `rows_needed` is None where there is a rule, and where more rows will not do.
    """

    target: float
    rule: Rule | None
    rows_needed: int | None

    def describe(self, rows: int, unit: str = "rows") -> str:
        """The line for a person; `rows` are those that decided, and `unit` is what they are called."""
        if self.rule is not None:
            low, high = self.rule.coverage_interval
            return f"{self.target:4.0%}  {self.rule.coverage:6.1%} {self.rule.share_of} ({low:.1%} to {high:.1%})"
        if self.rows_needed is None:
            return f"{self.target:4.0%}  no promise; more {unit} will hardly help, the surest are wrong too often"
        return f"{self.target:4.0%}  no promise; it would take about {self.rows_needed:,} labelled {unit}, not {rows:,}"


MenuLine = RiskLine[AbstentionRule]


@dataclass(frozen=True, kw_only=True)
class PromisedRisks(Generic[Rule]):
    """What `rows` labelled rows can promise: a line for each target risk.

    Each line is a promise by itself: it holds with `confidence`. All lines together hold with less, at worst
    1 - lines·(1 - confidence), so choose the risk that you need, not the line that turned out well.
    """

    unit: ClassVar[str] = "rows"
    stored_rule: ClassVar[Any] = AbstentionRule
    score: str
    confidence: float
    rows: int
    lines: tuple[RiskLine[Rule], ...]

    def rule(self, target: float) -> Rule | None:
        """The rule of a target on the menu; None where it cannot be promised."""
        for line in self.lines:
            if line.target == target:
                return line.rule
        raise ConfigurationError(
            f"target={target!r} is not on the menu: {', '.join(f'{line.target:g}' for line in self.lines)}."
        )

    def with_rules(self, change: Callable[[Rule], Rule]) -> Self:
        """The menu with each of its rules changed."""
        lines = [replace(one, rule=None if one.rule is None else change(one.rule)) for one in self.lines]
        return replace(self, lines=tuple(lines))

    def describe(self) -> list[str]:
        """Lines for a person."""
        return [
            f"risk  promise (confidence {self.confidence:g}, {self.rows} labelled {self.unit}, by {self.score})",
            *(line.describe(self.rows, self.unit) for line in self.lines),
            "Each line is a promise by itself: choose the risk that you need, not the line that turned out well.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        lines = [{**asdict(one), "rule": one.rule.to_dict() if one.rule else None} for one in self.lines]
        return {**asdict(self), "lines": lines}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The menu that `to_dict` described."""
        try:
            return cls(**cls._fields(state))
        except (AttributeError, KeyError, TypeError) as error:
            raise CalibrationError(f"the stored menu is broken ({error}); calibrate again.") from error

    @classmethod
    def _fields(cls, state: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the class from plain JSON values."""
        rules = [cls.stored_rule.from_dict(one["rule"]) if one["rule"] else None for one in state["lines"]]
        lines = [RiskLine(**{**one, "rule": rule}) for one, rule in zip(state["lines"], rules, strict=True)]
        return {**state, "lines": tuple(lines)}


@dataclass(frozen=True, kw_only=True)
class RiskCurve:
    """The share of wrong answers at each coverage with its Clopper–Pearson interval, point by point; all (points,).

    `thresholds` are the scores above which a row is answered.
    """

    thresholds: tuple[float, ...]
    coverages: tuple[float, ...]
    risks: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Menu(PromisedRisks[AbstentionRule]):
    """What labelled rows of one answer each can promise, and their risk curve."""

    curve: RiskCurve

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"curve": {name: list(values) for name, values in asdict(self.curve).items()}}

    @classmethod
    def _fields(cls, state: dict[str, Any]) -> dict[str, Any]:
        curve = RiskCurve(**{name: tuple(values) for name, values in state["curve"].items()})
        return super()._fields(state) | {"curve": curve}


@dataclass(frozen=True, kw_only=True)
class GroupedMenu(PromisedRisks[GroupedRule]):
    """What labelled texts can promise about their answers; a row is a text."""

    unit: ClassVar[str] = "texts"
    stored_rule: ClassVar[Any] = GroupedRule


def risk_menu(
    scores: ArrayLike,
    wrong: ArrayLike,
    *,
    targets: Sequence[float] = RISKS,
    score: str = "confidence",
    confidence: float = 0.95,
    reference: ArrayLike | None = None,
    seed: int = 0,
) -> Menu:
    """What these labelled rows promise for each of the target risks; arguments as for `target_risk`.

    Each rule is that of `target_risk` with the same arguments.
    """
    s, w = check_rows(scores, wrong, confidence)
    for target in targets:
        check_target(target, s, score)
    s, w, others = starting_scores(s, w, reference, seed)
    lines = []
    for target in sorted(targets):
        rule = promise_at(s, w, target, others, score=score, confidence=confidence)
        lines.append(
            MenuLine(target=target, rule=rule, rows_needed=None)
            if rule.promised
            else MenuLine(target=target, rule=None, rows_needed=rows_needed(s, w, target, confidence))
        )
    return Menu(score=score, confidence=confidence, rows=len(s), lines=tuple(lines), curve=risk_curve(s, w, confidence))


def risk_curve(scores: Floats, wrong: NDArray[np.bool_], confidence: float) -> RiskCurve:
    """The observed risk at coverages from 1/40 to 1, with the exact interval of each point; tied rows come together.

    Given the (k+1)-th highest score, the k rows above it are a sample of all rows above it, so the interval is exact.
    """

    ranked = np.sort(scores)[::-1]
    errors = np.cumsum(wrong[np.argsort(-scores, kind="stable")])
    wanted = np.ceil(np.arange(1, CURVE_POINTS + 1) * len(scores) / CURVE_POINTS).astype(np.int64)
    counts = np.unique(np.searchsorted(-ranked, -ranked[wanted - 1], side="right"))
    k = errors[counts - 1]
    low, high = exact_interval(k, counts, confidence)
    return RiskCurve(
        thresholds=tuple(np.nextafter(ranked[counts - 1], -np.inf).tolist()),
        coverages=tuple((counts / len(scores)).tolist()),
        risks=tuple((k / counts).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def exact_interval(found: ArrayLike, rows: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    """The interval of Clopper and Pearson for a share of which `found` of `rows` rows were seen, elementwise."""
    from scipy.stats import beta

    k, n, tail = np.asarray(found), np.asarray(rows), (1.0 - confidence) / 2.0
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.maximum(k, 1), n - k + 1))
    return low, np.where(k == n, 1.0, beta.ppf(1.0 - tail, k + 1, np.maximum(n - k, 1)))


def grouped_menu(
    scores: ArrayLike,
    wrong: ArrayLike,
    text: ArrayLike,
    texts: int,
    *,
    targets: Sequence[float] = RISKS,
    kind: str = "precision",
    score: str = "confidence",
    confidence: float = 0.95,
    most: int | None = None,
    reference: TextScores | None = None,
    seed: int = 0,
) -> GroupedMenu:
    """What these labelled texts promise for each of the target risks; arguments and rules as for `grouped_risk`."""
    sample, w, others = check_grouped(scores, wrong, text, texts, confidence, reference, seed)
    cap, lines = check_most(most, others), []
    for target in sorted(targets):
        check_share("target", target)
        rule = grouped_at(sample, w, target, others, kind=kind, score=score, confidence=confidence, most=cap, seed=seed)
        needed = None if rule.promised else texts_needed(sample, w, target, others, kind, confidence, cap)
        lines.append(RiskLine(target=target, rule=rule if rule.promised else None, rows_needed=needed))
    return GroupedMenu(score=score, confidence=confidence, rows=sample.texts, lines=tuple(lines))
