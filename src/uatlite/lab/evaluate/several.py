"""An evaluation of a model with several answers a text: its usual confidence against calibrated ones, and the promise.

    base              the usual confidence: of an entity the mean probability of its words' tags, of a label the sigmoid
    METHOD            what the method says without calibration
    METHOD+answers    calibrated on the calibration rows, as `uatlite calibrate` does it

Texts are resampled, with all of their answers. Scores, tables and the page are those of other evaluations.
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from uatlite.classifier.classifiers import UncertaintyLabeler, UncertaintyTagger
from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.answer_outcomes import (
    AnswerOutcome,
    GoldRows,
    SeveralPredictions,
    estimates_of,
    outcome_of,
    reported_of,
)
from uatlite.lab.evaluate.comparison import compare
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.plan import ANSWERS, CALIBRATION, AnswerContender, SetChoice
from uatlite.lab.evaluate.predict import PACKAGES
from uatlite.lab.evaluate.promise_check import PromiseCheck, check_promise
from uatlite.lab.evaluate.results import Results, SetScores
from uatlite.lab.evaluate.runs import NoProgress, Progress
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.intervals import Resampling
from uatlite.text.tasks import load
from uatlite.values import check_share

SeveralProduct = UncertaintyTagger | UncertaintyLabeler

BASE = "base"


@dataclass(frozen=True)
class AnswerPlan:
    """Contenders, the sets that they are compared on, and how."""

    contenders: tuple[AnswerContender, ...]
    test: SetChoice
    shifts: tuple[SetChoice, ...] = ()
    seeds: int = 1
    limit: int | None = None
    max_length: int | None = None
    data_dir: Path | None = None
    target: float = 0.1
    """the share of reported answers that may be wrong"""
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
        check_share("target", self.target)
        if not self.contenders:
            raise ConfigurationError(f"an evaluation needs a method; give some, as in 'base,distilled+{ANSWERS}'.")
        if CALIBRATION not in self.test.task.splits and any(one.calibrated for one in self.contenders):
            raise ConfigurationError(
                f"{self.test.task.name} has no calibration split to fit on (it has "
                f"{', '.join(self.test.task.splits)}). Evaluate the task that the model was trained on, with --shift "
                f"{self.test.task.name}."
            )
        for one in self.contenders:
            if one.method.learns and not one.calibrated:
                raise ConfigurationError(
                    f"{one.name} learns from calibration rows; compare its calibrated form, {one.name}+{ANSWERS}."
                )

    def seeds_of(self, contender: AnswerContender) -> int:
        """How many seeds a contender runs with; one without randomness."""
        return self.seeds if contender.method.stochastic else 1


@dataclass(frozen=True, eq=False)
class AnswerEvaluation:
    """The results, and of the first seed the answers behind the figures."""

    results: Results
    outcomes: Mapping[str, Mapping[str, AnswerOutcome]]
    """set -> contender -> its answers"""


@dataclass(frozen=True, eq=False)
class _Runs:
    """What one contender says about every set, for each seed, and what it took."""

    found: list[list[SeveralPredictions]]
    """(seeds, sets)"""
    seconds: float
    method: Method
    """with what it learned from calibration rows"""


def evaluate_answers(
    product: SeveralProduct, name: str, plan: AnswerPlan, display: Progress | None = None
) -> AnswerEvaluation:
    """Evaluate a plan on a product; `name` is what the results call its model."""
    display = display or NoProgress()
    sets = [_load(product, plan, choice) for choice in (plan.test, *plan.shifts)]
    fitting = None
    if any(one.calibrated for one in plan.contenders):
        fitting = _load(product, plan, SetChoice(plan.test.task, CALIBRATION))
    display.begin("predicting", sum(plan.seeds_of(one) for one in plan.contenders) * len(sets))
    runs = {one.name: _run(product, one, plan, sets, fitting, display) for one in plan.contenders}
    display.begin("scoring", len(sets))
    scored: list[SetScores] = []
    outcomes: dict[str, dict[str, AnswerOutcome]] = {}
    promises: list[PromiseCheck] = []
    for place, rows in enumerate(sets):
        display.step(rows.name)
        found = {one: [seed[place] for seed in run.found] for one, run in runs.items()}
        of_set = {one: [outcome_of(run, rows, usual=one == BASE) for run in own] for one, own in found.items()}
        scored.append(_scored(rows, found, of_set, plan.resampling, display))
        outcomes[rows.name] = {one: own[0] for one, own in of_set.items()}
        for one, (first, *_) in found.items():
            if first.rule is not None:
                reported = reported_of(first, of_set[one][0])
                promises.append(check_promise(one, rows.name, first.rule, reported, plan.resampling))
    texts = sum(len(rows.texts) for rows in sets)
    about = {one.name: _about(one, name, runs[one.name], texts) for one in plan.contenders}
    results = Results(
        model=name,
        model_hash=product.runtime.hash,
        contenders=tuple(about),
        methods=about,
        metrics=tuple(next(iter(scored[0].scores.values()))),
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={},
        versions={package: version(package) for package in PACKAGES},
        kind=product.kind.name,
        promises=tuple(promises),
    )
    return AnswerEvaluation(results, outcomes)


def _load(product: SeveralProduct, plan: AnswerPlan, choice: SetChoice) -> GoldRows:
    return GoldRows.of(load(choice.task, choice.split, plan.data_dir, limit=plan.limit), product.class_names)


def _run(
    product: SeveralProduct,
    contender: AnswerContender,
    plan: AnswerPlan,
    sets: Sequence[GoldRows],
    fitting: GoldRows | None,
    display: Progress,
) -> _Runs:
    found: list[list[SeveralPredictions]] = []
    seconds = 0.0
    for seed in range(plan.seeds_of(contender)):
        display.step(f"{contender.name}, seed {seed}")
        ready = _prepared(product, contender, seed, plan, fitting)
        begun = time.perf_counter()
        found.append([])
        for rows in sets:
            found[-1].append(ready.predict(rows.texts, check_shift=False))
            display.advance(1)
        seconds += time.perf_counter() - begun
    return _Runs(found, seconds, ready.method)


def _prepared(
    product: SeveralProduct, contender: AnswerContender, seed: int, plan: AnswerPlan, fitting: GoldRows | None
) -> SeveralProduct:
    """The product with the contender's method, calibrated where the contender is."""
    made = type(product)(product.model, product.tokenizer, contender.method, seed=seed, max_length=plan.max_length)
    if not contender.calibrated:
        return made
    assert fitting is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a rule that promises nothing says so in the results
        if isinstance(made, UncertaintyTagger):
            return made.calibrate(fitting.texts, fitting.gold, target_risk=plan.target)
        return made.calibrate(fitting.texts, fitting.gold, target_precision=1.0 - plan.target)


def _scored(
    rows: GoldRows,
    found: Mapping[str, Sequence[SeveralPredictions]],
    outcomes: Mapping[str, Sequence[AnswerOutcome]],
    how: Resampling,
    display: Progress,
) -> SetScores:
    estimates = {
        one: [estimates_of(outcome, run, rows) for outcome, run in zip(outcomes[one], own, strict=True)]
        for one, own in found.items()
    }
    first = next(iter(found.values()))[0]
    return SetScores(
        name=rows.name,
        source=rows.source,
        alignment=rows.note,
        rows=len(rows.texts),
        left_out=0,
        truncated_texts=first.truncated_texts,
        truncated_tokens=first.truncated_tokens,
        scores=compare(estimates, DIRECTIONS, (len(rows.texts),), how, display.advance),
    )


def _about(contender: AnswerContender, model: str, runs: _Runs, texts: int) -> dict[str, Any]:
    passes = [int(found.passes.sum()) for seed in runs.found for found in seed]
    backward = runs.method.cost - runs.method.passes
    return {
        "method": method_to_dict(contender.method),
        "model": model,
        "calibrator": ANSWERS if contender.calibrated else "none",
        "cost": sum(passes) / (len(runs.found) * texts) + backward,
        "seeds": len(runs.found),
        "seconds_per_text": runs.seconds / (len(runs.found) * texts),
    }
