"""The habits around the code: pre-commit lints with the versions that `make test` uses."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pre_commit_has_the_pinned_ruff() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    version = re.search(r"^ruff==(\S+)$", pins, re.MULTILINE)
    assert re.findall(r"ruff-pre-commit\n    rev: v(\S+)", hooks) == [version[1]]


def test_the_workflow_runs_make_test_on_every_supported_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    declared = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert re.findall(r'"(3\.\d+)"', workflow) == declared
    assert "make test" in workflow
