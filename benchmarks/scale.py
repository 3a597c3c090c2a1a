"""Scoring on Ray: what a second worker is worth, what kills cost, whether memory grows with the rows.

    python benchmarks/scale.py workers              # rows a second of 1 and of 2 workers; wants an idle machine
    python benchmarks/scale.py kills                # 20 kills of workers and drivers at random points of 20,000 rows
    python benchmarks/scale.py memory 10000 1000000 # peak memory of all processes together
    python benchmarks/scale.py memory --local       # peak memory of one process, without Ray
    python benchmarks/scale.py reading              # rows a second of the reader, which feeds the workers

`workers` has a model of MiniLM-L6's shape with random weights; the others a calibrated one of two layers, so that the
time goes into reading, tokenizing and writing. Ray is started for each run here, and stopped after it.
"""

import json
import pickle
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, PreTrainedModel

from engine import SHAPES
from harness import parser_of
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.product import KINDS
from uatlite.scoring import Job, Tally
from uatlite.scoring.source import BLOCK_CHARACTERS, Source, blocks
from uatlite.text.schema import Layout

T = TypeVar("T")
WORDS = 200
ROWS, KILLS = 20_000, 20
ON_RAY = ("--engine", "ray", "--workers", "2")
ROUNDS, WORKER_ROWS, WORKER_BLOCK = 3, 1_536, 32


def made_model(**sizes: float) -> tuple[PreTrainedModel, BertTokenizer]:
    """A BERT of these sizes with random weights, and its tokenizer."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"a{number}" for number in range(WORDS))]
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    return BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **sizes)).eval(), tokenizer


def make_classifier(directory: Path, method: str = "base") -> None:
    """A calibrated tiny classifier, so that the rule, the distances and the shift check are measured too."""
    model, tokenizer = made_model(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    classifier = UncertaintyClassifier(model, tokenizer, method)
    texts = made_texts(300)
    labels = classifier.predict(texts).predicted
    labels[::5] = 1 - labels[::5]
    classifier.calibrate(texts, labels, target_risk=0.3).save_pretrained(directory)


def made_texts(rows: int) -> list[str]:
    generator = np.random.default_rng(rows)
    return [
        " ".join(f"a{word}" for word in generator.integers(0, WORDS, size=size))
        for size in generator.integers(4, 16, size=rows)
    ]


def make_rows(path: Path, rows: int) -> None:
    with open(path, "w") as file:
        for start in range(0, rows, 10_000):
            for place, text in enumerate(made_texts(min(10_000, rows - start)), start):
                file.write(json.dumps({"id": str(place), "text": text}) + "\n")


# ── what a second worker is worth ──────────────────────────────────────────────────────────────────────────────────


def workers(place: Path) -> None:
    """Rows a second between the first block and the last, 1 and 2 workers in turn; the median ratio of the rounds."""
    model, tokenizer = made_model(**SHAPES["MiniLM-L6"])  # only its cost matters
    for part in (model, tokenizer):
        part.save_pretrained(place / "model")
    make_rows(place / "rows.jsonl", WORKER_ROWS)
    found: dict[int, list[float]] = {1: [], 2: []}
    for number in range(ROUNDS):
        for count in (1, 2) if number % 2 == 0 else (2, 1):
            found[count].append(rate(place, count))
            print(f"round {number + 1}, {count} workers: {found[count][-1]:.1f} rows/s", flush=True)
    ratios = [two / one for one, two in zip(found[1], found[2], strict=True)]
    print(f"2 workers / 1 worker: {statistics.median(ratios):.2f} (rounds: {', '.join(f'{r:.2f}' for r in ratios)})")


def rate(place: Path, count: int) -> float:
    from uatlite.scoring import on_ray

    times: list[tuple[float, int]] = []

    def note(progress: Tally) -> None:
        times.append((time.perf_counter(), progress.rows))

    load = partial(UncertaintyClassifier.from_pretrained, str(place / "model"))
    job = Job(str(place / "rows.jsonl"), place / "out.jsonl", overwrite=True)
    blocks.__defaults__ = (WORKER_BLOCK, BLOCK_CHARACTERS)
    on_ray.score_file(load, job, on_ray.Cluster(workers=count), note)
    # From the first block of the last worker to begin, so that loading the model is not counted, to the last block.
    begin, end = times[2 * count], times[-1]
    return (end[1] - begin[1]) / (end[0] - begin[0])


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def kills(place: Path) -> None:
    """SIGKILL to a worker or the driver at random points until there were enough, then let the run end and compare."""
    generator = random.Random(0)
    make_classifier(place / "model")
    make_rows(place / "rows.jsonl", ROWS)
    predict(place, "local.jsonl").wait()
    done = {"worker": 0, "driver": 0}
    while sum(done.values()) < KILLS:
        output = place / f"out-{sum(done.values())}.jsonl"
        while not output.exists():
            run_and_kill(place, output, generator, done)
        check(output, place / "local.jsonl")
        print(
            f"whole and equal after {done['worker']} kills of a worker and {done['driver']} of the driver", flush=True
        )
    print(f"{ROWS:,} rows, {sum(done.values())} kills: no row lost, none twice, the bytes of an undisturbed local run")


def run_and_kill(place: Path, output: Path, generator: random.Random, done: dict[str, int]) -> None:
    """One driver, until it ends or is killed; its workers are killed on the way."""
    driver = predict(place, output.name, *ON_RAY)
    while sum(done.values()) < KILLS and driver.poll() is None:
        parts, wanted = count_parts(output), generator.randint(0, 6)
        while driver.poll() is None and count_parts(output) < parts + wanted:
            time.sleep(0.05)
        time.sleep(generator.uniform(0, 2))
        scorers = [process for process in family(driver.pid) if "Scorer" in " ".join(told(process, "cmdline", []))]
        if generator.random() < 0.5 and scorers:
            with suppress(psutil.NoSuchProcess):
                generator.choice(scorers).kill()
                done["worker"] += 1
        elif driver.poll() is None and count_parts(output) > 0:
            driver.kill()
            done["driver"] += 1
            print(f"driver killed at {count_parts(output)} parts", flush=True)
            break
    if driver.wait() not in (0, -signal.SIGKILL):
        sys.exit(f"a driver that nobody killed ended with {driver.returncode}; run its command by hand: {driver.args}")


def predict(place: Path, output: str, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "uatlite", "predict", str(place / "model"), str(place / "rows.jsonl")]
    return subprocess.Popen([*command, "-o", str(place / output), "--resume", *options], stderr=subprocess.DEVNULL)


def count_parts(output: Path) -> int:
    return sum(1 for _ in output.with_name(f"{output.name}.unfinished").glob("part-*.jsonl"))


def family(pid: int) -> list[psutil.Process]:
    """A process, all that it started, and those that these started."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return []


def told(process: psutil.Process, what: str, gone: T) -> T:
    """What the system tells of a process; `gone` where it has ended."""
    with suppress(psutil.Error):
        return getattr(process, what)()
    return gone


def check(output: Path, expected: Path) -> None:
    ids = [json.loads(line)["id"] for line in output.read_text().splitlines()]
    if len(ids) != ROWS or len(set(ids)) != ROWS or output.read_bytes() != expected.read_bytes():
        sys.exit(f"{len(ids)} rows, {len(set(ids))} different, and the bytes are not those of the local run")


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def memory(place: Path, sizes: list[int], method: str, *options: str) -> None:
    """The most memory, in MB, that all processes of a run had at once; pages that they share count once (Pss)."""
    make_classifier(place / "model", method)
    print(f"{'rows':>10} {'peak, MB':>9} {'rows/s':>7}")
    for size in sizes:
        make_rows(place / "rows.jsonl", size)
        begun = time.perf_counter()
        driver = predict(place, f"out-{size}.jsonl", *options)
        most = 0.0
        while driver.poll() is None:
            infos = [told(process, "memory_full_info", None) for process in family(driver.pid)]
            most = max(most, sum(info.pss for info in infos if info is not None) / 2**20)
            time.sleep(0.5)
        print(f"{size:>10,} {most:>9.0f} {size / (time.perf_counter() - begun):>7.0f}", flush=True)


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────────


def reading(place: Path) -> None:
    """Rows a second that the one reader cuts into blocks, pickled and with their digests: what it can feed at most."""
    rows = 100_000
    make_rows(place / "rows.jsonl", rows)
    begun = time.process_time()
    items = Source(str(place / "rows.jsonl")).items(Layout(label=None), kind=KINDS["one"])
    held = sum(len(pickle.dumps(block)) for block in blocks(items))
    seconds = time.process_time() - begun
    characters = sum(map(len, made_texts(10_000))) / 10_000
    print(
        f"{rows / seconds:,.0f} rows/s of CPU time, {held / rows:.0f} bytes a row, {characters:.0f} characters a text"
    )


def main() -> None:
    parser = parser_of(__doc__, method="uat:samples=2")
    parser.add_argument("what", choices=("workers", "kills", "memory", "reading"))
    parser.add_argument("rows", type=int, nargs="*", help="sizes for memory")
    parser.add_argument("--local", action="store_true", help="memory of one process, without Ray")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        if given.what == "memory":
            where, most, method = ((), 100_000, given.method) if given.local else (ON_RAY, 1_000_000, "base")
            memory(place, given.rows or [10_000, most], method, *where)
        else:
            {"workers": workers, "kills": kills, "reading": reading}[given.what](place)


if __name__ == "__main__":
    main()
