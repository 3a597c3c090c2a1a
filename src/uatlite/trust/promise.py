"""Promises: from labelled texts, those of them in scope, and what is wanted, to a rule and a menu.

A promise is about new texts, so the texts that decide must not have fitted anything that it is about. `fitting_rows`
divides them; a score that was fitted on no label, such as the model's own margin, lets all texts decide.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.all_texts import (
    REVIEW_SHARE,
    REVIEW_SHARES,
    ErrorsPlanner,
    LabelledScores,
    check_enough,
    reviews_rule,
)
from uatlite.trust.answers import check_texts
from uatlite.trust.bets import learned_chances, ratio_interval
from uatlite.trust.binomial import coverage_interval, rule_at
from uatlite.trust.cost import cost_rule
from uatlite.trust.planners import RISKS, Planner, RowsPlanner, TextScores, TextsPlanner, most_answers
from uatlite.trust.rule import KindPromise, Menu, RiskLine, Rule, RuleKind, Wanted
from uatlite.trust.shift import CHECKED_ROWS, score_test
from uatlite.values import Floats, Integers, Marks, check_labels, check_marks, check_scores

_FEWEST_TEXTS = 50
"""With fewer labelled texts in scope there is no menu."""

FITTING_SHARE = 3
"""One row in three fits the calibrator: a temperature needs few rows, a promise many."""

PILOT_SHARE, PILOT_ROWS, PILOT_TEXTS = 0.1, 50, 100
"""The share of labelled texts that is set aside to plan with, where nothing else is known; and how many at most, of one
answer each and of any number."""

LIKE_LABELLED = 0.1
"""The level of the test that unlabelled texts have to pass, as being like the labelled ones, to plan with them."""


def fitting_rows(rows: int, seed: int = 0) -> Marks:
    """Which rows fit, (rows,): a third, drawn by the seed. The others decide.

    The draw does not look at the labels and does not balance the classes. The proof of the promise needs the rows that
    decide to be a plain random sample of the data; a split by class would make them something else.
    """
    return np.asarray(np.random.default_rng(seed).permutation(rows) % FITTING_SHARE == 0)


def pilot_rows(rows: int, seed: int, most: int) -> Marks:
    """Which rows are set aside to plan with, (rows,): a tenth, at least one and at most `most`."""
    size = min(max(1, round(PILOT_SHARE * rows)), most)
    return np.asarray(np.random.default_rng(seed).permutation(rows) < size)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled texts and a model's answers to them: one each, as with one class, where `text` is None, or any number.

    They must be of texts that fitted neither the model nor the score. Those that only plan need no labels.
    """

    scores: Mapping[str, Floats]
    """(answers,) each, by name; the first was fitted on no label, and the menu is by it"""
    wrong: Marks | None = None
    """(answers,)"""
    text: Integers | None = None
    """(answers,): the text of each answer, as in `Answers`"""
    texts: int | None = None
    """how many texts there are, where `text` is given"""
    kind: Integers | None = None
    """(answers,): the column of the predicted class"""
    least: float = 0.0
    """answers at or below this probability are never reported, so that the promise is planned for those that matter"""
    gold: Integers | None = None
    """(texts,): the gold answers of a text; coverage is then the share of them that is reported"""
    covered: str = "gold answers"
    """what they are called"""
    missed: Integers | None = None
    """(texts,): gold answers that are missed, for a promise of recall; the scores are then of texts"""
    answers: Integers | None = None
    """(texts,): answers of a text, for a promise of recall: the plan counts a text by them"""
    unlabelled: "Labelled | None" = None
    """other texts, which may be unlike these: they help to plan where they look alike"""
    paid: Floats | None = None
    """(answers, 2): what each answer costs, and what a review would"""

    def __post_init__(self) -> None:
        for values in self.scores.values():
            check_scores(values)
            if self.wrong is not None:
                check_marks("wrong", self.wrong, len(values), advice="Give one for each score: predicted != label.")
            if self.text is not None:
                check_texts(self.text, answers=len(values), texts=self.size)

    @property
    def size(self) -> int:
        """How many texts there are."""
        return len(next(iter(self.scores.values()))) if self.texts is None else self.texts

    @property
    def errors(self) -> Marks:
        """(answers,): which are wrong; of texts that decide."""
        if self.wrong is None:
            raise ConfigurationError("texts that decide must be labelled; give wrong=, a bool for each answer.")
        return self.wrong

    def columns(self, classes: int) -> Integers:
        """(answers,): the predicted columns, which promises for each class are about."""
        if self.kind is None:
            raise ConfigurationError("a promise for each class needs the predicted column of each row, kind=.")
        return check_labels(self.kind, rows=self.size, classes=classes)

    def of(self, chosen: Marks) -> "Labelled":
        """The chosen texts, (texts,) bool, which are numbered anew, and their answers."""
        kept = chosen if self.text is None else chosen[self.text]
        of_answers = {name: getattr(self, name) for name in ("wrong", "kind", "text", "paid")}
        of_texts = {name: getattr(self, name) for name in ("gold", "missed", "answers")}
        taken: dict[str, Any] = {n: None if values is None else values[kept] for n, values in of_answers.items()}
        taken |= {n: None if values is None else values[chosen] for n, values in of_texts.items()}
        if self.text is not None:
            taken |= {"text": (np.cumsum(chosen) - 1)[taken["text"]], "texts": int(chosen.sum())}
        return replace(self, scores={name: values[kept] for name, values in self.scores.items()}, **taken)

    def sample(self, wanted: Wanted, chosen: Marks) -> LabelledScores | None:
        """The chosen texts, (texts,), to bound the risk at other thresholds; None of several answers a text."""
        if self.text is not None or self.paid is not None:
            return None
        return LabelledScores(wanted.score, wanted.confidence, self.scores[wanted.score][chosen], self.errors[chosen])

    def planning(self, score: str) -> "Labelled":
        """These texts to plan with, and the unlabelled ones too where the scores of both are alike.

        No label is looked at, and no text that decides: texts that trained the model have higher scores than others.
        """
        others = self.unlabelled
        if others is None or score not in others.scores or self.size < CHECKED_ROWS:
            return self
        scores, more = self.scores[score], others.scores[score]
        if score_test(scores, more) < LIKE_LABELLED:
            return self
        kind = None if self.kind is None or others.kind is None else np.append(self.kind, others.kind)
        return Labelled({score: np.append(scores, more)}, kind=kind)

    def floor(self, score: str) -> float:
        """The score of an answer of the least probability; an answer must be above it."""
        if self.text is None or score == "confidence":
            return -math.inf if self.text is None else self.least
        return math.log(self.least / (1.0 - self.least)) if self.least > 0.0 else -math.inf

    def ranked(self, score: str) -> TextScores:
        """The answers above the floor, to search among."""
        scores, text = self.scores[score], np.arange(self.size) if self.text is None else self.text
        kept = scores > self.floor(score)
        return TextScores(scores[kept], text[kept], self.size, None if self.wrong is None else self.wrong[kept])

    def finished(self, rule: Rule) -> Rule:
        """The rule, never below the floor, with its coverage of gold answers where they are known."""
        rule = replace(rule, threshold=max(rule.threshold, self.floor(rule.score)))
        if self.gold is None or self.text is None or self.wrong is None or not self.gold.sum():
            return rule
        right = rule.reports(self.scores[rule.score], self.text) & ~self.wrong
        hits = np.bincount(self.text[right], minlength=self.size).astype(np.float64)
        gold = self.gold.astype(np.float64)
        interval = ratio_interval(hits, gold, rule.confidence)
        return replace(rule, coverage=float(hits.sum() / gold.sum()), coverage_interval=interval, covered=self.covered)


@dataclass(frozen=True)
class Decision:
    """What labelled texts decide."""

    rule: Rule | None
    menu: Menu | None
    instead: tuple[Rule, ...] = ()
    """what the same texts do promise, where the rule promises nothing"""


def decide(
    rows: Labelled,
    wanted: Wanted,
    *,
    inside: Marks | None = None,
    fitting: Marks | None = None,
    reference: Labelled | None = None,
    menu: bool = False,
) -> Decision:
    """The rule, and the menu, by the labelled texts in scope that fitted nothing; (texts,) bool each.

    Texts out of scope, not `inside`, are abstained on, so no answer to them counts for a risk. Those of `fitting`
    fitted the calibrator: they do not decide, but say where the search starts, as do `reference` texts. Without either
    a tenth of the texts is set aside for it. The menu is by a score that no text has fitted, so all in scope decide it;
    there is none where they are too few.
    """
    everything = np.ones(rows.size, dtype=np.bool_)
    inside = everything if inside is None else inside
    among = rows.size, int((~inside).sum())
    listed = _menu(rows, wanted, inside, reference) if menu and inside.sum() >= _FEWEST_TEXTS else None
    if wanted.kind is None:
        return Decision(None, listed)
    if wanted.kind == "recall" and fitting is None and reference is None:
        fitting = pilot_rows(rows.size, wanted.seed, PILOT_TEXTS)
        reference = rows.of(fitting)
    free = everything if fitting is None else ~fitting
    if reference is None and fitting is not None:
        reference = rows.of(fitting & inside)
    if wanted.kind not in _PLANNERS:
        rule = _of_all(rows.of(free), wanted, inside[free])
        return Decision(replace(rule, among=(rows.size, 0)), listed)
    deciding = rows.of(free & inside)
    if wanted.kind in ("risk", "errors") and wanted.classes is not None:
        rule = replace(_each_class(deciding, wanted, wanted.classes, reference), among=among)
    else:
        planner = replace(_PLANNERS[wanted.kind](deciding, wanted, reference), among=among)
        if wanted.kind in ("errors", "per-text"):
            check_enough(planner.rule(wanted.target, math.inf, None).texts, wanted)
        rule = planner.promise(wanted.target)
    instead = () if rule.promised else _instead(rows.of(free), wanted, inside[free], reference)
    return Decision(rule, listed, instead)


def _instead(rows: Labelled, wanted: Wanted, inside: Marks, reference: Labelled | None) -> tuple[Rule, ...]:
    """What can be promised where the target cannot: more of the same, about all texts, and with a share to review."""
    rules: list[Rule | None] = []
    wanted, deciding = replace(wanted, classes=None, only=None), rows.of(inside)
    about_all = _MENU[rows.text is None][1]
    with suppress(CalibrationError):  # too few for any share, or all alike
        if wanted.kind in _MENU[rows.text is None]:
            rules.append(_PLANNERS[wanted.kind](deciding, wanted, reference).nearest(wanted.target))
            if wanted.kind != about_all:
                planner = _PLANNERS[about_all](deciding, replace(wanted, kind=about_all), reference)
                rule = planner.searched(wanted.target)
                rules.append(rule if rule.promised else planner.nearest(wanted.target))
    with suppress(CalibrationError):
        if wanted.kind in _MENU[True]:
            rules.append(_review(rows, wanted, inside, REVIEW_SHARE))
    return tuple(rule for rule in rules if rule is not None and rule.promised)


def _menu(rows: Labelled, wanted: Wanted, inside: Marks, reference: Labelled | None) -> Menu | None:
    """What the texts in scope promise by the score that no text has fitted; None where they are too few or alike."""
    wanted = replace(wanted, target=RISKS[-1], classes=None, only=None, score=next(iter(rows.scores)))
    deciding, among, one_answer = rows.of(inside), (rows.size, int((~inside).sum())), rows.text is None
    with suppress(CalibrationError):
        risk, errors = (
            replace(_PLANNERS[kind](deciding, replace(wanted, kind=kind), reference), among=among)
            for kind in _MENU[one_answer]
        )
        shares = REVIEW_SHARES if one_answer else ()
        reviews = (RiskLine(target=share, rule=_review(rows, wanted, inside, share)) for share in shares)
        return replace(risk.menu(), errors=errors.lines(), reviews=tuple(reviews))
    return None


def _review(rows: Labelled, wanted: Wanted, inside: Marks, share: float) -> Rule:
    """The rule that leaves this share of the texts to a person."""
    return _of_all(rows, replace(wanted, kind="coverage", target=1.0 - share), inside)


def _checked(rows: Labelled, wanted: Wanted) -> tuple[Floats, Marks]:
    """Scores and errors of at least one row, (rows,) each."""
    scores, wrong = rows.scores[wanted.score], rows.errors
    if not len(scores):
        raise CalibrationError("there are no calibration rows; give labelled rows that the model was not trained on.")
    if wanted.kind != "threshold" and (scores == scores[0]).all():  # no threshold can choose among equal scores
        raise CalibrationError(
            f"all {len(scores)} rows have the {wanted.score} score {scores[0]:g}, so no threshold can tell them apart; "
            "use 'confidence', or two passes or more for a score over passes."
        )
    return scores, wrong


def _planning(
    rows: Labelled, wanted: Wanted, reference: Labelled | None, most: int = PILOT_ROWS
) -> tuple[Labelled, Labelled]:
    """The rows that decide and those that plan: the reference, or some that are set aside."""
    if reference is not None:
        return rows, reference
    aside = pilot_rows(rows.size, wanted.seed, most)
    return rows.of(~aside), rows.of(aside).planning(wanted.score)


def _of_all(rows: Labelled, wanted: Wanted, inside: Marks) -> Rule:
    """A rule about all texts, those out of scope too: at a threshold, for a share of texts to answer, or by costs."""
    if wanted.kind == "cost" and rows.paid is not None:
        return cost_rule(rows.scores[wanted.score], rows.paid, rows.errors, inside, wanted)
    scores, wrong = _checked(rows, wanted)
    scores, wrong = scores[inside], wrong[inside]
    if wanted.kind == "threshold":
        rule = rule_at(wanted.target, scores, wrong, wanted, None)
    else:
        rule = reviews_rule(scores, wrong, rows.size, wanted)
    bounded = int(rule.threshold > -math.inf or not inside.all())
    interval = coverage_interval(rule.reported, rows.size, wanted.confidence, bounded=bounded)
    share = rule.reported / rows.size
    return replace(rule, texts=rows.size, answers=rows.size, coverage=share, coverage_interval=interval)


def rows_planner(rows: Labelled, wanted: Wanted, reference: Labelled | None = None) -> RowsPlanner:
    """For the threshold at which P(wrong | answered) is at most the target with the stated confidence.

    All thresholds share one level (proof: docs/reference/decision.md): a false promise requires rejecting the first
    true hypothesis, and no data decide which one that is. So the starts must not come from the rows that decide.
    """
    _checked(rows, wanted)
    deciding, planning = _planning(rows, wanted, reference)
    scores, others = (labelled.scores[wanted.score] for labelled in (deciding, planning))
    if not len(others) or not len(scores):
        raise InputError(
            f"{len(scores)} rows and {len(others)} reference scores; the search needs at least one of each."
        )
    return RowsPlanner(wanted, scores, deciding.errors, others)


def _each_class(rows: Labelled, wanted: Wanted, classes: Sequence[str], reference: Labelled | None) -> Rule:
    """A threshold for each class: at most `target` of the answers c are wrong, for every class c at once.

    Of kind "errors": of all texts predicted as c at most `target` are answered wrongly. The rows predicted as c are a
    sample of all rows predicted as c, so the search is run on them alone, with the starts from the reference rows
    predicted as c. Each of m classes has the level (1 - confidence)/m, so that all promises hold together with the
    confidence. A class that cannot be promised is abstained on. With `only` the promise is of the precision of that
    class alone, at the full level: predictions of other classes are answered always.
    """
    _checked(rows, wanted)
    asked = [wanted.only in (None, name) for name in classes]
    if wanted.kind == "errors":
        reference = rows  # nothing is planned
    rows, reference = _planning(rows, wanted, reference, PILOT_ROWS * sum(asked))
    alone = replace(wanted, confidence=1.0 - (1.0 - wanted.confidence) / sum(asked))
    kinds = []
    for column, (name, asks) in enumerate(zip(classes, asked, strict=True)):
        predicted, others = (labelled.of(labelled.columns(len(classes)) == column) for labelled in (rows, reference))
        kinds.append(_class_promise(name, asks, predicted, alone, others))
    thresholds = np.array([kind.threshold for kind in kinds])
    of_rows = thresholds[rows.columns(len(classes))]
    rule = rule_at(of_rows, rows.scores[wanted.score], rows.errors, wanted, wanted.target)
    bounded = 0 if (thresholds == math.inf).all() else int((thresholds > -math.inf).sum())
    bands = {"bands": sum(asked), "bounded": bounded}
    return replace(
        rule,
        threshold=float(thresholds.min()),
        coverage_interval=coverage_interval(rule.reported, rows.size, wanted.confidence, **bands),
        promised=any(kind.promised for kind in kinds),
        reason=" ".join(kind.reason for kind in kinds if kind.reason),
        per_kind=tuple(kinds),
    )


def _class_promise(name: str, asked: bool, rows: Labelled, wanted: Wanted, reference: Labelled) -> KindPromise:
    """The part of one class, from the rows predicted as it; where nothing is asked, all are reported."""
    if asked and rows.size:
        scores, others = (labelled.scores[wanted.score] for labelled in (rows, reference))
        of_rows = ErrorsPlanner if wanted.kind == "errors" else RowsPlanner
        planner = of_rows(wanted, scores, rows.errors, others, unit=f"rows predicted {name}")
        rule = planner.promise(wanted.target)
        shared = ("threshold", "answers", "reported", "errors", "promised", "reason")
        return KindPromise(name=name, asked=True, **{field: getattr(rule, field) for field in shared})
    threshold, reason = (math.inf, f"no labelled row is predicted {name}.") if asked else (-math.inf, "")
    counts = {"answers": rows.size, "reported": rows.size, "errors": int(rows.errors.sum())}
    return KindPromise(name=name, asked=asked, threshold=threshold, promised=False, reason=reason, **counts)


def texts_planner(rows: Labelled, wanted: Wanted, reference: Labelled | None = None) -> TextsPlanner:
    """For the lowest threshold at which the risk is at most the target with the stated confidence.

    With N answers reported for a text and W of them wrong, the risk is E[W]/E[N] for the kind "precision", and E[W] for
    "per-text". Texts without answers count. Without a reference the texts set aside are labelled, so that their labels
    help to plan.
    """
    sample, others = (labelled.ranked(wanted.score) for labelled in _planning(rows, wanted, reference, PILOT_TEXTS))
    if reference is None:
        others = replace(others, chances=learned_chances(others.scores, others.wrong))
    if not len(sample.scores) or not len(others.scores):
        raise CalibrationError(
            f"{len(sample.scores)} labelled answers of {sample.texts} texts, and {len(others.scores)} to plan with; "
            "give labelled texts that the model was not trained on, with at least one answer of each."
        )
    return TextsPlanner(wanted, sample, others, wanted.most or most_answers(others), rows.finished)


def recall_planner(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> TextsPlanner:
    """For the lowest threshold on a score of texts at which answered texts miss at most `target` of their gold answers.

    Scores are taken as the probability that a gold answer of the text is found. Texts without answers have nothing to
    find, so the plan counts a text by its answers. A text may have so many gold answers as 99 % of the planning texts
    have answers.
    """
    if rows.missed is None or rows.gold is None or reference is None or reference.answers is None:
        raise ConfigurationError("a promise of recall needs gold=, missed= and answers= of each text.")
    scores, missed, gold = rows.scores[wanted.score], rows.missed, rows.gold
    if missed.shape != scores.shape or gold.shape != scores.shape or (missed < 0).any() or (missed > gold).any():
        raise InputError(
            f"scores {scores.shape}, missed {missed.shape} and gold {gold.shape}: give 0 ≤ missed ≤ gold for each text."
        )
    counts = reference.answers
    others = np.repeat(reference.scores[wanted.score], counts if counts.any() else np.maximum(counts, 1))
    if not gold.any() or not len(others):
        raise CalibrationError(
            f"{len(scores)} labelled texts have {int(gold.sum())} gold answers; give texts that have some."
        )
    sample = TextScores(scores, np.arange(len(scores)), len(scores), missed, gold=gold)
    most = wanted.most or max(1, int(np.quantile(counts, 0.99)))
    return TextsPlanner(wanted, sample, TextScores(others, np.arange(len(others)), len(others)), most)


_PLANNERS: dict[RuleKind, Callable[[Labelled, Wanted, Labelled | None], Planner]] = {
    "risk": rows_planner,
    "errors": lambda rows, wanted, reference: ErrorsPlanner(wanted, *_checked(rows, wanted)),  # which plans nothing
    "precision": texts_planner,
    "per-text": texts_planner,
    "recall": recall_planner,
}

_MENU: dict[bool, tuple[RuleKind, RuleKind]] = {True: ("risk", "errors"), False: ("precision", "per-text")}
"""Whether a text has one answer -> the promise about the answers, and that about all texts."""
