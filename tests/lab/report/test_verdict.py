"""The verdict in words."""

from dataclasses import replace

from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.page import Part
from uatlite.lab.report.tables import Entry, Table, listed
from uatlite.lab.report.verdict import verdict_parts, verdict_sentences
from uatlite.metrics.intervals import Interval


def entries(table: Part) -> list[tuple[Entry, ...]]:
    assert isinstance(table, Table)
    return [row.entries for row in table.rows]


def texts(table: Part) -> list[list[str]]:
    assert isinstance(table, Table)
    return list(table.lines())


def level(results: Results) -> Results:
    """The same results where no difference is beyond chance."""
    apart = Interval(-0.01, -0.02, 0.01)
    sets = []
    for one in results.sets:
        scores = {
            name: {
                metric: replace(score, differences=dict.fromkeys(score.differences, apart))
                for metric, score in of.items()
            }
            for name, of in one.scores.items()
        }
        sets.append(replace(one, scores=scores))
    return replace(results, sets=tuple(sets))


def test_where_all_are_level_the_cheap_one_is_used(results: Results) -> None:
    sentences, costs, _, differences, _ = verdict_parts(level(results))
    assert sentences == (
        "Use base: by NLL on sst2/test no method here beats it, and none that is level with it is cheaper. "
        "Under shift, on imdb/test, no method beats base."
    )
    assert texts(costs)[-1] == ["up to 10 passes", "base", "uat:gate=k+ts", "–"]
    assert not any(entry.tone for row in entries(differences) for entry in row)


def test_what_was_left_out_is_named(results: Results) -> None:
    assert results.verdict is not None
    last = verdict_sentences(replace(results, suggested=("base+ts",)), results.verdict)[-1]
    assert last == "Not compared: base+ts, a method with its own calibrator; add to --methods."


def test_in_brief_the_columns_are_those_to_use(results: Results) -> None:
    brief, every = (verdict_parts(level(results), brief=brief)[3] for brief in (True, False))
    assert isinstance(brief, Table)
    assert isinstance(every, Table)
    assert [column.heading for column in brief.columns] == ["base"]
    assert [column.heading for column in every.columns] == ["base", "uat:gate=k+ts"]
    assert [first for first, _ in entries(every)] == [first for (first,) in entries(brief)]
    assert entries(brief)[1][0].text == "−0.0100 level"


def test_one_contender_has_no_verdict(results: Results) -> None:
    alone = replace(results, contenders=("base",), methods={"base": results.methods["base"]})
    assert verdict_parts(alone) == ()


def test_names_in_a_sentence() -> None:
    assert [listed(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["–", "a", "a and b", "a, b and c"]
