"""The risk of answers now, from labelled ones that were drawn with known probabilities: an interval and a verdict.

Rows of one inclusion probability are a plain sample, and their interval is exact (Clopper and Pearson); rows with the
probability 1 are all of their kind, so that nothing is uncertain about them.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from uatlite.errors import InputError
from uatlite.trust.promise import MOST_ROWS, POWER, two_digits
from uatlite.trust.rule import allowed_errors, risk_upper_bound
from uatlite.values import Floats, check_array, check_share

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

    def labels_needed(self, target: float) -> int | None:
        """How many labelled answers would tell, in all, with probability 0.8 if the risk is as estimated, to two
        digits; None where it is so near the target that a million would not."""
        check_share("target", target)
        risk = self.risk if self.errors else 0.5 / (self.rows + 1)  # none wrong among few does not mean none ever
        sizes = np.unique(np.ceil(10 * 1.05 ** np.arange(math.log(MOST_ROWS / 10, 1.05))).astype(np.int64))
        tail = (1.0 - self.confidence) / 2
        if risk < target:
            chances = binom.cdf(allowed_errors(sizes, target, 1.0 - tail), sizes, risk)
        else:
            chances = binom.sf(binom.isf(tail, sizes, target), sizes, risk)
        enough = sizes[chances >= POWER]
        return two_digits(int(enough[0])) if len(enough) else None

    def describe(self) -> str:
        """The estimate and its interval, in a few words."""
        return (
            f"{self.errors} of {self.rows} labelled answers are wrong, a risk of {self.risk:.1%} "
            f"({self.low:.1%} to {self.high:.1%}, confidence {self.confidence:g})"
        )


def risk_interval(wrong: ArrayLike, inclusion: ArrayLike | None = None, *, confidence: float = 0.95) -> RiskInterval:
    """The interval of the risk from labelled answers: wrong (rows,), and the probability (rows,) to have been drawn.

    Without `inclusion` the rows are a plain random sample. With it all have one probability, or 1.
    """
    w, p = check_draws(wrong, inclusion)
    check_share("confidence", confidence)
    tail = (1.0 - confidence) / 2
    drawn = p < 1.0
    size = float((1.0 / p).sum())  # of the answers that the rows stand for
    known, rest = float(w[~drawn].sum()) / size, float((1.0 / p[drawn]).sum()) / size
    limits = clopper_pearson(w[drawn], tail) if drawn.any() else (0.0, 0.0)
    return RiskInterval(
        rows=len(w),
        errors=int(w.sum()),
        risk=float((w / p).sum()) / size,
        low=known + rest * limits[0],
        high=known + rest * limits[1],
        confidence=confidence,
    )


def check_draws(wrong: ArrayLike, inclusion: ArrayLike | None) -> tuple[NDArray[np.bool_], Floats]:
    """Errors (rows,) and inclusion probabilities (rows,), of at least one row."""
    w = np.asarray(wrong)
    if w.dtype != np.bool_ or w.ndim != 1 or not len(w):
        raise InputError(
            f"wrong has type {w.dtype} and shape {w.shape}; give one bool for each labelled answer, at least one."
        )
    if inclusion is None:
        return w, np.full(len(w), 0.5)  # any equal probability below 1
    p = check_array("inclusion", inclusion, {"rows": 1})
    if len(p) != len(w):
        raise InputError(f"{len(w)} errors came with {len(p)} inclusion probabilities; give one for each row.")
    if (p <= 0).any() or (p > 1).any():
        raise InputError(f"inclusion probabilities from {p.min():g} to {p.max():g}; allowed is above 0 and up to 1.")
    if len(np.unique(p[p < 1])) > 1:
        raise InputError(
            f"the rows were drawn with {len(np.unique(p[p < 1]))} different probabilities below 1; give rows of one "
            "pick at a time, or pick from all files together."
        )
    return w, p


def clopper_pearson(wrong: NDArray[np.bool_], tail: float) -> tuple[float, float]:
    """The exact limits of a binomial share: P(Bin(n, low) ≥ k) = P(Bin(n, high) ≤ k) = tail."""
    rows, errors = len(wrong), int(wrong.sum())
    low = float(beta.ppf(tail, errors, rows - errors + 1)) if errors else 0.0
    return low, risk_upper_bound(errors, rows, 1.0 - tail)
