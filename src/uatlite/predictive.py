"""From the logits of every pass to one predictive distribution and its uncertainty.

Two means over passes are used, on purpose. The prediction is the softmax of the *mean logits*. The entropies, the
mutual information and the variance use the passes' *probabilities* p_m and their mean, because only there does the
entropy split into an expected part and a part that the passes disagree about.

Rows may have different numbers of passes. `counts` (rows,) then gives the valid passes of each row; later entries of
that row are NaN.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from uatlite.values import Floats, Integers, check_array

Counts = Integers
"""Valid passes per row, (rows,)."""

PROBIT = math.pi / 8
"""sigmoid(m) averaged over m ~ N(μ, σ²) is close to sigmoid(μ / sqrt(1 + π/8·σ²)) (MacKay, 1992)."""


@dataclass(frozen=True, eq=False)
class PassLogits:
    """The logits of every pass over some rows, and what calibrators read of them."""

    logits: Floats
    """(passes, rows, classes); NaN after the last valid pass of a row"""
    given_variance: Floats | None = None
    """(rows,): variance of the margin, from a method that knows it without sampling"""
    counts: Counts | None = None
    """(rows,): valid passes per row; None where all are valid"""

    @property
    def mean_logits(self) -> Floats:
        """(rows, classes)"""
        return mean_logits(self.logits, self.counts)

    @property
    def margin_variance(self) -> Floats | None:
        """(rows,): as the method gives it, or over the passes; None for a single pass without it.

        Where rows differ in their passes, a row with a single pass has the variance 0.
        """
        if self.given_variance is not None or len(self.logits) < 2:
            return self.given_variance
        return margin_variance(self.logits, self.counts)


@dataclass(frozen=True, eq=False)
class Predictive:
    """The prediction and the uncertainty of each row; entropies in nats.

    probabilities (rows, classes): softmax of the mean logits, the prediction.
    predicted (rows,): the class of the largest probability, the first of equals.
    confidence (rows,): its probability.
    margin (rows,): largest minus second largest probability; 1 where there is one class.
    entropy (rows,): H(mean_m p_m), the total uncertainty.
    expected_entropy (rows,): mean_m H(p_m), the aleatoric part.
    mutual_information (rows,): entropy - expected_entropy, never below 0, the epistemic part.
    variance (rows,): the variance over passes (ddof 1) of the predicted class's p_m; 0 for one pass.
    """

    probabilities: Floats
    predicted: Integers
    confidence: Floats
    margin: Floats
    entropy: Floats
    expected_entropy: Floats
    mutual_information: Floats
    variance: Floats


def predict(logits: ArrayLike, counts: Counts | None = None) -> Predictive:
    """Summarise the logits of every pass, (passes, rows, classes)."""
    if counts is not None:
        values = np.asarray(logits, dtype=np.float64)
        return by_count(counts, lambda passes, rows: predict(values[:passes, rows]))
    least, advice = {"passes": 1, "rows": 1, "classes": 1}, "For a single pass pass logits[None]."
    checked = check_array("logits", logits, least, advice=advice)
    return summarise(softmax(checked.mean(axis=0)), softmax(checked))


def summarise(probabilities: Floats, passes: Floats) -> Predictive:
    """Summarise a prediction (rows, classes) and the probabilities of every pass (passes, rows, classes)."""
    predicted = probabilities.argmax(axis=1)
    total, expected = entropy(passes.mean(axis=0)), entropy(passes).mean(axis=0)
    of_predicted = np.take_along_axis(passes, predicted[None, :, None], axis=2)[:, :, 0]
    return Predictive(
        probabilities=probabilities,
        predicted=predicted,
        confidence=probabilities.max(axis=1),
        margin=margin(probabilities),
        entropy=total,
        expected_entropy=expected,
        # Jensen's inequality holds exactly; rounding breaks it by an ulp where all passes agree.
        mutual_information=np.maximum(total - expected, 0),
        variance=of_predicted.var(axis=0, ddof=1) if len(passes) > 1 else np.zeros(len(predicted)),
    )


def groups(counts: Counts) -> Iterator[tuple[int, Counts]]:
    """For each number of passes that occurs: the number and the indices of its rows."""
    for count in np.unique(counts).tolist():
        yield count, np.flatnonzero(counts == count)


def by_count(counts: Counts, summary: Callable[[int, Counts], Predictive]) -> Predictive:
    """Summarise rows with different numbers of passes: one call of `summary(passes, rows)` for each number."""
    parts = [(rows, summary(passes, rows)) for passes, rows in groups(counts)]
    back = np.argsort(np.concatenate([rows for rows, _ in parts]))
    joined = {f.name: np.concatenate([getattr(part, f.name) for _, part in parts])[back] for f in fields(Predictive)}
    return Predictive(**joined)


def mean_logits(logits: Floats, counts: Counts | None = None) -> Floats:
    """The mean over the valid passes of each row: (passes, rows, classes) to (rows, classes)."""
    if counts is None:
        return np.asarray(logits.mean(axis=0))
    valid = np.arange(len(logits))[:, None] < counts
    return np.asarray(np.where(valid[..., None], logits, 0.0).sum(axis=0) / counts[:, None])


def margin_variance(logits: ArrayLike, counts: Counts | None = None) -> Floats:
    """Var over passes (ddof 1) of the top-1 minus the top-2 logit: (passes, rows, classes) to (rows,).

    It takes two passes; with `counts`, a row with a single pass has the variance 0. The two classes are those of the
    mean logits and stay the same in every pass: otherwise a pass that swaps them would count as a small change of a
    margin that is always positive.
    """
    if counts is None:
        return _margin_variance(logits, least=2)
    values = np.asarray(logits, dtype=np.float64)
    variances = np.zeros(values.shape[1])
    for passes, rows in groups(counts):
        variances[rows] = _margin_variance(values[:passes, rows], least=1)
    return variances


def _margin_variance(logits: ArrayLike, *, least: int) -> Floats:
    advice = f"Run at least {least} passes, or use a method that gives its variance without sampling."
    passes = check_array("logits", logits, {"passes": least, "rows": 0, "classes": 2}, advice=advice)
    if len(passes) == 1:
        return np.zeros(passes.shape[1])
    top_two = np.argsort(-passes.mean(axis=0), axis=1, kind="stable")[:, :2]
    chosen = np.take_along_axis(passes, top_two[None], axis=2)
    return np.asarray((chosen[:, :, 0] - chosen[:, :, 1]).var(axis=0, ddof=1))


def widened(variance: Floats, widening: float) -> Floats:
    """1 / sqrt(1 + a·π/8·σ²), the factor on each row's logits, (rows,); exactly 1 at a = 0."""
    return np.asarray(1.0 / np.sqrt(1.0 + widening * PROBIT * variance))


def softmax(logits: Floats) -> Floats:
    """exp(z_c) / sum_k exp(z_k) over the last axis (..., classes)."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


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
