"""Tables of results as text: cells, headings, and how to read them."""

from dataclasses import replace

from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.result_tables import heading, legend, score_entry, tables_of


def test_the_legend_says_what_the_mark_means_and_only_where_there_is_one(results: Results) -> None:
    assert "± standard deviation over 3 seeds" in legend(results)
    assert "* beats every other method of its column" in legend(results)
    unmarked = {name: {"nll": replace(of["nll"], best=False)} for name, of in results.sets[0].scores.items()}
    dull = replace(results, sets=(replace(results.sets[0], scores=unmarked),))
    assert legend(dull, metrics=["nll"]).endswith("from 1,000 resamples of the rows.")


def test_headings_point_towards_better() -> None:
    found = {name: heading(name) for name in ("nll", "accuracy", "risk@0.8", "count@0.9", "fpr95", "auroc", "mce")}
    assert found == {
        "nll": "NLL ↓",
        "accuracy": "Accuracy ↑",
        "risk@0.8": "Risk@0.8 ↓",
        "count@0.9": "N@0.9",
        "fpr95": "FPR95 ↓",
        "auroc": "AUROC ↑",
        "mce": "MCE ↓",
    }


def test_numbers_near_zero_have_no_sign() -> None:
    assert score_entry(Score((-0.0001,), -0.0002, 0.0001), "delta_ece").text == "0.000"
    assert score_entry(Score((-0.5,), -0.6, -0.4), "delta_ece").text == "−0.500"
    assert score_entry(Score((17.0,), 10.0, 20.0), "count@0.9").interval == "10–20"


def test_tables_can_be_narrowed(results: Results) -> None:
    assert [len(table.columns) for table in tables_of(results, ("nll", "never scored"))] == [1, 1, 2]
