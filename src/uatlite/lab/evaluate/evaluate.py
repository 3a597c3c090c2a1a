"""A whole evaluation: panels of contenders and metrics, set by set, filled from the store and compared.

The panels of a set are its metrics, calibration under the shift from the first set, and finding rows out of scope.
With texts out of scope there are three more: finding them, and abstention without them and with them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from uatlite.codec import dump
from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.answer_runs import AnswerRuns, GivenProduct
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Scores, Tick, scores_of
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.models import GivenModels, sets_of
from uatlite.lab.evaluate.outcomes import DIRECTIONS, PromiseCheck
from uatlite.lab.evaluate.plan import CALIBRATION, Plan
from uatlite.lab.evaluate.predict import PACKAGES
from uatlite.lab.evaluate.results import Answers, OutOfScope, Results, SetScores
from uatlite.lab.evaluate.runs import Job, NoProgress, Progress, Remote, Runs, nothing
from uatlite.lab.evaluate.scope import labelled_in_scope, scope_jobs, scope_of
from uatlite.lab.evaluate.store import Store
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.model.load import Checkpoint

_SCOPE = "scope"
"""The scope's row beside the contenders."""
_Cells = Mapping[tuple[str, str], CellSpec]
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
    progress, one_class = progress or NoProgress(), not plan.several
    source: GivenProduct | GivenModels
    if isinstance(models, GivenProduct):
        source = models
    else:
        source = GivenModels([models] if isinstance(models, Checkpoint) else models, plan)
    runs = AnswerRuns(source, store, remote) if isinstance(source, GivenProduct) else Runs(source, store, remote)
    evaluation, sets = _Evaluation(plan, runs), sets_of(plan)
    jobs = jobs_of(plan, runs)
    progress.begin("predicting", sum(map(runs.work, jobs)))
    runs.compute(jobs, progress)
    cells = {contender.name: replace(sets[0], contender=contender) for contender in plan.contenders}
    calibrators = {name: runs.calibrators(cell) for name, cell in cells.items() if one_class}
    progress.begin("scoring", len(sets))
    scored = []
    for cell in sets:
        progress.step(runs.jobs(cell)[0].set_name)
        scored.append(evaluation.score_set(cell, sets[0], progress.advance))
    promises: tuple[PromiseCheck, ...] = ()
    answers: Answers = {}
    if isinstance(runs, AnswerRuns):
        contended = [replace(cell, contender=contender) for cell in sets for contender in plan.contenders]
        promises = tuple(check for cell in contended for check in runs.promises(cell, plan.resampling))
        answers = runs.answers(contended)
    outside = None
    if plan.out_of_scope is not None:
        progress.begin("scoring with texts out of scope", 3)
        outside = evaluation.score_outside(sets[0], progress.advance)
    return Results(
        model=source.name,
        model_hash=source.hash,
        contenders=tuple(cells),
        methods={name: evaluation.about(cell) for name, cell in cells.items()},
        metrics=plan.scored,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(dump(calibrator, kind=EvaluatedCalibrator) for calibrator in seeds if calibrator is not None)
            for name, seeds in calibrators.items()
        },
        versions={package: version(package) for package in PACKAGES},
        out_of_scope=outside,
        texts=tuple(runs.dataset(jobs[0]).examples) if one_class else (),
        calibration_runs=evaluation.keys(calibration_of(sets[0])) if plan.calibrates else {},
        suggested=plan.suggested,
        kind="one" if one_class else plan.test.task.kind,
        promises=promises,
        answers=answers,
    )


def calibration_of(test: CellSpec) -> CellSpec:
    """The calibration rows of the task under test."""
    return replace(test, on=f"{test.task}/{CALIBRATION}")


def jobs_of(plan: Plan, runs: Runs) -> list[Job]:
    """Every method with every set and seed, and what tells what is in scope."""
    sets = sets_of(plan)
    test = sets[0]
    if plan.out_of_scope is not None:
        sets.append(replace(test, on=plan.outside_name))
    if plan.calibrates and not plan.several:
        sets.append(calibration_of(test))
    jobs = [job for each in plan.contenders for cell in sets for job in runs.jobs(replace(cell, contender=each))]
    if plan.out_of_scope is not None:
        with suppress(CalibrationError):  # without a scope the results say why
            jobs += [plain for job in runs.jobs(test) for plain in scope_jobs(job, runs)]
    return list(dict.fromkeys(jobs))


@dataclass(frozen=True)
class _Evaluation:
    """A plan and its runs, from which the tables are filled."""

    plan: Plan
    runs: Runs

    def score_set(self, cell: CellSpec, first: CellSpec, tick: Tick) -> SetScores:
        """Every contender on a set; each set after the first is also scored as a shift of the first."""
        plan, usual = self.plan, replace(cell, contender=self.plan.contenders[0])
        tables = {"scores": plan.scored}
        if not plan.several:
            flags = self.runs.outcomes(usual)[0].out_of_scope
            # where texts out of scope were given and are of the same rows, these have tables of their own
            apart = cell == first and plan.out_of_scope == plan.test
            if cell != first:
                tables["shift"] = tuple(SHIFT)
            if flags is not None and flags.any() and not flags.all() and not apart:
                tables["detection"] = tuple(DETECTION)
        scored: dict[str, Any] = {
            table: self.scores(self.panel(cell, {name: name for name in names}), tick if table == "scores" else nothing)
            for table, names in tables.items()
        }
        return SetScores(**vars(self.runs.facts(usual)), **scored, runs=self.keys(cell))

    def score_outside(self, test: CellSpec, tick: Tick) -> OutOfScope:
        """Every contender on the test rows together with the texts out of scope; the plain model says what is in it."""
        plan, runs, cell = self.plan, self.runs, replace(test, outside=self.plan.outside_name)
        job = runs.jobs(replace(cell, contender=plan.contenders[0]))[0]
        others = runs.predictions(job.over(plan.outside_name)).provenance
        finding = self.panel(cell, {name: f"oos-{name}" for name in DETECTION})
        areas = {"confidence_aurc": "{}-aurc"}
        try:
            _, note = scope_of(job, runs)
            areas |= {"scope_aurc": "{}-aurc+scope", "scope_change": "{}-aurc-change"}
            finding |= {(_SCOPE, name): replace(cell, measure=f"scope-{name}") for name in DETECTION}
        except CalibrationError as error:
            note = f"no scope: {str(error).rstrip('.')}"
        inside, mixture = (
            self.panel(cell, {name: area.format(rows) for name, area in areas.items()})
            for rows in ("inside", "mixture")
        )
        return OutOfScope(
            name=others.set_name,
            source=others.source,
            rows=others.rows,
            in_scope_rows=int(labelled_in_scope(runs.predictions(job)).sum()),
            note=note,
            detection=self.scores(finding, tick),
            in_scope=self.scores(inside, tick),
            mixture=self.scores(mixture, tick),
            runs=self.keys(replace(test, on=plan.outside_name)),
        )

    def panel(self, cell: CellSpec, columns: Mapping[str, str]) -> dict[tuple[str, str], CellSpec]:
        """Contenders down, metrics across; `columns` says by which measure each metric is measured."""
        return {
            (contender.name, name): replace(cell, contender=contender, measure=measure)
            for contender in self.plan.contenders
            for name, measure in columns.items()
        }

    def scores(self, cells: _Cells, tick: Tick) -> Scores:
        """A panel, measured and compared column by column."""
        numbers = measure(cells.values(), self.runs, self.plan.resampling, tick=tick)
        rows, metrics = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
        columns = {
            metric: scores_of({name: numbers[cells[name, metric]] for name in rows}, DIRECTIONS[metric])
            for metric in metrics
        }
        return {name: {metric: column[name] for metric, column in columns.items()} for name in rows}

    def keys(self, cell: CellSpec) -> dict[str, tuple[str, ...]]:
        """Method -> the names of its runs in the store, one for each seed."""
        of_method = {contender.method.name: replace(cell, contender=contender) for contender in self.plan.contenders}
        return {} if self.plan.several else {name: self.runs.keys(self.runs.jobs(c)) for name, c in of_method.items()}

    def about(self, cell: CellSpec) -> dict[str, object]:
        """The method of a cell's contender, and what it costs."""
        contender, jobs = cell.contender, self.runs.jobs(cell)
        cost, seconds = self.runs.cost(cell)
        return {
            "method": method_to_dict(contender.method),
            "model": self.runs.source.load(jobs[0].model).name,
            "calibrator": contender.calibrator,
            "cost": cost,
            "seeds": len(jobs),
            "seconds_per_text": seconds,
        }
