"""The numbers behind the figures of a reproduction, taken from its cells or kept arrays; nothing is computed here."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.report.displays import Record
from uatlite.reproduce.grid import Grid

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bars:
    """One panel for each column: a bar with its interval for each row, and the paper's number where it has one."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(columns, rows, 4): mean, low, high, paper; NaN where there is none"""

    @classmethod
    def of(cls, grid: Grid, columns: tuple[str, ...]) -> "Bars":
        shown = [column for column in grid.panel.columns if not columns or column.key in columns]
        rows = [row for row in grid.panel.rows if row.derive is None]
        values = np.full((len(shown), len(rows), 4), np.nan)
        for place, column in enumerate(shown):
            for line, row in enumerate(rows):
                cell = grid.cells[row.key, column.key]
                if cell.measured is not None:
                    found = cell.measured.interval()
                    values[place, line, :3] = [
                        cell.measured.point,
                        np.nan if found is None else found.low,
                        np.nan if found is None else found.high,
                    ]
                if cell.paper is not None:
                    values[place, line, 3] = cell.paper
        return cls(tuple(row.heading for row in rows), tuple(column.heading for column in shown), values)

    def records(self) -> Iterator[Record]:
        for place, column in enumerate(self.columns):
            for line, row in enumerate(self.rows):
                mean, low, high, paper = self.values[place, line].tolist()
                yield {"column": column, "row": row, "mean": mean, "low": low, "high": high, "paper": paper}


@dataclass(frozen=True)
class Heat:
    """A grid of numbers, shaded within each row from its best to its worst cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(rows, columns)"""
    shades: Floats
    """(rows, columns): 0 for the least of a row, 1 for the most"""

    @classmethod
    def of(cls, grid: Grid) -> "Heat":
        rows, columns = grid.panel.rows, grid.panel.columns
        cells = [[grid.cells[row.key, column.key].measured for column in columns] for row in rows]
        values = np.array([[np.nan if one is None else one.point for one in line] for line in cells])
        low = np.where(np.isnan(values), np.inf, values).min(axis=1, keepdims=True)
        high = np.where(np.isnan(values), -np.inf, values).max(axis=1, keepdims=True)
        shades = (values - low) / np.where(high > low, high - low, 1.0)
        return cls(tuple(row.heading for row in rows), tuple(one.heading for one in columns), values, shades)

    def records(self) -> Iterator[Record]:
        for line, row in enumerate(self.rows):
            for place, column in enumerate(self.columns):
                yield {"row": row, "column": column, "value": float(self.values[line, place])}


@dataclass(frozen=True)
class Maps:
    """Attention (tokens, tokens) without modulation, with it, and the difference."""

    tokens: tuple[str, ...]
    plain: Floats
    modulated: Floats
    change: Floats

    def records(self) -> Iterator[Record]:
        for line, query in enumerate(self.tokens):
            for place, key in enumerate(self.tokens):
                yield {
                    "query": query,
                    "key": key,
                    "plain": float(self.plain[line, place]),
                    "modulated": float(self.modulated[line, place]),
                    "change": float(self.change[line, place]),
                }
