"""A filled table as Markdown, LaTeX, CSV and JSON: each row here, in the paper, and the difference."""

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

from uatlite.lab.paper.claims import summary
from uatlite.lab.paper.grid import Cell, Grid
from uatlite.lab.paper.reproduction import Reproduction

MISSING = "–"


def number(value: float | None, decimals: int) -> str:
    """'−0.012', or a dash for what is not there."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:z.{decimals}f}".replace("-", "−")


def here(cell: Cell) -> str:
    """'0.123 ± 0.004 (0.101–0.145)': the mean over seeds, their deviation, the interval over rows."""
    if cell.measured is None or math.isnan(cell.measured.point):
        return MISSING
    text = number(cell.measured.point, cell.decimals)
    if cell.measured.deviation is not None:
        text += f" ± {number(cell.measured.deviation, cell.decimals)}"
    return text + (f" ({interval(cell)})" if interval(cell) else "")


def interval(cell: Cell) -> str:
    """'0.101–0.145', or nothing where rows were not resampled."""
    found = None if cell.measured is None else cell.measured.interval()
    if found is None or not math.isfinite(found.low):
        return ""
    between = "–" if found.low >= 0 else " to "
    return f"{number(found.low, cell.decimals)}{between}{number(found.high, cell.decimals)}"


def printed(cell: Cell) -> str:
    """The paper's number with the digits that it has there, three or four decimals as a rule."""
    if cell.paper is None:
        return MISSING
    return f"{cell.paper:.0f}" if cell.decimals == 0 else f"{cell.paper:.4f}".rstrip("0").replace("-", "−").rstrip(".")


def signed(value: float | None, decimals: int) -> str:
    text = number(value, decimals)
    return text if text.startswith("−") or text == MISSING else f"+{text}"


def lines_of(grid: Grid) -> Iterator[tuple[str, str, list[str]]]:
    """For each row of a grid: its heading, 'here', 'paper' or 'difference', and the cells; a row of our own has one."""
    for row in grid.panel.rows:
        cells = [grid.cells[row.key, column.key] for column in grid.panel.columns]
        yield row.heading, "here", [here(cell) for cell in cells]
        if any(cell.paper is not None for cell in cells):
            yield row.heading, "paper", [printed(cell) for cell in cells]
            yield row.heading, "difference", [signed(cell.difference, cell.decimals) for cell in cells]


def markdown(reproduction: Reproduction) -> str:
    """One section: the tables, the verdicts, the notes."""
    declaration = reproduction.declaration
    lines = [f"## {declaration.name}: {declaration.title}", "", f"{declaration.where}.", ""]
    for grid in reproduction.grids:
        if grid.panel.title:
            lines += [f"**{grid.panel.title}**", ""]
        headings = [column.heading for column in grid.panel.columns]
        lines += [f"| | | {' | '.join(headings)} |", "|---|---|" + "---:|" * len(headings)]
        lines += [
            f"| {name if kind == 'here' else ''} | {kind} | {' | '.join(cells)} |"
            for name, kind, cells in lines_of(grid)
        ]
        lines.append("")
    lines += [*_verdicts(reproduction), *_notes(reproduction)]
    return "\n".join(lines)


def _verdicts(reproduction: Reproduction) -> list[str]:
    lines: list[str] = []
    told = ""
    for verdict in reproduction.verdicts:
        if verdict.says != told:
            lines += ["", f"{'We ask' if verdict.ours else 'The paper'}: {verdict.says}", ""]
            told = verdict.says
        lines.append(f"- {verdict.sentence}")
    counts = summary(reproduction.verdicts)
    return [*lines, "", *([counts, ""] if counts else [])]


def _notes(reproduction: Reproduction) -> list[str]:
    missing = [f"- not here: {reason}" for reason in reproduction.reasons]
    return [*missing, *(f"- {note}" for note in reproduction.notes), ""]


LATEX = str.maketrans(
    {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": r"$-$", "–": "--", "↓": r"$\downarrow$",
     "↑": r"$\uparrow$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "τ": r"$\tau$", "ρ": r"$\rho$", "×": r"$\times$",
     "‖": r"$\|$", "→": r"$\rightarrow$", "≥": r"$\geq$", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$"}
)  # fmt: skip


def latex(reproduction: Reproduction) -> str:
    """One table environment for each panel, in booktabs' manner."""
    parts = []
    for grid in reproduction.grids:
        headings = [column.heading for column in grid.panel.columns]
        rows = [
            " & ".join([name if kind == "here" else "", kind, *cells]).translate(_CELLS) + r" \\"
            for name, kind, cells in lines_of(grid)
        ]
        title = f"{reproduction.declaration.title}. {grid.panel.title}".rstrip(". ") + "."
        parts += [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{ll{'r' * len(headings)}}}",
            r"\toprule",
            " & ".join(["", "", *(heading.translate(LATEX) for heading in headings)]) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{title.translate(LATEX)}}}",
            r"\end{table}",
            "",
        ]
    return "\n".join(parts)


_CELLS = {key: value for key, value in LATEX.items() if key != ord("&")}  # the one that parts the cells


def records(reproduction: Reproduction) -> Iterator[dict[str, Any]]:
    """One flat record for each cell."""
    for grid in reproduction.grids:
        for row in grid.panel.rows:
            for column in grid.panel.columns:
                cell = grid.cells[row.key, column.key]
                found = None if cell.measured is None else cell.measured.interval()
                yield {
                    "table": reproduction.declaration.name,
                    "panel": grid.panel.key,
                    "row": row.key,
                    "column": column.key,
                    "mean": None if cell.measured is None else cell.measured.point,
                    "deviation": None if cell.measured is None else cell.measured.deviation,
                    "low": None if found is None else found.low,
                    "high": None if found is None else found.high,
                    "seeds": 0 if cell.measured is None else len(cell.measured.values),
                    "rows": 0 if cell.measured is None else cell.measured.rows,
                    "paper": cell.paper,
                    "difference": cell.difference,
                    "reason": cell.reason,
                }


def as_csv(reproduction: Reproduction) -> str:
    """The records as CSV; what is not there is empty."""
    rows = list(records(reproduction))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_finite(row) for row in rows)
    return text.getvalue()


def as_json(reproduction: Reproduction) -> str:
    """Cells, verdicts and notes; what is not there is null."""
    declaration = reproduction.declaration
    values = {
        "name": declaration.name,
        "title": declaration.title,
        "where": declaration.where,
        "cells": [_finite(row) for row in records(reproduction)],
        "verdicts": [
            _finite(
                {
                    "says": verdict.says,
                    "compared": verdict.compared,
                    "outcome": verdict.outcome,
                    "difference": None if verdict.here is None else verdict.here.point,
                    "low": None if verdict.here is None else verdict.here.low,
                    "high": None if verdict.here is None else verdict.here.high,
                    "paper": verdict.paper,
                    "paper_agrees": verdict.paper_agrees,
                    "claimed_by_the_paper": not verdict.ours,
                }
            )
            for verdict in reproduction.verdicts
        ],
        "missing": reproduction.reasons,
        "notes": list(reproduction.notes),
    }
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
