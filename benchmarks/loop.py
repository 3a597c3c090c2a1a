"""The loop in production, on real streams: false alarms of the monitor, rows until its alarm, kills.

    python benchmarks/loop.py --models DIR --data DIR [--seed 0] [--cache DIR] [--only false-alarms,delay,kills]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. Each text runs once;
what the scope and the rule read of it is kept in --cache. A repetition then draws calibration rows and a stream from
these texts. Streams: SST-2 sentences, then sentences of IMDb reviews mixed in; CLINC150 questions, then questions out
of its scope mixed in.
"""

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from uatlite import UncertaintyClassifier
from uatlite.classifier.run import run
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


@dataclass(frozen=True)
class Texts:
    """What the monitor reads of some texts, (rows,) each: how strange they are, and the margin of their logits."""

    strange: np.ndarray
    margin: np.ndarray

    def __len__(self) -> int:
        return len(self.strange)

    def __getitem__(self, rows: np.ndarray) -> "Texts":
        return Texts(self.strange[rows], self.margin[rows])

    def __add__(self, other: "Texts") -> "Texts":
        return Texts(np.append(self.strange, other.strange), np.append(self.margin, other.margin))

    def monitored(self, calibration: "Texts", seed: int = 0) -> tuple[Monitor, np.ndarray]:
        """The monitor after a stream of these rows, and log M after each."""
        scope = Scope(BOUND, REFERENCE, np.sort(calibration.strange))
        reference = Reference.of(summarise(calibration.margin, score="logit-margin"), scope)
        stranger = scope.rows - np.searchsorted(scope.nonconformities, self.strange, side="left")
        p_values = (1.0 + stranger) / (1.0 + scope.rows)
        return Monitor.begin(reference, bound=BOUND, seed=seed).after(reference, self.margin, p_values)


@dataclass(frozen=True)
class Bench:
    """Where models and data are, and what was read so far."""

    models: Path
    data: Path | None
    seed: int
    cache: Path | None
    repetitions: int
    known: dict[str, Texts] = field(default_factory=dict)

    def classifier(self, task: str) -> UncertaintyClassifier:
        """The model of a task, calibrated with reference texts."""
        split = load(task, "calibration", self.data).in_scope()
        labels = [split.labels[label] for label in split.gold if label is not None]
        reference = load(task, "train", self.data, limit=REFERENCE).in_scope().texts
        classifier = UncertaintyClassifier.from_pretrained(self.models / f"{task}-{self.seed}", max_length=LENGTH)
        return classifier.calibrate(split.texts, labels, reference=reference)

    def texts(self, task: str, name: str) -> Texts:
        """What the classifier of a task reads of the named texts."""
        file = self.cache and self.cache / f"{task}-{self.seed}-{name}.npz"
        if name not in self.known and file and file.exists():
            self.known[name] = Texts(**np.load(file))
        if name not in self.known:
            classifier = self.classifier(task)
            for other in (other for other in TEXTS if other.split("-")[0] == task):
                texts = TEXTS[other](self)
                outputs = run(classifier.runtime, texts, classifier.settings)
                logits = np.sort(outputs.mean_logits, axis=1)
                strange = classifier.calibration_.scope.nonconformity(outputs.representations, outputs.mean_logits)
                self.known[other] = Texts(strange, logits[:, -1] - logits[:, -2])
                if self.cache:
                    self.cache.mkdir(parents=True, exist_ok=True)
                    np.savez(self.cache / f"{task}-{self.seed}-{other}.npz", **vars(self.known[other]))
        return self.known[name]

    def pool(self, task: str, parts: tuple[str, ...]) -> Texts:
        """All rows of some texts of a task."""
        first, *others = (self.texts(task, f"{task}-{part}") for part in parts)
        return sum(others, start=first)


def unseen_phrases(bench: Bench) -> list:
    """Rows of SST-2's training file that did not train the model."""
    seen = set(load("sst2", "train", bench.data, limit=TRAINED).ids)
    return [one.text for one in load("sst2", "train", bench.data).examples if one.id not in seen][:12_000]


def review_sentences(bench: Bench) -> list:
    """A sentence of 4 to 40 words from each of 4,000 IMDb reviews."""
    rng = random.Random(0)
    found = []
    for review in load("imdb", "test", bench.data, limit=4000).texts:
        sentences = [one for one in re.split(r"(?<=[.!?])\s+", str(review)) if 4 <= len(one.split()) <= 40]
        found += [rng.choice(sentences)] if sentences else []
    return found


def clinc(split: str, *, inside: bool) -> Callable[[Bench], list]:
    def texts(bench: Bench) -> list:
        data = load("clinc150", split, bench.data)
        return [one.text for one in data.examples if (one.label != data.out_of_scope) == inside]

    return texts


TEXTS: dict[str, Callable[[Bench], list]] = {
    "sst2-dev": lambda bench: [t for split in ("calibration", "test") for t in load("sst2", split, bench.data).texts],
    "sst2-test": lambda bench: load("sst2", "test-original", bench.data).texts,
    "sst2-phrases": unseen_phrases,
    "sst2-imdb": review_sentences,
    "clinc150-dev": clinc("calibration", inside=True),
    "clinc150-test": clinc("test", inside=True),
    "clinc150-outside": clinc("test", inside=False),
}


def false_alarm_table(bench: Bench, rows: int = 10_000, every: int = 100) -> None:
    """In-domain rows only. Drawn without repetition where there are enough, else both from all of them at random."""
    print(f"\n### False alarms over {rows:,} rows looked at after every {every}, bound {BOUND:g}\n")
    print("| stream | calibration rows | repetitions | ever an alarm | ± s.e. | largest M, median |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, task, parts, calibration, again in (
        ("SST-2 phrases that did not train it", "sst2", ("phrases",), 872, False),
        ("SST-2 dev and test sentences, drawn again", "sst2", ("dev", "test"), 872, True),
        ("CLINC150 questions, drawn again", "clinc150", ("dev", "test"), 3000, True),
    ):
        pool = bench.pool(task, parts)
        rng = np.random.default_rng(0)
        alarms, highest = [], []
        for repetition in range(bench.repetitions):
            drawn = rng.choice(len(pool), size=calibration + rows, replace=again)
            _, logs = pool[drawn[calibration:]].monitored(pool[drawn[:calibration]], repetition)
            looked = logs[every - 1 :: every]
            alarms.append(looked.max() >= -np.log(BOUND))
            highest.append(np.exp(looked.max()))
        share = float(np.mean(alarms))
        error = np.sqrt(share * (1 - share) / len(alarms))
        print(
            f"| {name} | {calibration:,} | {len(alarms)} | {share:.4f} | {error:.4f} | {np.median(highest):.2f} |",
            flush=True,
        )


def delay_table(bench: Bench, after: int = 5000) -> None:
    """Rows from the change to the alarm. The calibration rows are the dev set, the stream begins with test rows."""
    print("\n### Rows until the alarm\n")
    print("| stream | mixed in | rows before | median | 90 % | alarm before the change | change found within |")
    print("|---|--:|--:|--:|--:|--:|--:|")
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
                    stream = inside[drawn(rng, len(inside), rows)]
                    mixed = (np.arange(rows) >= before) & (rng.random(rows) < share)
                    new = other[drawn(rng, len(other), rows)]
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
                cells = f"{middle:,.0f} | {late:,.0f} | {early} of {repetition + 1}"
                distance = np.median(off) if off else np.nan
                print(f"| {name} | {share:.0%} | {before:,} | {cells} | {distance:,.0f} |", flush=True)


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
            some = test[drawn(rng, len(test), rows)]
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
    print("\n### Kills of the process that watches\n")
    print("| kills | of them in the middle | rows | rows counted | difference of log M |\n|--:|--:|--:|--:|--:|")
    middle = sum(0 < count < files * rows for count in counts)
    print(f"| {kills} | {middle} | {files * rows:,} | {found.rows:,} | {apart:.1e} |")


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="directory of the tasks' files; by default UATLITE_DATA")
    parser.add_argument("--seed", type=int, default=0, help="of the models")
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--cache", type=Path, help="keeps what the classifiers read of the texts")
    parser.add_argument("--only", default=",".join(TABLES), help="tables to print, by comma: " + ", ".join(TABLES))
    given = parser.parse_args()
    bench = Bench(given.models, given.data, given.seed, given.cache, given.repetitions)
    for name in given.only.split(","):
        TABLES[name](bench)


if __name__ == "__main__":
    main()
