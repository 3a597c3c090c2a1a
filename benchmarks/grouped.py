"""Promises with texts as the unit: which test is the strongest, and what coverage the promise reaches.

    python benchmarks/grouped.py [--only tests,coverage] [--repetitions 100]

Prints Markdown tables from simulated worlds in which the truth is known. "tests": how often each test of
E[wrong] < r·E[answers] succeeds at the level 0.05 on texts that all have answers. "coverage": the share of answers that
a rule reports, beside the best possible for one who knows the truth, and how often its promise is broken.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from harness import best_share, head, line, only, parser_of
from uatlite.trust.bets import Game, clumping, won
from uatlite.trust.planners import TextScores, TextsPlanner, most_answers
from uatlite.trust.rule import Wanted

STAKES = np.concatenate([np.geomspace(0.005, 0.1, 8), np.linspace(0.15, 0.99, 15)])
"""Shares of the largest stake that a mixture bets."""
LEVEL = 0.05
HUGE = 100_000

Test = Callable[[np.ndarray, np.ndarray, float, int, np.random.Generator], np.ndarray]
"""From counts and errors (texts, samples), the target, the most answers of a text and a source of chance to whether
each sample rejects, (samples,)."""


def ours(counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator) -> np.ndarray:
    """The bet that copies the exact test."""
    moment = np.array([counts.mean(), np.square(counts).mean()])
    game = Game(most * (1 - target), most * target, moment[0], clumping(moment))
    return won(counts, errors, target, np.full((counts.shape[1], 1), LEVEL), game)[:, 0]


def mixture(counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator) -> np.ndarray:
    """The mean of bets with constant stakes (a universal portfolio), at the best moment."""
    shares = STAKES[:, None, None] / (most * (1 - target)) * (errors - target * counts)
    return np.exp(np.log1p(-shares).cumsum(axis=1)).mean(axis=0).max(axis=0) >= 1 / LEVEL


def predictable(
    counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Stakes from the variance so far, for a fixed number of texts (Waudby-Smith and Ramdas, 2024)."""
    texts, samples = counts.shape
    money, best, square = np.zeros(samples), np.zeros(samples), np.full(samples, 2 * target * counts.mean())
    for place in range(texts):
        losses = errors[place] - target * counts[place]
        stake = np.sqrt(2 * np.log(1 / LEVEL) / (square / (place + 2) * texts))
        money += np.log1p(-np.minimum(stake, 0.95 / (most * (1 - target))) * losses)
        best, square = np.maximum(best, money), square + losses**2
    return best >= np.log(1 / LEVEL)


def one_place(counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator) -> np.ndarray:
    """One of `most` places of each text, drawn at random: the exact binomial test of the answers that stand there."""
    place = rng.integers(0, most, counts.shape)
    return binom.cdf((place < errors).sum(axis=0), (place < counts).sum(axis=0), target) <= LEVEL


def first_answer(
    counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator
) -> np.ndarray:
    """One answer of each text, as if the others were withheld: the exact binomial test."""
    return binom.cdf((rng.random(counts.shape) * counts < errors).sum(axis=0), len(counts), target) <= LEVEL


def hoeffding_bentkus(
    counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator
) -> np.ndarray:
    """The p-value of Bates et al. (2021) for the mean of target + (errors - target·counts)/most, which is in [0, 1]."""
    mean, texts = (target + (errors - target * counts) / most).mean(axis=0), len(counts)
    low = np.clip(mean, 1e-12, target)
    chernoff = np.exp(-texts * (low * np.log(low / target) + (1 - low) * np.log((1 - low) / (1 - target))))
    return np.minimum(chernoff, np.e * binom.cdf(np.ceil(texts * mean), texts, target)) <= LEVEL


def normal(counts: np.ndarray, errors: np.ndarray, target: float, most: int, rng: np.random.Generator) -> np.ndarray:
    """The t statistic against a normal quantile: no promise, but what one might hope for."""
    losses = errors - target * counts
    return losses.mean(axis=0) * np.sqrt(len(losses)) < ndtri(LEVEL) * np.maximum(losses.std(axis=0), 1e-9)


TESTS: dict[str, Test] = {
    "ours": ours,
    "mixed bets": mixture,
    "predictable bets": predictable,
    "a random place": one_place,
    "one answer a text": first_answer,
    "Hoeffding–Bentkus": hoeffding_bentkus,
    "normal (not valid)": normal,
}


def texts_of(
    shape: tuple[int, int], most: int, risk: float, together: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Counts, 1 to `most`, and errors, which are those of a whole text with probability `together`."""
    counts = np.minimum(rng.geometric(0.6, shape), most)
    whole = rng.random(shape) < together
    errors = np.where(whole, counts * (rng.random(shape) < risk), rng.binomial(counts, risk))
    return counts.astype(float), errors.astype(float)


def print_tests(repetitions: int) -> None:
    head("texts", "most", "together", "target", "true risk", *TESTS, left=0)
    risks = ((0.05, 0.015), (0.1, 0.05), (0.2, 0.13), (0.1, 0.1))
    for texts, most, together, (target, risk) in product((150, 400), (2, 4), (0.0, 0.5), risks):
        rng = np.random.default_rng(0)
        counts, errors = texts_of((texts, 10 * repetitions), most, risk, together, rng)
        shares = [f"{test(counts, errors, target, most, rng).mean():.3f}" for test in TESTS.values()]
        line(texts, most, f"{together:g}", target, risk, *shares)


@dataclass(frozen=True)
class World:
    """Answers that are right with the probability of their score, Beta(4, 1).

    `mean` answers a text; with `tail` one text in twenty has most of them. An error is one of the whole text with
    probability `together`. A share `trap` of the texts has the surest answers of all, and all are wrong.
    """

    name: str
    mean: float = 1.0
    together: float = 0.0
    tail: bool = False
    trap: float = 0.0

    def draw(self, texts: int, rng: np.random.Generator) -> tuple[TextScores, np.ndarray]:
        """The answers of some texts, and which are wrong."""
        few = np.where(rng.random(texts) < 0.05, 12.0, 0.45) if self.tail else np.full(texts, self.mean)
        text = np.repeat(np.arange(texts), rng.poisson(few))
        scores = rng.beta(4, 1, len(text))
        luck = np.where(rng.random(len(text)) < self.together, rng.random(texts)[text], rng.random(len(text)))
        trapped = (rng.random(texts) < self.trap)[text]
        return TextScores(np.where(trapped, 0.9999, scores), text, texts), (luck > scores) | trapped

    @cached_property
    def truth(self) -> tuple[TextScores, np.ndarray]:
        return self.draw(HUGE, np.random.default_rng(987_654_321))

    def at(self, threshold: float, most: int) -> tuple[float, float]:
        """The true risk and the share of answers reported."""
        answers, wrong = self.truth
        reported = answers.shown(threshold, most)
        shown = reported.sum()
        risk = (reported & wrong).sum() / shown if shown else 0.0
        return float(risk), float(shown / len(answers.scores))

    def best(self, target: float) -> float:
        """The share of answers reported at the best threshold, if the truth were known."""
        answers, wrong = self.truth
        return best_share(answers.scores, wrong, target)


WORLDS = (
    World("independent, 0.5 a text", mean=0.5),
    World("independent"),
    World("half together, 2 a text", mean=2.0, together=0.5),
    World("half together, most in few texts", tail=True, together=0.5),
    World("surely wrong in 2 % of texts", trap=0.02),
)


def print_coverage(repetitions: int) -> None:
    head("world", "texts", "target", "knowing the truth", "promise", "with one answer a text")
    for world, texts, target in product(WORLDS, (500, 1000), (0.05, 0.1, 0.2)):
        cells = [coverage(world, texts, target, cap, repetitions) for cap in (None, 1)]
        line(world.name, texts, target, f"{world.best(target):.3f}", *cells)


def coverage(world: World, texts: int, target: float, most: int | None, repetitions: int) -> str:
    """Mean share reported / how often nothing is promised / how often the promise is broken."""
    shares, nothing, broken = [], 0, 0
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        (sample, wrong), (others, _) = world.draw(texts, rng), world.draw(1000, rng)
        most_reported = most or most_answers(others)
        labelled = replace(sample, wrong=wrong)
        wanted = Wanted(kind="precision", target=target, confidence=1 - LEVEL, seed=repetition)
        rule = TextsPlanner(wanted, labelled, others, most_reported).searched(target)
        risk, share = world.at(rule.threshold, rule.most)
        shares.append(share)
        nothing, broken = nothing + (not rule.promised), broken + (risk > target)
    return f"{np.mean(shares):.3f} / {nothing / repetitions:.2f} / {broken / repetitions:.3f}"


TABLES: dict[str, Callable[[int], None]] = {"tests": print_tests, "coverage": print_coverage}


def main() -> None:
    only(parser_of(__doc__, repetitions=100), TABLES, lambda options: options.repetitions)


if __name__ == "__main__":
    main()
