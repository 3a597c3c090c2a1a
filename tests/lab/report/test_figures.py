"""Figures: what is kept of them, and that drawing leaves matplotlib as it was."""

import csv
import io
import re
from pathlib import Path

import matplotlib
import pytest

from uatlite.lab.report.curves import SetFigures, scores_figure, set_figures, strokes
from uatlite.lab.report.evaluation import Evaluation
from uatlite.lab.report.figures import ROLES, RenderedFigure, file_name


@pytest.fixture(scope="module")
def drawn(opened: Evaluation) -> SetFigures:
    before = dict(matplotlib.rcParams)
    found = set_figures(opened, opened.results.sets[0])
    assert dict(matplotlib.rcParams) == before
    return found


def test_each_set_has_scores_curves_thresholds_and_a_reliability_for_each_contender(drawn: SetFigures) -> None:
    names = [figure.name for figure in drawn.every]
    assert names[:3] == ["ece-toy-test", "nll-toy-test", "aurc-toy-test"]
    assert names[3:5] == ["risk-coverage-toy-test", "thresholds-toy-test"]
    assert names[5:] == [f"reliability-toy-test-{name}" for name in ("base", "base-ts", "mc-uniform", "uat", "uat-ts")]


def test_a_figure_is_written_as_svg_png_and_its_numbers(drawn: SetFigures, tmp_path: Path) -> None:
    paths = drawn.risk_coverage.write(tmp_path)
    assert [path.suffix for path in paths] == [".svg", ".png", ".csv"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(paths[2].read_text())))
    assert {row["method"] for row in rows} == {"base", "base+ts", "mc-uniform", "uat", "uat+ts"}
    assert all(0 <= float(row["risk"]) <= 1 for row in rows)


def test_the_same_numbers_give_the_same_files(drawn: SetFigures, opened: Evaluation) -> None:
    assert scores_figure(opened.results.sets[0], "ece", strokes(opened.contenders)) == drawn.scores[0]


def test_inside_a_page_colours_are_roles_and_ids_are_the_figures_own(drawn: SetFigures) -> None:
    ids: list[str] = []
    for figure in drawn.every:
        inline = figure.inline
        assert set(re.findall("#[0-9a-f]{6}", inline)) <= {"#000000"}
        assert not [colour for colour in ROLES if colour in inline]
        assert inline.startswith('<svg class="figure" role="img"')
        own = re.findall(r'\bid="([^"]+)"', inline)
        assert all(name.startswith(f"{figure.name}-") for name in own)
        used = {a or b for a, b in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', inline)}
        assert used <= set(own)
        ids += own
    assert len(ids) == len(set(ids))


def test_titles_and_descriptions_are_escaped() -> None:
    svg = '<?xml version="1.0"?><svg height="1" viewBox="0 0 1 1"><g id="a"></g></svg>'
    found = RenderedFigure("name", "a < b", "<script>", svg, b"", "").inline
    assert '<title id="name-title">a &lt; b</title>' in found
    assert "&lt;script&gt;" in found
    assert "<script>" not in found


def test_calibrated_forms_share_the_colour_of_their_method(opened: Evaluation) -> None:
    found = strokes(opened.contenders)
    assert found["base"].colour == found["base+ts"].colour != found["uat"].colour
    assert found["base"].dash == "solid" != found["base+ts"].dash


def test_names_are_safe_as_files() -> None:
    assert file_name("reliability-sst2/test-uat:gate=k+ts") == "reliability-sst2-test-uat-gate-k-ts"
