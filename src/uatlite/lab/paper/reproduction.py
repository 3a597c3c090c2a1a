"""From names of tables to filled ones. Missing data are found first; a model or prediction is computed only once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Protocol

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.plan import inventory, parse_contender, parse_set
from uatlite.lab.evaluate.suite import ProgressDisplay
from uatlite.lab.paper.artifacts import UNAVAILABLE, Artifacts, PredictionJob
from uatlite.lab.paper.claims import UNKNOWN, Verdict, judge
from uatlite.lab.paper.declaration import CellSpec, Declaration, find_declaration, substitute_backbones
from uatlite.lab.paper.grid import Grid, Reasons, fill, measure_of
from uatlite.lab.paper.models import FineTuning
from uatlite.lab.paper.scores import Learning, learning_of, learning_spec
from uatlite.methods.sampling import BASE
from uatlite.model.load import backbone_directory
from uatlite.text.hub import UNREACHED, hub_was_missed
from uatlite.text.tasks import data_directory

PACKAGES = {"matplotlib": "report", "jinja2": "report", "accelerate": "train", "pyarrow": "data"}
"""package -> the extra that installs it"""


class ReproductionDisplay(ProgressDisplay, Protocol):
    """Shows the progress of a reproduction: each table is a stage. A unit of work is a pass over one sequence."""

    def say(self, line: str) -> None:
        """Print a line that stays."""

    def begin_all(self, total: float) -> None:
        """Set how many units of work all tables have together."""


@dataclass(frozen=True)
class Reproduction:
    """One table or figure with its cells and verdicts."""

    declaration: Declaration
    grids: tuple[Grid, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]

    @property
    def reasons(self) -> list[str]:
        """Why cells are empty."""
        return list(dict.fromkeys(reason for grid in self.grids for reason in grid.reasons))

    @property
    def skipped(self) -> bool:
        """Whether all cells are empty."""
        return not any(grid.filled for grid in self.grids)

    @property
    def shown(self) -> list[Grid]:
        """The panels that have something to show."""
        return [grid for grid in self.grids if not grid.blank]

    @property
    def answered(self) -> list[Verdict]:
        """What the paper claims, and those questions of ours that were run."""
        return [verdict for verdict in self.verdicts if not (verdict.ours and verdict.outcome == UNKNOWN)]


def reproduce(names: Sequence[str], artifacts: Artifacts, display: ReproductionDisplay) -> Iterator[Reproduction]:
    """Each table in turn, as soon as it is filled. A directory that was given and is not there is an error at once."""
    data_directory(artifacts.settings.data_dir)
    substitutes = artifacts.settings.substitutes
    for backbone in substitutes:
        backbone_directory(backbone)
    declarations = [substitute_backbones(find_declaration(name), substitutes) for name in names]
    display.step("reading the data")
    missing = _missing(declarations, artifacts)
    for line in _rows_at_hand(declarations, artifacts, missing):
        display.say(line)
    reasons: dict[CellSpec, str | Learning] = {**missing}
    parts = _new_work(declarations, artifacts, reasons)
    done, failed = 0.0, dict[FineTuning, str]()
    if artifacts.settings.learned_only:
        plain = _plain_work(parts)
        done = plain.amount(artifacts)
        display.begin_all(done + sum(part.amount(artifacts) for part in parts))
        display.begin("plain models", done)
        _compute(plain, artifacts, display, failed)
        reasons.update(_unlearned(declarations, artifacts, reasons, failed))
        parts = _new_work(declarations, artifacts, reasons)
    display.begin_all(done + sum(part.amount(artifacts) for part in parts))
    for declaration, part in zip(declarations, parts, strict=True):
        display.begin(declaration.name, part.amount(artifacts))
        _compute(part, artifacts, display, failed)
        for spec in [spec for spec in declaration.specs() if spec not in reasons]:
            reasons.update((spec, failed[fit]) for fit in _fits_of(spec, artifacts) if fit in failed)
        display.step(f"measuring {declaration.name}")
        grids = fill(declaration, artifacts, reasons)
        known = [spec for spec in declaration.specs() if spec not in reasons]
        notes = (*declaration.notes, *_row_notes(known, artifacts))
        yield Reproduction(declaration, tuple(grids), tuple(judge(declaration, grids)), notes)


@dataclass(frozen=True)
class _Work:
    """The models and predictions that a table needs and no earlier table has."""

    fits: tuple[FineTuning, ...]
    jobs: tuple[PredictionJob, ...]

    def amount(self, artifacts: Artifacts) -> float:
        """In passes over a sequence."""
        return sum(map(artifacts.models.work, self.fits)) + sum(map(artifacts.work, self.jobs))


def _plain_work(parts: Sequence[_Work]) -> _Work:
    """The plain models that predict something by themselves, and that in one pass: it shows what was learned."""
    jobs = tuple(job for part in parts for job in part.jobs if _is_plain(job))
    asked = {job.fit for job in jobs}
    return _Work(tuple(fit for part in parts for fit in part.fits if fit in asked), jobs)


def _is_plain(job: PredictionJob) -> bool:
    return job.fit == job.fit.plain and job.method == BASE.name


def _missing(declarations: Sequence[Declaration], artifacts: Artifacts) -> dict[CellSpec, str]:
    """The cells that cannot be computed, and why; each set is read once."""
    reasons: dict[CellSpec, str] = {}
    known: dict[tuple[str, str | None, str], str | None] = {}
    for spec in (spec for declaration in declarations for spec in declaration.specs()):
        key = (spec.task, spec.on, spec.contender)
        if key not in known:
            known[key] = _reason(spec, artifacts)
        reason = known[key]
        if reason is not None:
            reasons[spec] = reason
    return reasons


def _reason(spec: CellSpec, artifacts: Artifacts) -> str | None:
    """Why a cell cannot be computed, found by reading its rows; None where it can."""
    asked = artifacts.settings.tasks
    if asked and spec.task not in asked:
        return f"models of {spec.task} are left out: only those of {', '.join(asked)} are asked for (--tasks)"
    try:
        contender = parse_contender(spec.contender)
    except ConfigurationError as error:
        return f"needs the method {spec.contender}: {error}"
    try:
        artifacts.datasets.find(spec.set_name)
        artifacts.datasets.find(spec.task)  # whether the model has learned its task is measured on these rows
        task = artifacts.datasets.task(spec.task)
        _ = task.train, task.calibration if contender.fitted else None
    except UNAVAILABLE as error:
        return f"needs {spec.set_name}: {error}"
    return None


def _rows_at_hand(
    declarations: Sequence[Declaration], artifacts: Artifacts, reasons: Mapping[CellSpec, str]
) -> Iterator[str]:
    """Which rows a run has and which it lacks, a line each; said before anything is trained."""
    if hub_was_missed():
        yield UNREACHED
    specs = [spec for declaration in declarations for spec in declaration.specs()]
    yield from _row_notes([spec for spec in specs if spec not in reasons], artifacts)
    empty: dict[str, Counter[str]] = {}
    for declaration in declarations:
        for spec in declaration.specs():
            if spec in reasons:
                empty.setdefault(reasons[spec], Counter())[declaration.name] += 1
    for reason, tables in empty.items():
        cells = ", ".join(f"{count} cells of {name}" for name, count in tables.items())
        yield f"missing: {cells}: {reason}"


def _new_work(declarations: Sequence[Declaration], artifacts: Artifacts, reasons: Reasons) -> list[_Work]:
    fits: set[FineTuning] = set()
    jobs: set[PredictionJob] = set()
    parts = []
    for declaration in declarations:
        specs = [spec for spec in declaration.specs() if spec not in reasons]
        needed_fits = dict.fromkeys(fit for spec in specs for fit in _fits_of(spec, artifacts))
        needed_jobs = dict.fromkeys(job for spec in specs for job in _jobs_of(spec, artifacts))
        new_jobs = sorted((job for job in needed_jobs if job not in jobs), key=_order)
        parts.append(_Work(tuple(fit for fit in needed_fits if fit not in fits), tuple(new_jobs)))
        fits.update(needed_fits)
        jobs.update(needed_jobs)
    return parts


def _fits_of(spec: CellSpec, artifacts: Artifacts) -> list[FineTuning]:
    """The models of a cell after those that they are made of, and the plain ones that show what was learned."""
    plain = artifacts.fine_tunings(learning_spec(spec)) if measure_of(spec.measure).of_learning else []
    return [*plain, *(one for fit in artifacts.fine_tunings(spec) for one in (*fit.members, fit))]


def _jobs_of(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """The predictions of a cell, and those that show whether the task was learned."""
    measure = measure_of(spec.measure)
    plain = artifacts.jobs(learning_spec(spec)) if measure.of_learning else []
    return [*plain, *measure.jobs(spec, artifacts)]


def _unlearned(
    declarations: Sequence[Declaration], artifacts: Artifacts, reasons: Reasons, failed: dict[FineTuning, str]
) -> dict[CellSpec, Learning]:
    """The cells that need more than one pass of a plain model that has not learned its task."""
    found: dict[CellSpec, Learning] = {}
    specs = (spec for declaration in declarations for spec in declaration.specs())
    for spec in (spec for spec in specs if spec not in reasons):
        if not measure_of(spec.measure).of_learning or any(fit in failed for fit in _fits_of(spec, artifacts)):
            continue
        jobs = measure_of(spec.measure).jobs(spec, artifacts)
        if jobs and all(map(_is_plain, jobs)):
            continue
        learning = learning_of(spec, artifacts)
        if not learning.learned:
            found[spec] = learning
    return found


def _order(job: PredictionJob) -> tuple[str, ...]:
    """Jobs of one model together, and of one set within it, so that each is loaded once."""
    fit = job.fit
    return fit.task, fit.method, str(fit.seed), fit.backbone, job.on, str(job.perturbation), str(job.scale), job.method


def _compute(work: _Work, artifacts: Artifacts, display: ReproductionDisplay, failed: dict[FineTuning, str]) -> None:
    """Train the models and predict; a model that cannot be trained is added to `failed` with the reason."""
    if work.fits:
        display.step(f"fine-tuning {len(work.fits)} models")
        artifacts.fine_tune_remotely(work.fits)
    for fit in work.fits:
        display.step(f"fine-tuning {fit.title}")
        try:
            artifacts.models.fine_tune(fit, display.advance)
        except UNAVAILABLE as error:
            failed[fit] = f"needs {fit.title}: {error}"
            display.advance(artifacts.models.work(fit))
    for fit, group in groupby(work.jobs, key=lambda job: job.fit):
        jobs = list(group)
        if fit in failed:
            display.advance(sum(map(artifacts.work, jobs)))
            continue
        display.step(f"predicting with {fit.title}")
        artifacts.predict_remotely(jobs)
        for job in jobs:
            display.step(f"predicting {job.title}")
            artifacts.predict(job, display.advance)


def _row_notes(specs: Iterable[CellSpec], artifacts: Artifacts) -> list[str]:
    """Where the training rows and the test rows of some cells came from, and where they are fewer than asked for."""
    trained: dict[str, str] = {}
    tested: dict[str, str] = {}
    limit = artifacts.settings.limit
    for spec in specs:
        if spec.set_name in tested and spec.task in trained:
            continue
        trained[spec.task] = artifacts.datasets.task(spec.task).note
        dataset = artifacts.datasets.find(spec.set_name)
        fewer = f", fewer than the {limit:,} asked for" if limit is not None and len(dataset) < limit else ""
        tested[spec.set_name] = f"{spec.set_name}: tested on {len(dataset):,} rows of {dataset.source}{fewer}"
    return [*trained.values(), *tested.values()]


def requirements(declaration: Declaration, data_dir: Path | None) -> str:
    """The data, backbones and missing packages of a table, one per line, for the list of tables; nothing is read."""
    specs = list(declaration.specs())
    sets = [parse_set(spec.on).task.name for spec in specs if spec.on is not None]
    sources = {task.name: splits.get("test", "–") for task, splits in inventory(data_dir)}
    lines = [f"{task}: {sources[task]}" for task in dict.fromkeys([*(spec.task for spec in specs), *sets])]
    backbones = dict.fromkeys(spec.backbone for spec in specs if spec.backbone is not None)
    if backbones:
        lines.append(f"backbones: {', '.join(backbones)}, or --backbone and --other")
    for package, extra in PACKAGES.items():
        if find_spec(package) is None:
            lines.append(f"not installed, {package}: pip install 'uatlite[{extra}]'")
    return "\n".join(lines)
