"""A whole evaluation: panels of contenders and metrics, set by set, filled from the store and compared.

The panels of a set are its metrics, calibration under the shift from the first set, and finding rows out of scope.
With texts out of scope there are three more: finding them, and abstention without them and with them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version

from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.answer_runs import AnswerRuns
from uatlite.lab.evaluate.baseline_calibrators import EvaluatedCalibrator
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.comparison import Scores, Tick, scores_of
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.models import GivenModels, Job, sets_of
from uatlite.lab.evaluate.plan import Plan
from uatlite.lab.evaluate.results import OutOfScope, Results, SetScores
from uatlite.lab.evaluate.runs import PACKAGES, Progress, Remote, Runs, nothing
from uatlite.lab.evaluate.scope import labelled_in_scope, scope_jobs, scope_of
from uatlite.lab.evaluate.store import Store
from uatlite.methods.registry import method_to_dict
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import SCALES
from uatlite.model.load import Checkpoint


class Silent:
    """Progress that is not shown."""

    def begin(self, stage: str, total: float) -> None: ...

    def step(self, what: str) -> None: ...

    def advance(self, amount: float) -> None: ...


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
    progress = progress or Silent()
    source = GivenModels([models] if isinstance(models, Checkpoint) else models, plan)
    runs = AnswerRuns(source, store, remote) if plan.several else Runs(source, store, remote)
    evaluation, sets = _Evaluation(plan, runs), sets_of(plan)
    jobs = jobs_of(plan, runs)
    progress.begin("predicting", sum(map(runs.work, jobs)))
    runs.compute(jobs, progress)
    cells = evaluation.contended(sets[0])
    calibrators = {} if plan.several else {name: runs.calibrators(cell) for name, cell in cells.items()}
    progress.begin("scoring", len(sets))
    scored = []
    for cell in sets:
        progress.step(runs.jobs(cell)[0].set_name)
        scored.append(evaluation.score_set(cell, sets[0], progress.advance))
    outside = None
    if plan.out_of_scope is not None:
        progress.begin("scoring with texts out of scope", 3)
        outside = evaluation.score_outside(sets[0], progress.advance)
    results = Results(
        model=source.name,
        model_hash=source.plain.hash,
        contenders=tuple(cells),
        methods={name: evaluation.about(cell) for name, cell in cells.items()},
        metrics=plan.scored,
        resampling=plan.resampling,
        sets=tuple(scored),
        calibrators={
            name: tuple(each for each in seeds if isinstance(each, EvaluatedCalibrator))
            for name, seeds in calibrators.items()
        },
        versions={package: version(package) for package in PACKAGES},
        date=date.today().isoformat(),
        out_of_scope=outside,
        calibration_runs=evaluation.keys(sets[0], runs.calibration_jobs) if plan.calibrates else {},
        suggested=plan.suggested,
    )
    if not isinstance(runs, AnswerRuns):
        return replace(results, texts=tuple(runs.dataset(jobs[0]).examples))
    contended = [cell for each in sets for cell in evaluation.contended(each).values()]
    promises = tuple(check for cell in contended for check in runs.promises(cell, plan.resampling))
    return replace(results, kind=plan.test.task.kind, promises=promises)


def jobs_of(plan: Plan, runs: Runs) -> list[Job]:
    """Every method with every set and seed, and what tells what is in scope."""
    sets = sets_of(plan)
    test = sets[0]
    if plan.out_of_scope is not None:
        sets.append(replace(test, on=plan.outside_name))
    jobs = []
    for contender in plan.contenders:
        jobs += [job for cell in sets for job in runs.jobs(replace(cell, contender=contender))]
        if plan.calibrates:
            jobs += runs.calibration_jobs(replace(test, contender=contender))
    if plan.out_of_scope is not None:
        with suppress(CalibrationError):  # without a scope the results say why
            jobs += [plain for job in runs.jobs(test) for plain in scope_jobs(job, runs)]
    return list(dict.fromkeys(jobs))


@dataclass(frozen=True)
class _Evaluation:
    """A plan and its runs, from which the tables are filled."""

    plan: Plan
    runs: Runs

    def contended(self, cell: CellSpec) -> dict[str, CellSpec]:
        """A cell for each contender, by its name."""
        return {contender.name: replace(cell, contender=contender) for contender in self.plan.contenders}

    def score_set(self, cell: CellSpec, first: CellSpec, tick: Tick) -> SetScores:
        """Every contender on a set; each set after the first is also scored as a shift of the first."""
        plan, usual = self.plan, replace(cell, contender=self.plan.contenders[0])
        scored = replace(self.runs.facts(usual), scores=self.scores(cell, plan.scored, tick=tick), runs=self.keys(cell))
        if plan.several:
            return scored
        if cell != first:
            scored = replace(scored, shift=self.scores(cell, SHIFT))
        flags = self.runs.outcomes(usual)[0].out_of_scope
        # where texts out of scope were given and are of the same rows, these have tables of their own
        apart = cell == first and plan.out_of_scope == plan.test
        if flags is not None and flags.any() and not flags.all() and not apart:
            scored = replace(scored, detection=self.scores(cell, DETECTION))
        return scored

    def score_outside(self, test: CellSpec, tick: Tick) -> OutOfScope:
        """Every contender on the test rows together with the texts out of scope; the plain model says what is in it."""
        plan, runs, cell = self.plan, self.runs, replace(test, outside=self.plan.outside_name)
        job = runs.jobs(replace(cell, contender=plan.contenders[0]))[0]
        others = runs.predictions(job.over(plan.outside_name)).provenance
        areas, alone = {"confidence_aurc": "aurc"}, {}
        try:
            _, note = scope_of(job, runs)
            areas |= {"scope_aurc": "aurc+scope", "scope_change": "aurc-change"}
            alone = {("scope", name): replace(cell, measure=f"scope-{name}") for name in DETECTION}
        except CalibrationError as error:
            note = f"no scope: {str(error).rstrip('.')}"
        detection = self.scores(cell, DETECTION, [f"oos-{name}" for name in DETECTION], tick=tick, alone=alone)
        in_scope, mixture = (
            self.scores(cell, areas, [f"{rows}-{area}" for area in areas.values()], tick=tick)
            for rows in ("inside", "mixture")
        )
        return OutOfScope(
            name=others.set_name,
            source=others.source,
            rows=others.rows,
            in_scope_rows=int(labelled_in_scope(runs.predictions(job)).sum()),
            note=note,
            detection=detection,
            in_scope=in_scope,
            mixture=mixture,
            runs=self.keys(replace(test, on=plan.outside_name)),
        )

    def scores(
        self,
        cell: CellSpec,
        metrics: Iterable[str],
        measures: Iterable[str] | None = None,
        *,
        tick: Tick = nothing,
        alone: Mapping[tuple[str, str], CellSpec] | None = None,
    ) -> Scores:
        """Contenders down, metrics across; each metric by a measure, or that of its name. `alone` are further cells."""
        columns = list(metrics)
        cells = {
            (name, metric): replace(each, measure=measured)
            for name, each in self.contended(cell).items()
            for metric, measured in zip(columns, measures or columns, strict=True)
        } | dict(alone or {})
        numbers = measure(cells.values(), self.runs, self.plan.resampling, tick=tick)
        rows = list(dict.fromkeys(name for name, _ in cells))
        compared = {
            metric: scores_of({name: numbers[cells[name, metric]] for name in rows}, SCALES[metric].better)
            for metric in columns
        }
        return {name: {metric: compared[metric][name] for metric in columns} for name in rows}

    def keys(self, cell: CellSpec, jobs: Callable[[CellSpec], list[Job]] | None = None) -> dict[str, tuple[str, ...]]:
        """Method -> the names of its runs in the store, one for each seed; of several answers a text by contender."""
        contended = self.contended(cell)
        named = contended if self.plan.several else {each.contender.method.name: each for each in contended.values()}
        return {name: self.runs.keys((jobs or self.runs.jobs)(each)) for name, each in named.items()}

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
