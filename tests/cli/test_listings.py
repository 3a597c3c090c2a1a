"""`uatlite tasks`, `uatlite methods`, what every command has in common, and their page in the docs."""

import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from uatlite.cli import GONE, check_gone
from uatlite.cli.app import app
from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate import COMPARED
from uatlite.lab.evaluate.plan import parse_contenders
from uatlite.methods.registry import METHODS
from uatlite.text.schema import catalogue

DOCS = Path(__file__).parents[2] / "docs"


def test_methods_lists_them_all(run):
    done = run("methods")
    assert all(name in done.out for name in METHODS)
    assert "temperature (ts)" in done.shown


def test_methods_counts_passes_as_evaluate_does(run):
    lines = {
        line.split()[0].rstrip(","): line.replace(", mc", "").split()
        for line in run("methods").out.splitlines()
        if line.strip()
    }
    assert {name: int(lines[name][1]) for name in METHODS} == {name: method.cost for name, method in METHODS.items()}
    assert (lines["analytic"][1], lines["distilled"][1]) == ("2", "1")


def test_what_the_gate_does_can_be_read_off_the_default_of_evaluate():
    methods = {contender.method.key: contender.method for contender in parse_contenders(COMPARED)}
    assert methods["mc-component"].config == replace(methods["uat"].config, gate="none")


def test_tasks_says_where_each_split_would_be_read_from(run, tmp_path, monkeypatch):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "dev.csv").write_text("text,label\n")
    monkeypatch.delenv("UATLITE_DATA", raising=False)
    out = run("tasks", "--data-dir", tmp_path).out
    assert all(name in out for name in catalogue())
    lines = [line.split() for line in out.splitlines()]
    assert ["calibration", "sst2/dev.csv"] in lines
    assert ["train", "hub", "stanfordnlp/sst2"] in lines
    assert ["test-original", "not", "found:", "set", "UATLITE_DATA"] in lines


def test_listing_is_quick_because_torch_is_not_imported():
    code = "import sys; from uatlite.cli import _app; _app(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ)).returncode == 0


def test_python_m_uatlite_is_the_command():
    done = subprocess.run([sys.executable, "-m", "uatlite", "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: uatlite [OPTIONS] COMMAND" in done.stdout
    assert "methods" in done.stdout


def test_without_the_extra_the_way_out_is_named(monkeypatch, run):
    for name in [name for name in sys.modules if name.startswith("uatlite.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert "typer is not installed; this needs it: pip install 'uatlite[data]'" in run("methods", code=2).err


@pytest.mark.parametrize("gone", GONE)
def test_what_is_gone_says_what_to_use_instead(gone, run):
    assert run(*gone.split(), "something", code=2).err == f"Error: '{gone}' is gone: {GONE[gone]}\n"
    name, option = gone.split()
    commands = typer.main.get_command(app).commands
    assert option not in [opt for parameter in commands[name].params for opt in parameter.opts]


def test_a_text_is_not_an_option_that_is_gone():
    check_gone(["explain", "pick", "--", "--as"])
    check_gone(["predict", "--as", "pick"])
    with pytest.raises(ConfigurationError, match="Label Studio"):
        check_gone(["--debug", "pick", "rows.csv", "--as=argilla"])


def test_the_page_of_commands_in_the_docs_is_up_to_date_and_shows_what_a_reader_needs():
    text = runpy.run_path(str(DOCS / "cli_page.py"))["page"]()
    assert (DOCS / "reference" / "cli.md").read_text(encoding="utf-8") == text, "run: make docs"
    assert "    uatlite predict MODEL [INPUT] [OPTIONS]" in text
    assert "| `--output` `-o` | JSONL, CSV or Parquet, by extension (.gz too). | required |" in text
    assert "[bold]" not in text  # rich's markup is for the terminal
