"""Every page in a real browser and as text: no error, no request, nothing wider than a phone, all texts escaped."""

from html.parser import HTMLParser

import pytest

from uatlite.lab.paper.claims import Findings, Reproduction
from uatlite.lab.paper.declaration import Declaration
from uatlite.lab.report.explanation_page import write_explanation
from uatlite.lab.report.figures import filled
from uatlite.lab.report.tables import Column, Entry, Row, Table

HOSTILE = "<script>alert(1)</script> <b>bold</b> ![image](http://elsewhere/x.png) `code`"
PAGES = ("report", "explanation", "made")


@pytest.fixture(scope="module", params=PAGES)
def shown(request, page, explanation, tmp_path_factory):
    """One of the pages; the last one is made of texts that a hostile user wrote."""
    path = tmp_path_factory.mktemp("pages") / "page.html"
    if request.param == "report":
        return page
    if request.param == "explanation":
        write_explanation(explanation, path)
        return path
    row = Row(HOSTILE, (Entry(HOSTILE, interval=HOSTILE), Entry("–")), note=HOSTILE)
    table = Table(HOSTILE, (Column(HOSTILE), Column("", number=False)), (row,), notes=(HOSTILE,), corner=HOSTILE)
    made = Reproduction(Declaration("made", HOSTILE, HOSTILE, ()), (), (HOSTILE,))
    values = {
        "title": HOSTILE,
        "settings": (HOSTILE,),
        "findings": Findings(()),
        "models": table,
        "claims": {HOSTILE: f"{HOSTILE}\n\n1. one\n2. two"},
        "tables": [(made, [], [], [HOSTILE])],
    }
    path.write_text(filled("paper.html.j2", **values), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_page_opens_alone_and_fits_the_screen(browser, shown, scheme, width):
    tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    said = []
    asked = []
    tab.on("console", lambda message: said.append(message.text))  # breaches of its own policy are told here
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(shown.as_uri(), wait_until="load")
    assert said == []
    assert [address for address in asked if not address.startswith("data:")] == [shown.as_uri()]
    assert tab.locator("script, b, img").count() == 0  # what a user typed, and what a class is called, is text
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    drawn = tab.evaluate("[...document.querySelectorAll('svg.figure')].map(s => s.getBoundingClientRect().width)")
    assert min(drawn, default=180) >= 180
    element, property = ("svg.figure text", "fill") if drawn else ("h1", "color")
    ink = tab.evaluate(f"getComputedStyle(document.querySelector('{element}')).{property}")
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert contrast(ink, ground) >= 7
    tab.close()


@pytest.fixture
def report_at(browser, page):
    """`report_at(width)`: the report of an evaluation in a window so wide."""
    tabs = []

    def opened(width):
        tabs.append(browser.new_page(viewport={"width": width, "height": 800}))
        tabs[-1].goto(page.as_uri())
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.close()


def test_on_a_phone_a_table_that_goes_on_says_so_and_axes_can_be_read(report_at):
    tab = report_at(390)
    silent = """[...document.querySelectorAll('.scroll')].filter((table) => table.scrollWidth > table.clientWidth
        && !table.nextElementSibling?.matches('.swipe')).map((table) => table.ariaLabel)"""
    assert tab.evaluate(silent) == []
    assert tab.locator(".swipe").first.inner_text() == "3 columns beside the first: swipe the table sideways."
    assert tab.locator(".swipe").first.is_visible()
    sizes = """[...document.querySelectorAll('svg.figure text')].map((text) => {
        const svg = text.ownerSVGElement;
        return parseFloat(getComputedStyle(text).fontSize) * svg.clientWidth / svg.viewBox.baseVal.width})"""
    assert min(tab.evaluate(sizes)) >= 10.5
    assert report_at(1280).locator(".swipe:visible").count() == 0


def test_five_reliability_plots_stand_in_one_row(report_at):
    tops = "[...document.querySelector('.named').children].map((figure) => figure.getBoundingClientRect().top)"
    tab = report_at(1280)
    assert len(tab.evaluate(tops)) == 5
    assert len(set(tab.evaluate(tops))) == 1


def contrast(first, second):
    """The contrast ratio of WCAG 2 between two 'rgb(r, g, b)'."""

    def luminance(colour):
        channels = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def elements(page):
    """Every element with its attributes."""
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(page.read_text(encoding="utf-8"))
    return found


def test_nothing_is_from_elsewhere_and_all_is_named(shown):
    found = elements(shown)
    for tag, attributes in found:
        assert tag not in ("script", "iframe", "img", "object", "embed", "b")
        for name in ("src", "href", "xlink:href", "data", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), f"{tag} {name}={address}"
    css = shown.read_text(encoding="utf-8").split("</style>")[0]
    assert "@import" not in css
    assert "url(" not in css
    tables = sum(tag == "table" for tag, _ in found)
    regions = [attributes for _, attributes in found if attributes.get("role") == "region"]
    assert len(regions) >= tables > 0
    assert all(region["aria-label"] for region in regions)
    assert sum(tag == "h1" for tag, _ in found) == 1
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    labels = {attributes["aria-labelledby"] for _, attributes in found if "aria-labelledby" in attributes}
    assert {name for label in labels if label for name in label.split()} <= set(ids)


def test_what_is_missing_to_draw_a_page_is_named(monkeypatch):
    from uatlite.errors import MissingDependency
    from uatlite.lab.report import figures

    figures._environment.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingDependency, match="jinja2"):
        filled("paper.html.j2")
