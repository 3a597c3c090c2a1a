"""Displays drawn by matplotlib: figures as objects, no pyplot, no state outside of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.errors import MissingDependency
from uatlite.report.displays import Intervals, Reliability, RiskCoverage, Thresholds
from uatlite.report.tables import heading
from uatlite.report.theme import MUTED, RC, RIGHT, WRONG, Stroke

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Strokes = Mapping[str, Stroke]
Draw = Callable[[], "Figure"]


@contextmanager
def themed() -> Iterator[None]:
    """The theme's settings of matplotlib within the block; also needed while a figure is saved."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise MissingDependency("matplotlib", "report") from error
    with rc_context(RC):  # type: ignore[arg-type]
        yield


def figure_of(width: float, height: float, **layout: Any) -> tuple["Figure", Any]:
    """A figure without ground, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(**layout)
    for one in np.atleast_1d(axes).flat:
        one.patch.set_alpha(0)
    return figure, axes


def draw_reliability(display: Reliability, colour: str) -> "Figure":
    """Accuracy by confidence above, how many rows lie there below; perfect calibration is the diagonal."""
    figure, (above, below) = figure_of(3.1, 3.5, nrows=2, sharex=True, height_ratios=(3, 1))
    first = display.lower[int(np.argmax(display.correct + display.wrong > 0))]
    above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    errors = np.array([display.accuracy - display.low, display.high - display.accuracy])
    dots: dict[str, Any] = {"fmt": "o", "color": colour, "markersize": 4.5, "elinewidth": 1.1}
    above.errorbar(display.confidence, display.accuracy, yerr=errors, **dots)
    above.set(ylim=(0, 1.03), ylabel="Accuracy")
    width = np.diff(display.upper)[0] * 0.86
    middle = (display.lower + display.upper) / 2
    below.bar(middle, display.correct, width, color=RIGHT, label="right")
    below.bar(middle, display.wrong, width, bottom=display.correct, color=WRONG, label="wrong")
    below.set(xlim=(first - 0.02, 1.02), xlabel="Confidence", ylabel="Rows")
    below.legend(loc="upper left", fontsize=7.5, handlelength=0.9, handleheight=0.9, borderpad=0, labelspacing=0.25)
    return figure


def draw_risk_coverage(display: RiskCoverage, strokes: Strokes) -> "Figure":
    """One line for each contender; lower is better."""
    figure, axes = figure_of(4.6, 4.3)
    for name, (coverage, risk) in display.curves.items():
        _line(axes, coverage, risk, name, strokes[name])
    # Among the very first answers a single error is a large share; the axis is made for the rest.
    top = max(risk[coverage >= 0.1].max() for coverage, risk in display.curves.values())
    axes.set(xlim=(0, 1.005), ylim=(0, top * 1.08 or 1))
    axes.set(xlabel="Share of texts answered", ylabel="Share of answers wrong")
    percent(axes, "x", "y")
    _legend(figure, axes)
    return figure


def draw_thresholds(display: Thresholds, strokes: Strokes) -> "Figure":
    """How much is answered at each threshold, and how much of that is right."""
    figure, (above, below) = figure_of(4.6, 4.3, nrows=2, sharex=True)
    for name, coverage in display.coverage.items():
        _line(above, display.taus, coverage, name, strokes[name])
        _line(below, display.taus, display.accuracy[name], name, strokes[name])
    above.set(ylim=(0, 1.02), ylabel="Texts answered")
    below.set(ylabel="Answers right", xlabel="Threshold on the confidence", xlim=(display.taus[0], display.taus[-1]))
    percent(above, "y")
    percent(below, "y")
    _legend(figure, above)
    return figure


def draw_intervals(display: Intervals, strokes: Strokes) -> "Figure":
    """A dot and an interval for each contender."""
    contenders = list(display.scores)
    figure, axes = figure_of(3.1, 0.6 + 0.25 * len(contenders))
    places = np.arange(len(contenders))[::-1]
    for place, name in zip(places, contenders, strict=True):
        mean, low, high = display.scores[name]
        stroke = strokes[name]
        axes.plot([low, high], [place, place], color=stroke.colour, linewidth=1.6, linestyle=stroke.dash)
        axes.plot([mean], [place], stroke.marker, color=stroke.colour, markersize=5)
    axes.set_title(heading(display.metric))
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=5)
    axes.set_yticks(places, contenders)
    return figure


def _legend(figure: "Figure", axes: "Axes") -> None:
    """Below the panels, where no line runs."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, handlelength=2.2)


def _line(axes: "Axes", x: Any, y: Any, label: str, stroke: Stroke) -> None:
    axes.plot(x, y, color=stroke.colour, linestyle=stroke.dash, linewidth=1.6, label=label)


def percent(axes: "Axes", *names: str) -> None:
    """Shares as percentages on the axes 'x', 'y' or both."""
    for name in names:
        getattr(axes, f"{name}axis").set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
