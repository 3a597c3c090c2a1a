"""Results as tables of text, which a terminal, a Markdown file and a page show alike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.metrics.intervals import SCALES

MISSING = "–"


def number(value: float | None, decimals: int) -> str:
    """'−0.012' with a minus sign; a dash for None, NaN and infinity."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:z.{decimals}f}".replace("-", "−")


def interval(low: float, high: float, decimals: int) -> str:
    """'0.101–0.145', or '−0.010 to 0.020' below zero; a dash where it is not defined."""
    between = "–" if low >= 0 else " to "
    return f"{number(low, decimals)}{between}{number(high, decimals)}" if math.isfinite(low) else MISSING


@dataclass(frozen=True)
class Cell:
    """A score as text: '0.883', '0.001' over seeds or nothing, '0.852–0.912'."""

    mean: str
    deviation: str
    interval: str
    best: bool


@dataclass(frozen=True)
class Table:
    """Contenders down, metrics across."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    """contender, a note on it, its cells"""
    notes: tuple[str, ...] = ()
    mark: str = "*"
    """follows the best cells"""


def tables_of(results: Results, metrics: Sequence[str] | None = None) -> list[Table]:
    """The tables of an evaluation, set by set."""
    return [table for one in results.sets for table in set_tables(results, one, metrics)] + scope_tables(results)


def set_tables(results: Results, one: SetScores, metrics: Sequence[str] | None = None) -> list[Table]:
    """The tables of one set: its scores, its shift, its detection of out-of-scope rows.

    `metrics` selects columns of the first one; names that were not scored are ignored.
    """
    wanted = [name for name in metrics or results.metrics if name in results.metrics] or list(results.metrics)
    tables = [_table(results, f"{one.name} · {one.rows:,} rows", one.scores, wanted, _notes(one))]
    if one.shift:
        title = f"{results.sets[0].name} → {one.name}: calibration under shift"
        tables.append(_table(results, title, one.shift))
    if one.detection:
        tables.append(_table(results, f"{one.name}: detecting rows out of scope", one.detection))
    return tables


def scope_tables(results: Results) -> list[Table]:
    """The tables of texts out of scope: how they are found, then abstention without them and with them."""
    one = results.out_of_scope
    if one is None:
        return []
    first, notes = results.sets[0].name, (f"texts out of scope: {one.source}", one.note)
    return [
        _table(results, f"{first}: finding {one.rows:,} texts out of scope", one.detection, notes=notes),
        _table(results, f"{first}: AURC of the {one.in_scope_rows:,} rows in scope", one.in_scope),
        _table(results, "AURC of both together, every answer to a text out of scope an error", one.mixture),
    ]


def legend(results: Results, mark: str = "*", metrics: Sequence[str] | None = None) -> str:
    """How to read the cells: `mark` marks the best of a column, `metrics` are the columns, by default all."""
    how = results.resampling
    seeds = max(int(about["seeds"]) for about in results.methods.values())
    drawn = "rows" if results.kind == "one" else "texts, with all of their answers"
    parts = [f"Intervals are {how.confidence:.0%}, from {how.resamples:,} resamples of the {drawn}."]
    if seeds > 1:
        parts.insert(0, f"Mean ± standard deviation over {seeds} seeds; without ± nothing is random.")
    shown = results.metrics if metrics is None else metrics
    every = [of.get(name) for one in results.sets for of in one.scores.values() for name in shown]
    if results.out_of_scope is not None:
        mixed = results.out_of_scope
        tables = (mixed.detection, mixed.in_scope, mixed.mixture)
        every += [score for table in tables for of in table.values() for score in of.values()]
    if any(score is not None and score.best for score in every):
        parts.append(f"{mark} beats every other method of its column: each paired interval of a difference excludes 0.")
    return " ".join(parts)


def _table(
    results: Results,
    title: str,
    scores: Mapping[str, Mapping[str, Score]],
    metrics: Sequence[str] | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    metrics = list(metrics or next(iter(scores.values())))
    others = [name for name in scores if name not in results.contenders]  # the scope, read off a plain pass
    rows = tuple(
        (
            name,
            passes(results.methods.get(name, {"cost": 1})),
            tuple(cell(scores[name][metric], metric) for metric in metrics),
        )
        for name in (*results.contenders, *others)
    )
    return Table(title, tuple(heading(metric) for metric in metrics), rows, notes)


def passes(method: Mapping[str, Any]) -> str:
    """'1 pass', '2.8 passes': what a text costs a method of the results."""
    return f"{method['cost']:.3g} pass{'' if method['cost'] == 1 else 'es'}"


def heading(metric: str) -> str:
    """A metric's name with an arrow towards better."""
    scale = SCALES[metric]
    return scale.heading + {"higher": " ↑", "lower": " ↓", None: ""}[scale.better]


def cell(score: Score, metric: str) -> Cell:
    """A score as text, with the decimals of its metric."""
    decimals = SCALES[metric].decimals
    deviation = "" if score.deviation is None or math.isnan(score.deviation) else number(score.deviation, decimals)
    return Cell(number(score.mean, decimals), deviation, interval(score.low, score.high, decimals), score.best)


def _notes(one: SetScores) -> tuple[str, ...]:
    notes = [f"rows: {one.source}; {one.alignment}"]
    if one.left_out:
        notes.append(f"{one.left_out:,} rows have no label that the model knows and are not scored above")
    if one.truncated_texts:
        notes.append(f"{one.truncated_texts:,} texts were cut to fit the model, {one.truncated_tokens:,} tokens in all")
    return tuple(notes)
