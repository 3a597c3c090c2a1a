"""Texts that are out of scope: how well they are told from others, what it is good for, and what it costs.

    python benchmarks/scope.py --models DIR --data DIR [--seeds 0,1,2] [--cache DIR] [--only out-of-scope,mixture,...]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. What the classifiers
say of the texts is kept in --cache: a stopped run goes on, and a second one takes seconds. Numbers are means over
seeds; an interval resamples the test texts, the same for both scores that are compared and for all seeds, and takes the
mean over seeds each time.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from harness import (
    CALIBRATION,
    Columns,
    change,
    head,
    kept,
    line,
    numbers,
    only,
    parser_of_models,
    quantiles,
    rows_of,
    seconds,
)
from uatlite import UncertaintyClassifier
from uatlite.classifier.runtime import Outputs, run
from uatlite.metrics.accuracy import aupr, auroc, fpr95
from uatlite.metrics.rows import Ranking
from uatlite.metrics.selective import risk_coverage
from uatlite.model.plain import plain_pass
from uatlite.predictive import softmax
from uatlite.text.tasks import load
from uatlite.trust.scope import ScopeFit, chance_in_scope, fit_scope
from uatlite.values import Dataset, Text

REFERENCE = 6000
"""Unlabelled training texts that fit the scope."""
FEW = 500
"""Calibration rows where there are few and no reference texts."""
OTHERS = 1000
"""At most so many texts of another task or domain."""
LENGTH = 128

FORMS = {
    "few": f"scope by {FEW} calibration rows",
    "calibration": "scope by all calibration rows",
    "reference": f"scope by {REFERENCE:,} reference texts",
}


@dataclass(frozen=True, eq=False)
class Said(Columns):
    """What a classifier says of texts, (rows,) each: the largest probability without calibration, the calibrated
    confidence, the p-value of scope, and whether its answer is wrong."""

    maximum: np.ndarray
    confidence: np.ndarray
    scope: np.ndarray
    wrong: np.ndarray

    @property
    def trust(self) -> np.ndarray:
        return self.confidence * chance_in_scope(self.scope)


class Bench:
    """What the classifiers say of the texts, and the classifiers calibrated so far."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.seeds = options, numbers(options.seeds)
        self.calibrated: dict[tuple[str, int, str], UncertaintyClassifier] = {}
        self.passes: dict[tuple[str, int, str, str], Outputs] = {}

    def dataset(self, task: str, split: str, rows: int | None = None) -> Dataset:
        return load(task, split, self.options.data, limit=rows)

    def plain(self, task: str, seed: int) -> UncertaintyClassifier:
        """The model of a task as it is."""
        directory, method = self.options.models / f"{task}-{seed}", self.options.method
        return UncertaintyClassifier.from_pretrained(directory, method=method, max_length=LENGTH, calibrated=False)

    def classifier(self, task: str, seed: int, form: str) -> UncertaintyClassifier:
        """The model of a task, calibrated with or without reference texts."""
        key = task, seed, form
        if key not in self.calibrated:
            texts, labels = rows_of(task, CALIBRATION[task], self.options.data)
            drawn = np.random.default_rng(0).permutation(len(texts))[: FEW if form == "few" else None].tolist()
            reference = self.dataset(task, "train", REFERENCE).in_scope().texts if form == "reference" else None
            self.calibrated[key] = self.plain(task, seed).calibrate(
                [texts[i] for i in drawn], [labels[i] for i in drawn], reference=reference
            )
        return self.calibrated[key]

    def said(self, task: str, seed: int, form: str, of: str, split: str) -> Said:
        """What the classifier of a task says of a split of this or another task."""

        def compute() -> Said:
            rows, outputs = self.texts(task, of, split), self.outputs(task, seed, of, split)
            predictions = self.classifier(task, seed, form).predictor().predictions(list(rows.texts), outputs)
            gold = [None if label is None or label == rows.out_of_scope else rows.labels[label] for label in rows.gold]
            wrong = [answer != true for answer, true in zip(predictions.labels, gold, strict=True)]
            assert predictions.scope is not None
            maximum = softmax(outputs.mean_logits).max(axis=1)
            return Said(maximum, predictions.confidence, predictions.scope, np.array(wrong, dtype=float))

        cache, name = self.options.cache, f"{task}-{seed}-{self.options.method}-{form}-{of}-{split}.npz"
        return kept(Said, cache and cache / name, compute)

    def outputs(self, task: str, seed: int, of: str, split: str) -> Outputs:
        """What the passes say of a split; they are the same for every form of the scope."""
        key = task, seed, of, split
        if key not in self.passes:
            plain = self.plain(task, seed)
            self.passes[key] = run(plain.runtime, list(self.texts(task, of, split).texts), plain.settings)
        return self.passes[key]

    def texts(self, task: str, of: str, split: str) -> Dataset:
        """A split whole if it is of the task itself, else a sample of it."""
        return self.dataset(of, split, None if of == task else OTHERS)


@dataclass(frozen=True)
class Setting:
    """A task, the split to test on, and texts that are out of scope: of another task, or in that split."""

    name: str
    task: str
    inside: str
    outside: str

    def said(self, bench: Bench, seed: int, form: str = "reference") -> tuple[Said, Said]:
        """Of the texts in scope, and of those out of scope, where every answer is wrong."""
        inside = bench.said(self.task, seed, form, self.task, self.inside)
        if self.outside != self.task:
            outside = bench.said(self.task, seed, form, self.outside, "test")
            return inside, replace(outside, wrong=np.ones_like(outside.wrong))
        data = bench.dataset(self.task, self.inside)
        strange = np.array(data.gold) == data.out_of_scope
        return inside[~strange], inside[strange]


SETTINGS = (
    Setting("CLINC150, its out-of-scope questions", "clinc150", "test", "clinc150"),
    Setting("SST-2, CLINC150's questions", "sst2", "test-original", "clinc150"),
)


def out_of_scope_table(bench: Bench) -> None:
    for setting in SETTINGS:
        print(f"\n### {setting.name}")
        head("score", "AUROC", "AUPR", "FPR at 95 %", "false alarms at 1 %", "found")
        scores: dict[str, list[list[float]]] = {}
        for seed in bench.seeds:
            for form, name in FORMS.items():
                both = setting.said(bench, seed, form)
                whole, positives = both[0] + both[1], np.repeat([False, True], [len(part.wrong) for part in both])
                flagged = [float(np.mean(part.scope <= 0.01)) for part in both]
                if form == "few":
                    row = [*detection(-whole.maximum, positives), np.nan, np.nan]
                    scores.setdefault("maximum probability", []).append(row)
                scores.setdefault(name, []).append([*detection(-whole.scope, positives), *flagged])
        for name, rows in scores.items():
            line(name, *(f"{value:.4f}" for value in np.mean(rows, axis=0)))


def detection(scores: np.ndarray, positives: np.ndarray) -> list[float]:
    return [auroc(scores, positives), aupr(scores, positives), fpr95(scores, positives)]


def aurc(trust: np.ndarray, wrong: np.ndarray) -> float:
    """Area under the risk–coverage curve, times 100."""
    return 100.0 * float(risk_coverage(Ranking.of(trust), wrong).mean())


def compare(said: list[Said], *, strata: tuple[int, ...], resamples: int = 500) -> list[str]:
    """Three AURCs, and the last less the first and the second, with intervals: means over seeds."""
    seeds = [(one.maximum, one.confidence, one.trust, one.wrong) for one in said]

    def areas(rows: np.ndarray) -> np.ndarray:
        return np.mean([[aurc(score[rows], wrong[rows]) for score in scores] for *scores, wrong in seeds], axis=0)

    point = areas(np.arange(sum(strata)))
    rng, starts = np.random.default_rng(0), np.cumsum((0, *strata[:-1]))
    draws = np.zeros((resamples, 3))
    for draw in draws:
        parts = [start + rng.integers(size, size=size) for start, size in zip(starts, strata, strict=True)]
        draw[:] = areas(np.concatenate(parts))
    cells = [f"{area:.3f}" for area in point]
    for other in (0, 1):
        gap = point[2] - point[other]
        interval = quantiles(draws[:, 2] - draws[:, other])
        cells.append(f"{change(gap, *interval, digits=3)}, {gap / point[other]:+.1%}")
    return cells


def mixture_table(bench: Bench) -> None:
    print("\n### AURC × 100, every answer to a text out of scope an error; scope by reference texts")
    columns = ["maximum probability", "confidence", "confidence × chance in scope", "less the first", "the second"]
    head("texts", *columns)
    for setting in SETTINGS:
        said = [setting.said(bench, seed) for seed in bench.seeds]
        sizes = len(said[0][0].wrong), len(said[0][1].wrong)
        alone, mixed = [inside for inside, _ in said], [inside + outside for inside, outside in said]
        line(f"{setting.task}, in scope", *compare(alone, strata=sizes[:1]))
        line(f"{setting.name}, mixed in", *compare(mixed, strata=sizes))


SHIFTS = (
    ("SST-2", "sst2", ("sst2", "test-original")),
    ("SST-2 → IMDb", "sst2", ("imdb", "test")),
    ("MNLI", "mnli", ("mnli", "test")),
    ("MNLI → SNLI", "mnli", ("snli", "test")),
)


def covariate_table(bench: Bench) -> None:
    print("\n### Who is right: AUROC of errors, in domain and under covariate shift")
    head("texts", "accuracy", "out of scope", "confidence", "scope", "confidence × chance")
    for name, task, (of, split) in SHIFTS:
        values = []
        for seed in bench.seeds:
            said = bench.said(task, seed, "reference", of, split)
            doubts = (-said.confidence, -said.scope, -said.trust)
            errors = [auroc(doubt, said.wrong > 0) for doubt in doubts]
            values.append([1 - said.wrong.mean(), np.mean(said.scope <= 0.01), *errors])
        line(name, *(f"{value:.3f}" for value in np.mean(values, axis=0)))


def cost_table(bench: Bench, repetitions: int = 15) -> None:
    """The scope beside the plain pass, one after the other, so that both see the same machine."""
    print("\n### Cost, in plain passes over the same texts")
    head("task", "texts", "one pass, ms", "scope, ms", "share", "fit on these texts, ms", "share")
    for setting in SETTINGS:
        directory = bench.options.models / f"{setting.task}-{bench.seeds[0]}"
        model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
        tokenizer = AutoTokenizer.from_pretrained(directory)
        texts = sorted(
            bench.dataset(setting.task, "train", REFERENCE).in_scope().texts, key=lambda text: len(str(text))
        )

        def tokens(some: list[Text], tokenizer: AutoTokenizer = tokenizer) -> dict[str, object]:
            return dict(tokenizer(some, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"))

        batches = [plain_pass(model, tokens(texts[start : start + 64])) for start in range(0, len(texts), 64)]
        logits, x = (np.concatenate([batch[part] for batch in batches]) for part in (0, 1))
        fit = ScopeFit(x.shape[1], logits.shape[1])
        fit.add(x, logits.argmax(axis=1))
        scope = fit_scope(fit, x[:1000], logits[:1000])
        for size in (1, 32, 256):
            middle = slice((len(texts) - size) // 2, (len(texts) + size) // 2)  # texts of like length, as they run
            inputs, some = tokens(texts[middle]), x[middle]
            runs = (
                partial(plain_pass, model, inputs),
                partial(scope.p_values, some, logits[middle]),
                partial(fit.add, some, logits[middle].argmax(axis=1)),
            )
            one, p, add = 1e3 * np.median([[seconds(run) for run in runs] for _ in range(repetitions)], axis=0)
            cells = f"{one:.1f}", f"{p:.2f}", f"{p / one:.3f}", f"{add:.2f}", f"{add / one:.3f}"
            line(setting.task, size, *cells)
        last = seconds(partial(fit_scope, fit, x[:1000], logits[:1000]))
        whole = (add * 100_000 / size + 1e3 * last) / (one * 100_000 / size)
        line(setting.task, f"100,000 of these; once {last:.2f} s", "", "", "", "", f"{whole:.3f}")


TABLES: dict[str, Callable[[Bench], None]] = {
    "out-of-scope": out_of_scope_table,
    "mixture": mixture_table,
    "covariate": covariate_table,
    "cost": cost_table,
}


def main() -> None:
    parser = parser_of_models(__doc__, seeds="0,1,2", method="base")
    only(parser, TABLES, Bench)


if __name__ == "__main__":
    main()
