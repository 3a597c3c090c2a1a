"""A whole evaluation: load the sets, predict what the store lacks, calibrate, score, compare."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from uatlite.lab.evaluate.compare import Score
from uatlite.lab.evaluate.contenders import Contender, Models
from uatlite.lab.evaluate.outcomes import (
    Outcomes,
    SetScores,
    fit_calibrators,
    outcomes_of,
    score_detection,
    score_set,
    score_shift,
)
from uatlite.lab.evaluate.plan import CALIBRATION, Plan, SetChoice
from uatlite.lab.evaluate.predict import Advance, Prepared, predict, prepare, remaining
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import Store, StoredPredictions
from uatlite.methods.method import Method
from uatlite.model.load import Checkpoint
from uatlite.text.labels import align_task
from uatlite.text.perturb import perturb
from uatlite.text.tasks import load
from uatlite.trust.calibrators import Calibrator


class ProgressDisplay(Protocol):
    """Shows the progress of a long computation: a bar on a terminal, lines in a log."""

    def begin(self, stage: str, total: float) -> None:
        """A new stage begins, with `total` units of work."""

    def step(self, what: str) -> None:
        """Say what is being done now."""

    def advance(self, amount: float) -> None:
        """Add `amount` units of finished work."""


class NoDisplay:
    """Shows nothing."""

    def begin(self, stage: str, total: float) -> None: ...

    def step(self, what: str) -> None: ...

    def advance(self, amount: float) -> None: ...


Runs = Mapping[tuple[str, str], Sequence[StoredPredictions]]
"""(method, set) -> its predictions, one for each seed"""
Calibrators = Mapping[str, Sequence[Calibrator | None]]
"""contender -> its calibrator for each seed"""
Sets = Mapping[str, tuple[Prepared | None, Sequence[Prepared]]]
"""model -> its calibration set, if anything is fitted, and the sets to score"""
StoreJob = tuple[Prepared, Method, int]
"""a data set, a method and a seed: a run to be in the store"""
Elsewhere = Callable[[Sequence[StoreJob], Store, Callable[[float], None]], None]
"""Computes, on other machines, what the store lacks of some jobs, and tells how many passes over a row are done."""


def evaluate(
    models: Checkpoint | Sequence[Checkpoint],
    plan: Plan,
    store: Store,
    display: ProgressDisplay | None = None,
    elsewhere: Elsewhere | None = None,
) -> Results:
    """Run a plan on a model, or on one and those that were trained for its methods.

    What the store already has is not computed again: an interrupted call goes on where it stopped. `elsewhere` may
    compute what the store lacks on other machines.
    """
    display = display or NoDisplay()
    chosen = Models.of([models] if isinstance(models, Checkpoint) else models)
    sets = sets_of(plan, chosen)
    calibration, scored_on = next(iter(sets.values()))
    runs = predict_all(jobs_of(plan, chosen, sets), store, display, elsewhere)
    calibrators: dict[str, Sequence[Calibrator | None]] = {}
    for contender in plan.contenders:
        if calibration is not None and contender.calibrated:
            fitted_on = runs[contender.method.name, calibration.set_name]
            calibrators[contender.name] = fit_calibrators(contender, fitted_on)
        else:
            calibrators[contender.name] = [None] * len(_seeds(plan, contender.method))
    scored = score_all(plan, [one.set_name for one in scored_on], runs, calibrators, display)
    return _results(chosen, plan, scored, runs, calibrators)


def _used(models: Models, plan: Plan) -> dict[str, Checkpoint]:
    """The models that the methods of a plan run on, by name; an error where one of them is not there."""
    used = [models.of_method(contender.method) for contender in plan.contenders]
    return {checkpoint.name: checkpoint for checkpoint in used}


def load_sets(checkpoint: Checkpoint, plan: Plan) -> tuple[Prepared | None, list[Prepared]]:
    """The calibration split if anything is fitted, and the sets to score: the test set, perturbed ones, shifts."""
    calibration = _load(checkpoint, plan, SetChoice(plan.test.task, CALIBRATION)) if plan.calibrates else None
    perturbed = [_load(checkpoint, plan, plan.test, perturbation) for perturbation in plan.perturbations]
    shifts = [_load(checkpoint, plan, choice) for choice in plan.shifts]
    return calibration, [_load(checkpoint, plan, plan.test), *perturbed, *shifts]


def _load(checkpoint: Checkpoint, plan: Plan, choice: SetChoice, perturbation: str | None = None) -> Prepared:
    alignment = align_task(choice.task, checkpoint.id2label, label_order=plan.label_order)
    dataset = load(choice.task, choice.split, plan.data_dir, limit=plan.limit)
    if perturbation is not None:
        dataset = perturb(dataset, perturbation)
    return prepare(
        checkpoint,
        dataset,
        alignment,
        task=choice.task.name,
        perturbation=perturbation,
        max_length=plan.max_length,
    )


def sets_of(plan: Plan, models: Models) -> Sets:
    """The data of a plan as each model that its methods run on takes them."""
    return {name: load_sets(one, plan) for name, one in _used(models, plan).items()}


def jobs_of(plan: Plan, models: Models, sets: Sets) -> list[StoreJob]:
    """Every method over every set as its model takes it, for as many seeds as change anything."""
    methods = {contender.method.name: contender.method for contender in plan.contenders}
    everywhere = {name: [*test, *([fitted] if fitted else [])] for name, (fitted, test) in sets.items()}
    return [
        (one, method, seed)
        for method in methods.values()
        for one in everywhere[models.of_method(method).name]
        for seed in _seeds(plan, method)
    ]


def predict_all(
    jobs: Sequence[StoreJob], store: Store, display: ProgressDisplay, elsewhere: Elsewhere | None = None
) -> Runs:
    """The predictions of all jobs."""
    display.begin("predicting", sum(remaining(store, *job) * job[1].passes for job in jobs))
    if elsewhere is not None:
        elsewhere(jobs, store, display.advance)
    runs: dict[tuple[str, str], list[StoredPredictions]] = {}
    for prepared, method, seed in jobs:
        display.step(f"{method.name}, {prepared.set_name}" + (f", seed {seed}" if method.stochastic else ""))
        run = predict(store, prepared, method, seed, _advance(display, method.passes))
        runs.setdefault((method.name, prepared.set_name), []).append(run.read())
    return runs


def _advance(display: ProgressDisplay, passes: int) -> Advance:
    return lambda rows: display.advance(rows * passes)


def score_all(
    plan: Plan, sets: Sequence[str], runs: Runs, calibrators: Calibrators, display: ProgressDisplay
) -> list[SetScores]:
    """Every contender on every set; each set after the first is also scored as a shift of the first."""
    display.begin("scoring", len(sets))
    scored: list[SetScores] = []
    in_domain: Outcomes = {}
    for name in sets:
        display.step(name)
        outcomes = {c.name: outcomes_of(runs[c.method.name, name], calibrators[c.name]) for c in plan.contenders}
        in_domain = in_domain or outcomes
        scores = score_set(outcomes, plan.metrics, plan.resampling, display.advance)
        shift = score_shift(in_domain, outcomes, plan.resampling) if scored else {}
        of_set = {method: predictions for (method, other), predictions in runs.items() if other == name}
        scored.append(_set_scores(of_set, outcomes, scores, shift, score_detection(outcomes, plan.resampling)))
    return scored


def _set_scores(
    runs: Mapping[str, Sequence[StoredPredictions]],
    outcomes: Outcomes,
    scores: Mapping[str, Mapping[str, Score]],
    shift: Mapping[str, Mapping[str, Score]],
    detection: Mapping[str, Mapping[str, Score]],
) -> SetScores:
    about = next(iter(runs.values()))[0].provenance
    rows = len(next(iter(outcomes.values()))[0].labels)
    return SetScores(
        name=about.set_name,
        source=about.source,
        alignment=about.alignment,
        rows=rows,
        left_out=about.rows - rows,
        truncated_texts=about.truncated_texts,
        truncated_tokens=about.truncated_tokens,
        scores=scores,
        shift=shift,
        detection=detection,
        runs={method: tuple(run.provenance.recipe.key for run in seeds) for method, seeds in runs.items()},
    )


def _results(models: Models, plan: Plan, scored: Sequence[SetScores], runs: Runs, calibrators: Calibrators) -> Results:
    return Results(
        model=models.plain.name,
        model_hash=models.plain.hash,
        contenders=tuple(contender.name for contender in plan.contenders),
        methods={c.name: _about(c, runs[c.method.name, scored[0].name]) for c in plan.contenders},
        metrics=plan.metrics,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(calibrator.to_dict() for calibrator in seeds if calibrator is not None)
            for name, seeds in calibrators.items()
        },
        versions=next(iter(runs.values()))[0].provenance.versions,
    )


def _about(contender: Contender, runs: Sequence[StoredPredictions]) -> dict[str, Any]:
    rows = sum(len(run.ids) for run in runs)
    return {
        "method": contender.method.to_dict(),
        "model": runs[0].provenance.model,
        "calibrator": contender.calibrator,
        "passes": contender.method.passes,
        "seeds": len(runs),
        "seconds_per_text": sum(run.seconds for run in runs) / rows,
    }


def _seeds(plan: Plan, method: Method) -> range:
    """One seed where none changes anything."""
    return range(plan.seeds if method.stochastic else 1)
