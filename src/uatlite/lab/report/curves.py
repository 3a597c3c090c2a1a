"""The charts of a report: for each set the scores, the risk–coverage curves, the thresholds, and reliability.

The numbers of a chart are computed by one function and drawn by another, which computes nothing; they are written
beside the figure as CSV. Figures are matplotlib objects: no pyplot, no global state.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uatlite.lab.evaluate.outcomes import Outcome
from uatlite.lab.evaluate.plan import Contender
from uatlite.lab.evaluate.results import SetScores
from uatlite.lab.report.evaluation import Abstention, Evaluation
from uatlite.lab.report.figures import MUTED, RIGHT, SERIES, WRONG, RenderedFigure, percent, render
from uatlite.lab.report.results import heading
from uatlite.lab.report.tables import Columns, Record, records_of
from uatlite.metrics.calibration import BINS, by_confidence
from uatlite.metrics.intervals import SCALES
from uatlite.metrics.rows import ratio
from uatlite.metrics.selective import accuracy_at, coverage_at, evenly_spaced, risk_coverage
from uatlite.trust.binomial import clopper_pearson
from uatlite.trust.rule import Menu

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE_POINTS = 200
"""At most this many points of a curve: as many as a screen can show, and few enough for a small page."""
_THRESHOLDS = 50
_UNITS = {"entities": "entities", "labels": "labels, yes or no,"}
"""What a model says about a text -> what is answered, where it is not the text."""


_Strokes = Mapping[str, Mapping[str, Any]]
"""contender -> how matplotlib draws it"""


def strokes(contenders: Sequence[Contender]) -> _Strokes:
    """The method of a contender gives its colour, and a calibrator makes it dashed."""
    methods = list(dict.fromkeys(contender.method.name for contender in contenders))
    return {
        contender.name: {
            "color": SERIES[methods.index(contender.method.name) % len(SERIES)],
            "linestyle": (0, (4.0, 1.6)) if contender.calibrated else "solid",
        }
        for contender in contenders
    }


# ── reliability ────────────────────────────────────────────────────────────────────────────────────────────────────


def reliability(outcome: Outcome, level: float = 0.95) -> Columns:
    """Confidence and accuracy in the fixed-width bins of the ECE, with counts, (bins,) each; NaN where a bin is empty.

    The interval of the accuracy, from `low` to `high`, is the exact binomial one.
    """
    rows, edges = outcome.applies, np.arange(BINS + 1) / BINS
    member = by_confidence(rows, BINS).member
    count, correct = member.sum(axis=0), rows.correct @ member
    low, high = np.where(count > 0, clopper_pearson(correct, count, level), np.nan)
    return {
        "lower": edges[:-1],
        "upper": edges[1:],
        "correct": correct.astype(np.int64),
        "wrong": (count - correct).astype(np.int64),
        "confidence": ratio(rows.confidence @ member, count),
        "accuracy": ratio(correct, count),
        "low": low,
        "high": high,
    }


def _reliability_figure(scores: SetScores, contender: str, bins: Columns, colour: str) -> RenderedFigure:
    """Accuracy by confidence above, the number of rows below; the diagonal is perfect calibration."""

    def draw(axes: "Sequence[Axes]") -> None:
        above, below = axes
        lower, upper, correct, wrong, confidence, accuracy, low, high = bins.values()
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        errors = np.array([accuracy - low, high - accuracy])
        above.errorbar(confidence, accuracy, yerr=errors, fmt="o", color=colour, markersize=4.5, elinewidth=1.1)
        above.set(ylim=(-0.04, 1.04), ylabel="Accuracy")
        width, middle = np.diff(upper)[0] * 0.86, (lower + upper) / 2
        below.bar(middle, correct, width, color=RIGHT, label="right")
        below.bar(middle, wrong, width, bottom=correct, color=WRONG, label="wrong")
        first = lower[int(np.argmax(correct + wrong > 0))]
        below.set(xlim=(first - 0.02, 1.02), xlabel="Confidence", ylabel="Rows")
        below.legend(loc="upper left", fontsize=7.5, handlelength=0.9, handleheight=0.9, borderpad=0, labelspacing=0.25)

    alt = f"Accuracy against confidence of {contender} on {scores.name}, and how many texts lie at each confidence."
    of_contender = scores.scores[contender]
    if (score := of_contender.get("ece", of_contender.get("answer_ece"))) is not None:
        alt += f" ECE {score.mean:.3f} ({score.low:.3f} to {score.high:.3f})."
    name, title = f"reliability-{scores.name}-{contender}", f"Reliability of {contender} on {scores.name}"
    return render(name, title, alt, records_of(bins), draw, (2.4, 3.0), nrows=2, sharex=True, height_ratios=(3, 1))


# ── answering less ─────────────────────────────────────────────────────────────────────────────────────────────────


def risk_curve(outcome: Outcome) -> Columns:
    """The error rate of the most confident answers at each coverage, (points,) each."""
    risks = risk_coverage(outcome.rows.ranking, 1 - outcome.rows.correct)
    shown = evenly_spaced(len(risks), _CURVE_POINTS)
    return {"coverage": (shown + 1) / len(risks), "risk": risks[shown]}


def at_thresholds(outcome: Outcome) -> Columns:
    """Coverage and accuracy at each threshold on the confidence, (thresholds,) each.

    The accuracy is NaN where no row is above the threshold.
    """
    taus, rows = np.linspace(1 / outcome.applies.probabilities.shape[1], 0.99, _THRESHOLDS), outcome.rows
    coverage, accuracy = (
        np.array([metric.values(rows, np.ones((1, len(rows))), float(tau))[0] for tau in taus])
        for metric in (coverage_at, accuracy_at)
    )
    return {"tau": taus, "coverage": coverage, "accuracy": accuracy}


def _finish_risks(curves: Mapping[str, Columns], unit: str, axes: "Axes") -> None:
    # At low coverage a single error is a large share; the axis fits the rest of the curve.
    top = max(curve["risk"][curve["coverage"] >= 0.1].max() for curve in curves.values())
    axes.set(xlim=(0, 1.005), ylim=(0, top * 1.08 or 1))
    axes.set(xlabel=f"Share of {unit} answered", ylabel="Share of answers wrong")
    percent(axes, "x", "y")


def _finish_thresholds(curves: Mapping[str, Columns], unit: str, above: "Axes", below: "Axes") -> None:
    taus = next(iter(curves.values()))["tau"]
    above.set(ylim=(0, 1.02), ylabel=f"{unit.capitalize()} answered")
    below.set(ylabel="Answers right", xlabel="Threshold on the confidence", xlim=(taus[0], taus[-1]))
    percent(above, "y")
    percent(below, "y")


class _Curve(NamedTuple):
    """A line for each contender, and a legend below, where no line runs."""

    file: str
    title: str
    shows: str
    metric: str
    """says it in a number"""
    points: Callable[[Outcome], Columns]
    """of a contender: the first column goes across, each other one up in a panel of its own"""
    panels: int
    finish: Callable[..., None]

    def figure(self, scores: SetScores, outcomes: Mapping[str, Outcome], drawn: _Strokes, unit: str) -> RenderedFigure:
        curves = {contender: self.points(outcome) for contender, outcome in outcomes.items()}

        def draw(axes: Any) -> None:
            panels = np.atleast_1d(axes)
            for contender, curve in curves.items():
                across, *columns = curve.values()
                for panel, up in zip(panels, columns, strict=True):
                    panel.plot(across, up, **drawn[contender], linewidth=1.6, label=contender)
            handles, names = panels[0].get_legend_handles_labels()
            panels[0].figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8.5, handlelength=2.2)
            self.finish(curves, unit, *panels)

        records = [record for contender, curve in curves.items() for record in records_of(curve, method=contender)]
        alt, name = f"{self.shows.format(unit)} {_listed(scores, self.metric)}", scores.name
        layout = {"nrows": self.panels, "sharex": True}
        return render(f"{self.file}-{name}", f"{self.title} on {name}", alt, records, draw, (3.9, 4.0), **layout)


_CURVES = (
    _Curve(
        "risk-coverage", "Risk and coverage",
        "Share of wrong answers against the share answered, most confident first.",
        "aurc", risk_curve, 1, _finish_risks,
    ),
    _Curve(
        "thresholds", "Coverage at thresholds",
        "Above, the share of {} whose confidence exceeds a threshold; below, the share of those that is right.",
        "coverage@0.9", at_thresholds, 2, _finish_thresholds,
    ),
)  # fmt: skip


def promised(menu: Menu) -> list[tuple[float, float]]:
    """(coverage, target risk) of the risks that can be promised, up to the first that answers all."""
    lines = [(line.rule.coverage, line.target) for line in menu.lines if line.rule is not None]
    answered_all = sum(coverage == 1.0 for coverage, _ in lines)
    return lines[: len(lines) - max(answered_all - 1, 0)]


def draw_menu(menu: Menu, colour: str, axes: "Axes") -> None:
    """The risk with its interval; a dot for each risk that can be promised, at its coverage."""
    curve, dots = menu.curve, promised(menu)
    coverage, high = np.array(curve.coverages), np.array(curve.high)
    axes.fill_between(coverage, curve.low, curve.high, color=colour, alpha=0.14, linewidth=0)
    axes.plot(coverage, curve.risks, color=colour, linewidth=1.6)
    for share, target in dots:
        axes.plot([0, share], [target, target], color=RIGHT, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.plot([share], [target], "o", color=RIGHT, markersize=5)
    # At low coverage a single error is a large share; the axis fits the rest of the band.
    top = max(high[coverage >= 0.2].max(), *(target for _, target in dots), 0.01)
    axes.set(xlim=(0, 1.01), ylim=(0, top * 1.08))
    axes.set(xlabel="Share of calibration rows answered", ylabel="Share of answers wrong")
    percent(axes, "x", "y")
    above = axes.secondary_xaxis("top")  # the threshold at each share
    at = np.linspace(0.25, 1.0, 4)
    above.set_xticks(at, [f"{np.interp(share, coverage, curve.thresholds):.2f}" for share in at])
    above.set_xlabel(f"{menu.score} above which rows are answered; the others are to review")


def menu_figure(evaluation: Evaluation, abstention: Abstention | None) -> RenderedFigure | None:
    """The menu of risks as a curve with its band; None where there is no menu."""
    if abstention is None or abstention.menu is None:
        return None
    menu, contender = abstention.menu, abstention.contender
    told = ", ".join(f"{target:.0%} at {coverage:.1%} answered" for coverage, target in promised(menu)) or "none"
    alt = f"Share of wrong answers against the share answered, with its interval. Risks that can be promised: {told}."
    curve = menu.curve
    columns = {"threshold": curve.thresholds, "coverage": curve.coverages, "risk": curve.risks}
    records = records_of(columns | {"low": curve.low, "high": curve.high})
    draw = partial(draw_menu, menu, strokes(evaluation.contenders)[contender]["color"])
    return render("risk-menu", f"Risks that {contender} can promise", alt, records, draw, (3.9, 3.2))


# ── the figures of a set ───────────────────────────────────────────────────────────────────────────────────────────


def set_figures(evaluation: Evaluation, scores: SetScores) -> dict[str, list[RenderedFigure]]:
    """The figures of a set: `scores` for each metric, the two `curves`, and `reliability` for each contender."""
    results, outcomes, drawn = evaluation.results, evaluation.outcomes(scores.name), strokes(evaluation.contenders)
    charted = [metric for metric, scale in SCALES.items() if scale.charted and metric in results.metrics]
    bins = {name: reliability(outcome, results.resampling.confidence) for name, outcome in outcomes.items()}
    unit = _UNITS.get(results.kind, "texts")
    return {
        "scores": [_scores_figure(scores, metric, drawn) for metric in charted],
        "curves": [curve.figure(scores, outcomes, drawn, unit) for curve in _CURVES],
        "reliability": [_reliability_figure(scores, name, bins[name], drawn[name]["color"]) for name in outcomes],
    }


def _scores_figure(scores: SetScores, metric: str, drawn: _Strokes) -> RenderedFigure:
    """One metric of a set: a dot and an interval for each contender."""
    chosen = {contender: of_contender[metric] for contender, of_contender in scores.scores.items()}

    def draw(axes: "Axes") -> None:
        heights = np.arange(len(chosen))[::-1]
        for y, (name, score) in zip(heights, chosen.items(), strict=True):
            marker = "o" if drawn[name]["linestyle"] == "solid" else "D"
            axes.plot([score.low, score.high], [y, y], **drawn[name], linewidth=1.6)
            axes.plot([score.mean], [y], marker, color=drawn[name]["color"], markersize=5)
        axes.set_title(heading(metric))
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks(heights, list(chosen))

    records: list[Record] = [
        {"metric": metric, "method": contender, "mean": score.mean, "low": score.low, "high": score.high}
        for contender, score in chosen.items()
    ]
    alt = f"A dot and an interval for each method. {_listed(scores, metric)}"
    name, title = f"{metric}-{scores.name}", f"{heading(metric)} on {scores.name}"
    return render(name, title, alt, records, draw, (3.1, 0.6 + 0.25 * len(chosen)))


def _listed(scores: SetScores, metric: str) -> str:
    """The scores in words, for readers who cannot see the figure: 'AURC ↓: base 0.041, ts 0.041.'"""
    if metric not in next(iter(scores.scores.values())):
        return ""
    values = ", ".join(f"{name} {of_contender[metric].mean:.3f}" for name, of_contender in scores.scores.items())
    return f"{heading(metric)}: {values}."
