"""The same table for a terminal, Markdown, CSV and JSON."""

import csv
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from uatlite.errors import StoreError
from uatlite.lab.evaluate.compare import Resampling, Score
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.report.tables import (
    as_csv,
    cell,
    heading,
    legend,
    markdown,
    read_results,
    render,
    tables_of,
    write_results,
)
from uatlite.metrics.bootstrap import Interval

NARROW = ("accuracy", "ece", "nll", "brier", "aurc")


def make_score(value: float, *, seeds: int = 1, best: bool = False, difference: Interval | None = None) -> Score:
    values = tuple(value + 0.01 * (seed - (seeds - 1) / 2) for seed in range(seeds))
    return Score(values, value - 0.05, value + 0.05, difference, best)


@pytest.fixture
def results() -> Results:
    metrics = (*NARROW, "coverage@0.9", "accuracy@0.9")
    base = {name: make_score(0.5) for name in metrics} | {"accuracy@0.9": Score((math.nan,), math.nan, math.nan)}
    uat = {
        name: make_score(0.25, seeds=3, best=name == "nll", difference=Interval(-0.25, -0.3, -0.2)) for name in metrics
    }
    shift = {
        name: {"delta_ece": make_score(0.02), "robustness_score": make_score(0.3)} for name in ("base", "uat:gate=k+ts")
    }
    sets = (
        SetScores(
            "sst2/test", "dev.jsonl", "labels in the model's order", 436, 0, 0, 0, {"base": base, "uat:gate=k+ts": uat}
        ),
        SetScores(
            "imdb/test",
            "test.jsonl",
            "columns reordered",
            1_000,
            3,
            12,
            3_400,
            {"base": base, "uat:gate=k+ts": uat},
            shift,
        ),
    )
    about = {"base": {"passes": 1, "seeds": 1}, "uat:gate=k+ts": {"passes": 10, "seeds": 3}}
    return Results(
        model="my-model",
        model_hash="abc",
        contenders=("base", "uat:gate=k+ts"),
        methods=about,
        metrics=metrics,
        resampling=Resampling(),
        sets=sets,
        calibrators={"base": (), "uat:gate=k+ts": ({"calibrator": "temperature"},) * 3},
        versions={"uatlite": "0.1.0"},
    )


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


def test_markdown_has_every_metric_and_marks_the_best(results: Results) -> None:
    page = markdown(results)
    assert "| method | Accuracy ↑ | ECE ↓ | NLL ↓ | Brier ↓ | AURC ↓ | Cov@0.9 | Acc@0.9 |" in page
    assert "| **0.250** ± 0.010 (0.200–0.300) |" in page
    assert "| – (–) |" in page
    assert "sst2/test → imdb/test: calibration under shift" in page


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
    assert json.loads(written[0].read_text())["sets"][0]["scores"]["base"]["accuracy@0.9"]["mean"] is None
    again = read_results(written[0])
    assert json.dumps(again.to_dict()) == json.dumps(results.to_dict())
    written[0].write_text("{}")
    with pytest.raises(StoreError, match="is not a results file"):
        read_results(written[0])
    with pytest.raises(StoreError, match="cannot be read"):
        read_results(tmp_path / "absent.json")


def test_the_legend_says_what_the_mark_means_and_when_there_is_none(results: Results) -> None:
    assert "± standard deviation over 3 seeds" in legend(results)
    assert "* beats every other method beyond chance" in legend(results)
    none = [{"nll": make_score(0.5)}] * 2
    dull = SetScores("a", "", "", 1, 0, 0, 0, dict(zip(results.contenders, none, strict=True)))
    assert "Nothing here beats" in legend(Results(**{**results.__dict__, "sets": (dull,)}))


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
    assert cell(Score((-0.0001,), -0.0002, 0.0001), "delta_ece").mean == "0.000"
    assert cell(Score((-0.5,), -0.6, -0.4), "delta_ece").mean == "−0.500"
    assert cell(Score((17.0,), 10.0, 20.0), "count@0.9").interval == "10–20"


def test_tables_can_be_narrowed(results: Results) -> None:
    assert [len(table.headings) for table in tables_of(results, ("nll", "never scored"))] == [1, 1, 2]
