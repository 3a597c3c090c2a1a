"""Are the new rows like the calibration rows? If not, the promises do not hold.

Calibration keeps the sorted scores of its rows and an ellipsoid around their representations. New rows are compared by
two tests: one of their scores, one of their distances from the ellipsoid.
"""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.stats import ks_2samp, mannwhitneyu

from uatlite.errors import CalibrationError, InputError
from uatlite.trust.rule import conformal_rank
from uatlite.values import Floats, check_array, check_scores, check_share


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """Mean (units,) and shrunk covariance (units, units) of calibration rows, and the sorted leave-one-out squared
    distances (rows,) of these rows."""

    mean: Floats
    covariance: Floats
    distances: Floats

    @cached_property
    def _factor(self) -> Floats:
        """The lower Cholesky factor of the covariance, (units, units)."""
        return lower_factor(self.covariance)

    def squared_distances(self, representations: ArrayLike) -> Floats:
        """(x - mean)ᵀ Σ⁻¹ (x - mean) of each new row: representations (rows, units) → (rows,)."""
        x = check_array("representations", representations, {"rows": 0, "units": 1})
        if x.shape[1] != len(self.mean):
            raise InputError(
                f"representations have {x.shape[1]} units, those of calibration had {len(self.mean)}; "
                "use the same model, or calibrate again."
            )
        return squared_norms(self._factor, x - self.mean)


def fit_ellipsoid(representations: ArrayLike) -> Ellipsoid:
    """The ellipsoid of calibration rows, representations (rows, units), with Ledoit–Wolf shrinkage.

    A row lies nearer to an ellipsoid that was fitted on it, so each reference distance leaves its row out.
    With c = x_i - mean, n rows, the shrinkage α and the mean variance μ held, the other rows have the mean
    mean - c/(n-1) and the covariance B - γ·ccᵀ, where B = (1-α)·n/(n-1)·S + αμ·I and γ = (1-α)·n/(n-1)².
    By Sherman–Morrison the squared distance is (n/(n-1))²·q / (1 - γq) with q = cᵀB⁻¹c: one factor for all rows.
    """
    from sklearn.covariance import ledoit_wolf  # slow to import, and not needed by all

    x = check_array("representations", representations, {"rows": 0, "units": 1})
    n, units = x.shape
    mean = x.mean(axis=0)
    c = x - mean
    covariance, shrinkage = ledoit_wolf(c, assume_centered=True)
    ridge = shrinkage * np.square(c).mean() * np.eye(units)
    base = (covariance - ridge) * n / (n - 1) + ridge
    q = squared_norms(lower_factor(base), c)
    gamma = (1.0 - shrinkage) * n / (n - 1) ** 2
    return Ellipsoid(mean, covariance, np.sort((n / (n - 1)) ** 2 * q / (1.0 - gamma * q)))


def lower_factor(covariance: Floats) -> Floats:
    """The lower Cholesky factor L with LLᵀ = covariance."""
    try:
        return np.asarray(cholesky(covariance, lower=True))
    except LinAlgError as error:
        raise CalibrationError(
            "the representations of the calibration rows do not vary, so no distance can be measured; "
            "check that they are of different texts."
        ) from error


def squared_norms(factor: Floats, vectors: Floats) -> Floats:
    """‖L⁻¹v‖² of each row v: vectors (rows, units) → (rows,).

    With torch, because its threads are those that run the model: scipy's keep all cores busy for some 50 ms after a
    call, and the next batch would run at half speed.
    """
    import torch

    solved = torch.linalg.solve_triangular(torch.tensor(factor), torch.tensor(vectors).T, upper=False)
    return np.asarray(solved.square().sum(dim=0))


REFERENCE_ROWS = 50
"""The fewest calibration rows for a reference."""

CHECKED_ROWS = 20
"""The fewest new rows for a verdict."""


@dataclass(frozen=True)
class ShiftReport:
    """The result of comparing new rows with the calibration rows.

    `shifted` is None where the rows are too few for a verdict. `p_value` is the smaller p-value of the tests times
    their number (Bonferroni): without a shift it is below `false_alarm` at that rate or less. `outliers` is the share
    of new rows farther out than all but `false_alarm` of calibration rows. Medians are of squared distances.
    """

    rows: int
    shifted: bool | None
    p_value: float | None
    false_alarm: float
    score_p_value: float | None
    distance_p_value: float | None = None
    median_distance: float | None = None
    reference_distance: float | None = None
    outliers: float | None = None

    def describe(self) -> str:
        """The verdict in one sentence."""
        if self.shifted is None:
            return (
                f"{self.rows} rows are too few to tell a shift (at least {CHECKED_ROWS}): the promises are unchecked."
            )
        verdict = "The data have shifted: the promises are off" if self.shifted else "No shift was found"
        evidence = f"p = {self.p_value:.2g}, false alarms {self.false_alarm:g}"
        if self.median_distance is not None:
            evidence += (
                f"; median squared distance {self.median_distance:.0f}, on calibration rows "
                f"{self.reference_distance:.0f}; {self.outliers:.1%} of rows are outliers"
            )
        return f"{verdict} ({evidence})."

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class ShiftReference:
    """What calibration keeps of its rows: their sorted scores (rows,) and the ellipsoid of their representations."""

    score: str
    false_alarm: float
    scores: Floats
    ellipsoid: Ellipsoid | None = None

    def squared_distances(self, representations: ArrayLike) -> Floats:
        """The distance of new rows from the calibration rows: representations (rows, units) → (rows,).

        For a stream: keep these distances instead of the representations, and check them at the end.
        """
        return self._need_ellipsoid().squared_distances(representations)

    def outliers(self, distances: ArrayLike) -> NDArray[np.bool_]:
        """True where a row lies farther out than all but `false_alarm` of calibration rows: (rows,) → (rows,).

        A conformal test of each row by itself; fewer than 1/false_alarm - 1 calibration rows can flag none.
        """
        reference = self._need_ellipsoid().distances
        rank = conformal_rank(1.0 - self.false_alarm, len(reference))
        limit = math.inf if rank > len(reference) else reference[rank - 1]
        return np.asarray(check_scores(distances) > limit)

    def check(
        self,
        scores: ArrayLike,
        representations: ArrayLike | None = None,
        *,
        distances: ArrayLike | None = None,
    ) -> ShiftReport:
        """Compare new rows: scores (rows,), and representations (rows, units) or their squared distances.

        Two tests: Kolmogorov–Smirnov on the scores, Mann–Whitney, two-sided, on the distances.
        """
        new = check_scores(scores)
        if representations is not None:
            distances = self.squared_distances(representations)
        far = None if distances is None else check_scores(distances)
        if far is not None and len(far) != len(new):
            raise InputError(f"{len(new)} scores came with {len(far)} distances; give both for the same rows.")
        if len(new) < CHECKED_ROWS:
            return ShiftReport(len(new), None, None, self.false_alarm, None)
        score_p = score_test(new, self.scores)
        if far is None:
            return ShiftReport(len(new), score_p < self.false_alarm, score_p, self.false_alarm, score_p)
        reference = self._need_ellipsoid().distances
        distance_p = distance_test(far, reference)
        p_value = min(1.0, 2.0 * min(score_p, distance_p))
        return ShiftReport(
            rows=len(new),
            shifted=p_value < self.false_alarm,
            p_value=p_value,
            false_alarm=self.false_alarm,
            score_p_value=score_p,
            distance_p_value=distance_p,
            median_distance=float(np.median(far)),
            reference_distance=float(np.median(reference)),
            outliers=float(self.outliers(far).mean()),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields that are not arrays, as plain JSON values."""
        return {"score": self.score, "false_alarm": self.false_alarm}

    def to_arrays(self) -> dict[str, Floats]:
        """The arrays by name; without representations only the scores."""
        arrays = {"scores": self.scores}
        if self.ellipsoid is not None:
            arrays |= {name: getattr(self.ellipsoid, name) for name in ("mean", "covariance", "distances")}
        return arrays

    @classmethod
    def from_arrays(cls, state: dict[str, Any], arrays: dict[str, Floats]) -> Self:
        """The reference that `to_dict` and `to_arrays` described."""
        own = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        try:
            scores = own.pop("scores")
            return cls(**state, scores=scores, ellipsoid=Ellipsoid(**own) if own else None)
        except (KeyError, TypeError) as error:
            raise CalibrationError(
                f"the stored summary of calibration rows is broken ({error}); calibrate again."
            ) from error

    def _need_ellipsoid(self) -> Ellipsoid:
        if self.ellipsoid is None:
            raise CalibrationError(
                "calibration kept no representations, so there are no distances; calibrate again with them, "
                "or check the scores alone."
            )
        return self.ellipsoid


def summarise(
    scores: ArrayLike,
    representations: ArrayLike | None = None,
    *,
    score: str = "confidence",
    false_alarm: float = 0.01,
) -> ShiftReference:
    """The reference from calibration rows: scores (rows,) and, where given, pooled representations (rows, units)."""
    check_share("false_alarm", false_alarm)
    s = check_scores(scores)
    if len(s) < REFERENCE_ROWS:
        raise CalibrationError(
            f"{len(s)} rows are too few to know a shift from chance; calibrate on {REFERENCE_ROWS} rows or more."
        )
    if representations is not None and len(np.asarray(representations)) != len(s):
        raise InputError(
            f"{len(s)} scores came with {len(np.asarray(representations))} representations; "
            "give both for the same rows."
        )
    ellipsoid = None if representations is None else fit_ellipsoid(representations)
    return ShiftReference(score, false_alarm, np.sort(s), ellipsoid)


def score_test(new: Floats, reference: Floats) -> float:
    """The p-value of Kolmogorov–Smirnov: any change of the scores' distribution counts."""
    small = max(len(new), len(reference)) <= 1000  # beyond that the asymptotic law is as good, and fast
    return float(ks_2samp(new, reference, method="exact" if small else "asymp").pvalue)


def distance_test(new: Floats, reference: Floats) -> float:
    """The p-value of Mann–Whitney: rows too far out count, and so do rows too near (all the same text, say)."""
    return float(mannwhitneyu(new, reference, alternative="two-sided", method="asymptotic").pvalue)
