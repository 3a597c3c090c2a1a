"""The charts of a report: for each set the scores, the risk–coverage curves, the thresholds, and reliability.

A display holds the numbers of a chart. Its `records` are written beside the figure as CSV, and it draws them and
computes nothing. Figures are matplotlib objects: no pyplot, no global state.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.lab.evaluate.answer_outcomes import AnswerOutcome
from uatlite.lab.evaluate.comparison import Score
from uatlite.lab.evaluate.outcomes import Outcome
from uatlite.lab.evaluate.results import SetScores
from uatlite.lab.report.evaluation import Evaluation, StoredAnswers
from uatlite.lab.report.figures import MUTED, RIGHT, WRONG, RenderedFigure, Stroke, figure_of, percent, render, strokes
from uatlite.lab.report.result_tables import heading
from uatlite.lab.report.tables import Record
from uatlite.metrics.calibration import BINS, by_confidence
from uatlite.metrics.intervals import SCALES
from uatlite.metrics.rows import Metric, Rows
from uatlite.metrics.selective import accuracy_at, coverage_at, evenly_spaced, risk_coverage
from uatlite.trust.binomial import risk_upper_bound
from uatlite.trust.rule import Menu
from uatlite.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Strokes = Mapping[str, Stroke]
"""contender -> how it is drawn"""
UNITS = {"entities": "entities", "labels": "labels, yes or no,"}
"""What a model says about a text -> what is answered, where it is not the text."""
AnyOutcome = Outcome | AnswerOutcome
_CURVE_POINTS = 200
"""At most this many points of a curve: as many as a screen can show, and few enough for a small page."""
THRESHOLDS = 50


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence and accuracy in the fixed-width bins of the ECE, all (bins,); NaN where a bin is empty."""

    lower: Floats
    upper: Floats
    correct: NDArray[np.int64]
    wrong: NDArray[np.int64]
    confidence: Floats
    """the mean of the bin's rows"""
    accuracy: Floats
    low: Floats
    high: Floats
    """the exact binomial interval of the accuracy"""
    colour: str = MUTED

    @classmethod
    def of(cls, outcome: AnyOutcome, *, level: float = 0.95, bins: int = BINS, colour: str = MUTED) -> "Reliability":
        rows = outcome.applies
        member = by_confidence(rows, bins).member
        count, correct = member.sum(axis=0), rows.correct @ member
        empty = count == 0
        size = np.where(empty, 1, count)
        return cls(
            lower=np.arange(bins) / bins,
            upper=np.arange(1, bins + 1) / bins,
            correct=correct.astype(np.int64),
            wrong=(count - correct).astype(np.int64),
            confidence=np.where(empty, np.nan, rows.confidence @ member / size),
            accuracy=np.where(empty, np.nan, correct / size),
            low=1 - _upper(count - correct, count, level),
            high=_upper(correct, count, level),
            colour=colour,
        )

    def records(self) -> Iterator[Record]:
        arrays = {name: values.tolist() for name, values in vars(self).items() if name != "colour"}
        for values in zip(*arrays.values(), strict=True):
            yield dict(zip(arrays, values, strict=True))

    def draw(self) -> "Figure":
        """Accuracy by confidence above, the number of rows below; the diagonal is perfect calibration."""
        figure, (above, below) = figure_of(3.1, 3.5, nrows=2, sharex=True, height_ratios=(3, 1))
        first = self.lower[int(np.argmax(self.correct + self.wrong > 0))]
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        errors = np.array([self.accuracy - self.low, self.high - self.accuracy])
        dots: dict[str, Any] = {"fmt": "o", "color": self.colour, "markersize": 4.5, "elinewidth": 1.1}
        above.errorbar(self.confidence, self.accuracy, yerr=errors, **dots)
        above.set(ylim=(0, 1.03), ylabel="Accuracy")
        width = np.diff(self.upper)[0] * 0.86
        middle = (self.lower + self.upper) / 2
        below.bar(middle, self.correct, width, color=RIGHT, label="right")
        below.bar(middle, self.wrong, width, bottom=self.correct, color=WRONG, label="wrong")
        below.set(xlim=(first - 0.02, 1.02), xlabel="Confidence", ylabel="Rows")
        below.legend(loc="upper left", fontsize=7.5, handlelength=0.9, handleheight=0.9, borderpad=0, labelspacing=0.25)
        return figure


def _upper(hits: Floats, counts: Floats, level: float) -> Floats:
    """The upper end of the two-sided Clopper–Pearson interval of hits / counts, (bins,); NaN where a count is 0."""
    return np.where(counts > 0, risk_upper_bound(hits, counts, (1 + level) / 2), np.nan)


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the most confident answers: contender -> (coverage, risk), (points,) each."""

    curves: Mapping[str, tuple[Floats, Floats]]
    strokes: Strokes
    unit: str = "texts"
    """what is answered"""

    @classmethod
    def of(cls, outcomes: Mapping[str, AnyOutcome], strokes: Strokes, unit: str = "texts") -> "RiskCoverage":
        return cls({name: _risk_curve(outcome) for name, outcome in outcomes.items()}, strokes, unit)

    def records(self) -> Iterator[Record]:
        for name, (coverage, risk) in self.curves.items():
            for x, y in zip(coverage.tolist(), risk.tolist(), strict=True):
                yield {"method": name, "coverage": x, "risk": y}

    def draw(self) -> "Figure":
        """One line for each contender; lower is better."""
        figure, axes = figure_of(4.6, 4.3)
        for name, (coverage, risk) in self.curves.items():
            _line(axes, coverage, risk, name, self.strokes[name])
        # At low coverage a single error is a large share; the axis fits the rest of the curve.
        top = max(risk[coverage >= 0.1].max() for coverage, risk in self.curves.values())
        axes.set(xlim=(0, 1.005), ylim=(0, top * 1.08 or 1))
        axes.set(xlabel=f"Share of {self.unit} answered", ylabel="Share of answers wrong")
        percent(axes, "x", "y")
        _legend(figure, axes)
        return figure


def _risk_curve(outcome: AnyOutcome) -> tuple[Floats, Floats]:
    risks = risk_coverage(outcome.rows.ranking, 1 - outcome.rows.correct)
    shown = evenly_spaced(len(risks), _CURVE_POINTS)
    return (shown + 1) / len(risks), risks[shown]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Coverage and accuracy at each threshold on the confidence, by contender; (thresholds,) each."""

    taus: Floats
    coverage: Mapping[str, Floats]
    accuracy: Mapping[str, Floats]
    """NaN where no row is above the threshold"""
    strokes: Strokes
    unit: str = "texts"
    """what is answered"""

    @classmethod
    def of(cls, outcomes: Mapping[str, AnyOutcome], strokes: Strokes, unit: str = "texts") -> "Thresholds":
        classes = next(iter(outcomes.values())).probabilities.shape[1]
        taus = np.linspace(1 / classes, 0.99, THRESHOLDS)
        coverage, accuracy = (
            {name: _at(metric, outcome.rows, taus) for name, outcome in outcomes.items()}
            for metric in (coverage_at, accuracy_at)
        )
        return cls(taus, coverage, accuracy, strokes, unit)

    def records(self) -> Iterator[Record]:
        for name, coverage in self.coverage.items():
            for tau, share, right in zip(self.taus, coverage, self.accuracy[name], strict=True):
                yield {"method": name, "tau": float(tau), "coverage": float(share), "accuracy": float(right)}

    def draw(self) -> "Figure":
        """Coverage above, accuracy of the answers below."""
        figure, (above, below) = figure_of(4.6, 4.3, nrows=2, sharex=True)
        for name, coverage in self.coverage.items():
            _line(above, self.taus, coverage, name, self.strokes[name])
            _line(below, self.taus, self.accuracy[name], name, self.strokes[name])
        above.set(ylim=(0, 1.02), ylabel=f"{self.unit.capitalize()} answered")
        below.set(ylabel="Answers right", xlabel="Threshold on the confidence", xlim=(self.taus[0], self.taus[-1]))
        percent(above, "y")
        percent(below, "y")
        _legend(figure, above)
        return figure


def _at(metric: Metric[[float]], rows: Rows, taus: Floats) -> Floats:
    return np.array([metric.values(rows, np.ones((1, len(rows))), float(tau))[0] for tau in taus])


@dataclass(frozen=True)
class Intervals:
    """One metric of the results with its intervals, by contender."""

    metric: str
    scores: Mapping[str, Score]
    strokes: Strokes

    @classmethod
    def of(cls, scores: SetScores, metric: str, strokes: Strokes) -> "Intervals":
        return cls(metric, {name: of_contender[metric] for name, of_contender in scores.scores.items()}, strokes)

    def records(self) -> Iterator[Record]:
        for name, score in self.scores.items():
            yield {"metric": self.metric, "method": name, "mean": score.mean, "low": score.low, "high": score.high}

    def draw(self) -> "Figure":
        """A dot and an interval for each contender."""
        contenders = list(self.scores)
        figure, axes = figure_of(3.1, 0.6 + 0.25 * len(contenders))
        heights = np.arange(len(contenders))[::-1]
        for y, name in zip(heights, contenders, strict=True):
            score, stroke = self.scores[name], self.strokes[name]
            axes.plot([score.low, score.high], [y, y], color=stroke.colour, linewidth=1.6, linestyle=stroke.dash)
            axes.plot([score.mean], [y], stroke.marker, color=stroke.colour, markersize=5)
        axes.set_title(heading(self.metric))
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks(heights, contenders)
        return figure


@dataclass(frozen=True)
class RiskBand:
    """The risk at each coverage of the calibration rows with its interval, and the risks that can be promised."""

    menu: Menu
    colour: str = MUTED

    @property
    def promised(self) -> list[tuple[float, float]]:
        """(coverage, target risk), up to the first that answers all."""
        lines = [(line.rule.coverage, line.target) for line in self.menu.lines if line.rule is not None]
        answered_all = sum(coverage == 1.0 for coverage, _ in lines)
        return lines[: len(lines) - max(answered_all - 1, 0)]

    def records(self) -> Iterator[Record]:
        curve = self.menu.curve
        rows = zip(curve.thresholds, curve.coverages, curve.risks, curve.low, curve.high, strict=True)
        for threshold, coverage, risk, low, high in rows:
            yield {"threshold": threshold, "coverage": coverage, "risk": risk, "low": low, "high": high}

    def draw(self) -> "Figure":
        """The risk with its interval; a dot for each risk that can be promised, at its coverage."""
        figure, axes = figure_of(4.6, 3.4)
        curve = self.menu.curve
        coverage, high = np.array(curve.coverages), np.array(curve.high)
        axes.fill_between(coverage, curve.low, curve.high, color=self.colour, alpha=0.14, linewidth=0)
        axes.plot(coverage, curve.risks, color=self.colour, linewidth=1.6)
        for share, target in self.promised:
            axes.plot([0, share], [target, target], color=RIGHT, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.plot([share], [target], "o", color=RIGHT, markersize=5)
        # At low coverage a single error is a large share; the axis fits the rest of the band.
        top = max(high[coverage >= 0.2].max(), *(target for _, target in self.promised), 0.01)
        axes.set(xlim=(0, 1.01), ylim=(0, top * 1.08))
        axes.set(xlabel="Share of calibration rows answered", ylabel="Share of answers wrong")
        percent(axes, "x", "y")
        return figure


def _legend(figure: "Figure", axes: "Axes") -> None:
    """A legend below the panels, where no line runs."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, handlelength=2.2)


def _line(axes: "Axes", x: Any, y: Any, label: str, stroke: Stroke) -> None:
    axes.plot(x, y, color=stroke.colour, linestyle=stroke.dash, linewidth=1.6, label=label)


@dataclass(frozen=True)
class SetFigures:
    """The figures of one set; `scores` has one for each metric, `reliability` one for each contender."""

    scores: tuple[RenderedFigure, ...]
    risk_coverage: RenderedFigure
    thresholds: RenderedFigure
    reliability: tuple[RenderedFigure, ...]


def set_figures(evaluation: Evaluation | StoredAnswers, scores: SetScores) -> SetFigures:
    """Every figure of a set."""
    results, name = evaluation.results, scores.name
    outcomes: Mapping[str, AnyOutcome] = evaluation.outcomes(name)
    drawn, unit = strokes(evaluation.contenders), UNITS.get(results.kind, "texts")
    charted = [metric for metric, scale in SCALES.items() if scale.charted and metric in results.metrics]
    return SetFigures(
        scores=tuple(
            render(
                f"{metric}-{name}",
                f"{heading(metric)} on {name}",
                f"A dot and an interval for each method. {_listed(scores, metric)}",
                Intervals.of(scores, metric, drawn),
            )
            for metric in charted
        ),
        risk_coverage=render(
            f"risk-coverage-{name}",
            f"Risk and coverage on {name}",
            f"Share of wrong answers against the share answered, most confident first. {_listed(scores, 'aurc')}",
            RiskCoverage.of(outcomes, drawn, unit),
        ),
        thresholds=render(
            f"thresholds-{name}",
            f"Coverage at thresholds on {name}",
            f"Above, the share of {unit} whose confidence exceeds a threshold; below, the share of those that is "
            f"right. {_listed(scores, 'coverage@0.9')}",
            Thresholds.of(outcomes, drawn, unit),
        ),
        reliability=tuple(
            render(
                f"reliability-{name}-{contender}",
                f"Reliability of {contender} on {name}",
                _reliability_in_words(scores, contender),
                Reliability.of(outcome, level=results.resampling.confidence, colour=drawn[contender].colour),
            )
            for contender, outcome in outcomes.items()
        ),
    )


def menu_figure(menu: Menu, contender: str, stroke: Stroke) -> RenderedFigure:
    """The menu of risks as a curve with its band."""
    display = RiskBand(menu, stroke.colour)
    told = ", ".join(f"{target:.0%} at {coverage:.1%} answered" for coverage, target in display.promised) or "none"
    alt = f"Share of wrong answers against the share answered, with its interval. Risks that can be promised: {told}."
    return render("risk-menu", f"Risks that {contender} can promise", alt, display)


def _reliability_in_words(scores: SetScores, contender: str) -> str:
    of_contender = scores.scores[contender]
    alt = f"Accuracy against confidence of {contender} on {scores.name}, and how many texts lie at each confidence."
    if (score := of_contender.get("ece", of_contender.get("answer_ece"))) is not None:
        alt += f" ECE {score.mean:.3f} ({score.low:.3f} to {score.high:.3f})."
    return alt


def _listed(scores: SetScores, metric: str) -> str:
    """The scores in words, for readers who cannot see the figure: 'AURC ↓: base 0.041, ts 0.041.'"""
    if metric not in next(iter(scores.scores.values())):
        return ""
    values = ", ".join(f"{name} {of_contender[metric].mean:.3f}" for name, of_contender in scores.scores.items())
    return f"{heading(metric)}: {values}."
