"""Planners: labelled texts, what plans the search for a promise about them, and the search.

A search tests hypotheses in an order that is planned on answers of other texts, which need no labels. Of one answer a
text the test is the exact binomial one; of any number, with the text as the unit, it is a bet.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.trust import bets, binomial
from uatlite.trust.binomial import Test
from uatlite.trust.rule import Menu, RiskCurve, RiskLine, RowsNeeded, Rule, Wanted, ranks
from uatlite.values import Floats, Integers, Marks

RISKS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.10, 0.15, 0.20)
"""The risks on a menu; the nearest that can be promised is looked for among these and `HIGHER_RISKS`."""

HIGHER_RISKS = (0.25, 0.30, 0.40, 0.50)

KEPT = 0.99
"""By default a text may report so many answers that this share of all answers, without a threshold, is kept."""

NEEDED = ((0.8, 0.2), (0.5, 0.95))
"""Of the low and the high end of the rows needed: the confidence of the interval whose end the risk is taken to be, and
the probability of a promise."""

_FEWEST_ANSWERS = 10
"""Of a threshold for several answers a text, to say from it how many texts it would take."""

CURVE_POINTS = 40
"""The curve of a menu has its points at every fortieth of the rows."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The hypotheses "the risk is above the target" in the order of their tests, all from texts that do not decide.

    starts: the place where a search begins, ascending, and its part of the level; none where nothing can be promised.
    """

    thresholds: Floats
    """(hypotheses,), in falling order"""
    starts: Sequence[tuple[int, float]]
    most: Integers
    """(hypotheses,): how many answers a text may report"""
    expected: Floats
    """(hypotheses, 2): the mean of the answers of a text that has any, and E[W²]/E[W] of its W errors"""

    @property
    def steps(self) -> list[tuple[float, int]]:
        """The threshold of each hypothesis, and the most answers."""
        return list(zip(self.thresholds.tolist(), self.most.tolist(), strict=True))


def search(plan: Plan, test: Test) -> int | None:
    """The last place of the plan at which "the risk is above the target" was rejected; None if it was nowhere.

    Each search goes from its start to the next start: if it gets there, it passes its level on, else the level is lost
    (the fallback procedure of Wiens, 2003). So a search has one of several levels, which are all tested.
    """
    last, handed_on = None, 0.0
    ends = [*(begin for begin, _ in plan.starts[1:]), len(plan.thresholds) - 1]
    for number, ((begin, level), end) in enumerate(zip(plan.starts, ends, strict=False)):
        levels = np.cumsum([alpha for _, alpha in plan.starts[: number + 1]][::-1])  # its own, and those before it
        at_level = int(np.argmin(np.abs(levels - level - handed_on)))
        rejected = test(slice(begin, end + 1), levels)[:, at_level]
        passed = len(rejected) if rejected.all() else int(np.argmin(rejected))
        last = begin + passed - 1 if passed else last
        handed_on = handed_on + level if rejected.all() else 0.0
    return last


@dataclass(frozen=True, eq=False)
class Planner(ABC):
    """Labelled texts, what is wanted of them, and texts that plan."""

    wanted: Wanted
    unit: str = field(default="texts", kw_only=True)
    """what the texts are called"""
    among: tuple[int, int] = field(default=(0, 0), kw_only=True)
    """as in `Rule`"""

    @abstractmethod
    def plan(self, target: float) -> Plan:
        """The hypotheses and where to begin."""

    @abstractmethod
    def test(self, plan: Plan, target: float) -> Test:
        """How the hypotheses of a plan are tested."""

    @abstractmethod
    def rule(self, target: float, threshold: float, most: int | None) -> Rule:
        """The rule at a threshold, +inf to report nothing, and with so many answers a text."""

    @abstractmethod
    def enough(self, target: float, high: bool) -> int | None:
        """How many texts have to decide to promise the target if the risk is at the low, or at the high end of its
        interval; None if no number will do."""

    @abstractmethod
    def why_not(self, target: float) -> str:
        """Why the target cannot be promised, and a way out."""

    def searched(self, target: float) -> Rule:
        """The rule of the search; where it would report nothing, that it promises nothing."""
        plan = self.plan(target)
        last = search(plan, self.test(plan, target))
        rule = self.rule(target, *((math.inf, None) if last is None else plan.steps[last]))
        if not rule.reported:
            rule = self.rule(target, math.inf, None)
        return replace(rule, among=self.among)

    def promise(self, target: float) -> Rule:
        """The rule of the search; where nothing is promised, with the reason."""
        rule = self.searched(target)
        return rule if rule.promised else replace(rule, reason=self.why_not(target))

    def needed(self, target: float) -> RowsNeeded:
        """How many labelled texts it would take to promise the target: a part of them decides, as now."""
        texts = self.rule(target, math.inf, None).texts
        labelled, ends = max(self.among[0], texts), (self.enough(target, high) for high in (False, True))
        low, high = (None if end is None else round(end * labelled / texts) for end in ends)
        return RowsNeeded(rows=labelled, low=low, high=high, unit=self.unit)

    def nearest(self, target: float) -> Rule | None:
        """The rule of the least target above this one that these texts do promise."""
        higher = (self.searched(risk) for risk in RISKS + HIGHER_RISKS if risk > target)
        return next((rule for rule in higher if rule.promised), None)

    def way_out(self, target: float, *, can: str, asked: str) -> str:
        """What these texts do promise, said by `can`, and how many more it would take to promise what is asked."""
        nearest = self.nearest(target)
        promised = nearest and f"{can.format(nearest.target)}, with {nearest.coverage:.1%} {nearest.share_of}"
        return f"{promised or 'they promise no risk up to 50%'}; for {asked} {self.needed(target).describe()}."

    def lines(self) -> tuple[RiskLine, ...]:
        """What the labelled texts promise for each of `RISKS`."""
        rules = [self.searched(target) for target in RISKS]
        return tuple(
            RiskLine(target=target, rule=rule) if rule.promised else RiskLine(target=target, needed=self.needed(target))
            for target, rule in zip(RISKS, rules, strict=True)
        )

    def menu(self) -> Menu:
        """The lines, and what they are about."""
        score, confidence, texts = self.wanted.score, self.wanted.confidence, self.rule(RISKS[0], math.inf, None).texts
        counts: dict[str, Any] = {"texts": texts, "among": self.among, "unit": self.unit}
        return Menu(score=score, confidence=confidence, lines=self.lines(), **counts)


@dataclass(frozen=True, eq=False)
class RowsPlanner(Planner):
    """Scores and errors of labelled rows, and scores of other rows, `others`, that say where the search starts.

    The hypotheses are "P(wrong | score > t) > target". Answers change only at scores t that occur, so only these are
    tested, from the highest down.
    """

    scores: Floats
    wrong: Marks
    others: Floats
    unit: str = field(default="rows", kw_only=True)

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
        at = [(int(self.counts.searchsorted((self.scores > t).sum())), level) for t, level in starts]
        ones = np.ones((len(self.counts), 2))
        return Plan(self.below[self.counts], at, ones[:, 0].astype(np.int64), ones)

    def test(self, plan: Plan, target: float) -> Test:
        return binomial.exact_test(self.errors[self.counts], self.counts, target)

    def rule(self, target: float, threshold: float, most: int | None) -> Rule:
        return binomial.rule_at(threshold, self.scores, self.wrong, self.wanted, target)

    def enough(self, target: float, high: bool) -> int | None:
        """The fewest with which a search passes its start: these rows, and further ones with an end of the interval."""
        from scipy.stats import binom

        (within, power), size, level = NEEDED[high], len(self.scores), 1.0 - self.wanted.confidence
        ends = binomial.clopper_pearson(self.errors[1:], np.arange(1, size + 1), within)[high]
        steps = np.ceil(size * 1.05 ** np.arange(1, math.log(max(binomial.MOST_ROWS / size, 1.06), 1.05)))
        runs = [
            (n, *run)
            for n in steps.astype(int).tolist()
            for run in binomial.planned_shares(n, len(self.others), target, level)
        ]
        rows, shares, levels = np.array(runs).reshape(-1, 3).T
        answered = (shares * rows).astype(np.int64)
        here = np.maximum(np.round(shares * size).astype(np.int64), 1)  # of these rows, as surely answered
        allowed = binomial.allowed_errors(answered, target, 1.0 - levels) - self.errors[here]
        return binomial.fewest(rows, binom.cdf(allowed, np.maximum(answered - here, 0), ends[here - 1]), power)

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
        size, starts = len(self.scores), self.plan(target).starts
        asked = f"a risk of {target:.2%} with confidence {self.wanted.confidence:g}"
        if not starts:
            least = binomial.least_answers(0, target, 1.0 - self.wanted.confidence)
            why = f"{size} {self.unit} cannot promise {asked}: even without an error it takes {least} answered rows"
        else:
            answered = self.counts[starts[-1][0]]
            why = (
                f"of the {answered} most trusted of {size} {self.unit} {self.errors[answered]} are wrong, which cannot "
                f"promise {asked}"
            )
        out = self.way_out(target, can="allow a higher risk: they do promise {:.2%}", asked=f"{target:.2%}")
        return f"{why}; {out}"


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores (answers,) of the answers of some texts, the text (answers,) of each, ascending, and how many texts.

    `wrong` (answers,) are those that are wrong, where that is known, and `chances` (answers,) the probabilities that
    each is wrong to plan with. For a promise of recall a text is one answer, which stands for its `gold` answers
    (answers,), and `wrong` says how many of them are missed.
    """

    scores: Floats
    text: Integers
    texts: int
    wrong: Any = None
    chances: Floats | None = None
    gold: Integers | None = None

    @cached_property
    def ranks(self) -> Integers:
        """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
        return ranks(self.scores, self.text)

    def shown(self, threshold: float, most: int) -> Marks:
        """(answers,): which are reported."""
        return np.asarray((self.scores > threshold) & (self.ranks < most))

    def tally(self, values: NDArray[Any]) -> Floats:
        """(texts,): the sum of values or marks (answers,) over the answers of each text."""
        return np.asarray(np.bincount(self.text, values, minlength=self.texts))

    @property
    def counts(self) -> Integers:
        """(answers,): 1, or the gold answers that it stands for."""
        return np.ones(len(self.scores), dtype=np.int64) if self.gold is None else self.gold


@dataclass(frozen=True, eq=False)
class TextsPlanner(Planner):
    """Labelled answers, and those of other texts, `others`, that plan: of rules whose unit is the text.

    A text reports at most its `most` surest answers; where the labelled texts are few, fewer, as the promise would cost
    too much otherwise. The bet goes through the texts in an order drawn by the seed of what is wanted.

    Of kind "recall" E[missed]/E[gold] over answered texts is at most the target. Of a text with more than `most` gold
    answers the counts are scaled down to `most`, so that no text outweighs the others without bound.
    """

    sample: TextScores
    others: TextScores
    most: int
    finished: Callable[[Rule], Rule] = lambda rule: rule
    """the last change to a rule"""

    @property
    def kind(self) -> bets.BetKind:
        return self.wanted.kind if self.wanted.kind in ("per-text", "recall") else "precision"

    @property
    def scale(self) -> Floats:
        """(answers,): what the counts of an answer are multiplied by."""
        return np.minimum(1.0, self.most / np.maximum(self.sample.counts, 1.0))

    def plan(self, target: float, texts: int | None = None) -> Plan:
        """Thresholds from the highest score down to -inf, for as many labelled texts as there are or for `texts`."""
        level, others, recall = 1.0 - self.wanted.confidence, self.others, self.kind == "recall"
        size = (self.sample.counts * self.scale).sum() if recall else texts or self.sample.texts
        thresholds, per_text = bets.threshold_grid(others.scores), self.kind == "per-text"
        chances = bets.error_chances(others.scores, target) if others.chances is None else others.chances
        caps: list[int] = []
        usual, answers, errors = [], [], []
        for threshold in thresholds.tolist():
            counts = others.tally(others.shown(threshold, self.most))
            cap = self.most if recall else max([1, *caps[-1:]])
            while cap < self.most and bets.bearable(counts, cap + 1, size, target, level, self.kind):
                cap += 1
            caps.append(cap)
            shown = others.shown(threshold, cap)
            usual.append(bets.expected(np.minimum(counts, cap)))
            answers.append(size * (1.0 if per_text else shown.sum() / others.texts))
            errors.append(size * chances[shown].sum() / others.texts)
        expected, most = np.array(usual), np.array(caps)
        loss = bets.largest_loss(most, target, self.kind)
        starts = bets.plan_text_starts(np.array(answers), np.array(errors), expected[:, 1], loss, target, level)
        if per_text:  # it only rises as the threshold falls, so that the search begins at the top
            starts = [(0, level)]
        return Plan(thresholds, starts, most, expected)

    def test(self, plan: Plan, target: float) -> Test:
        shown = [self.sample.shown(*step) for step in plan.steps]
        counts, errors = (
            np.column_stack([self.sample.tally(marks * values * self.scale) for marks in shown])
            for values in (self.sample.counts, self.sample.wrong)
        )
        if self.kind == "per-text":
            counts = np.ones_like(errors)
        return bets.bet(plan.most, plan.expected, counts, errors, target, kind=self.kind, seed=self.wanted.seed)

    def rule(self, target: float, threshold: float, most: int | None) -> Rule:
        most = most or self.most
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
            answers=int(self.sample.counts.sum()),
            reported=int(self.sample.counts[shown].sum()),
            errors=int(self.sample.wrong[shown].sum()),
            coverage=float(reported.sum() / every.sum()),
            coverage_interval=bets.ratio_interval(reported, every, self.wanted.confidence),
            promised=threshold < math.inf,
        )
        return self.finished(rule)

    def enough(self, target: float, high: bool) -> int | None:
        """The fewest with which the test of one threshold is passed, by the normal approximation, if its errors are
        half as observed and half as a logistic regression on the scores says, less or more the standard error."""
        from scipy.stats import norm

        within, power = NEEDED[high]
        off = norm.ppf(0.5 + within / 2) * (1.0 if high else -1.0)
        level, texts = bets.TEXT_STARTS[0][1] * (1.0 - self.wanted.confidence), self.sample.texts
        chances, sizes = bets.learned_chances(self.sample.scores, self.sample.wrong), []
        for step in self.plan(target, 4 * texts).steps:
            shown = self.sample.shown(*step)
            counts, errors = self.sample.tally(shown), self.sample.tally(shown * self.sample.wrong)
            allowed = target * (texts if self.kind == "per-text" else counts.sum())
            noise = math.sqrt((np.square(errors - target * counts).sum() + 1.0) / texts)
            gain = (allowed - (errors.sum() + chances[shown].sum()) / 2) / texts - off * noise / math.sqrt(texts)
            if gain <= 0 or shown.sum() < _FEWEST_ANSWERS:
                continue
            by_noise = ((norm.ppf(1.0 - level) + norm.ppf(power)) * noise / gain) ** 2
            by_count = binomial.least_answers(1, target, level) * texts / (allowed / target)
            sizes.append(max(by_noise, by_count, 1.1 * texts))
        return math.ceil(min(sizes)) if sizes and min(sizes) <= binomial.MOST_ROWS else None

    def why_not(self, target: float) -> str:
        texts, wrong, confidence = self.sample.texts, self.sample.wrong.sum(), self.wanted.confidence
        if self.kind == "recall":
            return (
                f"of the gold answers of {texts} texts {wrong / self.sample.counts.sum():.1%} are missed, which cannot "
                f"promise a recall of {1.0 - target:.2%} with confidence {confidence:g} at any threshold; ask for a "
                "lower recall, or report more."
            )
        asked, can = f"a risk of {target:.2%}", "allow more: they do promise {:.2%}"
        if self.kind == "per-text":
            asked, can = f"{target:g} wrong answers a text", "they do promise {:g}"
        why = (
            f"{texts} texts with {len(self.sample.scores)} answers, {int(wrong)} of them wrong, cannot promise {asked} "
            f"with confidence {confidence:g}"
        )
        return f"{why}; {self.way_out(target, can=can, asked=asked)}"


def most_answers(others: TextScores) -> int:
    """The most answers that a text may report by default: nearly all answers of `others` are kept."""
    kept = np.cumsum(np.bincount(others.ranks)) / len(others.ranks)  # with one answer a text, with two, …
    return 1 + int(np.argmax(kept >= KEPT))
