"""An explanation as a file: HTML, PNG, SVG or JSON by the extension. An image has all on one sheet."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from uatlite.classifier.explanation import AnswerExplanation, Comparison, Explanation, listed
from uatlite.errors import ConfigurationError, nearest
from uatlite.lab.report import explanation as view
from uatlite.lab.report.explanation import Shading, shading_of
from uatlite.lab.report.figures import DPI, METADATA, MUTED, themed
from uatlite.lab.report.maps import COMPONENTS, HEIGHT, WIDTH, AttentionMaps, LayerBars, literal
from uatlite.lab.report.page import filled
from uatlite.text.write import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_SHOWN = 40
"""At most so many words are tabulated on a page without being asked for."""
HEAT, COLD = (200, 85, 30), (31, 111, 180)
"""The colours of the darkest words on a light background; `--heat` and `--cold` in the style sheet."""
OPACITY = (0.0, 0.1, 0.2, 0.3, 0.42, 0.55)
"""The opacity of each shade; `.s0` to `.s5` and `.c1` to `.c5` in the style sheet."""
_GAP = 2
"""Characters between words of a sheet: room for the edges of their backgrounds."""
_ADVANCE = 0.602 * 9 / 72 / WIDTH
"""The width of a character of the fixed-width font at 9 points, as a share of the sheet's width."""
_LINE = 110
"""At most this many characters of words on a line."""


def _html(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> bytes:
    html = filled(
        "explanation.html.j2",
        explanation=explanation,
        view=view,
        shading=shading,
        long=len(explanation.words) > _SHOWN,
        compared=Comparison.of(explanation.prediction),
        chances=listed(explanation.prediction.probabilities),
        layers_figure=LayerBars(explanation.layers).figure(),
        components=COMPONENTS,
        maps=maps,
    )
    return html.encode()


def _image(explanation: Explanation, maps: AttentionMaps | None, shading: Shading, kind: str) -> bytes:
    content = io.BytesIO()
    with themed():
        sheet = draw_sheet(explanation, maps, shading)
        sheet.savefig(content, format=kind, dpi=DPI, facecolor="white", metadata=METADATA[kind])
    return content.getvalue()


def draw_sheet(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> "Figure":
    """Sentences, words, layers and maps on one sheet."""
    from matplotlib.figure import Figure

    bars, summary = LayerBars(explanation.layers), explanation.summary
    lead = [*wrap(summary.says, 95), *wrap(f"{summary.decision} {summary.doubt}", 112)]
    told = [tell(explanation) for tell in (view.masked, view.chances, view.sources)]
    told = [shading.caption(explanation.label), *told, *view.notes(explanation)]
    small = wrap(" ".join(filter(None, told)), 130)
    words = _lines(explanation, shading)
    written = 0.35 + 0.22 * len(lead) + 0.28 * len(words) + 0.16 * len(small)
    heights = [written, 0.9 + 0.24 * len(bars.layers), *([HEIGHT] if maps else [])]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    y = _write(parts[0], lead, words, 1 / written)
    parts[0].text(0.02, y, literal("\n".join(small)), fontsize=8, color=MUTED, va="top")
    bars.draw_on(parts[1].subplots())
    if maps is not None:
        maps.draw_on(parts[2].subplots(ncols=3))
    return figure


def _lines(explanation: Explanation, shading: Shading) -> list[list[tuple[str, int]]]:
    """The words and their shades, in lines."""
    lines: list[list[tuple[str, int]]] = []
    for run in explanation.segments:
        lines.append([])
        used = 0
        for word in run:
            text = word.word.text
            if used and used + len(text) > _LINE:
                lines.append([])
                used = 0
            lines[-1].append((text, shading.shade(word)))
            used += len(text) + _GAP
    return lines


def _write(figure: "SubFigure", lead: list[str], words: list[list[tuple[str, int]]], unit: float) -> float:
    """The first sentence in bold, the others, and the shaded words; returns where the small print begins.

    `unit` is the height of an inch.
    """
    from matplotlib.colors import to_hex

    y = 1 - 0.2 * unit
    for i, line in enumerate(lead):
        weight: Any = {"fontsize": 10} if i else {"fontsize": 12, "fontweight": "bold"}
        figure.text(0.02, y, literal(line), va="center", **weight)
        y -= 0.22 * unit
    y -= 0.06 * unit
    for of_line in words:
        x = 0.02
        for text, shade in of_line:
            red, green, blue = (channel / 255 for channel in (COLD if shade < 0 else HEAT))
            background = to_hex((red, green, blue, OPACITY[abs(shade)]), keep_alpha=True)
            box = {"facecolor": background, "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            figure.text(x, y, literal(text), family="monospace", fontsize=9, va="center", bbox=box)
            x += _ADVANCE * (len(text) + _GAP)
        y -= 0.28 * unit
    return y + 0.1 * unit


def _json(explanation: AnswerExplanation, *_: object) -> bytes:
    return (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode()


EXTENSIONS: dict[str, Callable[[Explanation, AttentionMaps | None, Shading], bytes]] = {
    ".html": _html,
    ".png": partial(_image, kind="png"),
    ".svg": partial(_image, kind="svg"),
    ".json": _json,
}
"""extension -> the bytes of the file"""


def check_target(path: Path, *, several: bool = False) -> None:
    """Raise a ConfigurationError unless an explanation can be written under this name; call it before anything runs.

    One of `several` answers is written as JSON alone.
    """
    extension = path.suffix.lower()
    if several and extension != ".json":
        raise ConfigurationError(
            f"{path.name} has the extension {path.suffix!r}; an entity or a label is explained in the terminal, on the "
            "page of 'uatlite serve', or as .json."
        )
    if extension not in EXTENSIONS:
        hint = nearest(path.suffix, EXTENSIONS)
        raise ConfigurationError(
            f"{path.name} has the extension {path.suffix!r}; allowed are {', '.join(EXTENSIONS)}.{hint}"
        )


def write_explanation(
    explanation: AnswerExplanation,
    path: Path,
    *,
    shading: str = "share",
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write an explanation as HTML, PNG, SVG or JSON; of an entity or a label as JSON.

    Words are shaded by one of `SHADINGS`. The maps of attention are those of a layer and a head, counted from 1; JSON
    has all of them.
    """
    check_target(path, several=not isinstance(explanation, Explanation))
    if isinstance(explanation, Explanation):
        maps, shades = AttentionMaps.of(explanation, layer, head), shading_of(explanation, shading)
        content = EXTENSIONS[path.suffix.lower()](explanation, maps, shades)
    else:
        content = _json(explanation)
    with atomic_file(path) as file:
        file.write(content)
