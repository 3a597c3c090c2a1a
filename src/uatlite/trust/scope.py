"""Is a text of the kind that the classifier is for? A p-value for each text, with a stated rate of false alarms.

Class-conditional Gaussians with one covariance describe the representations of reference texts: unlabelled texts of the
task, in the classes that the model itself predicts. The nonconformity of a text is its distance from the nearest class.
Its p-value is conformal: the rank of its nonconformity among those of the calibration rows.

Scope and confidence answer two questions: is this such a text, and is the answer right.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.codec import NOT_STORED
from uatlite.errors import CalibrationError, InputError
from uatlite.trust.distribution import conformal_rank
from uatlite.trust.gaussians import Gaussians, ScopeFit, check_units
from uatlite.values import Floats, check_array, check_logits, check_scores, check_share

CALIBRATION_ROWS = 50
"""The fewest calibration rows for a scope."""

ROWS_OF_A_CLASS = 5
"""With fewer texts than this for each class, on average, one Gaussian describes them all, and the energy helps."""


def energy(logits: Floats) -> Floats:
    """-log Σ exp(lₖ - l̄), low where one class stands out: (rows, classes) → (rows,).

    l̄ is the mean over classes. With two classes this is a function of the largest probability.
    """
    return -np.asarray(np.logaddexp.reduce(logits - logits.mean(axis=1, keepdims=True), axis=1))


@dataclass(frozen=True, eq=False)
class Scope:
    """What tells texts in scope from others: Gaussians, the nonconformities of calibration rows, the false-alarm rate.

    `reference_rows` are the texts that the Gaussians describe; 0 where the calibration rows served, each left out of
    its own distance. `scales` (2, 2) are the means and the standard deviations of distance and energy on calibration
    rows: where given, the nonconformity is the sum of both, standardised. Without Gaussians it is the energy.
    """

    false_alarm: float
    reference_rows: int
    nonconformities: Floats
    """of the calibration rows, sorted: (rows,)"""
    gaussians: Gaussians | None = None
    scales: Floats | None = None
    inside: NDArray[np.bool_] | None = field(default=None, metadata=NOT_STORED)
    """which calibration rows are in scope, in the order in which they were given; not stored"""

    @property
    def rows(self) -> int:
        """The number of calibration rows."""
        return len(self.nonconformities)

    @property
    def by_class(self) -> bool:
        """Whether each class has a Gaussian of its own."""
        return self.gaussians is not None and self.scales is None

    def nonconformity(self, representations: ArrayLike | None, logits: ArrayLike) -> Floats:
        """How strange each row is: representations (rows, units) and logits (rows, classes) → (rows,)."""
        given = check_logits(logits)
        if self.gaussians is None:
            return energy(given)
        if representations is None:
            raise InputError("this scope was fitted on representations; give those of the new rows.")
        x = check_units(representations, self.gaussians.means.shape[1])
        if len(x) != len(given):
            raise InputError(f"{len(given)} logits came with {len(x)} representations; give both for the same rows.")
        return _combine(self.gaussians.distances(x), given, self.scales)

    def p_values(self, representations: ArrayLike | None, logits: ArrayLike) -> Floats:
        """(1 + #{calibration rows at least as strange}) / (1 + rows): (rows, units), (rows, classes) → (rows,).

        For a row exchangeable with the calibration rows, P(p ≤ t) ≤ t for every t.
        """
        strange = self.nonconformity(representations, logits)
        as_strange = self.rows - np.searchsorted(self.nonconformities, strange, side="left")
        return np.asarray((1.0 + as_strange) / (1.0 + self.rows))

    def out_of_scope(self, p_values: ArrayLike) -> NDArray[np.bool_]:
        """True where p ≤ `false_alarm`: (rows,) → (rows,); each row by itself."""
        return np.asarray(check_scores(p_values) <= self.false_alarm)

    def describe(self) -> str:
        """What the scope rests on, in one or two sentences."""
        alarms = f"{self.false_alarm:.3g} false alarms by {self.rows:,} calibration rows"
        if conformal_rank(1.0 - self.false_alarm, self.rows) > self.rows:
            needed = math.ceil(1.0 / self.false_alarm) - 1
            alarms = f"no text can be flagged at {self.false_alarm:.3g} false alarms, which takes {needed:,} rows"
        if self.reference_rows:
            if self.by_class:
                return f"Scope by {self.reference_rows:,} reference texts, {alarms}."
            return f"Scope by {self.reference_rows:,} reference texts, few for each class; {alarms}."
        if self.gaussians is None:
            return f"Scope by the logits alone, for want of representations; {alarms}."
        return (
            f"Scope by the calibration rows alone, {alarms}. Reference texts (unlabelled texts of the task, best those "
            "that trained the model) can find more."
        )


def fit_scope(
    reference: ScopeFit | None,
    representations: ArrayLike | None,
    logits: ArrayLike,
    *,
    false_alarm: float = 0.01,
) -> Scope:
    """The scope from reference texts and calibration rows: representations (rows, units), logits (rows, classes).

    Calibration rows must not be among the reference texts. Without reference texts the Gaussians describe the
    calibration rows, and each is left out of its own distance. With fewer than `ROWS_OF_A_CLASS` texts for each class
    one Gaussian describes all, and the energy of the logits is added. Without representations the energy is all.
    """
    check_share("false_alarm", false_alarm)
    given = check_logits(logits)
    if len(given) < CALIBRATION_ROWS:
        raise CalibrationError(
            f"{len(given)} rows are too few to know what is in scope; calibrate on {CALIBRATION_ROWS} rows or more."
        )
    if representations is None:
        strange = energy(given)
        return Scope(false_alarm, 0, np.sort(strange), inside=in_scope(strange, false_alarm))
    x = check_array("representations", representations, {"rows": 0, "units": 1})
    if len(x) != len(given):
        raise InputError(f"{len(given)} logits came with {len(x)} representations; give both for the same rows.")
    fit = reference
    if fit is None:
        fit = ScopeFit(x.shape[1], given.shape[1])
        fit.add(x, given.argmax(axis=1))
    check_units(x, fit.units)
    by_class = fit.rows >= ROWS_OF_A_CLASS * fit.classes
    gaussians = fit.gaussians(by_class=by_class)
    if reference is None:
        predicted = given.argmax(axis=1) if by_class else np.zeros(len(x), dtype=np.int64)
        distances = gaussians.left_out_distances(x, np.unique(predicted, return_inverse=True)[1])
    else:
        distances = gaussians.distances(x)
    scales = None
    if not by_class:
        both = np.stack([distances, energy(given)])
        scales = np.stack([both.mean(axis=1), np.maximum(both.std(axis=1), np.finfo(np.float64).tiny)])
    rows = 0 if reference is None else reference.rows
    strange = _combine(distances, given, scales)
    return Scope(false_alarm, rows, np.sort(strange), gaussians, scales, in_scope(strange, false_alarm))


def in_scope(nonconformities: Floats, false_alarm: float) -> NDArray[np.bool_]:
    """Which calibration rows are less strange than the limit above which a new text is out of scope: (rows,) → (rows,).

    With n rows a new text has p ≤ α where fewer than m = ⌊α(n+1)⌋ of them are as strange: it is stranger than the
    m-th strangest. Given that limit, the rows below it are a plain sample of what is in scope.
    """
    n = len(nonconformities)
    alarms = np.count_nonzero(np.arange(1, n + 1) / (n + 1) <= false_alarm)  # as `out_of_scope` rounds, to the last bit
    limit = np.sort(nonconformities)[-alarms] if alarms else math.inf
    return np.asarray(nonconformities < limit)


def _combine(distances: Floats, logits: Floats, scales: Floats | None) -> Floats:
    """The nonconformity (rows,): the distance, or with `scales` its sum with the energy, both standardised."""
    if scales is None:
        return distances
    means, deviations = scales
    standard = (np.stack([distances, energy(logits)]).T - means) / deviations
    return np.asarray(standard.sum(axis=1))


def benjamini_hochberg(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """The rows of a batch that are out of scope with a false-discovery rate of at most `rate`: (rows,) → (rows,).

    Of the rows flagged, at most this share is in scope, in expectation (Bates et al., 2023: conformal p-values that
    share calibration rows depend on each other in a way that the procedure allows).
    """
    check_share("rate", rate)
    p = check_scores(p_values)
    if not len(p):
        return np.zeros(0, dtype=np.bool_)
    order = np.argsort(p)
    below = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / len(p))
    return np.asarray(p <= p[order[below[-1]]] if len(below) else np.zeros(len(p), dtype=np.bool_))


def chance_in_scope(p_values: ArrayLike, *, share: float = 0.05) -> Floats:
    """The probability that a text is in scope, given its p-value, if `share` of the texts are not: (rows,) → (rows,).

    In scope the p-value is uniform. Out of scope its density is taken as a·p^(a-1), with a uniform between 0 and 1:
    B = (1/p - 1 + log p) / log²p on average over a. The probability is 1 / (1 + share/(1-share)·B). Confidence times
    this ranks answers where some texts are out of scope.
    """
    check_share("share", share)
    p = check_scores(p_values)
    if ((p < 0.0) | (p > 1.0)).any():
        raise InputError(f"p-values from {p.min():.3g} to {p.max():.3g}; allowed are numbers from 0 to 1.")
    t = np.clip(-np.log(np.maximum(p, 1e-300)), 1e-4, None)
    return np.asarray(1.0 / (1.0 + share / (1.0 - share) * (np.expm1(t) - t) / t**2))
