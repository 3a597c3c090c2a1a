"""Labels of today, on real streams: the interval of the current risk, the promise after an update, label errors.

    python benchmarks/recheck.py --models DIR --data DIR [--seed 0] [--cache DIR] [--only interval,update,mislabelled]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. Each text runs once;
what the classifier says of it is kept in --cache. Streams: SST-2 test sentences with sentences of IMDb reviews mixed
in, which have the label of their review; CLINC150 questions with others out of its scope, where any answer is wrong.

The table `mislabelled` compares with cleanlab, which has its own requirements: benchmarks/requirements-cleanlab.txt.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness import (
    CALIBRATION,
    Columns,
    Texts,
    best_share,
    head,
    kept,
    line,
    only,
    outside_questions,
    parser_of_models,
    review_sentences,
    rows_of,
)
from uatlite import UncertaintyClassifier
from uatlite.classifier.recheck import renewed_rule
from uatlite.scoring.mislabelled import probably_mislabelled
from uatlite.scoring.pick import Candidate, pick
from uatlite.trust.binomial import RiskInterval, risk_interval
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import RAW_SCORE, Rule, Wanted

LENGTH = 128
STREAM = 2000
"""Rows of a stream from which rows are picked."""
LABELS = 100


@dataclass(frozen=True, eq=False)
class Said(Columns):
    """What a classifier says of texts, (rows,) each, the probabilities (rows, classes), and whether it is wrong."""

    texts: np.ndarray
    margin: np.ndarray
    confidence: np.ndarray
    inside: np.ndarray
    wrong: np.ndarray
    gold: np.ndarray
    probabilities: np.ndarray

    def scored(self, rule: Rule) -> list[Candidate]:
        answered = self.answered(rule)
        rows = zip(self.texts.tolist(), self.confidence, answered, self.inside, strict=True)
        return [
            Candidate(str(place), text, "", float(confidence), bool(yes), not inside, float(inside))
            for place, (text, confidence, yes, inside) in enumerate(rows)
        ]

    def answered(self, rule: Rule) -> np.ndarray:
        return rule.reports(self.margin) & self.inside


class Bench:
    """What the models say of the streams."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.tasks = options, options.tasks.split(",")
        self.calibrated: dict[str, UncertaintyClassifier] = {}

    @property
    def streams(self) -> list[tuple[str, str, str, float]]:
        return [stream for stream in STREAMS if stream[1] in self.tasks]

    def classifier(self, task: str) -> UncertaintyClassifier:
        """The model of a task with one plain pass; the raw margin decides, so the method does not matter here."""
        if task not in self.calibrated:
            directory = self.options.models / f"{task}-{self.options.seed}"
            model = UncertaintyClassifier.from_pretrained(directory, method="base", max_length=LENGTH)
            self.calibrated[task] = model.calibrate(*rows_of(task, CALIBRATION[task], self.options.data))
        return self.calibrated[task]

    def said(self, task: str, name: str) -> Said:
        """What the classifier of a task says of the named texts."""
        cache = self.options.cache

        def compute() -> Said:
            texts, gold = TEXTS[name](self.options.data)
            classifier = self.classifier(task)
            found = classifier.predict(texts, check_shift=False)
            columns = np.array([classifier.class_names.index(label) if label else -1 for label in gold])
            assert found.out_of_scope is not None
            return Said(
                np.array(texts, dtype=np.str_), found.logit_margin, found.confidence, ~found.out_of_scope,
                found.predicted != columns, columns, found.probabilities,
            )  # fmt: skip

        return kept(Said, cache and cache / f"recheck-{task}-{self.options.seed}-{name}.npz", compute)

    def rule(self, task: str, target: float) -> Rule:
        """The promise of the calibration rows in scope, by their margins."""
        dev = self.said(task, f"{task}-dev")
        wanted = Wanted(kind="risk", target=target, score=RAW_SCORE)
        return decide(Labelled({RAW_SCORE: dev.margin}, dev.wrong), wanted, inside=dev.inside).rule

    def stream(self, task: str, other: str, share: float) -> Said:
        """`STREAM` rows of the task's test set, of which this share is replaced by others."""
        rng = np.random.default_rng(0)
        mixed = round(share * STREAM)
        test, new = self.said(task, f"{task}-test"), self.said(task, other)
        some = test[rng.permutation(len(test.wrong))[: STREAM - mixed]]
        return some + new[rng.permutation(len(new.wrong))[:mixed]]


TEXTS: dict[str, Callable[[Path | None], Texts]] = {
    "sst2-dev": lambda data: rows_of("sst2", CALIBRATION["sst2"], data),
    "sst2-test": lambda data: rows_of("sst2", ["test-original"], data),
    "sst2-imdb": lambda data: review_sentences(data, 2100),
    "clinc150-dev": lambda data: rows_of("clinc150", CALIBRATION["clinc150"], data),
    "clinc150-test": lambda data: rows_of("clinc150", ["test"], data),
    "clinc150-outside": outside_questions,
}

STREAMS = (
    ("SST-2", "sst2", "sst2-imdb", 0.0),
    ("SST-2, 10 % IMDb", "sst2", "sst2-imdb", 0.1),
    ("SST-2, 30 % IMDb", "sst2", "sst2-imdb", 0.3),
    ("IMDb", "sst2", "sst2-imdb", 1.0),
    ("CLINC150, 5 % out of scope", "clinc150", "clinc150-outside", 0.05),
    ("CLINC150, 20 % out of scope", "clinc150", "clinc150-outside", 0.2),
)


def interval_of(said: Said, rows: list[Candidate], share: float, seed: int) -> RiskInterval:
    """From the answers among the rows that `pick` chooses."""
    picked = [one for one in pick(rows, LABELS, random_share=share, seed=seed) if one.row.answered]
    wrong = said.wrong[[int(one.row.id) for one in picked]]
    return risk_interval(wrong, [one.inclusion for one in picked])


def random_interval(said: Said, rule: Rule, seed: int) -> RiskInterval:
    """From the answers among rows drawn from all of the stream."""
    rows = np.random.default_rng(seed).permutation(len(said.wrong))[:LABELS]
    return risk_interval(said.wrong[rows][said.answered(rule)[rows]])


def interval_table(bench: Bench) -> None:
    """Each cell: how often the interval holds the risk of all answers of the stream / its mean width."""
    print(f"\n### The interval of the current risk from {LABELS} labels, confidence 0.95")
    head("stream", "answered", "risk", "100 random rows", "100 random answers", "as `pick` does, 75 and 25")
    for name, task, other, share in bench.streams:
        said, rule = bench.stream(task, other, share), bench.rule(task, 0.1)
        answered, rows = said.answered(rule), said.scored(rule)
        truth = float(said.wrong[answered].mean())
        forms: list[Callable[[int], RiskInterval]] = [
            lambda seed, said=said, rule=rule: random_interval(said, rule, seed),
            lambda seed, said=said, rows=rows: interval_of(said, rows, 1.0, seed),
            lambda seed, said=said, rows=rows: interval_of(said, rows, 0.75, seed),
        ]
        cells, first = [], 0.0
        for form in forms:
            found = [form(seed) for seed in range(bench.options.repetitions)]
            held = np.mean([one.low <= truth <= one.high for one in found])
            width = float(np.mean([one.high - one.low for one in found]))
            first = first or width
            cells.append(f"{held:.3f} / {width:.3f} ({width / first:.2f})")
        line(name, f"{answered.mean():.3f}", f"{truth:.3f}", *cells)


def update_table(bench: Bench) -> None:
    """A broken promise is one whose threshold has a risk above the target on the whole stream."""
    print(f"\n### The promise after an update with {LABELS} labels")
    columns = ["target", "old rule: risk", "coverage", "best coverage", "labels of", "kept", "coverage now", "none"]
    head("stream", *columns)
    for name, task, other, share in bench.streams:
        for target in (0.1, 0.2):
            said, old = bench.stream(task, other, share), bench.rule(task, target)
            answered = said.answered(old)
            margins, wrong = said.margin[said.inside], said.wrong[said.inside]
            best = best_share(margins, wrong, target) * len(wrong) / len(said.wrong)
            for labels in ("answers", "all rows"):
                updates = []
                for seed in range(bench.options.repetitions):
                    pool = np.flatnonzero(answered if labels == "answers" else said.inside)
                    rows = np.random.default_rng(seed).permutation(pool)[:LABELS]
                    sample = Labelled({old.score: said.margin[rows]}, said.wrong[rows])
                    new = renewed_rule(old, sample, labels == "answers", Labelled({old.score: margins}))
                    now = said.answered(new)
                    held = not now.any() or said.wrong[now].mean() <= target
                    updates.append((held, now.mean(), not now.any()))
                risk = f"{said.wrong[answered].mean():.3f}" if answered.any() else "–"
                cells = [f"{mean:.3f}" for mean in np.mean(updates, axis=0)]
                line(name, f"{target:g}", risk, f"{answered.mean():.3f}", f"{best:.3f}", labels, *cells)


def mislabelled_table(bench: Bench) -> None:
    """Labels flipped at random among calibration rows; ours and cleanlab's confident learning on the same rows."""
    from cleanlab.filter import find_label_issues

    print("\n### Label errors: rows with flipped labels, by ours and by cleanlab")
    head("rows", "flipped", "ours: found, precision, recall", "cleanlab: found, precision, recall", "same rows")
    for task in bench.tasks:
        said = bench.said(task, f"{task}-test")
        for share in (0.02, 0.1):
            rng = np.random.default_rng(0)
            flipped = rng.random(len(said.gold)) < share
            classes = said.probabilities.shape[1]
            given = np.where(flipped, (said.gold + rng.integers(1, classes, len(said.gold))) % classes, said.gold)
            ours = np.zeros(len(given), dtype=bool)
            ours[probably_mislabelled(said.probabilities, given)[0]] = True
            theirs = find_label_issues(given, said.probabilities, filter_by="confident_learning", n_jobs=1)
            cells = [f"{f.sum()}, {flipped[f].mean():.3f}, {f[flipped].mean():.3f}" for f in (ours, theirs)]
            same = (ours & theirs).sum() / max((ours | theirs).sum(), 1)
            line(f"{task}, {len(given):,}", flipped.sum(), *cells, f"{same:.3f}")


TABLES: dict[str, Callable[[Bench], None]] = {
    "interval": interval_table,
    "update": update_table,
    "mislabelled": mislabelled_table,
}


def main() -> None:
    parser = parser_of_models(__doc__, seed=0, repetitions=500, tasks="sst2,clinc150")
    only(parser, TABLES, Bench)


if __name__ == "__main__":
    main()
