"""Where the calibration rows lie: an ellipsoid around their representations, and honest distances from it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cholesky

from uatlite.calibration.inputs import FloatArray
from uatlite.errors import CalibrationError, InputError


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """Mean (units,) and shrunk covariance (units, units) of calibration rows, and how far such rows lie from it:
    their sorted leave-one-out squared distances (rows,)."""

    mean: FloatArray
    covariance: FloatArray
    distances: FloatArray

    @cached_property
    def _factor(self) -> FloatArray:
        """The lower Cholesky factor of the covariance, (units, units)."""
        return lower_factor(self.covariance)

    def squared_distances(self, representations: ArrayLike) -> FloatArray:
        """(x - mean)ᵀ Σ⁻¹ (x - mean) of each new row: representations (rows, units) → (rows,)."""
        x = check_representations(representations)
        if x.shape[1] != len(self.mean):
            raise InputError(
                f"representations have {x.shape[1]} units, those of calibration had {len(self.mean)}; "
                "use the same model, or calibrate again."
            )
        return squared_norms(self._factor, x - self.mean)


def fit_ellipsoid(representations: ArrayLike) -> Ellipsoid:
    """The ellipsoid of calibration rows, representations (rows, units), with Ledoit–Wolf shrinkage.

    A row lies nearer to an ellipsoid that it helped to draw, so the reference distances leave each row out.
    With c = x_i - mean, n rows, the shrinkage α and the mean variance μ held, what is left has the mean
    mean - c/(n-1) and the covariance B - γ·ccᵀ, where B = (1-α)·n/(n-1)·S + αμ·I and γ = (1-α)·n/(n-1)².
    By Sherman–Morrison the squared distance is (n/(n-1))²·q / (1 - γq) with q = cᵀB⁻¹c: one factor for all rows.
    """
    from sklearn.covariance import ledoit_wolf  # slow to import, and not needed by all

    x = check_representations(representations)
    n, units = x.shape
    mean = x.mean(axis=0)
    c = x - mean
    covariance, shrinkage = ledoit_wolf(c, assume_centered=True)
    ridge = shrinkage * np.square(c).mean() * np.eye(units)
    base = (covariance - ridge) * n / (n - 1) + ridge
    q = squared_norms(lower_factor(base), c)
    gamma = (1.0 - shrinkage) * n / (n - 1) ** 2
    return Ellipsoid(mean, covariance, np.sort((n / (n - 1)) ** 2 * q / (1.0 - gamma * q)))


def lower_factor(covariance: FloatArray) -> FloatArray:
    """The lower Cholesky factor L with LLᵀ = covariance."""
    try:
        return np.asarray(cholesky(covariance, lower=True))
    except LinAlgError as error:
        raise CalibrationError(
            "the representations of the calibration rows do not vary, so no distance can be measured; "
            "check that they are of different texts."
        ) from error


def squared_norms(factor: FloatArray, vectors: FloatArray) -> FloatArray:
    """‖L⁻¹v‖² of each row v: vectors (rows, units) → (rows,).

    By torch, whose threads are those that run the model: scipy's wait for more work on all cores for some 50 ms
    after a call, in which the next batch would run at half speed.
    """
    import torch

    solved = torch.linalg.solve_triangular(torch.tensor(factor), torch.tensor(vectors).T, upper=False)
    return np.asarray(solved.square().sum(dim=0))


def check_representations(representations: ArrayLike) -> FloatArray:
    """Representations as float64 of shape (rows, units), finite."""
    array = np.asarray(representations, dtype=np.float64)
    if array.ndim != 2:
        raise InputError(f"representations have the shape {array.shape}; give one vector for each row, (rows, units).")
    if not np.isfinite(array).all():
        raise InputError("representations hold NaN or infinity; drop or rescore those rows.")
    return array
