"""The pages: every link leads somewhere, every name of the package that they mention exists, their Python parses."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"\b(?:src/uatlite|tests|docs|benchmarks|examples)/[\w./-]*[\w/]")
NAME = re.compile(r"\buatlite(?:\.[A-Za-z_]\w*)+")
FILES = {"uatlite.json", "uatlite.safetensors"}
"""Names of files that look like names of the package."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def imports(page: Path) -> Iterator[str]:
    """`module.name` for every name that the page's Python imports from the package."""
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("uatlite"):
                yield from (f"{node.module}.{name.name}" for name in node.names)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of the package or an attribute of one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):  # another site
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_name_and_path_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {*NAME.findall(text), *imports(page)} - FILES
    assert not [name for name in sorted(names) if not resolves(name)]
    assert not [path for path in sorted(set(PATH.findall(text))) if not (ROOT / path).exists()]


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    assert not [named(page) for page in PAGES[2:] if page != index and page.resolve() not in linked]
