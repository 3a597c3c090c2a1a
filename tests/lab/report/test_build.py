"""The page as text: whole in itself, escaped, and with everything behind it on the disk."""

import re
from html.parser import HTMLParser
from pathlib import Path

from uatlite.lab.report import build
from uatlite.lab.report.evaluation import Evaluation, as_line, examples_of
from uatlite.values import Example


class Elements(HTMLParser):
    """Every element with its attributes, and which were left open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: Path) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def test_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    for tag, attributes in elements(page):
        assert tag not in ("script", "iframe", "img", "object", "embed")
        for name in ("src", "href", "xlink:href", "data", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), f"{tag} {name}={address}"
    css = page.read_text(encoding="utf-8").split("</style>")[0]
    assert "@import" not in css
    assert "url(" not in css


def test_texts_are_escaped(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "A &amp; B &lt;report&gt;" in html
    assert "&lt;b&gt;bad&lt;/b&gt;" in html
    assert "<b>" not in html


def test_tables_have_captions_figures_have_words_and_ids_are_unique(page: Path) -> None:
    found = elements(page)
    count = {tag: sum(1 for name, _ in found if name == tag) for tag in ("table", "caption", "svg", "desc", "h1")}
    assert count["table"] == count["caption"] == 4  # two sets, the shift, the rule
    assert count["svg"] == count["desc"] == 2 * (3 + 2 + 5)
    assert count["h1"] == 1
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = {attributes["aria-labelledby"] for _, attributes in found if "aria-labelledby" in attributes}
    assert {name for label in labels if label for name in label.split()} <= set(ids)


def test_the_tables_show_the_scores_and_their_intervals(page: Path, opened: Evaluation) -> None:
    score = opened.results.sets[1].scores["uat+ts"]["nll"]
    cell = rf"{score.mean:.3f}.*?<small>{score.low:.3f}–{score.high:.3f}</small>"
    assert re.search(cell, page.read_text(encoding="utf-8"))


def test_every_figure_is_on_the_disk(page: Path) -> None:
    files = [path.suffix for path in (page.parent / "figures").iterdir()]
    assert files.count(".svg") == files.count(".png") == files.count(".csv") == 2 * (3 + 2 + 5)


def test_texts_are_shown_where_they_are_known_and_ids_elsewhere(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    texts, ids = html.count("<p>a &lt;premise&gt; ⏵ so</p>"), len(re.findall(r"<p>Row toy-test-\d+</p>", html))
    assert texts > 0
    assert ids > 0
    assert texts + ids == build.SHOWN
    assert as_line(Example("x", "two\n words")) == "two words"


def test_a_task_that_is_not_known_has_no_texts(opened: Evaluation) -> None:
    assert examples_of(opened.predictions("base", "toy/test").provenance) == {}
