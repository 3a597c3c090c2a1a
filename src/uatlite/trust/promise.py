"""Promises: from labelled texts, those of them in scope, and what is wanted, to a rule and a menu.

A promise is about new texts, so the texts that decide must not have fitted anything that it is about. `fitting_rows`
divides them; a score that was fitted on no label, such as the model's own margin, lets all texts decide.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from uatlite.errors import CalibrationError, ConfigurationError, InputError, check_choice
from uatlite.trust.answers import check_texts
from uatlite.trust.bets import PILOT_TEXTS, learned_chances
from uatlite.trust.binomial import PILOT_ROWS, risk_upper_bound, rule_at
from uatlite.trust.label_sets import conformal_rank
from uatlite.trust.menu import promise, risk_curve, risk_menu, searched
from uatlite.trust.planners import RecallPlanner, RowsPlanner, TextsPlanner, most_answers, ratio_interval
from uatlite.trust.rule import ONE_ANSWER, SCORES, KindPromise, Menu, Rule, RuleKind
from uatlite.trust.search import TextScores, pilot_rows
from uatlite.values import Floats, Integers, Marks, check_labels, check_marks, check_scores, check_share

_FEWEST_TEXTS = 50
"""With fewer labelled texts in scope there is no menu."""

FITTING_SHARE = 3
"""One row in three fits the calibrator: a temperature needs few rows, a promise many."""


def fitting_rows(rows: int, seed: int = 0) -> Marks:
    """Which rows fit, (rows,): a third, drawn by the seed. The others decide.

    The draw does not look at the labels and does not balance the classes. The proof of the promise needs the rows that
    decide to be a plain random sample of the data; a split by class would make them something else.
    """
    return np.asarray(np.random.default_rng(seed).permutation(rows) % FITTING_SHARE == 0)


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
    seed: int = 0
    """of the texts that are set aside to plan with, and of the order of the others; take the first seed"""

    def __post_init__(self) -> None:
        check_share("confidence", self.confidence)
        if self.kind is not None:
            check_choice("kind", self.kind, _TARGETS)
        if self.kind in ONE_ANSWER:
            check_choice("score", self.score, SCORES)
        if self.kind == "threshold":
            if math.isnan(self.target):
                raise ConfigurationError("threshold=nan answers no row; give a number.")
        elif self.kind is not None:
            check_share("target", self.target)
        if self.most is not None and self.most < 1:
            raise ConfigurationError(f"most={self.most!r} answers a text; allowed is 1 or more.")
        if self.only is not None:
            check_choice("only", self.only, self.classes or ())


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

    def of(self, chosen: Marks) -> "Labelled":
        """The chosen texts, (texts,) bool, which are numbered anew, and their answers."""
        kept = chosen if self.text is None else chosen[self.text]
        of_answers = {name: getattr(self, name) for name in ("wrong", "kind", "text")}
        of_texts = {name: getattr(self, name) for name in ("gold", "missed", "answers")}
        taken: dict[str, Any] = {n: None if values is None else values[kept] for n, values in of_answers.items()}
        taken |= {n: None if values is None else values[chosen] for n, values in of_texts.items()}
        if self.text is not None:
            taken |= {"text": (np.cumsum(chosen) - 1)[taken["text"]], "texts": int(chosen.sum())}
        return replace(self, scores={name: values[kept] for name, values in self.scores.items()}, **taken)

    def abstaining(self, on: Marks) -> "Labelled":
        """Texts of one answer each, of which those that are abstained on, (texts,), come last."""
        return replace(
            self, scores={name: np.where(on, s.min(initial=np.inf) - 1, s) for name, s in self.scores.items()}
        )

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
        found = np.bincount(self.text[right], minlength=self.size).astype(np.float64)
        gold = self.gold.astype(np.float64)
        interval = ratio_interval(found, gold, rule.confidence)
        return replace(rule, coverage=float(found.sum() / gold.sum()), coverage_interval=interval, covered=self.covered)


@dataclass(frozen=True)
class Decision:
    """What labelled texts decide."""

    rule: Rule | None
    menu: Menu | None


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
    listed = None
    if menu and inside.sum() >= _FEWEST_TEXTS:
        with suppress(CalibrationError):  # too few answers, or all alike
            listed = _menu(rows.of(inside), replace(wanted, kind=None, score=next(iter(rows.scores))), reference)
    if wanted.kind is None:
        return Decision(None, listed)
    if wanted.kind == "recall" and fitting is None and reference is None:
        fitting = pilot_rows(rows.size, wanted.seed, PILOT_TEXTS)
        reference = rows.of(fitting)
    free = everything if fitting is None else ~fitting
    if reference is None and fitting is not None:
        reference = rows.of(fitting & inside)
    of_all = wanted.kind in ("threshold", "coverage")
    deciding = rows.abstaining(~inside).of(free) if of_all else rows.of(free & inside)
    return Decision(_TARGETS[wanted.kind](deciding, wanted, reference), listed)


def _menu(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Menu:
    if rows.text is None:
        planner = rows_planner(rows, wanted, reference)
        return replace(risk_menu(planner), curve=risk_curve(planner.scores, planner.wrong, wanted.confidence))
    menu = risk_menu(texts_planner(rows, wanted, reference))
    rules = [None if line.rule is None else rows.finished(line.rule) for line in menu.lines]
    return replace(menu, lines=tuple(replace(line, rule=rule) for line, rule in zip(menu.lines, rules, strict=True)))


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


def _fixed_threshold(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Rule:
    """The threshold given beforehand, with its coverage and an exact bound of its risk."""
    return rule_at(wanted.target, *_checked(rows, wanted), "threshold", None, wanted.score, wanted.confidence)


def _target_coverage(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Rule:
    """The highest threshold at which a new row is answered with probability `target` or more.

    A new row's score is at least the j-th largest of n with probability j/(n+1) or more, by exchangeability. So
    j = ceil(target·(n+1)), and where that is n+1 all rows are answered.
    """
    scores, wrong = _checked(rows, wanted)
    rank = conformal_rank(wanted.target, len(scores))
    # "> the number next below it" is "≥ it": rows that tie with the j-th are answered too.
    threshold = -math.inf if rank > len(scores) else float(np.nextafter(np.sort(scores)[-rank], -math.inf))
    return rule_at(threshold, scores, wrong, "coverage", wanted.target, wanted.score, wanted.confidence)


def _target_risk(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Rule:
    """The threshold at which P(wrong | answered) is at most `target` with the stated confidence, or none.

    All thresholds share one level (proof: docs/reference/decision.md): a false promise requires rejecting the first
    true hypothesis, and no data decide which one that is. So the starts must not come from the rows that decide.
    """
    if wanted.classes is not None:
        return _each_class(rows, wanted, wanted.classes, reference)
    return promise(rows_planner(rows, wanted, reference), wanted.target)


def rows_planner(rows: Labelled, wanted: Wanted, reference: Labelled | None = None) -> RowsPlanner:
    scores, wrong = _checked(rows, wanted)
    if reference is not None:
        others = reference.scores[wanted.score]
    else:
        aside = pilot_rows(len(scores), wanted.seed, PILOT_ROWS)
        scores, wrong, others = scores[~aside], wrong[~aside], scores[aside]
    if not len(others) or not len(scores):
        raise InputError(
            f"{len(scores)} rows and {len(others)} reference scores; the search needs at least one of each."
        )
    return RowsPlanner(scores, wrong, others, wanted.score, wanted.confidence)


def _each_class(rows: Labelled, wanted: Wanted, classes: Sequence[str], reference: Labelled | None) -> Rule:
    """A threshold for each class: at most `target` of the answers c are wrong, for every class c at once.

    The rows predicted as c are a sample of all rows predicted as c, so the search is run on them alone, with the starts
    from the reference rows predicted as c. Each of m classes has the level (1 - confidence)/m, so that all promises
    hold together with the confidence. A class that cannot be promised is abstained on. With `only` the promise is of
    the precision of that class alone, at the full level: predictions of other classes are answered always.
    """
    _checked(rows, wanted)
    asked = [wanted.only in (None, name) for name in classes]
    if reference is None:
        aside = pilot_rows(rows.size, wanted.seed, PILOT_ROWS * sum(asked))
        rows, reference = rows.of(~aside), rows.of(aside)
    columns, others = (_columns(part, len(classes)) for part in (rows, reference))
    alone = replace(wanted, confidence=1.0 - (1.0 - wanted.confidence) / sum(asked))
    kinds = [
        _class_promise(name, asks, rows.of(columns == column), alone, reference.of(others == column))
        for column, (name, asks) in enumerate(zip(classes, asked, strict=True))
    ]
    return _joined(tuple(kinds), rows.size, wanted)


def _columns(rows: Labelled, classes: int) -> Integers:
    if rows.kind is None:
        raise ConfigurationError("a promise for each class needs the predicted column of each row, kind=.")
    return check_labels(rows.kind, rows=rows.size, classes=classes)


def _class_promise(name: str, asked: bool, rows: Labelled, wanted: Wanted, reference: Labelled) -> KindPromise:
    size, wrong = rows.size, int(rows.errors.sum())
    if not asked:  # always reported
        return KindPromise(
            name=name, asked=False, threshold=-math.inf, answers=size, reported=size, errors=wrong, promised=False
        )
    if not size:
        none, reason = math.inf, f"no labelled row is predicted {name}."
        return KindPromise(
            name=name, asked=True, threshold=none, answers=0, reported=0, errors=0, promised=False, reason=reason
        )
    scores, others = rows.scores[wanted.score], reference.scores[wanted.score]
    unit = f"rows predicted {name}"
    planner = RowsPlanner(scores, rows.errors, others, wanted.score, wanted.confidence, unit)
    rule = promise(planner, wanted.target)
    shared = ("threshold", "answers", "reported", "errors", "promised", "reason")
    return KindPromise(name=name, asked=True, **{field: getattr(rule, field) for field in shared})


def _joined(kinds: tuple[KindPromise, ...], rows: int, wanted: Wanted) -> Rule:
    """The rule of all classes. 1 - coverage is a sum over classes, with a Dvoretzky–Kiefer–Wolfowitz band for each."""
    reported, errors = sum(kind.reported for kind in kinds), sum(kind.errors for kind in kinds)
    share = reported / rows
    asked, bounded = sum(kind.asked for kind in kinds), sum(kind.threshold > -math.inf for kind in kinds)
    width = bounded * math.sqrt(math.log(2.0 * asked / (1.0 - wanted.confidence)) / (2.0 * rows))
    exact = all(kind.threshold == math.inf for kind in kinds)
    return Rule(
        kind="risk",
        score=wanted.score,
        threshold=min(kind.threshold for kind in kinds),
        target=wanted.target,
        confidence=wanted.confidence,
        texts=rows,
        answers=rows,
        reported=reported,
        errors=errors,
        coverage=share,
        coverage_interval=(share, share) if exact else (max(share - width, 0.0), min(share + width, 1.0)),
        promised=any(kind.promised for kind in kinds),
        reason=" ".join(kind.reason for kind in kinds if kind.reason),
        risk_bound=float(risk_upper_bound(errors, reported, wanted.confidence)) if reported else None,
        per_kind=kinds,
    )


def _target_wrong(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Rule:
    """The lowest threshold at which the risk is at most `target` with the stated confidence, or none.

    With N answers reported for a text and W of them wrong, the risk is E[W]/E[N] for the kind "precision", and E[W] for
    "per-text". Texts without answers count.
    """
    return rows.finished(promise(texts_planner(rows, wanted, reference), wanted.target))


def texts_planner(rows: Labelled, wanted: Wanted, reference: Labelled | None = None) -> TextsPlanner:
    """Without a reference the texts set aside are labelled, so that their labels help to plan."""
    if reference is not None:
        sample, others = rows.ranked(wanted.score), reference.ranked(wanted.score)
    else:
        aside = pilot_rows(rows.size, wanted.seed, PILOT_TEXTS) if rows.size else np.zeros(0, dtype=np.bool_)
        sample, others = rows.of(~aside).ranked(wanted.score), rows.of(aside).ranked(wanted.score)
        others = replace(others, chances=learned_chances(others.scores, others.errors))
    if not len(sample.scores) or not len(others.scores):
        raise CalibrationError(
            f"{len(sample.scores)} labelled answers of {sample.texts} texts, and {len(others.scores)} to plan with; "
            "give labelled texts that the model was not trained on, with at least one answer of each."
        )
    most = wanted.most or most_answers(others)
    kind: Literal["precision", "per-text"] = "per-text" if wanted.kind == "per-text" else "precision"
    return TextsPlanner(sample, others, kind, most, wanted.score, wanted.confidence, wanted.seed)


def _target_recall(rows: Labelled, wanted: Wanted, reference: Labelled | None) -> Rule:
    """The lowest threshold on a score of texts at which answered texts miss at most `target` of their gold answers.

    Texts without answers have nothing to find, so the plan counts a text by its answers. A text may have so many gold
    answers as 99 % of the planning texts have answers.
    """
    if rows.missed is None or rows.gold is None or reference is None or reference.answers is None:
        raise ConfigurationError("a promise of recall needs gold=, missed= and answers= of each text.")
    scores, missed, gold = (check_scores(values) for values in (rows.scores[wanted.score], rows.missed, rows.gold))
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
    most = wanted.most or max(1, int(np.quantile(counts, 0.99)))
    return searched(
        RecallPlanner(scores, missed, gold, others, most, wanted.score, wanted.confidence, wanted.seed), wanted.target
    )


_TARGETS: dict[RuleKind, Callable[[Labelled, Wanted, Labelled | None], Rule]] = {
    "threshold": _fixed_threshold,
    "coverage": _target_coverage,
    "risk": _target_risk,
    "precision": _target_wrong,
    "per-text": _target_wrong,
    "recall": _target_recall,
}
