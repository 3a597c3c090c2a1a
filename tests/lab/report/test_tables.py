"""A table in each format, and numbers as text."""

import pytest
from rich.console import Console

from uatlite.lab.report.tables import (
    Column,
    Entry,
    Row,
    Table,
    finite,
    interval,
    latex,
    listing,
    number,
    records_csv,
    signed,
    table_markdown,
    terminal,
)

BEST = Entry("0.25", spread="0.010", interval="0.20–0.30", beside="0.5", difference="−0.25", tone="best")
TABLE = Table(
    title="A & B",
    corner="method",
    columns=(Column("NLL ↓"), Column("used", number=False)),
    rows=(Row("base", (BEST, Entry("50%")), note="1 pass"), Row("uat_1", (Entry(), Entry("–")))),
    notes=("of 3 rows",),
    mark="*",
)
BESIDE = Table("", (Column("NLL"),), (Row("base", (BEST,)), Row("uat", (Entry("1"),))), beside="paper")


def test_markdown():
    assert list(table_markdown(TABLE)) == [
        "**A & B**",
        "| method | NLL ↓ | used |\n|---|---:|---|\n| base | **0.25** ± 0.010 (0.20–0.30) | 50% |\n| uat_1 | – | – |",
        "- of 3 rows",
    ]
    (text,) = table_markdown(BESIDE)
    assert text.splitlines()[2:] == [
        "| base | here | **0.25** ± 0.010 (0.20–0.30) |", "|  | paper | 0.5 |", "|  | difference | −0.25 |",
        "| uat | here | 1 |",
    ]  # fmt: skip


def test_latex():
    text = latex([TABLE], "All")
    assert r"\begin{tabular}{lrl}" in text
    assert r"method & NLL $\downarrow$ & used \\" in text
    assert r"base & 0.25 $\pm$ 0.010 (0.20--0.30) & 50\% \\" in text
    assert r"uat\_1 & -- & -- \\" in text
    assert r"\caption{All. A \& B.}" in text
    assert r"\begin{tabular}{llr}" in latex([BESIDE])
    assert r" & difference & $-$0.25 \\" in latex([BESIDE])


def test_a_terminal_has_two_lines_for_a_row_with_intervals():
    console = Console(width=80)
    with console.capture() as captured:
        console.print(terminal(TABLE))
    lines = captured.get().splitlines()
    assert lines[2].split() == ["base", "0.25", "±.010*", "50%"]
    assert lines[3].split() == ["1", "pass", "0.20–0.30"]


def test_records():
    rows = [{"a": 1.5, "b": None}, {"a": float("nan"), "b": True}]
    assert records_csv(rows) == "a,b\n1.5,\n,True\n"
    assert finite({"a": float("inf"), "b": float("nan"), "c": 1.0}) == {"a": None, "b": None, "c": 1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(-0.0001, 3), "0.000"),
        (number(-0.5, 1), "−0.5"),
        (number(float("inf"), 1), "–"),
        (signed(0.5, 1), "+0.5"),
        (signed(-0.5, 1), "−0.5"),
        (signed(None, 1), "–"),
        (interval(0.1, 0.2, 1), "0.1–0.2"),
        (interval(-0.1, 0.2, 1), "−0.1 to 0.2"),
        (interval(float("nan"), 0.2, 1), "–"),
        (listing(()), "–"),
        (listing(("a",)), "a"),
        (listing(("a", "b", "c")), "a, b and c"),
    ],
)
def test_numbers_and_names(text, expected):
    assert text == expected
