"""The verdict in words and tables: what to use at each cost, and the difference of every two contenders."""

from collections.abc import Sequence
from dataclasses import dataclass

from uatlite.lab.evaluate.comparison import relation
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.plan import suggestion
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.verdict import Choice, Verdict
from uatlite.lab.report.tables import Cell, Table, number, passes
from uatlite.metrics.intervals import SCALES, Interval

TITLE = "Which method to use"
DECIMALS = 4
"""Of a difference: those that matter are often below a hundredth."""


@dataclass(frozen=True)
class ShownVerdict:
    """A verdict as text."""

    sentences: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """one for each cost: the cost, what to use, what is level with it, what it beats"""
    differences: Table
    note: str
    """how to read it"""


def shown_verdict(results: Results, *, brief: bool = False) -> ShownVerdict | None:
    """The verdict of an evaluation; None where it has none.

    The differences are those of every two contenders, or, if `brief`, those from the contenders to use.
    """
    verdict = results.verdict
    if verdict is None:
        return None
    return ShownVerdict(
        sentences=(headline(results, verdict), *_under_shift(verdict), *_suggested(results)),
        headings=("A text may cost", "Use", "Level with it", "It beats"),
        rows=tuple(_row(choice) for choice in verdict.choices),
        differences=_differences(results, verdict, verdict.distinct if brief else results.contenders),
        note=(
            f"Better and worse: the {results.resampling.confidence:.0%} interval of the paired difference in "
            f"{SCALES[verdict.metric].heading} excludes 0; level: it does not. Each pair is tested by itself. To use "
            "at a cost is the cheapest method that none within that cost beats; a backward pass counts as one more "
            "pass."
        ),
    )


def headline(results: Results, verdict: Verdict) -> str:
    """What to use, in a sentence."""
    by = f"by {SCALES[verdict.metric].heading} on {verdict.set}"
    if len(verdict.distinct) == 1:
        return f"Use {verdict.recommended}: {by} no method here beats it, and none that is level with it is cheaper."
    scores = results.sets[0].scores
    parts = []
    used: str | None = None
    for choice in verdict.choices:
        if used is None:
            parts.append(f"{choice.contender} for up to {cost(choice.passes)} a text")
        elif choice.contender != used:
            apart = scores[choice.contender][verdict.metric].differences[used]
            parts.append(
                f"{choice.contender} for up to {cost(choice.passes)} "
                f"({signed(apart)}, {_bounds(apart)}, against {used})"
            )
        used = choice.contender
    return f"Use, {by}, {'; '.join(parts)}."


def _under_shift(verdict: Verdict) -> list[str]:
    sentences = []
    for name, of_set in verdict.beaten_by.items():
        lost = [f"{listed(others)} beat{'s' * (len(others) == 1)} {used}" for used, others in of_set.items() if others]
        nothing = f"no method beats {listed(verdict.distinct)}"
        sentences.append(f"Under shift, on {name}, {'; '.join(lost) or nothing}.")
    return sentences


def _suggested(results: Results) -> list[str]:
    return [suggestion(results.suggested)] if results.suggested else []


def _row(choice: Choice) -> tuple[str, ...]:
    return (f"up to {cost(choice.passes)}", choice.contender, listed(choice.level), listed(choice.beaten))


def _differences(results: Results, verdict: Verdict, columns: Sequence[str]) -> Table:
    scores = results.sets[0].scores
    better = DIRECTIONS[verdict.metric]
    assert better is not None

    def shown(one: str, other: str) -> Cell:
        if one == other:
            return Cell("", "", "", False)
        apart = scores[one][verdict.metric].differences[other]
        how = relation(apart, better)
        return Cell(f"{signed(apart)} {how}", "", _bounds(apart), how == "better")

    return Table(
        title=f"{verdict.set}: {SCALES[verdict.metric].heading} of the row less that of the column",
        headings=tuple(columns),
        rows=tuple(
            (name, passes(results.methods[name]), tuple(shown(name, other) for other in columns))
            for name in results.contenders
        ),
        mark="",
    )


def cost(count: float) -> str:
    """'1 pass', '2.8 passes'."""
    return passes({"cost": count})


def signed(apart: Interval) -> str:
    """'+0.0031' or '−0.0031'."""
    return f"{'+' if apart.point > 0 else ''}{number(apart.point, DECIMALS)}"


def _bounds(apart: Interval) -> str:
    return f"{number(apart.low, DECIMALS)} to {number(apart.high, DECIMALS)}"


def listed(names: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'; a dash for none."""
    if not names:
        return "–"
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
