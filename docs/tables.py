"""The measured tables of the docs: which command made each of them, at which commit; and write them anew.

    python docs/tables.py                                 list them
    python docs/tables.py OUT.md --at COMMIT              put the tables of OUT.md, what a command printed, in place
    python docs/tables.py OUT/report.md --at COMMIT --page docs/evidence/results.md --by COMMAND

Below each measured table stands a comment: made by `COMMAND` at COMMIT, or quoted from SOURCE. If one command makes a
whole page, a comment at its top says so for all tables. A table is replaced by the one with the same headings.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = "```"
NUMBER = re.compile(r"(?<![\w.])[−+-]?\d*\.\d+|\d %")
INLINE = re.compile(r"`[^`]*`")
MADE = re.compile(r"<!-- made by (?P<command>.+) at (?P<commit>[0-9a-f]{7,40}) -->")
QUOTED = re.compile(r"<!-- quoted from .+ -->")
ALL_MADE = re.compile(r"<!-- all tables made by (?P<command>.+) at (?P<commit>[0-9a-f]{7,40}) -->")
SHARE = 0.4
"""A table measures something if this share of its cells, first column aside, are numbers, or if a heading says so."""


@dataclass(frozen=True)
class Table:
    """A table of a page: its lines are those from `start` to before `end`, counted from 0."""

    page: Path
    start: int
    end: int
    lines: tuple[str, ...]
    below: str
    """the line after it"""
    of_page: str
    """the comment for all tables of the page, or nothing"""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.start + 1}"

    @property
    def headings(self) -> tuple[str, ...]:
        return cells(self.lines[0])

    @property
    def measured(self) -> bool:
        """Whether it holds numbers that something measured, and not a list of options."""
        if "measured" in self.headings:
            return True
        numbers = [NUMBER.search(INLINE.sub("", cell)) for line in self.lines[2:] for cell in cells(line)[1:]]
        return len(numbers) > 0 and sum(one is not None for one in numbers) >= SHARE * len(numbers)

    @property
    def maker(self) -> tuple[str, str] | None:
        """The command and the commit; None where neither the table nor its page names them."""
        found = MADE.fullmatch(self.below) or ALL_MADE.fullmatch(self.of_page)
        return None if found is None else (found["command"], found["commit"])

    @property
    def origin(self) -> str | None:
        """Where its numbers come from, in words; None where it does not say."""
        if QUOTED.fullmatch(self.below):
            return self.below.removeprefix("<!-- ").removesuffix(" -->")
        return None if self.maker is None else f"{self.maker[0]} at {self.maker[1]}"


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def tables_of(page: Path) -> Iterator[Table]:
    """The tables of a page in order; those inside a code block are not tables."""
    lines = page.read_text(encoding="utf-8").splitlines()
    of_page = next((line for line in lines if ALL_MADE.fullmatch(line)), "")
    fenced, place = False, 0
    while place < len(lines):
        fenced ^= lines[place].startswith(FENCE)
        if fenced or not lines[place].startswith("|"):
            place += 1
            continue
        end = next((one for one in range(place, len(lines)) if not lines[one].startswith("|")), len(lines))
        below = lines[end] if end < len(lines) else ""
        yield Table(page, place, end, tuple(lines[place:end]), below, of_page)
        place = end


def pages() -> list[Path]:
    """Every page with tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def replace_tables(page: Path, stored: list[Table], commit: str) -> int:
    """Replace the measured tables of a page that have the headings of a stored one, in order; returns how many."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    for headings in dict.fromkeys(one.headings for one in stored):
        old = [one for one in tables_of(page) if one.headings == headings and MADE.fullmatch(one.below)]
        new = [one for one in stored if one.headings == headings]
        if old and len(old) != len(new):
            sys.exit(f"{page}: {len(old)} tables with the headings {headings}, {len(new)} of them stored.")
        found += zip(old, new if old else (), strict=True)
    for old_table, new_table in sorted(found, key=lambda pair: pair[0].start, reverse=True):
        command, _ = old_table.maker or ("", "")
        lines[old_table.start : old_table.end + 1] = [*new_table.lines, f"<!-- made by {command} at {commit} -->"]
    if found:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(found)


def write_page(page: Path, stored: Path, command: str, commit: str) -> None:
    """Make a page of what a command wrote: its first line, the comment, the rest."""
    head, _, rest = stored.read_text(encoding="utf-8").partition("\n")
    page.write_text(f"{head}\n<!-- all tables made by `{command}` at {commit} -->\n{rest}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stored", type=Path, nargs="?", help="what a command printed or wrote, as Markdown")
    parser.add_argument("--at", metavar="COMMIT", help="the commit whose code made it")
    parser.add_argument("--page", type=Path, help="make this page of it, instead of replacing single tables")
    parser.add_argument("--by", metavar="COMMAND", help="with --page: the command")
    given = parser.parse_args()
    if given.stored is None:
        for table in (table for page in pages() for table in tables_of(page) if table.measured):
            origin = table.origin or "does not say what made it"
            sys.stdout.write(f"{table.page.relative_to(ROOT)}:{table.start + 1}: {origin}\n")
        return
    if given.at is None or (given.page is None) != (given.by is None):
        parser.error("give --at COMMIT, and --page and --by together or not at all")
    if given.page is not None:
        write_page(given.page, given.stored, given.by, given.at)
        return
    stored = list(tables_of(given.stored))
    counts = {page: replace_tables(page, stored, given.at) for page in pages()}
    for page, count in counts.items():
        if count:
            sys.stdout.write(f"{page.relative_to(ROOT)}: {count} tables\n")
    if not any(counts.values()):
        sys.exit(f"No table of the docs has the headings of one in {given.stored}.")


if __name__ == "__main__":
    main()
