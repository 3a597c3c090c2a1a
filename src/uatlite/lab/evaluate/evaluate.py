"""A whole evaluation: panels of contenders and metrics, set by set, filled from the store and compared.

The panels of a set are its metrics, calibration under the shift from the first set, and finding rows out of scope.
With texts out of scope there are three more: finding them, and abstention without them and with them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from uatlite.codec import dump
from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.answer_outcomes import PromiseCheck
from uatlite.lab.evaluate.answer_runs import AnswerRuns, GivenProduct
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Scores, Tick, scores_of
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.models import GivenModels, sets_of
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.plan import CALIBRATION, Contender, Plan
from uatlite.lab.evaluate.predict import PACKAGES
from uatlite.lab.evaluate.results import OutOfScope, Results, SetScores
from uatlite.lab.evaluate.runs import Job, NoProgress, Progress, Remote, Runs, nothing
from uatlite.lab.evaluate.scope import labelled_in_scope, scope_jobs, scope_of
from uatlite.lab.evaluate.store import Store
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint

_SCOPE = "scope"
"""The scope's row beside the contenders."""
_Panel = Mapping[tuple[str, str], CellSpec]
"""(contender, metric) -> the cell"""


def evaluate(
    models: Checkpoint | Sequence[Checkpoint] | GivenProduct,
    plan: Plan,
    store: Store,
    progress: Progress | None = None,
    remote: Remote | None = None,
) -> Results:
    """Evaluate a plan on a plain model, and on the models that were trained for some of its methods.

    Predictions that the store has are not computed again, so an interrupted call resumes. With `remote`, the missing
    ones are computed on other machines.
    """
    progress = progress or NoProgress()
    runs = runs_of(models, plan, store, remote)
    source: GivenModels | GivenProduct = runs.source  # type: ignore[assignment]
    sets = sets_of(plan)
    jobs = jobs_of(plan, sets, runs)
    progress.begin("predicting", sum(map(runs.work, jobs)))
    runs.compute(jobs, progress)
    calibrators = {} if plan.several else {c.name: runs.calibrators(_of(sets[0], c)) for c in plan.contenders}
    progress.begin("scoring", len(sets))
    scored, promises = [], list[PromiseCheck]()
    for cell in sets:
        progress.step(runs.jobs(cell)[0].set_name)
        scored.append(score_set(cell, sets[0], plan, runs, progress.advance))
        for contender in plan.contenders:
            promises += runs.promises(_of(cell, contender), plan.resampling)
    outside = None
    if plan.out_of_scope is not None:
        progress.begin("scoring with texts out of scope", 3)
        outside = score_outside(sets[0], plan, runs, progress.advance)
    return Results(
        model=source.name,
        model_hash=source.hash,
        contenders=tuple(contender.name for contender in plan.contenders),
        methods={contender.name: _about(contender, sets[0], runs) for contender in plan.contenders},
        metrics=plan.scored,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(dump(calibrator, kind=EvaluatedCalibrator) for calibrator in seeds if calibrator is not None)
            for name, seeds in calibrators.items()
        },
        versions={package: version(package) for package in PACKAGES},
        out_of_scope=outside,
        texts=() if plan.several else tuple(runs.dataset(jobs[0]).examples),
        calibration_runs=_keys(calibration_of(sets[0]), plan, runs) if plan.calibrates else {},
        suggested=plan.suggested,
        kind=plan.test.task.kind if plan.several else "one",
        promises=tuple(promises),
    )


def runs_of(
    models: Checkpoint | Sequence[Checkpoint] | GivenProduct, plan: Plan, store: Store, remote: Remote | None = None
) -> Runs:
    """The runs of an evaluation, by what its models say about a text."""
    if isinstance(models, GivenProduct):
        return AnswerRuns(models, store, remote)
    return Runs(GivenModels([models] if isinstance(models, Checkpoint) else models, plan), store, remote)


def calibration_of(test: CellSpec) -> CellSpec:
    """The calibration rows of the task under test."""
    return replace(test, on=f"{test.task}/{CALIBRATION}")


def jobs_of(plan: Plan, sets: Sequence[CellSpec], runs: Runs) -> list[Job]:
    """Every method with every set and seed, and what tells what is in scope."""
    sets = list(sets)
    if plan.out_of_scope is not None:
        sets.append(replace(sets[0], on=plan.outside_name))
    if plan.calibrates and not plan.several:
        sets.append(calibration_of(sets[0]))
    jobs = [job for contender in plan.contenders for cell in sets for job in runs.jobs(_of(cell, contender))]
    if plan.out_of_scope is not None:
        with suppress(CalibrationError):  # without a scope the results say why
            jobs += [plain for job in runs.jobs(sets[0]) for plain in scope_jobs(job, runs)]
    return list(dict.fromkeys(jobs))


def _of(cell: CellSpec, contender: Contender) -> CellSpec:
    return replace(cell, contender=contender)


def score_set(cell: CellSpec, first: CellSpec, plan: Plan, runs: Runs, tick: Tick) -> SetScores:
    """Every contender on a set; each set after the first is also scored as a shift of the first."""
    how, tables = plan.resampling, {"scores": {name: name for name in plan.scored}}
    if not plan.several:
        flags = runs.outcomes(_of(cell, plan.contenders[0]))[0].out_of_scope
        # where texts out of scope were given and are of the same rows, these have tables of their own
        apart = cell == first and plan.out_of_scope == plan.test
        if cell != first:
            tables["shift"] = {name: name for name in SHIFT}
        if flags is not None and flags.any() and not flags.all() and not apart:
            tables["detection"] = {name: name for name in DETECTION}
    scored = {
        name: scores(panel(cell, plan.contenders, columns), runs, how, tick if name == "scores" else nothing)
        for name, columns in tables.items()
    }
    facts: dict[str, Any] = vars(runs.facts(_of(cell, plan.contenders[0])))
    return SetScores(
        **facts,
        scores=scored["scores"],
        shift=scored.get("shift", {}),
        detection=scored.get("detection", {}),
        runs=_keys(cell, plan, runs),
    )


def score_outside(test: CellSpec, plan: Plan, runs: Runs, tick: Tick) -> OutOfScope:
    """Every contender on the test rows together with the texts out of scope; the scope is read off the plain model."""
    cell, how = replace(test, outside=plan.outside_name), plan.resampling
    (job, *_), outside = runs.jobs(_of(cell, plan.contenders[0])), replace(test, on=plan.outside_name)
    others = runs.predictions(job.over(plan.outside_name)).provenance
    finding = dict(panel(cell, plan.contenders, {name: f"oos-{name}" for name in DETECTION}))
    areas = {"confidence_aurc": "{}-aurc"}
    try:
        _, note = scope_of(job, runs)
        areas |= {"scope_aurc": "{}-aurc+scope", "scope_change": "{}-aurc-change"}
        finding |= {(_SCOPE, name): replace(cell, measure=f"scope-{name}") for name in DETECTION}
    except CalibrationError as error:
        note = f"no scope: {str(error).rstrip('.')}"
    inside, mixture = (
        panel(cell, plan.contenders, {name: area.format(rows) for name, area in areas.items()})
        for rows in ("inside", "mixture")
    )
    return OutOfScope(
        name=others.set_name,
        source=others.source,
        rows=others.rows,
        in_scope_rows=int(labelled_in_scope(runs.predictions(job)).sum()),
        note=note,
        detection=scores(finding, runs, how, tick),
        in_scope=scores(inside, runs, how, tick),
        mixture=scores(mixture, runs, how, tick),
        runs=_keys(outside, plan, runs),
    )


def panel(cell: CellSpec, contenders: Sequence[Contender], columns: Mapping[str, str]) -> _Panel:
    """Contenders down, measures across; `columns` says what each measure is called."""
    return {
        (contender.name, name): replace(cell, contender=contender, measure=measure)
        for contender in contenders
        for name, measure in columns.items()
    }


def scores(cells: _Panel, runs: Runs, how: Resampling, tick: Tick = lambda share: None) -> Scores:
    """A panel, measured and compared column by column."""
    numbers = measure(cells.values(), runs, how, tick=tick)
    rows = list(dict.fromkeys(name for name, _ in cells))
    columns = {
        metric: scores_of({name: numbers[cells[name, metric]] for name in rows}, DIRECTIONS[metric])
        for metric in dict.fromkeys(metric for _, metric in cells)
    }
    return {name: {metric: column[name] for metric, column in columns.items()} for name in rows}


def _keys(cell: CellSpec, plan: Plan, runs: Runs) -> dict[str, tuple[str, ...]]:
    """Method -> the names of its runs in the store, one for each seed."""
    if plan.several:
        return {}
    return {contender.method.name: runs.keys(runs.jobs(_of(cell, contender))) for contender in plan.contenders}


def _about(contender: Contender, test: CellSpec, runs: Runs) -> dict[str, object]:
    cell = _of(test, contender)
    cost, seconds = runs.cost(cell)
    return {
        "method": method_to_dict(contender.method),
        "model": runs.source.load(runs.jobs(cell)[0].model).name,
        "calibrator": contender.calibrator,
        "cost": cost,
        "seeds": len(runs.jobs(cell)),
        "seconds_per_text": seconds,
    }
