"""Calibrators to compare with: vector scaling, Platt, histogram binning, isotonic regression, and `auto`.

They may change a prediction, so that a classifier is not calibrated by them (docs/reference/calibration.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, InputError
from uatlite.metrics.accuracy import log_losses
from uatlite.predictive import log_softmax, softmax
from uatlite.trust import calibrators
from uatlite.trust.calibrators import CALIBRATORS, Calibrator, FitCalibrator, LogitCalibrator
from uatlite.values import Floats, check_logits


@dataclass(frozen=True, eq=False)
class VectorScaling(LogitCalibrator):
    """softmax(w ⊙ z/T + b) on row-centred logits z (Guo et al., 2017), w near 1 and b near 0 by a normal prior."""

    weights: Floats
    """(classes,): w/T"""
    biases: Floats

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """T as in temperature scaling, then the least rows·NLL + (‖w - 1‖² + ‖b‖²)/2."""
        from scipy.optimize import minimize

        given, y = calibrators.check_fit(logits, labels, name="vector", minimum_rows=20, every_class=True)
        temperature, (rows, classes) = calibrators.best_temperature(given, y), given.shape
        z, members = (given - given.mean(axis=1, keepdims=True)) / temperature, np.eye(classes)[y]
        neutral = np.repeat([1.0, 0.0], classes)

        def loss(parameters: Floats) -> tuple[float, Floats]:
            log_probs, pull = log_softmax(z * parameters[:classes] + parameters[classes:]), parameters - neutral
            excess = np.exp(log_probs) - members
            slope = np.concatenate([(excess * z).sum(axis=0), excess.sum(axis=0)]) + pull
            return float(-(members * log_probs).sum() + 0.5 * pull @ pull) / rows, slope / rows

        options = {"gtol": 1e-10, "ftol": 1e-15, "maxiter": 2000, "maxfun": 20_000}
        best = minimize(loss, neutral, jac=True, method="L-BFGS-B", options=options).x
        return cls(best[:classes] / temperature, best[classes:])

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        z = check_logits(logits, classes=len(self.weights))
        return softmax((z - z.mean(axis=1, keepdims=True)) * self.weights + self.biases)


def fit_sigmoid(feature: Floats, positive: Floats) -> tuple[Floats, Floats]:
    """Slope and offset by maximum likelihood on Platt's smoothed targets (N₊+1)/(N₊+2) and 1/(N₋+2)."""
    from sklearn.linear_model import LogisticRegression

    count, scale = positive.sum(), float(np.abs(feature).max()) or 1.0
    targets = np.where(positive > 0, (count + 1) / (count + 2), 1 / (len(positive) - count + 2))
    rows, weights = np.tile(feature / scale, 2)[:, None], np.concatenate([targets, 1 - targets])  # once as each class
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=500)
    model.fit(rows, np.repeat([1, 0], len(feature)), sample_weight=weights)
    return model.coef_[0] / scale, model.intercept_


def fit_bins(feature: Floats, positive: Floats) -> tuple[Floats, Floats]:
    """Edges of ten bins of equal mass, and frequencies; one more row, spread as all rows are, joins each bin."""
    edges = np.unique(np.quantile(feature, np.arange(1, 10) / 10))
    rows = np.eye(len(edges) + 1)[np.searchsorted(edges, feature, side="right")]
    return edges, (positive @ rows + positive.mean()) / (rows.sum(axis=0) + 1)


def fit_isotonic(feature: Floats, positive: Floats) -> tuple[Floats, Floats]:
    """Knots and values, whose ends are those of n rows and one more that is spread as all rows are."""
    from sklearn.isotonic import IsotonicRegression

    rows, share = len(feature), positive.mean()
    model = IsotonicRegression(y_min=share / (rows + 1), y_max=(rows + share) / (rows + 1), out_of_bounds="clip")
    model.fit(feature, positive)
    return model.X_thresholds_.astype(np.float64), model.y_thresholds_.astype(np.float64)


_Form = tuple[int, Callable[[Floats, Floats], tuple[Floats, Floats]], Callable[[Floats, Floats, Floats], Floats]]
CALIBRATOR_FORMS: dict[str, _Form] = {
    "platt": (20, fit_sigmoid, lambda x, slope, offset: -np.logaddexp(0.0, -(x * slope + offset))),
    "histogram": (50, fit_bins, lambda x, edges, values: np.log(values[np.searchsorted(edges, x, "right")])),
    "isotonic": (50, fit_isotonic, lambda x, knots, values: np.log(np.interp(x, knots, values))),
}
"""A function of the log-odds of a class against the rest, given by two arrays: fewest rows, fit, its logarithm.
Platt, 1999; Zadrozny & Elkan, 2001 and 2002."""


@dataclass(frozen=True, eq=False)
class OneVsRest(LogitCalibrator):
    """One of `FORMS` for each class, divided by the sum over classes."""

    form: str
    first: tuple[Floats, ...]
    second: tuple[Floats, ...]

    @classmethod
    def fit_form(cls, form: str, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Fit each class by itself."""
        rows, fit, _ = CALIBRATOR_FORMS[form]
        z, y = calibrators.check_fit(logits, labels, name=form, minimum_rows=rows, every_class=True)
        arrays = [fit(*column) for column in zip(odds_of(z).T, np.eye(z.shape[1])[y].T, strict=True)]
        return cls(form, *zip(*arrays, strict=True))

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        columns = zip(odds_of(check_logits(logits, classes=len(self.first))).T, self.first, self.second, strict=True)
        return softmax(np.stack([CALIBRATOR_FORMS[self.form][2](*column) for column in columns], axis=1))


def odds_of(logits: Floats) -> Floats:
    """log(p_k / (1 - p_k)) of the softmax, (rows, classes); of the top class 1 - p_k is the sum of the others."""
    logs, top = log_softmax(logits), logits.argmax(axis=1)[:, None]
    others, odds = logs.copy(), logs - np.log1p(-np.minimum(np.exp(logs), 0.5))
    np.put_along_axis(others, top, -np.inf, axis=1)
    rest = np.logaddexp.reduce(others, axis=1, keepdims=True)
    np.put_along_axis(odds, top, np.take_along_axis(logs, top, axis=1) - rest, axis=1)
    return np.asarray(odds)


SIMPLEST_FIRST: dict[str, FitCalibrator] = {
    **{name: CALIBRATORS[name].fit for name in ("none", "input-temperature", "temperature")},
    "vector": VectorScaling.fit,
    **{form: partial(OneVsRest.fit_form, form) for form in CALIBRATOR_FORMS},
}
WORTH = 0.003
"""The most NLL that `auto` gives up for a simpler calibrator, however uncertain the difference is."""


def fit_auto(logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> LogitCalibrator:
    """The simplest whose NLL over five folds exceeds the least by at most a standard error of that, and `WORTH`."""
    z, y = calibrators.check_fit(logits, labels, name="auto", minimum_rows=30)
    losses, folds = {}, calibrators.stratified_folds(y, 5, seed=0)
    for name, fit in SIMPLEST_FIRST.items():
        try:
            losses[name] = log_losses(calibrators.held_out(fit, z, y, variance, folds), y)
        except (CalibrationError, InputError):  # too few rows, a class without rows, no variance
            continue
    gaps = {name: loss - min(losses.values(), key=np.mean) for name, loss in losses.items()}
    limits = {name: min(gap.std(ddof=1) / np.sqrt(len(gap)), WORTH) for name, gap in gaps.items()}
    return SIMPLEST_FIRST[next(name for name in gaps if gaps[name].mean() <= limits[name])](z, y, variance)


EVALUATED: dict[str, FitCalibrator] = {**SIMPLEST_FIRST, "auto": fit_auto}
"""The calibrators of contenders, as in `base+platt`: those of a classifier, and the baselines."""
EvaluatedCalibrator = Calibrator | VectorScaling | OneVsRest
