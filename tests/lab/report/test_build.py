"""The page as text: whole in itself, escaped, and with everything behind it on the disk."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from uatlite.lab.report import evaluation_page as build
from uatlite.lab.report.abstention import abstain
from uatlite.lab.report.evaluation import Evaluation, as_line, examples_of, name_of_row, open_evaluation
from uatlite.lab.report.result_files import write_results
from uatlite.lab.report.tables import Table
from uatlite.lab.report.verdict import verdict_parts
from uatlite.text.examples import content_key
from uatlite.values import Choices, Example


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
    # the verdict and its differences, two sets, the shift, the rule, the menu, how it was made
    assert (count["table"], count["caption"]) == (8, 6)
    regions = [attributes for _, attributes in found if attributes.get("class") == "scroll"]
    assert len(regions) == count["table"]
    assert all(region["aria-label"] for region in regions)
    assert count["desc"] == 2 * (3 + 2 + 5) + 1
    assert count["svg"] == count["desc"] + 1  # the band of an explained text has a label instead
    assert count["h1"] == 1
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = {attributes["aria-labelledby"] for _, attributes in found if "aria-labelledby" in attributes}
    assert {name for label in labels if label for name in label.split()} <= set(ids)


def test_the_tables_show_the_scores_and_their_intervals(page: Path, opened: Evaluation) -> None:
    score = opened.results.sets[1].scores["uat+ts"]["nll"]
    cell = rf"{score.mean:.3f}<small>{score.low:.3f}–{score.high:.3f}</small>"
    assert re.search(cell, page.read_text(encoding="utf-8"))


def test_the_verdict_is_that_of_the_results(page: Path, opened: Evaluation) -> None:
    html = page.read_text(encoding="utf-8")
    sentences, costs, *_ = verdict_parts(opened.results)
    assert f"<p>{sentences}</p>" in html
    table = html.split("<caption>What to use at each cost</caption>")[1].split("</table>")[0]
    assert isinstance(costs, Table)
    for row in costs.rows:
        used, level, beaten = (entry.text for entry in row.entries)
        cells = f'<td class="strong">{used}</td>\n<td class="">{level}</td>\n<td class="">{beaten}</td>'
        assert f'<th scope="row">{row.heading}</th>\n{cells}' in table


def test_the_menu_names_every_risk_and_what_it_would_take(page: Path, opened: Evaluation) -> None:
    abstention = abstain(opened)
    assert abstention is not None
    assert abstention.menu is not None
    html = page.read_text(encoding="utf-8")
    table = html.split("<caption>The menu of risks</caption>")[1].split("</table>")[0]
    rows = table.split("<tr>")[2:]
    assert len(rows) == len(abstention.menu.lines)
    for line, row in zip(abstention.menu.lines, rows, strict=True):
        assert f">{line.target:.0%}<" in row
        needed = "hardly help" if line.texts_needed is None else f"about {line.texts_needed:,} labelled rows"
        assert (needed if line.rule is None else f"{line.rule.coverage:.1%}") in row


def test_an_explained_text_has_its_band(page: Path) -> None:
    rings = [attributes for _, attributes in elements(page) if attributes.get("class") == "ring"]
    assert [(ring["x"], ring["width"]) for ring in rings] == [
        ("46.000", "28.000"), ("51.000", "19.000"), ("56.000", "10.000")
    ]  # fmt: skip
    said = "Margin 0.45 ± 0.30 logits: for 95% of its Gaussian between 46.0% and 74.0% sure of positive."
    assert said in page.read_text(encoding="utf-8")


def test_every_figure_is_on_the_disk(page: Path) -> None:
    files = [path.suffix for path in (page.parent / "figures").iterdir()]
    assert files.count(".svg") == files.count(".png") == files.count(".csv") == 2 * (3 + 2 + 5) + 1


def test_texts_are_shown_where_they_are_known_and_ids_elsewhere(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    texts, ids = html.count("<p>a &lt;premise&gt; ⏵ so</p>"), len(re.findall(r"<p>Row toy-test-\d+</p>", html))
    assert texts > 0
    assert ids > 0
    assert texts + ids == build.SHOWN
    assert as_line(Example("x", "two\n words")) == "two words"


def test_a_task_that_is_not_known_has_no_texts(opened: Evaluation) -> None:
    assert examples_of(opened.predictions("base", "toy/test").provenance) == {}


def test_texts_of_the_first_set_lie_beside_the_results(page: Path, opened: Evaluation, tmp_path: Path) -> None:
    shown = r"<p>a &lt;premise&gt; ⏵ so</p>\n<p class=\"tags\"><span>toy-test-\d+</span>"
    assert re.search(shown, page.read_text(encoding="utf-8"))
    unnamed = content_key("no id")[:16]
    texts = [
        Example("toy-test-1", ("a", "b"), 1),
        Example("toy-test-2", Choices("which?", ("this", "that")), 0),
        Example(f"{unnamed}#2", "no id", None),
    ]
    written = write_results(replace(opened.results, texts=tuple(texts)), tmp_path)
    assert written[-1].name == "texts.jsonl"
    (tmp_path / "store").mkdir()
    examples = open_evaluation(tmp_path).examples()
    assert list(examples.values()) == texts
    assert [name_of_row(example) for example in examples.values()] == ["toy-test-1", "toy-test-2", None]
    assert opened.examples() == {}  # without the file, those of a task that is known
