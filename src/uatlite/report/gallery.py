"""Which figures a report has: for each set the scores, the risk–coverage curves, the thresholds, and reliability."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from uatlite.experiments.evaluate import SetScores
from uatlite.experiments.probabilities import Outcome
from uatlite.report import drawing
from uatlite.report.displays import Intervals, Reliability, RiskCoverage, Thresholds
from uatlite.report.evaluation import Evaluation
from uatlite.report.figures import Figure, render
from uatlite.report.tables import heading
from uatlite.report.theme import Stroke, strokes

SCORES = ("ece", "nll", "aurc")


@dataclass(frozen=True)
class SetFigures:
    """The figures of one set; `scores` has one for each metric, `reliability` one for each contender."""

    name: str
    scores: tuple[Figure, ...]
    risk_coverage: Figure
    thresholds: Figure
    reliability: tuple[Figure, ...]

    @property
    def all(self) -> tuple[Figure, ...]:
        return (*self.scores, self.risk_coverage, self.thresholds, *self.reliability)


def figures_of(evaluation: Evaluation, one: SetScores) -> SetFigures:
    """Every figure of a set."""
    outcomes, how = evaluation.outcomes(one.name), strokes(evaluation.contenders)
    level = evaluation.results.resampling.confidence
    return SetFigures(
        name=one.name,
        scores=tuple(_scores(one, metric, how) for metric in SCORES if metric in evaluation.results.metrics),
        risk_coverage=_risk_coverage(one, outcomes, how),
        thresholds=_thresholds(one, outcomes, how),
        reliability=tuple(_reliability(one, name, outcome, how[name], level) for name, outcome in outcomes.items()),
    )


def _scores(one: SetScores, metric: str, how: Mapping[str, Stroke]) -> Figure:
    display = Intervals.of(one, metric)
    draw = partial(drawing.draw_intervals, display, how)
    alt = f"A dot and an interval for each method. {_listed(one, metric)}"
    return render(f"{metric}-{one.name}", f"{heading(metric)} on {one.name}", alt, display, draw)


def _risk_coverage(one: SetScores, outcomes: Mapping[str, Outcome], how: Mapping[str, Stroke]) -> Figure:
    display = RiskCoverage.of(outcomes)
    draw = partial(drawing.draw_risk_coverage, display, how)
    alt = f"Share of wrong answers against the share answered, most confident first. {_listed(one, 'aurc')}"
    return render(f"risk-coverage-{one.name}", f"Risk and coverage on {one.name}", alt, display, draw)


def _thresholds(one: SetScores, outcomes: Mapping[str, Outcome], how: Mapping[str, Stroke]) -> Figure:
    display = Thresholds.of(outcomes)
    draw = partial(drawing.draw_thresholds, display, how)
    alt = (
        "Above, the share of texts whose confidence exceeds a threshold; below, the share of those that is right. "
        + _listed(one, "coverage@0.9")
    )
    return render(f"thresholds-{one.name}", f"Coverage at thresholds on {one.name}", alt, display, draw)


def _reliability(one: SetScores, name: str, outcome: Outcome, stroke: Stroke, level: float) -> Figure:
    display = Reliability.of(outcome, level=level)
    draw = partial(drawing.draw_reliability, display, stroke.colour)
    title = f"Reliability of {name} on {one.name}"
    return render(f"reliability-{one.name}-{name}", title, _reliability_alt(name, one), display, draw)


def _reliability_alt(name: str, one: SetScores) -> str:
    score = one.scores[name].get("ece")
    tail = "" if score is None else f" ECE {score.mean:.3f} ({score.low:.3f} to {score.high:.3f})."
    return f"Accuracy against confidence of {name} on {one.name}, and how many texts lie at each confidence.{tail}"


def _listed(one: SetScores, metric: str) -> str:
    """The figures in words, for who cannot see them: 'AURC ↓: base 0.041, ts 0.041.'"""
    if metric not in next(iter(one.scores.values())):
        return ""
    return (
        f"{heading(metric)}: " + ", ".join(f"{name} {own[metric].mean:.3f}" for name, own in one.scores.items()) + "."
    )
