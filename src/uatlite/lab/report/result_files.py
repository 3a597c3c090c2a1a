"""Results in a terminal, and as the files results.json, results.csv and results.md; they end in the verdict."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from uatlite.lab.evaluate.comparison import Scores
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.evaluation import TEXTS, text_line
from uatlite.lab.report.page import Section
from uatlite.lab.report.result_tables import legend, promise_lines, tables_of
from uatlite.lab.report.tables import Record, Table, records_csv, terminal
from uatlite.lab.report.verdict import verdict_parts, verdict_sentences
from uatlite.metrics.intervals import SCALES
from uatlite.text.write import write_text

VERDICT, PROMISES = "Which method to use", "What is promised, and kept"


def rendered_results(results: Results) -> RenderableType:
    """The tables of an evaluation for a terminal, with the metrics that fit, and how to read them."""
    lines: list[RenderableType] = []
    narrow = [name for name, scale in SCALES.items() if scale.narrow and name in results.metrics]
    narrow = narrow or list(results.metrics)
    for table in tables_of(results, narrow):
        lines += [Text(table.title, style="bold"), terminal(replace(table, corner=""))]
        lines += [*(Text(note, style="dim") for note in table.notes), Text()]
    lines.append(Text(legend(results, metrics=narrow), style="dim"))
    lines += [Text(), Text(PROMISES, style="bold"), *map(Text, promise_lines(results))] if results.promises else []
    verdict = results.verdict
    if verdict is None:
        return Group(*lines)
    _, costs, title, differences, note = verdict_parts(results, brief=True)
    assert isinstance(costs, Table)
    assert isinstance(differences, Table)
    lines += [Text(), Text(VERDICT, style="bold"), terminal(costs), Text()]
    lines += [Text(str(title).removeprefix("### "), style="bold"), terminal(replace(differences, corner=""))]
    first, *more = verdict_sentences(results, verdict)
    return Group(*lines, Text(str(note), style="dim"), Text(), Text(first, style="bold"), *map(Text, more))


def markdown(results: Results) -> str:
    """All tables with all metrics, and the verdict, as a Markdown page."""
    texts = [f"# {results.model}"]
    texts += [Section(table.title, (replace(table, title=""),)).markdown() for table in tables_of(results)]
    texts.append(legend(results, "**Bold**"))
    if results.promises:
        texts.append(Section(PROMISES, ("\n".join(f"- {line}" for line in promise_lines(results)),)).markdown())
    if verdict := verdict_parts(results):
        texts.append(Section(VERDICT, verdict).markdown())
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    return "\n\n".join([*texts, f"{versions}. Model {results.model_hash}."]) + "\n"


def records(results: Results) -> Iterator[Record]:
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
    for scores in results.sets:
        yield from ((scores.name, scores.rows, table) for table in (scores.scores, scores.shift, scores.detection))
    if (mixed := results.out_of_scope) is not None:
        first, rows = results.sets[0].name, mixed.in_scope_rows
        yield f"{first}, in scope", rows, mixed.in_scope
        yield from ((f"{first} + {mixed.name}", rows + mixed.rows, table) for table in (mixed.detection, mixed.mixture))


def as_csv(results: Results) -> str:
    """The records as CSV."""
    return records_csv(records(results))


def write_results(results: Results, directory: Path) -> list[Path]:
    """Write results.json, .csv and .md, and where they are known the texts of the first set; returns their paths."""
    texts = {
        "results.json": json.dumps(results.to_dict(), indent=2, ensure_ascii=False) + "\n",
        "results.csv": as_csv(results),
        "results.md": markdown(results),
    }
    if results.texts:
        texts[TEXTS] = "".join(map(text_line, results.texts))
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]
