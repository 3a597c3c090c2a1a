"""Labels of today, on real streams: the interval of the current risk, the promise after an update, label errors.

    python benchmarks/recheck.py --models DIR --data DIR [--seed 0] [--cache DIR] [--only interval,update,mislabelled]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. Each text runs once;
what the classifier says of it is kept in --cache. Streams: SST-2 test sentences with sentences of IMDb reviews mixed
in, which have the label of their review; CLINC150 questions with others out of its scope, where any answer is wrong.

The table `mislabelled` compares with cleanlab, which has its own requirements: benchmarks/requirements-cleanlab.txt.
"""

import argparse
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from uatlite import UncertaintyClassifier
from uatlite.classifier.recheck import renewed_rule
from uatlite.scoring.mislabelled import probably_mislabelled
from uatlite.scoring.pick import Candidate, pick
from uatlite.text.tasks import load
from uatlite.trust.binomial import RiskInterval, risk_interval
from uatlite.trust.promise import Labelled, Wanted, decide
from uatlite.trust.rule import RAW_SCORE, Rule

LENGTH = 128
STREAM = 2000
"""Rows of a stream from which rows are picked."""
LABELS = 100


@dataclass(frozen=True)
class Said:
    """What a classifier says of texts, (rows,) each, the probabilities (rows, classes), and whether it is wrong."""

    texts: np.ndarray
    margin: np.ndarray
    confidence: np.ndarray
    inside: np.ndarray
    wrong: np.ndarray
    gold: np.ndarray
    probabilities: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> "Said":
        return Said(*(array[rows] for array in vars(self).values()))

    def __add__(self, other: "Said") -> "Said":
        return Said(*(np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))

    def scored(self, rule: Rule) -> list[Candidate]:
        answered = self.answered(rule)
        rows = zip(self.texts.tolist(), self.confidence, answered, self.inside, strict=True)
        return [
            Candidate(str(place), text, "", float(confidence), bool(yes), not inside, float(inside))
            for place, (text, confidence, yes, inside) in enumerate(rows)
        ]

    def answered(self, rule: Rule) -> np.ndarray:
        return rule.reports(self.margin) & self.inside


@dataclass(frozen=True)
class Bench:
    """Where models and data are, and what was read so far."""

    models: Path
    data: Path | None
    seed: int
    cache: Path | None
    repetitions: int
    tasks: tuple[str, ...] = ("sst2", "clinc150")
    calibrated: dict[str, UncertaintyClassifier] = field(default_factory=dict)

    @property
    def streams(self) -> list[tuple[str, str, str, float]]:
        return [stream for stream in STREAMS if stream[1] in self.tasks]

    def classifier(self, task: str) -> UncertaintyClassifier:
        """The model of a task with one plain pass; the raw margin decides, so the method does not matter here."""
        if task not in self.calibrated:
            texts, labels = rows_of(self, task, *CALIBRATION[task])
            model = UncertaintyClassifier.from_pretrained(
                self.models / f"{task}-{self.seed}", method="base", max_length=LENGTH
            )
            self.calibrated[task] = model.calibrate(texts, labels)
        return self.calibrated[task]

    def said(self, task: str, name: str) -> Said:
        """What the classifier of a task says of the named texts."""
        file = self.cache and self.cache / f"recheck-{task}-{self.seed}-{name}.npz"
        if file and file.exists():
            return Said(**np.load(file))
        texts, gold = TEXTS[name](self)
        classifier = self.classifier(task)
        found = classifier.predict(texts, check_shift=False)
        columns = np.array([classifier.class_names.index(label) if label else -1 for label in gold])
        assert found.out_of_scope is not None
        said = Said(
            np.array(texts, dtype=np.str_), found.logit_margin, found.confidence, ~found.out_of_scope,
            found.predicted != columns, columns, found.probabilities,
        )  # fmt: skip
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, **vars(said))
        return said

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


CALIBRATION = {"sst2": ("calibration", "test"), "clinc150": ("calibration",)}


def rows_of(bench: Bench, task: str, *splits: str) -> tuple[list, list]:
    """Texts and labels in scope of some splits."""
    sets = [load(task, split, bench.data).in_scope() for split in splits]
    return [t for data in sets for t in data.texts], [data.labels[one] for data in sets for one in data.gold]


def review_sentences(bench: Bench) -> tuple[list, list]:
    """A sentence of 4 to 40 words from each of 2,100 IMDb reviews, with the label of the review."""
    rng, data = random.Random(0), load("imdb", "test", bench.data, limit=2100)
    texts, labels = [], []
    for review, label in zip(data.texts, data.gold, strict=True):
        sentences = [one for one in re.split(r"(?<=[.!?])\s+", str(review)) if 4 <= len(one.split()) <= 40]
        if sentences:
            texts.append(rng.choice(sentences))
            labels.append(data.labels[label])
    return texts, labels


def outside_questions(bench: Bench) -> tuple[list, list]:
    data = load("clinc150", "test", bench.data)
    texts = [one.text for one in data.examples if one.label == data.out_of_scope]
    return texts, [None] * len(texts)


TEXTS: dict[str, Callable[[Bench], tuple[list, list]]] = {
    "sst2-dev": lambda bench: rows_of(bench, "sst2", *CALIBRATION["sst2"]),
    "sst2-test": lambda bench: rows_of(bench, "sst2", "test-original"),
    "sst2-imdb": review_sentences,
    "clinc150-dev": lambda bench: rows_of(bench, "clinc150", *CALIBRATION["clinc150"]),
    "clinc150-test": lambda bench: rows_of(bench, "clinc150", "test"),
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
    print(f"\n### The interval of the current risk from {LABELS} labels, confidence 0.95\n")
    print("| stream | answered | risk | 100 random rows | 100 random answers | as `pick` does, 75 and 25 |")
    print("|---|--:|--:|--:|--:|--:|")
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
            found = [form(seed) for seed in range(bench.repetitions)]
            held = np.mean([one.low <= truth <= one.high for one in found])
            width = float(np.mean([one.high - one.low for one in found]))
            first = first or width
            cells.append(f"{held:.3f} / {width:.3f} ({width / first:.2f})")
        print(f"| {name} | {answered.mean():.3f} | {truth:.3f} | " + " | ".join(cells) + " |", flush=True)


def update_table(bench: Bench) -> None:
    """A broken promise is one whose threshold has a risk above the target on the whole stream."""
    print(f"\n### The promise after an update with {LABELS} labels\n")
    print("| stream | target | old rule: risk | coverage | best coverage | labels of | kept | coverage now | none |")
    print("|---|--:|--:|--:|--:|---|--:|--:|--:|")
    for name, task, other, share in bench.streams:
        for target in (0.1, 0.2):
            said, old = bench.stream(task, other, share), bench.rule(task, target)
            answered = said.answered(old)
            margins, wrong = said.margin[said.inside], said.wrong[said.inside]
            order = np.argsort(-margins, kind="stable")
            risks = wrong[order].cumsum() / np.arange(1, len(order) + 1)
            best = (np.flatnonzero(risks <= target)[-1:] + 1).sum() / len(said.wrong)
            for labels in ("answers", "all rows"):
                kept, coverage, none = [], [], []
                for seed in range(bench.repetitions):
                    pool = np.flatnonzero(answered if labels == "answers" else said.inside)
                    rows = np.random.default_rng(seed).permutation(pool)[:LABELS]
                    new = renewed_rule(
                        old, said.margin[rows], said.wrong[rows], answers_only=labels == "answers", reference=margins
                    )
                    now = said.answered(new)
                    kept.append(not now.any() or said.wrong[now].mean() <= target)
                    coverage.append(now.mean())
                    none.append(not now.any())
                before = f"{said.wrong[answered].mean():.3f} | {answered.mean():.3f}" if answered.any() else "– | 0.000"
                cells = f"{np.mean(kept):.3f} | {np.mean(coverage):.3f} | {np.mean(none):.3f}"
                print(f"| {name} | {target:g} | {before} | {best:.3f} | {labels} | {cells} |", flush=True)


def mislabelled_table(bench: Bench) -> None:
    """Labels flipped at random among calibration rows; ours and cleanlab's confident learning on the same rows."""
    from cleanlab.filter import find_label_issues

    print("\n### Label errors: rows with flipped labels, by ours and by cleanlab\n")
    print("| rows | flipped | ours: found, precision, recall | cleanlab: found, precision, recall | same rows |")
    print("|---|--:|--:|--:|--:|")
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
            print(f"| {task}, {len(given):,} | {flipped.sum()} | {cells[0]} | {cells[1]} | {same:.3f} |", flush=True)


TABLES: dict[str, Callable[[Bench], None]] = {
    "interval": interval_table,
    "update": update_table,
    "mislabelled": mislabelled_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="directory of the tasks' files; by default UATLITE_DATA")
    parser.add_argument("--seed", type=int, default=0, help="of the models")
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--cache", type=Path, help="keeps what the classifiers say of the texts")
    parser.add_argument("--tasks", default="sst2,clinc150", help="streams of these tasks, by comma")
    parser.add_argument("--only", default=",".join(TABLES), help="tables to print, by comma: " + ", ".join(TABLES))
    given = parser.parse_args()
    bench = Bench(given.models, given.data, given.seed, given.cache, given.repetitions, tuple(given.tasks.split(",")))
    for name in given.only.split(","):
        TABLES[name](bench)


if __name__ == "__main__":
    main()
