"""The page of a model with several answers a text, in a real browser: what is sure, and where doubt is from."""

from collections.abc import Callable
from typing import Any

import pytest

from uatlite.classifier.classifiers import UncertaintyLabeler, UncertaintyTagger

READY = "#several:not([hidden])"


def type_text(tab: Any, text: str) -> Any:
    with tab.expect_response("**/explain") as caught:
        tab.fill("#several-text", text)
    settle(tab)
    return caught.value.json()


def click(tab: Any, answer: Any) -> Any:
    """Click one answer; the JSON that is sent to explain it."""
    with tab.expect_response("**/explain") as caught:
        answer.click()
    settle(tab)
    return caught.value.request.post_data_json


def settle(tab: Any) -> None:
    tab.wait_for_selector("#answers[aria-busy=false] .verdict")


def strengths(grounds: Any) -> list[float]:
    """The per cent of colour behind each element."""
    values: list[float] = grounds.evaluate_all(
        "all => all.map((one) => Number(one.style.background.match(/(\\d+)%/)[1]))"
    )
    return values


def check_origins(tab: Any, expected: Any) -> None:
    """The words and layers that the uncertainty of one answer comes from are drawn."""
    words = tab.locator("#origin-words .word")
    assert words.all_inner_texts() == [word.word.text for word in expected.words]
    shares, grounds = [word.share for word in expected.words], strengths(words)
    assert grounds.index(max(grounds)) == shares.index(max(shares))
    assert tab.locator("#origin-layers rect").count() == len(expected.layers)


def test_labels_are_bars_with_thresholds_and_a_click_explains_one(
    tab_of: Any, address_of: Any, labeler: UncertaintyLabeler
) -> None:
    with tab_of(address_of("labeler"), ready=READY) as tab:
        assert "4 labels: anger, joy, fear, relief" in tab.inner_text("#served")
        assert tab.inner_text("#several-promise") == labeler.calibration_.rule.describe()
        assert tab.is_hidden("#tabs")
        reply = type_text(tab, "a1 a2 a3 <b>")
        by_probability = sorted(reply["answer"]["decisions"], key=lambda label: -label["probability"])
        rows = tab.locator("#labels .label-row")
        assert rows.locator(".name").all_inner_texts() == [label["label"] for label in by_probability]
        for i, label in enumerate(by_probability):
            assert f"{100 * label['probability']:.1f} %" in rows.nth(i).inner_text()
            assert label["decision"] in rows.nth(i).get_attribute("class")
            track, tick = (rows.nth(i).locator(part).bounding_box() for part in (".track", ".tick"))
            at = (tick["x"] + tick["width"] / 2 - track["x"]) / track["width"]
            assert at == pytest.approx(label["threshold"], abs=0.01)
        assert tab.inner_text("#several-decision b") == ", ".join(reply["answer"]["labels"] or ["no label reported"])
        assert reply["label"] in tab.inner_text("#origins-title")
        other = next(label["label"] for label in by_probability if label["label"] != reply["label"])
        row = tab.locator(f".label-row[aria-label^='{other}']")
        assert click(tab, row)["label"] == other
        assert other in tab.inner_text("#origins-title")
        assert row.get_attribute("aria-pressed") == "true"
        check_origins(tab, labeler.explain("a1 a2 a3 <b>", other))


def test_entities_are_shaded_and_a_click_explains_one(
    tab_of: Any, address_of: Any, tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]
) -> None:
    predictions = tagger.predict(made_texts(40, seed=7), check_shift=False)
    mixed = next(said for said in predictions if len({entity.reported for entity in said.entities}) == 2)
    text = f"{mixed.text} <b>"
    with tab_of(address_of("tagger"), ready=READY) as tab:
        assert "2 types of entities: person, place" in tab.inner_text("#served")
        reply = type_text(tab, text)
        found, buttons = reply["answer"]["entities"], tab.locator("#entities .entity")
        assert buttons.count() == len(found)
        shown = tab.evaluate(
            "() => { const copy = document.getElementById('entities').cloneNode(true);"
            " copy.querySelectorAll('small').forEach((note) => note.remove()); return copy.textContent; }"
        )
        assert shown == text  # not a character is lost, and nothing typed is markup
        assert strengths(buttons) == [pytest.approx(6 + 44 * entity["confidence"], abs=0.51) for entity in found]
        for i, entity in enumerate(found):
            assert f"{entity['label']} {100 * entity['confidence']:.0f} %" in buttons.nth(i).inner_text()
            assert entity["decision"] in buttons.nth(i).get_attribute("class")
        assert buttons.nth(reply["entity"]).get_attribute("aria-pressed") == "true"
        other = next(i for i in range(len(found)) if i != reply["entity"])
        assert click(tab, buttons.nth(other))["entity"] == other
        assert f"“{found[other]['text']}”" in tab.inner_text("#origins-title")
        check_origins(tab, tagger.explain(text, other))
        type_text(tab, next(said.text for said in predictions if not said.entities))
        assert tab.is_hidden("#origins-card")
        assert tab.inner_text("#several-decision b") == "no entity reported"


def test_a_text_too_long_to_explain_is_answered(tab_of: Any, address_of: Any) -> None:
    with tab_of(
        address_of("labeler"), ready=READY, complains=True
    ) as tab:  # the browser itself complains of the refusal
        with tab.expect_response("**/predict"):
            tab.fill("#several-text", "a1 a2 " * 400)
        settle(tab)
        assert tab.locator("#labels .label-row").count() == 4
        assert tab.is_hidden("#origins-card")
        assert "at most 2000" in tab.inner_text("#alert")


def test_nothing_typed_shows_nothing(tab_of: Any, address_of: Any) -> None:
    with tab_of(address_of("labeler"), ready=READY, viewport={"width": 360, "height": 800}) as tab:
        type_text(tab, "a1 a2")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        tab.fill("#several-text", "  ")
        tab.wait_for_selector("#several-empty:not([hidden])")
        assert tab.is_hidden("#several-found")
