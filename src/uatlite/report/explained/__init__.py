"""One explained text, shown: in a terminal, as a page, as an image, as JSON."""

from uatlite.report.explained.terminal import render
from uatlite.report.explained.writing import EXTENSIONS, check_target, write_explanation

__all__ = ["EXTENSIONS", "check_target", "render", "write_explanation"]
