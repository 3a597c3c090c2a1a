"""The loop in production, on real streams: the monitor's alarms, and what labels of today say.

    python benchmarks/production.py --models DIR --data DIR [--seed 0] [--cache DIR]
                                    [--only false-alarms,delay,kills,interval,update,mislabelled]
    python benchmarks/production.py shift CALIBRATED FILE...    expected and true errors, and the level of the verdict

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. Each text runs once;
what is read of it is kept in --cache. A repetition then draws rows from these texts. Streams: SST-2 test sentences,
then or among them sentences of IMDb reviews, which have the label of their review; CLINC150 questions with others out
of its scope, where any answer is wrong.

The table `mislabelled` compares with cleanlab, which has its own requirements: benchmarks/requirements-cleanlab.txt.
"""

import json
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from harness import (
    CALIBRATION,
    Texts,
    best_share,
    head,
    line,
    only,
    outside_questions,
    parser_of_models,
    review_sentences,
    rows_of,
    title,
)  # fmt: skip
from uatlite import UncertaintyClassifier
from uatlite.classifier.classifiers import load as load_product
from uatlite.classifier.recheck import renewed_rule
from uatlite.classifier.record import Calibration
from uatlite.classifier.runtime import run
from uatlite.scoring.mislabelled import probably_mislabelled
from uatlite.scoring.pick import Candidate, pick
from uatlite.scoring.source import Source
from uatlite.scoring.watch import Watch
from uatlite.text.schema import Layout
from uatlite.text.tasks import load
from uatlite.trust.calibrators import Identity
from uatlite.trust.monitor import Monitor, Reference
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.risk_interval import RiskInterval, risk_interval
from uatlite.trust.rule import RAW_SCORE, Rule, Wanted
from uatlite.trust.scope import Scope
from uatlite.trust.shift import summarise
from uatlite.values import Example

REFERENCE = 6000
"""Unlabelled training texts that fit the scope of the monitor."""
TRAINED = 20_000
"""Training rows that the SST-2 model has seen; the others are rows in domain."""
LENGTH = 128
T = TypeVar("T")
BOUND = 0.01
STREAM = 2000
"""Rows of a stream from which rows are picked."""
LABELS = 100


@dataclass(frozen=True, eq=False)
class Columns:
    """Values of rows, (rows, …) each: cut, joined and stored together. A subclass names them."""

    def __getitem__(self, rows: np.ndarray) -> Self:
        return type(self)(*(array[rows] for array in vars(self).values()))

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True, eq=False)
class Watched(Columns):
    """What the monitor reads of some texts, (rows,) each: how strange they are, and the margin of their logits."""

    strange: np.ndarray
    margin: np.ndarray

    def p_values(self, scope: Scope) -> np.ndarray:
        stranger = scope.rows - np.searchsorted(scope.nonconformities, self.strange, side="left")
        return (1.0 + stranger) / (1.0 + scope.rows)

    def calibration(self) -> Calibration:
        """What a watch keeps of these rows as calibration rows."""
        scope, shift = Scope(BOUND, REFERENCE, np.sort(self.strange)), summarise(self.margin, score="logit-margin")
        learned = {"model_hash": "", "classes": (), "rows": len(self.margin), "calibrator": Identity(2)}
        return Calibration(**learned, scope=scope, shift=shift)

    def monitored(self, calibration: "Watched", seed: int = 0) -> tuple[Monitor, np.ndarray]:
        """The monitor after a stream of these rows, and log M after each."""
        compared = calibration.calibration()
        reference = Reference.of(compared.shift, compared.scope)
        monitor = Monitor.begin(reference, bound=BOUND, seed=seed)
        return monitor.after(reference, self.margin, self.p_values(compared.scope))


@dataclass(frozen=True, eq=False)
class Answers(Columns):
    """What a classifier says of texts, (rows,) each, the probabilities (rows, classes), and whether it is wrong."""

    texts: np.ndarray
    margin: np.ndarray
    confidence: np.ndarray
    inside: np.ndarray
    wrong: np.ndarray
    gold: np.ndarray
    probabilities: np.ndarray

    def scored(self, rule: Rule) -> list[Candidate]:
        rows = zip(self.texts.tolist(), self.confidence, self.answered(rule), self.inside, strict=True)
        return [
            Candidate(str(i), text, "", float(confidence), bool(answered), not inside, float(inside))
            for i, (text, confidence, answered, inside) in enumerate(rows)
        ]

    def answered(self, rule: Rule) -> np.ndarray:
        return rule.reports(self.margin) & self.inside


class Bench:
    """What the models of the tasks say of the texts."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.tasks = options, options.tasks.split(",")
        self.repetitions: int = options.repetitions

    @cache  # noqa: B019  one for the whole run
    def classifier(self, task: str, method: str = "base") -> UncertaintyClassifier:
        """The model of a task with one plain pass, whose raw margin decides; or, for the monitor, the default method,
        calibrated with reference texts."""
        data, directory = self.options.data, self.options.models / f"{task}-{self.options.seed}"
        model = UncertaintyClassifier.from_pretrained(directory, method=method or None, max_length=LENGTH)
        splits = CALIBRATION[task] if method else ["calibration"]
        reference = None if method else load(task, "train", data, limit=REFERENCE).in_scope().texts
        return model.calibrate(*rows_of(task, splits, data), reference=reference)

    def watched(self, task: str, name: str) -> Watched:
        """What the monitor of a task reads of the named texts."""

        def compute() -> Watched:
            classifier = self.classifier(task, "")
            outputs = run(classifier.runtime, TEXTS[name](self.options.data)[0], classifier.settings)
            logits = np.sort(outputs.mean_logits, axis=1)
            strange = classifier.calibration_.scope.nonconformity(outputs.representations, outputs.mean_logits)
            return Watched(strange, logits[:, -1] - logits[:, -2])

        return self.kept(Watched, f"{task}-{self.options.seed}-{name}.npz", compute)

    def answers(self, task: str, name: str) -> Answers:
        """What the classifier of a task says of the named texts."""

        def compute() -> Answers:
            texts, gold = TEXTS[name](self.options.data)
            classifier = self.classifier(task)
            pred = classifier.predict(texts, check_shift=False)
            columns = np.array([classifier.class_names.index(label) if label else -1 for label in gold])
            return Answers(
                np.array(texts, dtype=np.str_), pred.logit_margin, pred.confidence, ~pred.out_of_scope,
                pred.predicted != columns, columns, pred.probabilities,
            )  # fmt: skip

        return self.kept(Answers, f"recheck-{task}-{self.options.seed}-{name}.npz", compute)

    def kept(self, kind: type[T], name: str, compute: Callable[[], T]) -> T:
        """What a file of the cache has; computed, and written, where it is not there."""
        if self.options.cache is None:
            return compute()
        file = self.options.cache / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, **vars(compute()))
        with np.load(file) as stored:
            return kind(**stored)

    def rule(self, task: str, target: float) -> Rule:
        """The promise of the calibration rows in scope, by their margins."""
        dev = self.answers(task, f"{task}-dev")
        wanted = Wanted(kind="risk", target=target, score=RAW_SCORE)
        return decide(Labelled({RAW_SCORE: dev.margin}, dev.wrong), wanted, inside=dev.inside).rule

    def streams(self) -> list[tuple[str, str, Answers]]:
        """Name, task and `STREAM` rows of the task's test set, of which a share is replaced by others."""
        made = []
        for name, task, other, share in STREAMS:
            if task in self.tasks:
                rng, mixed = np.random.default_rng(0), round(share * STREAM)
                test, new = self.answers(task, f"{task}-test"), self.answers(task, other)
                some = test[rng.permutation(len(test.wrong))[: STREAM - mixed]]
                made.append((name, task, some + new[rng.permutation(len(new.wrong))[:mixed]]))
        return made


def unseen_phrases(data: Path | None) -> Texts:
    """Rows of SST-2's training file that did not train the model."""
    seen = set(load("sst2", "train", data, limit=TRAINED).ids)
    return [example.text for example in load("sst2", "train", data).examples if example.id not in seen][:12_000], []


TEXTS: dict[str, Callable[[Path | None], Texts]] = {
    "sst2-dev": partial(rows_of, "sst2", CALIBRATION["sst2"]),
    "sst2-test": partial(rows_of, "sst2", ["test-original"]),
    "sst2-phrases": unseen_phrases,
    "sst2-imdb": partial(review_sentences, reviews=4000),
    "sst2-imdb-labelled": partial(review_sentences, reviews=2100),
    "clinc150-dev": partial(rows_of, "clinc150", CALIBRATION["clinc150"]),
    "clinc150-test": partial(rows_of, "clinc150", ["test"]),
    "clinc150-outside": outside_questions,
}

STREAMS = (
    ("SST-2", "sst2", "sst2-imdb-labelled", 0.0),
    ("SST-2, 10 % IMDb", "sst2", "sst2-imdb-labelled", 0.1),
    ("SST-2, 30 % IMDb", "sst2", "sst2-imdb-labelled", 0.3),
    ("IMDb", "sst2", "sst2-imdb-labelled", 1.0),
    ("CLINC150, 5 % out of scope", "clinc150", "clinc150-outside", 0.05),
    ("CLINC150, 20 % out of scope", "clinc150", "clinc150-outside", 0.2),
)


# ── the monitor ────────────────────────────────────────────────────────────────────────────────────────────────────


def false_alarm_table(bench: Bench, rows: int = 10_000, every: int = 100) -> None:
    """In-domain rows only. Drawn without repetition where there are enough, else both from all of them at random."""
    title(f"False alarms over {rows:,} rows looked at after every {every}, bound {BOUND:g}")
    head("stream", "calibration rows", "repetitions", "ever an alarm", "± s.e.", "largest M, median")
    for name, task, parts, calibration, again in (
        ("SST-2 phrases that did not train it", "sst2", ("phrases",), 872, False),
        ("SST-2 dev and test sentences, drawn again", "sst2", ("dev", "test"), 872, True),
        ("CLINC150 questions, drawn again", "clinc150", ("dev", "test"), 3000, True),
    ):
        if task not in bench.tasks:
            continue
        first, *others = (bench.watched(task, f"{task}-{part}") for part in parts)
        pool, rng, highest = sum(others, start=first), np.random.default_rng(0), []
        for repetition in range(bench.repetitions):
            drawn = rng.choice(len(pool.margin), size=calibration + rows, replace=again)
            _, logs = pool[drawn[calibration:]].monitored(pool[drawn[:calibration]], repetition)
            highest.append(logs[every - 1 :: every].max())
        share = float(np.mean(np.array(highest) >= -np.log(BOUND)))
        error = np.sqrt(share * (1 - share) / len(highest))
        largest = f"{np.median(np.exp(highest)):.2f}"
        line(name, f"{calibration:,}", len(highest), f"{share:.4f}", f"{error:.4f}", largest)


def delay_table(bench: Bench, after: int = 5000) -> None:
    """Rows from the change to the alarm. The calibration rows are the dev set, the stream begins with test rows."""
    title("Rows until the alarm")
    columns = ["mixed in", "rows before", "median", "90 %", "alarm before the change", "change found within"]
    head("stream", *columns)
    for name, task, outside, shares in (
        ("SST-2, then IMDb sentences", "sst2", "sst2-imdb", (0.1, 0.3, 1.0)),
        ("CLINC150, then questions out of scope", "clinc150", "clinc150-outside", (0.05, 0.2, 1.0)),
    ):
        if task not in bench.tasks:
            continue
        calibration, inside = bench.watched(task, f"{task}-dev"), bench.watched(task, f"{task}-test")
        other = bench.watched(task, outside)
        for share in shares:
            for before in (0, 1000, 10_000):
                delays, early, off = [], 0, []
                for repetition in range(min(bench.repetitions, 100)):
                    rng = np.random.default_rng(repetition)
                    rows = before + (1000 if share == 1.0 else after)
                    stream = inside[drawn(rng, len(inside.margin), rows)]
                    mixed = (np.arange(rows) >= before) & (rng.random(rows) < share)
                    new = other[drawn(rng, len(other.margin), rows)]
                    both = zip(vars(new).values(), vars(stream).values(), strict=True)
                    stream = Watched(*(np.where(mixed, *pair) for pair in both))
                    alarm = stream.monitored(calibration, repetition)[0].alarm
                    if alarm is not None and alarm.row <= before:
                        early += 1
                        continue
                    delays.append(np.inf if alarm is None else alarm.row - before)
                    off += [] if alarm is None else [abs(alarm.change - before)]
                middle, late = np.quantile(delays, [0.5, 0.9], method="higher")
                cells = f"{middle:,.0f}", f"{late:,.0f}", f"{early} of {repetition + 1}"
                distance = np.median(off) if off else np.nan
                line(name, f"{share:.0%}", f"{before:,}", *cells, f"{distance:,.0f}")


def drawn(rng: np.random.Generator, size: int, rows: int) -> np.ndarray:
    """Row numbers in random order; once all were drawn, drawn again."""
    return np.concatenate([rng.permutation(size) for _ in range(-(-rows // size))])[:rows]


def kill_table(bench: Bench, kills: int = 20, files: int = 20, rows: int = 1000) -> None:
    """Kill the process that watches at random moments, and compare with one that was left alone."""
    calibration, test = bench.watched("sst2", "sst2-dev").calibration(), bench.watched("sst2", "sst2-test")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as made:
        scored = Path(made) / "scored"
        scored.mkdir()
        for number in range(files):
            some = test[drawn(rng, len(test.margin), rows)]
            pairs = zip(some.margin.tolist(), some.p_values(calibration.scope).tolist(), strict=True)
            lines = ({"label": "x", "confidence": 0.5, "logit_margin": m, "scope": p} for m, p in pairs)
            (scored / f"{number:02d}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
        # Small blocks are many writings of the state, so that kills also fall into one of them.
        killed = Watch(calibration, Path(made) / "killed.json", block=50)
        counts = [0]
        while len(counts) <= kills:
            process = get_context("fork").Process(target=killed.look, args=(str(scored),))
            process.start()
            time.sleep(rng.uniform(0.1, 1.5))
            process.kill()
            process.join()
            counts.append(killed.read().rows)
            if counts[-1] == files * rows:  # all is read: begin again, and go on killing
                killed.path.unlink()
        watches = (Watch(calibration, Path(made) / f"{name}.json") for name in ("killed", "alone"))
        found, expected = (watch.look(str(scored)) for watch in watches)
    apart = abs(found.monitor.log_martingale - expected.monitor.log_martingale)
    title("Kills of the process that watches")
    head("kills", "of them in the middle", "rows", "rows counted", "difference of log M", left=0)
    middle = sum(0 < count < files * rows for count in counts)
    line(kills, middle, f"{files * rows:,}", f"{found.rows:,}", f"{apart:.1e}")


# ── labels of today ────────────────────────────────────────────────────────────────────────────────────────────────


def interval_of(said: Answers, rows: list[Candidate], share: float, seed: int) -> RiskInterval:
    """From the answers among the rows that `pick` chooses."""
    picked = [one for one in pick(rows, LABELS, random_share=share, seed=seed) if one.row.answered]
    wrong = said.wrong[[int(one.row.id) for one in picked]]
    return risk_interval(wrong, [one.inclusion for one in picked])


def random_interval(said: Answers, rule: Rule, seed: int) -> RiskInterval:
    """From the answers among rows drawn from all of the stream."""
    rows = np.random.default_rng(seed).permutation(len(said.wrong))[:LABELS]
    return risk_interval(said.wrong[rows][said.answered(rule)[rows]])


def interval_table(bench: Bench) -> None:
    """Each cell: how often the interval holds the risk of all answers of the stream / its mean width."""
    title(f"The interval of the current risk from {LABELS} labels, confidence 0.95")
    head("stream", "answered", "risk", "100 random rows", "100 random answers", "as `pick` does, 75 and 25")
    for name, task, said in bench.streams():
        rule = bench.rule(task, 0.1)
        answered, rows = said.answered(rule), said.scored(rule)
        if not answered.any():
            line(name, "0.000", "–", "–", "–", "–")
            continue
        truth, cells, first = float(said.wrong[answered].mean()), [], 0.0
        forms: list[Callable[..., RiskInterval]] = [partial(random_interval, said, rule)]
        forms += [partial(interval_of, said, rows, share) for share in (1.0, 0.75)]
        for form in forms:
            found = [form(seed=seed) for seed in range(bench.repetitions)]
            held = np.mean([one.low <= truth <= one.high for one in found])
            width = float(np.mean([one.high - one.low for one in found]))
            first = first or width
            cells.append(f"{held:.3f} / {width:.3f} ({width / first:.2f})")
        line(name, f"{answered.mean():.3f}", f"{truth:.3f}", *cells)


def update_table(bench: Bench) -> None:
    """A broken promise is one whose threshold has a risk above the target on the whole stream."""
    title(f"The promise after an update with {LABELS} labels")
    columns = ["target", "old rule: risk", "coverage", "best coverage", "labels of", "kept", "coverage now", "none"]
    head("stream", *columns)
    for name, task, said in bench.streams():
        for target in (0.1, 0.2):
            old = bench.rule(task, target)
            answered = said.answered(old)
            margins, wrong = said.margin[said.inside], said.wrong[said.inside]
            best = best_share(margins, wrong, target) * len(wrong) / len(said.wrong)
            risk = f"{said.wrong[answered].mean():.3f}" if answered.any() else "–"
            for labels, among in (("answers", answered), ("all rows", said.inside)):
                updates, pool = [], np.flatnonzero(among)
                for seed in range(bench.repetitions if len(pool) else 0):  # without an answer there is nothing to label
                    rows = np.random.default_rng(seed).permutation(pool)[:LABELS]
                    sample = Labelled({old.score: said.margin[rows]}, said.wrong[rows])
                    new = renewed_rule(old, sample, labels == "answers", Labelled({old.score: margins}))
                    now = said.answered(new)
                    held = not now.any() or said.wrong[now].mean() <= target
                    updates.append((held, now.mean(), not now.any()))
                cells = [f"{mean:.3f}" for mean in np.mean(updates, axis=0)] if updates else ["–"] * 3
                line(name, f"{target:g}", risk, f"{answered.mean():.3f}", f"{best:.3f}", labels, *cells)


def mislabelled_table(bench: Bench) -> None:
    """Labels flipped at random among calibration rows; ours and cleanlab's confident learning on the same rows."""
    from cleanlab.filter import find_label_issues

    title("Label errors: rows with flipped labels, by ours and by cleanlab")
    head("rows", "flipped", "ours: found, precision, recall", "cleanlab: found, precision, recall", "same rows")
    for task in bench.tasks:
        said = bench.answers(task, f"{task}-test")
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


def shift_table(directory: str, *files: str, most: int = 3000) -> None:
    """What the verdict says of files with labels, and the truth; where there is no label, no answer is right."""
    product: Any = load_product(directory)
    columns = product.columns
    gold = columns.get("label", "label")
    title(f"Answers expected to be wrong and those that are, of files of at most {most:,} rows")
    head("rows", "number", "out of scope", "answered", "expected wrong", "wrong", "promised", "level")
    for file in files:
        source = Source(file)
        layout = source.layout(Layout(label=None, meta=(gold,)), dict.fromkeys(columns), columns)
        layout = replace(layout, label=None)
        rows = [item for item in source.items(layout) if isinstance(item, Example)][:most]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the verdict is printed
            said = product.predict([row.text for row in rows])
        names = [str(row.meta.get(gold)) for row in rows]  # "non-entailment" is each of the two other labels
        pairs = list(zip(said.labels, names, strict=True))
        right = np.array([name == label or (name[:4] == "non-" and name[4:] != label) for label, name in pairs])
        wrong, report = ~right[said.reports], said.shift
        truth = f"{wrong.mean():.1%} ({wrong.sum()} of {len(wrong)})" if len(wrong) else "–"
        promised = "–" if report.promised is None else f"{report.promised:.0%}"
        cells = f"{report.out_of_scope or 0:.1%}", f"{said.reports.mean():.1%}", report.expected, truth, promised
        line(Path(file).stem, f"{len(rows):,}", *cells, report.level)


TABLES: dict[str, Callable[[Bench], None]] = {
    "false-alarms": false_alarm_table,
    "delay": delay_table,
    "kills": kill_table,
    "interval": interval_table,
    "update": update_table,
    "mislabelled": mislabelled_table,
}


def main() -> None:
    if sys.argv[1:2] == ["shift"]:
        shift_table(*sys.argv[2:])
        return
    only(parser_of_models(__doc__, seed=0, repetitions=500, tasks="sst2,clinc150"), TABLES, Bench)


if __name__ == "__main__":
    main()
