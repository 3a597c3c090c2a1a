"""What a task is: data, not code. The tasks that ship are in catalogue.toml.

Task ── labels, splits, notes
 ├── Split       which files (or hub splits) hold it, and which share of their rows
 ├── Layout      which column is what, in local files; the hub and a package have their own
 ├── Hub         where it is on the Hugging Face hub
 └── PackageFile a file that an installed Python package carries
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from uatlite import codec
from uatlite.errors import check_choice
from uatlite.text.scores import ScoreColumns
from uatlite.values import Kind

_Form = Literal["text", "pair", "choice", "entities", "labels"]
"""What a row is: one text, a pair or a question with one answer; a text with entities; a text with several labels."""
GoldForm = Literal["class", "tags", "entities", "labels"]
"""What the label column holds: a class; an IOB2 tag for each word; entities with their characters; a list of labels."""
_SEVERAL: Mapping[GoldForm, Kind] = {"tags": "entities", "entities": "entities", "labels": "labels"}
"""Gold that is not one class -> what a model of such rows says."""


@dataclass(frozen=True)
class Layout:
    """Which column is what. A dot reaches into a nested column: 'data.Question'."""

    text: str = "text"  # the one text, or its words; the first of a pair; the question of a multiple choice
    pair: str | None = None
    options: str | None = None
    label: str | None = "label"
    gold: GoldForm = "class"
    id: str | None = "id"
    group: str | None = None  # rows of one group are never in two splits
    meta: tuple[str, ...] = ()  # columns to carry along, where a row has them
    codes: tuple[str, ...] = ()  # what integer labels mean, in order
    presence: tuple[str, str] | None = None  # (label when the label column holds something, label when empty)
    replace: tuple[tuple[str, str], ...] = ()  # (markup, replacement) in the texts
    scores: ScoreColumns | None = None  # of another classifier, which stand for the text
    handles: bool = False  # the tags of "@" and of the name after it begin one entity each, and mean one together

    @property
    def columns(self) -> dict[str, Any]:
        """Role -> column, of those that a row's text and gold are in; of scores all that is said of their columns."""
        roles: dict[str, Any] = {
            "text": self.text, "pair": self.pair, "options": self.options, "label": self.label,
            "scores": self.scores and codec.dump(self.scores),
        }  # fmt: skip
        return {role: column for role, column in roles.items() if column}

    @property
    def kind(self) -> Kind:
        """What a model of such rows says about a text."""
        single: Kind = "one" if self.options is None else "choice"
        return _SEVERAL.get(self.gold, single)

    @property
    def form(self) -> _Form:
        of_one: dict[Kind, _Form] = {"one": "text" if self.pair is None else "pair"}
        return of_one.get(self.kind) or cast(_Form, self.kind)


TAGS = Layout(text="tokens", label="tags", gold="tags")
"""Words with IOB2 tags, as CoNLL files have them."""


@dataclass(frozen=True)
class Split:
    """Where the rows of one split are.

    `files` are candidates, relative to the data directory and without extension; the first that exists is read. `hub`
    are splits of the hub's data set, read one after the other; it is empty where the hub does not have this split.
    `share` is a range, in percent, of the rows in a seeded order: (0, 50) and (50, 100) are two halves. Rows in groups
    are cut once: (0, n) and (n, 100).
    """

    files: tuple[str, ...] = ()
    hub: tuple[str, ...] = ()
    share: tuple[int, int] = (0, 100)


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face hub and the layout of its rows."""

    id: str
    layout: Layout
    config: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class PackageFile:
    """A row file inside an installed package. The file is read; the package's code is never run."""

    distribution: str
    path: str
    extra: str
    layout: Layout
    where: tuple[str, str]  # (column, value) of the rows that belong to the task


@dataclass(frozen=True)
class Task:
    """A task: its labels in order, its splits, and everywhere that its rows can come from."""

    name: str
    title: str
    labels: tuple[str, ...]
    splits: Mapping[str, Split]
    layout: Layout
    hub: Hub | None = None
    package: PackageFile | None = None
    path: Path | None = None  # a user's own file: all splits are shares of it
    out_of_scope: str | None = None  # the label that means "none of the other classes"
    # model label -> task label, where models of the task have finer classes than its gold labels
    collapse: Mapping[str, str] = field(default_factory=dict)
    caveats: Mapping[str, str] = field(default_factory=dict)  # file stem -> a note that follows the name of the file
    licence: str = ""
    citation: str = ""

    @property
    def kind(self) -> Kind:
        return self.layout.kind

    @property
    def form(self) -> _Form:
        return self.layout.form


@cache
def catalogue() -> Mapping[str, Task]:
    """The built-in tasks by name, in the order of catalogue.toml."""
    tables = read_tables(Path(__file__).with_name("catalogue.toml"))
    advice = "mend catalogue.toml, or install uatlite again."
    return {
        name: codec.load(Task, {"name": name, "layout": {}} | table, advice=f"{name}: {advice}")
        for name, table in tables.items()
    }


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, with None where an empty string stands for nothing."""
    tables: dict[str, Any] = _without_empty(tomllib.loads(path.read_text(encoding="utf-8")))
    return tables


def _without_empty(value: Any) -> Any:
    """The same values with None for an empty string: TOML cannot say None."""
    if isinstance(value, dict):
        return {name: _without_empty(entry) for name, entry in value.items()}
    return None if value == "" else value


def find_task(name: str) -> Task:
    """The built-in task of that name; an unknown name is an error that lists them all."""
    check_choice("task", name, catalogue())
    return catalogue()[name]
