"""Calibrators of one class a text: none, a temperature, and a temperature for each text.

A calibrator is fitted on the mean logits of validation rows and applies to any logits. None of these changes a
prediction. Temperature scaling: Guo et al., 2017. In input temperature each text has a temperature of its own, higher
where its margin varies more over the passes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, ConfigurationError, InputError, check_choice
from uatlite.predictive import OFFSET, PROBIT, log_softmax, logit_features, softmax, widened
from uatlite.values import Floats, Integers, check_array, check_labels, check_logits


class LogitCalibrator(Protocol):
    """Turns mean logits (rows, classes) into calibrated probabilities (rows, classes).

    Each row of the result depends on that row alone, and does not change when a constant is added to all its logits.
    """

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """Probabilities (rows, classes); each row sums to 1."""
        ...

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats | None:
        """What of the variance (rows,) counts for rows with these mean logits; None if it is not used."""
        return None

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """Probabilities of logits that are not the mean ones of their rows, as those of one pass.

        `effective` is the `effective_variance` of these rows, so that all passes of a row are calibrated alike.
        """
        return self.probabilities(logits)


FitCalibrator = Callable[[ArrayLike, ArrayLike, ArrayLike | None], LogitCalibrator]
"""Learns from validation rows: logits (rows, classes), labels (rows,), the margin's variance (rows,) or None."""


def check_fit(
    logits: ArrayLike, labels: ArrayLike, *, name: str, minimum_rows: int, every_class: bool = False
) -> tuple[Floats, Integers]:
    """Logits (rows, classes) and labels (rows,) that a calibrator can learn from, or an error with the reason."""
    z = check_logits(logits)
    y = check_labels(labels, rows=len(z), classes=z.shape[1])
    if len(z) < minimum_rows:
        raise CalibrationError(
            f"{len(z)} labelled rows are too few for the calibrator {name!r}, which needs {minimum_rows}; "
            "label more rows. In Python calibrator='none' does without."
        )
    seen = np.unique(y)
    if len(seen) < 2:
        raise CalibrationError(f"all {len(y)} labels are {int(seen[0])}; give validation rows of at least two classes.")
    if every_class and len(seen) < z.shape[1]:
        absent = np.setdiff1d(np.arange(z.shape[1]), seen).tolist()
        raise CalibrationError(
            f"the calibrator {name!r} fits each class by itself and no row has the label {absent}; "
            "add rows of it, or use 'temperature'."
        )
    return z, y


def check_variance(variance: ArrayLike | None, *, rows: int) -> Floats:
    """The margin's variance as float64 (rows,), finite and not negative."""
    if variance is None:
        raise InputError(
            "the calibrator 'input-temperature' needs the margin's variance of each row; "
            "pass variance=margin_variance(logits of every pass), or use 'temperature'."
        )
    array = check_array("variance", variance, {"rows": 0})
    if len(array) != rows:
        raise InputError(f"variance has shape {array.shape}; allowed is ({rows},), one value for each row of logits.")
    if (array < 0).any():
        raise InputError(f"variance holds {array.min():g}; give a variance, which is not negative, not its logarithm.")
    return array


@dataclass(frozen=True)
class Identity(LogitCalibrator):
    """softmax(logits), the baseline."""

    name: ClassVar[str] = "none"
    classes: int

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Check logits (rows, classes) and labels (rows,); there is nothing to learn."""
        z = check_logits(logits)
        check_labels(labels, rows=len(z), classes=z.shape[1])
        return cls(z.shape[1])

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits), (rows, classes)."""
        return softmax(check_logits(logits, classes=self.classes))


TEMPERATURE_BOUNDS = (0.01, 1000.0)
"""T stops here where the NLL has no minimiser: 0.01 where every validation row is predicted correctly (T → 0),
1000 where the logits carry no information or mislead (T → ∞)."""


def best_temperature(logits: Floats, labels: Integers) -> float:
    """The T in `TEMPERATURE_BOUNDS` that minimises the mean NLL of softmax(logits / T).

    With β = 1/T the NLL is convex, and its slope mean_i(sum_j p_ij z_ij - z_iy) rises with β, so the
    minimiser is the root of the slope. A root is found to rounding, a minimum only to the square root of it.
    """
    gaps = logits - np.take_along_axis(logits, labels[:, None], axis=1)

    def slope(log_inverse: float) -> float:
        weights = softmax(math.exp(log_inverse) * gaps)
        return float((weights * gaps).sum(axis=1).mean())

    sharpest, flattest = (-math.log(bound) for bound in TEMPERATURE_BOUNDS)
    if not gaps.any():  # every logit of a row is the same: no temperature changes anything
        return 1.0
    if slope(flattest) >= 0:
        return TEMPERATURE_BOUNDS[1]
    if slope(sharpest) <= 0:
        return TEMPERATURE_BOUNDS[0]
    from scipy.optimize import brentq  # only fitting needs scipy

    return math.exp(-brentq(slope, flattest, sharpest, xtol=1e-12))


@dataclass(frozen=True)
class Temperature(LogitCalibrator):
    """softmax(logits / T) with the T that minimises the NLL of the validation rows."""

    name: ClassVar[str] = "temperature"
    classes: int
    temperature: float

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn the temperature from logits (rows, classes) and labels (rows,)."""
        z, y = check_fit(logits, labels, name=cls.name, minimum_rows=10)
        return cls(z.shape[1], best_temperature(z, y))

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits / T), (rows, classes)."""
        return softmax(check_logits(logits, classes=self.classes) / self.temperature)


WIDENINGS = (0.0, *np.geomspace(1e-3, 1e3, 25).tolist())
"""The grid of a·π/8·mean(σ²) on which the search for a begins; the last value bounds a."""


def best_widening(logits: Floats, labels: Integers, variance: Floats) -> float:
    """The a ≥ 0 with the least penalised NLL when T is the best for each a:

        n·NLL + log(1 + s),   s = a·π/8·mean(σ²)

    The penalty is a prior ∝ 1/(1 + s). With few rows the NLL hardly tells a large a from an infinite one, where
    only logits/σ counts. The prior then decides; many rows outweigh it (docs/reference/calibration.md).

    For a fixed a the NLL is convex in 1/T, so T is profiled out and one dimension is left. It need not be
    convex in a: a grid finds the valley, a bounded search its minimum. Exactly 0 unless a larger a is better.
    """
    profile = _profile(logits, labels, variance)
    spread = float(variance.mean())
    if spread == 0.0:
        return 0.0
    grid = [step / (PROBIT * spread) for step in WIDENINGS]
    losses = [profile(widening) for widening in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    from scipy.optimize import minimize_scalar

    minimum = minimize_scalar(profile, bounds=valley, method="bounded", options={"xatol": 1e-9 * valley[1]})
    loss, widening = min((losses[best], grid[best]), (float(minimum.fun), float(minimum.x)))
    # A gain of the size of rounding does not count: then a is 0 and the result is exactly temperature scaling.
    return widening if loss < losses[0] - 1e-12 else 0.0


def _profile(logits: Floats, labels: Integers, variance: Floats) -> Callable[[float], float]:
    """a -> the penalised NLL of `best_widening`, divided by the number of rows, with the best T."""
    rows, spread = np.arange(len(labels)), float(variance.mean())

    def profile(widening: float) -> float:
        scaled = logits * widened(variance, widening)[:, None]
        losses = -log_softmax(scaled / best_temperature(scaled, labels))[rows, labels]
        return float(losses.mean() + math.log1p(widening * PROBIT * spread) / len(rows))

    return profile


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The values of b that are tried."""
COARSE = WIDENINGS[1::4]
"""The values of a·π/8·mean(σ²) on which they are compared."""


def best_share(logits: Floats, labels: Integers, effective: Callable[[float], Floats]) -> float:
    """The b of `SHARES` with the least penalised NLL over a grid of a: that of `best_widening`, and b²/2.

    The penalty is a normal prior of standard deviation 1, whose middle is what the logits alone tell.
    """

    def loss(share: float) -> float:
        variance = effective(share)
        spread = float(variance.mean())
        if spread == 0.0:
            return math.inf
        profile = _profile(logits, labels, variance)
        least = min(profile(step / (PROBIT * spread)) for step in COARSE)
        return least + share**2 / (2 * len(labels))

    return min(SHARES, key=loss)


@dataclass(frozen=True, eq=False)
class InputTemperature(LogitCalibrator):
    """softmax(logits / (T·sqrt(1 + a·π/8·σ̃²))),   log σ̃² = u + b·(log σ² - u)

    with σ² the variance of the margin, and u what its logarithm usually is for such logits: a linear regression on the
    highest logits, their margin and the entropy, for which no labels are needed. T > 0, a ≥ 0 and b, from 0 to 1, have
    the least penalised NLL. b is the share of the unusual in a variance that counts. In another domain variances are
    unusual for reasons of their own, such as the length of texts, so b is 0 unless rows speak for more.

    At a = 0 it is temperature scaling exactly, so nothing is lost where the variance does not help.
    """

    name: ClassVar[str] = "input-temperature"
    classes: int
    temperature: float
    """T"""
    widening: float
    """a"""
    share: float
    """b"""
    usual: Floats
    """(features + 1,): the weights of u, and its intercept"""
    limits: tuple[float, float]
    """the lowest and highest log σ² of the validation rows, which log σ̃² keeps to"""

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn T, a and b from validation rows; variance is (rows,)."""
        z, y = check_fit(logits, labels, name=cls.name, minimum_rows=20)
        v = check_variance(variance, rows=len(z))
        logs = np.log(v + OFFSET)
        limits, usual = (float(logs.min()), float(logs.max())), _regression(logit_features(z), logs)

        def effective(share: float) -> Floats:
            return cls(z.shape[1], 1.0, 0.0, share, usual, limits).effective_variance(z, v)

        share = best_share(z, y, effective)
        widening = best_widening(z, y, effective(share))
        temperature = best_temperature(z * widened(effective(share), widening)[:, None], y)
        return cls(z.shape[1], temperature, widening, share, usual, limits)

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits / (T·sqrt(1 + a·π/8·σ̃²))), (rows, classes)."""
        return self.probabilities_with(logits, self.effective_variance(logits, variance))

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats:
        """σ̃² (rows,)."""
        z = check_logits(logits, classes=self.classes)
        logs = np.log(check_variance(variance, rows=len(z)) + OFFSET)
        if self.share < 1:
            expected = logit_features(z) @ self.usual[:-1] + self.usual[-1]
            logs = expected + self.share * (logs - expected)
        return np.asarray(np.maximum(np.exp(np.clip(logs, *self.limits)) - OFFSET, 0.0))

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """The same with σ̃² given."""
        z = check_logits(logits, classes=self.classes)
        scales = widened(check_variance(effective, rows=len(z)), self.widening)
        return softmax(z * scales[:, None] / self.temperature)


def _regression(features: Floats, y: Floats) -> Floats:
    """Weights and intercept (features + 1,) of the least-squares regression of y (rows,), the smallest if many fit."""
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(scale).max(), scale, np.inf)
    weights = np.linalg.lstsq((features - centre) / scale, y - y.mean(), rcond=1e-9)[0] / scale
    return np.append(weights, y.mean() - centre @ weights)


Calibrator = Identity | Temperature | InputTemperature
CALIBRATORS: dict[str, type[Calibrator]] = {kind.name: kind for kind in (Identity, Temperature, InputTemperature)}

BASELINES = ("vector", "platt", "histogram", "isotonic", "auto")
"""Calibrators that may change a prediction; `uatlite evaluate` has them, a classifier does not."""


def check_calibrator(name: str) -> None:
    """Raise unless a classifier can be calibrated by the calibrator of this name."""
    if name in BASELINES:
        raise ConfigurationError(
            f"calibrator={name!r} may change a prediction, so that it is a baseline of uatlite evaluate (base+{name}) "
            f"and no longer of a classifier; use one of {', '.join(CALIBRATORS)}."
        )
    check_choice("calibrator", name, CALIBRATORS)


def stratified_folds(labels: Integers, folds: int, seed: int) -> Integers:
    """A fold in 0 .. folds-1 for each row, (rows,), each class spread evenly; a function of the seed."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    assigned = np.empty(len(labels), dtype=np.int64)
    assigned[by_class] = np.arange(len(labels)) % folds
    return assigned


def held_out(
    fit: FitCalibrator, logits: Floats, labels: Integers, variance: ArrayLike | None, folds: Integers
) -> Floats:
    """Probabilities (rows, classes) of each row by a calibrator fitted on the other folds."""
    probs, spread = np.empty_like(logits), None if variance is None else np.asarray(variance)
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        inside, outside = (None, None) if spread is None else (spread[~out], spread[out])
        probs[out] = fit(logits[~out], labels[~out], inside).probabilities(logits[out], outside)
    return probs
