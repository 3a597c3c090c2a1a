"""The page in a real browser: type, see, move a slider, upload, read the result; no request to another host."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uatlite.classifier.classifiers import UncertaintyClassifier

PATIENCE = 120_000
"""Milliseconds for whatever a test waits for: a busy machine is slow and not wrong."""


@pytest.fixture
def tab(tab_of: Any, address_of: Any) -> Iterator[Any]:
    """The page, open."""
    with tab_of(address_of("classifier")) as tab:
        yield tab


@pytest.fixture
def one_pass_tab(tab_of: Any, address_of: Any) -> Iterator[Any]:
    """The page of a method without sampling."""
    with tab_of(address_of("one_pass")) as tab:
        yield tab


def type_text(tab: Any, text: str) -> None:
    with tab.expect_response("**/explain"):
        tab.fill("#text", text)
    tab.wait_for_selector("#result[aria-busy=false] .verdict")


def until_count(tab: Any, selector: str, count: int) -> None:
    """Wait until so many are there. (Playwright's own wait evaluates a string, which the page's policy forbids.)"""
    for _ in range(PATIENCE // 50):
        if tab.locator(selector).count() == count:
            return
        tab.wait_for_timeout(50)
    assert tab.locator(selector).count() == count


def alter(tab: Any, path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Have `change` edit the JSON of every response of this path before the page sees it."""

    def answer(route: Any) -> None:
        response = route.fetch()
        body = response.json()
        change(body)
        route.fulfill(response=response, body=json.dumps(body))

    tab.route(path, answer)


def upload(tab: Any, file: Path, content: str) -> None:
    """Give the page a file, and wait for its rows."""
    file.write_text(content)
    tab.click("#tab-many")
    tab.set_input_files("#file", file)
    tab.click("#run")
    tab.wait_for_selector("#rows tbody tr")


def downloaded(tab: Any) -> list[str]:
    """The lines of the file that the page gives back."""
    with tab.expect_download() as caught:
        tab.click("#download")
    return Path(caught.value.path()).read_text().splitlines()


def percentages(tab: Any, selector: str) -> list[str]:
    return [text.split(" %")[0] for text in tab.locator(selector).all_inner_texts()]


def test_type_and_see(tab: Any, classifier: UncertaintyClassifier) -> None:
    type_text(tab, "a1 a2 a3")
    prediction = classifier.predict(["a1 a2 a3"])[0]
    verdict = tab.inner_text("#decision")
    assert prediction.label in verdict
    assert ("Abstain" in verdict) is prediction.abstain
    likeliest = sorted(prediction.probabilities.values(), reverse=True)
    assert percentages(tab, "#probabilities .value") == [f"{100 * p:.1f}" for p in likeliest]
    assert tab.locator("#passes circle").count() == 4 * 3
    assert tab.locator("#words .word").all_inner_texts() == ["a1", "a2", "a3"]
    assert tab.locator("#layers rect").count() == 1 + 2 * 2 + 1
    assert tab.locator("#attention canvas").count() == 3
    assert tab.locator("#attention canvas").first.evaluate(
        "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 8"
    )


def test_what_is_typed_is_shown_and_never_run(tab: Any) -> None:
    type_text(tab, "<img src=x onerror=alert(1)> <b>a1</b>")
    assert tab.locator("#result :is(img, b:not(.verdict b), script)").count() == 0
    assert tab.input_value("#text").startswith("<img")


def test_a_slider_changes_what_is_shown_and_takes_the_promise_back(tab: Any) -> None:
    type_text(tab, "a1 a2 a3")
    before = tab.inner_text("#decision")
    assert tab.is_hidden("#off")
    with tab.expect_response("**/explain"):
        tab.fill("#samples", "9")
    until_count(tab, "#passes circle", 9 * 3)
    assert "not the settings that were calibrated" in tab.inner_text("#off")
    with tab.expect_response("**/explain"):
        tab.fill("#penalty", "3")
    with tab.expect_response("**/explain"):
        tab.select_option("#gate", "none")
    until_count(tab, "#attention canvas", 0)
    with tab.expect_response("**/explain"):
        tab.click("#reset")
    until_count(tab, "#passes circle", 4 * 3)
    assert tab.inner_text("#decision") == before
    assert tab.is_hidden("#off")


def test_the_threshold_decides_without_asking_again(tab: Any) -> None:
    type_text(tab, "a1 a2 a3")
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    verdicts = []
    for value in ("0.34", "1"):
        tab.fill("#threshold", value)
        verdicts.append(tab.inner_text("#decision .badge"))
    assert verdicts[0] == "answer"
    assert verdicts[1].startswith("would say")
    assert "the threshold that was calibrated" in tab.inner_text("#off")
    assert asked == []


def test_the_keyboard_is_enough(tab: Any) -> None:
    tab.keyboard.press("Escape")
    tab.focus("#text")
    with tab.expect_response("**/explain"):
        tab.keyboard.type("a1 a2 a3")
    tab.wait_for_selector("#result[aria-busy=false] .verdict")
    tab.focus("#words .word")
    assert "of the variance" in tab.inner_text("#word-readout")
    tab.focus("#attention canvas")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#attention-readout").startswith("[CLS] → a1:")
    tab.focus("#threshold")
    tab.keyboard.press("ArrowRight")
    assert tab.is_visible("#reset")
    tab.focus("#tab-one")
    tab.keyboard.press("ArrowRight")
    assert tab.is_visible("#many")
    assert tab.evaluate("document.activeElement.id") == "tab-many"


def test_a_pair(tab: Any, classifier: UncertaintyClassifier) -> None:
    tab.click("#add-pair")
    tab.fill("#pair", "a4 a5")
    type_text(tab, "a1 a2")
    assert tab.locator("#words .words").count() == 2
    likeliest = max(classifier.predict([("a1 a2", "a4 a5")])[0].probabilities.values())
    assert percentages(tab, "#probabilities .value")[0] == f"{100 * likeliest:.1f}"


def test_upload_and_read_the_result(
    tab: Any, classifier: UncertaintyClassifier, made_texts: Callable[..., list[str]], tmp_path: Path
) -> None:
    texts = [*made_texts(60, seed=8), 'a1, "a2" <b onclick=x>\na3']
    predictions = classifier.predict(texts, check_shift=False)
    gold = [classifier.class_names[(p + (i % 3 == 0)) % 3] for i, p in enumerate(predictions.predicted)]
    lines = [
        f'{i},"{text.replace(chr(34), chr(34) * 2)}",{name}'
        for i, (text, name) in enumerate(zip(texts, gold, strict=True))
    ]
    upload(tab, tmp_path / "rows.csv", "\n".join(["id,text,label", *lines, "99,,good"]) + "\n")
    tiles = tab.inner_text("#tiles")
    order = (-predictions.logit_margin).argsort(kind="stable")  # the score of the rule; the most trusted first
    wrong = np.array([str(p.label) != name for p, name in zip(predictions, gold, strict=True)])[order]
    area = float((wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean())
    assert "61\nrows" in tiles
    assert f"{area:.3f}" in tiles
    assert f"{100 * float((~predictions.abstain).mean()):.1f} %\nanswered" in tiles
    assert "1 rows without a usable text" in tab.inner_text("#progress")
    shown = [int(text) for text in tab.locator("#rows tbody tr td:first-child").all_inner_texts()]
    assert shown[:20] == [int(i) + 2 for i in order[::-1]][:20]
    assert tab.locator("#curve polyline").count() == 1
    tab.click("#more")
    assert "<b onclick=x>" in tab.inner_text("#rows")
    columns = "id,text,label,predicted_label,answered,reason,above_threshold,cut_tokens,confidence,"
    assert downloaded(tab)[0].startswith(columns)
    tab.locator("#rows button.link").first.click()
    tab.wait_for_selector("#result[aria-busy=false] .verdict")
    assert tab.input_value("#text") == texts[shown[0] - 2]


def test_one_pass_is_a_band_and_its_spread_in_numbers(one_pass_tab: Any, one_pass: UncertaintyClassifier) -> None:
    with one_pass_tab.expect_response("**/explain") as caught:
        one_pass_tab.fill("#text", "a1 a2 a3")
    one_pass_tab.wait_for_selector("#result[aria-busy=false] .verdict")
    band = caught.value.json()["band"]
    assert one_pass_tab.inner_text("#passes-title") == "Spread"
    assert one_pass_tab.locator("#passes circle").count() == 0
    rings = one_pass_tab.locator("#passes .ring")
    assert rings.count() in (3, 6)  # a narrow band is also drawn closer
    widths = [float(rings.nth(i).get_attribute("width")) for i in range(3)]
    assert widths == sorted(widths, reverse=True)
    low, high = band["probabilities"][0], band["probabilities"][-1]
    assert widths[0] == pytest.approx((high - low) * 424, abs=0.76)
    said = one_pass_tab.inner_text("#passes")
    assert f"{band['margin']:.2f} ± {band['spread']:.2f} logits" in said
    assert f"{100 * low:.1f} % to {100 * high:.1f} %" in said


def test_out_of_scope_is_a_reason_that_no_threshold_takes_back(one_pass_tab: Any) -> None:
    outside = {"out_of_scope": True, "scope": 0.002, "abstain": True, "reason": "out of scope"}
    alter(one_pass_tab, "**/explain", lambda body: body["answer"].update(outside))
    type_text(one_pass_tab, "a1 a2 a3")
    assert one_pass_tab.inner_text("#decision .reason") == "out of scope"
    assert "p-value, out of scope" in one_pass_tab.inner_text("#numbers")
    one_pass_tab.fill("#threshold", "0")
    assert "Abstain" in one_pass_tab.inner_text("#decision")
    assert "out of scope (p-value 0.002), and no threshold answers it" in one_pass_tab.inner_text("#decision")


def test_the_sentences_come_first(one_pass_tab: Any, one_pass: UncertaintyClassifier) -> None:
    type_text(one_pass_tab, "a1 a2 a3")
    assert one_pass_tab.inner_text("#decision .sentences") == str(one_pass.explain("a1 a2 a3").summary)


def test_words_are_coloured_by_what_is_chosen(one_pass_tab: Any, one_pass: UncertaintyClassifier) -> None:
    type_text(one_pass_tab, "a1 a2 a3")
    explanation = one_pass.explain("a1 a2 a3")
    values = {
        "share": [word.share for word in explanation.words],
        "uncertainty": [word.uncertainty for word in explanation.words],
        "masking": [explanation.prediction.confidence - word.masked_confidence for word in explanation.words],
    }
    assert one_pass_tab.input_value("#colour") == "share"
    for by, expected in values.items():
        one_pass_tab.select_option("#colour", by)
        one_pass_tab.wait_for_selector("#result[aria-busy=false] .verdict")
        grounds = one_pass_tab.locator("#words .word").evaluate_all("words => words.map(word => word.style.background)")
        strengths = [int(re.search(r"(\d+)%", ground).group(1)) for ground in grounds]
        most = max(range(3), key=lambda i: abs(expected[i]))
        assert strengths[most] == max(strengths) > 0
        assert ("--cold" in grounds[most]) is (expected[most] < 0)


def test_an_unsure_text_says_so(one_pass_tab: Any) -> None:
    alter(one_pass_tab, "**/explain", lambda body: body["answer"].update(out_of_scope=False, scope=0.5))
    type_text(one_pass_tab, "a1 a2 a3")
    one_pass_tab.fill("#threshold", one_pass_tab.get_attribute("#threshold", "max"))
    assert one_pass_tab.inner_text("#decision .reason") == "below the threshold"
    assert "It would abstain: its logit margin of" in one_pass_tab.inner_text("#decision .sentences")
    one_pass_tab.fill("#threshold", one_pass_tab.get_attribute("#threshold", "min"))
    assert one_pass_tab.locator("#decision .reason").count() == 0


def test_what_one_pass_cannot_know_is_a_dash(one_pass_tab: Any, tmp_path: Path) -> None:
    unknown = {"expected_entropy": None, "mutual_information": None, "variance": None}
    alter(one_pass_tab, "**/explain", lambda body: body["answer"]["uncertainty"].update(unknown))
    type_text(one_pass_tab, "a1 a2 a3")
    dashes = one_pass_tab.locator("#numbers dd .unknown")
    assert dashes.all_inner_texts() == ["–"] * 3
    assert dashes.first.get_attribute("title") == "one pass cannot know this"

    def outside(body: dict[str, Any]) -> None:
        for i, answer in enumerate(body["predictions"]):
            answer["uncertainty"] |= unknown
            answer |= {"scope": [0.5, 0.001, 0.2][i], "out_of_scope": i == 1, "abstain": i == 1}
            answer |= {"reason": "out of scope" if i == 1 else "answered"}

    alter(one_pass_tab, "**/predict", outside)
    upload(one_pass_tab, tmp_path / "rows.csv", "text\na1 a2\na3 a4\na5 a6\n")
    assert "1\nout of scope" in one_pass_tab.inner_text("#tiles")
    assert one_pass_tab.locator("#rows .unknown").count() == 3
    orders = one_pass_tab.locator("#order option").all_inner_texts()
    assert orders == ["what to review first", "least in scope", "order of the file"]
    one_pass_tab.select_option("#order", "scope")
    assert one_pass_tab.locator("#rows tbody tr td:first-child").all_inner_texts() == ["3", "4", "2"]
    assert "out of scope" in one_pass_tab.locator("#rows tbody tr").first.inner_text()
    header, *rows = downloaded(one_pass_tab)
    assert header.split(",")[3] == "reason"
    assert [row.split(",")[3] for row in rows] == ["answered", "out of scope", "answered"]


@pytest.mark.parametrize("name", ["one_pass", "labeler", "tagger"])
def test_the_menu_of_risks(tab_of: Any, address_of: Any, name: str, request: pytest.FixtureRequest) -> None:
    calibration = request.getfixturevalue(name).calibration_
    menu, several = calibration.menu, name != "one_pass"
    assert 0 < sum(line.rule is not None for line in menu.lines) < len(menu.lines)
    with tab_of(address_of(name)) as tab:
        assert tab.is_hidden("#menu-curve")
        tab.click("#about summary")
        unit = "texts" if several else "rows"
        assert f"{menu.texts:,} labelled {unit}" in tab.inner_text("#menu-hint")
        rows = tab.locator("#menu-lines tbody tr").all_inner_texts()
        for line, row in zip(menu.lines, rows, strict=True):
            assert row.startswith(f"{line.target:.0%}".replace("%", " %"))
            if line.rule is not None:
                assert f"{100 * line.rule.coverage:.1f} %" in row
            else:
                needed = (
                    f"{line.texts_needed:,} labelled {unit}" if line.texts_needed else f"more {unit} will hardly help"
                )
                assert needed in row
        if several:
            assert tab.locator("#menu-curve svg").count() == 0
        else:
            assert tab.locator("#menu-curve .area, #menu-curve .curve").count() == 2
            points = tab.get_attribute("#menu-curve .curve", "points").split()
            assert len(points) == len(menu.curve.coverages)
            assert tab.inner_text("#comparison") == calibration.comparison.describe()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_phone(tab_of: Any, address_of: Any, width: int, scheme: str) -> None:
    with tab_of(address_of("one_pass"), viewport={"width": width, "height": 800}, color_scheme=scheme) as tab:
        tab.click("#about summary")
        type_text(tab, "a1 a2 a3 " * 5)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in ground[4:-1].split(",")) > 3 * 128) is (scheme == "light")


def test_the_page_of_the_api_loads_nothing_from_elsewhere(tab_of: Any, address_of: Any) -> None:
    with tab_of(address_of("classifier"), "/docs", "main[aria-busy=false]") as tab:
        assert "/predict" in tab.inner_text("main")
        assert "at most 128 items" in tab.inner_text("main")


def test_the_token_is_asked_for(tab_of: Any, running: Any, classifier: UncertaintyClassifier) -> None:
    with (
        running(classifier, token="correct-horse-battery") as address,
        tab_of(address, ready="#access:visible", complains=True) as tab,
    ):
        tab.fill("#token", "correct-horse-battery")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#served strong")
        type_text(tab, "a1 a2")
