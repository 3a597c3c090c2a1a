"""The cascade: one deterministic pass for every text, a second method only for those that it leaves in doubt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError, check_choice
from uatlite.methods.adaptive import ADAPTIVE, DIGITS, Adaptive
from uatlite.methods.method import FEWEST_ROWS, CalibrationRows, MethodDefaults, Passes, Tuned
from uatlite.methods.one_pass import ANALYTIC, BASE, Analytic
from uatlite.methods.sampling import FAST, MC_COMPONENT, MC_GLOBAL, MC_UNIFORM, UAT, Sampling
from uatlite.metrics.bootstrap import Interval, paired_bootstrap
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc
from uatlite.passes.config import UATConfig, change_known, differences, spelling
from uatlite.predictive import PassLogits, margin_variance, softmax, widened
from uatlite.trust.calibrators import best_temperature
from uatlite.trust.input_temperature import best_widening
from uatlite.values import Floats

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


Labels = NDArray[np.int64]

Second = Sampling | Analytic

SECONDS: dict[str, Second] = {
    "fast": FAST,
    "analytic": ANALYTIC,
    "adaptive": ADAPTIVE,
    "uat": UAT,
    "mc-uniform": MC_UNIFORM,
    "mc-component": MC_COMPONENT,
    "mc-global": MC_GLOBAL,
}
"""What the second stage may be."""


@dataclass(frozen=True)
class Escalation:
    """Which texts go on to the second stage, and how the logits of the two stages come to one scale.

    A text goes on where the largest softmax(logits / first_temperature) is below `threshold`. The logits of its second
    stage are divided by then_temperature·sqrt(1 + widening·π/8·σ²), σ² the variance of their margin; those of a text
    that stays, by first_temperature. Calibrating learns all four. The defaults scale nothing.
    """

    threshold: float = 0.9
    first_temperature: float = 1.0
    then_temperature: float = 1.0
    widening: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ConfigurationError(
                f"threshold={self.threshold!r} is not in [0, 1]: 0 sends no text on to the second stage, 1 nearly all."
            )
        if min(self.first_temperature, self.then_temperature) <= 0 or self.widening < 0:
            raise ConfigurationError(
                f"first_temperature={self.first_temperature!r}, then_temperature={self.then_temperature!r}, "
                f"widening={self.widening!r}: allowed are temperatures above 0 and a widening from 0 on."
            )


PLAIN = Escalation()


@dataclass(frozen=True)
class Cascade(MethodDefaults):
    """The base's pass for every text, and `then` for those whose confidence is below a threshold.

    The logits of a text are those of the last stage that it reached. A text that stays in the first has one pass and
    no variance.
    """

    then: Second = FAST
    escalation: Escalation = PLAIN
    summary: str = "one deterministic pass; only texts in doubt get a second method (then=fast, analytic, adaptive)"

    @property
    def name(self) -> str:
        key, _, settings = self.then.name.partition(":")
        parts = [*([] if key == "fast" else [f"then={key}"]), *differences(self.escalation, PLAIN)]
        parts += [settings] if settings else []
        return spelling("cascade", parts)

    @property
    def stochastic(self) -> bool:
        return self.then.stochastic

    @property
    def seed(self) -> int:
        return self.then.seed

    @property
    def passes(self) -> int:
        return 1 + self.then.passes

    @property
    def cost(self) -> int:
        return 1 + self.then.cost

    @property
    def knows_variance(self) -> bool:
        return self.then.knows_variance

    @property
    def config(self) -> UATConfig:
        return self.then.config

    @property
    def tunable(self) -> bool:
        return self == self.untuned()

    @property
    def learns_from_labels(self) -> bool:
        return self.tunable

    def changed(self, **settings: str) -> Self:
        escalation, others = change_known(self.escalation, settings)
        then = self.then
        if "then" in others:
            key = others.pop("then")
            check_choice("then", key, SECONDS)
            then = SECONDS[key]
        return replace(self, then=then.changed(**others), escalation=escalation)

    def seeded(self, seed: int) -> Self:
        return replace(self, then=self.then.seeded(seed))

    def with_config(self, config: UATConfig) -> Self:
        return replace(self, then=self.then.with_config(config))

    def untuned(self) -> Self:
        return replace(self, then=self.then.untuned(), escalation=PLAIN)

    def to_dict(self) -> dict[str, Any]:
        return {"method": "cascade", "then": self.then.to_dict(), "escalation": asdict(self.escalation)}

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        described = values["then"]
        then = SECONDS[described["method"]].from_dict(described)
        return replace(self, then=then, escalation=Escalation(**values["escalation"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (passes of the second stage, batch, classes), NaN where a text has fewer."""
        from uatlite.model.architectures import check_one_answer

        check_one_answer(model, "A cascade sends texts on by the confidence of their one answer; use 'distilled'.")
        first = BASE.run(model, encoded)
        rows = self.escalates(first.logits[0])
        second = self.then.run(model, {name: value[rows] for name, value in encoded.items()}) if len(rows) else None
        return join(first, rows, second, self)

    def tuned(self, rows: CalibrationRows) -> Tuned:
        """Learn the smallest share of rows to send on that keeps AURC and ECE of the second stage on all rows."""
        rows.check_labels()
        then, second = self.then, None
        if isinstance(then, Adaptive):
            whole = rows.run(then.whole)
            then, _ = then.learned(whole, rows)
            second = then.cut(whole)
        stages = Stages.of(rows.run(BASE), rows.run(then) if second is None else second)
        return tune_escalation(replace(self, then=then), stages, rows.labels, rows.tolerance)

    def escalates(self, logits: Tensor) -> Tensor:
        """The rows that go on to the second stage, from the logits of the first (batch, classes)."""
        confidence = (logits / self.escalation.first_temperature).softmax(dim=-1).amax(dim=-1)
        return (confidence < self.escalation.threshold).nonzero().flatten().cpu()


def join(first: Passes, rows: Tensor, second: Passes | None, cascade: Cascade) -> Passes:
    """The passes of all texts: those at `rows` from the second stage, the others from the first."""
    own = first.logits[0].cpu()
    logits = own.new_full((cascade.then.passes, *own.shape), float("nan"))
    logits[0] = own / cascade.escalation.first_temperature
    counts = rows.new_ones(len(own))
    spent = rows.new_ones(len(own))
    known = second is not None and second.margin_variance is not None
    variance = own.new_zeros(len(own)) if known or isinstance(cascade.then, Analytic) else None
    if second is not None:
        run = rows.new_full((len(rows),), len(second.logits)) if second.counts is None else second.counts.cpu()
        logits[:, rows] = scaled(second, run, cascade.escalation)
        counts[rows] = run
        spent[rows] = 1 + run
        if variance is not None and second.margin_variance is not None:
            variance[rows] = second.margin_variance.detach().cpu()
    return Passes(logits, variance, counts=counts, spent=spent, representation=first.representation)


def scaled(second: Passes, counts: Tensor, escalation: Escalation) -> Tensor:
    """Logits (passes, batch, classes) of a second stage over their temperature, each text's own where one widens."""
    logits = second.logits.cpu() / escalation.then_temperature
    if escalation.widening == 0:
        return logits
    if second.margin_variance is not None:
        variance = second.margin_variance.detach().cpu().numpy()
    else:
        variance = margin_variance(second.logits.double().cpu().numpy(), counts.numpy())
    scales = logits.new_tensor(widened(variance, escalation.widening))
    return logits * scales[:, None]


CASCADE = Cascade()


CONFIDENCE = 0.9
"""Of the two-sided paired intervals, so that each upper end is a one-sided 95 % bound."""
KEPT: dict[str, Callable[[Floats, Labels], float]] = {"AURC": aurc, "ECE": ece}
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the rows to send on; the smallest that keeps the tolerance is taken."""


def tune_escalation(cascade: Cascade, stages: Stages, labels: Labels, tolerance: float) -> Tuned:
    """The smallest share of rows to send on that keeps AURC and ECE, and what brings both stages to one scale."""
    everything = stages.mixture(stages.fit(labels, 1.0))
    for share in SHARES:
        escalation = stages.fit(labels, share)
        mixture = stages.mixture(escalation)
        if all(metric(mixture, labels) - metric(everything, labels) <= tolerance for metric in KEPT.values()):
            break
    tuned = replace(cascade, escalation=escalation)
    gaps = paired_bootstrap(mixture, everything, labels, metrics=[name.lower() for name in KEPT], confidence=CONFIDENCE)
    return Tuned(tuned, _describe(tuned, stages, gaps, tolerance, len(labels)))


def _describe(cascade: Cascade, stages: Stages, gaps: dict[str, Interval], tolerance: float, rows: int) -> str:
    threshold = cascade.escalation.threshold
    key = cascade.then.name.partition(":")[0]
    share = float(stages.escalated(cascade.escalation).mean())
    if share == 0:
        goes = f"no text goes on to {key}, so 'base' does the same for less"
    else:
        goes = f"texts with a confidence below {threshold:.3g} go on to {key}, {share:.1%} of the calibration rows"
    kept = ", ".join(f"{name.upper()} {gap.point:+.4f} (95 % bound {gap.high:+.4f})" for name, gap in gaps.items())
    return f"Cascade: {goes}. Against {key} on every text, {rows} rows: {kept}; the tolerance is {tolerance:g}."


@dataclass(frozen=True, eq=False)
class Stages:
    """What the two stages of a cascade say about the same rows."""

    first: Floats
    """(rows, classes): the deterministic logits"""
    second: Floats
    """(rows, classes): mean logits of the second stage"""
    variance: Floats | None
    """(rows,): of the second stage's margin, where it is known"""

    @classmethod
    def of(cls, first: PassLogits, second: PassLogits) -> Stages:
        return cls(first.mean_logits, second.mean_logits, second.margin_variance)

    def take(self, rows: NDArray[Any]) -> Stages:
        """Only these rows."""
        variance = None if self.variance is None else self.variance[rows]
        return Stages(self.first[rows], self.second[rows], variance)

    def fit(self, labels: Labels, share: float) -> Escalation:
        """The scales of both stages, and the threshold below which this share of the rows goes on."""
        temperature = round(best_temperature(self.first, labels), DIGITS)
        confidence = softmax(self.first / temperature).max(axis=1)
        threshold = share if share in (0.0, 1.0) else round(float(np.quantile(confidence, share)), DIGITS)
        goes_on = confidence < threshold
        # The second stage's scale is fitted on the texts that it will see, where these are enough.
        enough = goes_on.sum() >= FEWEST_ROWS and len(np.unique(labels[goes_on])) > 1
        used = goes_on if enough else np.ones_like(goes_on)
        then, widening = self._scale(labels, used)
        return Escalation(threshold, temperature, round(then, DIGITS), round(widening, DIGITS))

    def _scale(self, labels: Labels, used: NDArray[np.bool_]) -> tuple[float, float]:
        if self.variance is None:
            return best_temperature(self.second[used], labels[used]), 0.0
        logits, variance = self.second[used], self.variance[used]
        widening = best_widening(logits, labels[used], variance)
        return best_temperature(logits * widened(variance, widening)[:, None], labels[used]), widening

    def escalated(self, escalation: Escalation) -> NDArray[np.bool_]:
        """Which rows go on: (rows,)."""
        confidence = softmax(self.first / escalation.first_temperature).max(axis=1)
        return np.asarray(confidence < escalation.threshold)

    def mixture(self, escalation: Escalation) -> Floats:
        """Probabilities (rows, classes), each row's of the stage that it comes to."""
        stays, goes_on = self.first / escalation.first_temperature, self.second / escalation.then_temperature
        if self.variance is not None:
            goes_on = goes_on * widened(self.variance, escalation.widening)[:, None]
        return softmax(np.where(self.escalated(escalation)[:, None], goes_on, stays))
