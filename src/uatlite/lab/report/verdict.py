"""The verdict as sentences and tables, and what else was found, in sentences whose numbers are those of the results."""

from collections.abc import Sequence

from uatlite.lab.evaluate.comparison import relation
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.plan import suggestion
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.verdict import Choice, Verdict
from uatlite.lab.report.abstention import Abstention
from uatlite.lab.report.page import Part
from uatlite.lab.report.result_tables import cost_of, passes
from uatlite.lab.report.tables import Column, Entry, Row, Table, listing, number
from uatlite.metrics.intervals import SCALES, Interval

NOUNS = {"entities": "entities", "labels": "labels"}
"""What a model answers -> what its answers are called."""
DECIMALS = 4
"""Of a difference: those that matter are often below a hundredth."""


def headline(results: Results, verdict: Verdict) -> str:
    """What to use, in a sentence."""
    by = f"by {SCALES[verdict.metric].heading} on {verdict.set}"
    if len(verdict.distinct) == 1:
        return f"Use {verdict.recommended}: {by} no method here beats it, and none that is level with it is cheaper."
    scores = results.sets[0].scores
    choices = []
    used: str | None = None
    for choice in verdict.choices:
        if used is None:
            choices.append(f"{choice.contender} for up to {passes(choice.passes)} a text")
        elif choice.contender != used:
            apart = scores[choice.contender][verdict.metric].differences[used]
            against = f"({_signed(apart)}, {_bounds(apart)}, against {used})"
            choices.append(f"{choice.contender} for up to {passes(choice.passes)} {against}")
        used = choice.contender
    return f"Use, {by}, {'; '.join(choices)}."


def verdict_parts(results: Results, *, brief: bool = False) -> tuple[Part, ...]:
    """The verdict: sentences, what to use at each cost, and the difference of every two contenders.

    Empty without a verdict. If `brief`, the differences are those from the contenders to use.
    """
    verdict = results.verdict
    if verdict is None:
        return ()
    name, confidence = SCALES[verdict.metric].heading, results.resampling.confidence
    return (
        " ".join(verdict_sentences(results, verdict)),
        Table(
            title="",
            caption="What to use at each cost",
            corner="A text may cost",
            columns=tuple(Column(text, number=False) for text in ("Use", "Level with it", "It beats")),
            rows=tuple(map(_choice, verdict.choices)),
        ),
        f"### {verdict.set}: {name} of the row less that of the column",
        _differences(results, verdict, verdict.distinct if brief else results.contenders),
        f"Better and worse: the {confidence:.0%} interval of the paired difference in {name} excludes 0; level: it "
        "does not. Each pair is tested by itself. To use at a cost is the cheapest method that none within that cost "
        "beats; a backward pass counts as one more pass.",
    )


def verdict_sentences(results: Results, verdict: Verdict) -> list[str]:
    """What to use, what beats it under shift, and which methods were not compared."""
    sentences = [headline(results, verdict)]
    for name, of_set in verdict.beaten_by.items():
        lost = [f"{listing(others)} beat{'s' * (len(others) == 1)} {used}" for used, others in of_set.items() if others]
        nothing = f"no method beats {listing(verdict.distinct)}"
        sentences.append(f"Under shift, on {name}, {'; '.join(lost) or nothing}.")
    return sentences + ([suggestion(results.suggested)] if results.suggested else [])


def _choice(choice: Choice) -> Row:
    others = (Entry(listing(choice.level)), Entry(listing(choice.beaten)))
    return Row(f"up to {passes(choice.passes)}", (Entry(choice.contender, tone="strong"), *others))


def _differences(results: Results, verdict: Verdict, columns: Sequence[str]) -> Table:
    scores, better = results.sets[0].scores, DIRECTIONS[verdict.metric]
    assert better is not None

    def entry(row: str, column: str) -> Entry:
        if row == column:
            return Entry("")
        apart = scores[row][verdict.metric].differences[column]
        how = relation(apart, better)
        return Entry(f"{_signed(apart)} {how}", interval=_bounds(apart), tone="best" if how == "better" else "")

    return Table(
        title="",
        corner="method",
        columns=tuple(map(Column, columns)),
        rows=tuple(
            Row(name, tuple(entry(name, other) for other in columns), cost_of(results, name))
            for name in results.contenders
        ),
    )


def _signed(apart: Interval) -> str:
    return f"{'+' if apart.point > 0 else ''}{number(apart.point, DECIMALS)}"


def _bounds(apart: Interval) -> str:
    return f"{number(apart.low, DECIMALS)} to {number(apart.high, DECIMALS)}"


def findings(results: Results, abstention: Abstention | None) -> list[str]:
    """At most three sentences: the verdict, calibration under shift or by calibrating, the effect of abstention."""
    verdict = "" if results.verdict is None else headline(results, results.verdict)
    if results.kind in NOUNS:
        return list(filter(None, [verdict, _calibrating(results), _promise(results)]))
    return list(filter(None, [verdict, _under_shift(results), _abstaining(abstention)]))


def _under_shift(results: Results) -> str:
    if len(results.sets) < 2 or "ece" not in results.metrics:
        return ""
    first, shifted = results.sets[0], results.sets[1]
    steady = min(results.contenders, key=lambda name: shifted.scores[name]["ece"].mean)
    before, after = first.scores[steady]["ece"].mean, shifted.scores[steady]["ece"]
    sentence = (
        f"Under shift, on {shifted.name}, {steady} has the lowest ECE, {after.mean:.3f} ({after.low:.3f} to "
        f"{after.high:.3f}), after {before:.3f} in domain"
    )
    if "accuracy" in results.metrics:
        old, new = (scored.scores[steady]["accuracy"].mean for scored in (first, shifted))
        sentence += f"; its accuracy went from {old:.1%} to {new:.1%}"
    return sentence + "."


def _abstaining(abstention: Abstention | None) -> str:
    if abstention is None:
        return ""
    rule, first = abstention.rule, abstention.sets[0]
    if not rule.promised:
        return f"With {abstention.contender} no threshold can promise an error of {rule.target:.0%}: {rule.reason}"
    sentence = (
        f"Told to keep errors at {rule.target:.0%} or less, {abstention.contender} answers {first.coverage:.0%} of "
        f"{first.name} and errs on {first.risk:.1%} of its answers (answering all it would err on "
        f"{first.risk_without:.1%})"
    )
    for shifted in abstention.sets[1:2]:
        sentence += f"; on {shifted.name}, which the promise does not cover, on {shifted.risk:.1%}"
    return sentence + "."


def _calibrating(results: Results) -> str:
    first, metric = results.sets[0], "answer_ece" if results.kind == "entities" else "label_ece"
    usual, *others = results.contenders
    calibrated = [name for name in others if results.methods[name]["calibrator"] != "none"]
    if not calibrated or results.methods[usual]["calibrator"] != "none":
        return ""
    best = min(calibrated, key=lambda name: first.scores[name][metric].mean)
    before, after = first.scores[usual][metric], first.scores[best][metric]
    apart = after.differences[usual]
    return (
        f"On {first.name} the calibration error (ECE) of {NOUNS[results.kind]} is {before.mean:.3f} with {usual} and "
        f"{after.mean:.3f} with {best} (difference {apart.low:+.3f} to {apart.high:+.3f})."
    )


def _promise(results: Results) -> str:
    first = next((check for check in results.promises if check.set == results.sets[0].name), None)
    if first is None:
        return ""
    if not first.promised or first.risk is None:
        return f"{first.contender} promises nothing at {first.target:.0%} wrong: {first.rule}"
    return (
        f"Told to keep wrong {NOUNS[results.kind]} at {first.target:.0%} or less of those reported, {first.contender} "
        f"reports {first.reported:,} on {first.set}, {first.wrong:,} of them wrong ({first.risk:.1%}); that is "
        f"{first.coverage:.0%} of the {first.covered}, where the best threshold in hindsight has {first.best:.0%}."
    )
