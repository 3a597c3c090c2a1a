"""From the logits of every pass to one predictive distribution and its uncertainty.

Two means over passes are used, on purpose. The prediction is the softmax of the *mean logits*. The entropies, the
mutual information and the variance use the passes' *probabilities* p_m and their mean, because only there does the
entropy split into an expected part and a part that the passes disagree about.

A method without sampling gives one pass and the variance of its margin. The passes are then those of a Gaussian: its
margin at the nodes of a quadrature, each with its weight. What needs several passes and has one alone is NaN.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.values import Floats, Integers, check_array

PROBIT = math.pi / 8
"""sigmoid(m) averaged over m ~ N(μ, σ²) is close to sigmoid(μ / sqrt(1 + π/8·σ²)) (MacKay, 1992)."""


ROW_AXES = {"logits": 1, "given_variance": 0, "representations": 0}
"""Field of `PassLogits` -> the axis that counts its rows."""


@dataclass(frozen=True, eq=False)
class PassLogits:
    """The logits of every pass over some rows, and what calibrators read of them."""

    logits: Floats
    """(passes, rows, classes)"""
    given_variance: Floats | None = None
    """(rows, 1): variance of the margin, from a method that knows it without sampling; 0 where it is not known. Of a
    model of many labels that of each label's logit: (rows, labels)"""
    representations: Floats | None = None
    """(rows, units): what the model read of each row; None where it cannot be known"""

    def take(self, rows: NDArray[Any]) -> Self:
        """The same of some rows: their places, or True for each that is meant."""
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "logits" and value is not None}
        return replace(self, logits=self.logits[:, rows], **arrays)

    @property
    def mean_logits(self) -> Floats:
        """(rows, classes)"""
        return np.asarray(self.logits.mean(axis=0))

    @property
    def margin_variance(self) -> Floats | None:
        """(rows,): as the method gives it, or over the passes; None for a single pass without it."""
        if self.given_variance is not None:
            return self.given_variance[:, 0]
        return margin_variance(self.logits) if len(self.logits) > 1 else None

    @property
    def label_variance(self) -> Floats | None:
        """(rows, labels): of each label's logit, as the method gives it, or over the passes (ddof 1); None for a single
        pass without it. Of a model of many labels."""
        if self.given_variance is not None or len(self.logits) < 2:
            return self.given_variance
        return np.asarray(self.logits.var(axis=0, ddof=1))


@dataclass(frozen=True, eq=False)
class Predictive:
    """The prediction and the uncertainty of each row; entropies in nats.

    probabilities (rows, classes): softmax of the mean logits, the prediction.
    predicted (rows,): the class of the largest probability, the first of equals.
    confidence (rows,): its probability.
    margin (rows,): largest minus second largest probability; 1 where there is one class.
    logit_margin (rows,): largest minus second largest mean logit, before any calibration; inf where there is one class.
    entropy (rows,): H(mean_m p_m), the total uncertainty.
    expected_entropy (rows,): mean_m H(p_m), the aleatoric part.
    mutual_information (rows,): entropy - expected_entropy, never below 0, the epistemic part.
    variance (rows,): the variance over passes (ddof 1) of the predicted class's p_m.

    The last three are NaN where a row has one pass, whose method says nothing about others.
    """

    probabilities: Floats
    predicted: Integers
    confidence: Floats
    margin: Floats
    logit_margin: Floats
    entropy: Floats
    expected_entropy: Floats
    mutual_information: Floats
    variance: Floats


def predict(logits: ArrayLike) -> Predictive:
    """Summarise the logits of every pass, (passes, rows, classes)."""
    least, advice = {"passes": 1, "rows": 1, "classes": 1}, "For a single pass pass logits[None]."
    checked = check_array("logits", logits, least, advice=advice)
    return summarise(softmax(checked.mean(axis=0)), softmax(checked), checked.mean(axis=0))


def summarise(probabilities: Floats, passes: Floats, logits: Floats, weights: Floats | None = None) -> Predictive:
    """Summarise a prediction (rows, classes) and the probabilities of every pass (passes, rows, classes).

    `logits` (rows, classes) are the mean logits before calibration. `weights` (passes,) are those of a quadrature and
    sum to 1; without them the passes are a sample.
    """
    predicted = probabilities.argmax(axis=1)
    mean: Callable[[Floats], Floats] = (
        (lambda values: values.mean(axis=0))
        if weights is None
        else lambda values: np.tensordot(weights, values, axes=1)
    )
    total, expected = entropy(mean(passes)), mean(entropy(passes))
    of_predicted = np.take_along_axis(passes, predicted[None, :, None], axis=2)[:, :, 0]
    alone = len(passes) == 1
    variance = mean(np.square(of_predicted - mean(of_predicted)))
    unknown = np.full(len(predicted), np.nan)
    return Predictive(
        probabilities=probabilities,
        predicted=predicted,
        confidence=probabilities.max(axis=1),
        margin=margin(probabilities),
        logit_margin=np.full(len(logits), np.inf) if logits.shape[1] == 1 else margin(logits),
        entropy=total,
        expected_entropy=unknown if alone else expected,
        # Jensen's inequality holds exactly; rounding breaks it by an ulp where all passes agree.
        mutual_information=unknown if alone else np.maximum(total - expected, 0),
        variance=unknown if alone else variance if weights is not None else variance * len(passes) / (len(passes) - 1),
    )


NODES, NODE_WEIGHTS = (np.asarray(values) for values in np.polynomial.hermite_e.hermegauss(32))
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
_BLOCK = 2**20
"""Most numbers of one block of a Gaussian's passes."""


def margin_direction(logits: Floats) -> Floats:
    """1/2 at the highest of a row's logits, -1/2 at the next and 0 elsewhere: (rows, classes).

    Logits plus d times this have a margin, the top-1 minus the top-2 logit, that is larger by d.
    """
    direction = np.zeros_like(logits)
    if logits.shape[1] > 1:
        rows, top_two = np.arange(len(logits)), np.argsort(-logits, axis=1, kind="stable")[:, :2]
        direction[rows, top_two[:, 0]], direction[rows, top_two[:, 1]] = 0.5, -0.5
    return direction


def summarise_gaussian(
    logits: Floats, variance: Floats, apply: Callable[[Floats, Integers], Floats] = lambda logits, rows: softmax(logits)
) -> Predictive:
    """Summarise logits (rows, classes) whose margin is normal around its value with this variance (rows,).

    `apply` turns the logits (rows, classes) of the rows with these indices into probabilities. Where the variance is
    0 it is not known, and neither is what the passes would disagree about.
    """
    probs = apply(logits, np.arange(len(logits)))
    size = max(1, _BLOCK // (len(NODES) * logits.shape[1]))
    parts = []
    for start in range(0, max(len(logits), 1), size):
        rows = np.arange(start, min(start + size, len(logits)))
        step = margin_direction(logits[rows]) * np.sqrt(variance[rows])[:, None]
        moved = logits[rows] + NODES[:, None, None] * step
        # One call for all nodes: with the few rows of a service, 32 calls would cost more than all else here.
        passes = apply(moved.reshape(-1, logits.shape[1]), np.tile(rows, len(NODES))).reshape(moved.shape)
        parts.append(summarise(probs[rows], passes, logits[rows], NODE_WEIGHTS))
    joined = {
        field.name: np.concatenate([getattr(block, field.name) for block in parts]) for field in fields(Predictive)
    }
    for name in ("expected_entropy", "mutual_information", "variance"):
        joined[name] = np.where(variance > 0, joined[name], np.nan)
    return Predictive(**joined)


def margin_variance(logits: ArrayLike) -> Floats:
    """Var over two or more passes (ddof 1) of the top-1 minus the top-2 logit: (passes, rows, classes) to (rows,).

    The two classes are those of the mean logits and stay the same in every pass: otherwise a pass that swaps them would
    count as a small change of a margin that is always positive.
    """
    advice = "Run at least 2 passes, or use a method that gives its variance without sampling."
    passes = check_array("logits", logits, {"passes": 2, "rows": 0, "classes": 2}, advice=advice)
    top_two = np.argsort(-passes.mean(axis=0), axis=1, kind="stable")[:, :2]
    chosen = np.take_along_axis(passes, top_two[None], axis=2)
    return np.asarray((chosen[:, :, 0] - chosen[:, :, 1]).var(axis=0, ddof=1))


TOP = 3
OFFSET = 1e-4
"""Added to variances before their logarithm: below it they make no difference."""


def logit_features(logits: Floats) -> Floats:
    """(rows, features) of logits (rows, classes): the highest ones, at most three, their margin and the entropy.

    Logits are taken from the mean of their row, which a softmax does not see.
    """
    centred = logits - logits.mean(axis=1, keepdims=True)
    top = -np.sort(-centred, axis=1)[:, :TOP]
    margin = top[:, :1] - top[:, 1:2]
    return np.concatenate([top, margin, entropy(softmax(centred))[:, None]], axis=1)


def widened(variance: Floats, widening: float | Floats) -> Floats:
    """1 / sqrt(1 + a·π/8·σ²), the factor on each row's logits, (rows,); exactly 1 at a = 0."""
    return np.asarray(1.0 / np.sqrt(1.0 + widening * PROBIT * variance))


def softmax(logits: Floats) -> Floats:
    """exp(z_c) / sum_k exp(z_k) over the last axis (..., classes)."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def sigmoid(values: Floats) -> Floats:
    """1 / (1 + exp(-z)), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def log_softmax(logits: Floats) -> Floats:
    """The logarithm of `softmax`, exact also where that is 0."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def entropy(probabilities: Floats) -> Floats:
    """-sum_c p_c log p_c over the last axis (..., classes), in nats, with 0 log 0 = 0."""
    logs = np.log(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    return np.asarray(-(probabilities * logs).sum(axis=-1))


def margin(probabilities: Floats) -> Floats:
    """The largest minus the second largest of the last axis (..., classes); 1 where there is one class."""
    if probabilities.shape[-1] == 1:
        return np.ones(probabilities.shape[:-1])
    top = np.partition(probabilities, -2, axis=-1)
    return np.asarray(top[..., -1] - top[..., -2])
