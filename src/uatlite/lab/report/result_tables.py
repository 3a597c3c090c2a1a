"""The tables of an evaluation, how to read them, and what its rules promise in sentences."""

import math
from collections.abc import Sequence
from dataclasses import replace

from uatlite.lab.evaluate.comparison import Score, Scores
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.report.tables import Column, Entry, Row, Table, interval, number, shares
from uatlite.metrics.intervals import SCALES


def heading(metric: str) -> str:
    """A metric's name with an arrow towards better."""
    scale = SCALES[metric]
    return scale.heading + {"higher": " ↑", "lower": " ↓", None: ""}[scale.better]


def passes(count: float) -> str:
    """'1 pass', '2.8 passes'."""
    return f"{count:.3g} pass{'' if count == 1 else 'es'}"


def score_entry(score: Score, metric: str) -> Entry:
    """A score as text, with the decimals of its metric."""
    decimals = SCALES[metric].decimals
    return Entry(
        text=number(score.mean, decimals),
        spread="" if score.deviation is None or math.isnan(score.deviation) else number(score.deviation, decimals),
        interval=interval(score.low, score.high, decimals),
        tone="best" if score.best else "",
    )


def tables_of(results: Results, metrics: Sequence[str] | None = None) -> list[Table]:
    """The tables of an evaluation, set by set."""
    return [table for scores in results.sets for table in set_tables(results, scores, metrics)] + scope_tables(results)


def set_tables(results: Results, scores: SetScores, metrics: Sequence[str] | None = None) -> list[Table]:
    """The tables of one set: its scores, its shift, its detection of out-of-scope rows.

    `metrics` selects columns of the first one; names that were not scored are ignored.
    """
    name, chosen = scores.name, [metric for metric in metrics or results.metrics if metric in results.metrics]
    tables = [_table(results, f"{name} · {scores.rows:,} rows", scores.scores, chosen or results.metrics)]
    tables = [replace(tables[0], notes=_notes(scores))]
    if scores.shift:
        tables.append(_table(results, f"{results.sets[0].name} → {name}: calibration under shift", scores.shift))
    if scores.detection:
        tables.append(_table(results, f"{name}: detecting rows out of scope", scores.detection))
    return tables


def scope_tables(results: Results) -> list[Table]:
    """The tables of texts out of scope: how they are found, then abstention without them and with them."""
    mixed, first = results.out_of_scope, results.sets[0].name
    if mixed is None:
        return []
    detection = _table(results, f"{first}: finding {mixed.rows:,} texts out of scope", mixed.detection)
    return [
        replace(detection, notes=(f"texts out of scope: {mixed.source}", mixed.note)),
        _table(results, f"{first}: AURC of the {mixed.in_scope_rows:,} rows in scope", mixed.in_scope),
        _table(results, "AURC of both together, every answer to a text out of scope an error", mixed.mixture),
    ]


def _table(results: Results, title: str, scores: Scores, metrics: Sequence[str] | None = None) -> Table:
    """Contenders down, metrics across; the scope, read off a plain pass, comes after the contenders."""
    metrics = metrics or list(next(iter(scores.values())))
    others = [name for name in scores if name not in results.contenders]
    return Table(
        title=title,
        corner="method",
        columns=tuple(Column(heading(metric)) for metric in metrics),
        rows=tuple(
            Row(name, tuple(score_entry(scores[name][metric], metric) for metric in metrics), cost_of(results, name))
            for name in (*results.contenders, *others)
        ),
        mark="*",
    )


def cost_of(results: Results, contender: str) -> str:
    """What a text costs a contender, in passes."""
    return passes(results.methods[contender]["cost"] if contender in results.methods else 1)


def _notes(scores: SetScores) -> tuple[str, ...]:
    notes = [f"rows: {scores.source}; {scores.alignment}"]
    if scores.left_out:
        notes.append(f"{scores.left_out:,} rows have no label that the model knows and are not scored above")
    if texts := scores.truncated_texts:
        notes.append(f"{texts:,} texts were cut to fit the model, {scores.truncated_tokens:,} tokens in all")
    return tuple(notes)


def legend(results: Results, mark: str = "*", metrics: Sequence[str] | None = None) -> str:
    """How to read the cells: `mark` marks the best of a column, `metrics` are the columns, by default all."""
    how = results.resampling
    seeds = max(int(about["seeds"]) for about in results.methods.values())
    drawn = "rows" if results.kind == "one" else "texts, with all of their answers"
    sentences = [f"Intervals are {how.confidence:.0%}, from {how.resamples:,} resamples of the {drawn}."]
    if seeds > 1:
        sentences.insert(0, f"Mean ± standard deviation over {seeds} seeds; without ± nothing is random.")
    tables = [table for scores in results.sets for table in set_tables(results, scores, metrics)[:1]]
    tables += scope_tables(results)
    if any(entry.tone == "best" for table in tables for row in table.rows for entry in row.entries):
        sentences.append(
            f"{mark} beats every other method of its column: each paired interval of a difference excludes 0."
        )
    return " ".join(sentences)


def promise_lines(results: Results) -> list[str]:
    """What each rule reports on each set, a sentence each."""
    lines = []
    for check in results.promises:
        if not check.promised or check.risk is None or check.risk_interval is None:
            lines.append(f"{check.contender}, {check.set}: nothing is reported. {check.rule}")
            continue
        lines.append(
            f"{check.contender}, {check.set}: at most {check.target:.0%} wrong is promised, and {check.risk:.1%} "
            f"({shares(*check.risk_interval)}) of {check.reported:,} reported are; {check.coverage:.1%} "
            f"({shares(*check.coverage_interval)}) of the {check.covered} are reported, at best {check.best:.1%}."
        )
    return lines
