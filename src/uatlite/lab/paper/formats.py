"""A filled table as Markdown, LaTeX, CSV and JSON: each row here, in the paper, and the difference; the findings."""

import json
import math
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from uatlite.lab.evaluate.cells import Cell, Grid
from uatlite.lab.paper.claims import Findings, OwnResult, summary
from uatlite.lab.paper.reproduction import Reproduction
from uatlite.lab.report import tables
from uatlite.lab.report.figures import records_csv
from uatlite.lab.report.tables import MISSING, number


def measured_text(cell: Cell) -> str:
    """'0.123 ± 0.004 (0.101–0.145)': the mean over seeds, their deviation, the interval over rows and seeds."""
    if cell.measurement is None or math.isnan(cell.measurement.mean):
        return MISSING
    text = number(cell.measurement.mean, cell.decimals)
    if cell.measurement.deviation is not None:
        text += f" ± {number(cell.measurement.deviation, cell.decimals)}"
    return text + (f" ({interval(cell)})" if interval(cell) else "")


def interval(cell: Cell) -> str:
    """'0.101–0.145', or nothing where rows were not resampled."""
    found = cell.interval
    if found is None or not math.isfinite(found.low):
        return ""
    return tables.interval(found.low, found.high, cell.decimals)


def paper_text(cell: Cell) -> str:
    """The paper's number with the digits that it has there, usually three or four decimals."""
    if cell.paper is None:
        return MISSING
    return f"{cell.paper:.0f}" if cell.decimals == 0 else f"{cell.paper:.4f}".rstrip("0").replace("-", "−").rstrip(".")


def signed(value: float | None, decimals: int) -> str:
    """'+0.012' or '−0.012'."""
    text = number(value, decimals)
    return text if text.startswith("−") or text == MISSING else f"+{text}"


def lines_of(grid: Grid) -> Iterator[tuple[str, str, list[str]]]:
    """The lines of each row: its heading, 'here', whose else or 'difference', and the cells as text."""
    for row in grid.panel.rows:
        cells = [grid.cells[row.key, column.key] for column in grid.panel.columns]
        yield row.heading, "here", [measured_text(cell) for cell in cells]
        if any(cell.paper is not None for cell in cells):
            yield "", grid.panel.beside, [paper_text(cell) for cell in cells]
            yield "", "difference", [signed(cell.difference, cell.decimals) for cell in cells]


def markdown(reproduction: Reproduction) -> str:
    """A section with the tables, the verdicts and the notes."""
    declaration = reproduction.declaration
    lines = [f"## {declaration.name}: {declaration.title}", "", f"{declaration.where}.", ""]
    for grid in reproduction.shown:
        if grid.panel.title:
            lines += [f"**{grid.panel.title}**", ""]
        headings = [column.heading for column in grid.panel.columns]
        lines += [f"| | | {' | '.join(headings)} |", "|---|---|" + "---:|" * len(headings)]
        lines += [f"| {heading} | {kind} | {' | '.join(cells)} |" for heading, kind, cells in lines_of(grid)]
        lines.append("")
    for says, verdicts in groupby(reproduction.answered, key=lambda verdict: verdict.says):
        found = list(verdicts)
        lines += ["", f"{'We ask' if found[0].ours else 'The paper'}: {says}", ""]
        lines += [f"- {verdict.sentence}" for verdict in found]
    counts = summary(reproduction.verdicts)
    lines += ["", *([counts, ""] if counts else [])]
    lines += [f"- missing: {reason}" for reason in reproduction.reasons]
    return "\n".join([*lines, *(f"- {note}" for note in reproduction.notes), ""])


def lead(findings: Findings) -> str:
    """The head of the page as Markdown: what held, on which models, and what our own methods do on the same cells."""
    lines = ["## What was found", "", findings.headline, ""]
    lines += [
        "| task | backbone | accuracy | one answer for all | rows | seeds | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for one in findings.models:
        scores = f"{one.accuracy:.3f} | {one.chance:.3f} | {one.rows:,} | {one.seeds}"
        lines.append(
            f"| {one.task} | {Path(one.backbone).name} | {scores} | {'learned' if one.learned else 'not learned'} |"
        )
    for heading, claims in ((heading, claims) for heading, claims in findings.claims.items() if claims):
        lines += ["", f"### {heading}: {findings.count(heading)}", ""]
        for claim in claims:
            lines.append(f"- **{claim.table}**: {claim.says}")
            lines += [f"  - {verdict.sentence}" for verdict in claim.verdicts]
    if not findings.ours:
        return "\n".join([*lines, ""])
    lines += ["", "### Our own methods on the same cells", ""]
    lines += ["| method | against | better | level | worse |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {method} | {rival} | {counts['better']} | {counts['level']} | {counts['worse']} |"
        for method, rival, counts in findings.of_ours()
    ]
    told = [one for one in findings.ours if one.outcome != "level"]
    lines += ["", *(f"- {own_sentence(one)}" for one in told), ""]
    return "\n".join(lines)


def own_sentence(result: OwnResult) -> str:
    """'shift: Analytic+ITS is better than UAT-Lite in OOD ECE ↓, −0.012 (−0.020 to −0.004)'."""
    apart = result.apart
    span = f"{signed(apart.point, 4)} ({signed(apart.low, 4)} to {signed(apart.high, 4)})"
    return f"{result.table}: {result.method} is {result.outcome} than {result.rival} in {result.column}, {span}"


LATEX = str.maketrans(
    {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": r"$-$", "–": "--", "↓": r"$\downarrow$",
     "↑": r"$\uparrow$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "τ": r"$\tau$", "ρ": r"$\rho$", "×": r"$\times$",
     "‖": r"$\|$", "→": r"$\rightarrow$", "≥": r"$\geq$", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$"}
)  # fmt: skip


def latex(reproduction: Reproduction) -> str:
    """A booktabs table for each panel."""
    parts = []
    for grid in reproduction.shown:
        headings = [column.heading for column in grid.panel.columns]
        title = f"{reproduction.declaration.title}. {grid.panel.title}".rstrip(". ") + "."
        parts += [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{ll{'r' * len(headings)}}}",
            r"\toprule",
            _latex_row(["", "", *headings]),
            r"\midrule",
            *(_latex_row([heading, kind, *cells]) for heading, kind, cells in lines_of(grid)),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{title.translate(LATEX)}}}",
            r"\end{table}",
            "",
        ]
    return "\n".join(parts)


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"


def records(reproduction: Reproduction) -> Iterator[dict[str, Any]]:
    """One flat record for each cell; undefined numbers are None."""
    for grid in reproduction.grids:
        for row in grid.panel.rows:
            for column in grid.panel.columns:
                cell = grid.cells[row.key, column.key]
                measurement, found = cell.measurement, cell.interval
                record = {
                    "table": reproduction.declaration.name,
                    "panel": grid.panel.key,
                    "row": row.key,
                    "column": column.key,
                    "mean": measurement and measurement.mean,
                    "deviation": measurement and measurement.deviation,
                    "low": found and found.low,
                    "high": found and found.high,
                    "seeds": 0 if measurement is None else len(measurement.values),
                    "rows": 0 if measurement is None else measurement.rows,
                    "paper": cell.paper,
                    "difference": cell.difference,
                    "reason": cell.reason,
                }
                yield _finite(record)


def as_csv(reproduction: Reproduction) -> str:
    """The records as CSV; undefined numbers are empty."""
    return records_csv(records(reproduction))


def as_json(reproduction: Reproduction) -> str:
    """Cells, verdicts and notes; undefined numbers are null."""
    declaration = reproduction.declaration
    verdicts = [
        {
            "says": verdict.says,
            "compared": verdict.compared,
            "outcome": verdict.outcome,
            "difference": verdict.here and verdict.here.point,
            "low": verdict.here and verdict.here.low,
            "high": verdict.here and verdict.here.high,
            "paper": verdict.paper,
            "paper_agrees": verdict.paper_agrees,
            "claimed_by_the_paper": not verdict.ours,
            "rows": verdict.rows,
            "unlearned": list(verdict.unlearned),
        }
        for verdict in reproduction.verdicts
    ]
    values = {
        "name": declaration.name,
        "title": declaration.title,
        "where": declaration.where,
        "cells": list(records(reproduction)),
        "verdicts": list(map(_finite, verdicts)),
        "missing": reproduction.reasons,
        "notes": list(reproduction.notes),
    }
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinity replaced by None."""
    return {key: None if isinstance(one, float) and not math.isfinite(one) else one for key, one in record.items()}
