"""Rules: which answers to report, by a score and a threshold on it; and menus: which risks could be promised.

They are the values that a calibration keeps. `decide` in promise.py makes them from labelled texts.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.predictive import Predictive
from uatlite.trust.cost import CostFigures, Costs
from uatlite.values import Floats, Integers, Marks, check_labels, check_scores, check_share

RAW_SCORE = "logit-margin"
"""The score that no labelled row has fitted, so that all of them may decide a rule."""

SCORES = {"confidence": 1, RAW_SCORE: 1, "entropy": -1, "mutual-information": -1, "margin": 1, "variance": -1}
"""The scores of one class a text to abstain by -> the sign with which higher is more trustworthy."""


def column_of_score(name: str) -> str:
    """What a score is called as an attribute of predictions, and as a column of their rows."""
    return name.replace("-", "_")


def trust(name: str, predictive: Predictive) -> Floats:
    """The score `name` of each row, (rows,); higher is more trustworthy."""
    check_choice("score", name, SCORES)
    values = SCORES[name] * getattr(predictive, column_of_score(name))
    if np.isnan(values).any():
        raise ConfigurationError(
            f"the score {name!r} is not known for {int(np.isnan(values).sum()):,} of {len(values):,} rows: "
            "their method runs one pass and says nothing about others. Use another score or method."
        )
    return check_scores(values)


def ranks(scores: Floats, text: Integers) -> Integers:
    """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
    order = np.lexsort((-scores, text))
    of_text = text[order]
    placed = np.empty(len(order), dtype=np.int64)
    placed[order] = np.arange(len(order)) - np.searchsorted(of_text, of_text, side="left")
    return placed


RuleKind = Literal["threshold", "coverage", "risk", "errors", "cost", "precision", "per-text", "recall"]
"""What is asked for. Of one answer a text: a threshold, the share of texts answered, the share of answers that are
wrong, the share of all texts that are answered wrongly, or the lowest cost. Of any number: the share of reported
answers that are wrong, or the wrong answers a text. Of texts: the share of their gold answers that is missed."""
FEWEST_TOLD = 100
"""From fewer labelled texts nobody can tell how many it would take."""
WIDEST_TOLD = 50
"""A range to more than so many times its low end says no more than that."""
ONE_ANSWER = ("threshold", "coverage", "risk", "errors", "cost")
"""The kinds of rules about texts of one answer each, which is reported by one of `SCORES`; a cost by `SAVING`."""


@dataclass(frozen=True, kw_only=True)
class RowsNeeded:
    """How many labelled texts it would take in all, by estimate, from `low` to `high`; None: no number will do."""

    rows: int
    """those that there are"""
    low: int | None
    high: int | None
    unit: str
    exact: bool = False
    """whether fewer cannot do, and these do if their answers are right"""

    def describe(self) -> str:
        """As in "it would take about 400 to 2,000 more labelled rows"."""
        if self.exact and self.low is not None:
            return f"it takes {max(self.low - self.rows, 1):,} more labelled {self.unit}, all of them right"
        if self.rows < FEWEST_TOLD:
            return f"it cannot be told from {self.rows:,} {self.unit} how many it would take"
        if self.low is None:
            return f"no number of labelled {self.unit} is likely to do: the surest answers are wrong too often"
        low, high = (float(f"{max(n - self.rows, 1):.2g}") for n in (self.low, self.high or self.low))  # two digits
        if self.high is None or high > WIDEST_TOLD * low:
            more = f"at least about {low:,.0f} more labelled {self.unit}"
            return f"it would take {more}; how many more cannot be told from these"
        return f"it would take about {low:,.0f}{f' to {high:,.0f}' * (high > low)} more labelled {self.unit}"


def deciding(texts: int, among: tuple[int, int], unit: str, aside: str = "say where to begin") -> str:
    """How many of the labelled texts decide, and what the others do; `among` as in `Rule`."""
    others = {aside: among[0] - texts - among[1], "out of scope": among[1]}
    said = "".join(f", {count:,} {what}" for what, count in others.items() if count)
    return f"{texts:,} of {among[0]:,} {unit} decide{said}" if among[0] > texts else f"{texts:,} {unit}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What shall be promised; without a `kind` no rule is asked for, though perhaps a menu."""

    kind: RuleKind | None = None
    target: float = math.nan
    """the threshold, the share of texts to answer, the risk, or the share of gold answers that may be missed"""
    score: str = "confidence"
    confidence: float = 0.95
    most: int | None = None
    """the most answers that a text may report; None: so many that nearly all are kept"""
    classes: tuple[str, ...] | None = None
    """names of the classes, each of which shall have a promise of its own"""
    only: str | None = None
    """the one of them that shall have one"""
    costs: Costs | None = None
    """of wrong answers and reviews, for the lowest cost"""
    seed: int = 0
    """of the texts that are set aside to plan with, and of the order of the others; take the first seed"""

    def __post_init__(self) -> None:
        check_share("confidence", self.confidence)
        if self.kind is not None:
            check_choice("kind", self.kind, get_args(RuleKind))
        if self.kind in ONE_ANSWER and self.kind != "cost":
            check_choice("score", self.score, SCORES)
        if self.kind == "threshold":
            if math.isnan(self.target):
                raise ConfigurationError("threshold=nan answers no row; give a number.")
        elif self.kind not in (None, "cost"):
            check_share("target", self.target)
        if self.most is not None and self.most < 1:
            raise ConfigurationError(f"most={self.most!r} answers a text; allowed is 1 or more.")
        if self.only is not None:
            check_choice("only", self.only, self.classes or ())


@dataclass(frozen=True, kw_only=True)
class KindPromise:
    """The part of a rule that is about the answers of one kind, such as the texts predicted as one class.

    `answers` of the labelled texts are of the kind; `reported` of them are above `threshold`, `errors` of those are
    wrong. Where nothing is `asked` about the kind, its threshold is -inf: such answers are always reported.
    """

    name: str
    asked: bool
    threshold: float
    answers: int
    reported: int
    errors: int
    promised: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Report an answer if its score is above the threshold and it is one of the `most` surest of its text.

    Of one class a text this says whether to answer or to abstain. `threshold` is -inf to report all and +inf to report
    nothing. `target` is what was asked for (see `RuleKind`); `promised` says whether it is promised, and `reason` why
    not. For a target risk the promise is the target itself.

    `texts` labelled texts decided, `among` so many, of which so many are out of scope; they have `answers` answers, of
    which `reported` are reported, `errors` of them wrong. `coverage` is the share that is reported, of the answers or
    of what `covered` names, and `coverage_interval` holds with `confidence`. `risk_bound` is the Clopper–Pearson bound
    at the threshold: a promise for a threshold that was given beforehand.

    Of kind "recall" the answers are texts, each with one: whether it is answered. Then `answers`, `reported` and
    `errors` are the gold answers of all texts, those of answered texts, and those of them that are missed; `coverage`
    is the share of texts answered, and of the gold answers of a text at most `most` count.

    With `per_kind`, one entry for each column, every kind of answer has a threshold and a promise of its own;
    `threshold` is the lowest of them, `promised` says whether any kind that was asked about has its promise, and all
    promises hold together with `confidence`.

    Of kind "cost" the score is what an answer is expected to save by the `costs`; `cost` is what the rule costs a text,
    and `target` the upper limit of that.
    """

    kind: RuleKind
    score: str
    threshold: float
    target: float | None
    confidence: float
    texts: int
    answers: int
    reported: int
    errors: int
    coverage: float
    coverage_interval: tuple[float, float]
    promised: bool
    reason: str = ""
    most: int | None = None
    covered: str = "answers"
    risk_bound: float | None = None
    per_kind: tuple[KindPromise, ...] | None = None
    among: tuple[int, int] = (0, 0)
    costs: Costs | None = None
    cost: CostFigures | None = None

    def __post_init__(self) -> None:
        if self.kind in ONE_ANSWER and self.kind != "cost":
            check_choice("score", self.score, SCORES)

    def thresholds(self, kind: ArrayLike | None = None) -> Floats:
        """The threshold of each answer by its kind, (answers,); without kinds the only one, ()."""
        if self.per_kind is None:
            return np.asarray(self.threshold)
        if kind is None:
            raise InputError("this rule has a threshold for each class; pass the predicted columns: reports(s, kind=).")
        columns = check_labels(kind, rows=np.size(kind), classes=len(self.per_kind))
        return np.array([promise.threshold for promise in self.per_kind])[columns]

    def reports(self, scores: ArrayLike, text: Integers | None = None, kind: ArrayLike | None = None) -> Marks:
        """True where to report an answer, (answers,), by its score, its text (as in `Answers`) and its kind.

        Without `text` each text has one answer. `kind` is needed where each kind has a threshold of its own.
        """
        s = check_scores(scores)
        above = np.asarray(s > self.thresholds(kind))
        return above if text is None or self.most is None else above & (ranks(s, text) < self.most)

    def allowed(self, texts: int, answers: int) -> float | None:
        """The share of these reported answers that may be wrong by the promise; None where it is about something else.

        A promise for some classes says nothing about all answers.
        """
        if not self.promised or not all(promise.asked for promise in self.per_kind or ()):
            return None
        if self.kind in ("threshold", "coverage", "cost") or self.target is None:
            return self.risk_bound
        of_texts = self.target * texts / max(answers, 1)
        shares = {"per-text": of_texts, "errors": of_texts, "risk": self.target, "precision": self.target}
        return shares.get(self.kind)

    @property
    def share_of(self) -> str:
        """What `coverage` is the share of, as in "82.0% answered"."""
        if self.kind == "recall":
            return "of texts answered"
        return "answered" if self.kind in ONE_ANSWER else f"of {self.covered} reported"

    @property
    def counted(self) -> str:
        """How many texts decided, and what the other labelled ones do."""
        unit = "calibration rows" if self.kind in ONE_ANSWER else "calibration texts"
        aside = "fit the calibrator" if self.kind in ("threshold", "coverage") else "say where to begin"
        return deciding(self.texts, self.among, unit, aside)

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """What is promised, in a sentence or two for a person."""
        if self.per_kind is not None:
            return _describe_kinds(self, self.per_kind)
        single = self.kind in ONE_ANSWER
        if not self.promised:
            nothing = "Abstain on all" if single else "Report nothing"
            counted = f" ({self.counted}.)" if self.among[0] > self.texts else ""
            return f"{'Answer no text' if self.kind == 'recall' else nothing}: {self.reason}{counted}"
        low, high = self.coverage_interval
        told = _PROMISED[self.kind].format(
            every=" all" if self.threshold == -math.inf else "",
            above="" if self.threshold == -math.inf else f" where {self.score} > {self.threshold:.6g}",
            share=f"{self.coverage:.1%}",
            interval=f"({low:.1%} to {high:.1%})",
            found=1 - (self.target or 0.0),
            costing="" if self.cost is None else self.cost.describe(),
            bound="" if self.risk_bound is None else f", at most {self.risk_bound:.2%} of them wrongly",
            review=f"{1000 * (1 - self.coverage):,.0f} of 1,000 texts to review ({1 - high:.1%} to {1 - low:.1%})",
            **vars(self),
        )
        return f"{told} (confidence {self.confidence:g}, {self.counted})."


_OF_ROWS = "{share} of rows {interval} are answered"
_OF_ANSWERS = "; {share} of {covered} {interval} are reported; {errors} of {reported} reported are wrong"
_ANSWER, _REPORT = "Answer{every}{above}: ", "Report answers{above}, at most {most} a text: at most "
_CHEAPER = "Answer where that is expected to cost less than a review: "
_PROMISED: dict[RuleKind, str] = {
    "risk": _ANSWER + "at most {target:.2%} of the answers are wrong; " + _OF_ROWS + ", {errors} of {reported} wrongly",
    "errors": _ANSWER + "at most {target:.2%} of all texts are answered wrongly; " + _OF_ROWS + ", {errors} of {texts} "
    "wrongly",
    "coverage": _ANSWER + "about {review}; the others are answered{bound} ({errors} of {reported} here)",
    "threshold": _ANSWER + _OF_ROWS + "{bound}",
    "cost": _CHEAPER + _OF_ROWS + ", {errors} of {reported} wrongly, and {costing}",
    "precision": _REPORT + "{target:.2%} of them are wrong" + _OF_ANSWERS,
    "per-text": _REPORT + "{target:g} wrong answers a text on average" + _OF_ANSWERS,
    "recall": "Answer{every} texts{above}: at least {found:.2%} of their gold answers are found; {share} of texts "
    "{interval} are answered, {errors} of {reported} gold answers missed",
}


def _describe_kinds(rule: Rule, kinds: tuple[KindPromise, ...]) -> str:
    asked = [promise for promise in kinds if promise.asked]
    answered = "; ".join(
        f"{promise.name} where {rule.score} > {promise.threshold:.6g} ({promise.errors} of {promise.reported} wrong)"
        if promise.threshold > -math.inf
        else f"{promise.name} always ({promise.errors} of {promise.reported} wrong)"
        for promise in asked
        if promise.promised
    )
    sentences = []
    if answered:
        about, wrong = ("texts", "answered wrongly") if rule.kind == "errors" else ("answers", "wrong")
        whose = f"the {about} of each class" if len(asked) > 1 else f"these {about}"
        sentences.append(f"Answer {answered}: at most {rule.target:.2%} of {whose} are {wrong}.")
    refused = [promise for promise in asked if not promise.promised]
    sentences += [f"Never answer {promise.name}: {promise.reason}" for promise in refused[:2]]
    if names := ", ".join(promise.name for promise in refused[2:6]):
        more = f" and {len(refused) - 6} more" if len(refused) > 6 else ""
        sentences.append(f"Never answer {names}{more}, for the like reason.")
    if len(asked) < len(kinds):
        sentences.append("Nothing is promised about other answers, and none is withheld.")
    together, (low, high) = ", all together" if len(asked) > 1 else "", rule.coverage_interval
    sentences.append(
        f"{rule.coverage:.1%} of rows ({low:.1%} to {high:.1%}) are answered "
        f"(confidence {rule.confidence:g}{together}, {rule.counted})."
    )
    return " ".join(sentences)


@dataclass(frozen=True, kw_only=True)
class RiskLine:
    """A target: its rule, or None and how many labelled texts a promise would take. Or a share of texts to review."""

    target: float
    rule: Rule | None = None
    needed: RowsNeeded | None = None

    def describe(self) -> str:
        """The line for a person."""
        if self.rule is not None and self.rule.kind == "coverage":
            return f"{self.target:4.0%}  at most {self.rule.risk_bound or 1.0:6.1%} of the others are wrong"
        if self.rule is not None:
            low, high = self.rule.coverage_interval
            return f"{self.target:4.0%}  {self.rule.coverage:6.1%} {self.rule.share_of} ({low:.1%} to {high:.1%})"
        return f"{self.target:4.0%}  no promise" + ("" if self.needed is None else f"; {self.needed.describe()}")


@dataclass(frozen=True)
class RiskCurve:
    """The share of wrong answers at each coverage with its Clopper–Pearson interval, point by point; all (points,).

    `thresholds` are the scores above which a text is answered.
    """

    thresholds: tuple[float, ...] = ()
    coverages: tuple[float, ...] = ()
    risks: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


_HEADINGS = {
    "rows": "of all texts, at most so many are answered wrongly:",
    "texts": "of texts, at most so many wrong answers (100% is one a text):",
}
"""The heading of `Menu.errors`, by what the texts are called."""


@dataclass(frozen=True, kw_only=True)
class Menu:
    """What labelled texts can promise: a line for each target risk; with one answer a text also their risk curve.

    Each line is a promise by itself: it holds with `confidence`. All lines together hold with less, at worst
    1 - lines·(1 - confidence), so choose the risk that you need, not the line that turned out well.
    """

    score: str
    confidence: float
    texts: int
    lines: tuple[RiskLine, ...]
    curve: RiskCurve = RiskCurve()
    """without points where a text may have several answers"""
    unit: str = "rows"
    """what the texts are called"""
    among: tuple[int, int] = (0, 0)
    """as in the rules"""
    errors: tuple[RiskLine, ...] = ()
    """for shares of all texts that are answered wrongly; of several answers a text, for wrong answers a text"""
    reviews: tuple[RiskLine, ...] = ()
    """for shares of texts that are left to review, with the bound of the risk of the others"""

    @property
    def counted(self) -> str:
        """How many texts decided, and what the other labelled ones do."""
        return deciding(self.texts, self.among, f"labelled {self.unit}")

    def __repr__(self) -> str:
        return "\n".join(self.describe())

    def rule(self, target: float) -> Rule | None:
        """The rule of a target on the menu; None where it cannot be promised."""
        for line in self.lines:
            if line.target == target:
                return line.rule
        raise ConfigurationError(
            f"target={target!r} is not on the menu: {', '.join(f'{line.target:g}' for line in self.lines)}."
        )

    def describe(self) -> list[str]:
        """Lines for a person."""
        return [
            f"risk  promise (confidence {self.confidence:g}, by {self.score}, {self.counted})",
            *(line.describe() for line in self.lines),
            *([_HEADINGS[self.unit], *(line.describe() for line in self.errors)] if self.errors else []),
            *(["of texts, so many to review:", *(line.describe() for line in self.reviews)] if self.reviews else []),
            "Each line is a promise by itself: choose the risk that you need, not the line that turned out well.",
        ]
