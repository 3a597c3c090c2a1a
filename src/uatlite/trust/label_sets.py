"""Label sets that hold the true label at a stated rate: split conformal prediction."""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from uatlite.errors import CalibrationError, InputError, check_choice
from uatlite.values import FloatArray, check_labels, check_share


def least_ambiguous(probabilities: FloatArray, uniforms: FloatArray | None) -> FloatArray:
    """LAC (Sadinle et al., 2019): 1 - p_k, (rows, classes). The smallest sets on average."""
    return np.asarray(1.0 - probabilities)


def adaptive(probabilities: FloatArray, uniforms: FloatArray | None) -> FloatArray:
    """APS (Romano et al., 2020): the mass of likelier classes plus u·p_k, (rows, classes).

    Larger sets where the row is hard. Without the u every wrong prediction of a binary model would score 1, and
    as soon as these are more than the error allowed, the sets would hold all labels.
    """
    if uniforms is None:
        raise InputError("'aps' needs one number in [0, 1) for each row; pass uniforms=text_uniforms(texts).")
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    mass = ranked.cumsum(axis=1) - ranked + uniforms[:, None] * ranked
    result = np.empty_like(mass)
    np.put_along_axis(result, order, mass, axis=1)
    return result


NONCONFORMITY: dict[str, Callable[[FloatArray, FloatArray | None], FloatArray]] = {
    "lac": least_ambiguous,
    "aps": adaptive,
}


@dataclass(frozen=True, kw_only=True)
class LabelSets:
    """Sets of labels that hold the true one with probability `coverage` or more, averaged over rows.

    A label is in the set where its nonconformity is at most `threshold`; +inf means all labels, because
    `rows` are too few to promise less. `coverage_interval`: over calibration samples, 95 % of them give a coverage
    in it (a Beta law, exact without ties). A set may be empty: then no label conforms, and that is an abstention.
    """

    method: str
    coverage: float
    threshold: float
    rows: int
    coverage_interval: tuple[float, float]

    def sets(self, probabilities: ArrayLike, uniforms: ArrayLike | None = None) -> NDArray[np.bool_]:
        """True where the label is in the row's set: probabilities (rows, classes) → (rows, classes)."""
        p, u = check_probabilities(probabilities), check_uniforms(uniforms, probabilities)
        return np.asarray(NONCONFORMITY[self.method](p, u) <= self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; the infinite threshold as "inf"."""
        state = asdict(self)
        state["coverage_interval"] = list(self.coverage_interval)
        if math.isinf(self.threshold):
            state["threshold"] = "inf"
        return state

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The sets that `to_dict` described."""
        try:
            check_choice("method", state["method"], NONCONFORMITY)
            low, high = state["coverage_interval"]
            return cls(**{**state, "threshold": float(state["threshold"]), "coverage_interval": (low, high)})
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored label sets are broken ({error}); calibrate again.") from error


def label_sets(
    probabilities: ArrayLike,
    labels: ArrayLike,
    coverage: float = 0.9,
    *,
    method: str = "lac",
    uniforms: ArrayLike | None = None,
) -> LabelSets:
    """Split conformal sets from calibration rows: probabilities (rows, classes) and labels (rows,).

    The threshold is the k-th smallest nonconformity of the true labels, k = ceil((rows+1)·coverage); +inf if
    k > rows. The rows must not be those that fitted the calibrator.
    """
    check_choice("method", method, NONCONFORMITY)
    check_share("coverage", coverage)
    p, u = check_probabilities(probabilities), check_uniforms(uniforms, probabilities)
    y = check_labels(labels, rows=len(p), classes=p.shape[1])
    own = np.take_along_axis(NONCONFORMITY[method](p, u), y[:, None], axis=1)[:, 0]
    rank = math.ceil((len(own) + 1) * coverage - 1e-9)  # 0.29·100 is 29 and not 28.999999999999996
    if rank > len(own):
        threshold, interval = math.inf, (1.0, 1.0)
    else:
        threshold = float(np.sort(own)[rank - 1])
        low, high = beta.ppf([0.025, 0.975], rank, len(own) + 1 - rank).tolist()
        interval = (low, high)
    return LabelSets(method=method, coverage=coverage, threshold=threshold, rows=len(own), coverage_interval=interval)


def text_uniforms(texts: Iterable[object], seed: int = 0) -> FloatArray:
    """A number in [0, 1) for each text, by a hash of it and the seed: one text always gets one set.

    The promise of coverage needs rows that are exchangeable, and a function of the text keeps them so.
    """
    digests = (hashlib.blake2b(f"{seed}\0{text!r}".encode(errors="surrogatepass"), digest_size=8) for text in texts)
    return np.array([(int.from_bytes(digest.digest(), "big") >> 11) * 2.0**-53 for digest in digests])


def check_probabilities(probabilities: ArrayLike) -> FloatArray:
    """Probabilities as float64 of shape (rows, classes); rows sum to 1."""
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(f"probabilities have the shape {array.shape}; give (rows, classes).")
    if not (np.isfinite(array).all() and (array >= 0).all() and np.allclose(array.sum(axis=1), 1.0, atol=1e-4)):
        raise InputError("probabilities are negative, NaN, or do not sum to 1 in each row; give no logits here.")
    return array


def check_uniforms(uniforms: ArrayLike | None, probabilities: ArrayLike) -> FloatArray | None:
    """One number in [0, 1] for each row, (rows,), or None."""
    if uniforms is None:
        return None
    array, rows = np.asarray(uniforms, dtype=np.float64), len(np.asarray(probabilities))
    if array.shape != (rows,) or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"uniforms of shape {array.shape} must be {rows} numbers in [0, 1], one for each row.")
    return array
