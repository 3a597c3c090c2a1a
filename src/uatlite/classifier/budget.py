"""The method for a budget: the most accurate one that costs at most so many deterministic passes on these texts."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from uatlite.errors import ConfigurationError
from uatlite.methods.adaptive import ADAPTIVE
from uatlite.methods.cascade import SECONDS, Cascade, Labels, Second, Stages
from uatlite.methods.method import CalibrationRows, Method, Tuned
from uatlite.methods.one_pass import BASE
from uatlite.metrics.selective import aurc
from uatlite.predictive import PassLogits
from uatlite.trust.auto import stratified_folds
from uatlite.values import Floats

STAGES = ("analytic", "fast", "adaptive")
"""What is tried, on every text and as the second stage of a cascade."""
BUDGET_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75)
"""Of the rows that a cascade sends on."""
FOLDS = 3
ROUNDS = 3
"""Times that each method is timed, taking turns."""


@dataclass(frozen=True, eq=False)
class MethodCandidate:
    """A method, what it costs and how it did on rows that it was not fitted on."""

    method: Method
    label: str
    cost: float
    losses: Floats
    """(rows,): -log p of each row's label"""
    aurc: float


def choose(budget: float, rows: CalibrationRows, *, seed: int = 0) -> Tuned:
    """The method for texts like these rows that costs at most `budget` deterministic passes."""
    if not budget >= 1:
        raise ConfigurationError(f"budget={budget!r} is below 1, the cost of one deterministic pass; 2.0 is usual.")
    methods, outputs, costs = _measure(rows)
    folds = stratified_folds(rows.labels, FOLDS, seed)
    every = list(_candidates(methods, outputs, costs, rows.labels, folds, budget))
    best = min(every, key=lambda one: float(one.losses.mean()))
    chosen = min((one for one in every if _level(one, best)), key=lambda one: one.cost)
    return Tuned(chosen.method, _explain(chosen, best, every, budget, len(rows.labels)))


def _measure(rows: CalibrationRows) -> tuple[dict[str, Second], dict[str, PassLogits], dict[str, float]]:
    """The second stages (adaptive sampling tuned), what they and 'base' say about the rows, and what they cost."""
    whole = rows.run(ADAPTIVE.whole)
    adaptive, _ = ADAPTIVE.learned(whole, rows)
    methods: dict[str, Second] = {**{name: SECONDS[name] for name in STAGES}, "adaptive": adaptive}
    timed: dict[str, list[float]] = {name: [] for name in ("base", *methods)}
    outputs: dict[str, PassLogits] = {}
    for _ in range(ROUNDS):
        for name in timed:
            begun = time.perf_counter()
            outputs[name] = rows.run(BASE if name == "base" else methods[name])
            timed[name].append(time.perf_counter() - begun)
    ratios = {name: [own / base for own, base in zip(timed[name], timed["base"], strict=True)] for name in methods}
    costs = {name: statistics.median(rounds) for name, rounds in ratios.items()}
    return methods, outputs | {"adaptive": adaptive.cut(whole)}, costs


def _candidates(
    methods: dict[str, Second],
    outputs: dict[str, PassLogits],
    costs: dict[str, float],
    labels: Labels,
    folds: Labels,
    budget: float,
) -> Iterator[MethodCandidate]:
    """Within the budget: 'base', each second stage on every text, and each cascade at each share."""
    base = Stages.of(outputs["base"], outputs["base"])
    probabilities = _held_out(base, labels, folds, 0.0)
    yield MethodCandidate(BASE, "base", 1.0, _losses(probabilities, labels), aurc(probabilities, labels))
    for name, method in methods.items():
        stages = Stages.of(outputs["base"], outputs[name])
        for share in (*BUDGET_SHARES, 1.0):
            cost = costs[name] if share == 1.0 else 1 + share * costs[name]
            if cost > budget:
                continue
            probabilities = _held_out(stages, labels, folds, share)
            losses, ranking = _losses(probabilities, labels), aurc(probabilities, labels)
            if share == 1.0:
                yield MethodCandidate(method, name, cost, losses, ranking)
                continue
            cascade = Cascade(method, stages.fit(labels, share))
            yield MethodCandidate(cascade, f"cascade with {name} for {share:.0%}", cost, losses, ranking)


def _held_out(stages: Stages, labels: Labels, folds: Labels, share: float) -> Floats:
    """Probabilities (rows, classes) of each row by scales and a threshold that were fitted on the other folds."""
    found = np.empty_like(stages.first)
    for fold in range(FOLDS):
        out = folds == fold
        escalation = stages.take(~out).fit(labels[~out], share)
        found[out] = stages.take(out).mixture(escalation)
    return found


def _losses(probabilities: Floats, labels: Labels) -> Floats:
    chances = probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(chances, np.finfo(np.float64).tiny)))


def _level(one: MethodCandidate, best: MethodCandidate) -> bool:
    """Whether the NLL is within one standard error of the best one's, row by row."""
    excess = one.losses - best.losses
    return bool(excess.mean() <= excess.std(ddof=1) / np.sqrt(len(excess)))


def _explain(
    chosen: MethodCandidate, best: MethodCandidate, every: list[MethodCandidate], budget: float, rows: int
) -> str:
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
