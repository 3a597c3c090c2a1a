"""An explanation to a file, whose extension says as what."""

import io
import json
from collections.abc import Callable
from pathlib import Path

from uatlite.classifier import Explanation
from uatlite.data.writing import atomic_file
from uatlite.errors import ConfigurationError, nearest
from uatlite.report.drawing import themed
from uatlite.report.explained.displays import Heatmaps
from uatlite.report.explained.drawing import draw_sheet
from uatlite.report.explained.page import to_html
from uatlite.report.figures import DPI

Write = Callable[[Explanation, Heatmaps | None], bytes]


def _html(explanation: Explanation, maps: Heatmaps | None) -> bytes:
    return to_html(explanation, maps).encode()


def _json(explanation: Explanation, maps: Heatmaps | None) -> bytes:
    return (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode()


def _image(explanation: Explanation, maps: Heatmaps | None, kind: str) -> bytes:
    content = io.BytesIO()
    with themed():
        sheet = draw_sheet(explanation, maps)
        plain = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        sheet.savefig(content, format=kind, dpi=DPI, facecolor="white", metadata=plain)
    return content.getvalue()


# extension -> the bytes of the file
EXTENSIONS: dict[str, Write] = {
    ".html": _html,
    ".png": lambda explanation, maps: _image(explanation, maps, "png"),
    ".svg": lambda explanation, maps: _image(explanation, maps, "svg"),
    ".json": _json,
}


def check_target(path: Path) -> None:
    """An error, before anything runs, where the extension is none that can be written."""
    if path.suffix.lower() not in EXTENSIONS:
        hint = nearest(path.suffix, EXTENSIONS)
        raise ConfigurationError(
            f"{path.name} has the extension {path.suffix!r}; allowed are {', '.join(EXTENSIONS)}.{hint}"
        )


def write_explanation(
    explanation: Explanation, path: Path, *, layer: int | None = None, head: int | None = None
) -> None:
    """Write an explanation as HTML, PNG, SVG or JSON; the maps of attention are of that layer and head, from 1.

    JSON has the attention of every layer and head.
    """
    check_target(path)
    content = EXTENSIONS[path.suffix.lower()](explanation, Heatmaps.of(explanation, layer, head))
    with atomic_file(path) as file:
        file.write(content)
