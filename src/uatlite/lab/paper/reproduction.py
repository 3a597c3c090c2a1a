"""From names of tables to filled ones. Missing data are found first; a model or prediction is computed only once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from uatlite.lab.evaluate.cells import Cell, CellSpec, Grid, Learning, Panel
from uatlite.lab.evaluate.measures import UNAVAILABLE, learning_cell, learning_of, measure
from uatlite.lab.evaluate.models import TRAIN, Job, Model
from uatlite.lab.evaluate.plan import CALIBRATION, inventory, parse_set
from uatlite.lab.evaluate.runs import Progress, Remote, Runs
from uatlite.lab.paper.claims import Reproduction
from uatlite.lab.paper.declaration import Declaration, find_declaration, substitute_backbones
from uatlite.lab.paper.probes import paper_measure, source_of
from uatlite.lab.paper.source import members_of, title_of, training_of
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


class Reproducer:
    """Fills tables, and remembers what cannot be computed."""

    def __init__(self, runs: Runs, progress: ReproductionProgress, remote: Remote | None = None) -> None:
        self.runs, self.progress, self.remote = runs, progress, remote
        self.source = source_of(runs)
        self.reasons: dict[CellSpec, str | Learning] = {}
        """cell -> why it is not computed: a sentence, or the model that has not learned its task"""
        self.failed: dict[Model, str] = {}
        self.learning = cache(lambda cell: learning_of(cell, runs, self.source.settings.backbone_of(cell.backbone)))

    def plan(self, names: Iterable[str]) -> list[str]:
        """What tables take, in words: models, steps, forward sequences, disk, and hours from measured steps."""
        work = [unit for units in self._new_work(self._declared(names)) for unit in units]
        steps = {unit: self.source.steps(unit) for unit in work if isinstance(unit, Model)}
        rows = {unit: self.runs.work(unit) for unit in work if isinstance(unit, Job)}
        seconds, notes = 0.0, list[str]()
        stored = sum(4 * count * len(self.source.task(job.on).labels) for job, count in rows.items())
        for backbone, task in dict.fromkeys((fit.name, fit.task) for fit in steps):
            fits = [fit for fit in steps if (fit.name, fit.task) == (backbone, task)]
            self.progress.step(f"measuring a step of {backbone} on {task}")
            try:
                speed = self.source.measured(fits[0])
            except UNAVAILABLE as error:
                notes.append(
                    f"{backbone} on {task}: not in the hours and on disk, because no step was measured: {error}"
                )
                continue
            seconds += speed.step * sum(map(steps.__getitem__, fits))
            seconds += speed.sequence * sum(rows[job] for job in rows if job.model in fits)
            stored += speed.size * sum(training_of(fit).copies for fit in fits)
            notes.append(f"{backbone} on {task}: {speed.step:.3f} s a step, {1 / speed.sequence:,.0f} sequences/s.")
        models, size, hours = len(steps), stored / 1e9, seconds / 3600
        return [
            f"{models:,} models in {sum(steps.values()):,} steps; {sum(rows.values()):,.0f} forward sequences.",
            f"About {size:.1f} GB on disk, and {hours:,.1f} hours on one device; data and intervals come on top.",
            *notes,
        ]

    def tables(self, names: Iterable[str]) -> Iterator[Reproduction]:
        """Each table, as soon as it is filled, after all that is missing was said and all work was counted."""
        declarations = self._declared(names)
        parts, done = self._new_work(declarations), 0.0
        if self.source.settings.learned_only:
            plain = list(dict.fromkeys(unit for cell in self._open(*declarations) for unit in self._plain(cell)))
            done = self._amount(plain)
            self.progress.begin_all(done + sum(map(self._amount, parts)))
            self.progress.begin("plain models", done)
            self._compute(plain)
            self._find_unlearned(declarations)
            parts = self._new_work(declarations)
        self.progress.begin_all(done + sum(map(self._amount, parts)))
        for declaration, work in zip(declarations, parts, strict=True):
            self.progress.begin(declaration.name, self._amount(work))
            self._compute(work)
            for cell in self._open(declaration):
                self.reasons.update((cell, self.failed[unit]) for unit in self._needs(cell) if unit in self.failed)
            self.progress.step(f"measuring {declaration.name}")
            grids = tuple(map(self._fill, declaration.panels))
            yield Reproduction(declaration, grids, (*declaration.notes, *self._row_notes(self._open(declaration))))

    def _declared(self, names: Iterable[str]) -> list[Declaration]:
        """The tables of these names, after all that is missing was said.

        A directory that was given and is not there is an error at once.
        """
        settings = self.source.settings
        data_directory(settings.data_dir)
        for backbone in settings.substitutes:
            backbone_directory(backbone)
        declarations = [substitute_backbones(find_declaration(name), settings.substitutes) for name in names]
        self.progress.step("reading the data")
        self._find_missing(declarations)
        return declarations

    def _open(self, *declarations: Declaration) -> list[CellSpec]:
        """The cells that nothing is known to hinder."""
        return [cell for declaration in declarations for cell in declaration.specs() if cell not in self.reasons]

    # ── what is missing ────────────────────────────────────────────────────────────────────────────────────────────

    def _find_missing(self, declarations: Sequence[Declaration]) -> None:
        """Find the cells that cannot be computed, and say which rows there are and which not; each set is read once."""
        reason_of = cache(self._reason)
        empty: dict[str, Counter[str]] = {}
        for declaration in declarations:
            for cell in declaration.specs():
                if (reason := reason_of(cell.task, cell.set_name, cell.contender.fitted)) is not None:
                    self.reasons[cell] = reason
                    empty.setdefault(reason, Counter())[declaration.name] += 1
        for line in ([UNREACHED] if hub_was_missed() else []) + self._row_notes(self._open(*declarations)):
            self.progress.say(line)
        for reason, tables in empty.items():
            cells = ", ".join(f"{count} cells of {name}" for name, count in tables.items())
            self.progress.say(f"missing: {cells}: {reason}")

    def _reason(self, name: str, on: str, fitted: bool) -> str | None:
        """Why cells of a task's models on a set cannot be computed, found by reading the rows; None where they can."""
        asked = self.source.settings.tasks
        if asked and name not in asked:
            return f"models of {name} are left out: only those of {', '.join(asked)} are asked for (--tasks)"
        try:  # whether the model has learned its task is measured on its own test rows
            for rows in (on, name, f"{name}/{TRAIN}", *([f"{name}/{CALIBRATION}"] if fitted else [])):
                self.source.dataset(rows)
        except UNAVAILABLE as error:
            return f"needs {on}: {error}"
        return None

    def _row_notes(self, cells: Iterable[CellSpec]) -> list[str]:
        """Where the training rows and test rows of some cells came from, and where they are fewer than asked for."""
        cells, limit = list(cells), self.source.settings.limit
        notes = [self.source.training_note(task) for task in dict.fromkeys(cell.task for cell in cells)]
        for name in dict.fromkeys(cell.set_name for cell in cells):
            rows = self.source.dataset(name)
            fewer = f", fewer than the {limit:,} asked for" if limit is not None and len(rows) < limit else ""
            notes.append(f"{name}: tested on {len(rows):,} rows of {rows.source}{fewer}")
        return notes

    def _find_unlearned(self, declarations: Sequence[Declaration]) -> None:
        """Find the cells that need more than one pass of a plain model that has not learned its task."""
        for cell in self._open(*declarations):
            if any(unit in self.failed for unit in self._needs(cell)):
                continue
            jobs = paper_measure(cell.measure).jobs(cell, self.runs)
            enough = jobs and all(job.model == job.model.plain and job.method == BASE for job in jobs)
            if self._plain(cell) and not enough and not self.learning(learning_cell(cell)).learned:
                self.reasons[cell] = self.learning(learning_cell(cell))

    # ── models and predictions ─────────────────────────────────────────────────────────────────────────────────────

    def _new_work(self, declarations: Sequence[Declaration]) -> list[_Work]:
        """What each table needs that no earlier one has."""
        parts, seen = [], set[Model | Job]()
        for declaration in declarations:
            needed = dict.fromkeys(unit for cell in self._open(declaration) for unit in self._needs(cell))
            parts.append([unit for unit in needed if unit not in seen])
            seen.update(needed)
        return parts

    def _needs(self, cell: CellSpec) -> _Work:
        """The models and predictions of a cell, each model after those that it is made of."""
        fits = [model for job in self.runs.jobs(cell) for model in (*members_of(job.model), job.model)]
        return [*self._plain(cell), *fits, *paper_measure(cell.measure).jobs(cell, self.runs)]

    def _plain(self, cell: CellSpec) -> _Work:
        """The plain models and predictions that show whether the task of a cell was learned."""
        jobs = self.runs.jobs(learning_cell(cell)) if paper_measure(cell.measure).of_learning else []
        return [*(job.model for job in jobs), *jobs]

    def _amount(self, work: _Work) -> float:
        """In passes over a sequence."""
        return sum(self.source.work(unit) if isinstance(unit, Model) else self.runs.work(unit) for unit in work)

    def _compute(self, work: _Work) -> None:
        """Train the models and predict; a model that cannot be trained is added to `failed` with the reason."""
        fits = [unit for unit in work if isinstance(unit, Model)]
        # those of one model together, and of one set within it, so that each is loaded once
        of_model = [unit for unit in work if isinstance(unit, Job)]
        jobs = sorted(of_model, key=lambda job: (str(job.model), job.on, str(job)))
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
        specs, reasons = dict(panel.specs()), dict[CellSpec, str]()
        computed = [cell for cell in specs.values() if cell not in self.reasons]
        how = Resampling(self.source.settings.resamples, over_seeds=True)
        numbers = measure(computed, self.runs, how, named=paper_measure, reasons=reasons)
        cells = {}
        for key, cell in specs.items():
            kind, learning = paper_measure(cell.measure), tuple[Learning, ...]()
            reason = self.reasons.get(cell, reasons.get(cell))
            if isinstance(reason, Learning):
                learning, reason = (reason,), f"not computed: {reason.sentence}"
            elif reason is None and kind.of_learning:
                learning = (self.learning(learning_cell(cell)),)
            cells[key] = Cell(numbers.get(cell), None, kind.decimals, reason, learning)
        return Grid.of(panel, cells)


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
