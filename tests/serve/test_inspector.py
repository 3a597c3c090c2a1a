"""The page in a real browser: type, see, move a slider, upload, read the result; no request to another host."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.metrics.selective import aurc

SHOT = {"width": 1280, "height": 900}
PATIENCE = 120_000
"""Milliseconds for whatever a test waits for: a busy machine is slow and not wrong."""


@pytest.fixture(scope="module")
def address(running: Any, classifier: UncertaintyClassifier) -> Iterator[str]:
    with running(classifier) as found:
        yield found


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Any]:
    """The page, open; whatever the browser complains about, or asks of another host, fails the test."""
    made = opened(browser, SHOT)
    said: list[str] = []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("request", lambda request: None if request.url.startswith((address, "blob:")) else said.append(request.url))
    made.goto(address)
    made.wait_for_selector("#served strong")
    yield made
    made.close()
    assert said == []


def opened(browser: Any, viewport: dict[str, int], scheme: str = "light") -> Any:
    page = browser.new_page(viewport=viewport, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    return page


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
    assert "uncertainty" in tab.inner_text("#word-readout")
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
    (tmp_path / "rows.csv").write_text("\n".join(["id,text,label", *lines, "99,,good"]) + "\n")
    tab.click("#tab-many")
    tab.set_input_files("#file", tmp_path / "rows.csv")
    tab.click("#run")
    tab.wait_for_selector("#rows tbody tr")
    tiles = tab.inner_text("#tiles")
    area = aurc(predictions.probabilities, [classifier.class_names.index(name) for name in gold])
    assert "61\nrows" in tiles
    assert f"{area:.3f}" in tiles
    assert f"{100 * float((~predictions.abstain).mean()):.1f} %\nanswered" in tiles
    assert "1 rows without a usable text" in tab.inner_text("#progress")
    shown = [int(text) for text in tab.locator("#rows tbody tr td:first-child").all_inner_texts()]
    order = [int(i) + 2 for i in predictions.confidence.argsort(kind="stable")]
    assert shown[:20] == order[:20]
    assert tab.locator("#curve polyline").count() == 1
    tab.click("#more")
    assert "<b onclick=x>" in tab.inner_text("#rows")
    with tab.expect_download() as caught:
        tab.click("#download")
    rows = Path(caught.value.path()).read_text().splitlines()
    assert rows[0].startswith("id,text,label,predicted_label,answered,confidence,")
    tab.locator("#rows button.link").first.click()
    tab.wait_for_selector("#result[aria-busy=false] .verdict")
    assert tab.input_value("#text") == texts[shown[0] - 2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_phone(browser: Any, address: str, width: int, scheme: str) -> None:
    made = opened(browser, {"width": width, "height": 800}, scheme)
    made.goto(address)
    made.wait_for_selector("#served strong")
    type_text(made, "a1 a2 a3 " * 5)
    assert made.evaluate("document.documentElement.scrollWidth") <= width
    ground = made.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) > 3 * 128) is (scheme == "light")
    made.close()


def test_the_page_of_the_api_loads_nothing_from_elsewhere(browser: Any, address: str) -> None:
    made = opened(browser, SHOT)
    asked: list[str] = []
    made.on("request", lambda request: asked.append(request.url))
    made.goto(f"{address}/docs")
    made.wait_for_selector("main[aria-busy=false]")
    assert "/predict" in made.inner_text("main")
    assert "at most 128 items" in made.inner_text("main")
    assert all(url.startswith(address) for url in asked)
    made.close()


def test_the_token_is_asked_for(browser: Any, running: Any, classifier: UncertaintyClassifier) -> None:
    with running(classifier, token="correct-horse-battery") as locked:
        made = opened(browser, SHOT)
        made.goto(locked)
        made.wait_for_selector("#access:visible")
        made.fill("#token", "correct-horse-battery")
        made.keyboard.press("Enter")
        made.wait_for_selector("#served strong")
        type_text(made, "a1 a2")
        made.close()
