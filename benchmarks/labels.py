"""Many labels: what calibration, the variance of each label and the promise are worth on GoEmotions.

    python benchmarks/labels.py --models DIR --data DIR --cache DIR [--seeds 0,1,2] [--rows N] [--resamples 300]

DIR of --models holds the models goemotions-SEED of benchmarks/backbones.py. The dev set calibrates, the test set
measures; --rows takes the first N of each, for a quick look. What a model says of a set is kept in --cache: the command
can be stopped and repeated. Prints Markdown tables.

Intervals resample texts with all of their labels, the same ones for every seed; a difference is the mean over seeds.
The promise is made again and again from texts drawn from dev and test together, whose own precision is the truth.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entities import options_of_seeds, promise_cells
from harness import change, head, kept, line, numbers, quantiles, trained
from uatlite.classifier.classifiers import LEAST, UncertaintyLabeler, label_answers
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.runtime import run
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.registry import parse_method
from uatlite.predictive import PassLogits, sigmoid
from uatlite.text.labels import label_matrix
from uatlite.text.tasks import load
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.promise import Labelled, Wanted, decide
from uatlite.values import Floats, Text

TASK, LENGTH, BINS = "goemotions", 64, 15
BOOTSTRAPS = 1000
DRAWN = 2000
"""Labelled texts of which a promise is made."""
PRECISIONS = (0.6, 0.7, 0.8)
Gold = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """The texts of a split, their gold (texts, labels), and what a model says about them."""

    labeler: UncertaintyLabeler
    name: str
    texts: list[Text]
    gold: Gold
    cache: Path

    def run(self, method: Method, some: NDArray[np.int64] | None = None) -> PassLogits:
        """What a method says about all texts or some, from the cache where it is there."""
        texts = self.texts if some is None else [self.texts[place] for place in some.tolist()]
        name = f"labels-{self.labeler.runtime.hash[:12]}-{self.name}-{len(texts)}-{method.name.replace(':', '-')}"

        def compute() -> PassLogits:
            outputs = run(self.labeler.runtime, texts, replace(self.labeler.settings, method=method))
            arrays = (outputs.logits, outputs.given_variance, outputs.representations)
            return PassLogits(*(None if array is None else array.astype(np.float32) for array in arrays))

        passes = kept(PassLogits, self.cache / f"{name}.npz", compute)
        return PassLogits(*(None if array is None else array.astype(np.float64) for array in vars(passes).values()))


def splits(labeler: UncertaintyLabeler, data: Path | None, cache: Path, rows: int | None) -> Iterator[Split]:
    """The split that calibrates, and the one that measures."""
    for name in ("calibration", "test"):
        examples = load(TASK, name, data).examples[:rows]
        gold = label_matrix([example.labels or () for example in examples], labeler.class_names)
        yield Split(labeler, name, [example.text for example in examples], gold, cache)


@dataclass(frozen=True, eq=False)
class Seed:
    """One model: the probabilities (texts, labels) of each arm on the test set, and what else is reported."""

    arms: dict[str, Floats]
    gold: Gold
    logits: Floats
    """(texts, labels), of both splits together"""
    pool: Gold
    reason: str


def measure(directory: Path, data: Path | None, cache: Path, rows: int | None) -> Seed:
    """Calibrate each arm on the calibration split and apply it to the test split."""
    labeler = UncertaintyLabeler.from_pretrained(directory, calibrated=False, max_length=LENGTH)
    calibration, test = splits(labeler, data, cache, rows)
    base, ours = parse_method("base"), parse_method(UncertaintyLabeler.default_method)
    before, after = calibration.run(base), test.run(base)
    arms = {"base": sigmoid(after.mean_logits)}
    arms["base, calibrated"] = calibrated(before, calibration.gold, after)
    rows = CalibrationRows(len(calibration.gold), calibration.run, run_some=calibration.run, kind="labels")
    tuned = ours.learn(rows)
    said, learned = tuned.method.read_from(after), tuned.outputs  # below the floor what the plain pass says
    assert said is not None
    assert learned is not None
    arms["ours: with its variance"] = calibrated(learned, calibration.gold, said)
    logits = np.concatenate([before.mean_logits, after.mean_logits])
    return Seed(arms, test.gold, logits, np.concatenate([calibration.gold, test.gold]), tuned.reason)


def calibrated(before: PassLogits, gold: Gold, after: PassLogits) -> Floats:
    """Probabilities (texts, labels) of new texts by a calibrator that was fitted on others."""
    calibrator = AnswerCalibrator.fit(label_answers(before.mean_logits, before.label_variance), gold.ravel())
    return calibrator.confidence(label_answers(after.mean_logits, after.label_variance)).reshape(after.logits.shape[1:])


def nll_by_text(chances: Floats, gold: Gold) -> Floats:
    """The mean over labels of -log p of what is true, (texts,)."""
    right = np.where(gold, chances, 1 - chances)
    return np.asarray(-np.log(np.maximum(right, 1e-12)).mean(axis=1))


def gaps(chances: Floats, gold: Gold) -> Floats:
    """Probability minus truth of each text in the column of its label and bin, (texts, labels · bins).

    Summed over texts, a column is the gap of a bin: the ECE of a label is the mean absolute gap of its bins.
    """
    texts, labels = gold.shape
    bins = np.clip(np.ceil(chances * BINS).astype(int) - 1, 0, BINS - 1)
    found = np.zeros((texts, labels * BINS))
    columns = bins + BINS * np.arange(labels)
    np.put_along_axis(found, columns, chances - gold, axis=1)
    return found


def label_ece(sums: Floats, texts: int, labels: int) -> Floats:
    """The mean over labels of the ECE, from summed gaps (resamples, labels · bins): (resamples,)."""
    return np.asarray(np.abs(sums).reshape(len(sums), labels, BINS).sum(axis=2).mean(axis=1) / texts)


def resampled(seeds: list[Seed], arm: str) -> dict[str, tuple[Floats, Floats]]:
    """Metric -> its values for all texts, of each seed, and under resampling, the mean over seeds: (resamples,)."""
    texts, labels = seeds[0].gold.shape
    rng = np.random.default_rng(0)
    weights = rng.multinomial(texts, np.full(texts, 1 / texts), size=BOOTSTRAPS).astype(np.float64)
    ones = np.ones((1, texts))
    eces, nlls = [], []
    for seed in seeds:
        table, loss = gaps(seed.arms[arm], seed.gold), nll_by_text(seed.arms[arm], seed.gold)
        eces.append([label_ece(w @ table, texts, labels) for w in (ones, weights)])
        nlls.append([w @ loss / texts for w in (ones, weights)])
    return {
        name: (np.concatenate([point for point, _ in found]), np.mean([spread for _, spread in found], axis=0))
        for name, found in (("label-wise ECE", eces), ("NLL", nlls))
    }


def f1(chances: Floats, gold: Gold) -> tuple[float, float]:
    """Micro and macro F1 of the labels above one half."""
    said = chances > 0.5
    hits, both = (said & gold).sum(axis=0), said.sum(axis=0) + gold.sum(axis=0)
    return float(2 * hits.sum() / both.sum()), float(np.mean(2 * hits / np.maximum(both, 1)))


def pair_aurc(chances: Floats, gold: Gold) -> float:
    """The mean risk over all coverages of (text, label) pairs, ranked by max(p, 1 - p)."""
    sure, wrong = np.maximum(chances, 1 - chances).ravel(), ((chances > 0.5) != gold).ravel()
    order = np.argsort(-sure, kind="stable")
    return float((np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)).mean())


def average_precision(chances: Floats, gold: Gold) -> float:
    """Macro: the mean over labels that occur."""
    from sklearn.metrics import average_precision_score

    present = gold.any(axis=0)
    return float(average_precision_score(gold[:, present], chances[:, present], average="macro"))


def print_figures(seeds: list[Seed]) -> None:
    arms = list(seeds[0].arms)
    base = resampled(seeds, arms[0])
    scores = ["micro F1", "macro F1", "AURC ×100, pairs", "macro AP"]
    head("", "label-wise ECE", "less base", "NLL", "less base", *scores)
    for arm in arms:
        cells = []
        for name, (points, spread) in resampled(seeds, arm).items():
            gap = float((points - base[name][0]).mean())
            less = change(gap, *quantiles(spread - base[name][1]))
            cells += [f"{points.mean():.4f}", less if arm != arms[0] else ""]
        micro, macro, area = np.mean(
            [[*f1(s.arms[arm], s.gold), pair_aurc(s.arms[arm], s.gold)] for s in seeds], axis=0
        )
        precision = np.mean([average_precision(s.arms[arm], s.gold) for s in seeds])
        line(arm, *cells, f"{micro:.3f}", f"{macro:.3f}", f"{100 * area:.3f}", f"{precision:.3f}")


def reported(logits: Floats, gold: Gold, threshold: float, most: int) -> tuple[float, float]:
    """Of all labels above the threshold, at most so many a text: the share that is right, and of gold the share."""
    places = np.argsort(np.argsort(-logits, axis=1, kind="stable"), axis=1)
    said = (logits > threshold) & (places < most)
    hits = int((said & gold).sum())
    return (hits / int(said.sum()) if said.any() else 1.0), hits / int(gold.sum())


def best_coverage(logits: Floats, gold: Gold, precision: float) -> float:
    """Knowing the truth: the largest share of gold labels reported at this precision, by one threshold."""
    order = np.argsort(-logits, axis=None, kind="stable")
    hits = np.cumsum(gold.ravel()[order])
    enough = hits >= precision * np.arange(1, len(order) + 1)
    return float(hits[enough].max(initial=0) / gold.sum())


def print_promises(seeds: list[Seed], resamples: int) -> None:
    columns = ["kept in", "gold labels reported", "best possible", "nothing promised", f"{DRAWN} texts"]
    head("precision promised", *columns, left=0)
    lowest = math.log(LEAST / (1.0 - LEAST))
    for precision in PRECISIONS:
        trials, best = [], []
        for number, seed in enumerate(seeds):
            rng = np.random.default_rng(number)
            best.append(best_coverage(seed.logits, seed.pool, precision))
            for _ in range(resamples // len(seeds)):
                drawn = rng.integers(0, len(seed.pool), size=DRAWN)
                answers = label_answers(seed.logits[drawn], None)
                rows = Labelled(
                    {LOG_ODDS: answers.log_odds}, ~seed.pool[drawn].ravel(), answers.text, DRAWN, least=LEAST
                )
                order = int(rng.integers(2**31))
                rule = decide(rows, Wanted(kind="precision", target=1 - precision, score=LOG_ODDS, seed=order)).rule
                truth, share = reported(seed.logits, seed.pool, max(rule.threshold, lowest), rule.most)
                trials.append((truth >= precision, share, not rule.promised))
        line(f"{precision:.0%}", *promise_cells(trials, best), f"{len(trials)} resamples")


def main() -> None:
    options = options_of_seeds(__doc__)
    directories = trained(options.models, TASK, numbers(options.seeds))
    seeds = [measure(directory, options.data, options.cache, options.rows) for directory in directories]
    if not seeds:
        raise SystemExit(f"there is no model {TASK}-* in {options.models}; benchmarks/backbones.py makes them.")
    print(f"{len(seeds)} seeds, {len(seeds[0].gold):,} test texts, {seeds[0].gold.shape[1]} labels.")
    print_figures(seeds)
    print_promises(seeds, options.resamples)
    for seed in seeds:
        print(f"\n{seed.reason}")


if __name__ == "__main__":
    main()
