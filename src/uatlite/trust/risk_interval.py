"""The share of wrong answers among new ones, by labelled ones: its interval, and what that says of a target."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import InputError
from uatlite.trust.bets import Game, won
from uatlite.trust.binomial import MOST_ROWS, allowed_errors, clopper_pearson, fewest
from uatlite.trust.rule import RowsNeeded
from uatlite.values import Floats, check_array, check_marks, check_share

Verdict = Literal["holds", "broken", "cannot tell yet"]


@dataclass(frozen=True, kw_only=True)
class RiskInterval:
    """The share of wrong answers: the estimate `risk`, and an interval that holds with `confidence`.

    `errors` of the `rows` labelled answers are wrong.
    """

    rows: int
    errors: int
    risk: float
    low: float
    high: float
    confidence: float

    def verdict(self, target: float) -> Verdict:
        """Whether the risk is at most the target. A wrong 'holds' or 'broken' has probability (1 - confidence)/2."""
        check_share("target", target)
        if self.high <= target:
            return "holds"
        return "broken" if self.low > target else "cannot tell yet"

    def labels_needed(self, target: float) -> RowsNeeded:
        """How many labelled answers would tell with an even chance; most where the risk is near the target. Of ten
        risks that these answers make equally likely, the ends leave out one number each."""
        from scipy.stats import beta, binom

        check_share("target", target)
        sizes = np.unique(np.ceil(self.rows * 1.05 ** np.arange(1, math.log(MOST_ROWS / self.rows, 1.05))).astype(int))
        tail, further, seen = (1.0 - self.confidence) / 2, sizes - self.rows, self.risk * self.rows
        holds, broken = allowed_errors(sizes, target, 1.0 - tail) - seen, binom.isf(tail, sizes, target) - seen
        numbers = []
        for risk in beta.ppf(np.arange(0.05, 1.0, 0.1), seen + 0.5, self.rows - seen + 0.5):
            told = binom.cdf(holds, further, risk) if risk < target else binom.sf(broken, further, risk)
            numbers.append(fewest(sizes, told, 0.5))
        _, low, *_, high, _ = sorted(numbers, key=lambda number: number or math.inf)
        return RowsNeeded(rows=self.rows, low=low, high=high, unit="answers")

    def times(self, factor: float) -> Self:
        """The interval of the risk times a number."""
        return replace(self, risk=factor * self.risk, low=factor * self.low, high=factor * self.high)

    def describe(self, what: str = "labelled answers are wrong") -> str:
        """The estimate and its interval, in a few words."""
        return (
            f"{self.errors} of {self.rows} {what}, a risk of {self.risk:.1%} "
            f"({self.low:.1%} to {self.high:.1%}, confidence {self.confidence:g})"
        )


def risk_interval(
    wrong: ArrayLike,
    inclusion: ArrayLike | None = None,
    *,
    counts: Floats | None = None,
    most: float = 1.0,
    confidence: float = 0.95,
) -> RiskInterval:
    """The interval of the risk from labelled answers: wrong (rows,), and the probability (rows,) to have been drawn.

    Rows of one inclusion probability are a plain sample, and their interval is exact (Clopper and Pearson); without
    `inclusion` all are. Rows with the probability 1 are all of their kind, so that nothing is uncertain about them.

    With `counts` rows are texts: of N answers each, at most `most`, W are wrong, and the interval is that of E[W]/E[N].
    It is that of a bet, and holds whatever the answers of a text have to do with each other.
    """
    if counts is None:
        check_marks("wrong", wrong, np.size(wrong), advice="Give one for each labelled answer, at least one.")
    errors = np.asarray(wrong, dtype=np.float64)
    answers = np.ones(len(errors)) if counts is None else counts
    p = _checked_draws(len(answers), inclusion)
    check_share("confidence", confidence)
    drawn = p < 1.0
    size = float((answers / p).sum())  # of the answers that the rows stand for
    certain, rest = float(errors[~drawn].sum()) / size, float((answers[drawn] / p[drawn]).sum()) / size
    low, high = 0.0, 0.0
    if drawn.any() and counts is None:
        low, high = map(float, clopper_pearson(errors[drawn].sum(), drawn.sum(), confidence))
    elif drawn.any():
        order = np.random.default_rng((0, 1)).permutation(int(drawn.sum()))
        n, w = answers[drawn][order], errors[drawn][order]
        low, high = 1.0 - _highest_ratio(n, n - w, most, confidence), _highest_ratio(n, w, most, confidence)
    return RiskInterval(
        rows=round(float(answers.sum())),
        errors=round(float(errors.sum())),
        risk=float((errors / p).sum()) / size,
        low=certain + rest * low,
        high=certain + rest * high,
        confidence=confidence,
    )


def _highest_ratio(counts: Floats, errors: Floats, most: float, confidence: float) -> float:
    """The upper limit of E[W]/E[N]: the lowest target from which on the bet rejects "E[W] ≥ target·E[N]"."""
    low, high = 0.0, 1.0
    for steps in (401, 41):  # a fine grid between the two neighbours of a coarse one
        grid = np.linspace(low, high, steps + 1)[1:-1]
        tail, game = np.full((len(grid), 1), (1.0 - confidence) / 2), Game(most * (1.0 - grid), most * grid)
        n, w = (np.tile(values[:, None], len(grid)) for values in (counts, errors))
        kept = np.flatnonzero(~won(n, w, grid, tail, game)[:, 0])
        last = kept[-1] if len(kept) else -1
        low, high = np.append(low, grid)[last + 1], np.append(grid, high)[last + 1]
    return float(high)


def _checked_draws(rows: int, inclusion: ArrayLike | None) -> Floats:
    """Inclusion probabilities (rows,), of at least one row; of a plain sample any equal ones below 1."""
    if not rows:
        raise InputError("there are no labelled answers; give at least one.")
    if inclusion is None:
        return np.full(rows, 0.5)
    p = check_array("inclusion", inclusion, {"rows": 1})
    if len(p) != rows:
        raise InputError(f"{rows} errors came with {len(p)} inclusion probabilities; give one for each row.")
    if (p <= 0).any() or (p > 1).any():
        raise InputError(f"inclusion probabilities from {p.min():g} to {p.max():g}; allowed is above 0 and up to 1.")
    if (several := len(np.unique(p[p < 1]))) > 1:
        raise InputError(
            f"the rows were drawn with {several} different probabilities below 1; give rows of one pick at a time, or "
            "pick from all files together."
        )
    return p
