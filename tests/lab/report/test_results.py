"""Results as tables, in a terminal, as files, and the verdict in words."""

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from reference import made_score
from uatlite.errors import StoreError
from uatlite.lab.report.evaluation import read_results
from uatlite.lab.report.results import (
    heading,
    legend,
    markdown,
    records,
    rendered_results,
    score_entry,
    tables_of,
    verdict_sentences,
    verdict_tables,
    write_results,
)
from uatlite.lab.report.tables import records_csv
from uatlite.metrics.intervals import Interval


def test_a_terminal_of_eighty_columns_shows_the_scores_and_ends_in_the_verdict(results):
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(rendered_results(results))
    rows = captured.get().splitlines()
    text = " ".join(captured.get().split())
    assert max(len(row.rstrip()) for row in rows) <= 80
    place = next(number for number, row in enumerate(rows) if row.startswith("uat:gate=k+"))
    assert "0.250 ±.010*" in rows[place]  # NLL is the one that is marked
    assert rows[place].count("*") == 1
    assert "0.200–0.300" in rows[place + 1]
    assert "sst2/test · 436 rows" in text
    assert "12 texts were cut to fit the model, 3,400 tokens in all" in text
    assert "3 rows have no label that the model knows" in text
    assert "columns reordered" in text
    assert "−0.030 to 0.070" in text  # an interval below 0 keeps apart from its dash
    costs = [row.split()[2:] for row in rows if row.startswith("up to")]
    assert costs[0] == ["1", "pass", "base", "–", "–"]
    assert costs[1:3] == [["2", "passes", "base", "–", "–"], ["5", "passes", "base", "–", "–"]]
    assert costs[3:] == [["10", "passes", "uat:gate=k+ts", "–", "base"]]
    assert text.endswith(
        "Use, by NLL on sst2/test, base for up to 1 pass a text; uat:gate=k+ts for up to 10 passes (−0.2500, −0.3000 "
        "to −0.2000, against base). Under shift, on imdb/test, uat:gate=k+ts beats base."
    )


def test_markdown_has_every_metric_and_marks_the_best(results):
    page = markdown(results)
    assert "| method | Accuracy ↑ | ECE ↓ | NLL ↓ | Brier ↓ | AURC ↓ | Cov@0.9 | Acc@0.9 |" in page
    assert "| **0.250** ± 0.010 (0.200–0.300) |" in page
    assert "| – (–) |" in page  # an undefined score
    assert "sst2/test → imdb/test: calibration under shift" in page
    assert "| up to 10 passes | uat:gate=k+ts | – | base |" in page
    assert "| uat:gate=k+ts | **−0.2500 better** (−0.3000 to −0.2000) |  |" in page
    assert "| base |  | +0.2500 worse (0.2000 to 0.3000) |" in page


def test_csv_has_a_line_for_each_score(results):
    lines = list(csv.DictReader(io.StringIO(records_csv(records(results)))))
    assert len(lines) == 2 * 2 * 7 + 2 * 2
    nll = next(line for line in lines if line["method"] != "base" and line["metric"] == "nll")
    assert (nll["mean"], nll["best"], nll["seeds"], nll["difference_low"]) == ("0.25", "True", "3", "-0.3")
    undefined = next(line for line in lines if line["metric"] == "accuracy@0.9")
    assert undefined["mean"] == undefined["deviation"] == ""


def test_files_are_written_and_read_back(results, tmp_path):
    written = write_results(results, tmp_path)
    assert [path.name for path in written] == ["results.json", "results.csv", "results.md"]
    assert json.loads(written[0].read_text())["verdict"]["recommended"] == "uat:gate=k+ts"
    assert json.loads(written[0].read_text())["sets"][0]["scores"]["base"]["accuracy@0.9"]["mean"] is None
    again = read_results(written[0])
    assert json.dumps(again.to_dict()) == json.dumps(results.to_dict())
    written[0].write_text("{}")
    with pytest.raises(StoreError, match="is not a results file"):
        read_results(written[0])


def test_the_legend_says_what_the_mark_means_and_only_where_there_is_one(results):
    assert [len(table.columns) for table in tables_of(results, ["nll"])] == [1, 1, 2]
    text = legend(results, tables_of(results))
    assert "± standard deviation over 3 seeds" in text
    assert "* beats every other method of its column" in text
    assert legend(results, tables_of(results, ["ece"])).endswith("from 1,000 resamples of the rows.")
    shifted = results.sets[1].shift | {"base": {"delta_ece": made_score((0.0,), 0.0, 0.0, best=True)}}
    marked = replace(results, sets=(results.sets[0], replace(results.sets[1], shift=shifted)))
    assert "* beats" in legend(marked, tables_of(marked, ["ece"]))  # also where it stands under shift alone


def test_headings_point_towards_better_and_a_score_has_the_decimals_of_its_metric():
    names = ("nll", "accuracy", "risk@0.8", "count@0.9", "fpr95", "auroc", "mce")
    headings = ["NLL ↓", "Accuracy ↑", "Risk@0.8 ↓", "N@0.9", "FPR95 ↓", "AUROC ↑", "MCE ↓"]
    assert list(map(heading, names)) == headings
    assert score_entry(made_score((-0.0001,), -0.0002, 0.0001), "delta_ece").text == "0.000"
    assert score_entry(made_score((-0.5,), -0.6, -0.4), "delta_ece").text == "−0.500"
    assert score_entry(made_score((17.0,), 10.0, 20.0), "count@0.9").interval == "10–20"


def test_where_all_are_level_the_cheap_one_is_used(results):
    apart = Interval(-0.01, -0.02, 0.01)
    scores = {
        name: {
            metric: replace(score, differences=dict.fromkeys(score.differences, apart)) for metric, score in of.items()
        }
        for name, of in results.sets[0].scores.items()
    }
    level = replace(results, sets=tuple(replace(scored, scores=scores) for scored in results.sets))
    costs, every = verdict_tables(level)
    assert " ".join(verdict_sentences(level)) == (
        "Use base: by NLL on sst2/test no method here beats it, and none that is level with it is cheaper. "
        "Under shift, on imdb/test, no method beats base."
    )
    assert list(costs.lines())[-1] == ["up to 10 passes", "base", "uat:gate=k+ts", "–"]
    assert not any(entry.tone for row in every.rows for entry in row.entries)
    # in brief the columns are those to use
    brief = verdict_tables(level, brief=True)[1]
    assert [column.heading for column in brief.columns] == ["base"]
    assert [column.heading for column in every.columns] == ["base", "uat:gate=k+ts"]
    assert [row.entries[:1] for row in every.rows] == [row.entries for row in brief.rows]
    assert brief.rows[1].entries[0].text == "−0.0100 level"


def test_what_was_left_out_is_named_and_one_contender_has_no_verdict(results):
    *_, last = verdict_sentences(replace(results, suggested=("base+ts",)))
    assert last == "Not compared: base+ts, a method with its own calibrator; add to --methods."
    alone = replace(results, contenders=("base",), methods={"base": results.methods["base"]})
    assert [*verdict_sentences(alone), *verdict_tables(alone)] == []
