"""The read-out of a variance: a ridge regression of its logarithm on what a plain pass leaves.

    log(σ² + 1e-4) ≈ w · features + b

with the penalty that leave-one-out prediction likes best. A model of one answer a text has one variance, of the margin:
(rows,). A model of many labels has one for each label's logit: (rows, labels), and the labels share the decomposition
of the features; each has a penalty of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uatlite.predictive import OFFSET, TOP, PassLogits, logit_features
from uatlite.values import Floats

FLOOR = 0.5
"""The lowest cross-validated R² at which the read-out takes the teacher's place."""
FEWEST_TEXTS = 60
"""Fewer calibration texts than this do not fit a read-out."""
PENALTIES = np.geomspace(1e-2, 1e6, 33)
"""Ridge penalties that are tried, on standardised features."""


@dataclass(frozen=True, eq=False)
class ReadOut:
    """A linear map from the features of a plain pass to the logarithm of a variance, or of one for each label."""

    weights: Floats
    """(features,) or (features, labels)"""
    intercept: Floats
    """() or (labels,)"""
    limits: Floats
    """(2,) or (2, labels): the lowest and highest logarithm that the teacher gave; predictions are cut to them"""
    r2: float
    """of leave-one-out predictions for the calibration texts; of all labels together, each around its own mean, and
    without the noise of a teacher that samples"""
    rank_correlation: float
    """Spearman's, of the same; the mean over labels"""
    texts: int
    """how many texts it was fitted on"""

    @classmethod
    def empty(cls, r2: float, rank_correlation: float, texts: int, features: int = 0, *labels: int) -> ReadOut:
        """One that says nothing: there were too few texts to fit it, or it was read from JSON without its weights."""
        weights = np.zeros((features, *labels))
        return cls(weights, np.zeros(labels), np.zeros((2, *labels)), r2, rank_correlation, texts)

    @property
    def serves(self) -> bool:
        """Whether it is good enough to take the teacher's place."""
        return self.r2 >= FLOOR

    @property
    def loaded(self) -> bool:
        """Whether it has its weights; one that was read from JSON alone has none, as of a classifier saved without its
        calibration."""
        return len(self.weights) > 0

    @property
    def of_labels(self) -> bool:
        """Whether it gives a variance for each label."""
        return self.weights.ndim == 2

    def variance(self, features: Floats) -> Floats:
        """The variance of the margin (rows,), or of each label's logit (rows, labels): features (rows, features)."""
        return log_variance_to_variance(features @ self.weights + self.intercept, self.limits)

    def to_dict(self) -> dict[str, Any]:
        """How good it is, as plain JSON values, rounded so that the same texts give the same on every machine."""
        return {"r2": round(self.r2, 4), "rank_correlation": round(self.rank_correlation, 4), "texts": self.texts}

    def to_array(self) -> Floats:
        """All numbers that it computes with, weights, intercept and limits: (features + 3,) or (…, labels)."""
        return np.concatenate([self.weights, self.intercept[None], self.limits])

    @classmethod
    def from_array(cls, values: Floats, state: Mapping[str, Any]) -> ReadOut:
        """The read-out that `to_array` and `to_dict` described."""
        numbers = np.asarray(values, dtype=np.float64)
        return cls(numbers[:-3], numbers[-3], numbers[-2:], **state)


def log_variance_to_variance(logs: Floats, limits: Floats) -> Floats:
    """σ² from log(σ² + 1e-4), within the limits that were seen; never 0, which would mean 'not known'."""
    return np.asarray(np.maximum(np.exp(np.clip(logs, limits[0], limits[1])) - OFFSET, OFFSET * 1e-3))


def features_of(passes: PassLogits) -> Floats:
    """(rows, features) of a plain pass: what the head reads, the highest logits, their margin and the entropy."""
    of_logits, read = logit_features(passes.mean_logits), passes.representations
    return of_logits if read is None else np.concatenate([read, of_logits], axis=1)


def label_features_of(passes: PassLogits) -> Floats:
    """(rows, features) of a plain pass of many labels: what the head reads, every logit, the highest of them."""
    logits = passes.mean_logits
    of_logits = np.concatenate([logits, -np.sort(-logits, axis=1)[:, :TOP]], axis=1)
    read = passes.representations
    return of_logits if read is None else np.concatenate([read, of_logits], axis=1)


def sampling_noise(passes: int) -> float:
    """The variance of log s² of `passes` normal numbers, trigamma((passes - 1)/2); 0 where nothing was sampled."""
    from scipy.special import polygamma

    return float(polygamma(1, (passes - 1) / 2)) if passes > 1 else 0.0


def fit_read_out(features: Floats, variance: Floats, own: int, noise: float = 0.0) -> tuple[ReadOut, Floats]:
    """The read-out of variances (rows,) or (rows, labels) from features, and its leave-one-out variances (own, …).

    The first `own` rows are the calibration texts: of them R² and rank correlation are measured. `noise` is the
    variance of a logarithm that comes from the few passes of the teacher; no read-out can explain it, and R² leaves it
    out.

    With standardised X = USVᵀ and centred y, ridge regression predicts Hy with H = U·S²/(S² + α)·Uᵀ + 1/n, and the
    prediction for row i without it is y_i - (y_i - ŷ_i)/(1 - H_ii): every penalty costs one product.
    """
    y = np.log(variance + OFFSET).reshape(len(variance), -1)
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(scale).max(), scale, np.inf)
    u, s, vt = np.linalg.svd((features - centre) / scale, full_matrices=False)
    level = y.mean(axis=0)
    projected = u.T @ (y - level)
    least, penalties, left_out = np.full(y.shape[1], np.inf), np.zeros(y.shape[1]), np.zeros_like(y)
    for penalty in PENALTIES:
        shrunk = np.square(s) / (np.square(s) + penalty)
        fitted = u @ (shrunk[:, None] * projected)
        leverage = np.square(u) @ shrunk + 1 / len(y)
        found = y - (y - level - fitted) / np.maximum(1 - leverage, 1e-9)[:, None]
        loss = np.square(y - found).mean(axis=0)
        better = loss < least
        least, penalties = np.where(better, loss, least), np.where(better, penalty, penalties)
        left_out = np.where(better, found, left_out)
    weights = vt.T @ (s[:, None] / (np.square(s)[:, None] + penalties) * projected) / scale[:, None]
    limits = np.stack([y.min(axis=0), y.max(axis=0)])
    shape = variance.shape[1:]
    read_out = ReadOut(
        weights.reshape(-1, *shape),
        (level - centre @ weights).reshape(shape),
        limits.reshape(2, *shape),
        *_agreement(y[:own], left_out[:own], noise),
        len(y),
    )
    return read_out, log_variance_to_variance(left_out[:own], limits).reshape(own, *shape)


def _agreement(y: Floats, left_out: Floats, noise: float) -> tuple[float, float]:
    """R² over all columns, each around its own mean, and the mean rank correlation of those that are not constant."""
    from scipy.stats import spearmanr

    spread = np.square(y - y.mean(axis=0)).sum(axis=0)
    known = float(spread.sum()) - noise * y.size
    if known <= 0:
        return 0.0, 0.0
    ranks = [float(spearmanr(y[:, at], left_out[:, at]).statistic) for at in np.flatnonzero(spread)]
    missed = float(np.square(y - left_out).sum()) - noise * y.size
    return min(1 - missed / known, 1.0), float(np.mean(ranks))
