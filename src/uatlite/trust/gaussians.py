"""Gaussians with one shrunk covariance, fitted on rows that stream by, and the distance of new rows from them."""

import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, InputError
from uatlite.values import Floats, Integers, check_array, check_labels

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
    def whitening(self) -> Floats:
        """W with WᵀW = Σ⁻¹, (units, units)."""
        return inverse_factor(self.covariance)

    @cached_property
    def _white_means(self) -> Floats:
        return self.means @ self.whitening.T

    def distances(self, representations: Floats) -> Floats:
        """min over classes of (x - mₖ)ᵀ Σ⁻¹ (x - mₖ) / (1 + 1/nₖ): (rows, units) → (rows,).

        The denominator is the uncertainty of a mean of nₖ rows: a new row differs from it by (1 + 1/nₖ)Σ.
        """
        squares = squared_gaps(product(representations, self.whitening), self._white_means)
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
            own, n = classes[some], self.rows[classes[some]]
            w = inverse_factor((self.covariance - ridge) * (degrees / left) + ridge)
            z, means = product(representations[some], w), self.means @ w.T
            gap = z - means[own]
            squares, q = squared_gaps(z, means), np.square(gap).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                gamma = np.where(n > 1, (1.0 - self.shrinkage) * n / ((n - 1) * left), 0.0)
                mine = np.where(n > 1, n / (n - 1) * q / (1.0 - gamma * q), np.inf)
            cross = (gap * z).sum(axis=1, keepdims=True) - product(gap, means)
            others = (squares + (gamma / (1.0 - gamma * q))[:, None] * cross**2) / (1.0 + 1.0 / self.rows)
            others[np.arange(len(own)), own] = mine
            result[some] = others.min(axis=1)
        return result


class ScopeFit:
    """Sums over reference texts, added a batch at a time: the memory does not depend on the number of texts.

    Kept are the rows and the sum of each class, and Σ (x - o)(x - o)ᵀ of all rows, where o is the mean of the first
    batch (so that float64 loses no digits).
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
    """L⁻¹ of the lower Cholesky factor LLᵀ = covariance."""
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise CalibrationError(
            "the covariance of the representations is not positive definite; check that the texts differ."
        ) from error
    return np.asarray(np.tril(np.linalg.inv(factor)))


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


def check_units(representations: ArrayLike, units: int) -> Floats:
    """Representations as float64 (rows, units), finite."""
    x = check_array("representations", representations, {"rows": 0, "units": 1})
    if x.shape[1] != units:
        raise InputError(
            f"representations have {x.shape[1]} units, those of the scope had {units}; "
            "use the same model and method, or calibrate again."
        )
    return x
