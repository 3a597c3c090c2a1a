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

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uatlite.classifier.tagger import UncertaintyTagger
from uatlite.metrics.answers import AnswerRows
from uatlite.metrics.intervals import Estimate, Estimates, Interval, Resampling, intervals
from uatlite.text.tasks import load
from uatlite.trust.promise import Labelled, Wanted, texts_planner
from uatlite.trust.rule import Rule
from uatlite.trust.search import TextScores, searched
from uatlite.values import Example, Floats, Integers, Span

LENGTH = 96
BOOTSTRAPS = 1000
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
class Said:
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


def examples_of(task: str, split: str, data: Path | None, rows: int | None) -> list[Example]:
    return list(load(task, split, data).examples[:rows])


def said(tagger: UncertaintyTagger, examples: list[Example]) -> Said:
    """The entities of texts against the gold ones."""
    predictions = tagger.predict([example.text for example in examples], check_shift=False)
    found = [[Span(one.start, one.end, one.label) for one in some] for some in predictions.entities]
    gold = [set(example.entities or ()) for example in examples]
    return Said(
        usual=np.array([one.score for text in predictions.decoded for one in text.entities]),
        log_odds=predictions.answers.log_odds,
        ours=predictions.confidence_of,
        right=np.array([one in there for some, there in zip(found, gold, strict=True) for one in some], dtype=bool),
        text=predictions.answers.text,
        gold=np.array([len(there) for there in gold]),
    )


def measure(setting: Setting, directory: Path, data: Path | None, cache: Path, rows: int | None) -> tuple[Said, Said]:
    """What a model says about the texts that calibrate it and those that measure it, from the cache where it is there.

    `ours` of the texts that calibrate is fitted on them and not used.
    """
    names = [f"entities-{directory.name}-{setting.measured}-{rows}-{part}.npz" for part in ("calibration", "test")]
    if not all((cache / name).exists() for name in names):
        tagger = UncertaintyTagger.from_pretrained(directory, calibrated=False, max_length=LENGTH)
        calibration = examples_of(setting.trained, "calibration", data, rows)
        tagger.calibrate(calibration)
        for name, examples in zip(names, (calibration, examples_of(setting.measured, "test", data, rows)), strict=True):
            np.savez(cache / name, **vars(said(tagger, examples)))
    before, after = (Said(**np.load(cache / name)) for name in names)
    return before, after


def over_seeds(seeds: list[Said], arm: str, less: str | None = None) -> dict[str, Interval]:
    """The mean over seeds of each metric, or of its difference from another arm, with its interval over texts."""

    def mean(name: str) -> Estimate:
        ones = [seed.rows(arm).estimates()[name].statistic for seed in seeds]
        others = [] if less is None else [seed.rows(less).estimates()[name].statistic for seed in seeds]

        def statistic(counts: Floats) -> Floats:
            values = sum(one(counts) for one in ones) - sum(other(counts) for other in others)
            return np.asarray(values / len(ones))

        return Estimate(statistic)

    texts = len(seeds[0].gold)
    return intervals(Estimates({name: mean(name) for name in METRICS}, (texts,)), Resampling(BOOTSTRAPS))


def print_figures(found: dict[Setting, list[tuple[Said, Said]]]) -> None:
    print(f"| | seeds | F1 | confidence | {' | '.join(f'{name} | less the usual' for name in METRICS.values())} |")
    print("|---|--:|--:|---|" + "--:|--:|" * len(METRICS))
    for setting, pairs in found.items():
        tests = [after for _, after in pairs]
        f1 = np.mean([one.f1 for one in tests])
        for arm in (USUAL, WHOLE, OURS):
            values, changes = over_seeds(tests, arm), over_seeds(tests, arm, USUAL)
            cells = []
            for name in METRICS:
                change = changes[name]
                cells.append(f"{values[name].point:.4f}")
                cells.append("" if arm == USUAL else f"{change.point:+.4f} [{change.low:+.4f}, {change.high:+.4f}]")
            print(f"| {setting.name} | {len(tests)} | {f1:.3f} | {arm} | {' | '.join(cells)} |", flush=True)
    print()


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
    return searched(texts_planner(rows, Wanted(kind="precision", target=target, score="log-odds", seed=seed)), target)


def print_promises(found: dict[Setting, list[tuple[Said, Said]]], resamples: int) -> None:
    print("| pool | texts | entities | wrong | promised | kept in | reported | best possible | nothing promised |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for setting, pairs in found.items():
        in_domain = setting.trained == setting.measured
        pools = [joined([before, after] if in_domain else [after]) for before, after in pairs]
        for target in TARGETS:
            kept, shares, silent, best = [], [], [], []
            for number, (pool, wrong) in enumerate(pools):
                rng = np.random.default_rng(number)
                risks = np.cumsum(wrong[np.argsort(-pool.scores, kind="stable")]) / np.arange(1, len(wrong) + 1)
                best.append((np.flatnonzero(risks <= target).max(initial=-1) + 1) / len(wrong))
                for _ in range(resamples // len(pools)):
                    sample, bad = drawn_texts(pool, wrong, rng.integers(0, pool.texts, size=pool.texts))
                    order = int(rng.integers(2**31))
                    rule = promise(sample, bad, target, order)
                    shown = pool.tally(rule.threshold, rule.most).sum()
                    kept.append(pool.tally(rule.threshold, rule.most, wrong).sum() <= target * shown)
                    shares.append(shown / len(wrong))
                    silent.append(not rule.promised)
            size = f"{pools[0][0].texts:,} | {np.mean([len(w) for _, w in pools]):,.0f}"
            cells = f"{np.mean(kept):.1%} | {np.mean(shares):.1%} | {np.mean(best):.1%} | {np.mean(silent):.1%}"
            risk = np.mean([wrong.mean() for _, wrong in pools])
            print(f"| {setting.name} | {size} | {risk:.1%} | ≤ {target:.0%} | {cells} |", flush=True)
    print()


def print_cost(directory: Path, data: Path | None, rows: int | None) -> None:
    """CPU time of the analytic method over that of the plain pass, for texts with k entities."""
    torch.set_num_threads(1)
    texts = [example.text for example in examples_of("wnut17", "test", data, rows)]
    plain, analytic = (
        UncertaintyTagger.from_pretrained(directory, method, calibrated=False, max_length=LENGTH).predictor()
        for method in ("base", "analytic")
    )
    counts = np.array([len(some) for some in plain.predict(texts).entities])
    print("| entities | texts | forwards | allowed, 1 + 1.2 k |")
    print("|--:|--:|--:|--:|")
    for k in range(1, 6):
        some = [texts[place] for place in np.flatnonzero(counts == k)[:20]]
        if len(some) < 3:
            continue
        ratios = []
        for text in some:
            seconds = []
            for predictor in (plain, analytic):
                spent = []
                for _ in range(5):
                    begin = time.process_time()
                    predictor.predict([text])
                    spent.append(time.process_time() - begin)
                seconds.append(min(spent))
            ratios.append(seconds[1] / seconds[0])
        print(f"| {k} | {len(some)} | {np.median(ratios):.2f} | {1 + 1.2 * k:.1f} |", flush=True)


def options_of_seeds(description: str | None) -> argparse.Namespace:
    """The options of a benchmark over the models of several seeds, whose answers are kept in a directory."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--resamples", type=int, default=300)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


def main() -> None:
    options = options_of_seeds(__doc__)
    found: dict[Setting, list[tuple[Said, Said]]] = {}
    directories: dict[Setting, list[Path]] = {}
    for setting in SETTINGS:
        asked = [options.models / f"{setting.trained}-{seed}" for seed in options.seeds.split(",")]
        directories[setting] = [one for one in asked if (one / "model.safetensors").exists()]
        pairs = [measure(setting, one, options.data, options.cache, options.rows) for one in directories[setting]]
        if pairs:
            found[setting] = pairs
    if not found:
        raise SystemExit(
            f"there is no model wnut17-* or btc-* in {options.models}; benchmarks/backbones.py makes them."
        )
    print_figures(found)
    print_promises(found, options.resamples)
    first = next(one for setting in found for one in directories[setting])
    print_cost(first, options.data, options.rows)


if __name__ == "__main__":
    main()
