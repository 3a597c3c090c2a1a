"""An explanation as a page, as an image, as JSON and in a terminal: its numbers, its words, the shades of these."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from rich.console import Console

from uatlite.errors import ConfigurationError
from uatlite.lab.report import explanation_page as view
from uatlite.lab.report.explanation_page import Shading, shading_of, write_explanation
from uatlite.lab.report.maps import AttentionMaps, LayerBars
from uatlite.values import Word, WordAttribution


@pytest.fixture(scope="module")
def page(explanation, tmp_path_factory):
    path = tmp_path_factory.mktemp("explained") / "page.html"
    write_explanation(explanation, path)
    return path


def test_the_values_behind_the_figures_are_in_the_page(page, explanation, rows_of):
    words = rows_of(page, "Confidence is that in")
    assert len(words) == len(explanation.words) + len(explanation.special_tokens)
    for word, row in zip(explanation.words, words, strict=False):
        values = [word.word.text, f"{word.share:.1%}", f"{word.masked_confidence:.1%}", f"{word.uncertainty:.3f}"]
        assert row == values
    likely = sorted(explanation.prediction.probabilities.items(), key=lambda pair: -pair[1])
    chances = rows_of(page, "Probabilities, not calibrated")
    assert [row[:2] for row in chances] == [[name, f"{chance:.1%}"] for name, chance in likely]
    layers = rows_of(page, "Contributions to the variance of the margin")
    assert [row[:2] for row in layers] == [[layer.name, f"{layer.share:.1%}"] for layer in explanation.layers]
    html = page.read_text(encoding="utf-8")
    assert [name in html for name in ('download="layers.csv"', 'download="attention.csv"')] == [True, True]
    assert "layer 1" in html.split("<desc")[1].split("</desc>")[0]


def test_the_band_of_one_pass_is_drawn_and_said(page, explanation, explainer, tmp_path):
    band, html = explanation.band, page.read_text(encoding="utf-8")
    assert html.count('class="ring"') == 3
    assert f"Margin {band.margin:.2f} ± {band.spread:.2f} logits" in html
    sampled = explainer("fast:samples=2").explain("film", occlusion=False)
    write_explanation(sampled, tmp_path / "sampled.html")
    assert sampled.band is None
    assert '<div class="band">' not in (tmp_path / "sampled.html").read_text()


def test_images_and_json_have_it_all(explanation, tmp_path):
    for extension in (".png", ".svg"):
        write_explanation(explanation, tmp_path / f"sheet{extension}", layer=1)
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    drawn = "".join(ET.parse(tmp_path / "sheet.svg").getroot().itertext())
    told = ("$", "&", "unbearable", "<", "layer 1, mean over heads", "feed-forward", "with modulation")
    for text in (explanation.summary.says, *told):
        assert text in drawn
    write_explanation(explanation, tmp_path / "all.JSON")
    assert json.loads((tmp_path / "all.JSON").read_text()) == json.loads(json.dumps(explanation.to_dict()))


def in_terminal(explanation, shading="share", width=100, **terminal):
    console = Console(width=width, **terminal)
    with console.capture() as captured:
        console.print(view.terminal_view(explanation, shading=shading))
    return captured.get()


def test_a_terminal_without_colours_still_tells_all(explanation):
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
def test_a_terminal_with_colours_shades_words_by_what_is_asked(explanation, by):
    first, *others = explanation.words
    explanation = replace(explanation, words=(replace(first, share=0.3), *others))
    said = in_terminal(explanation, by, force_terminal=True, color_system="truecolor")
    shading = shading_of(explanation, by)
    shades = {word: shading.shade(word) for word in explanation.words}
    assert len(set(shades.values())) > 1
    for word, shade in shades.items():
        background = view.COLD_BACKGROUNDS[-shade] if shade < 0 else view.BACKGROUNDS[shade]
        if background is not None:
            red, green, blue = bytes.fromhex(background[1:])
            assert f"\x1b[30;48;2;{red};{green};{blue}m{word.word.text}\x1b[0m" in said


def test_every_view_begins_with_the_sentences(page, explanation):
    summary, html = explanation.summary, page.read_text(encoding="utf-8")
    assert " ".join(in_terminal(explanation).split()).startswith(str(summary))
    assert unescape(html.split("<h1>")[1].split("</h1>")[0]) == summary.says
    assert unescape(html.split('<p class="lead">')[1].split("</p>")[0]) == f"{summary.decision} {summary.doubt}"
    assert next(iter(explanation.to_dict())) == "summary"


def test_of_a_long_text_the_terminal_tabulates_the_words_that_matter(explainer):
    long = explainer().explain("film so long " * 12, occlusion=False, attention=False)
    assert len(long.words) == 36
    said = in_terminal(long)
    table = said[said.index("confidence if masked") :]
    shares = sorted((word.share for word in long.words), reverse=True)
    assert "12 other words" in table
    assert f"{sum(shares[24:]):.1%}" in table
    assert sum(line.startswith(("film ", "so ", "long ")) for line in table.splitlines()) == 24


def test_sampled_estimators_show_their_errors(explainer):
    sampled = explainer("uat").explain("film so long", estimator="total-variance", samples=10, attention=False)
    said, layer = in_terminal(sampled), sampled.layers[1]
    assert f"{layer.contribution:.3f} ± {layer.error:.3f}" in said
    assert "10 pairs of passes" in said
    assert "U is that of uat: lagged, 10 passes." in " ".join(said.split())


@pytest.mark.parametrize("estimator", ["delta", "isolated", "total-variance"])
def test_80_columns_hold_all_numbers(explainer, estimator):
    found = explainer("uat").explain("film so long", estimator=estimator, samples=10, attention=False)
    said = in_terminal(found, width=80)
    assert "…" not in said
    for layer in found.layers:
        error = "" if layer.error is None else f" ± {layer.error:.3f}"
        assert f"{layer.contribution:.3f}{error}" in said


def attributed(uncertainty, share, masked):
    return WordAttribution(Word("w", (1,), False), uncertainty, share, share, masked)


WORDS_OF_A_TEXT = (attributed(0.1, 0.5, 0.8), attributed(0.16, 0.2, 0.2), attributed(0.2, 0.0, 0.95))


SMALL = (attributed(0.1, 0.02, 0.795), attributed(0.2, 0.005, 0.8))


@pytest.mark.parametrize(
    ("by", "words", "styles"),
    [
        ("share", WORDS_OF_A_TEXT, ["s5", "s2", "s0"]),
        ("masking", WORDS_OF_A_TEXT, ["s0", "s5", "c1"]),  # from 0.8 with every word: the second word carries it
        ("share", (attributed(0.1, 0.08, 0.8), attributed(0.2, 0.9, 0.8)), ["s1", "s5"]),
        ("share", (attributed(0.1, 0.08, 0.8),), ["s1"]),  # the largest of its text, and still pale
        ("uncertainty", WORDS_OF_A_TEXT, ["s0", "s3", "s5"]),
        ("share", SMALL, ["s0", "s0"]),  # small shares and changes stay pale
        ("masking", SMALL, ["s0", "s0"]),
        ("uncertainty", SMALL[:1], ["s0"]),
    ],
)
def test_words_are_shaded_by_what_is_asked(by, words, styles):
    shading = Shading(words, 0.8, by)
    assert [shading.style(word) for word in words] == styles


def test_what_words_cannot_be_shaded_by():
    with pytest.raises(ConfigurationError, match="shading='shares' is not one of"):
        Shading(WORDS_OF_A_TEXT, 0.8, "shares")
    with pytest.raises(ConfigurationError, match=r"no word was masked.*occlusion=True"):
        Shading((attributed(0.1, 0.5, None),), 0.8, "masking")


def test_a_bar_is_as_long_as_the_share_and_split_like_the_components(explanation):
    bars = LayerBars(explanation.layers)
    for layer in explanation.layers:
        parts = bars.parts(layer)
        assert sum(parts.values()) == pytest.approx(layer.share)
        for name, value in layer.components.items():
            assert parts[name] == pytest.approx(layer.share * value / sum(layer.components.values()))
    assert bars.longest == max(layer.share for layer in explanation.layers)
    # what sampling made negative has no length
    layer = explanation.layers[1]
    mixed = replace(layer, share=0.2, components={"attention": 0.3, "feed_forward": -0.1})
    assert LayerBars((mixed,)).parts(mixed) == {"attention": pytest.approx(0.2), "feed_forward": 0.0}
    below = replace(layer, share=-0.1, components={"attention": -0.3, "feed_forward": -0.1})
    assert set(LayerBars((below,)).parts(below).values()) == {0.0}


def test_maps_are_those_of_the_layer_and_head(explanation, explainer):
    whole, one = AttentionMaps.of(explanation), AttentionMaps.of(explanation, layer=2, head=3)
    np.testing.assert_allclose(whole.plain, explanation.attention.plain[:, 0].mean(dim=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(one.modulated, explanation.attention.modulated[1, 0, 2], rtol=1e-6)
    np.testing.assert_allclose(one.difference, one.modulated - one.plain, atol=1e-7)
    assert (whole.which, one.which) == ("all layers, mean over heads", "layer 2, head 3")
    assert whole.tokens == tuple(token.text for token in explanation.tokens)
    rows = list(one.records())
    assert len(rows) == len(one.tokens) ** 2
    assert rows[1]["modulated"] == pytest.approx(one.modulated[0, 1])
    # without modulation there are none
    assert AttentionMaps.of(explainer("mc-component").explain("film", occlusion=False)) is None
