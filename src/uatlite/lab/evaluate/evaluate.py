"""A whole evaluation: panels of contenders and metrics, set by set, filled from the store and compared.

The panels of a set are its metrics, calibration under the shift from the first set, and finding rows out of scope.
With texts out of scope there are three more: finding them, and abstention without them and with them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from uatlite.codec import dump
from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Scores, Tick, scores_of
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.models import GivenModels
from uatlite.lab.evaluate.outcomes import DIRECTIONS
from uatlite.lab.evaluate.plan import CALIBRATION, Contender, Plan
from uatlite.lab.evaluate.results import OutOfScope, Results, SetScores
from uatlite.lab.evaluate.runs import Job, NoProgress, Progress, Remote, Runs
from uatlite.lab.evaluate.scope import in_scope, scope_jobs, scope_of
from uatlite.lab.evaluate.store import Store
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint

SCOPE = "scope"
"""The scope's row beside the contenders."""
Panel = Mapping[tuple[str, str], CellSpec]
"""(contender, metric) -> the cell"""


def evaluate(
    models: Checkpoint | Sequence[Checkpoint],
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
    source = GivenModels([models] if isinstance(models, Checkpoint) else models, plan)
    runs = Runs(source, store, remote)
    sets = sets_of(plan)
    jobs = jobs_of(plan, sets, runs)
    progress.begin("predicting", sum(map(runs.work, jobs)))
    runs.compute(jobs, progress)
    calibrators = {contender.name: runs.calibrators(_of(sets[0], contender)) for contender in plan.contenders}
    progress.begin("scoring", len(sets))
    scored = []
    for cell in sets:
        progress.step(_name(cell, runs))
        scored.append(score_set(cell, sets[0], plan, runs, progress.advance))
    outside = None
    if plan.out_of_scope is not None:
        progress.begin("scoring with texts out of scope", 3)
        outside = score_outside(sets[0], plan, runs, progress.advance)
    return Results(
        model=source.by_method.plain.name,
        model_hash=source.by_method.plain.hash,
        contenders=tuple(contender.name for contender in plan.contenders),
        methods={contender.name: _about(contender, sets[0], runs) for contender in plan.contenders},
        metrics=plan.metrics,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(dump(calibrator, kind=EvaluatedCalibrator) for calibrator in seeds if calibrator is not None)
            for name, seeds in calibrators.items()
        },
        versions=runs.predictions(jobs[0]).provenance.versions,
        out_of_scope=outside,
        texts=tuple(runs.dataset(jobs[0]).examples),
        calibration_runs=_keys(calibration_of(sets[0]), plan, runs) if plan.calibrates else {},
        suggested=plan.suggested,
    )


def sets_of(plan: Plan) -> list[CellSpec]:
    """The sets of a plan, as cells without a measure: the test set, perturbed test sets, shifts."""
    test = CellSpec(measure="", task=plan.test.task.name, on=plan.test.name, home=plan.test.name)
    perturbed = [replace(test, perturbation=perturbation) for perturbation in plan.perturbations]
    return [test, *perturbed, *(replace(test, on=choice.name) for choice in plan.shifts)]


def calibration_of(test: CellSpec) -> CellSpec:
    """The calibration rows of the task under test."""
    return replace(test, on=f"{test.task}/{CALIBRATION}")


def jobs_of(plan: Plan, sets: Sequence[CellSpec], runs: Runs) -> list[Job]:
    """Every method with every set and seed, and what tells what is in scope."""
    sets = list(sets)
    if plan.out_of_scope is not None:
        sets.append(replace(sets[0], on=plan.outside_name))
    if plan.calibrates:
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
    how = plan.resampling
    plain = runs.outcomes(_of(cell, plan.contenders[0]))[0]
    about = runs.predictions(runs.jobs(_of(cell, plan.contenders[0]))[0]).provenance
    rows = len(plain.labels)
    flags = plain.out_of_scope
    # where texts out of scope were given and are of the same rows, these have tables of their own
    apart = cell == first and plan.out_of_scope == plan.test
    both = flags is not None and flags.any() and not flags.all() and not apart
    return SetScores(
        name=about.set_name,
        source=about.source,
        alignment=about.alignment,
        rows=rows,
        left_out=about.rows - rows,
        truncated_texts=about.truncated_texts,
        truncated_tokens=about.truncated_tokens,
        scores=scores(panel(cell, plan.contenders, {name: name for name in plan.metrics}), runs, how, tick),
        shift={} if cell == first else scores(panel(cell, plan.contenders, {name: name for name in SHIFT}), runs, how),
        detection=scores(panel(cell, plan.contenders, {name: name for name in DETECTION}), runs, how) if both else {},
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
        note = scope_of(job, runs).describe()
        areas |= {"scope_aurc": "{}-aurc+scope", "scope_change": "{}-aurc-change"}
        finding |= {(SCOPE, name): replace(cell, measure=f"scope-{name}") for name in DETECTION}
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
        in_scope_rows=int(in_scope(runs.predictions(job)).sum()),
        note=note,
        detection=scores(finding, runs, how, tick),
        in_scope=scores(inside, runs, how, tick),
        mixture=scores(mixture, runs, how, tick),
        runs=_keys(outside, plan, runs),
    )


def panel(cell: CellSpec, contenders: Sequence[Contender], columns: Mapping[str, str]) -> Panel:
    """Contenders down, measures across; `columns` says what each measure is called."""
    return {
        (contender.name, name): replace(cell, contender=contender, measure=measure)
        for contender in contenders
        for name, measure in columns.items()
    }


def scores(cells: Panel, runs: Runs, how: Resampling, tick: Tick = lambda share: None) -> Scores:
    """A panel, measured and compared column by column."""
    numbers = measure(cells.values(), runs, how, tick=tick)
    rows = list(dict.fromkeys(name for name, _ in cells))
    columns = {
        metric: scores_of({name: numbers[cells[name, metric]] for name in rows}, DIRECTIONS[metric])
        for metric in dict.fromkeys(metric for _, metric in cells)
    }
    return {name: {metric: column[name] for metric, column in columns.items()} for name in rows}


def _name(cell: CellSpec, runs: Runs) -> str:
    return runs.jobs(cell)[0].set_name


def _keys(cell: CellSpec, plan: Plan, runs: Runs) -> dict[str, tuple[str, ...]]:
    """Method -> the names of its runs in the store, one for each seed."""
    return {contender.method.name: runs.keys(runs.jobs(_of(cell, contender))) for contender in plan.contenders}


def _about(contender: Contender, test: CellSpec, runs: Runs) -> dict[str, object]:
    jobs = runs.jobs(_of(test, contender))
    stored = [runs.predictions(job) for job in jobs]
    return {
        "method": method_to_dict(contender.method),
        "model": stored[0].provenance.model,
        "calibrator": contender.calibrator,
        "cost": float(runs.method(jobs[0]).cost),
        "seeds": len(stored),
        "seconds_per_text": sum(run.seconds for run in stored) / sum(len(run.ids) for run in stored),
    }
