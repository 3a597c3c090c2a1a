"""From names of tables to filled ones. Missing data are found first; a model or prediction is computed only once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from uatlite.lab.evaluate.cells import Cell, CellSpec, Grid, Learning, Panel
from uatlite.lab.evaluate.comparison import Measurement
from uatlite.lab.evaluate.measures import UNAVAILABLE, learning_cell, learning_of, measure
from uatlite.lab.evaluate.models import Job, Model
from uatlite.lab.evaluate.plan import inventory, parse_set
from uatlite.lab.evaluate.runs import Progress, Remote, Runs
from uatlite.lab.paper.claims import Reproduction, judge
from uatlite.lab.paper.declaration import Declaration, find_declaration, substitute_backbones
from uatlite.lab.paper.probes import paper_measure, source_of
from uatlite.lab.paper.source import FineTunedModels, members_of, title_of
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import backbone_directory
from uatlite.text.files import UNREACHED, hub_was_missed
from uatlite.text.tasks import data_directory

_PACKAGES = {"matplotlib": "report", "jinja2": "report", "accelerate": "train", "pyarrow": "data"}
"""package -> the extra that installs it"""


class ReproductionProgress(Progress, Protocol):
    """Shows the progress of a reproduction: each table is a stage. A unit of work is a pass over one sequence."""

    def say(self, line: str) -> None:
        """Print a line that stays."""

    def begin_all(self, total: float) -> None:
        """Set how many units of work all tables have together."""


_Work = list[Model | Job]
"""Models to train and predictions to compute"""


def reproduce(
    names: Sequence[str], runs: Runs, progress: ReproductionProgress, remote: Remote | None = None
) -> Iterator[Reproduction]:
    """Each table in turn, as soon as it is filled. A directory that was given and is not there is an error at once."""
    settings = source_of(runs).settings
    data_directory(settings.data_dir)
    for backbone in settings.substitutes:
        backbone_directory(backbone)
    declarations = [substitute_backbones(find_declaration(name), settings.substitutes) for name in names]
    progress.step("reading the data")
    return _Reproducer(runs, progress, remote).tables(declarations)


class _Reproducer:
    """Fills tables, and remembers what cannot be computed."""

    def __init__(self, runs: Runs, progress: ReproductionProgress, remote: Remote | None) -> None:
        self.runs, self.progress, self.remote = runs, progress, remote
        self.source = source_of(runs)
        self.reasons: dict[CellSpec, str | Learning] = {}
        """cell -> why it is not computed: a sentence, or the model that has not learned its task"""
        self.failed: dict[Model, str] = {}
        self.learning = cache(lambda cell: learning_of(cell, runs, self.source.settings.backbone_of(cell.backbone)))

    def tables(self, declarations: Sequence[Declaration]) -> Iterator[Reproduction]:
        """Each table, after all that is missing was said and all work was counted."""
        self.reasons.update(self._missing(declarations))
        for line in self._rows_at_hand(declarations):
            self.progress.say(line)
        parts, done = self._new_work(declarations), 0.0
        if self.source.settings.learned_only:
            plain = _plain_work(parts)
            done = self._amount(plain)
            self.progress.begin_all(done + sum(map(self._amount, parts)))
            self.progress.begin("plain models", done)
            self._compute(plain)
            self.reasons.update(self._unlearned(declarations))
            parts = self._new_work(declarations)
        self.progress.begin_all(done + sum(map(self._amount, parts)))
        for declaration, work in zip(declarations, parts, strict=True):
            self.progress.begin(declaration.name, self._amount(work))
            self._compute(work)
            for cell in self._open(declaration):
                self.reasons.update((cell, self.failed[fit]) for fit in self._fits(cell) if fit in self.failed)
            self.progress.step(f"measuring {declaration.name}")
            grids = tuple(self._fill(panel) for panel in declaration.panels)
            notes = (*declaration.notes, *_row_notes(self._open(declaration), self.source))
            yield Reproduction(declaration, grids, tuple(judge(declaration, grids)), notes)

    def _open(self, *declarations: Declaration) -> list[CellSpec]:
        """The cells that nothing is known to hinder."""
        return [cell for declaration in declarations for cell in declaration.specs() if cell not in self.reasons]

    # ── what is missing ────────────────────────────────────────────────────────────────────────────────────────────

    def _missing(self, declarations: Sequence[Declaration]) -> Iterator[tuple[CellSpec, str]]:
        """The cells that cannot be computed, and why; each set is read once."""
        reason_of = cache(self._reason)
        for cell in self._open(*declarations):
            if (reason := reason_of(cell.task, cell.set_name, cell.contender.fitted)) is not None:
                yield cell, reason

    def _reason(self, name: str, on: str, fitted: bool) -> str | None:
        """Why cells of a task's models on a set cannot be computed, found by reading the rows; None where they can."""
        asked, source = self.source.settings.tasks, self.source
        if asked and name not in asked:
            return f"models of {name} are left out: only those of {', '.join(asked)} are asked for (--tasks)"
        try:
            source.dataset(on)
            source.dataset(name)  # whether the model has learned its task is measured on these rows
            task = source.data(name)
            _ = task.train, task.calibration if fitted else None
        except UNAVAILABLE as error:
            return f"needs {on}: {error}"
        return None

    def _rows_at_hand(self, declarations: Sequence[Declaration]) -> Iterator[str]:
        """Which rows a run has and which it lacks, a line each; said before anything is trained."""
        if hub_was_missed():
            yield UNREACHED
        yield from _row_notes(self._open(*declarations), self.source)
        empty: dict[str | Learning, Counter[str]] = {}
        for declaration in declarations:
            for cell in declaration.specs():
                if cell in self.reasons:
                    empty.setdefault(self.reasons[cell], Counter())[declaration.name] += 1
        for reason, tables in empty.items():
            cells = ", ".join(f"{count} cells of {name}" for name, count in tables.items())
            yield f"missing: {cells}: {reason}"

    def _unlearned(self, declarations: Sequence[Declaration]) -> Iterator[tuple[CellSpec, Learning]]:
        """The cells that need more than one pass of a plain model that has not learned its task."""
        for cell in self._open(*declarations):
            measure = paper_measure(cell.measure)
            if not measure.of_learning or any(fit in self.failed for fit in self._fits(cell)):
                continue
            jobs = measure.jobs(cell, self.runs)
            if not (jobs and all(map(_is_plain, jobs))) and not self.learning(learning_cell(cell)).learned:
                yield cell, self.learning(learning_cell(cell))

    # ── models and predictions ─────────────────────────────────────────────────────────────────────────────────────

    def _new_work(self, declarations: Sequence[Declaration]) -> list[_Work]:
        """What each table needs that no earlier one has."""
        parts, seen = [], set[Model | Job]()
        for declaration in declarations:
            needed = dict.fromkeys(unit for cell in self._open(declaration) for unit in self._needs(cell))
            parts.append([unit for unit in needed if unit not in seen])
            seen.update(needed)
        return parts

    def _needs(self, cell: CellSpec) -> list[Model | Job]:
        """The models and predictions of a cell, and the predictions that show whether the task was learned."""
        measure = paper_measure(cell.measure)
        plain = self.runs.jobs(learning_cell(cell)) if measure.of_learning else []
        return [*self._fits(cell), *plain, *measure.jobs(cell, self.runs)]

    def _fits(self, cell: CellSpec) -> list[Model]:
        """The models of a cell after those that they are made of, and the plain ones that show what was learned."""
        of_learning = paper_measure(cell.measure).of_learning
        plain = self.source.fine_tunings(learning_cell(cell)) if of_learning else []
        return [*plain, *(fit for model in self.source.fine_tunings(cell) for fit in (*members_of(model), model))]

    def _amount(self, work: _Work) -> float:
        """In passes over a sequence."""
        return sum(self.source.work(unit) if isinstance(unit, Model) else self.runs.work(unit) for unit in work)

    def _compute(self, work: _Work) -> None:
        """Train the models and predict; a model that cannot be trained is added to `failed` with the reason."""
        fits = [unit for unit in work if isinstance(unit, Model)]
        jobs = sorted((unit for unit in work if isinstance(unit, Job)), key=_order)
        if fits:
            self.progress.step(f"fine-tuning {len(fits)} models")
            if self.remote is not None:
                self.source.fine_tune_on(self.remote, fits)
        for fit in fits:
            self.progress.step(f"fine-tuning {title_of(fit)}")
            try:
                self.source.fine_tune(fit, self.progress.advance)
            except UNAVAILABLE as error:
                self.failed[fit] = f"needs {title_of(fit)}: {error}"
                self.progress.advance(self.source.work(fit))
        self.progress.advance(sum(self.runs.work(job) for job in jobs if job.model in self.failed))
        self.runs.compute([job for job in jobs if job.model not in self.failed], self.progress)

    # ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self, panel: Panel) -> Grid:
        """Compute the cells of a panel, except those that have a reason why they cannot be computed."""
        cells, reasons = dict(panel.specs()), dict[CellSpec, str]()
        computed = [cell for cell in cells.values() if cell not in self.reasons]
        how = Resampling(self.source.settings.resamples, over_seeds=True)
        numbers = measure(computed, self.runs, how, named=paper_measure, reasons=reasons)
        return Grid.of(panel, {key: self._cell(cell, numbers.get(cell), reasons) for key, cell in cells.items()})

    def _cell(self, cell: CellSpec, number: Measurement | None, reasons: Mapping[CellSpec, str]) -> Cell:
        kind, reason = paper_measure(cell.measure), self.reasons.get(cell, reasons.get(cell))
        if isinstance(reason, Learning):
            return Cell(None, None, kind.decimals, f"not computed: {reason.sentence}", (reason,))
        learning = () if reason is not None or not kind.of_learning else (self.learning(learning_cell(cell)),)
        return Cell(number, None, kind.decimals, reason, learning)


def _plain_work(parts: Sequence[_Work]) -> _Work:
    """The plain models that predict something by themselves, and that in one pass: it shows what was learned."""
    units = [unit for part in parts for unit in part]
    jobs = [unit for unit in units if isinstance(unit, Job) and _is_plain(unit)]
    asked = {job.model for job in jobs}
    return [*(unit for unit in units if unit in asked), *jobs]


def _is_plain(job: Job) -> bool:
    return job.model == job.model.plain and job.method == BASE


def _order(job: Job) -> tuple[str, ...]:
    """Jobs of one model together, and of one set within it, so that each is loaded once."""
    fit = job.model
    rows = job.on, str(job.perturbation), str(job.scale)
    return fit.task, fit.method, str(fit.seed), fit.name, *rows, job.method.name


def _row_notes(cells: Iterable[CellSpec], source: FineTunedModels) -> list[str]:
    """Where the training rows and the test rows of some cells came from, and where they are fewer than asked for."""
    trained: dict[str, str] = {}
    tested: dict[str, str] = {}
    limit = source.settings.limit
    for cell in cells:
        trained[cell.task] = source.data(cell.task).note
        dataset = source.dataset(cell.set_name)
        fewer = f", fewer than the {limit:,} asked for" if limit is not None and len(dataset) < limit else ""
        tested[cell.set_name] = f"{cell.set_name}: tested on {len(dataset):,} rows of {dataset.source}{fewer}"
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
    for package, extra in _PACKAGES.items():
        if find_spec(package) is None:
            lines.append(f"not installed, {package}: pip install 'uatlite[{extra}]'")
    return "\n".join(lines)
