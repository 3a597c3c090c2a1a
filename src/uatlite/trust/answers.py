"""Answers, of which a text may have none or many (its entities, or its labels), and the calibrator of their confidence.

An answer is right or wrong. The calibrator turns its log-odds, and the variance of them, into the probability that it
is right; kinds of answers (entity types, labels) share what they have too few rows to learn alone.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import InputError
from uatlite.predictive import PROBIT, sigmoid, widened
from uatlite.values import Floats, Integers, Marks, check_array, check_marks


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of some texts, in the order of the texts; (answers,) each unless stated."""

    text: Integers
    """the index of the text that it belongs to, ascending"""
    kind: Integers
    """the index of its label: the type of an entity, or the label itself"""
    log_odds: Floats
    """uncalibrated log-odds that it is right"""
    variance: Floats | None
    """of the log-odds under dropout; None where it is not known"""
    texts: int
    """how many texts there are, also those without answers"""
    features: Floats | None = None
    """(answers, features): what else tells right from wrong, such as the length of an entity"""

    def __post_init__(self) -> None:
        rows = len(self.text)
        check_texts(self.text, answers=rows, texts=self.texts)
        check_array("log_odds", self.log_odds, {"rows": 0})
        for name in ("kind", "log_odds", "variance", "features"):
            values = getattr(self, name)
            if values is not None and len(values) != rows:
                raise InputError(f"{name} has {len(values)} entries for {rows} answers; give one for each answer.")

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> Floats:
        """The features (answers, features), none where they are not given."""
        return np.empty((len(self), 0)) if self.features is None else np.asarray(self.features, np.float64)

    @property
    def counts(self) -> Integers:
        """(texts,): how many answers each text has"""
        return np.bincount(self.text, minlength=self.texts)

    def of_texts(self, chosen: Marks) -> "Answers":
        """The answers of the chosen texts, (texts,) bool, which are numbered anew."""
        return self.at_texts(np.flatnonzero(chosen))[0]

    def at_texts(self, rows: Integers) -> "tuple[Answers, Integers]":
        """The answers of some texts in the order of `rows`, which are numbered anew; and their places among these."""
        first, last = (np.searchsorted(self.text, rows, side=side) for side in ("left", "right"))
        counts = last - first
        text = np.repeat(np.arange(len(rows)), counts)
        kept = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        arrays = {name: getattr(self, name) for name in ("kind", "log_odds", "variance", "features")}
        taken: dict[str, Any] = {name: values if values is None else values[kept] for name, values in arrays.items()}
        return replace(self, text=text, texts=len(rows), **taken), kept


def check_texts(given: Integers, *, answers: int, texts: int) -> None:
    """Raise unless these are the texts of answers (answers,), ascending, each from 0 to texts - 1."""
    if given.shape != (answers,) or (answers and given.dtype.kind not in "iu"):
        raise InputError(
            f"text has type {given.dtype} and shape {given.shape}; allowed is ({answers},), the index of the text of "
            "each answer."
        )
    if answers and (given.min() < 0 or given.max() >= texts):
        raise InputError(f"text goes from {given.min()} to {given.max()}; allowed are 0 to {texts - 1}, {texts} texts.")
    if (np.diff(given) < 0).any():
        raise InputError("text is not ascending; give the answers in the order of their texts.")


_TOLERANCE = 1e-9
"""The gradient for each row at which a fit ends."""

STRENGTHS = (0.0, 0.1, 0.25, 0.6, 1.5)
"""Standard deviations of the parameters of a kind around the shared ones, among which cross-validation chooses."""

ANSWER_WIDENINGS = (0.0, *np.geomspace(0.03, 30.0, 11).tolist())
"""The grid of w·π/8·mean(variance)."""

_FOLDS = 5

_PRIOR = 5.0
"""The standard deviation of the shared parameters around the log-odds as they are."""

SHARED_ROWS = 20.0
"""The answers that the mean gain over all kinds counts as, when a kind chooses what to use."""


@dataclass(frozen=True, eq=False)
class AnswerCalibrator:
    """The probability that an answer is right, with parameters of its kind k that are shrunk to the shared ones:

        sigmoid(a_k·z/sqrt(1 + w·π/8·variance) + b_k + c·features),   z the log-odds, a_k ≥ 0

    It minimises the sum of -log p over the answers + Σ_k ((a_k - a)²·s² + (b_k - b)²)/(2τ²), where s is the standard
    deviation of the widened log-odds; a·s, b and c (of features with standard deviation 1) have a normal prior around
    the log-odds as they are, of the wide standard deviation `_PRIOR`. w comes from the fit without kinds, by NLL with
    the penalty log(1 + w·π/8·mean(variance)); τ by five-fold cross-validation over texts. A kind uses none, which is
    sigmoid(z), the shared parameters, or its own, by the NLL of held-out texts (see `choices`).
    """

    slopes: Floats
    """(kinds + 1,): a_k; the last entry of each is that of unseen kinds"""
    biases: Floats
    """(kinds + 1,): b_k"""
    widenings: Floats
    """(kinds + 1,): w, and 0 where none is used"""
    weights: Floats
    """(kinds + 1, features): c, and 0 where none is used"""

    @classmethod
    def fit(cls, answers: Answers, right: ArrayLike) -> Self:
        """Learn from the answers of labelled texts, and whether each is right, (answers,) bool."""
        y = check_marks("right", right, len(answers))
        kinds = int(answers.kind.max(initial=-1)) + 1
        widening = answer_widening(answers, y)
        rows, spread, centre, scale = scaled_rows(answers, y, widening)

        def fitted(sample: RegressionRows, strength: float) -> Shrunk:
            return Shrunk.fit(sample, kinds=kinds, strength=strength, prior=_PRIOR, identity=spread)

        folds = np.random.default_rng(0).permutation(answers.texts) % _FOLDS
        held_out = np.zeros((len(STRENGTHS), len(answers)))
        for fold in range(_FOLDS):
            tested = folds[answers.text] == fold
            for i, strength in enumerate(STRENGTHS):
                held_out[i, tested] = fitted(rows.at(~tested), strength).losses(rows.at(tested))
        best = int(held_out.sum(axis=1).argmin())
        chosen = choices(np.stack([losses(answers.log_odds, y), held_out[0], held_out[best]]), answers.kind, kinds)
        none = Shrunk(np.full(kinds + 1, spread), np.zeros(kinds + 1), np.zeros(len(scale)))
        models = [none, *(fitted(rows, strength) for strength in (0.0, STRENGTHS[best]))]
        every = np.arange(kinds + 1)
        return cls(
            slopes=np.stack([model.slopes for model in models])[chosen, every] / spread,
            biases=np.stack([model.biases - model.weights @ (centre / scale) for model in models])[chosen, every],
            widenings=np.where(chosen > 0, widening, 0.0),
            weights=np.stack([model.weights / scale for model in models])[chosen],
        )

    def confidence(self, answers: Answers) -> Floats:
        """The probability that each answer is right, (answers,)."""
        features = answers.columns
        if features.shape[1] != self.weights.shape[1]:
            raise InputError(
                f"the answers have {features.shape[1]} features, the calibrator was fitted on "
                f"{self.weights.shape[1]}; fit it again."
            )
        kind = np.minimum(answers.kind, len(self.slopes) - 1)
        z = answers.log_odds
        if self.widenings.any():
            if answers.variance is None:
                raise InputError("the calibrator uses the variance of the log-odds, and the answers have none.")
            z = z * widened(answers.variance, self.widenings[kind])
        logits = self.slopes[kind] * z + self.biases[kind] + (features * self.weights[kind]).sum(axis=1)
        return sigmoid(logits)


@dataclass(frozen=True, eq=False)
class EntityCalibrator:
    """The probability that an entity is right as a whole, and that one is missed in a text."""

    found: AnswerCalibrator
    missed: AnswerCalibrator


@dataclass(frozen=True, eq=False)
class RegressionRows:
    """What is fitted: x (rows,), columns (rows, columns), kind (rows,) and right (rows,)."""

    x: Floats
    columns: Floats
    kind: Integers
    right: Marks

    def at(self, chosen: Marks) -> "RegressionRows":
        """The chosen rows, (rows,) bool."""
        return RegressionRows(self.x[chosen], self.columns[chosen], self.kind[chosen], self.right[chosen])


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Logistic regression in which every kind of row has its own slope and bias, shrunk to the shared ones.

        logit = slope_k·x + bias_k + weights·columns,   slope_k ≥ 0

    It minimises the sum of -log p over the rows, plus Σ_k ((slope_k - a)² + (bias_k - b)²)/(2τ²) with the shared a and
    b, plus a wide normal prior of a, b and the weights. `slopes` and `biases` are (kinds + 1,), with a and b as the
    last entry, `weights` (columns,).
    """

    slopes: Floats
    biases: Floats
    weights: Floats

    @classmethod
    def fit(cls, rows: RegressionRows, *, kinds: int, strength: float, prior: float, identity: float) -> "Shrunk":
        """Minimise the penalised NLL; τ is `strength`, and at 0 all kinds share one slope and one bias.

        The shared slope has the prior N(identity, prior²), the shared bias and the weights N(0, prior²).
        """
        from scipy.optimize import minimize

        separate, columns = kinds if strength else 0, rows.columns.shape[1]  # kinds with parameters of their own
        tight, wide = strength**-2.0 if strength else 0.0, prior**-2.0

        def model(theta: Floats) -> Shrunk:
            weights, slopes, biases, shared = np.split(theta, [columns, columns + separate, columns + 2 * separate])
            slope, bias = (np.full(kinds + 1 - separate, value) for value in shared)
            return cls(np.append(slopes, slope), np.append(biases, bias), weights)

        def penalised(theta: Floats) -> tuple[float, Floats]:
            """The sum to minimise, and its gradient."""
            now = model(theta)
            logits = now.logits(rows)
            errors = sigmoid(logits) - rows.right
            by_kind = (np.bincount(rows.kind, of, minlength=kinds) for of in (errors * rows.x, errors))
            total = float(losses(logits, rows.right).sum() + 0.5 * wide * np.square(now.weights).sum())
            gradients, of_shared = [errors @ rows.columns + wide * now.weights], []
            for values, centre, gradient in zip((now.slopes, now.biases), (identity, 0.0), by_kind, strict=True):
                apart, moved = values[:separate] - values[-1], values[-1] - centre
                total += 0.5 * float(tight * np.square(apart).sum() + wide * moved**2)
                gradients.append(gradient[:separate] + tight * apart)
                of_shared.append(gradient[separate:].sum() - tight * apart.sum() + wide * moved)
            return total, np.concatenate([*gradients, of_shared])

        start = np.concatenate([np.zeros(columns), np.full(separate, identity), np.zeros(separate), [identity, 0.0]])
        free, positive = (None, None), (0.0, None)
        bounds = [*[free] * columns, *[positive] * separate, *[free] * separate, positive, free]
        exact = {"ftol": 0.0, "gtol": _TOLERANCE * max(len(rows.x), 1)}
        return model(minimize(penalised, start, jac=True, method="L-BFGS-B", bounds=bounds, options=exact).x)

    def logits(self, rows: RegressionRows) -> Floats:
        """The log-odds that each is right, (rows,)."""
        return np.asarray(self.slopes[rows.kind] * rows.x + self.biases[rows.kind] + rows.columns @ self.weights)

    def losses(self, rows: RegressionRows) -> Floats:
        """-log p of what happened, (rows,)."""
        return losses(self.logits(rows), rows.right)


def losses(logits: Floats, right: Marks) -> Floats:
    """-log sigmoid(logit) where right, -log(1 - sigmoid(logit)) elsewhere, (rows,)."""
    return np.asarray(np.logaddexp(0.0, np.where(right, -logits, logits)))


def scaled_rows(answers: Answers, right: Marks, widening: float) -> tuple[RegressionRows, float, Floats, Floats]:
    """The answers as rows of a regression; the unit of their log-odds; and the mean and the standard deviation of each
    feature. Of what does not vary the unit is 1."""
    z = answers.log_odds if answers.variance is None else answers.log_odds * widened(answers.variance, widening)
    spread, columns = float(z.std()) if len(z) else 0.0, answers.columns
    centre, scale = (f(axis=0) if len(z) else np.zeros(columns.shape[1]) for f in (columns.mean, columns.std))
    spread, scale = spread if spread > 0.0 else 1.0, np.where(scale > 0.0, scale, 1.0)
    return RegressionRows(z / spread, (columns - centre) / scale, answers.kind, right), spread, centre, scale


def answer_widening(answers: Answers, right: Marks) -> float:
    """The w with the least NLL + log(1 + w·π/8·mean(variance)), without kinds; 0 without a variance."""
    if answers.variance is None or not answers.variance.any():
        return 0.0
    mean, kinds = PROBIT * float(answers.variance.mean()), int(answers.kind.max()) + 1
    penalised = []
    for step in ANSWER_WIDENINGS:
        rows, spread, *_ = scaled_rows(answers, right, step / mean)
        model = Shrunk.fit(rows, kinds=kinds, strength=0.0, prior=_PRIOR, identity=spread)
        penalised.append(float(model.losses(rows).sum()) + math.log1p(step))
    return float(ANSWER_WIDENINGS[int(np.argmin(penalised))]) / mean


def choices(held_out: Floats, kind: Integers, kinds: int) -> Integers:
    """What each kind uses, (kinds + 1,): 0 none, 1 the shared parameters, 2 its own; the last entry is unseen kinds.

    `held_out` are losses (choices, answers). The gain of a choice over the simpler one that a kind uses so far is the
    mean over its answers and `SHARED_ROWS` answers of the mean gain. It must exceed half of its standard error. Unseen
    kinds have no parameters of their own.
    """
    chosen = np.zeros(kinds + 1, dtype=np.int64)
    if not len(kind):
        return chosen
    rows = np.bincount(kind, minlength=kinds) + SHARED_ROWS
    for choice in range(1, len(held_out)):
        gains = held_out[chosen[kind], np.arange(len(kind))] - held_out[choice]
        mean = (np.bincount(kind, weights=gains, minlength=kinds) + SHARED_ROWS * gains.mean()) / rows
        chosen[:-1][mean > 0.5 * gains.std() / np.sqrt(rows)] = choice
    chosen[-1] = held_out[:2].mean(axis=1).argmin()
    return chosen
