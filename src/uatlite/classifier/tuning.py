"""Where to spend passes, learned from labelled rows: the cascade's threshold, and when adaptive sampling may stop.

The cascade sends on as few texts as keep AURC and ECE of the second stage on *all* texts within a tolerance, on the
calibration rows. Sending on everything makes no difference at all, so there is always an answer. What it says of itself
has the upper end of each difference's paired bootstrap interval beside it: on few rows that is wide.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.calibration.input_temperature import InputTemperature
from uatlite.calibration.temperature import best_temperature
from uatlite.classifier.outputs import FloatArray, Outputs
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods import METHODS, Method
from uatlite.methods.adaptive import Adaptive
from uatlite.methods.cascade import Cascade, Escalation
from uatlite.methods.sampling import Sampling
from uatlite.metrics import Interval, aurc, ece, paired_bootstrap
from uatlite.passes.stopping import fit_prior
from uatlite.predictive import softmax, widened

Labels = NDArray[np.int64]

TOLERANCE = 0.005
"""By how much AURC and ECE may exceed those of the second stage on all texts."""
CONFIDENCE = 0.9
"""Of the two-sided paired intervals, so that their upper ends hold one-sided at 95 %."""
KEPT: dict[str, Callable[[FloatArray, Labels], float]] = {"AURC": aurc, "ECE": ece}
SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of the rows that go on, from which the smallest that keeps the tolerance is taken."""
FEWEST = 40
"""Rows of the second stage that a temperature of its own takes; with fewer it is fitted on all rows."""
_DIGITS = 6


@dataclass(frozen=True)
class Tuned:
    """A method whose free settings were learned, and a sentence that says from what."""

    method: Method
    reason: str


def needs_tuning(method: Method) -> bool:
    """Whether calibrating learns settings of this method: a cascade or adaptive one of which none was set."""
    return isinstance(method, Adaptive | Cascade) and method == method.untuned()


def tune(
    method: Method,
    run: Callable[[Method], Outputs],
    labels: Labels,
    *,
    tolerance: float = TOLERANCE,
    boundary: Callable[[FloatArray, NDArray[np.bool_]], float] | None = None,
) -> Tuned:
    """Learn the free settings of a cascade or of adaptive sampling on rows with these labels (rows,).

    `run` gives what a method says of the rows. `boundary`, where one is to abstain by confidence, gives the threshold
    from confidences and errors (rows,) each.
    """
    if not tolerance >= 0:
        raise ConfigurationError(f"tolerance={tolerance!r} is not a number from 0 on, as in {TOLERANCE}.")
    if isinstance(method, Adaptive):
        return Tuned(*tune_adaptive(method, run(at_cap(method)), labels, boundary))
    assert isinstance(method, Cascade)
    if isinstance(method.then, Adaptive):
        whole = run(at_cap(method.then))
        then, _ = tune_adaptive(method.then, whole, labels, boundary)
        method = replace(method, then=then)
        second = stopped(whole, then)
    else:
        second = run(method.then)
    return tune_cascade(method, run(METHODS["base"]), second, labels, tolerance)


def at_cap(method: Adaptive) -> Sampling:
    """The same passes, all of them for every text."""
    entry = METHODS["fast"]
    assert isinstance(entry, Sampling)
    return entry.with_config(method.config)


def tune_adaptive(
    method: Adaptive,
    whole: Outputs,
    labels: Labels,
    boundary: Callable[[FloatArray, NDArray[np.bool_]], float] | None,
) -> tuple[Adaptive, str]:
    """Learn how much passes differ and, where one is to abstain, where answers begin, from all passes of each text."""
    means = whole.mean_logits
    temperature = round(best_temperature(means, labels), _DIGITS)
    prior = dict(zip(("spread", "weight", "trend"), fit_prior(whole.logits), strict=True))
    learned: dict[str, Any] = {name: round(value, _DIGITS) for name, value in prior.items()}
    if boundary is not None:
        probabilities = softmax(means / temperature)
        threshold = boundary(probabilities.max(axis=1), probabilities.argmax(axis=1) != labels)
        if 0 < threshold < 1:  # answering all or none, there is nothing to settle
            learned |= {"boundary": round(float(np.log(threshold / (1 - threshold))), _DIGITS)}
            learned |= {"temperature": temperature}
    tuned = replace(method, stopping=replace(method.stopping, **learned))
    passes = tuned.stopping.counts(whole.logits).mean()
    decision = "label and whether to answer are" if "boundary" in learned else "label is"
    reason = (
        f"Adaptive: a text stops when its {decision} that of all {method.passes} passes with a confidence of "
        f"{method.stopping.confidence:g}; {passes:.1f} passes a text on {len(labels)} calibration rows."
    )
    return tuned, reason


def stopped(whole: Outputs, method: Adaptive) -> Outputs:
    """What adaptive sampling gives, from all of its passes."""
    counts = method.stopping.counts(whole.logits)
    own = np.arange(len(whole.logits))[:, None] < counts
    return replace(whole, logits=np.where(own[..., None], whole.logits, np.nan), counts=counts)


def tune_cascade(cascade: Cascade, first: Outputs, second: Outputs, labels: Labels, tolerance: float) -> Tuned:
    """The smallest share of rows to send on that keeps AURC and ECE, and what brings both stages to one scale."""
    stages = Stages.of(first, second)
    everything = stages.mixture(stages.fit(labels, 1.0))
    for share in SHARES:
        escalation = stages.fit(labels, share)
        mixture = stages.mixture(escalation)
        if all(metric(mixture, labels) - metric(everything, labels) <= tolerance for metric in KEPT.values()):
            break
    tuned = replace(cascade, escalation=escalation)
    gaps = paired_bootstrap(mixture, everything, labels, metrics=[name.lower() for name in KEPT], confidence=CONFIDENCE)
    return Tuned(tuned, _describe(tuned, stages, gaps, tolerance, len(labels)))


def _describe(cascade: Cascade, stages: "Stages", gaps: dict[str, Interval], tolerance: float, rows: int) -> str:
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
    """What the two stages of a cascade say of the same rows."""

    first: FloatArray
    """(rows, classes): the deterministic logits"""
    second: FloatArray
    """(rows, classes): mean logits of the second stage"""
    variance: FloatArray | None
    """(rows,): of the second stage's margin, where it is known"""

    @classmethod
    def of(cls, first: Outputs, second: Outputs) -> "Stages":
        return cls(first.mean_logits, second.mean_logits, second.margin_variance)

    def take(self, rows: NDArray[Any]) -> "Stages":
        """Only these rows."""
        variance = None if self.variance is None else self.variance[rows]
        return Stages(self.first[rows], self.second[rows], variance)

    def fit(self, labels: Labels, share: float) -> Escalation:
        """The scales of both stages, and the threshold below which this share of the rows goes on."""
        temperature = round(best_temperature(self.first, labels), _DIGITS)
        confidence = softmax(self.first / temperature).max(axis=1)
        threshold = share if share in (0.0, 1.0) else round(float(np.quantile(confidence, share)), _DIGITS)
        goes_on = confidence < threshold
        # The scale is that of the texts which the stage will see, where they are enough to tell.
        used = goes_on if goes_on.sum() >= FEWEST and len(np.unique(labels[goes_on])) > 1 else np.ones_like(goes_on)
        then, widening = self._scale(labels, used)
        return Escalation(threshold, temperature, round(then, _DIGITS), round(widening, _DIGITS))

    def _scale(self, labels: Labels, used: NDArray[np.bool_]) -> tuple[float, float]:
        if self.variance is None:
            return best_temperature(self.second[used], labels[used]), 0.0
        fitted = InputTemperature().fit(self.second[used], labels[used], self.variance[used])
        return fitted.temperature_, fitted.widening_

    def escalated(self, escalation: Escalation) -> NDArray[np.bool_]:
        """Which rows go on: (rows,)."""
        confidence = softmax(self.first / escalation.first_temperature).max(axis=1)
        return np.asarray(confidence < escalation.threshold)

    def mixture(self, escalation: Escalation) -> FloatArray:
        """Probabilities (rows, classes), each row's of the stage that it comes to."""
        stays, goes_on = self.first / escalation.first_temperature, self.second / escalation.then_temperature
        if self.variance is not None:
            goes_on = goes_on * widened(self.variance, escalation.widening)[:, None]
        return softmax(np.where(self.escalated(escalation)[:, None], goes_on, stays))


def check_rows(labels: Labels) -> None:
    """Raise where rows are too few to learn anything from."""
    if len(labels) < FEWEST or len(np.unique(labels)) < 2:
        raise CalibrationError(
            f"{len(labels)} rows with {len(np.unique(labels))} classes are too few to learn where to spend passes, "
            f"which takes {FEWEST} of two classes; label more rows, or set it: cascade:threshold=0.9."
        )
