"""Colours and strokes of the figures. A method has one colour; its calibrated forms are dashed.

Figures are drawn in the light colours below. Inside the page each of them is replaced by the CSS variable of its role,
which the style sheet sets for light and for dark screens; the files beside the page stay as drawn.
"""

from dataclasses import dataclass

from uatlite.experiments.contenders import Contender

Dash = str | tuple[int, tuple[float, ...]]

# role -> colour on a light ground. The series are Okabe and Ito's, which colour-blind readers can tell apart,
# darkened where they were too pale for a line on white.
INK = "#1c2430"
MUTED = "#5d6776"
GRID = "#dde2e9"
RIGHT = "#2b7a78"
WRONG = "#c8553d"
SERIES = ("#1f6fb4", "#c76a00", "#00805f", "#a83279", "#6f5cc4", "#8a7a00", "#c0392b", "#3d8aa6")

ROLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    RIGHT: "--right",
    WRONG: "--wrong",
    **{colour: f"--series-{place}" for place, colour in enumerate(SERIES, 1)},
}

RC = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched, and takes the page's font
    "svg.hashsalt": "uatlite",
}
"""matplotlib's settings, applied while a figure is drawn and never globally."""


@dataclass(frozen=True)
class Stroke:
    """How a contender is drawn."""

    colour: str
    dash: Dash
    marker: str


def strokes(contenders: tuple[Contender, ...]) -> dict[str, Stroke]:
    """A stroke for each contender: the colour by its method, the dash by whether a calibrator is stacked on it."""
    methods = list(dict.fromkeys(contender.method.name for contender in contenders))
    found: dict[str, Stroke] = {}
    for contender in contenders:
        colour = SERIES[methods.index(contender.method.name) % len(SERIES)]
        dash: Dash = (0, (4.0, 1.6)) if contender.calibrated else "solid"
        found[contender.name] = Stroke(colour, dash, "D" if contender.calibrated else "o")
    return found
