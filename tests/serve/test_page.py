"""The page in a real browser, of one answer a text and of several: type, see, change, upload; nobody else is asked."""

import json
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from serve.clients import running

PATIENCE = 120_000
"""Milliseconds for whatever a test waits for: a busy machine is slow and not wrong."""
SERVED, SEVERAL = "#served strong", "#several:not([hidden])"
"""What is there once the page of one answer a text, or of several, is ready."""


@pytest.fixture(scope="module")
def address_of(request):
    """`address_of("labeler")`: the service of a product, by the name of its fixture; it runs until the module ends."""
    with ExitStack() as stack:
        yield cache(lambda product: stack.enter_context(running(request.getfixturevalue(product))))


@pytest.fixture
def page(browser, address_of):
    """`page(product, ready=SERVED, path="", complains=False, **options)`: the page of its service, open.

    Whatever the browser complains about, or asks of another host, fails the test, unless it `complains`.
    """
    tabs, said = [], []

    def opened(product, ready=SERVED, *, path="", complains=False, **options):
        address = product if product.startswith("http") else address_of(product)
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"} | options)
        tabs.append(tab)
        tab.set_default_timeout(PATIENCE)
        if not complains:
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda sent: None if sent.url.startswith((address, "blob:")) else said.append(sent.url))
        tab.goto(address + path)
        tab.wait_for_selector(ready)
        return tab

    yield opened
    for tab in tabs:
        tab.close()
    assert said == []


@pytest.fixture
def tab(page, request):
    """The page of the product that a test names, or of a classifier that samples."""
    return page(getattr(request, "param", "classifier"))


ONE_PASS = pytest.mark.parametrize("tab", ["one_pass"], indirect=True)


def explained(tab, act, field=""):
    """Do what has a text explained, and wait for it: the answer of the service."""
    with tab.expect_response("**/explain") as caught:
        act()
    tab.wait_for_selector(f"#{'answers' if field else 'result'}[aria-busy=false] .verdict")
    return caught.value


def type_text(tab, text, prefix=""):
    """Type into the page, and wait for the explanation, which is returned; `prefix` is that of the field."""
    return explained(tab, lambda: tab.fill(f"#{prefix}text", text), prefix).json()


def alter(tab, path, change):
    """Have `change` edit the JSON of every response of this path before the page sees it."""

    def answer(route):
        response = route.fetch()
        body = response.json()
        change(body)
        route.fulfill(response=response, body=json.dumps(body))

    tab.route(path, answer)


def upload(tab, file, content):
    """Give the page a file, and wait for its rows."""
    file.write_text(content)
    tab.click("#tab-many")
    tab.set_input_files("#file", file)
    tab.click("#run")
    tab.wait_for_selector("#rows tbody tr")


def downloaded(tab):
    """The lines of the file that the page gives back."""
    with tab.expect_download() as caught:
        tab.click("#download")
    return Path(caught.value.path()).read_text().splitlines()


def percentages(tab, selector):
    return [text.split(" %")[0] for text in tab.locator(selector).all_inner_texts()]


def strengths(grounds):
    """The per cent of colour behind each element."""
    return grounds.evaluate_all("all => all.map((each) => Number(each.style.background.match(/(\\d+)%/)[1]))")


def test_type_and_see(tab, classifier):
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


def test_the_maps_of_attention_name_long_tokens_in_full(tab):
    """Of a few tokens; a name that would take half the map is cut."""
    tab.evaluate(
        "() => { window.drawn = new Set(); const before = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {"
        "window.drawn.add(text); before.call(this, text, ...where); }; }"
    )
    tokens = ["incomprehensible", "incomprehensible" * 4]
    alter(tab, "**/explain", lambda body: body["attention"]["tokens"].__setitem__(1, tokens.pop(0)))
    type_text(tab, "a1 a2 a3")
    tab.wait_for_function("() => window.drawn.has('incomprehensible')")
    assert not [text for text in tab.evaluate("() => [...window.drawn]") if "…" in text]
    type_text(tab, "a1 a2")
    tab.wait_for_function("() => [...window.drawn].some((text) => text.length > 16 && text.endsWith('…'))")


def test_what_is_typed_is_shown_and_never_run(tab):
    type_text(tab, "<img src=x onerror=alert(1)> <b>a1</b>")
    assert tab.locator("#result :is(img, b:not(.verdict b), script)").count() == 0
    assert tab.input_value("#text").startswith("<img")


def test_a_slider_changes_what_is_shown_and_takes_the_promise_back(tab):
    from playwright.sync_api import expect

    type_text(tab, "a1 a2 a3")
    before = tab.inner_text("#decision")
    assert tab.is_hidden("#off")
    explained(tab, lambda: tab.fill("#samples", "9"))
    expect(tab.locator("#passes circle")).to_have_count(9 * 3, timeout=PATIENCE)
    assert "not the settings that were calibrated" in tab.inner_text("#off")
    explained(tab, lambda: tab.fill("#penalty", "3"))
    explained(tab, lambda: tab.select_option("#gate", "none"))
    expect(tab.locator("#attention canvas")).to_have_count(0, timeout=PATIENCE)
    explained(tab, lambda: tab.click("#reset"))
    expect(tab.locator("#passes circle")).to_have_count(4 * 3, timeout=PATIENCE)
    assert tab.inner_text("#decision") == before
    assert tab.is_hidden("#off")


def test_the_threshold_decides_without_asking_again(tab):
    type_text(tab, "a1 a2 a3")
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    verdicts = []
    for value in ("0.34", "1"):
        tab.fill("#threshold", value)
        verdicts.append(tab.inner_text("#decision .badge"))
    assert verdicts[0] == "answer"
    assert verdicts[1].startswith("would say")
    assert "the threshold that was calibrated" in tab.inner_text("#off")
    assert asked == []


def test_the_keyboard_is_enough(tab):
    tab.keyboard.press("Escape")
    tab.focus("#text")
    explained(tab, lambda: tab.keyboard.type("a1 a2 a3"))
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


def test_a_pair(tab, classifier):
    tab.click("#add-pair")
    tab.fill("#pair", "a4 a5")
    type_text(tab, "a1 a2")
    assert tab.locator("#words .words").count() == 2
    likeliest = max(classifier.predict([("a1 a2", "a4 a5")])[0].probabilities.values())
    assert percentages(tab, "#probabilities .value")[0] == f"{100 * likeliest:.1f}"


def test_upload_and_read_the_result(tab, classifier, made_texts, tmp_path):
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
    watched = tab.evaluate("fetch('model').then((reply) => reply.json())")["watch"]
    assert (tab.inner_text("#many-shift"), watched["texts"]) == (
        watched["verdict"],
        61,
    )  # of all rows, not the last piece
    assert tab.get_attribute("#many-shift", "class") == watched["level"]
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


@ONE_PASS
def test_one_pass_is_a_band_and_its_spread_in_numbers(tab, one_pass):
    band = type_text(tab, "a1 a2 a3")["band"]
    assert tab.inner_text("#passes-title") == "Spread"
    assert tab.locator("#passes circle").count() == 0
    rings = tab.locator("#passes .ring")
    assert rings.count() in (3, 6)  # a narrow band is also drawn closer
    widths = [float(rings.nth(i).get_attribute("width")) for i in range(3)]
    assert widths == sorted(widths, reverse=True)
    low, high = band["probabilities"][0], band["probabilities"][-1]
    assert widths[0] == pytest.approx((high - low) * 424, abs=0.76)
    said = tab.inner_text("#passes")
    assert f"{band['margin']:.2f} ± {band['spread']:.2f} logits" in said
    assert f"{100 * low:.1f} % to {100 * high:.1f} %" in said


@ONE_PASS
def test_out_of_scope_is_a_reason_that_no_threshold_takes_back(tab):
    outside = {"out_of_scope": True, "scope": 0.002, "abstain": True, "reason": "out of scope"}
    alter(tab, "**/explain", lambda body: body["answer"].update(outside))
    type_text(tab, "a1 a2 a3")
    assert tab.inner_text("#decision .reason") == "out of scope"
    assert "p-value, out of scope" in tab.inner_text("#numbers")
    tab.fill("#threshold", "0")
    assert "Abstain" in tab.inner_text("#decision")
    assert "out of scope (p-value 0.002), and no threshold answers it" in tab.inner_text("#decision")


@ONE_PASS
def test_the_sentences_come_first_and_words_are_coloured_by_what_is_chosen(tab, one_pass):
    type_text(tab, "a1 a2 a3")
    explanation = one_pass.explain("a1 a2 a3")
    assert tab.inner_text("#decision .sentences") == str(explanation.summary)
    values = {
        "share": [word.share for word in explanation.words],
        "uncertainty": [word.uncertainty for word in explanation.words],
        "masking": [explanation.prediction.confidence - word.masked_confidence for word in explanation.words],
    }
    assert tab.input_value("#colour") == "share"
    for by, expected in values.items():
        tab.select_option("#colour", by)
        tab.wait_for_selector("#result[aria-busy=false] .verdict")
        grounds = tab.locator("#words .word").evaluate_all("words => words.map(word => word.style.background)")
        shades = strengths(tab.locator("#words .word"))
        most = max(range(3), key=lambda i: abs(expected[i]))
        assert shades[most] == max(shades) > 0
        assert ("--cold" in grounds[most]) is (expected[most] < 0)


@ONE_PASS
def test_an_unsure_text_says_so(tab):
    alter(tab, "**/explain", lambda body: body["answer"].update(out_of_scope=False, scope=0.5))
    type_text(tab, "a1 a2 a3")
    tab.fill("#threshold", tab.get_attribute("#threshold", "max"))
    assert tab.inner_text("#decision .reason") == "below the threshold"
    assert "It would abstain: its logit margin of" in tab.inner_text("#decision .sentences")
    tab.fill("#threshold", tab.get_attribute("#threshold", "min"))
    assert tab.locator("#decision .reason").count() == 0


@ONE_PASS
def test_what_one_pass_cannot_know_is_a_dash(tab, tmp_path):
    unknown = {"expected_entropy": None, "mutual_information": None, "variance": None}
    alter(tab, "**/explain", lambda body: body["answer"]["uncertainty"].update(unknown))
    type_text(tab, "a1 a2 a3")
    dashes = tab.locator("#numbers dd .unknown")
    assert dashes.all_inner_texts() == ["–"] * 3
    assert dashes.first.get_attribute("title") == "one pass cannot know this"

    def outside(body):
        for i, answer in enumerate(body["predictions"]):
            answer["uncertainty"] |= unknown
            answer |= {"scope": [0.5, 0.001, 0.2][i], "out_of_scope": i == 1, "abstain": i == 1}
            answer |= {"reason": "out of scope" if i == 1 else "answered"}

    alter(tab, "**/predict", outside)
    upload(tab, tmp_path / "rows.csv", "text\na1 a2\na3 a4\na5 a6\n")
    assert "1\nout of scope" in tab.inner_text("#tiles")
    assert tab.locator("#rows .unknown").count() == 3
    orders = tab.locator("#order option").all_inner_texts()
    assert orders == ["what to review first", "least in scope", "order of the file"]
    tab.select_option("#order", "scope")
    assert tab.locator("#rows tbody tr td:first-child").all_inner_texts() == ["3", "4", "2"]
    assert "out of scope" in tab.locator("#rows tbody tr").first.inner_text()
    header, *rows = downloaded(tab)
    assert header.split(",")[3] == "reason"
    assert [row.split(",")[3] for row in rows] == ["answered", "out of scope", "answered"]


@pytest.mark.parametrize("name", ["one_pass", "labeler", "tagger"])
def test_the_menu_of_risks(page, name, request):
    calibration = request.getfixturevalue(name).calibration_
    menu, several = calibration.menu, name != "one_pass"
    assert 0 < sum(line.rule is not None for line in menu.lines) < len(menu.lines)
    tab = page(name, SEVERAL if several else SERVED)
    assert tab.is_hidden("#menu-curve")
    tab.click("#about summary")
    assert menu.counted in tab.inner_text("#menu-hint")
    rows = tab.locator("#menu-lines tbody:not(#menu-reviews) tr").all_inner_texts()
    for line, errors, row in zip(menu.lines, menu.errors, rows, strict=True):
        assert row.startswith(f"{line.target:.0%}".replace("%", " %"))
        for cell in (line, errors):
            assert (f"{100 * cell.rule.coverage:.1f} %" if cell.rule else cell.needed.describe()) in row
    every, rule = (*menu.lines, *menu.errors, *menu.reviews), calibration.rule
    served = [line for line in every if rule.promised and line.rule and line.rule.threshold == rule.threshold]
    assert tab.locator("#menu-lines .badge").count() == len(served)
    reviews = tab.locator("#menu-reviews tr").all_inner_texts()
    for line, row in zip(menu.reviews, reviews, strict=True):
        assert f"of the others at most {100 * line.rule.risk_bound:.1f} % wrong" in row
    if several:
        assert tab.locator("#menu-curve svg").count() == 0
    else:
        assert tab.locator("#menu-curve .area, #menu-curve .curve").count() == 2
        points = tab.get_attribute("#menu-curve .curve", "points").split()
        assert len(points) == len(menu.curve.coverages)
        assert tab.inner_text("#comparison") == calibration.comparison.describe()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_it_fits_a_phone(page, width, scheme):
    tab = page("one_pass", viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.click("#about summary")
    type_text(tab, "a1 a2 a3 " * 5)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) > 3 * 128) is (scheme == "light")


@pytest.mark.parametrize(
    ("product", "ready", "prefix", "settings"),
    [("one_pass", SERVED, "", "#settings"), ("labeler", SEVERAL, "several-", "#several-promise")],
)
def test_a_phone_shows_the_decision_before_the_settings(page, product, ready, prefix, settings):
    tab = page(product, ready, viewport={"width": 390, "height": 800})
    type_text(tab, "a1 a2 a3", prefix)
    tops = [tab.locator(part).bounding_box()["y"] for part in (f"#{prefix}text", f"#{prefix}decision", settings)]
    assert tops == sorted(tops)


def test_the_page_of_the_api_loads_nothing_from_elsewhere(page):
    tab = page("classifier", "main[aria-busy=false]", path="/docs")
    assert "/predict" in tab.inner_text("main")
    assert "at most 128 items" in tab.inner_text("main")


def test_the_token_is_asked_for(page, classifier):
    with running(classifier, token="correct-horse-battery") as address:
        tab = page(address, "#access:visible", complains=True)
        tab.fill("#token", "correct-horse-battery")
        tab.keyboard.press("Enter")
        tab.wait_for_selector(SERVED)
        type_text(tab, "a1 a2")


def check_origins(tab, expected):
    """The words and layers that the uncertainty of one answer comes from are drawn."""
    words = tab.locator("#origin-words .word")
    assert words.all_inner_texts() == [word.word.text for word in expected.words]
    shares, grounds = [word.share for word in expected.words], strengths(words)
    assert grounds.index(max(grounds)) == shares.index(max(shares))
    assert tab.locator("#origin-layers rect").count() == len(expected.layers)


def test_labels_are_bars_with_thresholds_and_a_click_explains_one(page, labeler):
    tab = page("labeler", SEVERAL)
    assert "4 labels: anger, joy, fear, relief" in tab.inner_text("#served")
    assert tab.inner_text("#several-promise") == labeler.calibration_.rule.describe()
    assert tab.is_hidden("#tabs")
    reply = type_text(tab, "a1 a2 a3 <b>", "several-")
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
    assert explained(tab, row.click, "several-").request.post_data_json["label"] == other
    assert other in tab.inner_text("#origins-title")
    assert row.get_attribute("aria-pressed") == "true"
    check_origins(tab, labeler.explain("a1 a2 a3 <b>", other))


def test_entities_are_shaded_and_a_click_explains_one(page, tagger, made_texts):
    predictions = tagger.predict(made_texts(40, seed=7), check_shift=False)
    mixed = next(said for said in predictions if len({entity.reported for entity in said.entities}) == 2)
    tab, text = page("tagger", SEVERAL), f"{mixed.text} <b>"
    assert "2 types of entities: person, place" in tab.inner_text("#served")
    reply = type_text(tab, text, "several-")
    found, buttons = reply["answer"]["entities"], tab.locator("#entities .entity")
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
    assert explained(tab, buttons.nth(other).click, "several-").request.post_data_json["entity"] == other
    assert f"“{found[other]['text']}”" in tab.inner_text("#origins-title")
    check_origins(tab, tagger.explain(text, other))
    type_text(tab, next(said.text for said in predictions if not said.entities), "several-")
    assert tab.is_hidden("#origins-card")
    assert tab.inner_text("#several-decision b") == "no entity reported"


def test_a_text_too_long_to_explain_is_answered(page):
    tab = page("labeler", SEVERAL, complains=True)  # the browser itself complains of the refusal
    with tab.expect_response("**/predict"):
        tab.fill("#several-text", "a1 a2 " * 400)
    tab.wait_for_selector("#answers[aria-busy=false] .verdict")
    assert tab.locator("#labels .label-row").count() == 4
    assert tab.is_hidden("#origins-card")
    assert "at most 2000" in tab.inner_text("#alert")


def test_nothing_typed_shows_nothing(page):
    tab = page("labeler", SEVERAL, viewport={"width": 360, "height": 800})
    type_text(tab, "a1 a2", "several-")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    tab.fill("#several-text", "  ")
    tab.wait_for_selector("#several-empty:not([hidden])")
    assert tab.is_hidden("#several-found")
