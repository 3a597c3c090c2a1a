"""An explanation as a page in a real browser, as an image, as JSON, in a terminal."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.errors import ConfigurationError
from uatlite.lab.report.explanation import BACKGROUNDS, COLD_BACKGROUNDS, shading_of
from uatlite.lab.report.explanation import terminal_view as render
from uatlite.lab.report.explanation_page import (
    EXTENSIONS,
    check_target,
    write_explanation,
)


@pytest.fixture(scope="module")
def page(explanation: Explanation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "page.html"
    write_explanation(explanation, path)
    return path


def test_the_values_behind_the_figures_are_in_the_page(browser: Any, page: Path, explanation: Explanation) -> None:
    tab = browser.new_page()
    tab.goto(page.as_uri())
    rows = tab.locator("tbody tr").all_inner_texts()
    tokens = len(explanation.words) + len(explanation.special_tokens)
    assert len(rows) == tokens + len(explanation.prediction.probabilities) + len(explanation.layers)
    for word, row in zip(explanation.words, rows, strict=False):
        values = [word.word.text, f"{word.share:.1%}", f"{word.masked_confidence:.1%}", f"{word.uncertainty:.3f}"]
        assert row.split("\t") == values
    likely = sorted(explanation.prediction.probabilities.items(), key=lambda one: -one[1])
    assert [row.split("\t")[:2] for row in rows[tokens : tokens + 3]] == [[name, f"{p:.1%}"] for name, p in likely]
    links = tab.locator("figcaption a").evaluate_all("links => links.map(link => link.download)")
    assert links == ["layers.csv", "attention.csv"]
    assert "layer 1" in tab.locator("svg.figure desc").first.text_content()
    tab.close()


def test_the_band_of_one_pass_is_drawn_and_said(
    browser: Any, page: Path, explanation: Explanation, explainer: Callable[..., UncertaintyClassifier], tmp_path: Path
) -> None:
    band = explanation.band
    tab = browser.new_page()
    tab.goto(page.as_uri())
    assert tab.locator(".band .ring").count() == 3
    said = f"Margin {band.margin:.2f} ± {band.spread:.2f} logits"
    assert said in tab.inner_text(".band")
    tab.close()
    sampled = explainer("fast:samples=2").explain("film", occlusion=False)
    write_explanation(sampled, tmp_path / "sampled.html")
    assert sampled.band is None
    assert '<div class="band">' not in (tmp_path / "sampled.html").read_text()


def test_images(explanation: Explanation, tmp_path: Path) -> None:
    for extension in (".png", ".svg"):
        write_explanation(explanation, tmp_path / f"sheet{extension}", layer=1)
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    drawn = "".join(ET.parse(tmp_path / "sheet.svg").getroot().itertext())
    for text in (
        explanation.summary.says,
        "$",
        "&",
        "unbearable",
        "<",
        "layer 1, mean over heads",
        "feed-forward",
        "with modulation",
    ):
        assert text in drawn


def test_json_has_it_all(explanation: Explanation, tmp_path: Path) -> None:
    write_explanation(explanation, tmp_path / "all.JSON")
    assert json.loads((tmp_path / "all.JSON").read_text()) == json.loads(json.dumps(explanation.to_dict()))


def test_other_extensions_are_refused_with_those_that_are_not() -> None:
    with pytest.raises(ConfigurationError, match=r"out\.pdf has the extension '\.pdf'; allowed are \.html, \.png"):
        check_target(Path("out.pdf"))
    assert list(EXTENSIONS) == [".html", ".png", ".svg", ".json"]


def in_terminal(explanation: Explanation, shading: str = "share", **terminal: Any) -> str:
    console = Console(width=100, **terminal)
    with console.capture() as captured:
        console.print(render(explanation, shading=shading))
    return captured.get()


def test_a_terminal_without_colours_still_tells_all(explanation: Explanation) -> None:
    said = in_terminal(explanation, force_terminal=False)
    assert "\x1b" not in said
    assert str(explanation.prediction.label) in said
    for word in explanation.words:
        assert f"{word.uncertainty:.3f}" in said
        assert f"{word.masked_confidence:.1%}" in said
    for name, probability in explanation.prediction.probabilities.items():
        assert f"{name} {probability:.1%}" in " ".join(said.split())
    for layer in explanation.layers:
        assert f"{layer.name}" in said
        assert f"{layer.share:.1%}" in said


@pytest.mark.parametrize("by", ["share", "masking", "uncertainty"])
def test_a_terminal_with_colours_shades_words_by_what_is_asked(explanation: Explanation, by: str) -> None:
    said = in_terminal(explanation, by, force_terminal=True, color_system="truecolor")
    shading = shading_of(explanation, by)
    shades = {word: shading.shade(word) for word in explanation.words}
    assert len(set(shades.values())) > 1
    for word, shade in shades.items():
        background = COLD_BACKGROUNDS[-shade] if shade < 0 else BACKGROUNDS[shade]
        if background is not None:
            red, green, blue = bytes.fromhex(background[1:])
            assert f"\x1b[30;48;2;{red};{green};{blue}m{word.word.text}\x1b[0m" in said


def test_every_view_begins_with_the_sentences(browser: Any, page: Path, explanation: Explanation) -> None:
    summary = explanation.summary
    assert " ".join(in_terminal(explanation).split()).startswith(str(summary))
    tab = browser.new_page()
    tab.goto(page.as_uri())
    assert tab.inner_text("h1") == summary.says
    assert tab.inner_text(".lead") == f"{summary.decision} {summary.doubt}"
    tab.close()
    assert next(iter(explanation.to_dict())) == "summary"


def test_of_a_long_text_the_terminal_tabulates_the_words_that_matter(
    explainer: Callable[..., UncertaintyClassifier],
) -> None:
    found = explainer().explain("film so long " * 12, occlusion=False, attention=False)
    assert len(found.words) == 36
    said = in_terminal(found)
    table = said[said.index("confidence if masked") :]
    shares = sorted((word.share for word in found.words), reverse=True)
    assert "12 other words" in table
    assert f"{sum(shares[24:]):.1%}" in table
    assert sum(line.startswith(("film ", "so ", "long ")) for line in table.splitlines()) == 24


def test_sampled_estimators_show_their_errors(explainer: Callable[..., UncertaintyClassifier]) -> None:
    found = explainer("uat").explain("film so long", estimator="total-variance", samples=10, attention=False)
    assert f"{found.layers[1].contribution:.3f} ± {found.layers[1].error:.3f}" in in_terminal(found)
    assert "10 pairs of passes" in in_terminal(found)
