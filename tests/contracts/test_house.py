"""The layout of the package: twelve rooms, few files, telling names, and methods known by their Protocol alone."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "uatlite"
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = {
    "text", "model", "passes", "attribution", "methods", "trust", "metrics", "classifier", "scoring", "serve", "lab",
    "cli",
}  # fmt: skip
SHORT = {"__init__.py", "__main__.py", "registry.py"}
BANNED = {
    "utils", "util", "helpers", "common", "misc", "manager", "workshop", "making", "needs", "adapting", "measured",
    "seams", "fitting", "filling", "watching", "own_settings", "wishes", "glimpse", "ask", "elsewhere", "manners",
}  # fmt: skip


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_there_are_twelve_rooms() -> None:
    inside = [path.relative_to(SOURCE).parts for path in MODULES]
    assert {parts[0] for parts in inside if len(parts) > 1} == ROOMS


def test_there_are_few_files_and_each_has_a_reason() -> None:
    assert len(MODULES) <= 212
    assert [path.name for path in MODULES if lines(path) < 40 and path.name not in SHORT] == []


def test_a_file_name_stands_in_at_most_two_rooms() -> None:
    rooms = defaultdict(list)
    for path in MODULES:
        if path.name != "__init__.py":
            rooms[path.name].append(str(path.parent.relative_to(SOURCE)))
    assert {name: found for name, found in rooms.items() if len(found) > 2} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_are_nouns_of_the_field(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name.lower() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert ({path.stem} | classes) & BANNED == set()


def test_nobody_outside_methods_asks_for_the_class_of_a_method() -> None:
    concrete = set()
    for path in (SOURCE / "methods").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        concrete |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    concrete -= {"Method"}  # the Protocol itself
    assert "Distilled" in concrete
    asked = []
    for path in MODULES:
        if path.parent.name == "methods":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                asked += [f"{path.relative_to(SOURCE)}:{node.lineno}" for _ in names & concrete]
    assert asked == []
