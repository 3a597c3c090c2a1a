"""Texts that are out of scope: how well they are told from others, and what it is good for.

    python benchmarks/scope.py --models DIR --data DIR [--seeds 0,1,2] [--cache DIR] [--only out-of-scope,mixture,...]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. What the classifiers
say of the texts is kept in --cache: a stopped run goes on, and a second one takes seconds. Numbers are means over
seeds; an interval resamples the test texts, the same for both scores that are compared and for all seeds, and takes the
mean over seeds each time.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from harness import (
    CALIBRATION,
    Columns,
    change,
    head,
    kept,
    line,
    numbers,
    only,
    over_seeds,
    parser_of_models,
    rows_of,
    title,
)
from uatlite import UncertaintyClassifier
from uatlite.classifier.runtime import Outputs, run
from uatlite.metrics.accuracy import aupr, auroc, fpr95
from uatlite.metrics.intervals import Estimate, Estimates
from uatlite.metrics.rows import Ranking
from uatlite.metrics.selective import area_under_risk
from uatlite.predictive import softmax
from uatlite.text.tasks import load
from uatlite.trust.scope import chance_in_scope
from uatlite.values import Dataset

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
    """What the classifiers say of the texts."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.seeds = options, numbers(options.seeds)

    def dataset(self, task: str, split: str, rows: int | None = None) -> Dataset:
        return load(task, split, self.options.data, limit=rows)

    def plain(self, task: str, seed: int) -> UncertaintyClassifier:
        """The model of a task as it is."""
        directory, method = self.options.models / f"{task}-{seed}", self.options.method
        return UncertaintyClassifier.from_pretrained(directory, method=method, max_length=LENGTH, calibrated=False)

    @cache  # noqa: B019
    def classifier(self, task: str, seed: int, form: str) -> UncertaintyClassifier:
        """The model of a task, calibrated with or without reference texts."""
        texts, labels = rows_of(task, CALIBRATION[task], self.options.data)
        drawn = np.random.default_rng(0).permutation(len(texts))[: FEW if form == "few" else None].tolist()
        reference = self.dataset(task, "train", REFERENCE).in_scope().texts if form == "reference" else None
        return self.plain(task, seed).calibrate(
            [texts[i] for i in drawn], [labels[i] for i in drawn], reference=reference
        )

    def said(self, task: str, seed: int, form: str, of: str, split: str) -> Said:
        """What the classifier of a task says of a split of this or another task."""

        def compute() -> Said:
            outputs, rows = self.outputs(task, seed, of, split)
            predictions = self.classifier(task, seed, form).predictor().predictions(list(rows.texts), outputs)
            gold = [None if label is None or label == rows.out_of_scope else rows.labels[label] for label in rows.gold]
            wrong = [answer != true for answer, true in zip(predictions.labels, gold, strict=True)]
            assert predictions.scope is not None
            maximum = softmax(outputs.mean_logits).max(axis=1)
            return Said(maximum, predictions.confidence, predictions.scope, np.array(wrong, dtype=float))

        cache, name = self.options.cache, f"{task}-{seed}-{self.options.method}-{form}-{of}-{split}.npz"
        return kept(Said, cache and cache / name, compute)

    @cache  # noqa: B019  one for the whole run
    def outputs(self, task: str, seed: int, of: str, split: str) -> tuple[Outputs, Dataset]:
        """What the passes say of a split, the same for every form of the scope; of another task's a sample."""
        plain, rows = self.plain(task, seed), self.dataset(of, split, None if of == task else OTHERS)
        return run(plain.runtime, list(rows.texts), plain.settings), rows


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
        title(setting.name)
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


def compare(said: list[Said], *, strata: tuple[int, ...]) -> list[str]:
    """Three AURCs, and the last less the first and the second, with intervals: means over seeds."""

    def areas(name: str) -> list[Estimates]:
        statistics = [area_under_risk(Ranking.of(getattr(one, name)), 100 * one.wrong) for one in said]
        return [Estimates({"aurc": Estimate(statistic)}, strata) for statistic in statistics]

    *others, trust = map(areas, ("maximum", "confidence", "trust"))
    points = [over_seeds(of_seeds)["aurc"].point for of_seeds in (*others, trust)]
    cells = [f"{point:.3f}" for point in points]
    for other, point in zip(others, points, strict=False):
        gap = over_seeds(trust, other)["aurc"]
        cells.append(f"{change(gap.point, gap.low, gap.high, digits=3)}, {gap.point / point:+.1%}")
    return cells


def mixture_table(bench: Bench) -> None:
    title("AURC × 100, every answer to a text out of scope an error; scope by reference texts")
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
    title("Who is right: AUROC of errors, in domain and under covariate shift")
    head("texts", "accuracy", "out of scope", "confidence", "scope", "confidence × chance")
    for name, task, (of, split) in SHIFTS:
        values = []
        for seed in bench.seeds:
            said = bench.said(task, seed, "reference", of, split)
            doubts = (-said.confidence, -said.scope, -said.trust)
            errors = [auroc(doubt, said.wrong > 0) for doubt in doubts]
            values.append([1 - said.wrong.mean(), np.mean(said.scope <= 0.01), *errors])
        line(name, *(f"{value:.3f}" for value in np.mean(values, axis=0)))


TABLES: dict[str, Callable[[Bench], None]] = {
    "out-of-scope": out_of_scope_table,
    "mixture": mixture_table,
    "covariate": covariate_table,
}


def main() -> None:
    parser = parser_of_models(__doc__, seeds="0,1,2", method="base")
    only(parser, TABLES, Bench)


if __name__ == "__main__":
    main()
