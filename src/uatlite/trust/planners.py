"""Planners: labelled texts, and what plans the search for a promise about them.

Of one answer a text the test is the exact binomial one; of any number, with the text as the unit, it is a bet.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from uatlite.trust import bets, binomial
from uatlite.trust.rule import Rule
from uatlite.trust.search import MOST_ROWS, POWER, Plan, Test, TextScores, two_digits
from uatlite.values import Floats, Integers, Marks

KEPT = 0.99
"""By default a text may report so many answers that this share of all answers, without a threshold, is kept."""


@dataclass(frozen=True, eq=False)
class RowsPlanner:
    """Scores and errors of labelled rows, and scores of other rows, `others`, that say where the search starts.

    Every planner says the hypotheses and where to begin (`plan`), how they are tested (`test`), and the rule of the
    hypothesis at a place, or the one that reports nothing (`rule`).

    At the threshold t the hypothesis "P(wrong | score > t) > target" is rejected if P(Binomial(N, target) ≤ K) is at
    most the level, with N answers and K errors there. Answers change only at scores that occur, so only these are
    tested, from the highest down.
    """

    scores: Floats
    wrong: Marks
    others: Floats
    score: str
    confidence: float
    unit: str = "rows"

    @property
    def texts(self) -> int:
        return len(self.scores)

    @cached_property
    def errors(self) -> Integers:
        """(rows + 1,): among the k highest."""
        return np.concatenate([[0], np.cumsum(self.wrong[np.argsort(-self.scores, kind="stable")])])

    @cached_property
    def below(self) -> Floats:
        """(rows + 1,): the lowest threshold that answers the k highest."""
        return np.append(np.sort(self.scores)[::-1], -math.inf)

    @cached_property
    def counts(self) -> Integers:
        """(hypotheses,): the numbers of answers that some threshold has; none separates equal scores."""
        return np.flatnonzero(np.append(True, self.below[1:] != self.below[:-1]))

    def plan(self, target: float) -> Plan:
        starts = binomial.plan_starts(self.others, len(self.scores), target, 1.0 - self.confidence)
        answered = [int((self.scores > threshold).sum()) for threshold, _ in starts]
        places = np.searchsorted(self.counts, answered).tolist()
        levels = [level for _, level in starts]
        return Plan(self.below[self.counts], list(zip(places, levels, strict=True)))

    def test(self, plan: Plan, target: float) -> Test:
        from scipy.stats import binom

        p_values = binom.cdf(self.errors[self.counts], self.counts, target)
        return lambda places, levels: np.asarray(p_values[places, None] <= levels)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold = math.inf if place is None else float(plan.thresholds[place])
        return binomial.rule_at(threshold, self.scores, self.wrong, "risk", target, self.score, self.confidence)

    def needed(self, target: float) -> int | None:
        """The fewest rows with which a search passes its start with probability 0.8, if the risk there is the observed.

        None if more rows will not do.
        """
        from scipy.stats import binom

        size, level = len(self.scores), 1.0 - self.confidence
        observed = self.errors[1:] / np.arange(1, size + 1)
        steps = np.ceil(size * 1.05 ** np.arange(1, math.log(max(MOST_ROWS / size, 1.06), 1.05)))
        runs = [
            (n, *run) for n in steps.astype(int).tolist() for run in binomial.planned_shares(n, math.inf, target, level)
        ]
        if not runs:
            return None
        rows, shares, levels = np.array(runs).T
        answered = (shares * rows).astype(np.int64)
        risks = observed[np.maximum(np.round(shares * size).astype(np.int64), 1) - 1]
        chances = binom.cdf(binomial.allowed_errors(answered, target, 1.0 - levels), answered, risks)
        enough = rows[(risks < target) & (chances >= POWER)]
        return two_digits(int(enough[0])) if len(enough) else None

    def why_not(self, target: float, nearest: float | None, needed: int | None) -> str:
        size, asked = len(self.scores), f"a risk of {target:.2%} with confidence {self.confidence:g}"
        starts = binomial.plan_starts(self.others, size, target, 1.0 - self.confidence)
        if not starts:
            least = binomial.least_answers(0, target, 1.0 - self.confidence)
            why = f"{size} {self.unit} cannot promise {asked}: even without an error it takes {least} answered rows"
        else:
            answered = self.scores > starts[-1][0]
            why = (
                f"of the {int(answered.sum())} most trusted of {size} {self.unit} {int((answered & self.wrong).sum())} "
                f"are wrong, which cannot promise {asked}"
            )
        more = (
            "and more rows will hardly help, the most trusted ones are wrong too often; use another score"
            if needed is None
            else f"and {target:.2%} would take about {two_digits(needed - size):,} more labelled {self.unit}"
        )
        can = "promise no risk up to 50%" if nearest is None else f"do promise {nearest:.2%}"
        return f"{why}; {'' if nearest is None else 'allow a higher risk: '}they {can}, {more}."


@dataclass(frozen=True, eq=False)
class TextsPlanner:
    """Labelled answers, and those of other texts, `others`, that plan: of rules of kind "precision" and "per-text".

    A text reports at most its `most` surest answers; where the labelled texts are few, fewer, as the promise would cost
    too much otherwise. The bet goes through the texts in an order drawn by `seed`.
    """

    sample: TextScores
    others: TextScores
    kind: Literal["precision", "per-text"]
    most: int
    score: str
    confidence: float
    seed: int = 0
    unit: str = "texts"

    @property
    def texts(self) -> int:
        return self.sample.texts

    def plan(self, target: float, texts: int | None = None) -> Plan:
        """The hypotheses and where to begin, for as many labelled texts as there are or for `texts`."""
        size, level = texts or self.texts, 1.0 - self.confidence
        return bets.plan_search(self.others, size, target, level, self.most, self.kind)

    def test(self, plan: Plan, target: float) -> Test:
        shown = [self.sample.shown(*step) for step in _steps(plan)]
        errors = np.column_stack([self.sample.tally(marks & self.sample.errors) for marks in shown])
        counts = np.column_stack([self.sample.tally(marks) for marks in shown])
        if self.kind == "per-text":
            counts = np.ones_like(errors)
        return bets.bet(plan, counts, errors, target, kind=self.kind, seed=self.seed)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold, most = (math.inf, self.most) if place is None else _steps(plan)[place]
        shown = self.sample.shown(threshold, most)
        reported, every = self.sample.tally(shown), self.sample.tally(np.ones_like(shown))
        return Rule(
            kind=self.kind,
            score=self.score,
            threshold=threshold,
            most=most,
            target=target,
            confidence=self.confidence,
            texts=self.texts,
            answers=len(shown),
            reported=int(shown.sum()),
            errors=int((shown & self.sample.errors).sum()),
            coverage=float(reported.sum() / every.sum()),
            coverage_interval=ratio_interval(reported, every, self.confidence),
            promised=place is not None,
        )

    def needed(self, target: float) -> int | None:
        """The fewest texts with which the test of one threshold is passed with probability 0.8, by the normal
        approximation, if its errors are half as observed and half as a logistic regression on the scores says.

        None if more texts will not do.
        """
        from scipy.stats import norm

        level, texts = bets.TEXT_STARTS[0][1] * (1.0 - self.confidence), self.texts
        chances, sizes = bets.learned_chances(self.sample.scores, self.sample.errors), []
        for step in _steps(self.plan(target, 4 * texts)):
            shown = self.sample.shown(*step)
            counts, errors = self.sample.tally(shown), self.sample.tally(shown & self.sample.errors)
            allowed = target * (texts if self.kind == "per-text" else counts.sum())
            gain = (allowed - (errors.sum() + chances[shown].sum()) / 2) / texts
            if gain <= 0:
                continue
            noise = math.sqrt((np.square(errors - target * counts).sum() + 1.0) / texts)
            by_noise = ((norm.ppf(1.0 - level) + norm.ppf(POWER)) * noise / gain) ** 2
            by_count = binomial.least_answers(1, target, level) * texts / (allowed / target)
            sizes.append(max(by_noise, by_count, 1.1 * texts))
        return two_digits(math.ceil(min(sizes))) if sizes else None

    def why_not(self, target: float, nearest: float | None, needed: int | None) -> str:
        of_answers = self.kind == "precision"
        asked = f"a risk of {target:.2%}" if of_answers else f"{target:g} wrong answers a text"
        why = (
            f"{self.texts} texts with {len(self.sample.scores)} answers, {int(self.sample.errors.sum())} of them "
            f"wrong, cannot promise {asked} with confidence {self.confidence:g}"
        )
        can = "they promise no risk up to 50%"
        if nearest is not None:
            can = f"allow more: they do promise {nearest:.2%}" if of_answers else f"they do promise {nearest:g}"
        more = (
            "more texts will hardly help, the surest answers are wrong too often; use another score"
            if needed is None
            else f"{asked} would take about {two_digits(max(needed - self.texts, 1)):,} more labelled texts"
        )
        return f"{why}; {can}, and {more}."


@dataclass(frozen=True, eq=False)
class RecallPlanner:
    """Scores of labelled texts with `gold` gold answers each, `missed` of them missed: of rules of kind "recall".

    `others` are scores of texts that plan. With E[missed]/E[gold] over answered texts the share missed is at most the
    target. Of a text with more than `most` gold answers the counts are scaled down to `most`, so that no text outweighs
    the others without bound.
    """

    scores: Floats
    missed: Floats
    gold: Floats
    others: Floats
    most: int
    score: str
    confidence: float
    seed: int = 0

    @property
    def scale(self) -> Floats:
        """(texts,): what the counts of a text are multiplied by."""
        return np.minimum(1.0, self.most / np.maximum(self.gold, 1.0))

    def plan(self, target: float) -> Plan:
        """Scores are taken as the probability that a gold answer of the text is found."""
        thresholds, chances = bets.threshold_grid(self.others), bets.error_chances(self.others, target)
        gold, answered = float((self.gold * self.scale).sum()), self.others > thresholds[:, None]
        answers, errors = gold * answered.mean(axis=1), gold * (answered * chances).mean(axis=1)
        loss = np.full(len(thresholds), bets.largest_loss(self.most, target, "recall"))
        clumps = np.ones(len(thresholds))
        starts = bets.plan_text_starts(answers, errors, clumps, loss, target, 1.0 - self.confidence)
        return Plan(thresholds, starts, np.full(len(thresholds), self.most), np.ones((len(thresholds), 2)))

    def test(self, plan: Plan, target: float) -> Test:
        answered = self.scores[:, None] > plan.thresholds
        counts, errors = (answered * (values * self.scale)[:, None] for values in (self.gold, self.missed))
        return bets.bet(plan, counts, errors, target, kind="recall", seed=self.seed)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold = math.inf if place is None else float(plan.thresholds[place])
        answered = self.scores > threshold
        why_not = (
            f"of the gold answers of {len(self.scores)} texts {self.missed.sum() / self.gold.sum():.1%} are "
            f"missed, which cannot promise a recall of {1.0 - target:.2%} with confidence {self.confidence:g} at any "
            "threshold; ask for a lower recall, or report more."
        )
        return Rule(
            kind="recall",
            score=self.score,
            threshold=threshold,
            most=self.most,
            target=target,
            confidence=self.confidence,
            texts=len(self.scores),
            answers=int(self.gold.sum()),
            reported=int(self.gold[answered].sum()),
            errors=int(self.missed[answered].sum()),
            coverage=float(answered.mean()),
            coverage_interval=ratio_interval(answered.astype(np.float64), np.ones(len(answered)), self.confidence),
            promised=place is not None,
            reason="" if place is not None else why_not,
        )


def most_answers(others: TextScores) -> int:
    """The most answers that a text may report by default: nearly all answers of `others` are kept."""
    counts = np.bincount(others.text)
    kept = [np.minimum(counts, most).sum() / counts.sum() for most in range(1, int(counts.max()) + 1)]
    return 1 + int(np.argmax(np.array(kept) >= KEPT))


def ratio_interval(parts: Floats, wholes: Floats, confidence: float) -> tuple[float, float]:
    """sum(parts)/sum(wholes), both (texts,), ± its standard error over texts times the normal quantile, in [0, 1]."""
    from scipy.stats import norm

    share = parts.sum() / wholes.sum()
    error = math.sqrt(float(np.square(parts - share * wholes).sum())) / wholes.sum()
    width = norm.ppf(0.5 + confidence / 2) * error
    return max(float(share - width), 0.0), min(float(share + width), 1.0)


def _steps(plan: Plan) -> list[tuple[float, int]]:
    """The threshold and the most answers of each hypothesis."""
    assert plan.most is not None
    return list(zip(plan.thresholds.tolist(), plan.most.tolist(), strict=True))
