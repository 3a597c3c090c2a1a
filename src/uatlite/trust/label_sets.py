"""Label sets that contain the true label at a stated rate: split conformal prediction."""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import InputError, check_choice
from uatlite.trust.rule import StoredDecision, conformal_rank
from uatlite.values import Floats, check_array, check_labels, check_probabilities, check_share


def least_ambiguous(probabilities: Floats, uniforms: Floats | None) -> Floats:
    """LAC (Sadinle et al., 2019): 1 - p_k, (rows, classes). The smallest sets on average."""
    return np.asarray(1.0 - probabilities)


def adaptive(probabilities: Floats, uniforms: Floats | None) -> Floats:
    """APS (Romano et al., 2020): the mass of likelier classes plus u·p_k, (rows, classes).

    Sets are larger where the row is hard. Without the u every wrong prediction of a binary model would score 1, and
    if there were more of these than errors are allowed, every set would contain all labels.
    """
    if uniforms is None:
        raise InputError("'aps' needs one number in [0, 1) for each row; pass uniforms=text_uniforms(texts).")
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    mass = ranked.cumsum(axis=1) - ranked + uniforms[:, None] * ranked
    result = np.empty_like(mass)
    np.put_along_axis(result, order, mass, axis=1)
    return result


NONCONFORMITY: dict[str, Callable[[Floats, Floats | None], Floats]] = {
    "lac": least_ambiguous,
    "aps": adaptive,
}


@dataclass(frozen=True, kw_only=True)
class LabelSets(StoredDecision):
    """Sets of labels that contain the true one with probability `coverage` or more, averaged over rows.

    A label is in the set where its nonconformity is at most `threshold`; +inf means all labels, because `rows` are too
    few for smaller sets. 95 % of calibration samples give a coverage within `coverage_interval` (a Beta law, exact
    without ties). A set may be empty: then no label conforms, and that is an abstention.
    """

    stored_name: ClassVar[str] = "label sets"
    method: str
    coverage: float
    threshold: float
    rows: int
    coverage_interval: tuple[float, float]

    def __post_init__(self) -> None:
        check_choice("method", self.method, NONCONFORMITY)

    def sets(self, probabilities: ArrayLike, uniforms: ArrayLike | None = None) -> NDArray[np.bool_]:
        """True where the label is in the row's set: probabilities (rows, classes) → (rows, classes)."""
        p = check_probabilities(probabilities)
        return np.asarray(NONCONFORMITY[self.method](p, check_uniforms(uniforms, len(p))) <= self.threshold)


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
    from scipy.stats import beta

    check_choice("method", method, NONCONFORMITY)
    check_share("coverage", coverage)
    p = check_probabilities(probabilities)
    u = check_uniforms(uniforms, len(p))
    y = check_labels(labels, rows=len(p), classes=p.shape[1])
    own = np.take_along_axis(NONCONFORMITY[method](p, u), y[:, None], axis=1)[:, 0]
    rank = conformal_rank(coverage, len(own))
    if rank > len(own):
        threshold, interval = math.inf, (1.0, 1.0)
    else:
        threshold = float(np.sort(own)[rank - 1])
        low, high = beta.ppf([0.025, 0.975], rank, len(own) + 1 - rank).tolist()
        interval = (low, high)
    return LabelSets(method=method, coverage=coverage, threshold=threshold, rows=len(own), coverage_interval=interval)


def text_uniforms(texts: Iterable[object], seed: int = 0) -> Floats:
    """A number in [0, 1) for each text, a hash of the text and the seed: the same text always gets the same set.

    The promised coverage needs exchangeable rows, and a function of the text keeps them exchangeable.
    """
    digests = (hashlib.blake2b(f"{seed}\0{text!r}".encode(errors="surrogatepass"), digest_size=8) for text in texts)
    return np.array([(int.from_bytes(digest.digest(), "big") >> 11) * 2.0**-53 for digest in digests])


def check_uniforms(uniforms: ArrayLike | None, rows: int) -> Floats | None:
    """One number in [0, 1] for each row, (rows,), or None."""
    if uniforms is None:
        return None
    array = check_array("uniforms", uniforms, {"rows": 0})
    if len(array) != rows or (array < 0).any() or (array > 1).any():
        raise InputError(f"uniforms of shape {array.shape} must be {rows} numbers in [0, 1], one for each row.")
    return array
