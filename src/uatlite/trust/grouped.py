"""Promises about answers of which a text may have none or many: texts are the unit, whatever their answers share.

`grouped_risk`: at most `target` of the reported answers are wrong, or at most `target` wrong answers a text.
`grouped_recall`: of the gold answers of answered texts at most 1 - `recall` are missed. Thresholds are tested in an
order that is fixed beforehand, as in `promise.py`, each by the bet of `text_bets.py` (docs/reference/several.md).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, ConfigurationError, InputError, check_choice
from uatlite.trust.answers import TextScores, check_texts
from uatlite.trust.grouped_search import (
    STARTS,
    Plan,
    clumping,
    error_chances,
    largest_loss,
    learned_chances,
    lowest_in_plan,
    moments,
    plan_search,
    plan_starts,
    threshold_grid,
)
from uatlite.trust.promise import HIGHER_RISKS, POWER, RISKS, least_answers, pilot_rows, two_digits
from uatlite.trust.rule import StoredDecision
from uatlite.values import Floats, check_scores, check_share

GROUPED_KINDS = ("precision", "per-text", "recall")
"""At most `target` of the reported answers are wrong; wrong answers a text; gold answers of answered texts missed."""

KEPT = 0.99
"""By default a text may report so many answers that this share of all answers, without a threshold, is kept."""

PILOT_TEXTS = 100
"""The most texts set aside to plan with, if there is no reference: a tenth of the texts."""


@dataclass(frozen=True, kw_only=True)
class GroupedRule(StoredDecision):
    """Report an answer if its score is above the threshold and it is one of the `most` surest of its text.

    `texts` labelled texts decided; they have `answers` answers, of which `reported` are reported, `errors` of them
    wrong. `coverage` is reported / answers. Of kind "recall" the score is one of the text, which is answered if it is
    above the threshold: `answers`, `reported` and `errors` are then the gold answers of all texts, those of answered
    texts, and those of them that are missed; `coverage` is the share of texts answered, and of the gold answers of a
    text at most `most` count. The interval of the coverage is that of a ratio over texts, by the normal approximation.
    Calibration may state the coverage of something else, such as gold answers, and name it in `covered`.
    `promised` says whether `target` is promised, and `reason` why not. `target` is the share that may be wrong, the
    wrong answers a text, or the share that may be missed.
    """

    stored_name: ClassVar[str] = "rule for several answers"
    kind: str
    score: str
    threshold: float
    most: int
    target: float
    confidence: float
    texts: int
    answers: int
    reported: int
    errors: int
    coverage: float
    coverage_interval: tuple[float, float]
    promised: bool
    reason: str = ""
    covered: str = "answers"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, GROUPED_KINDS)

    @property
    def share_of(self) -> str:
        """What `coverage` is the share of, as in "82.0% of answers reported"."""
        return "of texts answered" if self.kind == "recall" else f"of {self.covered} reported"

    def reports(self, scores: ArrayLike, text: ArrayLike) -> NDArray[np.bool_]:
        """True where to report an answer, (answers,): its score and its text, as in `Answers`."""
        if self.kind == "recall":
            raise ConfigurationError("this rule is about whole texts; use answers_texts(scores of texts).")
        s = check_scores(scores)
        answers = TextScores(s, check_texts(text, answers=len(s), texts=1 << 62), 1 << 62)
        return np.asarray((s > self.threshold) & (answers.ranks < self.most))

    def answers_texts(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """True where to answer a text, (texts,), by a rule for recall."""
        if self.kind != "recall":
            raise ConfigurationError("this rule is about single answers; use reports(scores, text of each).")
        return np.asarray(check_scores(scores) > self.threshold)

    def describe(self) -> str:
        """What is promised, in a sentence or two for a person."""
        if not self.promised:
            return f"{'Answer no text' if self.kind == 'recall' else 'Report nothing'}: {self.reason}"
        low, high = self.coverage_interval
        share, basis = f"{self.coverage:.1%}", f"confidence {self.confidence:g}, {self.texts} calibration texts"
        above = f" where {self.score} > {self.threshold:.6g}" if self.threshold > -math.inf else ""
        if self.kind == "recall":
            return (
                f"Answer {'texts' + above if above else 'all texts'}: at least {1 - self.target:.2%} of their gold "
                f"answers are found; {share} of texts ({low:.1%} to {high:.1%}) are answered, {self.errors} of "
                f"{self.reported} gold answers missed ({basis})."
            )
        promise = (
            f"at most {self.target:.2%} of them are wrong"
            if self.kind == "precision"
            else f"at most {self.target:g} wrong answers a text on average"
        )
        return (
            f"Report answers{above}, at most {self.most} a text: {promise}; {share} of {self.covered} ({low:.1%} to "
            f"{high:.1%}) are reported; {self.errors} of {self.reported} reported are wrong ({basis})."
        )


def grouped_risk(
    scores: ArrayLike,
    wrong: ArrayLike,
    text: ArrayLike,
    texts: int,
    target: float,
    *,
    kind: str = "precision",
    score: str = "confidence",
    confidence: float = 0.95,
    most: int | None = None,
    reference: TextScores | None = None,
    seed: int = 0,
) -> GroupedRule:
    """The lowest threshold at which the risk is at most `target` with the stated confidence, or none.

    `scores`, `wrong` and `text` (answers,) are of the answers of `texts` labelled texts that fitted neither the model
    nor the score; `text` is the index of the text of each answer, ascending, and texts without answers count. With N
    answers reported for a text and W of them wrong, the risk is E[W]/E[N] for the kind "precision", and E[W] for
    "per-text". A text reports at most its `most` surest answers; where the labelled texts are few, fewer, as the
    promise would cost too much otherwise. All this and the thresholds are planned on `reference`, answers of other
    texts without labels; without it a tenth of the texts, at most 100, drawn by `seed`, is set aside for it, and their
    labels help to plan. The bet goes through the texts in an order drawn by `seed`: take the first seed, not the one
    that turned out well.
    """
    sample, w, others = check_grouped(scores, wrong, text, texts, confidence, reference, seed)
    check_choice("kind", kind, GROUPED_KINDS[:2])
    check_share("target", target)
    cap = check_most(most, others)
    rule = grouped_at(sample, w, target, others, kind=kind, score=score, confidence=confidence, most=cap, seed=seed)
    return rule if rule.promised else replace(rule, reason=why_not(sample, w, others, rule, cap, seed))


def check_grouped(
    scores: ArrayLike,
    wrong: ArrayLike,
    text: ArrayLike,
    texts: int,
    confidence: float,
    reference: TextScores | None,
    seed: int,
) -> tuple[TextScores, NDArray[np.bool_], TextScores]:
    """The labelled answers that decide, which of them are wrong, and those that plan."""
    sample, w = TextScores(check_scores(scores), np.asarray(text), texts), np.asarray(wrong)
    if w.dtype != np.bool_ or w.shape != sample.scores.shape:
        raise InputError(
            f"wrong has type {w.dtype} and shape {w.shape}; allowed is bool and ({len(sample.scores)},), one for each "
            "answer."
        )
    check_share("confidence", confidence)
    if reference is None:
        aside = pilot_rows(texts, seed, PILOT_TEXTS) if texts else np.zeros(0, dtype=bool)
        of_pilot = aside[sample.text]
        reference = replace(sample.of_texts(aside), chances=learned_chances(sample.scores[of_pilot], w[of_pilot]))
        sample, w = sample.of_texts(~aside), w[~of_pilot]
    if not len(sample.scores) or not len(reference.scores):
        raise CalibrationError(
            f"{len(sample.scores)} labelled answers of {sample.texts} texts, and {len(reference.scores)} to plan with; "
            "give labelled texts that the model was not trained on, with at least one answer of each."
        )
    return sample, w, reference


def check_most(most: int | None, others: TextScores) -> int:
    """The most answers that a text may report: as given, or so many that nearly all answers of `others` are kept."""
    if most is not None:
        if most < 1:
            raise ConfigurationError(f"most={most!r} answers a text; allowed is 1 or more.")
        return int(most)
    counts = np.bincount(others.text)
    kept = [np.minimum(counts, m).sum() / counts.sum() for m in range(1, int(counts.max()) + 1)]
    return 1 + int(np.argmax(np.array(kept) >= KEPT))


def grouped_at(
    sample: TextScores,
    wrong: NDArray[np.bool_],
    target: float,
    others: TextScores,
    *,
    kind: str,
    score: str,
    confidence: float,
    most: int,
    seed: int,
) -> GroupedRule:
    """The rule of the search; without a reason where nothing is promised."""
    plan = plan_search(others, sample.texts, target, 1.0 - confidence, most, kind)
    steps = list(zip(plan.thresholds, plan.most, strict=True))
    errors = np.column_stack([sample.tally(t, m, wrong) for t, m in steps])
    counts = np.ones_like(errors) if kind == "per-text" else np.column_stack([sample.tally(t, m) for t, m in steps])
    place = lowest_in_plan(plan, counts, errors, target, kind=kind, seed=seed)
    threshold, cap = (math.inf, most) if place is None else (float(plan.thresholds[place]), int(plan.most[place]))
    every, shown = sample.tally(-math.inf, len(sample.scores)), sample.tally(threshold, cap)
    return GroupedRule(
        kind=kind,
        score=score,
        threshold=threshold,
        most=cap,
        target=target,
        confidence=confidence,
        texts=sample.texts,
        answers=len(sample.scores),
        reported=int(shown.sum()),
        errors=int(sample.tally(threshold, cap, wrong).sum()),
        coverage=float(shown.sum() / every.sum()),
        coverage_interval=ratio_interval(shown, every, confidence),
        promised=place is not None,
    )


def ratio_interval(parts: Floats, wholes: Floats, confidence: float) -> tuple[float, float]:
    """sum(parts)/sum(wholes), both (texts,), ± its standard error over texts times the normal quantile, in [0, 1]."""
    from scipy.stats import norm

    share = parts.sum() / wholes.sum()
    error = math.sqrt(float(np.square(parts - share * wholes).sum())) / wholes.sum()
    width = norm.ppf(0.5 + confidence / 2) * error
    return max(float(share - width), 0.0), min(float(share + width), 1.0)


def grouped_recall(
    scores: ArrayLike,
    missed: ArrayLike,
    gold: ArrayLike,
    recall: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
    most: int | None = None,
    reference: ArrayLike | None = None,
    seed: int = 0,
) -> GroupedRule:
    """The lowest threshold on a score of texts at which answered texts find at least `recall` of their gold answers.

    `scores` (texts,) are of labelled texts with `gold` (texts,) gold answers, `missed` (texts,) of which are missed.
    With E[missed]/E[gold] over answered texts the share missed is at most 1 - recall with the stated confidence. Of a
    text with more than `most` gold answers the counts are scaled down to `most`, so that no text outweighs the others
    without bound. `most`, by default the 99 % quantile of gold answers, and the thresholds come from a tenth of the
    texts, at most 100, drawn by `seed`. With both `most` and `reference` (others,), scores of other texts, none of the
    labelled texts is set aside.
    """
    s, m, g = check_scores(scores), check_scores(missed), check_scores(gold)
    check_share("recall", recall)
    check_share("confidence", confidence)
    if m.shape != s.shape or g.shape != s.shape or (m < 0).any() or (m > g).any():
        raise InputError(
            f"scores {s.shape}, missed {m.shape} and gold {g.shape}: give 0 ≤ missed ≤ gold for each text."
        )
    others = None if reference is None else check_scores(reference)
    planned = (1.0, 1.0)
    if most is None or others is None:
        aside = pilot_rows(len(s), seed, PILOT_TEXTS) if len(s) else np.zeros(0, dtype=bool)
        others = s[aside] if others is None else others
        some = g[aside][g[aside] > 0]
        most = most or (max(1, math.ceil(np.quantile(some, 0.99))) if len(some) else 1)
        planned = moments(np.minimum(some, most))
        s, m, g = s[~aside], m[~aside], g[~aside]
    if not g.any() or not len(others):
        raise CalibrationError(f"{len(s)} labelled texts have {int(g.sum())} gold answers; give texts that have some.")
    target = 1.0 - recall
    scale = np.minimum(1.0, most / np.maximum(g, 1.0))
    plan = plan_recall(others, float((g * scale).sum()), target, 1.0 - confidence, most, planned)
    answered = s[:, None] > plan.thresholds
    counts, errors = answered * (g * scale)[:, None], answered * (m * scale)[:, None]
    place = lowest_in_plan(plan, counts, errors, target, kind="recall", seed=seed)
    threshold = math.inf if place is None else float(plan.thresholds[place])
    kept = s > threshold
    return GroupedRule(
        kind="recall",
        score=score,
        threshold=threshold,
        most=int(most),
        target=target,
        confidence=confidence,
        texts=len(s),
        answers=int(g.sum()),
        reported=int(g[kept].sum()),
        errors=int(m[kept].sum()),
        coverage=float(kept.mean()),
        coverage_interval=ratio_interval(kept.astype(np.float64), np.ones(len(s)), confidence),
        promised=place is not None,
        reason=""
        if place is not None
        else f"of the gold answers of {len(s)} texts {m.sum() / g.sum():.1%} are missed, which cannot promise a recall "
        f"of {recall:.2%} with confidence {confidence:g} at any threshold; ask for a lower recall, or report more.",
    )


def plan_recall(
    others: Floats, gold: float, target: float, level: float, most: int, planned: tuple[float, float]
) -> Plan:
    """Thresholds on scores of texts and where to begin, for texts with `gold` gold answers in all.

    The scores are taken as the probability that a gold answer of the text is found.
    """
    thresholds, chances = threshold_grid(others), error_chances(others, target)
    moment = np.tile(planned, (len(thresholds), 1))
    answered = others > thresholds[:, None]
    answers, errors = gold * answered.mean(axis=1), gold * (answered * chances).mean(axis=1)
    loss = np.full(len(thresholds), largest_loss(most, target, "recall"))
    starts = plan_starts(answers, errors, clumping(moment), loss, target, level)
    return Plan(thresholds, np.full(len(thresholds), most), moment, starts)


def why_not(
    sample: TextScores, wrong: NDArray[np.bool_], others: TextScores, rule: GroupedRule, most: int, seed: int
) -> str:
    """Why no threshold can promise the target, which risk can be promised, and how many texts the target would take."""
    asked = {"precision": f"a risk of {rule.target:.2%}", "per-text": f"{rule.target:g} wrong answers a text"}[
        rule.kind
    ]
    why = (
        f"{sample.texts} texts with {len(sample.scores)} answers, {int(wrong.sum())} of them wrong, cannot promise "
        f"{asked} with confidence {rule.confidence:g}"
    )
    can = "they promise no risk up to 50%"
    for risk in RISKS + HIGHER_RISKS:
        if (
            risk > rule.target
            and grouped_at(
                sample,
                wrong,
                risk,
                others,
                kind=rule.kind,
                score=rule.score,
                confidence=rule.confidence,
                most=most,
                seed=seed,
            ).promised
        ):
            can = f"allow more: they do promise {risk:.2%}" if rule.kind == "precision" else f"they do promise {risk:g}"
            break
    needed = texts_needed(sample, wrong, rule.target, others, rule.kind, rule.confidence, most)
    more = (
        "more texts will hardly help, the surest answers are wrong too often; use another score"
        if needed is None
        else f"{asked} would take about {two_digits(max(needed - sample.texts, 1)):,} more labelled texts"
    )
    return f"{why}; {can}, and {more}."


def texts_needed(
    sample: TextScores,
    wrong: NDArray[np.bool_],
    target: float,
    others: TextScores,
    kind: str,
    confidence: float,
    most: int,
) -> int | None:
    """How many labelled texts a promise would take, in all: an estimate to two digits; None if more will not do.

    The fewest with which the test of one threshold is passed with probability 0.8, by the normal approximation, if its
    errors are half as observed and half as a logistic regression on the scores says.
    """
    from scipy.stats import norm

    level = STARTS[0][1] * (1.0 - confidence)
    plan = plan_search(others, 4 * sample.texts, target, 1.0 - confidence, most, kind)
    chances, found = learned_chances(sample.scores, wrong), []
    for threshold, cap in zip(plan.thresholds.tolist(), plan.most.tolist(), strict=True):
        counts, errors = sample.tally(threshold, cap), sample.tally(threshold, cap, wrong)
        shown = (sample.scores > threshold) & (sample.ranks < cap)
        allowed = target * (sample.texts if kind == "per-text" else counts.sum())
        gain = (allowed - (errors.sum() + chances[shown].sum()) / 2) / sample.texts
        if gain <= 0:
            continue
        noise = math.sqrt((np.square(errors - target * counts).sum() + 1.0) / sample.texts)
        by_noise = ((norm.ppf(1.0 - level) + norm.ppf(POWER)) * noise / gain) ** 2
        by_count = least_answers(1, target, level) * sample.texts / (allowed / target)
        found.append(max(by_noise, by_count, 1.1 * sample.texts))
    return two_digits(math.ceil(min(found))) if found else None
