"""The page as text: whole in itself, escaped, and with everything behind it on the disk."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from uatlite.errors import DataError, ModelError, StoreError
from uatlite.lab.report import build
from uatlite.lab.report import words as explaining
from uatlite.lab.report.abstention import abstain
from uatlite.lab.report.evaluation import Evaluation, as_line, examples_of
from uatlite.lab.report.words import read_explanations, shade
from uatlite.values import Example, Word, WordAttribution


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


def test_shades_go_from_the_least_uncertain_word_of_a_text_to_the_most() -> None:
    words = [WordAttribution(Word(str(u), (1,), False), u, 0.1, 0.1, None) for u in (0.1, 0.16, 0.2)]
    assert [shade(word, words) for word in words] == [0, 3, 5]
    assert shade(words[0], words[:1]) == 0


def test_explanations_come_back_and_broken_ones_are_named(evaluation: Path, tmp_path: Path) -> None:
    (one,) = read_explanations(evaluation / "explanations.json")
    assert one.words[1] == WordAttribution(Word("<b>bad</b>", (2, 3), False), 0.15, 0.25, 0.5, 0.1)
    (tmp_path / "explanations.json").write_text("[{}]")
    with pytest.raises(StoreError, match="is not a file of explanations"):
        read_explanations(tmp_path / "explanations.json")


def test_explaining_takes_the_texts_and_the_very_model(
    opened: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abstention = abstain(opened, "base", target=0.15)
    assert abstention is not None
    with pytest.raises(DataError, match=r"texts of toy/test are not at hand.*--data-dir"):
        explaining.explain_stored(opened, abstention, "model", tmp_path / "e.json")
    monkeypatch.setattr(explaining, "examples_of", lambda about, data_dir: {"toy-test-1": Example("toy-test-1", "a")})
    monkeypatch.setattr(explaining, "load_checkpoint", lambda name: SimpleNamespace(hash="f" * 64))
    with pytest.raises(ModelError, match="model is not the model that was evaluated"):
        explaining.explain_stored(opened, abstention, "model", tmp_path / "e.json")
