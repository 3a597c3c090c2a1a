"""The page in a real browser: no error, no request, nothing wider than a phone, figures in both colour schemes."""

from pathlib import Path
from typing import Any

import pytest

WIDTHS = (320, 390, 768, 1280)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_an_error_or_a_request(browser: Any, page: Path, scheme: str) -> None:
    tab = browser.new_page(color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri(), wait_until="load")
    assert said == []
    assert [address for address in asked if not address.startswith("data:")] == [page.as_uri()]
    tab.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_screen(browser: Any, page: Path, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 800})
    tab.goto(page.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    drawn = tab.evaluate("[...document.querySelectorAll('svg.figure')].map(s => s.getBoundingClientRect().width)")
    assert min(drawn) >= 180
    tab.close()


def test_figures_change_their_ink_with_the_scheme(browser: Any, page: Path) -> None:
    ink = {}
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto(page.as_uri())
        ink[scheme] = tab.evaluate("getComputedStyle(document.querySelector('svg.figure text')).fill")
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert contrast(ink[scheme], ground) >= 7
        tab.close()
    assert ink["light"] != ink["dark"]


def contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2 between two 'rgb(r, g, b)'."""

    def luminance(colour: str) -> float:
        channels = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
