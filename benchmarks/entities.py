"""Entities: what the confidence of an entity as a whole, its calibration and the promise are worth.

    python benchmarks/entities.py --models DIR --data DIR --cache DIR [--seeds 0,1,2] [--rows N] [--resamples 300]

DIR of --models holds the models wnut17-SEED and btc-SEED of benchmarks/backbones.py; those that are not there are left
out. The dev set of the task that trained the model calibrates. Measured are WNUT-17's own test set, and UNER PUD for
the models of the Broad Twitter Corpus, as a shift from tweets to news. --rows takes the first N of each set, for a
quick look. What a model says is kept in --cache: the command can be stopped and repeated. Prints Markdown tables.

Intervals resample texts with all of their entities, the same ones for every seed; a difference is the mean over seeds.
The promise is made again and again from as many texts as a pool has, drawn from it with replacement; its own risk is
the truth. The cost of the analytic method is in CPU time, on texts in which the model finds k entities, one text at a
time.
"""

import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from harness import (
    Columns,
    best_share,
    change,
    head,
    kept,
    line,
    numbers,
    over_seeds,
    parser_of_models,
    seconds,
    trained,
)
from uatlite.classifier.classifiers import UncertaintyTagger
from uatlite.metrics.answers import AnswerRows
from uatlite.text.tasks import load
from uatlite.trust.planners import TextScores
from uatlite.trust.promise import Labelled, texts_planner
from uatlite.trust.rule import Rule, Wanted
from uatlite.values import Example, Floats, Integers, Span

LENGTH = 96
TARGETS = (0.1, 0.2, 0.3)
USUAL, WHOLE, OURS = "mean token probability", "the entity as a whole", "ours: calibrated, with its variance"
METRICS = {"answer_ece": "entity ECE", "answer_aurc": "entity AURC", "answer_nll": "NLL", "wrong_auroc": "AUROC, wrong"}


@dataclass(frozen=True)
class Setting:
    """A model's task, and the task and split that measure it."""

    name: str
    trained: str
    measured: str


SETTINGS = (Setting("WNUT-17", "wnut17", "wnut17"), Setting("BTC → PUD", "btc", "uner-pud"))


@dataclass(frozen=True, eq=False)
class Said(Columns):
    """What one model says about the entities that it finds in some texts, (entities,) each unless stated."""

    usual: Floats
    log_odds: Floats
    ours: Floats
    right: NDArray[np.bool_]
    text: Integers
    gold: Integers
    """(texts,): gold entities"""

    def rows(self, arm: str) -> AnswerRows:
        """The entities with the confidence of an arm."""
        whole = 1.0 / (1.0 + np.exp(-self.log_odds))
        confidence = {USUAL: self.usual, WHOLE: whole, OURS: self.ours}[arm]
        return AnswerRows.of(np.clip(confidence, 0.0, 1.0), self.right, self.text, texts=len(self.gold))

    @property
    def f1(self) -> float:
        return float(2 * self.right.sum() / (len(self.right) + self.gold.sum()))


def examples_of(task: str, split: str, options: Namespace) -> list[Example]:
    return list(load(task, split, options.data).examples[: options.rows])


def said(tagger: UncertaintyTagger, examples: list[Example]) -> Said:
    """The entities of texts against the gold ones."""
    predictions = tagger.predict([example.text for example in examples], check_shift=False)
    found = [[Span(one.start, one.end, one.label) for one in some] for some in predictions.entities]
    gold = [set(example.entities or ()) for example in examples]
    return Said(
        usual=np.array([one.score for text in predictions.decoded for one in text.entities]),
        log_odds=predictions.answers.log_odds,
        ours=predictions.sure,
        right=np.array([one in there for some, there in zip(found, gold, strict=True) for one in some], dtype=bool),
        text=predictions.answers.text,
        gold=np.array([len(there) for there in gold]),
    )


def measure(setting: Setting, directory: Path, options: Namespace) -> tuple[Said, Said]:
    """What a model says about the texts that calibrate it and those that measure it.

    `ours` of the texts that calibrate is fitted on them and not used.
    """
    tagger = UncertaintyTagger.from_pretrained(directory, calibrated=False, max_length=LENGTH)

    def compute(task: str, split: str) -> Said:
        if tagger.calibration_ is None:
            tagger.calibrate(examples_of(setting.trained, "calibration", options))
        return said(tagger, examples_of(task, split, options))

    stem = f"entities-{directory.name}-{setting.measured}-{options.rows}"
    before, after = (
        kept(Said, options.cache / f"{stem}-{split}.npz", lambda task=task, split=split: compute(task, split))
        for task, split in ((setting.trained, "calibration"), (setting.measured, "test"))
    )
    return before, after


def print_figures(found: dict[Setting, list[tuple[Said, Said]]]) -> None:
    columns = [heading for name in METRICS.values() for heading in (name, "less the usual")]
    head("", "seeds", "F1", "confidence", *columns)
    for setting, pairs in found.items():
        tests = [after for _, after in pairs]
        for arm in (USUAL, WHOLE, OURS):
            ours, usual = ([one.rows(name).estimates().chosen(*METRICS) for one in tests] for name in (arm, USUAL))
            values, gaps, cells = over_seeds(ours), over_seeds(ours, usual), []
            for name in METRICS:
                gap = gaps[name]
                cells += [f"{values[name].point:.4f}", "" if arm == USUAL else change(gap.point, gap.low, gap.high)]
            line(setting.name, len(tests), f"{np.mean([one.f1 for one in tests]):.3f}", arm, *cells)


def joined(parts: list[Said]) -> tuple[TextScores, NDArray[np.bool_]]:
    """The entities of several sets as one pool, by their log-odds, which no labelled text has fitted."""
    starts = np.cumsum([0, *(len(part.gold) for part in parts)])
    text = np.concatenate([part.text + start for part, start in zip(parts, starts, strict=False)])
    scores = TextScores(np.concatenate([part.log_odds for part in parts]), text, int(starts[-1]))
    return scores, ~np.concatenate([part.right for part in parts])


def drawn_texts(pool: TextScores, wrong: NDArray[np.bool_], rows: Integers) -> tuple[TextScores, NDArray[np.bool_]]:
    """The entities of the texts that were drawn, once for each time."""
    first, last = (np.searchsorted(pool.text, rows, side=side) for side in ("left", "right"))
    places = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)]).astype(np.int64)
    return TextScores(pool.scores[places], np.repeat(np.arange(len(rows)), last - first), len(rows)), wrong[places]


def promise(sample: TextScores, wrong: NDArray[np.bool_], target: float, seed: int) -> Rule:
    """The rule for a precision, without the sentence that says why not."""
    rows = Labelled({"log-odds": sample.scores}, wrong, sample.text, sample.texts)
    wanted = Wanted(kind="precision", target=target, score="log-odds", seed=seed)
    return texts_planner(rows, wanted).searched(target)


def print_promises(found: dict[Setting, list[tuple[Said, Said]]], resamples: int) -> None:
    columns = ["promised", "kept in", "reported", "best possible", "nothing promised"]
    head("pool", "texts", "entities", "wrong", *columns)
    for setting, pairs in found.items():
        in_domain = setting.trained == setting.measured
        pools = [joined([before, after] if in_domain else [after]) for before, after in pairs]
        for target in TARGETS:
            trials, best = [], []
            for number, (pool, wrong) in enumerate(pools):
                rng = np.random.default_rng(number)
                best.append(best_share(pool.scores, wrong, target))
                for _ in range(resamples // len(pools)):
                    sample, bad = drawn_texts(pool, wrong, rng.integers(0, pool.texts, size=pool.texts))
                    rule = promise(sample, bad, target, int(rng.integers(2**31)))
                    shown = pool.shown(rule.threshold, rule.most)
                    right = (shown & wrong).sum() <= target * shown.sum()
                    trials.append((right, shown.mean(), not rule.promised))
            size = f"{pools[0][0].texts:,}", f"{np.mean([len(w) for _, w in pools]):,.0f}"
            risk = np.mean([wrong.mean() for _, wrong in pools])
            line(setting.name, *size, f"{risk:.1%}", f"≤ {target:.0%}", *promise_cells(trials, best))


def promise_cells(trials: list[tuple[bool, float, bool]], best: list[float]) -> list[str]:
    """How often the promise was kept, the share reported and the best one, and how often nothing was promised."""
    right, share, silent = np.mean(trials, axis=0)
    return [f"{value:.1%}" for value in (right, share, np.mean(best), silent)]


def print_cost(directory: Path, options: Namespace) -> None:
    """CPU time of the analytic method over that of the plain pass, for texts with k entities."""
    torch.set_num_threads(1)
    texts = [example.text for example in examples_of("wnut17", "test", options)]
    plain, analytic = (
        UncertaintyTagger.from_pretrained(directory, method, calibrated=False, max_length=LENGTH).predictor()
        for method in ("base", "analytic")
    )
    counts = np.array([len(some) for some in plain.predict(texts).entities])
    head("entities", "texts", "forwards", "allowed, 1 + 1.2 k", left=0)
    for k in range(1, 6):
        some = [texts[i] for i in np.flatnonzero(counts == k)[:20]]
        if len(some) < 3:
            continue
        spent = [
            [
                min(seconds(lambda p=p, t=t: p.predict([t]), time.process_time) for _ in range(5))
                for p in (plain, analytic)
            ]
            for t in some
        ]
        line(k, len(some), f"{np.median([ours / base for base, ours in spent]):.2f}", f"{1 + 1.2 * k:.1f}")


def options_of_seeds(description: str | None) -> Namespace:
    """The options of a benchmark over the models of several seeds, whose answers are kept in a directory."""
    parser = parser_of_models(description, cache=True, seeds="0,1,2", rows=None, resamples=300)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = options_of_seeds(__doc__)
    directories = {one: trained(options.models, one.trained, numbers(options.seeds)) for one in SETTINGS}
    found = {
        setting: [measure(setting, directory, options) for directory in there]
        for setting, there in directories.items()
        if there
    }
    if not found:
        raise SystemExit(
            f"there is no model wnut17-* or btc-* in {options.models}; benchmarks/backbones.py makes them."
        )
    print_figures(found)
    print_promises(found, options.resamples)
    print_cost(directories[next(iter(found))][0], options)


if __name__ == "__main__":
    main()
