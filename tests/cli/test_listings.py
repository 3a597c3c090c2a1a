"""`uatlite tasks`, `uatlite methods`, and what every command has in common."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from uatlite.cli import GONE, check_gone, main
from uatlite.cli.app import app
from uatlite.errors import ConfigurationError
from uatlite.methods.registry import METHODS
from uatlite.text.schema import catalogue


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_methods_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "methods")
    assert all(name in out for name in METHODS)
    assert "temperature (ts)" in " ".join(out.split())


def test_tasks_says_where_each_split_would_be_read_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "dev.csv").write_text("text,label\n")
    monkeypatch.delenv("UATLITE_DATA", raising=False)
    out = printed(capsys, "tasks", "--data-dir", str(tmp_path))
    assert all(name in out for name in catalogue())
    lines = [line.split() for line in out.splitlines()]
    assert ["calibration", "sst2/dev.csv"] in lines
    assert ["train", "hub", "stanfordnlp/sst2"] in lines
    assert ["test-original", "not", "found:", "set", "UATLITE_DATA"] in lines


def test_listing_is_quick_because_torch_is_not_imported() -> None:
    code = "import sys; from uatlite.cli import _app; _app(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ)).returncode == 0


def test_python_m_uatlite_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "uatlite", "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: uatlite [OPTIONS] COMMAND" in done.stdout
    assert "methods" in done.stdout


def test_without_the_extra_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("uatlite.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as ended:
        main(["methods"])
    assert ended.value.code == 2
    assert "typer is not installed; this needs it: pip install 'uatlite[data]'" in capsys.readouterr().err


@pytest.mark.parametrize("gone", GONE)
def test_what_is_gone_says_what_to_use_instead(gone: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*gone.split(), "something"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"Error: '{gone}' is gone: {GONE[gone]}\n"


@pytest.mark.parametrize("gone", GONE)
def test_what_is_gone_is_gone(gone: str) -> None:
    name, *option = gone.split()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    if len(option) < 2:  # else one value of an option is gone, and the option stays
        assert name not in commands or (option and option[0] not in [n for p in commands[name].params for n in p.opts])


def test_a_text_is_not_an_option_that_is_gone() -> None:
    check_gone(["explain", "pick", "--", "--as"])
    check_gone(["predict", "--as", "pick"])
    with pytest.raises(ConfigurationError, match="Label Studio"):
        check_gone(["--debug", "pick", "rows.csv", "--as=argilla"])
