"""Logistic regression in which every kind of row has its own slope and bias, shrunk to the shared ones.

    logit = slope_k·x + bias_k + weights·columns,   slope_k ≥ 0

The sum of -log p over the rows, plus Σ_k ((slope_k - a)² + (bias_k - b)²)/(2τ²) with the shared a and b, plus a wide
normal prior of a, b and the weights. It is convex; Newton's method with the bound as a projection (Bertsekas, 1982).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from uatlite.values import Floats, Integers

ITERATIONS, TOLERANCE = 100, 1e-9


@dataclass(frozen=True, eq=False)
class Rows:
    """What is fitted: x (rows,), columns (rows, columns), kind (rows,) and right (rows,)."""

    x: Floats
    columns: Floats
    kind: Integers
    right: NDArray[np.bool_]

    def at(self, chosen: NDArray[np.bool_]) -> "Rows":
        """The chosen rows, (rows,) bool."""
        return Rows(self.x[chosen], self.columns[chosen], self.kind[chosen], self.right[chosen])


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The fitted slopes and biases (kinds,), weights (columns,), and the shared slope and bias."""

    slopes: Floats
    biases: Floats
    weights: Floats
    slope: float
    bias: float

    @classmethod
    def fit(cls, rows: Rows, *, kinds: int, strength: float, prior: float, identity: float) -> Self:
        """Minimise the penalised NLL; τ is `strength`, and at 0 all kinds share one slope and one bias.

        The shared slope has the prior N(identity, prior²), the shared bias and the weights N(0, prior²).
        """
        columns = rows.columns.shape[1]
        wide = np.full(columns, prior**-2.0)
        if strength == 0.0:
            alone = Rows(rows.x, rows.columns, np.zeros_like(rows.kind), rows.right)
            centre = np.concatenate([np.zeros(columns), [identity, 0.0]])
            found = minimise(alone, np.diag(np.append(wide, [prior**-2.0] * 2)), centre, kinds=1)
            slope, bias = found[columns:].tolist()
            return cls(np.full(kinds, slope), np.full(kinds, bias), found[:columns], slope, bias)
        size = columns + 2 * kinds + 2
        pull = np.zeros((size, size))
        pull[np.arange(columns), np.arange(columns)] = wide
        for first, shared in ((columns, size - 2), (columns + kinds, size - 1)):
            own = np.arange(first, first + kinds)
            pull[own, own] = strength**-2.0
            pull[own, shared] = pull[shared, own] = -(strength**-2.0)
            pull[shared, shared] = kinds * strength**-2.0 + prior**-2.0
        centre = np.concatenate(
            [np.zeros(columns), np.full(kinds, identity), np.zeros(kinds), [identity, 0.0]]
        )  # the differences between kinds and shared are 0 there
        found = minimise(rows, pull, centre, kinds=kinds)
        own = found[columns:-2]
        return cls(own[:kinds], own[kinds:], found[:columns], float(found[-2]), float(found[-1]))

    def losses(self, rows: Rows) -> Floats:
        """-log p of what happened, (rows,)."""
        logits = self.slopes[rows.kind] * rows.x + self.biases[rows.kind] + rows.columns @ self.weights
        return losses(logits, rows.right)


def losses(logits: Floats, right: NDArray[np.bool_]) -> Floats:
    """-log sigmoid(logit) where right, -log(1 - sigmoid(logit)) elsewhere, (rows,)."""
    return np.asarray(np.logaddexp(0.0, np.where(right, -logits, logits)))


def minimise(rows: Rows, pull: Floats, centre: Floats, *, kinds: int) -> Floats:
    """The parameters (weights, slopes, biases, …) that minimise the NLL + (θ - centre)'·pull·(θ - centre)/2."""
    columns = rows.columns.shape[1]
    slopes = slice(columns, columns + kinds)
    bounded = np.zeros(len(centre), dtype=bool)
    bounded[slopes] = True

    def logits(theta: Floats) -> Floats:
        slope, bias = theta[slopes], theta[columns + kinds : columns + 2 * kinds]
        return np.asarray(slope[rows.kind] * rows.x + bias[rows.kind] + rows.columns @ theta[:columns])

    def value(theta: Floats, z: Floats) -> float:
        return float(losses(z, rows.right).sum() + 0.5 * (theta - centre) @ pull @ (theta - centre))

    theta = centre.copy()
    z = logits(theta)
    now = value(theta, z)
    for _ in range(ITERATIONS):
        slope, curvature = derivatives(rows, z, kinds, len(centre))
        slope += pull @ (theta - centre)
        curvature += pull
        free = ~(bounded & (theta <= 0.0) & (slope > 0.0))
        if not free.any() or np.abs(slope[free]).max() < TOLERANCE * max(len(rows.x), 1):
            break
        step = np.zeros_like(theta)
        step[free] = -np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
        length, improved = 1.0, False
        while length > 1e-8 and not improved:
            trial = theta + length * step
            trial[bounded] = np.maximum(trial[bounded], 0.0)
            z_trial = logits(trial)
            then = value(trial, z_trial)
            improved = then < now
            length /= 2
        if not improved:  # to rounding
            break
        theta, z, now = trial, z_trial, then
    return theta


def derivatives(rows: Rows, z: Floats, kinds: int, size: int) -> tuple[Floats, Floats]:
    """The gradient (size,) and the Hessian (size, size) of the NLL at the logits z (rows,)."""
    columns = rows.columns.shape[1]
    chances = 1.0 / (1.0 + np.exp(-np.clip(z, -500, 500)))
    excess, weight = chances - rows.right, chances * (1.0 - chances)

    def by_kind(values: Floats) -> Floats:
        return np.bincount(rows.kind, weights=values, minlength=kinds).astype(np.float64)

    gradient, hessian = np.zeros(size), np.zeros((size, size))
    gradient[:columns] = rows.columns.T @ excess
    gradient[columns : columns + 2 * kinds] = np.append(by_kind(excess * rows.x), by_kind(excess))
    own = np.arange(columns, columns + kinds)
    hessian[own, own] = by_kind(weight * rows.x * rows.x)
    hessian[own + kinds, own + kinds] = by_kind(weight)
    hessian[own, own + kinds] = hessian[own + kinds, own] = by_kind(weight * rows.x)
    hessian[:columns, :columns] = rows.columns.T @ (weight[:, None] * rows.columns)
    for column in range(columns):
        shared = weight * rows.columns[:, column]
        hessian[column, own] = hessian[own, column] = by_kind(shared * rows.x)
        hessian[column, own + kinds] = hessian[own + kinds, column] = by_kind(shared)
    return gradient, hessian
