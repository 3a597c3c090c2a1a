"""Several answers a text: what calibrating them as a whole, their variance and the promise are worth.

    python benchmarks/several.py entities --models DIR --data DIR --cache DIR [--seeds 0,1,2] [--rows N]
    python benchmarks/several.py labels   --models DIR --data DIR --cache DIR [--resamples 300]

DIR of --models holds the models wnut17-SEED, btc-SEED and goemotions-SEED of benchmarks/backbones.py; those that are
not there are left out. The dev set of the task that trained the model calibrates. Measured are the task's own test set,
and UNER PUD for the models of the Broad Twitter Corpus, as a shift from tweets to news. --rows takes the first N of
each set, for a quick look. What a model says is kept in --cache: the command can be stopped and repeated. Prints
Markdown tables.

Intervals resample texts with all of their answers, the same ones for every seed; a difference is the mean over seeds.
The promise is made again and again from texts drawn with replacement from a pool (of labels, from dev and test
together), whose own risk is the truth.
"""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
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
    trained,
)
from uatlite.classifier.classifiers import UncertaintyLabeler, UncertaintyTagger
from uatlite.classifier.many_labels import LEAST, label_answers
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.runtime import run
from uatlite.lab.evaluate.outcomes import best_coverage
from uatlite.methods.method import CalibrationRows, Method
from uatlite.methods.registry import parse_method
from uatlite.metrics.answers import AnswerRows, LabelRows
from uatlite.metrics.intervals import Estimates
from uatlite.predictive import PassLogits, sigmoid
from uatlite.text.labels import label_matrix
from uatlite.text.tasks import load
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.planners import TextScores
from uatlite.trust.promise import Labelled, decide, texts_planner
from uatlite.trust.rule import Wanted
from uatlite.values import Example, Floats, Integers, Span, Text

LENGTHS = {"entities": 96, "labels": 64}
RISKS = (0.1, 0.2, 0.3)
PRECISIONS = (0.6, 0.7, 0.8)
DRAWN = 2000
"""Labelled texts of which a promise about labels is made."""
Truth = NDArray[np.bool_]


def examples_of(task: str, split: str, options: Namespace) -> list[Example]:
    return list(load(task, split, options.data).examples[: options.rows])


def gap_cells(ours: list[Estimates], base: list[Estimates], is_base: bool) -> list[str]:
    """Each metric, the mean over seeds, and how much it is less the base's, with the interval."""
    cells, usual = [], over_seeds(base)
    for name, value in over_seeds(ours).items():
        gap = value.minus(usual[name]).interval_or_point()
        cells += [f"{value.mean:.4f}", "" if is_base else change(gap.point, gap.low, gap.high)]
    return cells


def promise_cells(trials: Iterable[tuple[bool, float, bool]], best: list[float]) -> list[str]:
    """How often the promise was kept, the share reported and the best one, and how often nothing was promised."""
    right, share, silent = np.mean(list(trials), axis=0)
    return [f"{value:.1%}" for value in (right, share, np.mean(best), silent)]


# ── entities ───────────────────────────────────────────────────────────────────────────────────────────────────────

USUAL, WHOLE, OURS = "mean token probability", "the entity as a whole", "ours: calibrated, with its variance"
METRICS = {"answer_ece": "entity ECE", "answer_aurc": "entity AURC", "answer_nll": "NLL", "wrong_auroc": "AUROC, wrong"}


@dataclass(frozen=True)
class Setting:
    """A model's task, and the task whose test set measures it."""

    name: str
    trained: str
    measured: str


SETTINGS = (Setting("WNUT-17", "wnut17", "wnut17"), Setting("BTC → PUD", "btc", "uner-pud"))


@dataclass(frozen=True, eq=False)
class Entities(Columns):
    """What one model says about the entities that it finds in some texts, (entities,) each unless stated."""

    usual: Floats
    log_odds: Floats
    ours: Floats
    right: Truth
    text: Integers
    gold: Integers
    """(texts,): gold entities"""

    @classmethod
    def of(cls, tagger: UncertaintyTagger, examples: list[Example]) -> "Entities":
        """The entities of texts against the gold ones."""
        pred = tagger.predict([example.text for example in examples], check_shift=False)
        gold = [set(example.entities or ()) for example in examples]
        found = [[Span(one.start, one.end, one.label) for one in of_text] for of_text in pred.entities]
        return cls(
            usual=np.array([one.score for text in pred.decoded for one in text.entities]),
            log_odds=pred.answers.log_odds,
            ours=pred.sure,
            right=np.array([one in of for of_text, of in zip(found, gold, strict=True) for one in of_text], dtype=bool),
            text=pred.answers.text,
            gold=np.array([len(of) for of in gold]),
        )

    def estimates(self, arm: str) -> Estimates:
        """The metrics of the entities with the confidence of an arm."""
        whole = 1.0 / (1.0 + np.exp(-self.log_odds))
        confidence = {USUAL: self.usual, WHOLE: whole, OURS: self.ours}[arm]
        rows = AnswerRows.of(np.clip(confidence, 0.0, 1.0), self.right, self.text, texts=len(self.gold))
        return rows.estimates().chosen(*METRICS)

    @property
    def f1(self) -> float:
        return float(2 * self.right.sum() / (len(self.right) + self.gold.sum()))


Measured = dict[Setting, list[tuple[Entities, Entities]]]
"""For each seed what is said of the texts that calibrate and of those that measure."""


def entities_of(setting: Setting, directory: Path, options: Namespace) -> tuple[Entities, Entities]:
    """`ours` of the texts that calibrate is fitted on them and not used."""
    length = LENGTHS["entities"]
    tagger = UncertaintyTagger.from_pretrained(directory, calibrated=False, max_length=length)

    def compute(task: str, split: str) -> Entities:
        if tagger.calibration_ is None:
            tagger.calibrate(examples_of(setting.trained, "calibration", options))
        return Entities.of(tagger, examples_of(task, split, options))

    stem = f"entities-{directory.name}-{setting.measured}-{options.rows}"
    before, after = (
        kept(Entities, options.cache / f"{stem}-{split}.npz", lambda task=task, split=split: compute(task, split))
        for task, split in ((setting.trained, "calibration"), (setting.measured, "test"))
    )
    return before, after


def print_entity_figures(found: Measured) -> None:
    head("", "seeds", "F1", "confidence", *(cell for name in METRICS.values() for cell in (name, "less the usual")))
    for setting, pairs in found.items():
        tests = [after for _, after in pairs]
        usual = [test.estimates(USUAL) for test in tests]
        for arm in (USUAL, WHOLE, OURS):
            cells = gap_cells([test.estimates(arm) for test in tests], usual, arm == USUAL)
            line(setting.name, len(tests), f"{np.mean([test.f1 for test in tests]):.3f}", arm, *cells)


def joined(parts: list[Entities]) -> tuple[TextScores, Truth]:
    """The entities of several sets as one pool, by their log-odds, which no labelled text has fitted."""
    starts = np.cumsum([0, *(len(part.gold) for part in parts)])
    text = np.concatenate([part.text + start for part, start in zip(parts, starts, strict=False)])
    scores = TextScores(np.concatenate([part.log_odds for part in parts]), text, int(starts[-1]))
    return scores, ~np.concatenate([part.right for part in parts])


def entity_trial(pool: TextScores, wrong: Truth, target: float, rng: np.random.Generator) -> tuple[bool, float, bool]:
    """A promise from as many texts as the pool has: whether it is kept there, the share reported, whether it is none.

    The rule has no sentence that says why not.
    """
    rows = rng.integers(0, pool.texts, size=pool.texts)
    first, last = (np.searchsorted(pool.text, rows, side=side) for side in ("left", "right"))
    drawn = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)]).astype(np.int64)
    text = np.repeat(np.arange(len(rows)), last - first)
    sample = Labelled({"log-odds": pool.scores[drawn]}, wrong[drawn], text, len(rows))
    wanted = Wanted(kind="precision", target=target, score="log-odds", seed=int(rng.integers(2**31)))
    rule = texts_planner(sample, wanted).searched(target)
    shown = pool.shown(rule.threshold, rule.most)
    return (shown & wrong).sum() <= target * shown.sum(), shown.mean(), not rule.promised


def print_entity_promises(found: Measured, resamples: int) -> None:
    columns = ["promised", "kept in", "reported", "best possible", "nothing promised"]
    head("pool", "texts", "entities", "wrong", *columns)
    for setting, pairs in found.items():
        in_domain = setting.trained == setting.measured
        pools = [joined([before, after] if in_domain else [after]) for before, after in pairs]
        size = f"{pools[0][0].texts:,}", f"{np.mean([len(wrong) for _, wrong in pools]):,.0f}"
        risk = np.mean([wrong.mean() for _, wrong in pools])
        for target in RISKS:
            trials = []
            for seed, pool in enumerate(pools):
                rng = np.random.default_rng(seed)
                trials += [entity_trial(*pool, target, rng) for _ in range(resamples // len(pools))]
            best = [best_share(pool.scores, wrong, target) for pool, wrong in pools]
            line(setting.name, *size, f"{risk:.1%}", f"≤ {target:.0%}", *promise_cells(trials, best))


def entities(options: Namespace) -> None:
    found = {
        setting: [entities_of(setting, directory, options) for directory in there]
        for setting in SETTINGS
        if (there := trained(options.models, setting.trained, numbers(options.seeds)))
    }
    print_entity_figures(found)
    print_entity_promises(found, options.resamples)


# ── many labels ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Split:
    """The texts of a split, their gold (texts, labels), and what a model says about them."""

    labeler: UncertaintyLabeler
    name: str
    texts: list[Text]
    gold: Truth
    cache: Path

    def run(self, method: Method, some: Integers | None = None) -> PassLogits:
        """What a method says about all texts or some, from the cache where it is there."""
        texts = self.texts if some is None else [self.texts[i] for i in some.tolist()]
        name = f"labels-{self.labeler.runtime.hash[:12]}-{self.name}-{len(texts)}-{method.name.replace(':', '-')}"

        def compute() -> PassLogits:
            outputs = run(self.labeler.runtime, texts, replace(self.labeler.settings, method=method))
            arrays = (outputs.logits, outputs.given_variance, outputs.representations)
            return PassLogits(*(None if array is None else array.astype(np.float32) for array in arrays))

        passes = kept(PassLogits, self.cache / f"{name}.npz", compute)
        return PassLogits(*(None if array is None else array.astype(np.float64) for array in vars(passes).values()))


def splits(labeler: UncertaintyLabeler, options: Namespace) -> Iterator[Split]:
    """The split that calibrates, and the one that measures."""
    for name in ("calibration", "test"):
        examples = examples_of("goemotions", name, options)
        gold = label_matrix([example.labels or () for example in examples], labeler.class_names)
        yield Split(labeler, name, [example.text for example in examples], gold, options.cache)


@dataclass(frozen=True, eq=False)
class Seed:
    """One model: the probabilities (texts, labels) of each arm on the test set, and what else is reported."""

    arms: dict[str, Floats]
    gold: Truth
    logits: Floats
    """(texts, labels), of both splits together"""
    pool: Truth
    reason: str

    @classmethod
    def of(cls, directory: Path, options: Namespace) -> "Seed":
        """Calibrate each arm on the calibration split and apply it to the test split."""
        labeler = UncertaintyLabeler.from_pretrained(directory, calibrated=False, max_length=LENGTHS["labels"])
        calibration, test = splits(labeler, options)
        base, ours = parse_method("base"), parse_method(UncertaintyLabeler.default_method)
        before, after = calibration.run(base), test.run(base)
        rows = CalibrationRows(len(calibration.gold), calibration.run, run_some=calibration.run, kind="labels")
        tuned = ours.learn(rows)
        said, learned = tuned.method.read_from(after), tuned.outputs  # below the floor what the plain pass says
        assert said is not None
        assert learned is not None
        arms = {
            "base": sigmoid(after.mean_logits),
            "base, calibrated": calibrated(before, calibration.gold, after),
            "ours: with its variance": calibrated(learned, calibration.gold, said),
        }
        logits = np.concatenate([before.mean_logits, after.mean_logits])
        return cls(arms, test.gold, logits, np.concatenate([calibration.gold, test.gold]), tuned.reason)

    def trial(self, precision: float, rng: np.random.Generator) -> tuple[bool, float, bool]:
        """A promise from drawn texts: whether it is kept, the share of gold labels reported, whether it is none."""
        drawn = rng.integers(0, len(self.pool), size=DRAWN)
        answers = label_answers(self.logits[drawn], None)
        rows = Labelled({LOG_ODDS: answers.log_odds}, ~self.pool[drawn].ravel(), answers.text, DRAWN, least=LEAST)
        order = int(rng.integers(2**31))
        rule = decide(rows, Wanted(kind="precision", target=1 - precision, score=LOG_ODDS, seed=order)).rule
        ranks = np.argsort(np.argsort(-self.logits, axis=1, kind="stable"), axis=1)
        lowest = math.log(LEAST / (1.0 - LEAST))
        said = (self.logits > max(rule.threshold, lowest)) & (ranks < rule.most)
        hits = int((said & self.pool).sum())
        truth = hits / int(said.sum()) if said.any() else 1.0
        return truth >= precision, hits / int(self.pool.sum()), not rule.promised

    def best_coverage(self, precision: float) -> float:
        """Knowing the truth: the largest share of gold labels reported at this precision, by one threshold."""
        gold = self.pool.ravel()
        return best_coverage(self.logits.ravel(), gold, gold, 1 - precision)


def calibrated(before: PassLogits, gold: Truth, after: PassLogits) -> Floats:
    """Probabilities (texts, labels) of new texts by a calibrator that was fitted on others."""
    calibrator = AnswerCalibrator.fit(label_answers(before.mean_logits, before.label_variance), gold.ravel())
    return calibrator.confidence(label_answers(after.mean_logits, after.label_variance)).reshape(after.logits.shape[1:])


def print_label_figures(seeds: list[Seed]) -> None:
    scores = ["micro F1", "macro F1", "AURC ×100, pairs", "macro AP"]
    head("", "label-wise ECE", "less base", "NLL", "less base", *scores)
    base, *_ = arms = list(seeds[0].arms)
    estimates = {arm: [LabelRows.of(seed.arms[arm], seed.gold).estimates() for seed in seeds] for arm in arms}
    resampled = {arm: [one.chosen("label_ece", "label_nll") for one in estimates[arm]] for arm in arms}
    for arm in arms:
        means = {name: np.mean([one.points()[name] for one in estimates[arm]]) for name in estimates[arm][0]}
        micro, macro, precision = (f"{means[name]:.3f}" for name in ("micro_f1", "macro_f1", "macro_average_precision"))
        cells = gap_cells(resampled[arm], resampled[base], arm == base)
        line(arm, *cells, micro, macro, f"{100 * means['pair_aurc']:.3f}", precision)


def print_label_promises(seeds: list[Seed], resamples: int) -> None:
    columns = ["kept in", "gold labels reported", "best possible", "nothing promised", f"{DRAWN} texts"]
    head("precision promised", *columns, left=0)
    for precision in PRECISIONS:
        trials = []
        for number, seed in enumerate(seeds):
            rng = np.random.default_rng(number)
            trials += [seed.trial(precision, rng) for _ in range(resamples // len(seeds))]
        best = [seed.best_coverage(precision) for seed in seeds]
        line(f"{precision:.0%}", *promise_cells(trials, best), f"{len(trials)} resamples")


def labels(options: Namespace) -> None:
    seeds = [Seed.of(path, options) for path in trained(options.models, "goemotions", numbers(options.seeds))]
    if seeds:
        print(f"{len(seeds)} seeds, {len(seeds[0].gold):,} test texts, {seeds[0].gold.shape[1]} labels.")
        print_label_figures(seeds)
        print_label_promises(seeds, options.resamples)
    for seed in seeds:
        print(f"\n{seed.reason}")


PARTS: dict[str, Callable[[Namespace], None]] = {"entities": entities, "labels": labels}


def main() -> None:
    parser = parser_of_models(__doc__, cache=True, seeds="0,1,2", rows=None, resamples=300)
    parser.add_argument("part", choices=PARTS)
    options = parser.parse_args()
    tasks = ("wnut17", "btc") if options.part == "entities" else ("goemotions",)
    if not any(trained(options.models, task, numbers(options.seeds)) for task in tasks):
        raise SystemExit(f"there is no model {tasks[0]}-* in {options.models}; benchmarks/backbones.py makes them.")
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
