"""The loop in production, on real streams: false alarms of the monitor, rows until its alarm, kills.

    python benchmarks/loop.py --models DIR --data DIR [--seed 0] [--cache DIR] [--only false-alarms,delay,kills]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. Each text runs once;
what the scope and the rule read of it is kept in --cache. A repetition then draws calibration rows and a stream from
these texts. Streams: SST-2 sentences, then sentences of IMDb reviews mixed in; CLINC150 questions, then questions out
of its scope mixed in.
"""

import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from harness import Columns, head, kept, line, only, outside_questions, parser_of_models, review_sentences, rows_of
from uatlite import UncertaintyClassifier
from uatlite.classifier.runtime import run
from uatlite.scoring.watch import Watch, blocks
from uatlite.text.tasks import load
from uatlite.trust.monitor import Monitor, Reference
from uatlite.trust.scope import Scope
from uatlite.trust.shift import summarise

REFERENCE = 6000
"""Unlabelled training texts that fit the scope."""
TRAINED = 20_000
"""Training rows that the SST-2 model has seen; the others are rows in domain."""
LENGTH = 128
BOUND = 0.01


@dataclass(frozen=True, eq=False)
class Texts(Columns):
    """What the monitor reads of some texts, (rows,) each: how strange they are, and the margin of their logits."""

    strange: np.ndarray
    margin: np.ndarray

    def __len__(self) -> int:
        return len(self.strange)

    def monitored(self, calibration: "Texts", seed: int = 0) -> tuple[Monitor, np.ndarray]:
        """The monitor after a stream of these rows, and log M after each."""
        scope = Scope(BOUND, REFERENCE, np.sort(calibration.strange))
        reference = Reference.of(summarise(calibration.margin, score="logit-margin"), scope)
        stranger = scope.rows - np.searchsorted(scope.nonconformities, self.strange, side="left")
        p_values = (1.0 + stranger) / (1.0 + scope.rows)
        return Monitor.begin(reference, bound=BOUND, seed=seed).after(reference, self.margin, p_values)


class Bench:
    """What the monitor reads of the texts of each task."""

    def __init__(self, options: Namespace) -> None:
        self.options, self.repetitions = options, options.repetitions
        self.classifiers: dict[str, UncertaintyClassifier] = {}

    def classifier(self, task: str) -> UncertaintyClassifier:
        """The model of a task, calibrated with reference texts."""
        if task not in self.classifiers:
            data, directory = self.options.data, self.options.models / f"{task}-{self.options.seed}"
            reference = load(task, "train", data, limit=REFERENCE).in_scope().texts
            classifier = UncertaintyClassifier.from_pretrained(directory, max_length=LENGTH)
            rows = rows_of(task, ["calibration"], data)
            self.classifiers[task] = classifier.calibrate(*rows, reference=reference)
        return self.classifiers[task]

    def texts(self, task: str, name: str) -> Texts:
        """What the classifier of a task reads of the named texts."""

        def compute() -> Texts:
            classifier = self.classifier(task)
            outputs = run(classifier.runtime, TEXTS[name](self.options.data), classifier.settings)
            logits = np.sort(outputs.mean_logits, axis=1)
            strange = classifier.calibration_.scope.nonconformity(outputs.representations, outputs.mean_logits)
            return Texts(strange, logits[:, -1] - logits[:, -2])

        cache = self.options.cache
        return kept(Texts, cache and cache / f"{task}-{self.options.seed}-{name}.npz", compute)

    def pool(self, task: str, parts: tuple[str, ...]) -> Texts:
        """All rows of some texts of a task."""
        first, *others = (self.texts(task, f"{task}-{part}") for part in parts)
        return sum(others, start=first)


def unseen_phrases(data: Path | None) -> list:
    """Rows of SST-2's training file that did not train the model."""
    seen = set(load("sst2", "train", data, limit=TRAINED).ids)
    return [example.text for example in load("sst2", "train", data).examples if example.id not in seen][:12_000]


TEXTS: dict[str, Callable[[Path | None], list]] = {
    "sst2-dev": lambda data: rows_of("sst2", ["calibration", "test"], data)[0],
    "sst2-test": lambda data: rows_of("sst2", ["test-original"], data)[0],
    "sst2-phrases": unseen_phrases,
    "sst2-imdb": lambda data: review_sentences(data, 4000)[0],
    "clinc150-dev": lambda data: rows_of("clinc150", ["calibration"], data)[0],
    "clinc150-test": lambda data: rows_of("clinc150", ["test"], data)[0],
    "clinc150-outside": lambda data: outside_questions(data)[0],
}


def false_alarm_table(bench: Bench, rows: int = 10_000, every: int = 100) -> None:
    """In-domain rows only. Drawn without repetition where there are enough, else both from all of them at random."""
    print(f"\n### False alarms over {rows:,} rows looked at after every {every}, bound {BOUND:g}")
    head("stream", "calibration rows", "repetitions", "ever an alarm", "± s.e.", "largest M, median")
    for name, task, parts, calibration, again in (
        ("SST-2 phrases that did not train it", "sst2", ("phrases",), 872, False),
        ("SST-2 dev and test sentences, drawn again", "sst2", ("dev", "test"), 872, True),
        ("CLINC150 questions, drawn again", "clinc150", ("dev", "test"), 3000, True),
    ):
        pool = bench.pool(task, parts)
        rng = np.random.default_rng(0)
        alarms, highest = [], []
        for repetition in range(bench.repetitions):
            drawn = rng.choice(len(pool.margin), size=calibration + rows, replace=again)
            _, logs = pool[drawn[calibration:]].monitored(pool[drawn[:calibration]], repetition)
            looked = logs[every - 1 :: every]
            alarms.append(looked.max() >= -np.log(BOUND))
            highest.append(np.exp(looked.max()))
        share = float(np.mean(alarms))
        error = np.sqrt(share * (1 - share) / len(alarms))
        line(name, f"{calibration:,}", len(alarms), f"{share:.4f}", f"{error:.4f}", f"{np.median(highest):.2f}")


def delay_table(bench: Bench, after: int = 5000) -> None:
    """Rows from the change to the alarm. The calibration rows are the dev set, the stream begins with test rows."""
    print("\n### Rows until the alarm")
    columns = ["mixed in", "rows before", "median", "90 %", "alarm before the change", "change found within"]
    head("stream", *columns)
    for name, task, outside, shares in (
        ("SST-2, then IMDb sentences", "sst2", "sst2-imdb", (0.1, 0.3, 1.0)),
        ("CLINC150, then questions out of scope", "clinc150", "clinc150-outside", (0.05, 0.2, 1.0)),
    ):
        calibration, inside = bench.texts(task, f"{task}-dev"), bench.texts(task, f"{task}-test")
        other = bench.texts(task, outside)
        for share in shares:
            for before in (0, 1000, 10_000):
                delays, early, off = [], 0, []
                for repetition in range(min(bench.repetitions, 100)):
                    rng = np.random.default_rng(repetition)
                    rows = before + (1000 if share == 1.0 else after)
                    stream = inside[drawn(rng, len(inside.margin), rows)]
                    mixed = (np.arange(rows) >= before) & (rng.random(rows) < share)
                    new = other[drawn(rng, len(other.margin), rows)]
                    stream = Texts(
                        *(np.where(mixed, getattr(new, f), getattr(stream, f)) for f in ("strange", "margin"))
                    )
                    monitor, _ = stream.monitored(calibration, repetition)
                    alarm = monitor.alarm
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
    dev, test = bench.texts("sst2", "sst2-dev"), bench.texts("sst2", "sst2-test")
    scope = Scope(BOUND, REFERENCE, np.sort(dev.strange))
    calibration = SimpleNamespace(scope=scope, shift=summarise(dev.margin, score="logit-margin"))
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as made:
        scored = Path(made) / "scored"
        scored.mkdir()
        for number in range(files):
            some = test[drawn(rng, len(test.margin), rows)]
            p = (1 + scope.rows - np.searchsorted(scope.nonconformities, some.strange)) / (1 + scope.rows)
            lines = (
                json.dumps({"label": "x", "confidence": 0.5, "logit_margin": m, "scope": q}) + "\n"
                for m, q in zip(some.margin.tolist(), p.tolist(), strict=True)
            )
            (scored / f"{number:02d}.jsonl").write_text("".join(lines))
        killed, alone = (Watch(calibration, Path(made) / f"{name}.json") for name in ("killed", "alone"))
        counts = [0]
        while len(counts) <= kills:
            process = get_context("fork").Process(target=look_in_small_blocks, args=(killed, str(scored)))
            process.start()
            time.sleep(rng.uniform(0.1, 1.5))
            process.kill()
            process.join()
            counts.append(killed.read().rows)
            if counts[-1] == files * rows:  # all is read: begin again, and go on killing
                killed.path.unlink()
        found, expected = killed.look(str(scored)), alone.look(str(scored))
    apart = abs(found.monitor.log_martingale - expected.monitor.log_martingale)
    print("\n### Kills of the process that watches")
    head("kills", "of them in the middle", "rows", "rows counted", "difference of log M", left=0)
    middle = sum(0 < count < files * rows for count in counts)
    line(kills, middle, f"{files * rows:,}", f"{found.rows:,}", f"{apart:.1e}")


def look_in_small_blocks(watch: Watch, source: str, rows: int = 50) -> None:
    """As `Watch.look`, with many writings of the state, so that kills also fall into one of them."""
    blocks.__defaults__ = (rows,)
    watch.look(source)


TABLES: dict[str, Callable[[Bench], None]] = {
    "false-alarms": false_alarm_table,
    "delay": delay_table,
    "kills": kill_table,
}


def main() -> None:
    only(parser_of_models(__doc__, seed=0, repetitions=500), TABLES, Bench)


if __name__ == "__main__":
    main()
