"""Planners: labelled texts, and what plans the search for a promise about them.

Of one answer a text the test is the exact binomial one; of any number, with the text as the unit, it is a bet. The
order of the thresholds is planned on answers of other texts, which need no labels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from uatlite.trust import bets, binomial
from uatlite.trust.answers import check_texts
from uatlite.trust.rule import Menu, RiskCurve, Rule, Wanted, ranks
from uatlite.trust.search import Plan, Planner, Test
from uatlite.values import Floats, Integers, Marks, check_scores

KEPT = 0.99
"""By default a text may report so many answers that this share of all answers, without a threshold, is kept."""

CURVE_POINTS = 40
"""The curve of a menu has its points at every fortieth of the rows."""


def rule_at(threshold: float, scores: Floats, wrong: Marks, wanted: Wanted, target: float | None) -> Rule:
    """The rule at a threshold for rows of one answer each, with its coverage and risk on them, (rows,)."""
    answered = scores > threshold
    count, errors, rows = int(answered.sum()), int((answered & wrong).sum()), len(scores)
    bounded = int(math.isfinite(threshold))
    return Rule(
        kind=wanted.kind or "risk",
        score=wanted.score,
        threshold=threshold,
        target=target,
        confidence=wanted.confidence,
        texts=rows,
        answers=rows,
        reported=count,
        errors=errors,
        coverage=count / rows,
        coverage_interval=binomial.coverage_interval(count, rows, wanted.confidence, bounded=bounded),
        promised=wanted.kind in ("threshold", "coverage") or threshold < math.inf,
        risk_bound=float(binomial.risk_upper_bound(errors, count, wanted.confidence)) if count else None,
    )


@dataclass(frozen=True, eq=False)
class RowsPlanner(Planner):
    """Scores and errors of labelled rows, and scores of other rows, `others`, that say where the search starts.

    At the threshold t the hypothesis "P(wrong | score > t) > target" is rejected if P(Binomial(N, target) ≤ K) is at
    most the level, with N answers and K errors there. Answers change only at scores that occur, so only these are
    tested, from the highest down.
    """

    scores: Floats
    wrong: Marks
    others: Floats
    unit: str = "rows"

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
        starts = binomial.plan_starts(self.others, len(self.scores), target, 1.0 - self.wanted.confidence)
        answered = [int((self.scores > threshold).sum()) for threshold, _ in starts]
        places = np.searchsorted(self.counts, answered).tolist()
        return Plan(self.below[self.counts], [(i, level) for i, (_, level) in zip(places, starts, strict=True)])

    def test(self, plan: Plan, target: float) -> Test:
        return binomial.exact_test(self.errors[self.counts], self.counts, target)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold = math.inf if place is None else float(plan.thresholds[place])
        return rule_at(threshold, self.scores, self.wrong, self.wanted, target)

    def needed(self, target: float) -> int | None:
        """The fewest rows with which a search passes its start, if the risk there is the observed."""
        from scipy.stats import binom

        size, level = len(self.scores), 1.0 - self.wanted.confidence
        observed = self.errors[1:] / np.arange(1, size + 1)
        steps = np.ceil(size * 1.05 ** np.arange(1, math.log(max(binomial.MOST_ROWS / size, 1.06), 1.05)))
        runs = [
            (n, *run) for n in steps.astype(int).tolist() for run in binomial.planned_shares(n, math.inf, target, level)
        ]
        rows, shares, levels = np.array(runs).reshape(-1, 3).T
        answered = (shares * rows).astype(np.int64)
        risks = observed[np.maximum(np.round(shares * size).astype(np.int64), 1) - 1]
        chances = binom.cdf(binomial.allowed_errors(answered, target, 1.0 - levels), answered, risks)
        return binomial.fewest(rows[risks < target], chances[risks < target])

    def menu(self) -> Menu:
        """With the observed risk at coverages from 1/40 to 1, and the exact interval of each point; ties come together.

        Given the (k+1)-th highest score, the k rows above it are a sample of all rows above it.
        """
        wanted = np.ceil(np.arange(1, CURVE_POINTS + 1) * len(self.scores) / CURVE_POINTS)
        counts = np.unique(self.counts[np.searchsorted(self.counts, wanted)])
        k = self.errors[counts]
        low, high = binomial.clopper_pearson(k, counts, self.wanted.confidence)
        points = (np.nextafter(self.below[counts - 1], -np.inf), counts / len(self.scores), k / counts, low, high)
        return replace(super().menu(), curve=RiskCurve(*(tuple(values.tolist()) for values in points)))

    def why_not(self, target: float) -> str:
        size, nearest, needed = len(self.scores), self.nearest(target), self.needed(target)
        asked, starts = f"a risk of {target:.2%} with confidence {self.wanted.confidence:g}", self.plan(target).starts
        if not starts:
            least = binomial.least_answers(0, target, 1.0 - self.wanted.confidence)
            why = f"{size} {self.unit} cannot promise {asked}: even without an error it takes {least} answered rows"
        else:
            answered = self.counts[starts[-1][0]]
            why = (
                f"of the {answered} most trusted of {size} {self.unit} {self.errors[answered]} are wrong, which cannot "
                f"promise {asked}"
            )
        more = (
            "and more rows will hardly help, the most trusted ones are wrong too often; use another score"
            if needed is None
            else f"and {target:.2%} would take about {binomial.two_digits(needed - size):,} more labelled {self.unit}"
        )
        can = "they promise no risk up to 50%"
        can = can if nearest is None else f"allow a higher risk: they do promise {nearest:.2%}"
        return f"{why}; {can}, {more}."


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores (answers,) of the answers of some texts, the text (answers,) of each, ascending, and how many texts.

    `wrong` (answers,) are those that are wrong, where that is known, and `chances` (answers,) the probabilities that
    each is wrong to plan with.
    """

    scores: Floats
    text: Integers
    texts: int
    wrong: Marks | None = None
    chances: Floats | None = None

    def __post_init__(self) -> None:
        check_texts(self.text, answers=len(check_scores(self.scores)), texts=self.texts)

    @cached_property
    def ranks(self) -> Integers:
        """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
        return ranks(self.scores, self.text)

    def shown(self, threshold: float, most: int) -> Marks:
        """(answers,): which are reported."""
        return np.asarray((self.scores > threshold) & (self.ranks < most))

    def tally(self, chosen: Marks) -> Floats:
        """(texts,): how many of the chosen answers, (answers,), each text has."""
        return np.bincount(self.text[chosen], minlength=self.texts).astype(np.float64)

    @property
    def errors(self) -> Marks:
        """(answers,): which are wrong; of labelled texts."""
        assert self.wrong is not None
        return self.wrong


@dataclass(frozen=True, eq=False)
class TextsPlanner(Planner):
    """Labelled answers, and those of other texts, `others`, that plan: of rules of kind "precision" and "per-text".

    A text reports at most its `most` surest answers; where the labelled texts are few, fewer, as the promise would cost
    too much otherwise. The bet goes through the texts in an order drawn by the seed of what is wanted.
    """

    sample: TextScores
    others: TextScores
    most: int
    finished: Callable[[Rule], Rule] = lambda rule: rule
    """the last change to a rule"""

    @property
    def kind(self) -> bets.BetKind:
        return "per-text" if self.wanted.kind == "per-text" else "precision"

    def plan(self, target: float, texts: int | None = None) -> Plan:
        """Thresholds from the highest score down to -inf, for as many labelled texts as there are or for `texts`."""
        size, level, others = texts or self.sample.texts, 1.0 - self.wanted.confidence, self.others
        thresholds, per_text = bets.threshold_grid(others.scores), self.kind == "per-text"
        chances = bets.error_chances(others.scores, target) if others.chances is None else others.chances
        caps: list[int] = []
        planned, answers, errors = [], [], []
        for threshold in thresholds.tolist():
            counts = others.tally(others.shown(threshold, self.most))
            cap = max([1, *caps[-1:]])
            while cap < self.most and bets.bearable(counts, cap + 1, size, target, level, self.kind):
                cap += 1
            caps.append(cap)
            shown = others.shown(threshold, cap)
            planned.append(bets.moments(np.minimum(counts, cap)))
            answers.append(size * (1.0 if per_text else shown.sum() / others.texts))
            errors.append(size * chances[shown].sum() / others.texts)
        moment, loss = np.array(planned), np.array([bets.largest_loss(cap, target, self.kind) for cap in caps])
        starts = bets.plan_text_starts(np.array(answers), np.array(errors), bets.clumping(moment), loss, target, level)
        return Plan(thresholds, starts, np.array(caps), moment)

    def test(self, plan: Plan, target: float) -> Test:
        shown = [self.sample.shown(*step) for step in _steps(plan)]
        errors = np.column_stack([self.sample.tally(marks & self.sample.errors) for marks in shown])
        counts = np.column_stack([self.sample.tally(marks) for marks in shown])
        if self.kind == "per-text":
            counts = np.ones_like(errors)
        return bets.bet(plan, counts, errors, target, kind=self.kind, seed=self.wanted.seed)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold, most = (math.inf, self.most) if place is None else _steps(plan)[place]
        shown = self.sample.shown(threshold, most)
        reported, every = self.sample.tally(shown), self.sample.tally(np.ones_like(shown))
        rule = Rule(
            kind=self.kind,
            score=self.wanted.score,
            threshold=threshold,
            most=most,
            target=target,
            confidence=self.wanted.confidence,
            texts=self.sample.texts,
            answers=len(shown),
            reported=int(shown.sum()),
            errors=int((shown & self.sample.errors).sum()),
            coverage=float(reported.sum() / every.sum()),
            coverage_interval=ratio_interval(reported, every, self.wanted.confidence),
            promised=place is not None,
        )
        return self.finished(rule)

    def menu(self) -> Menu:
        return replace(super().menu(), unit="texts")

    def needed(self, target: float) -> int | None:
        """The fewest texts with which the test of one threshold is passed, by the normal approximation, if its errors
        are half as observed and half as a logistic regression on the scores says."""
        from scipy.stats import norm

        level, texts = bets.TEXT_STARTS[0][1] * (1.0 - self.wanted.confidence), self.sample.texts
        chances, sizes = bets.learned_chances(self.sample.scores, self.sample.errors), []
        for step in _steps(self.plan(target, 4 * texts)):
            shown = self.sample.shown(*step)
            counts, errors = self.sample.tally(shown), self.sample.tally(shown & self.sample.errors)
            allowed = target * (texts if self.kind == "per-text" else counts.sum())
            gain = (allowed - (errors.sum() + chances[shown].sum()) / 2) / texts
            if gain <= 0:
                continue
            noise = math.sqrt((np.square(errors - target * counts).sum() + 1.0) / texts)
            by_noise = ((norm.ppf(1.0 - level) + norm.ppf(binomial.POWER)) * noise / gain) ** 2
            by_count = binomial.least_answers(1, target, level) * texts / (allowed / target)
            sizes.append(max(by_noise, by_count, 1.1 * texts))
        return binomial.two_digits(math.ceil(min(sizes))) if sizes else None

    def why_not(self, target: float) -> str:
        nearest, needed, texts = self.nearest(target), self.needed(target), self.sample.texts
        of_answers = self.kind == "precision"
        asked = f"a risk of {target:.2%}" if of_answers else f"{target:g} wrong answers a text"
        why = (
            f"{texts} texts with {len(self.sample.scores)} answers, {int(self.sample.errors.sum())} of them wrong, "
            f"cannot promise {asked} with confidence {self.wanted.confidence:g}"
        )
        can = "they promise no risk up to 50%"
        if nearest is not None:
            can = f"allow more: they do promise {nearest:.2%}" if of_answers else f"they do promise {nearest:g}"
        more = (
            "more texts will hardly help, the surest answers are wrong too often; use another score"
            if needed is None
            else f"{asked} would take about {binomial.two_digits(max(needed - texts, 1)):,} more labelled texts"
        )
        return f"{why}; {can}, and {more}."


@dataclass(frozen=True, eq=False)
class RecallPlanner(Planner):
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

    @property
    def scale(self) -> Floats:
        """(texts,): what the counts of a text are multiplied by."""
        return np.minimum(1.0, self.most / np.maximum(self.gold, 1.0))

    def plan(self, target: float) -> Plan:
        """Scores are taken as the probability that a gold answer of the text is found."""
        thresholds, chances = bets.threshold_grid(self.others), bets.error_chances(self.others, target)
        gold, answered = float((self.gold * self.scale).sum()), self.others > thresholds[:, None]
        answers, errors = gold * answered.mean(axis=1), gold * (answered * chances).mean(axis=1)
        ones, loss = np.ones(len(thresholds)), bets.largest_loss(self.most, target, "recall")
        level = 1.0 - self.wanted.confidence
        starts = bets.plan_text_starts(answers, errors, ones, loss * ones, target, level)
        return Plan(thresholds, starts, np.full(len(ones), self.most), np.ones((len(ones), 2)))

    def test(self, plan: Plan, target: float) -> Test:
        answered = self.scores[:, None] > plan.thresholds
        counts, errors = (answered * (values * self.scale)[:, None] for values in (self.gold, self.missed))
        return bets.bet(plan, counts, errors, target, kind="recall", seed=self.wanted.seed)

    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        threshold = math.inf if place is None else float(plan.thresholds[place])
        answered, confidence = self.scores > threshold, self.wanted.confidence
        return Rule(
            kind="recall",
            score=self.wanted.score,
            threshold=threshold,
            most=self.most,
            target=target,
            confidence=confidence,
            texts=len(self.scores),
            answers=int(self.gold.sum()),
            reported=int(self.gold[answered].sum()),
            errors=int(self.missed[answered].sum()),
            coverage=float(answered.mean()),
            coverage_interval=ratio_interval(answered.astype(np.float64), np.ones(len(answered)), confidence),
            promised=place is not None,
        )

    def why_not(self, target: float) -> str:
        return (
            f"of the gold answers of {len(self.scores)} texts {self.missed.sum() / self.gold.sum():.1%} are missed, "
            f"which cannot promise a recall of {1.0 - target:.2%} with confidence {self.wanted.confidence:g} at any "
            "threshold; ask for a lower recall, or report more."
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
