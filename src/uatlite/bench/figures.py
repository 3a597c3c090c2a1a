"""The curves of a benchmark as one figure: seconds against batch, passes, length and texts, on logarithmic axes."""

from pathlib import Path
from typing import TYPE_CHECKING

from uatlite.bench.contenders import CONTENDERS
from uatlite.bench.results import Results
from uatlite.report.drawing import figure_of, themed
from uatlite.report.theme import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {
    "batch": "Texts of a batch",
    "passes": "Passes M",
    "tokens": "Tokens of a text",
    "texts": "Texts",
}
COLOURS = {name: SERIES[place % len(SERIES)] for place, name in enumerate(CONTENDERS)}


def draw(results: Results) -> "Figure":
    """A panel for each curve; the number behind a name is its exponent."""
    figure, axes = figure_of(3.4 * len(results.curves), 3.4, ncols=len(results.curves), squeeze=False)
    for panel, curve in zip(axes[0], results.curves, strict=True):
        for name, values in curve.seconds.items():
            power = "" if curve.over == "batch" else f", {curve.exponents[name]:.2f}"
            panel.plot(curve.sizes, values, "o-", color=COLOURS[name], markersize=4, label=f"{name}{power}")
        panel.set(xscale="log", yscale="log", xlabel=AXES[curve.over], ylabel="Seconds")
        panel.set_xticks(curve.sizes, [str(size) for size in curve.sizes])
        panel.minorticks_off()
        panel.legend(fontsize=7.5, handlelength=1.6)
    return figure


def save(results: Results, directory: Path) -> list[Path]:
    """Write the figure as SVG and PNG."""
    paths = [directory / "bench.svg", directory / "bench.png"]
    with themed():
        figure = draw(results)
        for path in paths:
            figure.savefig(path, dpi=150, facecolor="white")
    return paths
