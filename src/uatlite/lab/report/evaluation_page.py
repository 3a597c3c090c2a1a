"""The report of an evaluation on disk: one page, with every figure as files beside it.

DIR/report.html                    one file that needs no other
    figures/NAME.svg .png .csv     each figure, and its numbers
"""

from collections.abc import Mapping
from pathlib import Path

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.report.abstention import TARGET_RISK, AbstainedRow, Abstention, RuleOutcome, abstain
from uatlite.lab.report.curves import SetFigures, menu_figure, set_figures
from uatlite.lab.report.evaluation import (
    RESULTS,
    Evaluation,
    StoredAnswers,
    as_line,
    home_of,
    name_of_row,
    open_evaluation,
    read_answers,
    read_results,
)
from uatlite.lab.report.explained_texts import FILE, ExplainedText, explain_stored, read_explanations
from uatlite.lab.report.explanation import Shading, band_of
from uatlite.lab.report.figures import RenderedFigure, strokes
from uatlite.lab.report.page import Card, Drawn, Page, Part, Plain, Section, ShadeKey, Tag, Together
from uatlite.lab.report.result_files import PROMISES, VERDICT
from uatlite.lab.report.result_tables import legend, passes, scope_tables, set_tables
from uatlite.lab.report.tables import MISSING, Column, Entry, Row, Table, shares
from uatlite.lab.report.verdict import NOUNS, findings, verdict_parts
from uatlite.trust.rule import Menu, RiskLine
from uatlite.trust.scope import Scope
from uatlite.values import Example, WordAttribution

PAGE, _FIGURES = "report.html", "figures"
FILES_ONLY = ("macro_f1", "debiased_ece")
"""Metrics that are in results.csv but not on the page, so that its tables fit a screen."""
SHOWN = 12
"""At most this many abstained texts are listed, the least confident first."""
_TITLE = "When not to trust this classifier"


def build_report(
    evaluation: str | Path,
    directory: str | Path,
    *,
    contender: str | None = None,
    target_risk: float = TARGET_RISK,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    scope: Scope | None = None,
    title: str = _TITLE,
) -> Path:
    """Write the report of an evaluation and return the path of its page.

    With `model`, the evaluated one, a few texts are explained word by word and kept in `explanations.json` beside the
    results. Where that file exists they are shown without a model. The rest of the report never needs one. `scope` is
    that of a calibrated classifier; without it the calibration rows say what is in scope.
    """
    directory, home = Path(directory), home_of(evaluation)
    if (home / RESULTS).is_file() and (several := read_results(home / RESULTS)).kind in NOUNS:
        for option, given in (("--method", contender), ("--model", model)):
            if given is not None:
                raise ConfigurationError(f"{option} {given} is for one answer a text; leave it out for {home}.")
        page = answers_page(read_answers(home, several), title)
    else:
        opened = open_evaluation(home)
        abstention = abstain(opened, contender, target=target_risk, scope=scope)
        if model is not None and abstention is not None:
            explain_stored(opened, abstention, model, home / FILE, data_dir)
        explained = read_explanations(home / FILE) if (home / FILE).is_file() else ()
        page = classes_page(opened, abstention, title, opened.examples(data_dir), explained)
    return page.write(directory / PAGE, directory / _FIGURES)


def classes_page(
    evaluation: Evaluation,
    abstention: Abstention | None,
    title: str,
    examples: Mapping[str, Example],
    explained: tuple[ExplainedText, ...],
) -> Page:
    """The page of one answer a text; `examples` are the known texts of the first set by id."""
    sections = [_abstention_section(evaluation, abstention, examples)]
    if explained:
        sections.append(_explained_section(explained))
    return _page(evaluation, title, findings(evaluation.results, abstention), sections)


def answers_page(stored: StoredAnswers, title: str) -> Page:
    """The page of several answers a text."""
    return _page(stored, title, findings(stored.results, None), [_promises_section(stored.results)])


def _page(evaluation: Evaluation | StoredAnswers, title: str, told: list[str], sections: list[Section]) -> Page:
    """What was found, the verdict, the sets, `sections`, and how it was made."""
    results = evaluation.results
    first = [Section("What was found", ("\n".join(f"{i}. {text}" for i, text in enumerate(told, 1)),))] if told else []
    if verdict := verdict_parts(results):
        first.append(Section(VERDICT, verdict))
    sets = [_set_section(results, scores, set_figures(evaluation, scores)) for scores in results.sets]
    return Page(
        title=title,
        tab=f"{title} · {results.model}",
        kicker="UAT-Lite report",
        about=(results.model, *(f"{scores.name}: {scores.rows:,} rows" for scores in results.sets)),
        sections=(*first, *sets, *sections, _how_section(results)),
    )


def _set_section(results: Results, scores: SetScores, figures: SetFigures) -> Section:
    noun, is_first = NOUNS.get(results.kind, "texts"), scores is results.sets[0]
    shown = [metric for metric in results.metrics if metric not in FILES_ONLY]
    tables = set_tables(results, scores, shown) + (scope_tables(results) if is_first else [])
    right = {
        "entities": "An entity is right if its span and type are. ",
        "labels": "Here the confidence is the probability that a label applies, and accuracy how often it does. ",
    }
    curves = (
        Drawn(
            figures.risk_coverage,
            f"Risk and coverage: how wrong the answers are when only the most confident {noun} are answered. Lower is "
            "better. Lines of one colour may coincide: a temperature changes how sure a method is, not which texts it "
            "is surest of.",
        ),
        Drawn(figures.thresholds, "What a threshold on the confidence admits, and how much of that is right."),
    )
    told = "Further left is better; calibrated forms are dashed."
    return Section(
        f"{'In domain' if is_first else 'Under shift'}: {scores.name}",
        (
            *tables,
            *([Plain(legend(results), "note")] if is_first else []),
            *([Together("panels", tuple(Drawn(figure, told) for figure in figures.scores))] if figures.scores else []),
            Together("pair", curves),
            "### Does confidence mean what it says?",
            (
                f"{right.get(results.kind, '')}Dots on the dotted line are calibrated; below it the method is too sure "
                f"of itself. Bars show {results.resampling.confidence:.0%} intervals, and the histogram how many "
                f"{noun} have that confidence."
            ),
            Together("panels named", tuple(map(Drawn, figures.reliability, results.contenders))),
        ),
    )


def _promises_section(results: Results) -> Section:
    noun, first = NOUNS[results.kind], results.sets[0].name
    if not results.promises:
        nothing = "Nothing: no calibrated method was compared. Name one, as in `--methods base,distilled+answers`."
        return Section(PROMISES, (nothing,))
    rows = tuple(
        Row(
            check.contender,
            (
                Entry(check.set, notes=(_covered(check.set == first),)),
                Entry(f"at most {check.target:.0%}" if check.promised else "nothing"),
                Entry() if check.risk_interval is None else _share(check.risk, shares(*check.risk_interval)),
                _share(
                    check.coverage,
                    f"{check.reported:,} reported; of the {check.covered}, {shares(*check.coverage_interval)}",
                ),
                _share(check.best),
            ),
        )
        for check in results.promises
    )
    columns = ("Promised", "Wrong", "Reported", "At best")
    return Section(
        PROMISES,
        (
            (
                "The rules that `uatlite calibrate` made of the calibration rows, on each set. Texts are the unit: a "
                f"promise holds whatever the {noun} of one text have to do with each other. “At best” is the coverage "
                "of the best threshold on the same score, chosen with the labels of that very set."
            ),
            Table(
                title="The rule of each calibrated method on each set",
                corner="Method",
                columns=(Column("Set", number=False), *map(Column, columns)),
                rows=rows,
                notes=tuple(f"{check.contender}: {check.rule}" for check in results.promises if check.set == first),
            ),
        ),
    )


def _share(value: float | None, *notes: str) -> Entry:
    return Entry(MISSING if value is None else f"{value:.1%}", notes=notes)


def _covered(first: bool) -> str:
    return "covered by the promise" if first else "not covered by the promise"


def _abstention_section(
    evaluation: Evaluation, abstention: Abstention | None, examples: Mapping[str, Example]
) -> Section:
    heading = "What it would not answer"
    if abstention is None:
        unknown = "Not known: a rule takes calibration rows, and none were run."
        return Section(heading, (f"{unknown} Compare a calibrated form too, as in `--methods base,base+ts`.",))
    rule, scope = abstention.rule, abstention.scope
    outside = "" if scope is None else f" A text out of scope is not answered either. {scope.describe()}"
    parts: list[Part] = [
        (
            "What a classifier does that `uatlite calibrate` made of the same calibration rows, with "
            f"{abstention.contender} and a target of {rule.target:.0%} wrong answers. {rule.describe()}{outside}"
        ),
        _rule_table(abstention),
    ]
    if abstention.menu is not None:
        stroke = strokes(evaluation.contenders)[abstention.contender]
        parts += _menu_parts(abstention.menu, menu_figure(abstention.menu, abstention.contender, stroke))
    if shown := abstention.abstained[:SHOWN]:
        first = abstention.sets[0].name
        parts += [
            "### Texts it abstained on",
            f"The {len(shown)} least sure of {len(abstention.abstained)} on {first}.",
            Together("texts", tuple(_abstained_card(row, examples.get(row.id)) for row in shown)),
        ]
    return Section(heading, tuple(parts))


def _rule_table(abstention: Abstention) -> Table:
    scoped = abstention.scope is not None
    unknown = " What is out of scope is not known here: no method with one pass ran, or the rows are too few."

    def entries(outcome: RuleOutcome) -> tuple[Entry, ...]:
        counts = [(outcome.coverage, outcome.answered, outcome.rows)]
        if scoped:
            counts.append((outcome.out_of_scope / outcome.rows, outcome.out_of_scope, outcome.rows))
        counts.append((outcome.risk, outcome.wrong, outcome.answered))
        counts.append((outcome.risk_without, outcome.wrong_without, outcome.rows))
        return tuple(_share(share, f"{count} of {total}") for share, count, total in counts)

    columns = ("Answered", *(["Out of scope"] if scoped else []), "Answers wrong", "Wrong if it answered all")
    return Table(
        title="The rule on each set",
        corner="Set",
        columns=tuple(map(Column, columns)),
        rows=tuple(
            Row(outcome.name, entries(outcome), note=_covered(i == 0)) for i, outcome in enumerate(abstention.sets)
        ),
        notes=(f"The promise holds for texts like the calibration rows.{'' if scoped else unknown}",),
    )


def _menu_parts(menu: Menu, figure: RenderedFigure) -> list[Part]:
    caption = (
        "Share of answers wrong at each coverage of the calibration rows, with its interval; a dot is a risk that can "
        "be promised."
    )
    table = Table(
        title="The menu of risks",
        corner="At most wrong",
        columns=(Column("Answered", number=False),),
        rows=tuple(Row(f"{line.target:.0%}", (_menu_entry(line),)) for line in menu.lines),
    )
    return [
        "### Which risks could be promised",
        (
            f"Each risk that the same {menu.texts:,} labelled rows can promise with a confidence of "
            f"{menu.confidence:.0%}, by the margin of the logits, and how many rows the others would take. Each line "
            "is a promise by itself: choose the risk that you need, not the line that turned out well."
        ),
        Together("pair", (Drawn(figure, caption), table)),
    ]


def _menu_entry(line: RiskLine) -> Entry:
    rule = line.rule
    if rule is not None:
        return _share(rule.coverage, *([shares(*rule.coverage_interval)] if rule.coverage < 1 else []))
    if line.texts_needed:
        return Entry("no promise", notes=(f"it would take about {line.texts_needed:,} labelled rows",))
    return Entry("no promise", notes=("more rows will hardly help",))


def _abstained_card(row: AbstainedRow, example: Example | None) -> Card:
    name = None if example is None else name_of_row(example)
    tags = [
        *([Tag(name)] if name else []),
        Tag("would have said", row.predicted),
        Tag("is", row.gold),
        Tag(f"{row.confidence:.1%} sure"),
        *([Tag("out of scope")] if row.out_of_scope else []),
        _rightness(row.right),
    ]
    return Card(f"Row {row.id}" if example is None else as_line(example), tuple(tags))


def _rightness(right: bool) -> Tag:
    return Tag("right", tone="right") if right else Tag("wrong", tone="wrong")


def _explained_section(explained: tuple[ExplainedText, ...]) -> Section:
    caption = Shading(explained[0].words, explained[0].confidence).caption("")
    margin = "The variance is that of the margin between the predicted class and the next."
    cards = Together("texts", tuple(map(_explained_card, explained)))
    return Section("Single texts, word by word", (f"{caption} {margin}", ShadeKey(), cards))


def _explained_card(text: ExplainedText) -> Card:
    tags = [Tag("says", text.predicted), Tag(f"{text.confidence:.1%} sure")]
    if text.gold:
        tags = [tags[0], Tag("is", text.gold), tags[1], _rightness(text.predicted == text.gold)]
    parts: list[Part] = [band_of(text.band, text.predicted)] if text.band is not None else []
    parts.append(Plain(_most(text), "note"))
    return Card(Shading(text.words, text.confidence).words_of(text.words), tuple(tags), tuple(parts))


def _most(text: ExplainedText) -> str:
    """The words with most of the variance, and the one without which the model is least sure."""

    def masked(word: WordAttribution) -> float:
        return 1.0 if word.masked_confidence is None else word.masked_confidence

    largest = sorted(text.words, key=lambda word: -word.share)[:3]
    sentence = f"Most of the variance: {', '.join(f'“{word.word.text}” {word.share:.0%}' for word in largest)}."
    least = min(text.words, key=masked)
    if masked(least) < text.confidence:
        sentence += f" With “{least.word.text}” masked it would be {masked(least):.0%} sure of {text.predicted}."
    return sentence


def _how_section(results: Results) -> Section:
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    facts = {"Model": (results.model, results.model_hash[:16])}
    for scores in results.sets:
        cut = f"{scores.truncated_texts:,} texts cut to fit" if scores.truncated_texts else ""
        facts[scores.name] = (scores.source, cut)
    for name, about in results.methods.items():
        facts[name] = (passes(about["cost"]), f"{1000 * about['seconds_per_text']:.0f} ms a text")
    rows = [Row(term, (Entry(text, notes=(note,) if note else ()),)) for term, (text, note) in facts.items()]
    files = (
        "Every figure lies beside this page in figures/ as SVG and PNG, with its numbers as CSV. Curves and histograms "
        "are those of the first seed; scores are means over all seeds. All metrics are in results.csv."
    )
    made = Table("", (Column("", number=False),), (*rows, Row("Versions", (Entry(versions),))))
    return Section("How it was made", (made, Plain(files, "note")))
