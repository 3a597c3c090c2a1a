"""The cluster's output is the local engine's, byte for byte, whatever dies on the way."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import uatlite
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.errors import DataError
from uatlite.scoring import source as sources
from uatlite.scoring.job import Job, Tally
from uatlite.scoring.run import score_file as score_locally
from uatlite.text.schema import Layout

on_ray = pytest.importorskip(
    "uatlite.scoring.on_ray",
    reason="ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'",
)
pytestmark = pytest.mark.usefixtures("cluster_here")

BLOCK = 16
LAYOUT = Layout(label=None, meta=("stars",))
Rows = Callable[[int], Path]


@pytest.fixture
def load(saved: Path) -> Callable[[], UncertaintyClassifier]:
    return partial(UncertaintyClassifier.from_pretrained, str(saved))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local engine's blocks; Ray's reader is told, being in another process."""
    monkeypatch.setattr(sources.blocks, "__defaults__", (BLOCK, sources.BLOCK_CHARACTERS))


def by_ray(load: Callable[[], UncertaintyClassifier], job: Job, workers: int, **options: object) -> object:
    return on_ray.score_file(load, job, on_ray.Cluster(workers=workers), block_rows=BLOCK, **options)


def test_the_same_bytes_as_the_local_engine(
    load: Callable[[], UncertaintyClassifier], rows_to_score: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files, rejects in both, a kept column; an output relative to where the driver stands."""
    (tmp_path / "many").mkdir()
    whole = rows_to_score(4 * BLOCK + 5).read_text().splitlines()
    (tmp_path / "many" / "a.csv").write_text("\n".join([*whole[:20], "r,only two", *whole[20:]]))
    broken = ['{"id": "x", "text": ""}', '{"id": "y", "text": "a1 a2", "stars": 4.5}', "{broken"]
    (tmp_path / "many" / "b.jsonl").write_text("\n".join(broken))
    job = Job(str(tmp_path / "many"), Path("out.parquet"), LAYOUT)
    seen: list[Tally] = []
    for name in ("local", "ray"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        summary = score_locally(load(), job) if name == "local" else by_ray(load, job, 2, on_progress=seen.append)
        assert (summary.rows, summary.rejected) == (4 * BLOCK + 6, 3)  # type: ignore[attr-defined]
    assert max(progress.seen for progress in seen) == 4 * BLOCK + 9
    names = ["out.parquet", "out.parquet.rejects.jsonl", "out.parquet.summary.json"]
    assert sorted(path.name for path in (tmp_path / "ray").iterdir()) == names
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("kind", "layout"),
    [("entities", Layout(text="tokens", label=None, gold="tags")), ("labels", Layout(label=None))],
)
def test_several_answers_a_text_have_the_same_bytes(
    kind: str, layout: Layout, several: dict[str, Path], several_rows: Callable[..., Path], tmp_path: Path
) -> None:
    load = partial(uatlite.load, str(several[kind]))
    source = str(several_rows(kind, 2 * BLOCK + 3))
    local, ray = (Job(source, tmp_path / name / "out.jsonl", layout) for name in ("local", "ray"))
    for job in (local, ray):
        job.output.parent.mkdir()
    score_locally(load(), local)
    by_ray(load, ray, 1)  # type: ignore[arg-type]
    assert len(local.output.read_bytes().splitlines()) == 2 * BLOCK + 3
    for name in ("output", "rejects_path"):
        assert getattr(ray, name).read_bytes() == getattr(local, name).read_bytes(), name


def test_a_worker_that_is_killed_costs_no_row(
    load: Callable[[], UncertaintyClassifier],
    rows_to_score: Rows,
    tmp_path: Path,
    descendants: Callable[..., list[int]],
) -> None:
    """SIGKILL of the only worker while it has blocks in hand: another takes its place."""
    source = str(rows_to_score(12 * BLOCK))
    killed: list[int] = []

    def kill_once(progress: Tally) -> None:
        if not killed:
            killed.extend(descendants(os.getpid(), "Scorer"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    job = Job(source, tmp_path / "out.jsonl", LAYOUT)
    assert by_ray(load, job, 1, on_progress=kill_once).rows == 12 * BLOCK  # type: ignore[attr-defined]
    assert len(killed) == 1
    score_locally(load(), Job(source, tmp_path / "local.jsonl", LAYOUT))
    assert job.output.read_bytes() == (tmp_path / "local.jsonl").read_bytes()


_DRIVER = """
import sys
from functools import partial
from pathlib import Path
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.text.schema import Layout
from uatlite.scoring import Job
from uatlite.scoring.on_ray import Cluster, score_file
load = partial(UncertaintyClassifier.from_pretrained, sys.argv[1])
job = Job(sys.argv[2], Path(sys.argv[3]), Layout(label=None, meta=("stars",)))
def show(progress):
    print(progress.rows, flush=True)
score_file(load, job, Cluster(workers=1), show, block_rows=int(sys.argv[4]))
"""


def test_a_driver_that_is_killed_is_resumed_with_each_row_once(
    saved: Path,
    load: Callable[[], UncertaintyClassifier],
    rows_to_score: Rows,
    tmp_path: Path,
    descendants: Callable[..., list[int]],
) -> None:
    """SIGKILL of a driver with a cluster of its own: the workers end with it, what was done is kept."""
    source, output = rows_to_score(40 * BLOCK), tmp_path / "out.csv"
    command = [sys.executable, "-c", _DRIVER, str(saved), str(source), str(output), str(BLOCK)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "RAY_worker_niceness": "0"})
    assert process.stdout is not None
    assert int(process.stdout.readline()) >= BLOCK
    workers = descendants(process.pid, "Scorer")
    assert len(workers) == 1
    started = [process.pid, *descendants(process.pid)]
    assert listening(started)
    assert {address for address in listening(started) if not address.startswith("127.")} == set()
    (raylet,) = descendants(process.pid, "raylet/raylet")
    environment = Path(f"/proc/{raylet}/environ").read_bytes().split(b"\0")
    assert b"RAY_AUTH_MODE=token" in environment
    assert [len(value) for value in environment if value.startswith(b"RAY_AUTH_TOKEN=")] == [
        len("RAY_AUTH_TOKEN=") + 64
    ]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not output.exists()
    _wait_until_gone(workers)
    seen: list[Tally] = []
    by_ray(load, Job(str(source), output, LAYOUT, resume=True), 1, on_progress=seen.append)
    assert seen[-1].rows == 40 * BLOCK
    assert 0 < seen[-1].resumed < 40 * BLOCK
    score_locally(load(), Job(str(source), tmp_path / "local.csv", LAYOUT))
    assert output.read_bytes() == (tmp_path / "local.csv").read_bytes()


def listening(processes: list[int]) -> set[str]:
    """The IPv4 addresses on which these processes listen, by the kernel's tables."""
    inodes = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            inodes |= {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                word = bytes.fromhex(fields[1].partition(":")[0])[-4:]  # of an IPv4 address inside IPv6 the last word
                found.add(".".join(str(byte) for byte in reversed(word)))
    return found


def _wait_until_gone(processes: list[int], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while running := [pid for pid in processes if _state(pid) not in "ZX"]:
        assert time.monotonic() < until, f"still running: {running}"
        time.sleep(0.1)


def _state(pid: int) -> str:
    """As the kernel says it; X where it is gone, Z where only nobody has asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_what_a_reader_finds_wrong_is_told_as_it_is(load: Callable[[], UncertaintyClassifier], tmp_path: Path) -> None:
    lines = [json.dumps({"text": "a1"})] * 3 + ["{broken"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    job = Job(str(tmp_path / "in.jsonl"), tmp_path / "out.csv", strict=True)
    with pytest.raises(DataError, match=r"in\.jsonl, line 4: broken JSON.*Without --strict"):
        by_ray(load, job, 1)
    assert not job.output.exists()
