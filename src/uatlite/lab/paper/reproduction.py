"""What a declaration needs, and whether it is there: data, methods, packages.

The runner: from names of tables to filled ones, sharing every model and every prediction between them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Protocol

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.contenders import parse_contender
from uatlite.lab.evaluate.plan import inventory, parse_set
from uatlite.lab.evaluate.suite import ProgressDisplay
from uatlite.lab.paper.claims import Verdict, judge
from uatlite.lab.paper.declaration import Ask, Declaration, adapt, declared
from uatlite.lab.paper.grid import CANNOT, Grid, fill, measure_of
from uatlite.lab.paper.models import Fit, PaperJob, Workshop

PACKAGES = {"matplotlib": "report", "jinja2": "report", "accelerate": "train", "pyarrow": "data"}
"""package -> the extra that brings it"""


def needs_of(declaration: Declaration, data_dir: Path | None) -> str:
    """What it needs, in words, and where that would come from; what is not there is said so."""
    where = places(data_dir)
    lines = [f"{task}: {where[task]}" for task in tasks_of(declaration)]
    backbones = backbones_of(declaration)
    if backbones:
        lines.append(f"backbones: {', '.join(backbones)}, or --backbone and --other")
    missing = [f"{package}: pip install 'uatlite[{extra}]'" for package, extra in PACKAGES.items() if not _has(package)]
    return "\n".join([*lines, *(f"not installed, {one}" for one in missing)])


def _has(package: str) -> bool:
    return find_spec(package) is not None


def tasks_of(declaration: Declaration) -> list[str]:
    """The tasks that a declaration trains and tests on, in its order."""
    asks = [ask for _, _, _, ask in declaration.asks()]
    sets = [parse_set(ask.on).task.name for ask in asks if ask.on is not None]
    return list(dict.fromkeys([*(ask.task for ask in asks), *sets]))


def backbones_of(declaration: Declaration) -> list[str]:
    """The backbones that it names beside that of every table."""
    return list(dict.fromkeys(ask.backbone for _, _, _, ask in declaration.asks() if ask.backbone is not None))


def contender_reason(ask: Ask) -> str | None:
    try:
        parse_contender(ask.contender)
    except ConfigurationError as error:
        return f"needs the method {ask.contender}: {error}"
    return None


def places(data_dir: Path | None) -> dict[str, str]:
    """task -> where its test rows would come from, in words; nothing is read."""
    return {task.name: splits.get("test", "–") for task, splits in inventory(data_dir)}


def reason_against(ask: Ask, workshop: Workshop) -> str | None:
    """Why a cell cannot be had, found out by reading its rows; None where it can."""
    reason = contender_reason(ask)
    if reason is not None:
        return reason
    supplies = workshop.supplies
    try:
        supplies.at(ask.on or ask.task)
        _ = supplies.of(ask.task).train
        if parse_contender(ask.contender).calibrated:
            _ = supplies.of(ask.task).calibration
    except CANNOT as error:
        return f"needs {ask.on or ask.task}: {error}"
    return None


def notes_on_rows(asks: Iterable[Ask], workshop: Workshop) -> list[str]:
    """Where the rows of some cells came from, of training and of test."""
    trained: dict[str, str] = {}
    tested: dict[str, str] = {}
    for ask in asks:
        trained[ask.task] = workshop.supplies.of(ask.task).note
        name = ask.on or ask.task
        dataset = workshop.supplies.at(name)
        tested[name] = f"{name}: tested on {len(dataset):,} rows of {dataset.source}"
    return [*trained.values(), *tested.values()]


class ReproductionDisplay(ProgressDisplay, Protocol):
    """Shows the progress of a reproduction: each table is a stage. A unit of work is a pass over one sequence."""

    def begin_all(self, total: float) -> None:
        """Set how many units of work all tables have together."""


@dataclass(frozen=True)
class Reproduction:
    """One table or figure, filled."""

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
        """Whether nothing of it could be had."""
        return all(grid.empty for grid in self.grids)


def reproduce(names: Sequence[str], workshop: Workshop, display: ReproductionDisplay) -> Iterator[Reproduction]:
    """Each table in turn, as soon as it is filled."""
    declarations = [adapt(declared(name), workshop.settings) for name in names]
    display.step("reading the data")
    reasons = _reasons(declarations, workshop)
    parts = _parts(declarations, workshop, reasons)
    display.begin_all(sum(_work(part, workshop) for part in parts))
    failed: dict[Fit, str] = {}
    for declaration, part in zip(declarations, parts, strict=True):
        display.begin(declaration.name, _work(part, workshop))
        _work_through(part, workshop, display, failed)
        lost = {ask: failed[fit] for ask, fit in _fits_of(declaration, workshop, reasons) if fit in failed}
        yield _filled(declaration, workshop, {**reasons, **lost}, display)


@dataclass(frozen=True)
class _Part:
    """What a declaration has to have made, less what an earlier one does."""

    fits: tuple[Fit, ...]
    jobs: tuple[PaperJob, ...]


def _reasons(declarations: Sequence[Declaration], workshop: Workshop) -> dict[Ask, str]:
    """The cells that cannot be had, and why; each set is looked for once."""
    found: dict[Ask, str] = {}
    known: dict[tuple[str, str | None, str], str | None] = {}
    for declaration in declarations:
        for _, _, _, ask in declaration.asks():
            key = (ask.task, ask.on, ask.contender)
            if key not in known:
                known[key] = reason_against(ask, workshop)
            reason = known[key]
            if reason is not None:
                found[ask] = reason
    return found


def _parts(declarations: Sequence[Declaration], workshop: Workshop, reasons: dict[Ask, str]) -> list[_Part]:
    fits: set[Fit] = set()
    jobs: set[PaperJob] = set()
    parts = []
    for declaration in declarations:
        asks = [ask for _, _, _, ask in declaration.asks() if ask not in reasons]
        own_fits = dict.fromkeys(fit for ask in asks for fit in workshop.fits(ask))
        own_jobs = dict.fromkeys(job for ask in asks for job in measure_of(ask.measure).jobs(ask, workshop))
        new_fits = [fit for fit in own_fits if fit not in fits]
        new_jobs = [job for job in own_jobs if job not in jobs]
        fits.update(new_fits)
        jobs.update(new_jobs)
        parts.append(_Part(tuple(new_fits), tuple(sorted(new_jobs, key=_order))))
    return parts


def _order(job: PaperJob) -> tuple[str, ...]:
    """Jobs of one model together, and of one set within it, so that each is loaded once."""
    fit = job.fit
    return fit.task, fit.method, str(fit.seed), fit.backbone, job.on, str(job.perturbation), str(job.scale), job.method


def _work(part: _Part, workshop: Workshop) -> float:
    return sum(map(workshop.work_of_fit, part.fits)) + sum(map(workshop.work_of_job, part.jobs))


def _work_through(part: _Part, workshop: Workshop, display: ReproductionDisplay, failed: dict[Fit, str]) -> None:
    """Make the models and predictions of a part; a model that cannot be made is noted with the reason."""
    for fit in part.fits:
        display.step(f"fine-tuning {fit.title}")
        try:
            workshop.fit(fit, display)
        except CANNOT as error:
            failed[fit] = f"needs {fit.title}: {error}"
            display.advance(workshop.work_of_fit(fit))
    for fit, jobs in groupby(part.jobs, key=lambda job: job.fit):
        own = list(jobs)
        if fit in failed:
            display.advance(sum(map(workshop.work_of_job, own)))
            continue
        display.step(f"predicting with {fit.title}")
        workshop.predict_elsewhere(own)
        for job in own:
            display.step(f"predicting {job.title}")
            workshop.predict(job, display)


def _fits_of(declaration: Declaration, workshop: Workshop, reasons: dict[Ask, str]) -> Iterator[tuple[Ask, Fit]]:
    for _, _, _, ask in declaration.asks():
        if ask not in reasons:
            for fit in workshop.fits(ask):
                yield ask, fit


def _filled(
    declaration: Declaration, workshop: Workshop, reasons: dict[Ask, str], display: ReproductionDisplay
) -> Reproduction:
    display.step(f"measuring {declaration.name}")
    grids = fill(declaration, workshop, reasons)
    asks = (ask for _, _, _, ask in declaration.asks() if ask not in reasons)
    notes = [*declaration.notes, *notes_on_rows(asks, workshop)]
    return Reproduction(declaration, tuple(grids), tuple(judge(declaration, grids)), tuple(notes))
