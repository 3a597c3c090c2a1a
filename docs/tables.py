"""The measured tables of the docs: what made each of them, and write them anew from what the commands printed.

    python docs/tables.py                                 list them
    python docs/tables.py --write                         write all of them anew from benchmarks/results, and count the
                                                          paper's claims on the pages of `uatlite reproduce`
    python docs/tables.py OUT.md --at COMMIT [--by COMMAND]
                                                          keep the tables of OUT.md, what a command printed, and write
    python docs/tables.py OUT/report.md --at COMMIT --page docs/evidence/tables.md --by COMMAND [--title TITLE]

Below each measured table stands a comment: made by `COMMAND` at COMMIT, or quoted from SOURCE. If one command makes a
whole page, a comment at its top says so for all tables, and the page is what the command wrote. All other tables with a
command are kept in benchmarks/results, a file for each script. A script is named as it is called today. A kept table is
replaced by the one with the same headings; `--by` tells two commands apart whose tables have the same ones. The numbers
of a table that is quoted from a page of ours are those of the page's tables, rounded.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FENCE = "```"
NUMBER = re.compile(r"(?<![\w.])[−+-]?\d*\.\d+|\d %")
FIGURE = re.compile(r"(?<![\w.])([−+-]?)(\d*\.\d+|\d+(?= %))( ?%)?")
INLINE = re.compile(r"`[^`]*`")
MADE = re.compile(r"<!-- made by (?P<command>.+) at (?P<commit>[0-9a-f]{7,40}) -->")
QUOTED = re.compile(r"<!-- quoted from (?P<source>.+) -->")
ALL_MADE = re.compile(r"<!-- all tables made by (?P<command>.+) at (?P<commit>[0-9a-f]{7,40}) -->")
HEADING = re.compile(r"### ([^:]+?)(?:: \d+)?")
CLAIM = re.compile(r"- \*\*([\w-]+)\*\*: (.+?)\.?")
COMPARISON = re.compile(r"  - (.+?): (?:held|reversed|no difference|same direction|opposite direction|not learned)\b")
SECTION = re.compile(r"## (([\w-]+): .+)")
PAPER = "The paper: "
OUTCOMES = ("Held", "Did not hold", "Could not be told", "Not learned")
"""The headings of a reproduction's page under which the paper's comparisons stand."""
CLAIM_HEADINGS = ("table", "the paper says", "held", "did not", "could not be told", "not learned")
CLAIMS = ROOT / "docs" / "evidence" / "results.md"
"""The page with the table of the paper's claims, and below those that it is counted on, the first one first."""
COUNTED = tuple(CLAIMS.with_name(name) for name in ("tables.md", "squad2.md"))
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
    def key(self) -> tuple[str, tuple[str, ...]] | None:
        """The command and the headings, by which a table is kept; None for one without a command of its own."""
        found = MADE.fullmatch(self.below)
        return None if found is None else (found["command"], self.headings)

    @property
    def origin(self) -> str | None:
        """Where its numbers come from, in words; None where it does not say."""
        if QUOTED.fullmatch(self.below):
            return self.below.removeprefix("<!-- ").removesuffix(" -->")
        return None if self.maker is None else f"{self.maker[0]} at {self.maker[1]}"

    @property
    def source(self) -> Path | None:
        """The page of ours that it is quoted from, if any."""
        found = QUOTED.fullmatch(self.below)
        return None if found is None or not (ROOT / found["source"]).is_file() else ROOT / found["source"]


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


def kept() -> list[Table]:
    """The tables in benchmarks/results, in order."""
    return [table for file in sorted(RESULTS.glob("*.md")) for table in tables_of(file) if table.key is not None]


def figures(lines: Iterable[str]) -> set[tuple[float, int]]:
    """The numbers of some lines, each with its decimals; 61 % is 0.61."""
    found = set()
    for sign, digits, percent in (one for line in lines for one in FIGURE.findall(INLINE.sub("", line))):
        value, decimals = float(digits) * (-1 if sign in ("−", "-") else 1), len(digits.partition(".")[2])
        found.add((value / 100, decimals + 2) if percent else (value, decimals))
    return found


def strangers(lines: Iterable[str], *sources: Path) -> list[float]:
    """The numbers of lines that no line of the sources has, also not when rounded or with the other sign."""
    texts = [source.read_text(encoding="utf-8").replace("–", " ") for source in sources]
    there = [abs(value) for text in texts for value, _ in figures(text.splitlines())]

    def is_there(value: float, decimals: int) -> bool:
        return any(abs(abs(value) - one) <= 0.5 * 10**-decimals + 1e-9 for one in there)

    return sorted(value for value, decimals in figures(lines) if not is_there(value, decimals))


def put(page: Path, news: Iterable[tuple[Table, tuple[str, ...], str]]) -> None:
    """Replace tables of a page: each old one, its new lines and the comment below them."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for old, new, below in sorted(news, key=lambda one: one[0].start, reverse=True):
        lines[old.start : old.end + 1] = [*new, below]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def replace_tables(page: Path, stored: list[Table], commit: str, command: str | None = None) -> int:
    """Replace the tables of a page that have the headings of a stored one, in order; returns how many."""
    news = []
    for headings in dict.fromkeys(one.headings for one in stored):
        old = [one for one in tables_of(page) if one.key is not None and one.headings == headings]
        old = [one for one in old if command is None or (one.key or "")[0].strip("`") == command]
        new = [one for one in stored if one.headings == headings]
        if old and len(old) != len(new):
            sys.exit(f"{page}: {len(old)} tables with the headings {headings}, {len(new)} of them stored; try --by.")
        for old_table, new_table in zip(old, new if old else (), strict=True):
            maker, _ = old_table.maker or ("", "")
            news.append((old_table, new_table.lines, f"<!-- made by {maker} at {commit} -->"))
    put(page, news)
    return len(news)


def differing(of: Iterable[Path]) -> list[tuple[Table, Table | None]]:
    """The tables of pages that are not as kept, each with the kept one; None for one that is not kept at all."""
    there = defaultdict(list)
    for table in kept():
        there[table.key].append(table)
    found: list[tuple[Table, Table | None]] = []
    for table in (table for page in of for table in tables_of(page)):
        if table.key is not None:
            own = there[table.key].pop(0) if there[table.key] else None
            if own is None or (own.lines, own.below) != (table.lines, table.below):
                found.append((table, own))
    return found


def decided(pages: Iterable[Path]) -> dict[tuple[str, str, str], str]:
    """(table, the paper's sentence, comparison) -> the heading it stands under on pages of `uatlite reproduce`.

    A later page decides what an earlier one left open because the task was not learned.
    """
    found: dict[tuple[str, str, str], str] = {}
    for page in pages:
        heading = table = says = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("## ") and heading:
                break  # what follows are the tables themselves
            if one := HEADING.fullmatch(line):
                heading = one[1]
            elif one := CLAIM.fullmatch(line):
                table, says = one[1], one[2]
            elif heading in OUTCOMES and (one := COMPARISON.match(line)):
                key = table, says, one[1]
                if found.get(key, OUTCOMES[-1]) == OUTCOMES[-1]:
                    found[key] = heading
    return found


def claims(pages: Sequence[Path]) -> list[str]:
    """The table of the paper's sentences that were decided somewhere, in the order of the first page."""
    headings = decided(pages)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (table, says, _), heading in headings.items():
        counts[table, says][heading] += 1
    lines = [f"| {' | '.join(CLAIM_HEADINGS)} |", "|---|---|--:|--:|--:|--:|"]
    link = table = ""
    for line in pages[0].read_text(encoding="utf-8").splitlines():
        if one := SECTION.fullmatch(line):
            table = one[2]
            anchor = re.sub(r"[^\w\- ]", "", one[1].lower()).replace(" ", "-")
            link = f"[{table}]({pages[0].name}#{anchor})"
        elif line.startswith(PAPER):
            says = line.removeprefix(PAPER).removesuffix(".")
            row = counts.pop((table, says), Counter())
            if row[OUTCOMES[0]] + row[OUTCOMES[1]]:
                lines.append(f"| {link} | {says} | {' | '.join(str(row[one] or '') for one in OUTCOMES)} |")
    return lines


def write() -> int:
    """Write the tables of the docs anew: those that are kept, and that of the claims; returns how many changed."""
    (table,) = (table for table in tables_of(CLAIMS) if table.headings == CLAIM_HEADINGS)
    counted = tuple(claims(COUNTED))
    put(CLAIMS, [(table, counted, table.below)])
    found = differing(pages())
    lost = [table.place for table, own in found if own is None]
    if lost:
        sys.exit(f"Not kept in {RESULTS.relative_to(ROOT)}: {', '.join(lost)}")
    for page in {table.page for table, _ in found}:
        put(page, [(table, own.lines, own.below) for table, own in found if own is not None and table.page == page])
    return len(found) + (table.lines != counted)


def write_page(page: Path, stored: Path, command: str, commit: str, title: str | None = None) -> None:
    """Make a page of what a command wrote: its first line, or another title, the comment, the rest."""
    head, _, rest = stored.read_text(encoding="utf-8").partition("\n")
    head = head if title is None else f"# {title}"
    page.write_text(f"{head}\n<!-- all tables made by `{command}` at {commit} -->\n{rest}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stored", type=Path, nargs="?", help="what a command printed or wrote, as Markdown")
    parser.add_argument("--write", action="store_true", help="write all tables anew from benchmarks/results")
    parser.add_argument("--at", metavar="COMMIT", help="the commit whose code made it")
    parser.add_argument("--by", metavar="COMMAND", help="the command that made it")
    parser.add_argument("--page", type=Path, help="make this page of it, instead of replacing single tables")
    parser.add_argument("--title", help="of the page; by default what the command wrote")
    given = parser.parse_args()
    if given.stored is None and not given.write:
        for table in (table for page in pages() for table in tables_of(page) if table.measured):
            origin = table.origin or "does not say what made it"
            sys.stdout.write(f"{table.page.relative_to(ROOT)}:{table.start + 1}: {origin}\n")
        return
    if given.stored is not None:
        if given.at is None or (given.page is not None and given.by is None):
            parser.error("give --at COMMIT, and with --page also --by COMMAND")
        if given.page is not None:
            write_page(given.page, given.stored, given.by, given.at, given.title)
            return
        stored = list(tables_of(given.stored))
        if not sum(replace_tables(file, stored, given.at, given.by) for file in sorted(RESULTS.glob("*.md"))):
            sys.exit(f"No table in {RESULTS.relative_to(ROOT)} has the headings of one in {given.stored}.")
    sys.stdout.write(f"{write()} tables of the docs changed\n")


if __name__ == "__main__":
    main()
