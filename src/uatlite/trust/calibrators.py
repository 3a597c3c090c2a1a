"""The protocol of calibrators, and those that scale all logits alike: none, temperature, vector scaling.

A calibrator is fitted on the mean logits of validation rows, applies to any logits, and is stored as plain JSON.
Temperature and vector scaling: Guo et al., 2017.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, InputError
from uatlite.predictive import log_softmax, softmax
from uatlite.values import Floats, Integers, check_array, check_labels, check_logits


@runtime_checkable
class Calibrator(Protocol):
    """Turns mean logits (rows, classes) into calibrated probabilities (rows, classes).

    `__init__` stores settings, `fit` validates and learns, and learned attributes end in `_`. Each row of the result
    depends on that row alone, and does not change when a constant is added to all its logits.
    """

    name: ClassVar[str]
    """The key in `CALIBRATORS` and in the dict that `to_dict` returns."""
    keeps_argmax: ClassVar[bool]
    """Whether the most probable class is always the one with the largest logit."""
    uses_variance: ClassVar[bool]
    """Whether `fit` and `probabilities` need the margin's variance (rows,)."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn from validation rows: logits (rows, classes), labels (rows,), variance (rows,) or None."""
        ...

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """Probabilities (rows, classes); each row sums to 1."""
        ...

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats | None:
        """What of the variance (rows,) counts for rows with these mean logits; None if it is not used."""
        ...

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """Probabilities of logits that are not the mean ones of their rows, as those of one pass.

        `effective` is the `effective_variance` of these rows, so that all passes of a row are calibrated alike.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything that was learned, as plain JSON values; floats come back from JSON exactly."""
        ...

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        ...


def check_fit(
    logits: ArrayLike, labels: ArrayLike, *, name: str, minimum_rows: int, every_class: bool
) -> tuple[Floats, Integers]:
    """Logits (rows, classes) and labels (rows,) that a calibrator can learn from, or an error with the reason."""
    z = check_logits(logits)
    y = check_labels(labels, rows=len(z), classes=z.shape[1])
    if len(z) < minimum_rows:
        raise CalibrationError(
            f"{len(z)} labelled rows are too few for the calibrator {name!r}, which needs {minimum_rows}; "
            "label more rows, or use 'none'."
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


def check_fitted(calibrator: object, attribute: str) -> None:
    """Raise unless `fit` has run."""
    if not hasattr(calibrator, attribute):
        raise CalibrationError(
            f"{type(calibrator).__name__} is not fitted; call fit(logits, labels) on validation rows first."
        )


def vector(values: Any) -> Floats:
    """A JSON list of numbers as an array."""
    return np.array(values, dtype=np.float64)


class Learned:
    """A calibrator's name and its learned attributes, stored as {"calibrator": name, setting: …, learned: …}."""

    name: ClassVar[str]
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Each argument of `__init__`, and how to read it from JSON."""
    learned: ClassVar[Mapping[str, Callable[[Any], Any]]]
    """Each learned attribute without its final `_`, and how to read it from JSON."""
    probabilities: Callable[..., Floats]
    """of a subclass"""

    def check_fitted(self) -> None:
        """Raise unless `fit` has run."""
        check_fitted(self, f"{next(iter(self.learned))}_")

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats | None:
        """None: the variance is not used."""
        return None

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """`probabilities`, which depend on the logits alone."""
        return self.probabilities(logits)

    def to_dict(self) -> dict[str, Any]:
        """The name, the settings and what was learned, as plain JSON values."""
        self.check_fitted()
        attributes = {name: getattr(self, name) for name in self.settings}
        attributes |= {name: getattr(self, f"{name}_") for name in self.learned}
        return {"calibrator": self.name} | {name: _plain(value) for name, value in attributes.items()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls(**{name: read(state[name]) for name, read in cls.settings.items()})
        for name, read in cls.learned.items():
            setattr(new, f"{name}_", read(state[name]))
        return new


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


class Identity(Learned):
    """softmax(logits), the baseline."""

    name = "none"
    keeps_argmax = True
    learned: ClassVar = {"classes": int}
    classes_: int

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Check logits (rows, classes) and labels (rows,); there is nothing to learn."""
        z = check_logits(logits)
        check_labels(labels, rows=len(z), classes=z.shape[1])
        self.classes_ = z.shape[1]
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits), (rows, classes)."""
        self.check_fitted()
        return softmax(check_logits(logits, classes=self.classes_))


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


class Temperature(Learned):
    """softmax(logits / T) with the T that minimises the NLL of the validation rows."""

    name = "temperature"
    keeps_argmax = True
    learned: ClassVar = {"classes": int, "temperature": float}
    classes_: int
    temperature_: float

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `temperature_` from logits (rows, classes) and labels (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=10, every_class=False)
        self.classes_ = z.shape[1]
        self.temperature_ = best_temperature(z, y)
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits / T), (rows, classes)."""
        self.check_fitted()
        return softmax(check_logits(logits, classes=self.classes_) / self.temperature_)


def membership(labels: Integers, classes: int) -> Floats:
    """1.0 where the row has the class, else 0.0, (rows, classes)."""
    return np.eye(classes)[labels]


def centred(logits: Floats) -> Floats:
    """Logits minus their row's mean: otherwise class weights would make a shift of a whole row count."""
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def fit_weights(logits: Floats, labels: Integers, prior: float) -> tuple[Floats, Floats]:
    """Weights and biases (classes,) that minimise NLL + (‖w-1‖² + ‖b‖²)/(2·prior²·rows); convex."""
    rows, classes = logits.shape
    members = membership(labels, classes)
    ridge = 1.0 / (prior**2 * rows)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, biases = parameters[:classes], parameters[classes:]
        log_chances = log_softmax(logits * weights + biases)
        pull = parameters - neutral
        value = -(members * log_chances).sum() / rows + 0.5 * ridge * pull @ pull
        excess = (np.exp(log_chances) - members) / rows
        return value, np.concatenate([(excess * logits).sum(axis=0), excess.sum(axis=0)]) + ridge * pull

    neutral = np.concatenate([np.ones(classes), np.zeros(classes)])
    options = {"gtol": 1e-10, "ftol": 1e-15, "maxiter": 2000, "maxfun": 20_000}
    from scipy.optimize import minimize

    found = minimize(loss, neutral, jac=True, method="L-BFGS-B", options=options)
    return found.x[:classes], found.x[classes:]


class VectorScaling(Learned):
    """softmax(w ⊙ z/T + b) on row-centred logits z, shrunk toward plain temperature scaling.

    T is the best temperature, and w - 1 and b have a normal prior of standard deviation `prior`: it keeps the
    weights finite on separable rows and fades as 1/rows.
    """

    name = "vector"
    settings: ClassVar = {"prior": float}
    learned: ClassVar = {"weights": vector, "biases": vector}
    weights_: Floats
    biases_: Floats

    def __init__(self, prior: float = 1.0) -> None:
        self.prior = prior

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `weights_` (1/T included) and `biases_`, (classes,) each."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=20, every_class=True)
        temperature = best_temperature(z, y)
        weights, self.biases_ = fit_weights(centred(z) / temperature, y, self.prior)
        self.weights_ = weights / temperature
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(weights_ ⊙ centred logits + biases_), (rows, classes)."""
        self.check_fitted()
        z = centred(check_logits(logits, classes=len(self.weights_)))
        return softmax(z * self.weights_ + self.biases_)
