"""The page of a model with several answers a text, in a real browser: what is sure, and where doubt is from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from uatlite.classifier.labeler import UncertaintyLabeler
from uatlite.classifier.tagger import UncertaintyTagger

SHOT = {"width": 1280, "height": 900}
PATIENCE = 120_000
"""Milliseconds for whatever a test waits for: a busy machine is slow and not wrong."""


@contextmanager
def watched(browser: Any, address: str, viewport: dict[str, int] = SHOT) -> Iterator[Any]:
    """The page, open; whatever the browser complains about, or asks of another host, fails the test."""
    made = browser.new_page(viewport=viewport)
    made.set_default_timeout(PATIENCE)
    said: list[str] = []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("request", lambda request: None if request.url.startswith(address) else said.append(request.url))
    made.goto(address)
    made.wait_for_selector("#several:not([hidden])")
    yield made
    made.close()
    assert said == []


def type_text(tab: Any, text: str) -> Any:
    with tab.expect_response("**/explain") as caught:
        tab.fill("#several-text", text)
    settle(tab)
    return caught.value.json()


def settle(tab: Any) -> None:
    tab.wait_for_selector("#answers[aria-busy=false] .verdict")


@pytest.fixture(scope="module")
def labels_address(running: Any, labeler: UncertaintyLabeler) -> Iterator[str]:
    with running(labeler) as found:
        yield found


def test_labels_are_bars_with_thresholds_and_a_click_explains_one(
    browser: Any, labels_address: str, labeler: UncertaintyLabeler
) -> None:
    with watched(browser, labels_address) as tab:
        assert "4 labels: anger, joy, fear, relief" in tab.inner_text("#served")
        assert tab.inner_text("#several-promise") == labeler.calibration_.rule.describe()
        assert tab.is_hidden("#tabs")
        reply = type_text(tab, "a1 a2 a3 <b>")
        sorted_labels = sorted(reply["answer"]["decisions"], key=lambda one: -one["probability"])
        rows = tab.locator("#labels .label-row")
        assert rows.locator(".name").all_inner_texts() == [one["label"] for one in sorted_labels]
        for place, one in enumerate(sorted_labels):
            assert f"{100 * one['probability']:.1f} %" in rows.nth(place).inner_text()
            assert one["decision"] in rows.nth(place).get_attribute("class")
            across = rows.nth(place).locator(".track").bounding_box()
            tick = rows.nth(place).locator(".tick").bounding_box()
            at = (tick["x"] + tick["width"] / 2 - across["x"]) / across["width"]
            assert at == pytest.approx(one["threshold"], abs=0.01)
        assert tab.inner_text("#several-decision b") == ", ".join(reply["answer"]["labels"] or ["no label reported"])
        assert reply["label"] in tab.inner_text("#origins-title")
        other = next(one["label"] for one in sorted_labels if one["label"] != reply["label"])
        with tab.expect_response("**/explain") as caught:
            tab.locator(f".label-row[aria-label^='{other}']").click()
        settle(tab)
        assert caught.value.request.post_data_json["label"] == other
        assert other in tab.inner_text("#origins-title")
        assert tab.get_attribute(f".label-row[aria-label^='{other}']", "aria-pressed") == "true"
        expected = labeler.explain("a1 a2 a3 <b>", other)
        words = tab.locator("#origin-words .word")
        assert words.all_inner_texts() == [word.word.text for word in expected.words]
        strengths = words.evaluate_all("all => all.map(word => Number(word.style.background.match(/(\\d+)%/)[1]))")
        shares = [word.share for word in expected.words]
        assert strengths.index(max(strengths)) == shares.index(max(shares))
        assert tab.locator("#origin-layers rect").count() == len(expected.layers)


@pytest.fixture(scope="module")
def entities_address(running: Any, tagger: UncertaintyTagger) -> Iterator[str]:
    with running(tagger) as found:
        yield found


def test_entities_are_shaded_and_a_click_explains_one(
    browser: Any, entities_address: str, tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]
) -> None:
    found = tagger.predict(made_texts(40, seed=7), check_shift=False)
    one = next(one for one in found if len({entity.reported for entity in one.entities}) == 2)
    text = f"{one.text} <b>"
    with watched(browser, entities_address) as tab:
        assert "2 types of entities: person, place" in tab.inner_text("#served")
        reply = type_text(tab, text)
        entities = reply["answer"]["entities"]
        buttons = tab.locator("#entities .entity")
        assert buttons.count() == len(entities)
        shown = tab.evaluate(
            "() => { const copy = document.getElementById('entities').cloneNode(true);"
            " copy.querySelectorAll('small').forEach((note) => note.remove()); return copy.textContent; }"
        )
        assert shown == text  # not a character is lost, and nothing typed is markup
        strengths = buttons.evaluate_all("all => all.map(one => Number(one.style.background.match(/(\\d+)%/)[1]))")
        assert strengths == [pytest.approx(6 + 44 * entity["confidence"], abs=0.51) for entity in entities]
        for place, entity in enumerate(entities):
            assert f"{entity['label']} {100 * entity['confidence']:.0f} %" in buttons.nth(place).inner_text()
            assert entity["decision"] in buttons.nth(place).get_attribute("class")
        assert buttons.nth(reply["entity"]).get_attribute("aria-pressed") == "true"
        other = next(place for place in range(len(entities)) if place != reply["entity"])
        with tab.expect_response("**/explain") as caught:
            buttons.nth(other).click()
        settle(tab)
        assert caught.value.request.post_data_json["entity"] == other
        assert f"“{entities[other]['text']}”" in tab.inner_text("#origins-title")
        expected = tagger.explain(text, other)
        assert tab.locator("#origin-words .word").all_inner_texts() == [word.word.text for word in expected.words]
        assert tab.locator("#origin-layers rect").count() == len(expected.layers)
        bare = next(one for one in found if not one.entities)
        type_text(tab, bare.text)
        assert tab.is_hidden("#origins-card")
        assert tab.inner_text("#several-decision b") == "no entity reported"


def test_a_text_too_long_to_explain_is_answered(browser: Any, labels_address: str) -> None:
    made = browser.new_page()  # the browser itself complains of the refusal
    made.set_default_timeout(PATIENCE)
    made.goto(labels_address)
    made.wait_for_selector("#several:not([hidden])")
    with made.expect_response("**/predict"):
        made.fill("#several-text", "a1 a2 " * 400)
    settle(made)
    assert made.locator("#labels .label-row").count() == 4
    assert made.is_hidden("#origins-card")
    assert "at most 2000" in made.inner_text("#alert")
    made.close()


def test_nothing_typed_shows_nothing(browser: Any, labels_address: str) -> None:
    with watched(browser, labels_address, {"width": 360, "height": 800}) as tab:
        type_text(tab, "a1 a2")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        tab.fill("#several-text", "  ")
        tab.wait_for_selector("#several-empty:not([hidden])")
        assert tab.is_hidden("#several-found")
