"""The service under load on loopback: throughput beside the offline engine, equality with it, overload, memory.

    python benchmarks/serve.py MODEL [--texts FILE] [--requests 2000] [--clients 32] [--overload 30]

MODEL is a directory, best one that `uatlite calibrate` wrote; texts are the `text` column of FILE, or drawn from a
vocabulary of common words. The service is a process of its own, started as a user starts it.
Offline and service run one after the other in rounds, so that what else the machine does falls on both; what a host
takes from a virtual machine meanwhile ("steal") is printed, and so is what each of offline engine, service and clients
spends of a core on a text: the clients share the cores with the service, as those of another machine do not. Requests
are written by hand, because an HTTP library takes some milliseconds of the cores that the service is to be measured on.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from harness import parser_of
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.text.rows import Row, read_rows

ROUNDS = 5
WARM = 600
"""requests before the overload, so that most lengths of text have their masks"""
PAUSE = 0.5
"""seconds after the offline engine, because numpy's threads spin for a while after a product"""
TOLERANCE = 1e-5
WORDS = ("the", "a", "film", "story", "and", "is", "was", "not", "very", "good", "bad", "plot", "scene", "never")


@dataclass(frozen=True)
class Load:
    """What came of many requests."""

    seconds: float
    statuses: Counter[int]
    latencies: list[float]
    answers: dict[int, Any]


def read_texts(file: str | None, count: int) -> list[str]:
    """Those of a file, or drawn from the words."""
    if file is None:
        generator = np.random.default_rng(0)
        return [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(4, 40, size=count)]
    texts = [str(row.values["text"]) for row in read_rows(file) if isinstance(row, Row)]
    return [texts[i % len(texts)] for i in range(count)]


@contextmanager
def served(model: str, *options: str) -> Iterator[tuple[str, int]]:
    """The address and process id of `uatlite serve MODEL`."""
    command = [sys.executable, "-m", "uatlite", "serve", model, "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            while True:
                log.seek(0)
                if found := re.search(r"Serving at (http://\S+)", log.read()):
                    break
                if process.poll() is not None:
                    raise SystemExit(f"uatlite serve ended with {process.returncode}")
                time.sleep(0.2)
            yield found[1], process.pid
        finally:
            process.terminate()
            print(f"stopped by SIGTERM with exit code {process.wait()}")


class Connection:
    """One client's connection: a request, its answer, the next."""

    def __init__(self, address: str) -> None:
        self._host, port = address.removeprefix("http://").split(":")
        self._port = int(port)

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def predict(self, text: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the answer's JSON."""
        body = json.dumps({"texts": [text]}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}"
        self._writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        await self._writer.drain()
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        answer = json.loads(await self._reader.readexactly(int(headers["content-length"])))
        return int(first.split()[1]), headers, answer


async def ask_all(address: str, texts: list[tuple[int, str]], clients: int) -> Load:
    """Each client sends its next request when its last one is answered."""
    waiting = iter(texts)
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    answers: dict[int, Any] = {}

    async def client() -> None:
        async with Connection(address) as connection:
            for place, text in waiting:
                begun = time.perf_counter()
                status, _, answer = await connection.predict(text)
                latencies.append(time.perf_counter() - begun)
                statuses[status] += 1
                if status == 200:
                    answers[place] = answer["predictions"][0]

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return Load(time.perf_counter() - begun, statuses, latencies, answers)


def throughput(model: str, texts: list[str], clients: int) -> float:
    """Rounds of the offline engine and of the service over the same texts; the speed that the service reached."""
    classifier = UncertaintyClassifier.from_pretrained(model)
    classifier.predict(texts[:32], check_shift=False)
    ratios, speeds, latencies, steals, statuses, worst = [], [], [], [], Counter[int](), 0.0
    spent: dict[str, list[float]] = {"offline": [], "service": [], "clients": []}  # milliseconds of a core a text
    parts = np.array_split(np.arange(len(texts)), ROUNDS)
    with served(model) as (address, pid):
        asyncio.run(ask_all(address, list(enumerate(texts[:64])), clients))
        for part in parts:
            chosen = [texts[i] for i in part]
            begun, taken, own = time.perf_counter(), stolen(), time.process_time()
            offline = classifier.predict(chosen, check_shift=False)
            seconds = time.perf_counter() - begun
            spent["offline"].append((time.process_time() - own) * 1000 / len(chosen))
            lost = (stolen() - taken) / seconds
            time.sleep(PAUSE)
            taken, own, its = stolen(), time.process_time(), processor_seconds(pid)
            load = asyncio.run(ask_all(address, list(enumerate(chosen)), clients))
            spent["clients"].append((time.process_time() - own) * 1000 / len(chosen))
            spent["service"].append((processor_seconds(pid) - its) * 1000 / len(chosen))
            steals.append(f"{lost:.0%}/{(stolen() - taken) / load.seconds:.0%}")
            statuses += load.statuses
            latencies += load.latencies
            ratios.append(seconds / load.seconds)
            speeds.append(len(chosen) / load.seconds)
            for place, answer in load.answers.items():
                expected = offline[place]
                same = answer["label"] == expected.label
                same &= offline.rule is None or answer["abstain"] == expected.abstain
                gap = max(abs(answer["probabilities"][name] - p) for name, p in expected.probabilities.items())
                worst = max(worst, gap if same else 1.0)
    print(f"{len(texts)} requests of one text, {clients} clients: statuses {dict(statuses)}")
    print(f"largest difference from the offline probabilities {worst:.1e}, same labels and decisions: {worst < 1}")
    rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"throughput / offline engine: {statistics.median(ratios):.2f} (rounds: {rounds})")
    shares = ", ".join(f"{who} {statistics.median(times):.2f}" for who, times in spent.items())
    print(f"milliseconds of a core a text: {shares}")
    print(f"stolen by the host, of one core, offline/service: {', '.join(steals)}")
    print(
        f"texts a second {statistics.median(speeds):.0f}; latency median {1000 * statistics.median(latencies):.0f} ms, "
        f"p99 {1000 * float(np.quantile(latencies, 0.99)):.0f} ms"
    )
    assert set(statuses) == {200}, statuses
    assert worst <= TOLERANCE, worst
    return statistics.median(speeds)


def stolen() -> float:
    """Seconds that the host has taken from this machine's cores. (Linux.)"""
    return psutil.cpu_times().steal


def processor_seconds(pid: int) -> float:
    """Seconds that all threads of a process have computed."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def memory(pid: int) -> float:
    """Resident memory of a process in MB."""
    return psutil.Process(pid).memory_info().rss / 2**20


async def send_at(address: str, texts: list[str], rate: float, seconds: float) -> Load:
    """Requests at a rate that no answer slows down."""
    statuses: Counter[int] = Counter()
    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(text: str) -> None:
        begun = time.perf_counter()
        async with Connection(address) as connection:
            status, headers, _ = await connection.predict(text)
        if status == 503:
            assert int(headers["retry-after"]) >= 1
        latencies.append(time.perf_counter() - begun)
        statuses[status] += 1

    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        tasks.add(asyncio.create_task(one(texts[number % len(texts)])))
    await asyncio.gather(*tasks)
    return Load(time.perf_counter() - begun, statuses, latencies, {})


def overload(model: str, texts: list[str], speed: float, seconds: float) -> None:
    """Three times what the service can do, a small queue, memory sampled meanwhile; then a request that must be met."""
    with served(model, "--waiting", "128") as (address, pid):
        asyncio.run(ask_all(address, list(enumerate(texts[:WARM])), 32))
        before, seen, done = memory(pid), [], threading.Event()

        def watch() -> None:
            while not done.wait(1.0):
                seen.append(memory(pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        load = asyncio.run(send_at(address, texts, 3 * speed, seconds))
        done.set()
        watcher.join()
        print(f"3x overload for {seconds:.0f} s: statuses {dict(load.statuses)}")
        print(
            f"memory before {before:.0f} MB, during {' '.join(f'{one:.0f}' for one in seen[::5])}, "
            f"after {memory(pid):.0f} MB"
        )
        begun = time.perf_counter()
        reply = httpx.post(f"{address}/predict", json={"texts": [texts[0]]}, timeout=60, trust_env=False)
        print(f"then a request: {reply.status_code} in {1000 * (time.perf_counter() - begun):.0f} ms")
        assert set(load.statuses) <= {200, 503}, load.statuses
        assert reply.status_code == 200


def main() -> None:
    parser = parser_of(__doc__, requests=2000, clients=32)
    parser.add_argument("model")
    parser.add_argument("--texts")
    parser.add_argument("--overload", type=float, default=30.0, help="seconds; 0 leaves it out")
    given = parser.parse_args()
    texts = read_texts(given.texts, given.requests)
    print(json.dumps({"model": Path(given.model).name, "texts": Path(given.texts).name if given.texts else "drawn"}))
    speed = throughput(given.model, texts, given.clients)
    if given.overload:
        overload(given.model, texts, speed, given.overload)


if __name__ == "__main__":
    main()
