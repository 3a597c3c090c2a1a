"""The verdict in words."""

from dataclasses import replace

from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.verdict import listed, shown_verdict
from uatlite.metrics.intervals import Interval


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
    shown = shown_verdict(level(results))
    assert shown is not None
    assert shown.sentences == (
        "Use base: by NLL on sst2/test no method here beats it, and none that is level with it is cheaper.",
        "Under shift, on imdb/test, no method beats base.",
    )
    assert shown.rows[-1] == ("up to 10 passes", "base", "uat:gate=k+ts", "–")
    assert not any(cell.best for _, _, cells in shown.differences.rows for cell in cells)


def test_what_was_left_out_is_named(results: Results) -> None:
    shown = shown_verdict(replace(results, suggested=("base+ts",)))
    assert shown is not None
    assert shown.sentences[-1] == "Not compared: base+ts, a method with its own calibrator; add to --methods."


def test_in_brief_the_columns_are_those_to_use(results: Results) -> None:
    brief, whole = shown_verdict(level(results), brief=True), shown_verdict(level(results))
    assert brief is not None
    assert whole is not None
    assert brief.differences.headings == ("base",)
    assert whole.differences.headings == ("base", "uat:gate=k+ts")
    assert [cells[0] for _, _, cells in whole.differences.rows] == [cell for _, _, (cell,) in brief.differences.rows]
    assert brief.differences.rows[1][2][0].mean == "−0.0100 level"


def test_one_contender_has_no_verdict(results: Results) -> None:
    alone = replace(results, contenders=("base",), methods={"base": results.methods["base"]})
    assert shown_verdict(alone) is None


def test_names_in_a_sentence() -> None:
    assert [listed(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["–", "a", "a and b", "a, b and c"]
