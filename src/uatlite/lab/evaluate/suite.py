"""A whole evaluation: load the sets, predict what the store does not have yet, calibrate, score and compare."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from uatlite.codec import dump
from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.out_of_scope import (
    PlainReader,
    in_scope,
    mixed_of,
    outside_texts,
    scope_texts,
    score_answers,
    score_found,
)
from uatlite.lab.evaluate.outcomes import Outcomes, fit_calibrator, outcomes_of, score_detection, score_set, score_shift
from uatlite.lab.evaluate.own_file import OwnFile
from uatlite.lab.evaluate.plan import CALIBRATION, Contender, Plan, SetChoice
from uatlite.lab.evaluate.predict import Models, Prepared, learn, predict, prepare, remaining
from uatlite.lab.evaluate.results import OutOfScope, Results, SetScores
from uatlite.lab.evaluate.store import Store, StoredPredictions
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict
from uatlite.model.load import Checkpoint
from uatlite.text.labels import align_task
from uatlite.text.perturb import perturb
from uatlite.text.tasks import load
from uatlite.trust.calibrators import LogitCalibrator


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
Calibrators = Mapping[str, Sequence[LogitCalibrator | None]]
"""contender -> its calibrator for each seed"""
StoreJob = tuple[Prepared, Method, int]
"""a data set, a method and a seed: one run of the store"""
ClusterPredict = Callable[[Sequence[StoreJob], Store, Callable[[float], None]], None]
"""Computes missing runs of the jobs on a cluster, and reports the work done, in passes over a row."""


def evaluate(
    models: Checkpoint | Sequence[Checkpoint],
    plan: Plan,
    store: Store,
    display: ProgressDisplay | None = None,
    on_cluster: ClusterPredict | None = None,
) -> Results:
    """Evaluate a plan on a plain model, and on the models that were trained for some of its methods.

    Predictions that the store has are not computed again, so an interrupted call resumes. With `on_cluster`, the
    missing ones are computed on a cluster.
    """
    display = display or NoDisplay()
    chosen = Models.of([models] if isinstance(models, Checkpoint) else models)
    sets = sets_of(plan, chosen)
    jobs = jobs_of(plan, chosen, sets)
    runs = predict_all(jobs, store, display, on_cluster)
    names = [one.set_name for one in next(iter(sets.values()))]
    calibration = names.pop() if plan.calibrates else ""
    if plan.out_of_scope is not None:
        names.pop()
    calibrators: dict[str, Sequence[LogitCalibrator | None]] = {}
    for contender in plan.contenders:
        if contender.calibrated:
            fitted_on = runs[contender.method.name, calibration]
            calibrators[contender.name] = [fit_calibrator(contender.calibrator, run) for run in fitted_on]
        else:
            calibrators[contender.name] = [None for _ in plan.seeds_of(contender.method)]
    scored = score_all(plan, names, runs, calibrators, display)
    mixed = None
    if plan.out_of_scope is not None:
        test, outside = (next(iter(sets.values()))[place] for place in (0, len(names)))
        mixed = score_outside(plan, chosen.plain, test, outside, runs, calibrators, display)
    methods = {method.name: method for _, method, _ in jobs}
    about = {c.name: _about(c, methods[c.method.name], runs[c.method.name, scored[0].name]) for c in plan.contenders}
    return Results(
        model=chosen.plain.name,
        model_hash=chosen.plain.hash,
        contenders=tuple(about),
        methods=about,
        metrics=plan.metrics,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(dump(calibrator, kind=EvaluatedCalibrator) for calibrator in seeds if calibrator is not None)
            for name, seeds in calibrators.items()
        },
        versions=next(iter(runs.values()))[0].provenance.versions,
        out_of_scope=mixed,
        own_file=OwnFile.of(plan.test.task),
        calibration_runs={name: _run_keys(seeds) for (name, other), seeds in runs.items() if other == calibration},
        suggested=plan.suggested,
    )


def sets_of(plan: Plan, models: Models) -> dict[str, list[Prepared]]:
    """The data of a plan for each model that it uses: test set, perturbed test sets, shifts.

    Texts out of scope follow, if there are any. The calibration set comes last, if anything is fitted on it.
    """
    choices: list[tuple[SetChoice, str | None]] = [(plan.test, None)]
    choices += [(plan.test, perturbation) for perturbation in plan.perturbations]
    choices += [(shift, None) for shift in plan.shifts]
    if plan.calibrates:
        choices.append((SetChoice(plan.test.task, CALIBRATION), None))
    used = {(one := models.of_method(contender.method)).name: one for contender in plan.contenders}
    sets = {name: [_load(one, plan, *choice) for choice in choices] for name, one in used.items()}
    if plan.out_of_scope is not None:
        outside = outside_texts(plan)
        for name, one in used.items():
            alignment = align_task(plan.test.task, one.id2label, label_order=plan.label_order)
            prepared = prepare(one, outside, alignment, max_length=plan.max_length)
            sets[name].insert(len(choices) - plan.calibrates, prepared)
    return sets


def _load(checkpoint: Checkpoint, plan: Plan, choice: SetChoice, perturbation: str | None) -> Prepared:
    alignment = align_task(choice.task, checkpoint.id2label, label_order=plan.label_order)
    dataset = load(choice.task, choice.split, plan.data_dir, limit=plan.limit)
    if perturbation is not None:
        dataset = perturb(dataset, perturbation)
    return prepare(
        checkpoint, dataset, alignment, task=choice.task.name, perturbation=perturbation, max_length=plan.max_length
    )


def jobs_of(plan: Plan, models: Models, sets: Mapping[str, Sequence[Prepared]]) -> list[StoreJob]:
    """Every method with every set and seed; one seed for a method without randomness.

    A method that learns from texts does so here, on those of the calibration set.
    """
    methods = {contender.method.name: contender.method for contender in plan.contenders}
    jobs: list[StoreJob] = []
    for asked in methods.values():
        own, method = list(sets[models.of_method(asked).name]), asked
        if plan.calibrates:
            method, own[-1] = learn(asked, own[-1])
        jobs += [(one, method, seed) for one in own for seed in plan.seeds_of(method)]
    return jobs


def predict_all(
    jobs: Sequence[StoreJob], store: Store, display: ProgressDisplay, on_cluster: ClusterPredict | None = None
) -> Runs:
    """The predictions of all jobs."""
    display.begin("predicting", sum(remaining(store, *job) * job[1].passes for job in jobs))
    if on_cluster is not None:
        on_cluster(jobs, store, display.advance)
    runs: dict[tuple[str, str], list[StoredPredictions]] = {}
    for prepared, method, seed in jobs:
        display.step(f"{method.name}, {prepared.set_name}" + (f", seed {seed}" if method.stochastic else ""))

        def advance(rows: int, passes: int = method.passes) -> None:
            display.advance(rows * passes)

        run = predict(store, prepared, method, seed, advance)
        runs.setdefault((method.name, prepared.set_name), []).append(run.read())
    return runs


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
        of_set = {method: predictions for (method, other), predictions in runs.items() if other == name}
        about = next(iter(of_set.values()))[0].provenance
        rows = len(next(iter(outcomes.values()))[0].labels)
        apart = not scored and plan.out_of_scope == plan.test  # the same rows have tables of their own
        one = SetScores(
            name=name,
            source=about.source,
            alignment=about.alignment,
            rows=rows,
            left_out=about.rows - rows,
            truncated_texts=about.truncated_texts,
            truncated_tokens=about.truncated_tokens,
            scores=score_set(outcomes, plan.metrics, plan.resampling, display.advance),
            shift=score_shift(in_domain, outcomes, plan.resampling) if scored else {},
            detection={} if apart else score_detection(outcomes, plan.resampling),
            runs={method: _run_keys(seeds) for method, seeds in of_set.items()},
        )
        scored.append(one)
    return scored


def score_outside(
    plan: Plan,
    plain: Checkpoint,
    test: Prepared,
    outside: Prepared,
    runs: Runs,
    calibrators: Calibrators,
    display: ProgressDisplay,
) -> OutOfScope:
    """Every contender on the test rows together with the texts out of scope; the scope is read off the plain model."""
    of_test = {c.name: runs[c.method.name, test.set_name] for c in plan.contenders}
    of_outside = {c.name: runs[c.method.name, outside.set_name] for c in plan.contenders}
    inside = in_scope(next(iter(of_test.values()))[0])
    strange = None
    try:
        texts = scope_texts(plan)
        sets = (texts.reference or (), texts.calibration, test.dataset, outside.dataset)
        display.begin("reading the scope", sum(map(len, sets)))
        reader = PlainReader(plain, plan.max_length, display.advance)
        scope = reader.scope(texts)
        of_rows = reader.strangeness(scope, test.dataset)[inside]
        strange, note = of_rows.and_then(reader.strangeness(scope, outside.dataset)), texts.describe()
    except CalibrationError as error:
        note = f"no scope: {str(error).rstrip('.')}"
    mixed = {
        name: [mixed_of(*run) for run in zip(of_test[name], of_outside[name], calibrators[name], strict=True)]
        for name in of_test
    }
    sizes, how = (int(inside.sum()), len(outside.dataset)), plan.resampling
    display.begin("scoring with texts out of scope", 3)
    detection = score_found(mixed, strange, sizes, how)
    display.advance(1)
    alone = score_answers(mixed, strange, sizes[:1], how)
    display.advance(1)
    together = score_answers(mixed, strange, sizes, how)
    display.advance(1)
    return OutOfScope(
        name=outside.set_name,
        source=outside.dataset.source,
        rows=sizes[1],
        in_scope_rows=sizes[0],
        note=note,
        detection=detection,
        in_scope=alone,
        mixture=together,
        runs={c.method.name: _run_keys(of_outside[c.name]) for c in plan.contenders},
    )


def _run_keys(runs: Sequence[StoredPredictions]) -> tuple[str, ...]:
    return tuple(run.provenance.recipe.key for run in runs)


def _about(contender: Contender, method: Method, runs: Sequence[StoredPredictions]) -> dict[str, Any]:
    rows = sum(len(run.ids) for run in runs)
    return {
        "method": method_to_dict(contender.method),
        "model": runs[0].provenance.model,
        "calibrator": contender.calibrator,
        "cost": float(method.cost),
        "seeds": len(runs),
        "seconds_per_text": sum(run.seconds for run in runs) / rows,
    }
