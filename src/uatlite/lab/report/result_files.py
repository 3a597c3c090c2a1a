"""Results in a terminal, and as the files results.json, results.csv and results.md; they end in the verdict."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.errors import StoreError
from uatlite.lab.evaluate.comparison import Scores
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.figures import records_csv
from uatlite.lab.report.tables import Cell, Table, legend, tables_of
from uatlite.lab.report.verdict import TITLE, ShownVerdict, shown_verdict
from uatlite.metrics.intervals import SCALES
from uatlite.text.write import write_text


def render(results: Results) -> RenderableType:
    """The tables of an evaluation for a terminal, with the metrics that fit, and how to read them."""
    parts: list[RenderableType] = []
    narrow = [name for name, scale in SCALES.items() if scale.narrow and name in results.metrics]
    narrow = narrow or list(results.metrics)
    for table in tables_of(results, narrow):
        parts += [Text(table.title, style="bold"), render_table(table)]
        parts += [*(Text(note, style="dim") for note in table.notes), Text()]
    parts.append(Text(legend(results, metrics=narrow), style="dim"))
    parts += [Text(), Text(PROMISES, style="bold"), *map(Text, promise_lines(results))] if results.promises else []
    verdict = shown_verdict(results, brief=True)
    return Group(*parts, *(_render_verdict(verdict) if verdict is not None else ()))


PROMISES = "What is promised, and kept"


def promise_lines(results: Results) -> list[str]:
    """What each rule reports on each set, a sentence each."""
    lines = []
    for one in results.promises:
        if not one.promised or one.risk is None or one.risk_interval is None:
            lines.append(f"{one.contender}, {one.set}: nothing is reported. {one.rule}")
            continue
        covered = " to ".join(f"{end:.1%}" for end in one.coverage_interval)
        wrong = " to ".join(f"{end:.1%}" for end in one.risk_interval)
        lines.append(
            f"{one.contender}, {one.set}: at most {one.target:.0%} wrong is promised, and {one.risk:.1%} ({wrong}) of "
            f"{one.reported:,} reported are; {one.coverage:.1%} ({covered}) of the {one.covered} are reported, at best "
            f"{one.best:.1%}."
        )
    return lines


def _render_verdict(verdict: ShownVerdict) -> list[RenderableType]:
    costs = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    for heading in verdict.headings:
        costs.add_column(heading, overflow="fold")
    for passes, used, *others in verdict.rows:
        costs.add_row(passes, Text(used, style="bold"), *map(Text, others))
    found, *more = verdict.sentences
    return [
        Text(),
        Text(TITLE, style="bold"),
        costs,
        Text(),
        Text(verdict.differences.title, style="bold"),
        render_table(verdict.differences),
        Text(verdict.note, style="dim"),
        Text(),
        Text(found, style="bold"),
        *map(Text, more),
    ]


def render_table(table: Table) -> RichTable:
    """Two lines for each contender: means, and intervals below."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    drawn.add_column("", min_width=12, overflow="fold")
    for heading in table.headings:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for name, note, cells in table.rows:
        label = Text(name).append(f"\n{note}", style="dim")
        drawn.add_row(label, *(_two_lines(cell, table.mark) for cell in cells))
    return drawn


def _two_lines(cell: Cell, mark: str) -> Text:
    spread = f" ±{cell.deviation.removeprefix('0')}" if cell.deviation else ""
    text = Text(cell.mean + spread + (mark if cell.best else " " * len(mark)), style="bold green" if cell.best else "")
    return text.append(f"\n{cell.interval} ", style="not bold default dim")


def markdown(results: Results) -> str:
    """All tables with all metrics, and the verdict, as a Markdown page."""
    lines = [f"# {results.model}", ""]
    for table in tables_of(results):
        lines += [f"## {table.title}", "", *_table_lines(table)]
        lines += ["", *(f"- {note}" for note in table.notes), *([""] if table.notes else [])]
    lines += [legend(results, "**Bold**"), ""]
    if results.promises:
        lines += [f"## {PROMISES}", "", *(f"- {line}" for line in promise_lines(results)), ""]
    if (verdict := shown_verdict(results)) is not None:
        lines += [f"## {TITLE}", "", " ".join(verdict.sentences), ""]
        lines += [f"| {' | '.join(verdict.headings)} |", "|---" * len(verdict.headings) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in verdict.rows]
        lines += ["", f"### {verdict.differences.title}", "", *_table_lines(verdict.differences), "", verdict.note, ""]
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    return "\n".join([*lines, f"{versions}. Model {results.model_hash}."]) + "\n"


def _table_lines(table: Table) -> list[str]:
    return [
        f"| method | {' | '.join(table.headings)} |",
        "|---|" + "---:|" * len(table.headings),
        *(f"| {name} | {' | '.join(_in_markdown(cell) for cell in cells)} |" for name, _, cells in table.rows),
    ]


def _in_markdown(one: Cell) -> str:
    mean = f"**{one.mean}**" if one.best else one.mean
    return f"{mean}{f' ± {one.deviation}' if one.deviation else ''} ({one.interval})" if one.interval else one.mean


def records(results: Results) -> Iterator[dict[str, object]]:
    """One flat record for each set, contender and metric."""
    for name, rows, table in _named_tables(results):
        first = next(iter(table), "")
        for contender, scores in table.items():
            for metric, score in scores.items():
                apart = score.differences.get(first)
                yield {
                    "set": name,
                    "rows": rows,
                    "method": contender,
                    "passes": results.methods[contender]["cost"] if contender in results.methods else 1,
                    "seeds": len(score.values),
                    "metric": metric,
                    "mean": score.mean,
                    "deviation": score.deviation,
                    "low": score.low,
                    "high": score.high,
                    "difference": apart and apart.point,
                    "difference_low": apart and apart.low,
                    "difference_high": apart and apart.high,
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
