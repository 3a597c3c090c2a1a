"""Where to spend passes, learned from labelled rows: the cascade's threshold, and when adaptive sampling may stop.

The cascade sends on as few texts as keep AURC and ECE of the second stage on *all* texts within a tolerance, on the
calibration rows. Sending on everything makes no difference at all, so there is always an answer. What it says of itself
has the upper end of each difference's paired bootstrap interval beside it: on few rows that is wide.

The best method under a budget: measured costs, held-out NLL, the cheapest that the data cannot tell from the best.

A cost is a time over that of the deterministic pass on the same texts, tokenizing included. A cascade's is 1 plus the
share of rows that go on times the cost of its second stage. NLL and AURC are of probabilities of each row by scales
that were fitted without it.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import FloatArray, Outputs
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.cascade import SECONDS, Cascade, Escalation, Second
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS
from uatlite.methods.sampling import ADAPTIVE, Adaptive, Sampling
from uatlite.metrics.bootstrap import Interval, paired_bootstrap
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc
from uatlite.passes.stopping import fit_prior
from uatlite.predictive import softmax, widened
from uatlite.trust.auto import stratified_folds
from uatlite.trust.calibrators import InputTemperature, best_temperature

Labels = NDArray[np.int64]

TOLERANCE = 0.005
"""By how much AURC and ECE may exceed those of the second stage on all texts."""
CONFIDENCE = 0.9
"""Of the two-sided paired intervals, so that their upper ends hold one-sided at 95 %."""
KEPT: dict[str, Callable[[FloatArray, Labels], float]] = {"AURC": aurc, "ECE": ece}
CASCADE_SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
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
    for share in CASCADE_SHARES:
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


STAGES = ("analytic", "fast", "adaptive")
"""What is tried, on every text and as the second stage of a cascade."""
BUDGET_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75)
"""Of the rows that a cascade sends on."""
FOLDS = 3
ROUNDS = 3
"""Times that each method is timed, taking turns."""

Run = Callable[[Method], Outputs]
Boundary = Callable[[FloatArray, NDArray[np.bool_]], float] | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method, what it costs and how it did on rows that it was not fitted on."""

    method: Method
    label: str
    cost: float
    losses: FloatArray
    """(rows,): -log p of each row's label"""
    aurc: float


def choose(budget: float, run: Run, labels: Labels, *, boundary: Boundary = None, seed: int = 0) -> Tuned:
    """The method for texts like the rows with these labels (rows,) that costs at most `budget` deterministic passes."""
    if not budget >= 1:
        raise ConfigurationError(f"budget={budget!r} is below 1, the cost of one deterministic pass; 2.0 is usual.")
    methods, outputs, costs = _measure(run, labels, boundary)
    folds = stratified_folds(labels, FOLDS, seed)
    every = list(_candidates(methods, outputs, costs, labels, folds, budget))
    best = min(every, key=lambda one: float(one.losses.mean()))
    chosen = min((one for one in every if _level(one, best)), key=lambda one: one.cost)
    return Tuned(chosen.method, _explain(chosen, best, every, budget, len(labels)))


def _measure(
    run: Run, labels: Labels, boundary: Boundary
) -> tuple[dict[str, Second], dict[str, Outputs], dict[str, float]]:
    """The second stages (adaptive sampling tuned), what they and 'base' say of the rows, and what they cost."""
    whole = run(at_cap(ADAPTIVE))
    adaptive, _ = tune_adaptive(ADAPTIVE, whole, labels, boundary)
    methods: dict[str, Second] = {**{name: SECONDS[name] for name in STAGES}, "adaptive": adaptive}
    timed: dict[str, list[float]] = {name: [] for name in ("base", *methods)}
    outputs: dict[str, Outputs] = {}
    for _ in range(ROUNDS):
        for name in timed:
            begun = time.perf_counter()
            outputs[name] = run(METHODS["base"] if name == "base" else methods[name])
            timed[name].append(time.perf_counter() - begun)
    ratios = {name: [own / base for own, base in zip(timed[name], timed["base"], strict=True)] for name in methods}
    return (
        methods,
        outputs | {"adaptive": stopped(whole, adaptive)},
        {n: statistics.median(r) for n, r in ratios.items()},
    )


def _candidates(
    methods: dict[str, Second],
    outputs: dict[str, Outputs],
    costs: dict[str, float],
    labels: Labels,
    folds: Labels,
    budget: float,
) -> Iterator[Candidate]:
    """Within the budget: 'base', each second stage on every text, and each cascade at each share."""
    base = Stages.of(outputs["base"], outputs["base"])
    probabilities = _held_out(base, labels, folds, 0.0)
    yield Candidate(METHODS["base"], "base", 1.0, _losses(probabilities, labels), aurc(probabilities, labels))
    for name, method in methods.items():
        stages = Stages.of(outputs["base"], outputs[name])
        for share in (*BUDGET_SHARES, 1.0):
            cost = costs[name] if share == 1.0 else 1 + share * costs[name]
            if cost > budget:
                continue
            probabilities = _held_out(stages, labels, folds, share)
            losses, ranking = _losses(probabilities, labels), aurc(probabilities, labels)
            if share == 1.0:
                yield Candidate(method, name, cost, losses, ranking)
                continue
            cascade = Cascade(method, stages.fit(labels, share))
            yield Candidate(cascade, f"cascade with {name} for {share:.0%}", cost, losses, ranking)


def _held_out(stages: Stages, labels: Labels, folds: Labels, share: float) -> FloatArray:
    """Probabilities (rows, classes) of each row by scales and a threshold that were fitted on the other folds."""
    found = np.empty_like(stages.first)
    for fold in range(FOLDS):
        out = folds == fold
        escalation = stages.take(~out).fit(labels[~out], share)
        found[out] = stages.take(out).mixture(escalation)
    return found


def _losses(probabilities: FloatArray, labels: Labels) -> FloatArray:
    chances = probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(chances, np.finfo(np.float64).tiny)))


def _level(one: Candidate, best: Candidate) -> bool:
    """Whether the NLL is within one standard error of the best one's, row by row."""
    excess = one.losses - best.losses
    return bool(excess.mean() <= excess.std(ddof=1) / np.sqrt(len(excess)))


def _explain(chosen: Candidate, best: Candidate, every: list[Candidate], budget: float, rows: int) -> str:
    what = f"Budget {budget:g}: {chosen.label}, at {chosen.cost:.2f} deterministic passes"
    figures = f"held-out NLL {chosen.losses.mean():.4f}, AURC {chosen.aurc:.4f} over {FOLDS} folds of {rows} rows"
    base = next(one for one in every if one.label == "base")
    if chosen is best:
        why = f"the lowest NLL of the {len(every)} settings within the budget"
    else:
        other = f"{best.label} ({best.losses.mean():.4f} at {best.cost:.2f})"
        why = f"the cheapest within one standard error of the best, {other}"
    compared = "" if chosen is base else f"; base alone {base.losses.mean():.4f}, {base.aurc:.4f}"
    return f"{what}: {why} ({figures}{compared})."
