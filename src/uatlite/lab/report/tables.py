"""Results as tables in a terminal, in Markdown and on a page; and as the files results.json, .csv and .md."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.errors import StoreError
from uatlite.lab.evaluate.compare import Score, Scores
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.report.figures import records_csv
from uatlite.text.write import write_text

# metric -> heading; other metrics have their own name as heading
HEADINGS: dict[str, str] = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "ece": "ECE",
    "debiased_ece": "ECE debiased",
    "adaptive_ece": "ECE adaptive",
    "classwise_ece": "ECE classwise",
    "smooth_ece": "ECE smooth",
    "mce": "MCE",
    "nll": "NLL",
    "brier": "Brier",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "e_aurc": "E-AURC",
    "error_auroc": "Error AUROC",
    "delta_ece": "ΔECE",
    "robustness_score": "Robustness",
    "auroc": "AUROC",
    "aupr": "AUPR",
    "fpr95": "FPR95",
    "confidence_aurc": "By confidence",
    "scope_aurc": "× in scope",
    "scope_change": "Change",
}
FINE = ("confidence_aurc", "scope_aurc", "scope_change")
"""Metrics of four decimals."""
NARROW = ("accuracy", "ece", "nll", "brier", "aurc")
"""The metrics that fit a terminal of 80 columns side by side."""
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
    parts = [f"Intervals are {how.confidence:.0%}, from {how.resamples:,} resamples of the rows."]
    if seeds > 1:
        parts.insert(0, f"Mean ± standard deviation over {seeds} seeds; without ± nothing is random.")
    if len(results.contenders) > 1:
        shown = results.metrics if metrics is None else metrics
        every = [of.get(name) for one in results.sets for of in one.scores.values() for name in shown]
        if results.out_of_scope is not None:
            mixed = results.out_of_scope
            tables = (mixed.detection, mixed.in_scope, mixed.mixture)
            every += [score for table in tables for of in table.values() for score in of.values()]
        found = any(score is not None and score.best for score in every)
        test = "each paired interval of the difference excludes 0"
        beats = f"{mark} beats every other method beyond chance: {test}."
        parts.append(beats if found else f"Nothing here beats every other method beyond chance ({mark}: {test}).")
    return " ".join(parts)


def markdown(results: Results) -> str:
    """All tables with all metrics, as a Markdown page."""
    lines = [f"# {results.model}", ""]
    for table in tables_of(results):
        lines += [f"## {table.title}", ""]
        lines += [f"| method | {' | '.join(table.headings)} |", "|---|" + "---:|" * len(table.headings)]
        lines += [f"| {name} | {' | '.join(_in_markdown(cell) for cell in cells)} |" for name, _, cells in table.rows]
        lines += ["", *(f"- {note}" for note in table.notes), *([""] if table.notes else [])]
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    return "\n".join([*lines, legend(results, "**Bold**"), "", f"{versions}. Model {results.model_hash}."]) + "\n"


def records(results: Results) -> Iterator[dict[str, object]]:
    """One flat record for each set, contender and metric."""
    for name, rows, table in _named_tables(results):
        for contender, scores in table.items():
            for metric, score in scores.items():
                yield {
                    "set": name,
                    "rows": rows,
                    "method": contender,
                    "passes": results.methods[contender]["passes"] if contender in results.methods else 1,
                    "seeds": len(score.values),
                    "metric": metric,
                    "mean": score.mean,
                    "deviation": score.deviation,
                    "low": score.low,
                    "high": score.high,
                    "difference": score.difference and score.difference.point,
                    "difference_low": score.difference and score.difference.low,
                    "difference_high": score.difference and score.difference.high,
                    "best": score.best,
                }


def _named_tables(results: Results) -> Iterator[tuple[str, int, Scores]]:
    """The name of the rows, their number, and the scores, of every table."""
    for one in results.sets:
        yield from ((one.name, one.rows, table) for table in (one.scores, one.shift, one.detection))
    if (mixed := results.out_of_scope) is not None:
        first, rows = results.sets[0].name, mixed.in_scope_rows
        yield f"{first}, in scope", rows, mixed.in_scope
        yield from ((f"{first} + {mixed.name}", rows + mixed.rows, table) for table in (mixed.detection, mixed.mixture))


def as_csv(results: Results) -> str:
    """The records as CSV."""
    return records_csv(records(results))


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
            passes(results.methods.get(name, {"passes": 1})),
            tuple(cell(scores[name][metric], metric) for metric in metrics),
        )
        for name in (*results.contenders, *others)
    )
    return Table(title, tuple(heading(metric) for metric in metrics), rows, notes)


def passes(method: Mapping[str, Any]) -> str:
    """'1 pass', '10 passes': of a method of the results."""
    return f"{method['passes']} pass{'es' if method['passes'] > 1 else ''}"


def heading(metric: str) -> str:
    """A metric's name with an arrow towards better."""
    name, at, threshold = metric.partition("@")
    names = {"coverage": "Cov", "accuracy": "Acc", "count": "N", "risk": "Risk"}
    text = f"{names[name]}@{threshold}" if at else HEADINGS.get(metric, metric)
    arrow = {"higher": " ↑", "lower": " ↓", None: ""}[DIRECTIONS[metric]]
    return text + arrow


def cell(score: Score, metric: str) -> Cell:
    """A score as text; a count has no decimals, an AURC beside another four, everything else three."""
    decimals = 0 if metric.startswith("count@") else 4 if metric in FINE else 3
    deviation = "" if score.deviation is None or math.isnan(score.deviation) else number(score.deviation, decimals)
    return Cell(number(score.mean, decimals), deviation, interval(score.low, score.high, decimals), score.best)


def _in_markdown(one: Cell) -> str:
    mean = f"**{one.mean}**" if one.best else one.mean
    return f"{mean}{f' ± {one.deviation}' if one.deviation else ''} ({one.interval})"


def _notes(one: SetScores) -> tuple[str, ...]:
    notes = [f"rows: {one.source}; {one.alignment}"]
    if one.left_out:
        notes.append(f"{one.left_out:,} rows have no label that the model knows and are not scored above")
    if one.truncated_texts:
        notes.append(f"{one.truncated_texts:,} texts were cut to fit the model, {one.truncated_tokens:,} tokens in all")
    return tuple(notes)


def render(results: Results) -> RenderableType:
    """The tables of an evaluation for a terminal, with the metrics that fit, and how to read them."""
    parts: list[RenderableType] = []
    for table in tables_of(results, NARROW):
        parts += [Text(table.title, style="bold"), render_table(table)]
        parts += [*(Text(note, style="dim") for note in table.notes), Text()]
    parts.append(Text(legend(results, metrics=NARROW), style="dim"))
    return Group(*parts)


def render_table(table: Table) -> RichTable:
    """Two lines for each contender: means, and intervals below."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    drawn.add_column("", min_width=12, overflow="fold")
    for heading in table.headings:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for name, note, cells in table.rows:
        label = Text(name).append(f"\n{note}", style="dim")
        drawn.add_row(label, *(_two_lines(cell) for cell in cells))
    return drawn


def _two_lines(cell: Cell) -> Text:
    spread = f" ±{cell.deviation.removeprefix('0')}" if cell.deviation else ""
    text = Text(cell.mean + spread + ("*" if cell.best else " "), style="bold green" if cell.best else "")
    return text.append(f"\n{cell.interval} ", style="not bold default dim")


def write_results(results: Results, directory: Path) -> list[Path]:
    """Write results.json, results.csv and results.md; returns their paths."""
    texts = {
        "results.json": json.dumps(results.to_dict(), indent=2, ensure_ascii=False) + "\n",
        "results.csv": as_csv(results),
        "results.md": markdown(results),
    }
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]


def read_results(path: str | Path) -> Results:
    """The results of a `results.json`."""
    path = Path(path)
    try:
        return Results.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); `uatlite evaluate … -o DIR` writes it.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a results file ({error!r}); run `uatlite evaluate` again.") from error
