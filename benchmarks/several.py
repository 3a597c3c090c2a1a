"""Several answers a text: what calibrating them as a whole, their variance and the promise are worth.

    python benchmarks/several.py entities --models DIR --data DIR --cache DIR [--seeds 0,1,2] [--rows N]
    python benchmarks/several.py labels   --models DIR --data DIR --cache DIR [--resamples 300]

DIR of --models holds the models wnut17-SEED, btc-SEED and goemotions-SEED of benchmarks/backbones.py; those that are
not there are left out. The dev set of the task that trained the model calibrates. Measured are the task's own test set,
and UNER PUD for the models of the Broad Twitter Corpus, as a shift from tweets to news. --rows draws N of each set, for
a quick look. Rows, runs, calibration and metrics are those of `uatlite evaluate`. What a model says is kept in --cache:
the command can be stopped and repeated. Prints Markdown tables.

Intervals resample texts with all of their answers, the same ones for every seed; a difference is the mean over seeds.
The promise is made again and again from texts drawn with replacement from a pool (of entities in their own domain and
of labels, from dev and test together), whose own risk is the truth.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness import head, less, line, numbers, over_seeds, parser_of_models, trained
from uatlite.classifier.classifiers import UncertaintyLabeler
from uatlite.classifier.many_labels import LEAST
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.lab.evaluate.answer_runs import AnswerRuns
from uatlite.lab.evaluate.models import GivenModels, sets_of
from uatlite.lab.evaluate.outcomes import JudgedAnswers, best_coverage
from uatlite.lab.evaluate.plan import Plan, parse_contenders, parse_set
from uatlite.lab.evaluate.store import Store
from uatlite.metrics.answers import AnswerRows
from uatlite.metrics.intervals import Estimates
from uatlite.model.load import load_checkpoint
from uatlite.predictive import sigmoid
from uatlite.trust.promise import Labelled, texts_planner
from uatlite.trust.rule import Wanted, ranks

DRAWN = 2000
"""Labelled texts of which a promise about labels is made."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Answers by a score that no labelled text has fitted: the population of a promise, whose own risk is the truth."""

    said: JudgedAnswers
    counted: np.ndarray
    """(answers,): those of which a promise reports a share"""
    least: float = 0.0
    """answers at or below this probability are never reported"""

    @cached_property
    def rank(self) -> np.ndarray:
        """(answers,): 0 for the surest of its text."""
        return ranks(self.said.score, self.said.text)

    def trial(self, texts: int, target: float, rng: np.random.Generator) -> tuple[bool, float, bool]:
        """A promise from drawn texts: whether it is kept, the share reported, whether there is none.

        The rule has no sentence that says why not.
        """
        said, rows = self.said, rng.integers(0, len(self.said.cut), size=texts)
        first, last = (np.searchsorted(said.text, rows, side=side) for side in ("left", "right"))
        drawn = np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)]).astype(np.int64)
        text, scores = np.repeat(np.arange(texts), last - first), {LOG_ODDS: said.score[drawn]}
        sample = Labelled(scores, ~said.right[drawn], text, texts, least=self.least)
        wanted = Wanted(kind="precision", target=target, score=LOG_ODDS, seed=int(rng.integers(2**31)))
        rule = texts_planner(sample, wanted).searched(target)
        shown = (said.score > rule.threshold) & (self.rank < rule.most)
        kept = (shown & ~said.right).sum() <= target * shown.sum()
        return kept, (shown & self.counted).sum() / self.counted.sum(), not rule.promised

    def best(self, target: float) -> float:
        """Knowing the truth: the largest share reported by one threshold."""
        return best_coverage(self.said.score, self.said.right, self.counted, target)


def promise_cells(pools: list[Pool], texts: int, target: float, resamples: int) -> list[str]:
    """How often a promise was kept, the share reported and the best one, and how often nothing was promised."""
    trials = []
    for seed, pool in enumerate(pools):
        rng = np.random.default_rng(seed)
        trials += [pool.trial(texts, target, rng) for _ in range(resamples // len(pools))]
    kept, share, silent = np.mean(trials, axis=0)
    return [f"{value:.1%}" for value in (kept, share, np.mean([pool.best(target) for pool in pools]), silent)]


def gap_cells(ours: list[Estimates], base: list[Estimates], metrics: Iterable[str]) -> list[str]:
    """Each metric, the mean over seeds, and how much it is less the base's, with the interval."""
    (found, usual), cells = (over_seeds([one.chosen(*metrics) for one in arm]) for arm in (ours, base)), []
    for name, value in found.items():
        cells += [f"{value.mean:.4f}", "" if ours is base else less(value, usual[name])]
    return cells


class Seed:
    """What each contender says of one model's sets: those of `uatlite evaluate`, and the dev set that calibrates."""

    def __init__(self, seed: int, options: Namespace, task: str, contenders: str, length: int, *shifts: str) -> None:
        plan = Plan(
            contenders=parse_contenders(contenders, several=True), test=parse_set(task), limit=options.rows,
            shifts=tuple(map(parse_set, shifts)), max_length=length, data_dir=options.data,
        )  # fmt: skip
        model = load_checkpoint(options.models / f"{task}-{seed}", kind=plan.test.task.kind)
        self.runs = AnswerRuns(GivenModels([model], plan), Store(options.cache))
        self.cells = [[replace(cell, contender=one) for one in plan.contenders] for cell in sets_of(plan)]

    @property
    def test(self) -> list[JudgedAnswers]:
        """What each contender says of the last set."""
        return [self.runs.run(self.runs.jobs(cell)[0]) for cell in self.cells[-1]]

    @property
    def estimates(self) -> list[Estimates]:
        """The metrics of each contender on the last set."""
        return [self.runs.estimates(cell)[0] for cell in self.cells[-1]]

    def pool(self, contender: int) -> JudgedAnswers:
        """What a contender says of the last set, and of the dev set where both are of one task."""
        sets = [self.test[contender]]
        if len(self.cells) == 1:
            sets.insert(0, self.runs.run(self.runs.jobs(self.cells[0][contender])[0].home))
        return JudgedAnswers.joined(sets)


def seeds_of(options: Namespace, task: str, *about: str | int) -> list[Seed]:
    """Those of the asked ones whose model is there."""
    return [Seed(seed, options, task, *about) for seed in trained(options.models, task, numbers(options.seeds))]


# ── entities ───────────────────────────────────────────────────────────────────────────────────────────────────────

USUAL, WHOLE, OURS = "mean token probability", "the entity as a whole", "ours: calibrated, with its variance"
METRICS = {"answer_ece": "entity ECE", "answer_aurc": "entity AURC", "answer_nll": "NLL", "wrong_auroc": "AUROC, wrong"}
SETTINGS = {"WNUT-17": ("wnut17",), "BTC → PUD": ("btc", "uner-pud")}
"""The task that trained a model, and that whose test set measures it, where it is another one."""


def entity_arms(seed: Seed) -> dict[str, Estimates]:
    """The metrics of the plain model's entities by the usual confidence, and of ours by two: the odds of the whole
    entity, which the promise ranks by, and the calibrated confidence."""
    said, (usual, ours) = seed.test[1], seed.estimates
    whole = AnswerRows.of(sigmoid(said.score), said.right, said.text, texts=len(said.cut)).estimates()
    return {USUAL: usual, WHOLE: Estimates({**ours, **whole}, ours.strata), OURS: ours}


def entities(options: Namespace) -> None:
    contenders = "base,distilled+answers"
    found = {
        name: seeds
        for name, (task, *shifts) in SETTINGS.items()
        if (seeds := seeds_of(options, task, contenders, 96, *shifts))
    }
    head("", "seeds", "F1", "confidence", *(cell for name in METRICS.values() for cell in (name, "less the usual")))
    for name, seeds in found.items():
        every = [entity_arms(seed) for seed in seeds]
        arms = {arm: [of_seed[arm] for of_seed in every] for arm in (USUAL, WHOLE, OURS)}
        for arm, estimates in arms.items():
            f1 = np.mean([one.points()["f1"] for one in estimates])
            line(name, len(seeds), f"{f1:.3f}", arm, *gap_cells(estimates, arms[USUAL], METRICS))

    columns = ["promised", "kept in", "reported", "best possible", "nothing promised"]
    head("pool", "texts", "entities", "wrong", *columns)
    for name, seeds in found.items():
        pools = [Pool(said, np.ones(len(said.right), dtype=bool)) for said in (seed.pool(1) for seed in seeds)]
        texts = len(pools[0].said.cut)
        size = f"{texts:,}", f"{np.mean([len(pool.counted) for pool in pools]):,.0f}"
        risk = np.mean([1 - pool.said.right.mean() for pool in pools])
        for target in (0.1, 0.2, 0.3):
            cells = promise_cells(pools, texts, target, options.resamples)
            line(name, *size, f"{risk:.1%}", f"≤ {target:.0%}", *cells)


# ── many labels ────────────────────────────────────────────────────────────────────────────────────────────────────

ARMS = {
    "base": "base",
    "base, calibrated": "base+answers",
    "ours: with its variance": f"{UncertaintyLabeler.default_method}+answers",
}
LABELWISE = ("label_ece", "label_nll")
FURTHER = {"micro_f1": 1, "macro_f1": 1, "pair_aurc": 100, "macro_average_precision": 1}
"""metric -> what it is multiplied by"""


def labels(options: Namespace) -> None:
    seeds = seeds_of(options, "goemotions", ",".join(ARMS.values()), 64)
    rows, columns = seeds[0].test[0].gold.shape
    print(f"{len(seeds)} seeds, {rows:,} test texts, {columns} labels.")
    scores = ["micro F1", "macro F1", "AURC ×100, pairs", "macro AP"]
    head("", "label-wise ECE", "less base", "NLL", "less base", *scores)
    arms = list(zip(*(seed.estimates for seed in seeds), strict=True))
    for name, arm in zip(ARMS, arms, strict=True):
        points = [one.points() for one in arm]
        further = [f"{by * np.mean([of[metric] for of in points]):.3f}" for metric, by in FURTHER.items()]
        line(name, *gap_cells(arm, arms[0], LABELWISE), *further)

    columns = ["kept in", "gold labels reported", "best possible", "nothing promised", f"{DRAWN} texts"]
    head("precision promised", *columns, left=0)
    pools = [Pool(said, said.right, LEAST) for said in (seed.pool(0) for seed in seeds)]
    count = options.resamples // len(seeds) * len(seeds)
    for precision in (0.6, 0.7, 0.8):
        cells = promise_cells(pools, DRAWN, 1 - precision, options.resamples)
        line(f"{precision:.0%}", *cells, f"{count} resamples")
    for seed in seeds:
        print(f"\n{seed.runs.ready(seed.runs.jobs(seed.cells[0][-1])[0]).calibration_.spending[0]}")


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
