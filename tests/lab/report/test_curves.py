"""The numbers behind the figures, against counts that a reader can check and the metrics; and what is kept of figures.

Drawing leaves matplotlib as it was.
"""

import csv
import io
import math
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import binomtest

from uatlite.lab.evaluate.outcomes import Outcome
from uatlite.lab.report import curves
from uatlite.lab.report.evaluation import abstain
from uatlite.lab.report.figures import ROLES, RenderedFigure, file_name
from uatlite.metrics.accuracy import accuracy
from uatlite.metrics.calibration import ece
from uatlite.metrics.intervals import METRICS
from uatlite.metrics.rows import Rows
from uatlite.metrics.selective import aurc


def outcome(confidence, right):
    """Two classes: class 1 is always predicted, and it is right where `right` says so."""
    p = np.array(confidence)
    rows = Rows.of(np.column_stack([1 - p, p]), np.array(right))
    return Outcome(rows, rows)


def numbers(figure):
    """The CSV of a figure."""
    return list(csv.DictReader(io.StringIO(figure.csv)))


@pytest.fixture(scope="module")
def many():
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1.0, size=500)
    return outcome(confidence.tolist(), (generator.uniform(size=500) < confidence**2).astype(int).tolist())


def test_reliability_counts_rows_in_the_bins_of_the_ece(many):
    bins = curves.reliability(outcome([0.55, 0.58, 0.95, 0.96, 0.97], [1, 0, 1, 1, 0]))
    assert np.column_stack([bins["correct"], bins["wrong"]])[[0, 8, 14]].tolist() == [[0, 0], [1, 1], [2, 1]]
    assert (bins["correct"].sum(), bins["wrong"].sum()) == (3, 2)
    assert bins["confidence"][8] == pytest.approx(0.565)
    assert bins["accuracy"][14] == pytest.approx(2 / 3)
    assert np.isnan(bins["accuracy"][0])
    exact = binomtest(2, 3).proportion_ci(0.95, method="exact")
    assert (bins["low"][14], bins["high"][14]) == pytest.approx((exact.low, exact.high))
    # the gaps that are drawn sum to the ECE
    bins = curves.reliability(many)
    count = bins["correct"] + bins["wrong"]
    gaps = np.nansum(count * np.abs(bins["confidence"] - bins["accuracy"])) / count.sum()
    assert gaps == pytest.approx(ece(many.rows.probabilities, many.rows.labels))


def test_the_risk_curve_ends_at_the_error_rate_and_its_mean_is_the_aurc(many):
    few = Rows.of(many.rows.probabilities[:150], many.rows.labels[:150])  # no more points than a curve keeps
    curve = curves.risk_curve(Outcome(few, few))
    assert curve["coverage"][-1] == 1
    assert curve["risk"][-1] == pytest.approx(1 - accuracy(few.probabilities, few.labels))
    assert curve["risk"].mean() == pytest.approx(aurc(few.probabilities, few.labels))
    assert len(curves.risk_curve(many)["risk"]) <= 200


def test_a_risk_is_drawn_where_it_is_promised(opened):
    abstention = abstain(opened)
    menu = abstention.menu
    dots = curves.promised(menu)
    lines = [line for line in menu.lines if line.rule is not None]
    assert dots == [(line.rule.coverage, line.target) for line in lines][: len(dots)]
    assert sum(coverage == 1 for coverage, _ in dots) <= 1
    axes = Figure().subplots()
    curves.draw_menu(menu, "#000000", axes)
    assert [tuple(map(float, line.get_xydata()[0])) for line in axes.lines if line.get_marker() == "o"] == dots
    figure = curves.menu_figure(opened, abstention)
    assert figure == curves.menu_figure(opened, abstention)  # the same numbers give the same files
    records = numbers(figure)
    assert all(float(record["low"]) <= float(record["risk"]) <= float(record["high"]) for record in records)
    assert float(records[-1]["coverage"]) == 1


def test_thresholds_are_the_metrics_at_each_tau(many):
    curve = curves.at_thresholds(many)
    i = int(np.argmin(np.abs(curve["tau"] - 0.9)))
    admitted = many.rows.confidence > curve["tau"][i]
    assert curve["coverage"][i] == pytest.approx(admitted.mean())
    assert curve["accuracy"][i] == pytest.approx((many.rows.labels == 1)[admitted].mean())
    assert curve["tau"][0] == 0.5
    nothing = curves.at_thresholds(outcome([0.6, 0.7], [1, 0]))  # at the highest threshold
    assert nothing["coverage"][-1] == 0
    assert math.isnan(nothing["accuracy"][-1])


def test_what_is_drawn_is_what_was_scored(opened, drawn):
    for scores in opened.results.sets:
        for name, said in opened.outcomes(scores.name).items():
            nll = METRICS["nll"](said.rows.probabilities, said.rows.labels)
            assert nll == pytest.approx(scores.scores[name]["nll"].mean)
    scores = opened.results.sets[0]
    records = numbers(drawn["scores"][1])
    assert [record["method"] for record in records] == list(scores.scores)
    for record, of_contender in zip(records, scores.scores.values(), strict=True):
        score = of_contender["nll"]
        assert [float(record[name]) for name in ("mean", "low", "high")] == [score.mean, score.low, score.high]


@pytest.fixture(scope="module")
def drawn(opened):
    before = dict(matplotlib.rcParams)
    figures = curves.set_figures(opened, opened.results.sets[0])
    assert dict(matplotlib.rcParams) == before
    return figures


def test_each_set_has_scores_curves_thresholds_and_a_reliability_for_each_contender(drawn):
    names = {kind: [figure.name.replace("-toy-test", "") for figure in figures] for kind, figures in drawn.items()}
    contenders = ["base", "base-ts", "mc-uniform", "uat", "uat-ts"]
    assert names == {
        "scores": ["ece", "nll", "aurc"],
        "curves": ["risk-coverage", "thresholds"],
        "reliability": [f"reliability-{contender}" for contender in contenders],
    }


def test_a_figure_is_written_as_svg_png_and_its_numbers(drawn, opened, tmp_path):
    strokes = curves.strokes(opened.contenders)
    assert strokes["base"]["color"] == strokes["base+ts"]["color"] != strokes["uat"]["color"]
    assert strokes["base"]["linestyle"] == "solid" != strokes["base+ts"]["linestyle"]
    figure = drawn["curves"][0]
    figure.write(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png", ".csv"}
    assert (tmp_path / "risk-coverage-toy-test.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "risk-coverage-toy-test.csv").read_text() == figure.csv
    assert {record["method"] for record in numbers(figure)} == set(strokes)
    assert all(0 <= float(record["risk"]) <= 1 for record in numbers(figure))


def test_inside_a_page_colours_are_roles_and_ids_are_the_figures_own(drawn):
    ids = []
    for figure in (figure for figures in drawn.values() for figure in figures):
        inline = figure.inline
        assert set(re.findall("#[0-9a-f]{6}", inline)) <= {"#000000"}
        assert not [colour for colour in ROLES if colour in inline]
        assert inline.startswith('<svg class="figure" role="img"')
        named = re.findall(r'\bid="([^"]+)"', inline)
        assert all(name.startswith(f"{figure.name}-") for name in named)
        assert {a or b for a, b in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', inline)} <= set(named)
        ids += named
    assert len(ids) == len(set(ids))


def test_whiskers_stay_inside_the_frame(drawn):
    def ends(svg, group):
        paths = re.findall(r' d="([^"]+)"', re.search(rf'<g id="{group}">.*?</g>', svg, re.DOTALL).group())
        return np.array(
            [re.findall(r"[\d.]+", point) for d in paths for point in re.findall(r"[ML] [^MLz]+", d)], float
        )

    for figure in drawn["reliability"]:
        frame, whiskers = ends(figure.svg, "patch_2"), ends(figure.svg, "LineCollection_1")
        assert len(whiskers) > 2
        assert (frame.min(axis=0) < whiskers.min(axis=0)).all()
        assert (whiskers.max(axis=0) < frame.max(axis=0)).all()


def test_titles_and_descriptions_are_escaped_and_names_are_safe_as_files():
    svg = '<?xml version="1.0"?><svg height="1" viewBox="0 0 1 1"><g id="a"></g></svg>'
    inline = RenderedFigure("name", "a < b", "<script>", svg, b"", "").inline
    assert '<title id="name-title">a &lt; b</title>' in inline
    assert "&lt;script&gt;" in inline
    assert "<script>" not in inline
    assert file_name("reliability-sst2/test-uat:gate=k+ts") == "reliability-sst2-test-uat-gate-k-ts"
