"""The menu of risks: which can be promised, with what coverage, and how many labelled rows the others would take."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

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


@dataclass(frozen=True, kw_only=True)
class MenuLine:
    """A target risk: its rule, or None and the labelled rows that a promise would take in all, by estimate.

    `rows_needed` is None where there is a rule, and where more rows will not do.
    """

    target: float
    rule: AbstentionRule | None
    rows_needed: int | None

    def describe(self, rows: int) -> str:
        """The line for a person; `rows` are those that decided."""
        if self.rule is not None:
            low, high = self.rule.coverage_interval
            return f"{self.target:4.0%}  {self.rule.coverage:6.1%} answered ({low:.1%} to {high:.1%})"
        if self.rows_needed is None:
            return f"{self.target:4.0%}  no promise; more rows will hardly help, the most trusted are wrong too often"
        return f"{self.target:4.0%}  no promise; it would take about {self.rows_needed:,} labelled rows, not {rows:,}"


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
class Menu:
    """What `rows` labelled rows can promise: a line for each target risk, and the risk curve.

    Each line is a promise by itself: it holds with `confidence`. All lines together hold with less, at worst
    1 - lines·(1 - confidence), so choose the risk that you need, not the line that turned out well.
    """

    score: str
    confidence: float
    rows: int
    lines: tuple[MenuLine, ...]
    curve: RiskCurve

    def rule(self, target: float) -> AbstentionRule | None:
        """The rule of a target on the menu; None where it cannot be promised."""
        for line in self.lines:
            if line.target == target:
                return line.rule
        raise ConfigurationError(
            f"target={target!r} is not on the menu: {', '.join(f'{line.target:g}' for line in self.lines)}."
        )

    def describe(self) -> list[str]:
        """Lines for a person."""
        return [
            f"risk  promise (confidence {self.confidence:g}, {self.rows} labelled rows, by {self.score})",
            *(line.describe(self.rows) for line in self.lines),
            "Each line is a promise by itself: choose the risk that you need, not the line that turned out well.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        lines = [{**asdict(one), "rule": one.rule.to_dict() if one.rule else None} for one in self.lines]
        curve = {name: list(values) for name, values in asdict(self.curve).items()}
        return {**asdict(self), "lines": lines, "curve": curve}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The menu that `to_dict` described."""
        try:
            lines = tuple(
                MenuLine(**{**one, "rule": AbstentionRule.from_dict(one["rule"]) if one["rule"] else None})
                for one in state["lines"]
            )
            curve = RiskCurve(**{name: tuple(values) for name, values in state["curve"].items()})
            return cls(**{**state, "lines": lines, "curve": curve})
        except (AttributeError, KeyError, TypeError) as error:
            raise CalibrationError(f"the stored menu is broken ({error}); calibrate again.") from error


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


@dataclass(frozen=True, kw_only=True)
class GroupedLine:
    """A target risk: its rule, or None and the labelled texts that a promise would take in all, by estimate.

    `texts_needed` is None where there is a rule, and where more texts will not do.
    """

    target: float
    rule: GroupedRule | None
    texts_needed: int | None

    def describe(self, texts: int) -> str:
        """The line for a person; `texts` are those that decided."""
        if self.rule is not None:
            low, high = self.rule.coverage_interval
            return f"{self.target:4.0%}  {self.rule.coverage:6.1%} of answers reported ({low:.1%} to {high:.1%})"
        if self.texts_needed is None:
            return f"{self.target:4.0%}  no promise; more texts will hardly help, the surest are wrong too often"
        return (
            f"{self.target:4.0%}  no promise; it would take about {self.texts_needed:,} labelled texts, not {texts:,}"
        )


@dataclass(frozen=True, kw_only=True)
class GroupedMenu:
    """What `texts` labelled texts can promise about their answers: a line for each target risk.

    As in `Menu`, each line is a promise by itself.
    """

    score: str
    confidence: float
    texts: int
    lines: tuple[GroupedLine, ...]

    def rule(self, target: float) -> GroupedRule | None:
        """The rule of a target on the menu; None where it cannot be promised."""
        for line in self.lines:
            if line.target == target:
                return line.rule
        raise ConfigurationError(
            f"target={target!r} is not on the menu: {', '.join(f'{line.target:g}' for line in self.lines)}."
        )

    def describe(self) -> list[str]:
        """Lines for a person."""
        return [
            f"risk  promise (confidence {self.confidence:g}, {self.texts} labelled texts, by {self.score})",
            *(line.describe(self.texts) for line in self.lines),
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
            lines = tuple(
                GroupedLine(**{**one, "rule": GroupedRule.from_dict(one["rule"]) if one["rule"] else None})
                for one in state["lines"]
            )
            return cls(**{**state, "lines": lines})
        except (AttributeError, KeyError, TypeError) as error:
            raise CalibrationError(f"the stored menu is broken ({error}); calibrate again.") from error


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
        lines.append(GroupedLine(target=target, rule=rule if rule.promised else None, texts_needed=needed))
    return GroupedMenu(score=score, confidence=confidence, texts=sample.texts, lines=tuple(lines))
