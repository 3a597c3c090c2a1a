"""Is a text of the kind that the classifier is for? A p-value for each text, with a stated rate of false alarms.

Class-conditional Gaussians with one shrunk covariance describe the representations of reference texts: unlabelled texts
of the task, in the classes that the model itself predicts. The nonconformity of a text is its distance from the nearest
class. Its p-value is conformal: the rank of its nonconformity among those of the calibration rows.

Scope and confidence answer two questions: is this such a text, and is the answer right.
"""

import math
import sys
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from uatlite.codec import NOT_STORED
from uatlite.errors import CalibrationError, InputError
from uatlite.trust.distribution import conformal_rank
from uatlite.values import Floats, Integers, Marks, check_array, check_labels, check_logits, check_scores, check_share

CALIBRATION_ROWS = 50
"""The fewest calibration rows for a scope."""

ROWS_OF_A_CLASS = 5
"""With fewer texts than this for each class, on average, one Gaussian describes them all, and the energy helps."""

_BLOCK = 8192
"""Rows that are converted to float64 at a time."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Gaussians with one covariance: means (classes, units), the rows of each class (classes,), the shrunk covariance
    (units, units) and the weight of its shrinkage. Only classes with rows are in it."""

    means: Floats
    rows: Floats
    covariance: Floats
    shrinkage: float

    @cached_property
    def _white(self) -> tuple[Floats, Floats]:
        """W with WᵀW = Σ⁻¹, (units, units), and the means in its units, (classes, units)."""
        whitening = inverse_factor(self.covariance)
        return whitening, self.means @ whitening.T

    def distances(self, representations: Floats) -> Floats:
        """min over classes of (x - mₖ)ᵀ Σ⁻¹ (x - mₖ) / (1 + 1/nₖ): (rows, units) → (rows,).

        The denominator is the uncertainty of a mean of nₖ rows: a new row differs from it by (1 + 1/nₖ)Σ.
        """
        whitening, means = self._white
        squares = squared_gaps(product(representations, whitening), means)
        return np.asarray((squares / (1.0 + 1.0 / self.rows)).min(axis=1))

    def left_out_distances(self, representations: Floats, classes: Integers) -> Floats:
        """The distance of each row that was fitted, (rows, units) in classes (rows,), from a fit without it: (rows,).

        The shrinkage α and the mean variance μ are held. With c = x - mₖ, n = nₖ and ν = rows - classes, the other rows
        have the class mean mₖ - c/(n-1) and the covariance B - γccᵀ, where B = (1-α)·ν/(ν-1)·S + αμ·I and
        γ = (1-α)·n/(n-1)/(ν-1). By Sherman–Morrison one factor of B serves all rows. A class of one row disappears with
        it; ν stays.
        """
        result = np.empty(len(classes))
        alone = self.rows[classes] == 1
        degrees = self.rows.sum() - len(self.rows)
        ridge = self.shrinkage * np.trace(self.covariance) / len(self.covariance) * np.eye(len(self.covariance))
        for some, left in ((~alone, degrees - 1), (alone, degrees)):
            if not some.any():
                continue
            labels, n = classes[some], self.rows[classes[some]]
            w = inverse_factor((self.covariance - ridge) * (degrees / left) + ridge)
            z, means = product(representations[some], w), self.means @ w.T
            gap = z - means[labels]
            squares, q = squared_gaps(z, means), np.square(gap).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                gamma = np.where(n > 1, (1.0 - self.shrinkage) * n / ((n - 1) * left), 0.0)
                mine = np.where(n > 1, n / (n - 1) * q / (1.0 - gamma * q), np.inf)
            cross = (gap * z).sum(axis=1, keepdims=True) - product(gap, means)
            others = (squares + (gamma / (1.0 - gamma * q))[:, None] * cross**2) / (1.0 + 1.0 / self.rows)
            others[np.arange(len(labels)), labels] = mine
            result[some] = others.min(axis=1)
        return result


class ScopeFit:
    """Sums over reference texts, added a batch at a time: the memory does not depend on the number of texts.

    The rows and the sum of each class, and Σ (x - o)(x - o)ᵀ, where o is the mean of the first batch (so that float64
    loses no digits).
    """

    def __init__(self, units: int, classes: int) -> None:
        self._origin: Floats | None = None
        self._counts = np.zeros(classes)
        self._sums = np.zeros((classes, units))
        self._scatter = np.zeros((units, units))

    @property
    def rows(self) -> int:
        return int(self._counts.sum())

    @property
    def classes(self) -> int:
        """The number of classes that have rows."""
        return int((self._counts > 0).sum())

    @property
    def units(self) -> int:
        return self._sums.shape[1]

    def add(self, representations: ArrayLike, predicted: ArrayLike) -> None:
        """Add a batch: representations (rows, units) and the classes that the model predicts (rows,)."""
        x = check_units(representations, self.units)
        classes = check_labels(predicted, rows=len(x), classes=len(self._counts))
        if not len(x):
            return
        if self._origin is None:
            self._origin = x.mean(axis=0)
        for start in range(0, len(x), _BLOCK):
            block = x[start : start + _BLOCK] - self._origin
            np.add.at(self._sums, classes[start : start + _BLOCK], block)
            turned = np.ascontiguousarray(block.T)
            self._scatter += product(turned, turned)
        self._counts += np.bincount(classes, minlength=len(self._counts))

    def gaussians(self, *, by_class: bool = True) -> Gaussians:
        """The Gaussians of the rows added, one for each class that has rows, or one for all.

        The covariance is within classes, on rows - classes degrees of freedom, and shrunk (OAS) towards μ·I.
        """
        sums, counts = (self._sums, self._counts) if by_class else (self._sums.sum(0)[None], self._counts.sum()[None])
        sums, counts = sums[counts > 0], counts[counts > 0]
        degrees = int(counts.sum()) - len(counts)
        if self._origin is None or degrees < 2:
            raise CalibrationError(
                f"{self.rows} texts in {len(counts)} classes are too few to fit a scope; give more texts of the task."
            )
        centred = sums / np.sqrt(counts)[:, None]
        covariance, shrinkage = shrink((self._scatter - centred.T @ centred) / degrees, degrees)
        return Gaussians(self._origin + sums / counts[:, None], counts, covariance, shrinkage)


def shrink(covariance: Floats, rows: int) -> tuple[Floats, float]:
    """(1-α)S + αμ·I with μ = tr(S)/units, and α: oracle approximating shrinkage (Chen et al., 2010).

    α = (a + μ²) / ((rows + 1)(a - μ²/units)), at most 1, where a is the mean of the squared entries of S.
    """
    units = len(covariance)
    spread, squares = np.trace(covariance) / units, np.square(covariance).mean()
    if not spread > 0.0:
        raise CalibrationError(
            "the representations of the texts do not vary, so no distance can be measured; "
            "check that they are of different texts."
        )
    least = (rows + 1) * (squares - spread**2 / units)
    shrinkage = 1.0 if least <= 0.0 else min(1.0, (squares + spread**2) / least)
    return (1.0 - shrinkage) * covariance + shrinkage * spread * np.eye(units), float(shrinkage)


def inverse_factor(covariance: Floats) -> Floats:
    """L⁻¹ of the lower Cholesky factor LLᵀ = covariance; one that was shrunk has it."""
    return np.asarray(np.tril(np.linalg.inv(np.linalg.cholesky(covariance))))


def product(rows: Floats, matrix: Floats) -> Floats:
    """rows @ matrixᵀ, (rows, units) and (k, units) → (rows, k).

    With torch where it runs the model, because the threads are then the same: numpy's keep all cores busy for some
    50 ms after a call, and the next batch would run at half speed.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return np.asarray(rows @ matrix.T)
    return np.asarray(torch.from_numpy(np.ascontiguousarray(rows)) @ torch.from_numpy(matrix).T)


def squared_gaps(rows: Floats, means: Floats) -> Floats:
    """‖z - m‖² of each row and each mean, (rows, units) and (classes, units) → (rows, classes)."""
    squares = np.square(rows).sum(axis=1)[:, None] - 2.0 * product(rows, means) + np.square(means).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))


def check_units(representations: ArrayLike, units: int | None, *, rows: int | None = None) -> Floats:
    """Representations as float64 (rows, units), finite, of so many units and for so many rows of logits."""
    x = check_array("representations", representations, {"rows": 0, "units": 1})
    if rows is not None and len(x) != rows:
        raise InputError(f"{rows} logits came with {len(x)} representations; give both for the same rows.")
    if units is not None and x.shape[1] != units:
        raise InputError(
            f"representations have {x.shape[1]} units, those of the scope had {units}; "
            "use the same model and method, or calibrate again."
        )
    return x


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
    inside: Marks | None = field(default=None, metadata=NOT_STORED)
    """which calibration rows are in scope, in the order in which they were given; not stored"""

    @property
    def rows(self) -> int:
        """The number of calibration rows."""
        return len(self.nonconformities)

    def nonconformity(self, representations: ArrayLike | None, logits: ArrayLike) -> Floats:
        """How strange each row is: representations (rows, units) and logits (rows, classes) → (rows,)."""
        given = check_logits(logits)
        if self.gaussians is None:
            return energy(given)
        if representations is None:
            raise InputError("this scope was fitted on representations; give those of the new rows.")
        x = check_units(representations, self.gaussians.means.shape[1], rows=len(given))
        return _combine(self.gaussians.distances(x), given, self.scales)

    def p_values(self, representations: ArrayLike | None, logits: ArrayLike) -> Floats:
        """(1 + #{calibration rows at least as strange}) / (1 + rows): (rows, units), (rows, classes) → (rows,).

        For a row exchangeable with the calibration rows, P(p ≤ t) ≤ t for every t.
        """
        strange = self.nonconformity(representations, logits)
        as_strange = self.rows - np.searchsorted(self.nonconformities, strange, side="left")
        return np.asarray((1.0 + as_strange) / (1.0 + self.rows))

    def out_of_scope(self, p_values: ArrayLike) -> Marks:
        """True where p ≤ `false_alarm`: (rows,) → (rows,); each row by itself."""
        return np.asarray(check_scores(p_values) <= self.false_alarm)

    def describe(self) -> str:
        """What the scope rests on, in one or two sentences."""
        alarms = f"{self.false_alarm:.3g} false alarms by {self.rows:,} calibration rows"
        if conformal_rank(1.0 - self.false_alarm, self.rows) > self.rows:
            needed = math.ceil(1.0 / self.false_alarm) - 1
            alarms = f"no text can be flagged at {self.false_alarm:.3g} false alarms, which takes {needed:,} rows"
        if self.reference_rows:
            few = "" if self.scales is None else " and the energy of the logits;"
            return f"Scope by {self.reference_rows:,} reference texts,{few} {alarms}."
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
    frozen: bool = False,
) -> Scope:
    """The scope from reference texts and calibration rows: representations (rows, units), logits (rows, classes).

    Calibration rows must not be among the reference texts. Without reference texts the Gaussians describe the
    calibration rows, and each is left out of its own distance. With fewer than `ROWS_OF_A_CLASS` texts for each class
    one Gaussian describes all, and the energy of the logits is added, as it is with more than two classes where the
    representations are `frozen`: not trained to part these classes. Without representations the energy is all.
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
    units, fit = None if reference is None else reference.units, reference
    x, predicted = check_units(representations, units, rows=len(given)), given.argmax(axis=1)
    if fit is None:
        fit = ScopeFit(x.shape[1], given.shape[1])
        fit.add(x, predicted)
    by_class, scales = fit.rows >= ROWS_OF_A_CLASS * fit.classes, None
    gaussians = fit.gaussians(by_class=by_class)
    if reference is not None:
        rows, distances = reference.rows, gaussians.distances(x)
    else:
        classes = np.unique(predicted if by_class else 0 * predicted, return_inverse=True)[1]
        rows, distances = 0, gaussians.left_out_distances(x, classes)
    if not by_class or (frozen and given.shape[1] > 2):
        both = np.stack([distances, energy(given)])
        scales = np.stack([both.mean(axis=1), np.maximum(both.std(axis=1), np.finfo(np.float64).tiny)])
    strange = _combine(distances, given, scales)
    return Scope(false_alarm, rows, np.sort(strange), gaussians, scales, in_scope(strange, false_alarm))


def in_scope(nonconformities: Floats, false_alarm: float) -> Marks:
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


def benjamini_hochberg(p_values: ArrayLike, rate: float) -> Marks:
    """The rows of a batch that are out of scope with a false-discovery rate of at most `rate`: (rows,) → (rows,).

    Of the rows flagged, at most this share is in scope, in expectation (Bates et al., 2023: conformal p-values that
    share calibration rows depend on each other in a way that the procedure allows).
    """
    check_share("rate", rate)
    p = check_scores(p_values)
    ordered = np.sort(p)
    below = ordered[ordered <= rate * np.arange(1, len(p) + 1) / len(p)]
    return np.asarray(p <= below.max(initial=-math.inf))


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
