"""The same results for a terminal, Markdown, CSV and JSON."""

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from uatlite.errors import StoreError
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.evaluation import read_results
from uatlite.lab.report.result_files import as_csv, markdown, render, write_results


def printed(results: Results, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render(results))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_of_eighty_columns_shows_names_means_spreads_and_intervals(results: Results) -> None:
    text = printed(results, 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "sst2/test · 436 rows" in text
    rows = text.splitlines()
    place = next(number for number, line in enumerate(rows) if line.startswith("uat:gate=k+"))
    assert rows[place].split()[1:] != []
    assert "0.250 ±.010*" in rows[place]  # NLL is the one that is marked
    assert rows[place].count("*") == 1
    assert "0.200–0.300" in rows[place + 1]
    assert "12 texts were cut to fit the model, 3,400 tokens in all" in text
    assert "3 rows have no label that the model knows" in text
    assert "columns reordered" in text
    assert "−0.030 to 0.070" in text  # an interval below 0 keeps apart from its dash


def test_a_terminal_ends_in_the_verdict(results: Results) -> None:
    text = printed(results, 80)
    costs = [line.split() for line in text.splitlines() if line.startswith("up to")]
    assert costs == [
        ["up", "to", "1", "pass", "base", "–", "–"],
        ["up", "to", "2", "passes", "base", "–", "–"],
        ["up", "to", "5", "passes", "base", "–", "–"],
        ["up", "to", "10", "passes", "uat:gate=k+ts", "–", "base"],
    ]
    last = " ".join(text.split())
    assert last.endswith(
        "Use, by NLL on sst2/test, base for up to 1 pass a text; uat:gate=k+ts for up to 10 passes (−0.2500, −0.3000 "
        "to −0.2000, against base). Under shift, on imdb/test, uat:gate=k+ts beats base."
    )


def test_markdown_has_every_metric_and_marks_the_best(results: Results) -> None:
    page = markdown(results)
    assert "| method | Accuracy ↑ | ECE ↓ | NLL ↓ | Brier ↓ | AURC ↓ | Cov@0.9 | Acc@0.9 |" in page
    assert "| **0.250** ± 0.010 (0.200–0.300) |" in page
    assert "| – (–) |" in page
    assert "sst2/test → imdb/test: calibration under shift" in page
    assert "| up to 10 passes | uat:gate=k+ts | – | base |" in page
    assert "| uat:gate=k+ts | **−0.2500 better** (−0.3000 to −0.2000) |  |" in page
    assert "| base |  | +0.2500 worse (0.2000 to 0.3000) |" in page


def test_csv_has_a_line_for_each_score(results: Results) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert len(lines) == 2 * 2 * 7 + 2 * 2
    nll = next(line for line in lines if line["method"] != "base" and line["metric"] == "nll")
    assert (nll["mean"], nll["best"], nll["seeds"], nll["difference_low"]) == ("0.25", "True", "3", "-0.3")
    undefined = next(line for line in lines if line["metric"] == "accuracy@0.9")
    assert undefined["mean"] == undefined["deviation"] == ""


def test_files_are_written_and_read_back(results: Results, tmp_path: Path) -> None:
    written = write_results(results, tmp_path)
    assert [path.name for path in written] == ["results.json", "results.csv", "results.md"]
    assert json.loads(written[0].read_text())["verdict"]["recommended"] == "uat:gate=k+ts"
    assert json.loads(written[0].read_text())["sets"][0]["scores"]["base"]["accuracy@0.9"]["mean"] is None
    again = read_results(written[0])
    assert json.dumps(again.to_dict()) == json.dumps(results.to_dict())
    written[0].write_text("{}")
    with pytest.raises(StoreError, match="is not a results file"):
        read_results(written[0])
    with pytest.raises(StoreError, match="cannot be read"):
        read_results(tmp_path / "absent.json")
