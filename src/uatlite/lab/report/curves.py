"""The charts of a report: for each set the scores, the risk–coverage curves, the thresholds, and reliability.

The numbers of a chart are computed by one function and drawn by another, which computes nothing; they are written
beside the figure as CSV. Figures are matplotlib objects: no pyplot, no global state.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.lab.evaluate.comparison import Score
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


_Curves = Mapping[str, Columns]
"""contender -> the points of its curve"""
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


def _draw_reliability(bins: Columns, colour: str, axes: "Sequence[Axes]") -> None:
    """Accuracy by confidence above, the number of rows below; the diagonal is perfect calibration."""
    above, below = axes
    lower, upper, correct, wrong, confidence, accuracy, low, high = bins.values()
    above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    errors = np.array([accuracy - low, high - accuracy])
    above.errorbar(confidence, accuracy, yerr=errors, fmt="o", color=colour, markersize=4.5, elinewidth=1.1)
    above.set(ylim=(0, 1.03), ylabel="Accuracy")
    width, middle = np.diff(upper)[0] * 0.86, (lower + upper) / 2
    below.bar(middle, correct, width, color=RIGHT, label="right")
    below.bar(middle, wrong, width, bottom=correct, color=WRONG, label="wrong")
    first = lower[int(np.argmax(correct + wrong > 0))]
    below.set(xlim=(first - 0.02, 1.02), xlabel="Confidence", ylabel="Rows")
    below.legend(loc="upper left", fontsize=7.5, handlelength=0.9, handleheight=0.9, borderpad=0, labelspacing=0.25)


# ── answering less ─────────────────────────────────────────────────────────────────────────────────────────────────


def risk_curve(outcome: Outcome) -> Columns:
    """The error rate of the most confident answers at each coverage, (points,) each."""
    risks = risk_coverage(outcome.rows.ranking, 1 - outcome.rows.correct)
    shown = evenly_spaced(len(risks), _CURVE_POINTS)
    return {"coverage": (shown + 1) / len(risks), "risk": risks[shown]}


def _draw_risk_curves(curves: _Curves, strokes: _Strokes, unit: str, axes: "Axes") -> None:
    """One line for each contender; lower is better."""
    _draw_lines([axes], curves, strokes)
    # At low coverage a single error is a large share; the axis fits the rest of the curve.
    top = max(curve["risk"][curve["coverage"] >= 0.1].max() for curve in curves.values())
    axes.set(xlim=(0, 1.005), ylim=(0, top * 1.08 or 1))
    axes.set(xlabel=f"Share of {unit} answered", ylabel="Share of answers wrong")
    percent(axes, "x", "y")


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


def _draw_thresholds(curves: _Curves, strokes: _Strokes, unit: str, axes: "Sequence[Axes]") -> None:
    """Coverage above, accuracy of the answers below."""
    above, below = axes
    _draw_lines(axes, curves, strokes)
    taus = next(iter(curves.values()))["tau"]
    above.set(ylim=(0, 1.02), ylabel=f"{unit.capitalize()} answered")
    below.set(ylabel="Answers right", xlabel="Threshold on the confidence", xlim=(taus[0], taus[-1]))
    percent(above, "y")
    percent(below, "y")


def _draw_lines(panels: "Sequence[Axes]", curves: _Curves, strokes: _Strokes) -> None:
    """The first column of each curve across, and each other one up in a panel; a legend below, where no line runs."""
    for name, curve in curves.items():
        across, *columns = curve.values()
        for panel, up in zip(panels, columns, strict=True):
            panel.plot(across, up, **strokes[name], linewidth=1.6, label=name)
    handles, names = panels[0].get_legend_handles_labels()
    panels[0].figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, handlelength=2.2)


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


# ── scores ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _draw_scores(metric: str, scores: Mapping[str, Score], strokes: _Strokes, axes: "Axes") -> None:
    """A dot and an interval for each contender."""
    heights = np.arange(len(scores))[::-1]
    for y, (name, score) in zip(heights, scores.items(), strict=True):
        stroke = strokes[name]
        axes.plot([score.low, score.high], [y, y], **stroke, linewidth=1.6)
        axes.plot(
            [score.mean], [y], "o" if stroke["linestyle"] == "solid" else "D", color=stroke["color"], markersize=5
        )
    axes.set_title(heading(metric))
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_yticks(heights, list(scores))


# ── the figures of a page ──────────────────────────────────────────────────────────────────────────────────────────


_CURVES: dict[str, tuple[str, str, str, Callable[..., Columns], Callable[..., None], int]] = {
    "risk-coverage": (
        "Risk and coverage",
        "Share of wrong answers against the share answered, most confident first.",
        "aurc",
        risk_curve,
        _draw_risk_curves,
        1,
    ),
    "thresholds": (
        "Coverage at thresholds",
        "Above, the share of {} whose confidence exceeds a threshold; below, the share of those that is right.",
        "coverage@0.9",
        at_thresholds,
        _draw_thresholds,
        2,
    ),
}
"""file -> title, what it shows, the metric that says it in a number; the points of a contender, all of them drawn, and
on how many panels"""


def set_figures(evaluation: Evaluation, scores: SetScores) -> dict[str, list[RenderedFigure]]:
    """The figures of a set: `scores` for each metric, the two `curves`, and `reliability` for each contender."""
    results, name, outcomes = evaluation.results, scores.name, evaluation.outcomes(scores.name)
    drawn, unit = strokes(evaluation.contenders), _UNITS.get(results.kind, "texts")
    figures: dict[str, list[RenderedFigure]] = {"scores": [], "curves": [], "reliability": []}
    for metric, scale in SCALES.items():
        if scale.charted and metric in results.metrics:
            figures["scores"].append(_scores_figure(scores, metric, drawn))
    for file, (title, alt, metric, points_of, draw, panels) in _CURVES.items():
        curves = {contender: points_of(outcome) for contender, outcome in outcomes.items()}
        records = [record for contender, curve in curves.items() for record in records_of(curve, method=contender)]
        alt, drawing = f"{alt.format(unit)} {_listed(scores, metric)}", partial(draw, curves, drawn, unit)
        figure = render(
            f"{file}-{name}", f"{title} on {name}", alt, records, drawing, (4.6, 4.3), nrows=panels, sharex=True
        )
        figures["curves"].append(figure)
    for contender, outcome in outcomes.items():
        bins = reliability(outcome, results.resampling.confidence)
        figures["reliability"].append(_reliability_figure(scores, contender, bins, drawn[contender]["color"]))
    return figures


def _scores_figure(scores: SetScores, metric: str, drawn: _Strokes) -> RenderedFigure:
    """One metric of a set with its intervals."""
    chosen = {contender: of_contender[metric] for contender, of_contender in scores.scores.items()}
    records: list[Record] = [
        {"metric": metric, "method": contender, "mean": score.mean, "low": score.low, "high": score.high}
        for contender, score in chosen.items()
    ]
    alt = f"A dot and an interval for each method. {_listed(scores, metric)}"
    name, title = f"{metric}-{scores.name}", f"{heading(metric)} on {scores.name}"
    return render(
        name, title, alt, records, partial(_draw_scores, metric, chosen, drawn), (3.1, 0.6 + 0.25 * len(chosen))
    )


def _reliability_figure(scores: SetScores, contender: str, bins: Columns, colour: str) -> RenderedFigure:
    of_contender = scores.scores[contender]
    alt = f"Accuracy against confidence of {contender} on {scores.name}, and how many texts lie at each confidence."
    if (score := of_contender.get("ece", of_contender.get("answer_ece"))) is not None:
        alt += f" ECE {score.mean:.3f} ({score.low:.3f} to {score.high:.3f})."
    name, title = f"reliability-{scores.name}-{contender}", f"Reliability of {contender} on {scores.name}"
    layout: Any = {"nrows": 2, "sharex": True, "height_ratios": (3, 1)}
    return render(name, title, alt, records_of(bins), partial(_draw_reliability, bins, colour), (3.1, 3.5), **layout)


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
    return render("risk-menu", f"Risks that {contender} can promise", alt, records, draw, (4.6, 3.4))


def _listed(scores: SetScores, metric: str) -> str:
    """The scores in words, for readers who cannot see the figure: 'AURC ↓: base 0.041, ts 0.041.'"""
    if metric not in next(iter(scores.scores.values())):
        return ""
    values = ", ".join(f"{name} {of_contender[metric].mean:.3f}" for name, of_contender in scores.scores.items())
    return f"{heading(metric)}: {values}."
