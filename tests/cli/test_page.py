"""The page of commands in the docs is the one that the commands themselves give."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
page = runpy.run_path(str(DOCS / "cli_page.py"))["page"]


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert (DOCS / "reference" / "cli.md").read_text(encoding="utf-8") == page(), "run: make docs"


def test_it_shows_what_a_reader_needs() -> None:
    text = page()
    assert "    uatlite predict MODEL INPUT [OPTIONS]" in text
    assert "| `--output` `-o` | JSONL, CSV or Parquet, by extension (.gz too). | required |" in text
    assert "[bold]" not in text  # rich's markup is for the terminal
