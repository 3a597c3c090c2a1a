"""Results for a reader: as tables, with the verdict and what was found in sentences; in a terminal, and as files.

Every number in a sentence is one of the results. Files: results.json, results.csv, results.md, texts.jsonl.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from uatlite.lab.evaluate.comparison import Score, Scores, relation
from uatlite.lab.evaluate.outcomes import OUTCOMES
from uatlite.lab.evaluate.plan import NO_CALIBRATOR, suggestion
from uatlite.lab.evaluate.results import Results, SetScores, Verdict
from uatlite.lab.report.evaluation import TEXTS, Abstention, text_line
from uatlite.lab.report.figures import filled
from uatlite.lab.report.tables import (
    Entry,
    Record,
    Row,
    Table,
    columns,
    interval,
    listing,
    number,
    records_csv,
    table_markdown,
    terminal,
)
from uatlite.metrics.intervals import SCALES, Interval
from uatlite.text.write import write_text

_VERDICT, _PROMISES = "Which method to use", "What is promised, and kept"
_DECIMALS = 4
"""Of a difference: those that matter are often below a hundredth."""

# ── tables ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    """The tables of an evaluation, set by set; those of texts out of scope at the end."""
    return [table for scores in results.sets for table in set_tables(results, scores, metrics)] + scope_tables(results)


def set_tables(results: Results, scores: SetScores, metrics: Sequence[str] | None = None) -> list[Table]:
    """The tables of one set: its scores by these metrics, its shift, its detection of out-of-scope rows."""
    name = scores.name
    notes = [f"rows: {scores.source}; {scores.alignment}"]
    if scores.left_out:
        notes.append(f"{scores.left_out:,} rows have no label that the model knows and are not scored above")
    if texts := scores.truncated_texts:
        notes.append(f"{texts:,} texts were cut to fit the model, {scores.truncated_tokens:,} tokens in all")
    first = _table(results, f"{name} · {scores.rows:,} rows", scores.scores, metrics or results.metrics)
    tables = [replace(first, notes=tuple(notes))]
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


def _table(results: Results, title: str, scores: Scores, metrics: Sequence[str] = ()) -> Table:
    """Contenders down, metrics across; the scope, read off a plain pass, comes after the contenders."""
    metrics = metrics or list(next(iter(scores.values())))
    others = [name for name in scores if name not in results.contenders]
    return Table(
        title=title,
        corner="method",
        columns=columns((), map(heading, metrics)),
        rows=tuple(
            Row(name, tuple(score_entry(scores[name][metric], metric) for metric in metrics), _cost(results, name))
            for name in (*results.contenders, *others)
        ),
        mark="*",
    )


def _cost(results: Results, contender: str) -> str:
    """What a text costs a contender, in passes."""
    return passes(results.methods[contender]["cost"] if contender in results.methods else 1)


def legend(results: Results, tables: Iterable[Table], mark: str = "*") -> str:
    """How to read the cells of these tables, where `mark` marks the best of a column."""
    how, seeds = results.resampling, max(int(about["seeds"]) for about in results.methods.values())
    drawn = "texts, with all of their answers" if results.several else "rows"
    sentences = [f"Intervals are {how.confidence:.0%}, from {how.resamples:,} resamples of the {drawn}."]
    if seeds > 1:
        sentences.insert(0, f"Mean ± standard deviation over {seeds} seeds; without ± nothing is random.")
    if any(entry.tone == "best" for table in tables for row in table.rows for entry in row.entries):
        sentences.append(
            f"{mark} beats every other method of its column: each paired interval of a difference excludes 0."
        )
    return " ".join(sentences)


# ── the verdict ────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict_tables(results: Results, *, brief: bool = False) -> list[Table]:
    """What to use at each cost, and the differences of every two contenders; if `brief`, from those to use."""
    verdict = results.verdict
    if verdict is None:
        return []
    choices = (
        (
            choice.passes,
            (Entry(choice.contender, tone="strong"), *map(Entry, map(listing, (choice.level, choice.beaten)))),
        )
        for choice in verdict.choices
    )
    costs = Table(
        title="",
        caption="What to use at each cost",
        corner="A text may cost",
        columns=columns(("Use", "Level with it", "It beats")),
        rows=tuple(Row(f"up to {passes(cost)}", entries) for cost, entries in choices),
    )
    return [costs, _differences(results, verdict, verdict.distinct if brief else results.contenders)]


def verdict_sentences(results: Results) -> Iterator[str]:
    """What to use, what beats it under shift, and which methods were not compared; nothing without a verdict."""
    if (verdict := results.verdict) is None:
        return
    yield headline(results, verdict)
    for name, of_set in verdict.beaten_by.items():
        lost = [f"{listing(others)} beat{'s' * (len(others) == 1)} {used}" for used, others in of_set.items() if others]
        nothing = f"no method beats {listing(verdict.distinct)}"
        yield f"Under shift, on {name}, {'; '.join(lost) or nothing}."
    if results.suggested:
        yield suggestion(results.suggested)


def headline(results: Results, verdict: Verdict) -> str:
    """What to use, in a sentence."""
    by = f"by {SCALES[verdict.metric].heading} on {verdict.set}"
    if len(verdict.distinct) == 1:
        return f"Use {verdict.recommended}: {by} no method here beats it, and none that is level with it is cheaper."
    scores, choices, used = results.sets[0].scores, [], ""
    for choice in verdict.choices:
        cost = f"{choice.contender} for up to {passes(choice.passes)}"
        if not used:
            choices.append(f"{cost} a text")
        elif choice.contender != used:
            apart = scores[choice.contender][verdict.metric].differences[used]
            choices.append(f"{cost} ({_signed(apart)}, {_bounds(apart)}, against {used})")
        used = choice.contender
    return f"Use, {by}, {'; '.join(choices)}."


def _differences(results: Results, verdict: Verdict, others: Sequence[str]) -> Table:
    scores, scale = results.sets[0].scores, SCALES[verdict.metric]
    better = scale.better
    assert better is not None

    def entry(row: str, column: str) -> Entry:
        if row == column:
            return Entry("")
        apart = scores[row][verdict.metric].differences[column]
        how = relation(apart, better)
        return Entry(f"{_signed(apart)} {how}", interval=_bounds(apart), tone="best" if how == "better" else "")

    return Table(
        title=f"{verdict.set}: {scale.heading} of the row less that of the column",
        corner="method",
        columns=columns((), others),
        rows=tuple(
            Row(name, tuple(entry(name, other) for other in others), _cost(results, name))
            for name in results.contenders
        ),
        notes=(
            f"Better and worse: the {results.resampling.confidence:.0%} interval of the paired difference in "
            f"{scale.heading} excludes 0; level: it does not. Each pair is tested by itself. To use at a cost is the "
            "cheapest method that none within that cost beats; a backward pass counts as one more pass.",
        ),
    )


def _signed(apart: Interval) -> str:
    return f"{'+' if apart.point > 0 else ''}{number(apart.point, _DECIMALS)}"


def _bounds(apart: Interval) -> str:
    return f"{number(apart.low, _DECIMALS)} to {number(apart.high, _DECIMALS)}"


# ── what was found ─────────────────────────────────────────────────────────────────────────────────────────────────


def promise_lines(results: Results) -> list[str]:
    """What each rule reports on each set, a sentence each."""
    return filled("promises.txt.j2", promises=results.promises).splitlines()


def findings(results: Results, abstention: Abstention | None) -> list[str]:
    """At most three sentences: the verdict, calibration under shift or by calibrating, the effect of abstention."""
    first, shifts = results.sets[0], results.sets[1:]
    ece, steady, calibrated = OUTCOMES[results.kind].ece, None, None
    if results.several:
        used = {name: results.methods[name]["calibrator"] != NO_CALIBRATOR for name in results.contenders}
        if ece in results.metrics and any(used.values()) and not used[results.contenders[0]]:
            calibrated = min(filter(used.get, used), key=lambda name: first.scores[name][ece].mean)
    elif shifts and ece in results.metrics:
        steady = min(results.contenders, key=lambda name: shifts[0].scores[name][ece].mean)
    text = filled(
        "findings.txt.j2",
        results=results,
        headline=results.verdict and headline(results, results.verdict),
        steady=steady,
        abstention=abstention,
        ece=ece,
        calibrated=calibrated,
        promise=next((check for check in results.promises if check.set == first.name), None),
    )
    return text.splitlines()


# ── in a terminal, and as files ────────────────────────────────────────────────────────────────────────────────────


def rendered_results(results: Results) -> RenderableType:
    """The tables of an evaluation for a terminal, with the metrics that fit, and how to read them."""
    narrow = [name for name, scale in SCALES.items() if scale.narrow and name in results.metrics]
    narrow = narrow or list(results.metrics)
    lines: list[RenderableType] = []
    tables = tables_of(results, narrow)
    for table in tables:
        lines += _in_terminal(table)
    lines.append(Text(legend(results, tables), style="dim"))
    if results.promises:
        lines += [Text(), Text(_PROMISES, style="bold"), *map(Text, promise_lines(results))]
    if results.verdict:
        costs, differences = verdict_tables(results, brief=True)
        first, *more = verdict_sentences(results)
        lines += [Text(), Text(_VERDICT, style="bold"), terminal(costs), Text(), *_in_terminal(differences)]
        lines += [Text(first, style="bold"), *map(Text, more)]
    return Group(*lines)


def _in_terminal(table: Table) -> list[RenderableType]:
    notes = [Text(note, style="dim") for note in table.notes]
    return [Text(table.title, style="bold"), terminal(replace(table, corner="")), *notes, Text()]


def markdown(results: Results) -> str:
    """All tables with all metrics, and the verdict, as a Markdown page."""
    texts, tables = [f"# {results.model}"], tables_of(results)
    for table in tables:
        texts += [f"## {table.title}", *table_markdown(replace(table, title=""))]
    texts.append(legend(results, tables, "**Bold**"))
    if results.promises:
        texts += [f"## {_PROMISES}", "\n".join(f"- {line}" for line in promise_lines(results))]
    if results.verdict:
        costs, differences = verdict_tables(results)
        texts += [f"## {_VERDICT}", " ".join(verdict_sentences(results)), *table_markdown(costs)]
        texts += [f"### {differences.title}", *table_markdown(differences.bare), *differences.notes]
    versions = ", ".join(map(" ".join, results.versions.items()))
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


def write_results(results: Results, directory: Path) -> list[Path]:
    """Write results.json, .csv and .md, and where they are known the texts of the first set, or the answers."""
    texts = {
        "results.json": json.dumps(results.to_dict(), indent=2, ensure_ascii=False) + "\n",
        "results.csv": records_csv(records(results)),
        "results.md": markdown(results),
    }
    if results.texts:
        texts[TEXTS] = "".join(map(text_line, results.texts))
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]
