"""The page of commands in the docs is the one that the commands themselves give."""

from pathlib import Path

from uatlite.cli.page import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m uatlite.cli.page > docs/reference/cli.md"


def test_it_shows_what_a_reader_needs() -> None:
    text = page()
    assert "    uatlite predict MODEL INPUT [OPTIONS]" in text
    assert "| `--output` `-o` | JSONL, CSV or Parquet, by extension (.gz too). | required |" in text
    assert "[bold]" not in text  # rich's markup is for the terminal
