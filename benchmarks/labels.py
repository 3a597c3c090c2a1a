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
from harness import change, head, kept, line, numbers, over_seeds, trained
from uatlite.classifier.classifiers import UncertaintyLabeler
from uatlite.classifier.many_labels import LEAST, label_answers
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.runtime import run
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.registry import parse_method
from uatlite.metrics.answers import LabelRows
from uatlite.predictive import PassLogits, sigmoid
from uatlite.text.labels import label_matrix
from uatlite.text.tasks import load
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import Wanted
from uatlite.values import Floats, Text

TASK, LENGTH = "goemotions", 64
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


def print_figures(seeds: list[Seed]) -> None:
    scores = ["micro F1", "macro F1", "AURC ×100, pairs", "macro AP"]
    head("", "label-wise ECE", "less base", "NLL", "less base", *scores)
    base, *_ = arms = list(seeds[0].arms)
    estimates = {arm: [LabelRows.of(seed.arms[arm], seed.gold).estimates() for seed in seeds] for arm in arms}
    resampled = {arm: [one.chosen("label_ece", "label_nll") for one in estimates[arm]] for arm in arms}
    for arm in arms:
        cells, gaps = [], over_seeds(resampled[arm], resampled[base])
        for name, value in over_seeds(resampled[arm]).items():
            gap = gaps[name]
            cells += [f"{value.point:.4f}", "" if arm == base else change(gap.point, gap.low, gap.high)]
        means = {name: np.mean([one.points()[name] for one in estimates[arm]]) for name in estimates[arm][0]}
        area = f"{100 * means['pair_aurc']:.3f}"
        micro, macro, precision = (f"{means[name]:.3f}" for name in ("micro_f1", "macro_f1", "macro_average_precision"))
        line(arm, *cells, micro, macro, area, precision)


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
