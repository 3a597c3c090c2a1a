"""The pages: links, paths, commands, options and Python names that they mention exist; tables say what made them."""

import ast
import importlib
import re
import runpy
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
import yaml

import uatlite
from uatlite.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *DOCS]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .+\n)+", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"\b(?:src/uatlite|tests|docs|benchmarks|examples)/[\w./-]*[\w/]")
NAME = re.compile(r"\buatlite(?:\.[A-Za-z_]\w*)+")
TABLES = runpy.run_path(str(ROOT / "docs" / "tables.py"))
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


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words after `uatlite` of every command that the page shows, in a block or inside a sentence."""
    text = page.read_text(encoding="utf-8")
    blocks = [code for language, code in FENCE.findall(text) if language != "python"]
    prose = FENCE.sub("", text)
    blocks += [*INDENTED.findall(prose), *INLINE.findall(INDENTED.sub("", prose))]
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"\s*(?:\$ )?(?:\S+ )*?(?:-m )?uatlite (.+)", line)
            if match and re.fullmatch(r"(?:[\s$]*|.*-m )", line[: match.start(1) - len("uatlite ")]):
                yield shlex.split(match[1], comments=True)


def unknown(words: list[str]) -> list[str]:
    """The command that does not exist, or the options that the command does not have."""
    group = typer.main.get_command(app)
    known = {"-h", "--help", *(name for option in group.params for name in option.opts)}
    if words[0].startswith("-"):
        return [word for word in words if word not in known]
    if words[0] not in group.commands:  # type: ignore[attr-defined]
        return [words[0]] if words[0].islower() else []  # COMMAND stands for any of them
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    known |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    options = [word.partition("=")[0] for word in words[1:] if re.match(r"-{1,2}[a-z]", word)]
    return [f"{words[0]} {option}" for option in options if option not in known]


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


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_and_option_exists(page: Path) -> None:
    assert not [missing for words in command_lines(page) for missing in unknown(words)]


def test_commands_are_found_and_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`uatlite demo` and `uatlite report out --nothing`\n\n    uatlite predct DIR  # a comment\n\n"
        "```\n$ uatlite evaluate my-model \\\n    --task sst2 --tsk sst2\n```\n"
    )
    found = [missing for words in command_lines(page) for missing in unknown(words)]
    assert sorted(found) == ["evaluate --tsk", "predct", "report --nothing"]


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    assert not [named(page) for page in DOCS if page != index and page.resolve() not in linked]


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=named)
def test_every_measured_table_says_what_made_it(page: Path) -> None:
    silent = [table.place for table in TABLES["tables_of"](page) if table.measured and table.origin is None]
    assert not silent, "add below the table: <!-- made by `COMMAND` at COMMIT --> (docs/tables.py)"


OPTIONS = "| option | default |\n|---|---|\n| `--rows` | 256 |\n| `--rate 0.1` | |\n"
NUMBERS = "| method | cost |\n|---|--:|\n| base | 0.9 |\n| uat | 8.8 |\n"


def test_a_list_of_options_measures_nothing_and_a_table_of_numbers_does(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{OPTIONS}\n{NUMBERS}\n```\n{NUMBERS}```\n\n{NUMBERS}<!-- made by `x` at 0123abc -->\n")
    options, silent, told = TABLES["tables_of"](page)
    assert (options.measured, silent.measured, told.measured) == (False, True, True)
    assert silent.origin is None
    assert told.maker == ("`x`", "0123abc")


def test_a_stored_table_takes_the_place_of_the_one_with_its_headings(tmp_path: Path) -> None:
    page, stored = tmp_path / "page.md", tmp_path / "stored.md"
    page.write_text(f"Before.\n\n{NUMBERS}<!-- made by `x` at 0123abc -->\n\nAfter.\n")
    stored.write_text(NUMBERS.replace("8.8", "7.7") + "| new | 1.0 |\n\n| other | rate |\n|---|---|\n| a | 1.0 |\n")
    assert TABLES["replace_tables"](page, list(TABLES["tables_of"](stored)), "4567def") == 1
    new = NUMBERS.replace("8.8", "7.7") + "| new | 1.0 |\n<!-- made by `x` at 4567def -->"
    assert page.read_text() == f"Before.\n\n{new}\n\nAfter.\n"


def test_tables_of_pages_are_those_that_are_kept() -> None:
    other = [table.place for table, _ in TABLES["differing"](TABLES["pages"]())]
    assert not other, "not as in benchmarks/results; python docs/tables.py --write puts them back (see its help)"


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=named)
def test_numbers_of_a_quoted_table_stand_in_its_source(page: Path) -> None:
    quoted = [table for table in TABLES["tables_of"](page) if table.source is not None]
    found = {table.place: TABLES["strangers"](table.lines[2:], table.source) for table in quoted}
    assert not {place: numbers for place, numbers in found.items() if numbers}


def test_what_is_said_of_the_claims_stands_in_the_tables() -> None:
    said = TABLES["CLAIMS"].read_text(encoding="utf-8").splitlines()
    assert not TABLES["strangers"](said, *TABLES["COUNTED"], TABLES["RESULTS"] / "learned.md")


def test_the_claims_are_counted_on_the_pages_of_the_reproduction() -> None:
    (table,) = (one for one in TABLES["tables_of"](TABLES["CLAIMS"]) if one.headings == TABLES["CLAIM_HEADINGS"])
    assert list(table.lines) == TABLES["claims"](TABLES["COUNTED"]), "python docs/tables.py --write counts them anew"
    counts = Counter(TABLES["decided"](TABLES["COUNTED"]).values())
    held, not_held, untold, unlearned = (counts[heading] for heading in TABLES["OUTCOMES"])
    said = TABLES["CLAIMS"].read_text(encoding="utf-8")
    assert f"Of {counts.total()} comparisons" in said
    assert f"**{held} held, {not_held} did not, {untold} could not be told**" in said
    assert f"and {unlearned} are about models that did not learn" in said


PAGE = """# A page
### Held: 1
- **gates**: It helps.
  - Q < Base, ECE ↓: held, −0.1 (−0.2 to −0.1) here.
### Not learned: 1
- **gates**: It helps.
  - M = 3: K < Base, ECE ↓: not learned: minilm on squad2 has an accuracy of 0.5, and one answer for all 0.5.
## gates: Where it helps
The paper: It helps.
The paper: It is new.
"""


def test_a_later_page_decides_only_what_an_earlier_one_left_open(tmp_path: Path) -> None:
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text(PAGE)
    second.write_text(
        "### Did not hold: 2\n- **gates**: It helps.\n  - Q < Base, ECE ↓: reversed, +0.1 here.\n"
        "  - M = 3: K < Base, ECE ↓: reversed, +0.1 here.\n"
    )
    row = "| [gates](first.md#gates-where-it-helps) | It helps | 1 |"
    assert TABLES["claims"]([first])[2:] == [f"{row}  |  | 1 |"]
    assert TABLES["claims"]([first, second])[2:] == [f"{row} 1 |  |  |"]


def test_a_table_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    first = TABLES["kept"]()[0]
    page = tmp_path / "page.md"
    page.write_text("\n".join([*first.lines, first.below]) + "\n")
    assert not TABLES["differing"]([page])
    page.write_text("\n".join([*first.lines, "| by hand | 1.0 |", first.below]) + "\n")
    assert [own for _, own in TABLES["differing"]([page])] == [first]
    page.write_text("\n".join([*first.lines, "<!-- made by `python nothing.py` at 0123abc -->"]) + "\n")
    assert [own for _, own in TABLES["differing"]([page])] == [None]


def test_a_quoted_number_may_be_rounded_and_a_per_cent_but_not_another(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| base | -0.0041 [-0.0061, -0.0019] | 0.610 |\n")
    assert not TABLES["strangers"](["| base | −.0041 [−.006, −.0019] | 61 % | `--rate 0.3` |"], page)
    assert TABLES["strangers"](["| base | −.7341 [−.0061, −.0019] | 62 % |"], page) == [-0.7341, 0.62]


def test_only_a_page_of_ours_can_be_looked_into(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{NUMBERS}<!-- quoted from README.md -->\n\n{NUMBERS}<!-- quoted from the paper -->\n")
    assert [table.source for table in TABLES["tables_of"](page)] == [ROOT / "README.md", None]


def test_the_citation_names_this_version_and_the_paper_as_the_readme_does() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    paper = citation["preferred-citation"]
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}  # what the format asks for
    assert (citation["version"], citation["license"]) == (uatlite.__version__, project["license"])
    names = ", ".join(f"{author['given-names']} {author['family-names']}" for author in paper["authors"])
    said = " ".join(
        (ROOT / "README.md").read_text(encoding="utf-8").split("cite the paper")[1].replace(">", "").split()
    )
    assert f"{names}. *{paper['title']}.*" in said


@pytest.mark.parametrize("page", ["README.md", "docs/reference/tasks.md"])
def test_the_medical_tasks_are_not_called_clinical_validation(page: str) -> None:
    said = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if "clinical" in line]
    assert len(said) == 1
    assert "Nothing here is clinical validation" in said[0]
    assert "medqa" in said[0].lower()
    assert "pubmedqa" in said[0].lower()
