"""UAT-Lite in one pass: the teacher's variance is read off the plain pass, by a ridge regression.

The variance that dropout would give the margin is nearly a linear function, in logarithms, of what the head reads.
Calibrating runs the teacher on the calibration texts, whose labels are not needed for it, and fits

    log(σ² + 1e-4) ≈ w · [what the head reads, top-3 logits, margin, entropy] + b

with the penalty that leave-one-out prediction likes best. Predicting then costs the plain pass and a dot product.
Of a model of many labels it is the variance of each label's logit, from [what the head reads, all logits, the top 3];
the labels share the decomposition of the features, and each has a penalty of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from uatlite.errors import ConfigurationError, check_choice
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method, Passes
from uatlite.methods.sampling import ANALYTIC, BASE, SAMPLING, Analytic, Sampling
from uatlite.passes.config import UATConfig
from uatlite.predictive import OFFSET, TOP, PassLogits, logit_features
from uatlite.values import Floats, Kind

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates

FLOOR = 0.5
"""The lowest cross-validated R² at which the read-out takes the teacher's place."""
FEWEST_TEXTS = 60
"""Fewer calibration texts than this do not fit a read-out."""
PENALTIES = np.geomspace(1e-2, 1e6, 33)
"""Ridge penalties that are tried, on standardised features."""
DIGITS = 6
"""Decimals of how good a read-out is."""


@dataclass(frozen=True)
class _Features:
    """What a read-out reads of a plain pass, and which variance it learns, for a kind of answer."""

    of_logits: Callable[[Floats], Floats] = logit_features
    """(rows, features) of the mean logits, beside what the head reads"""
    unit: str = "texts"
    """what rows are, for a sentence"""
    each_label: bool = False
    """whether the variances are of each label's logit, and not of the margin. Where the read-out is poor the plain pass
    then runs, without variances, and not the teacher"""

    def of(self, passes: PassLogits) -> Floats:
        """(rows, features) of a plain pass."""
        read, logits = passes.representations, self.of_logits(passes.mean_logits)
        return logits if read is None else np.concatenate([read, logits], axis=1)

    def variance(self, passes: PassLogits) -> Floats:
        """(rows, k) of what a teacher says; of the margin k = 1."""
        variance = passes.label_variance if self.each_label else passes.margin_variance
        assert variance is not None
        return variance.reshape(len(variance), -1)


def _every_logit_and_the_top(logits: Floats) -> Floats:
    return np.concatenate([logits, -np.sort(-logits, axis=1)[:, :TOP]], axis=1)


FEATURES: dict[Kind, _Features] = {
    "one": _Features(),
    "choice": _Features(),
    "labels": _Features(_every_logit_and_the_top, each_label=True),
    "entities": _Features(unit="entities"),
}


@dataclass(frozen=True, eq=False)
class ReadOut:
    """A linear map from the features of a plain pass to the logarithms of k variances."""

    kind: Kind
    """of the answers that it was fitted on"""
    weights: Floats
    """(features, k)"""
    intercept: Floats
    """(k,)"""
    limits: Floats
    """(2, k): the lowest and highest logarithm that the teacher gave; predictions are cut to them"""
    r2: float
    """of leave-one-out predictions for the calibration texts; of all variances together, each around its own mean, and
    without the noise of a teacher that samples"""
    rank_correlation: float
    """Spearman's, of the same; the mean over the k variances"""
    texts: int
    """how many texts it was fitted on"""

    @classmethod
    def empty(cls, kind: Kind, texts: int, features: int, variances: int = 1, quality: float = 0.0) -> ReadOut:
        """One that says nothing, as where there were too few texts to fit it; `quality` is its R²."""
        weights, intercept, limits = (np.zeros((*rows, variances)) for rows in ((features,), (), (2,)))
        return cls(kind, weights, intercept, limits, quality, quality, texts)

    @property
    def serves(self) -> bool:
        """Whether it is good enough to take the teacher's place."""
        return self.r2 >= FLOOR

    def variance(self, features: Floats) -> Floats:
        """The variances (rows, k) of features (rows, features)."""
        return log_variance_to_variance(features @ self.weights + self.intercept, self.limits)

    def read(self, plain: PassLogits) -> PassLogits:
        """A plain pass with the variances that are read off it."""
        features = FEATURES[self.kind].of(plain)
        if features.shape[1] != len(self.weights):
            raise ConfigurationError(
                f"the read-out has {len(self.weights)} weights and the model gives {features.shape[1]} "
                "features: it was fitted on another model. Calibrate again."
            )
        return replace(plain, given_variance=self.variance(features))


def log_variance_to_variance(logs: Floats, limits: Floats) -> Floats:
    """σ² from log(σ² + 1e-4), within the limits that were seen; never 0, which would mean 'not known'."""
    return np.asarray(np.maximum(np.exp(np.clip(logs, limits[0], limits[1])) - OFFSET, OFFSET * 1e-3))


def sampling_noise(passes: int) -> float:
    """The variance of log s² of `passes` normal numbers, trigamma((passes - 1)/2); 0 where nothing was sampled."""
    from scipy.special import polygamma

    return float(polygamma(1, (passes - 1) / 2)) if passes > 1 else 0.0


def fit_read_out(
    kind: Kind, features: Floats, variance: Floats, texts: int, noise: float = 0.0
) -> tuple[ReadOut, Floats]:
    """The read-out of variances (rows, k) from features, and its leave-one-out variances (texts, k).

    The first `texts` rows are the calibration texts: of them R² and rank correlation are measured. `noise` is the
    variance of a logarithm that comes from the few passes of the teacher; no read-out can explain it, and R² leaves it
    out.

    With standardised X = USVᵀ and centred y, ridge regression predicts Hy with H = U·S²/(S² + α)·Uᵀ + 1/n, and the
    prediction for row i without it is y_i - (y_i - ŷ_i)/(1 - H_ii): every penalty costs one product.
    """
    y = np.log(variance + OFFSET)
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
        without = y - (y - level - fitted) / np.maximum(1 - leverage, 1e-9)[:, None]
        loss = np.square(y - without).mean(axis=0)
        better = loss < least
        least, penalties = np.where(better, loss, least), np.where(better, penalty, penalties)
        left_out = np.where(better, without, left_out)
    weights = vt.T @ (s[:, None] / (np.square(s)[:, None] + penalties) * projected) / scale[:, None]
    limits, left_out = np.stack([y.min(axis=0), y.max(axis=0)]), left_out[:texts]
    r2, rank_correlation = _agreement(y[:texts], left_out, noise)
    read_out = ReadOut(kind, weights, level - centre @ weights, limits, r2, rank_correlation, len(y))
    return read_out, log_variance_to_variance(left_out, limits)


def _agreement(y: Floats, left_out: Floats, noise: float) -> tuple[float, float]:
    """R² over all columns, each around its own mean, and the mean rank correlation of those that are not constant."""
    from scipy.stats import spearmanr

    spread = np.square(y - y.mean(axis=0)).sum(axis=0)
    explainable = float(spread.sum()) - noise * y.size
    if explainable <= 0:
        return 0.0, 0.0
    ranks = [float(spearmanr(y[:, i], left_out[:, i]).statistic) for i in np.flatnonzero(spread)]
    missed = float(np.square(y - left_out).sum()) - noise * y.size
    # rounded, so that the same texts give the same on every machine
    return round(min(1 - missed / explainable, 1.0), DIGITS), round(float(np.mean(ranks)), DIGITS)


Teacher = Sampling | Analytic

TEACHERS: dict[str, Teacher] = {
    "fast": SAMPLING["fast"],
    "analytic": ANALYTIC,
    **{key: SAMPLING[key] for key in ("uat", "mc-uniform", "mc-component", "mc-global")},
}
"""Whose variance may be read off."""


@dataclass(frozen=True)
class Distilled(Method):
    """One plain pass, and the variance that `teacher` would find, by a read-out that calibrating fits.

    Before it is fitted, or where the read-out is poor, the teacher itself runs. Of many labels the teacher samples:
    where the read-out is poor the plain pass runs instead, and there are no variances.

    Of a token classifier the variances are those of candidate tokens, and what the head reads is that of the token.
    Before the read-out is fitted the plain model runs alone, so that its entities are those of the model as it is.
    """

    key: ClassVar[str] = "distilled"
    summary: ClassVar[str] = (
        "UAT-Lite read off one plain pass, fitted when calibrating (of=analytic, uat, ...); for +its"
    )
    knows_variance: ClassVar[bool] = True

    teacher: Teacher = ANALYTIC
    read_out: ReadOut | None = None

    @property
    def name(self) -> str:
        return self.key if self.teacher == ANALYTIC else f"{self.key}:of={self.teacher.name.replace(':', ',')}"

    @property
    def reads(self) -> bool:
        """Whether the read-out is used, and not the teacher."""
        return self.read_out is not None and self.read_out.serves

    @property
    def runs(self) -> Method:
        """What runs over texts: the plain pass, or the teacher where the read-out is not used but the teacher is."""
        unread = self.read_out is None or not (self.reads or FEATURES[self.read_out.kind].each_label)
        return self.teacher if unread else BASE

    @property
    def stochastic(self) -> bool:
        return self.teacher.stochastic

    @property
    def seed(self) -> int:
        return self.teacher.seed

    @property
    def passes(self) -> int:
        return self.runs.passes

    @property
    def cost(self) -> int:
        return BASE.cost if self.read_out is None else self.runs.cost  # what it will be, once it is calibrated

    @property
    def config(self) -> UATConfig:
        return self.teacher.config

    @property
    def learns(self) -> bool:
        return self.read_out is None

    def changed(self, **settings: str) -> Self:
        """`of` names the teacher, and the others are its settings. With another teacher nothing is learned yet."""
        key = settings.pop("of", None)
        if key is not None:
            check_choice("of", key, TEACHERS)
        teacher = self.teacher if key is None else TEACHERS[key]
        teacher = teacher.changed(**settings) if settings else teacher
        return replace(self, teacher=teacher, read_out=self.read_out if teacher == self.teacher else None)

    def seeded(self, seed: int) -> Self:
        return replace(self, teacher=self.teacher.seeded(seed))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """The plain logits (1, batch, classes), the variances read off them (batch, k), and what the head reads."""
        import torch

        if not self.reads:
            method = BASE if tokens is not None and self.read_out is None else self.runs
            return method.run(model, encoded, tokens)
        assert self.read_out is not None
        plain = BASE.run(model, encoded)
        logits, chosen = plain.logits[0], None
        if tokens is not None:
            chosen = tokens(torch.arange(len(logits), device=logits.device), logits).to(logits.device)
        read = logits.new_tensor(self.read_out.read(plain.arrays(chosen)).given_variance)
        if chosen is None:
            return replace(plain, variance=read)
        variance = torch.full((*chosen.shape, read.shape[1]), torch.nan, device=logits.device)
        variance[chosen] = read
        return replace(plain, variance=variance)

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        if self.read_out is not None and self.reads:
            return self.read_out.read(plain)
        return plain if self.runs is BASE else None

    def learn(self, rows: CalibrationRows) -> LearnedMethod:
        """Fit the read-out on the calibration texts, and on the reference texts where there are some."""
        kind, name = FEATURES[rows.kind], self.teacher.name
        plain, (places, taught) = rows.run(BASE), rows.teach(self.teacher)
        every, variance = kind.of(plain), kind.variance(taught)
        features, texts = every[places], len(places)
        runs = "the plain pass runs, without variances" if kind.each_label else f"{name} itself runs"
        if texts < FEWEST_TEXTS:
            nothing = ReadOut.empty(rows.kind, texts, features.shape[1], variance.shape[1])
            reason = f"Distilled: {texts} {kind.unit} are too few to fit a read-out ({FEWEST_TEXTS}); {runs}."
            return LearnedMethod(replace(self, read_out=nothing), reason, plain if kind.each_label else taught)
        if rows.run_reference is not None:
            features = np.concatenate([features, kind.of(rows.run_reference(BASE))])
            variance = np.concatenate([variance, kind.variance(rows.run_reference(self.teacher))])
        # Masks that texts share give all of them the same noise, which a read-out would learn: it cannot be taken out.
        drawn = taught.given_variance is None and self.config.per_input
        noise = sampling_noise(len(taught.logits)) if drawn else 0.0
        read_out, left_out = fit_read_out(rows.kind, features, variance, texts, noise)
        learned = replace(self, read_out=read_out)
        agreement = f"R² {read_out.r2:.2f}, rank correlation {read_out.rank_correlation:.2f}"
        measured = f"{agreement}, cross-validated on {texts} {kind.unit}"
        if not read_out.serves:
            reason = (
                f"Distilled: the variance of {name} cannot be read off one pass here ({measured}; {FLOOR} is asked "
                f"for), so {runs}."
            )
            of_all = taught if len(places) == len(every) else None
            return LearnedMethod(learned, reason, plain if kind.each_label else of_all)
        said = read_out.variance(every)
        said[places] = left_out
        reason = f"Distilled: the variance of {name}, read off one plain pass ({measured})."
        return LearnedMethod(learned, reason, replace(plain, given_variance=said))


DISTILLED = Distilled()
