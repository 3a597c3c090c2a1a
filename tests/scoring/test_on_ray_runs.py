"""The cluster's output is the local engine's, byte for byte, whatever dies on the way."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import uatlite
from scoring.desk import LAYOUTS
from uatlite.errors import DataError

REASON = "ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'"
on_ray = pytest.importorskip("uatlite.scoring.on_ray", reason=REASON)
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.usefixtures("cluster_here")


@pytest.fixture(scope="module")
def cluster_here():
    """Two workers' worth of Ray; `uatlite.scoring` finds that it is connected and starts none of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # workers are otherwise the last to run on a busy machine
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        size = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
        on_ray.ray.init(**size, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
        yield
        on_ray.ray.shutdown()


def by_ray(desk, job, workers=1, **options):
    """Score on the cluster."""
    load = partial(uatlite.load, str(desk.model))
    return on_ray.score_file(load, job, on_ray.Cluster(workers=workers), **options)


def told(process, what):
    """What the kernel tells of a process; nothing of one that is gone."""
    try:
        return getattr(process, what)()
    except psutil.Error:
        return []


def descendants(pid, named=""):
    """The processes that a process started, and theirs, whose command line has that name."""
    started = psutil.Process(pid).children(recursive=True)
    return [process for process in started if named in " ".join(told(process, "cmdline"))]


def test_the_same_bytes_as_the_local_engine(desk, small_blocks, monkeypatch):
    """Two files, rejects in both, a kept column; an output relative to where the driver stands."""
    for name in ("many", "local", "ray"):
        (desk.directory / name).mkdir()
    rows = [f"r{i},{text},{i % 5}" for i, text in enumerate(desk.made_texts(4 * small_blocks + 5))]
    desk.lines(["id,text,stars", *rows[:19], "r,only two", *rows[19:]], "many/a.csv")
    broken = ['{"id": "x", "text": ""}', '{"id": "y", "text": "a1 a2", "stars": 4.5}', "{broken"]
    desk.lines(broken, "many/b.jsonl")
    job, seen = replace(desk.job(desk.directory / "many", "", "stars"), output=Path("out.parquet")), []
    for name in ("local", "ray"):
        monkeypatch.chdir(desk.directory / name)
        local = name == "local"
        summary = desk.run(job) if local else by_ray(desk, job, 2, on_progress=seen.append)
        assert (summary.rows, summary.rejected) == (4 * small_blocks + 6, 3)
    assert max(tally.seen for tally in seen) == 4 * small_blocks + 9
    names = ["out.parquet", "out.parquet.rejects.jsonl", "out.parquet.summary.json"]
    assert sorted(path.name for path in (desk.directory / "ray").iterdir()) == names
    for name in names:
        assert desk.bytes(f"ray/{name}") == desk.bytes(f"local/{name}"), name


@pytest.mark.parametrize("kind", [kind for kind in LAYOUTS if kind != "one"])
def test_several_answers_a_text_have_the_same_bytes(kind, desk_of, small_blocks):
    desk = desk_of(kind)
    source = desk.rows(2 * small_blocks + 3)
    source.write_text("{broken\n" + source.read_text())
    desk.score(source, "local.jsonl")
    by_ray(desk, desk.job(source, "ray.jsonl"))
    assert len(desk.output("local.jsonl")) == 2 * small_blocks + 3
    for beside in ("", ".rejects.jsonl"):
        assert desk.bytes(f"ray.jsonl{beside}") == desk.bytes(f"local.jsonl{beside}")


def test_a_worker_that_is_killed_costs_no_row(desk, small_blocks):
    """SIGKILL of the only worker while it has blocks in hand: another takes its place."""
    source, killed = desk.rows(12 * small_blocks), []

    def kill_once(tally):
        if not killed:
            killed.extend(descendants(os.getpid(), "ray::Worker"))
            for process in killed:
                process.kill()

    assert by_ray(desk, desk.job(source), on_progress=kill_once).rows == 12 * small_blocks
    assert len(killed) == 1
    desk.score(source, "local.jsonl")
    assert desk.bytes("out.jsonl") == desk.bytes("local.jsonl")


_DRIVER = """
import sys
from functools import partial
from pathlib import Path
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.text.schema import Layout
from uatlite.scoring import Job, source
from uatlite.scoring.on_ray import Cluster, score_file
load = partial(UncertaintyClassifier.from_pretrained, sys.argv[1])
job = Job(sys.argv[2], Path(sys.argv[3]), Layout(label=None))
def show(progress):
    print(progress.rows, flush=True)
source.blocks.__defaults__ = (int(sys.argv[4]), source.BLOCK_CHARACTERS)
score_file(load, job, Cluster(workers=1), show)
"""


def test_a_driver_that_is_killed_is_resumed_with_each_row_once(desk, small_blocks):
    """SIGKILL of a driver with a cluster of its own: the workers end with it, what was done is kept."""
    source = desk.rows(40 * small_blocks)
    job = desk.job(source, "out.csv", resume=True)
    command = [sys.executable, "-c", _DRIVER, str(desk.model), str(source), str(job.output), str(small_blocks)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "RAY_worker_niceness": "0"})
    assert int(process.stdout.readline()) >= small_blocks
    workers = descendants(process.pid, "ray::Worker")
    assert len(workers) == 1
    started = [psutil.Process(process.pid), *descendants(process.pid)]
    sockets = [socket for other in started for socket in told(other, "net_connections")]
    addresses = {socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN}
    assert addresses
    assert {address for address in addresses if not address.removeprefix("::ffff:").startswith("127.")} == set()
    (raylet,) = descendants(process.pid, "raylet/raylet")
    assert raylet.environ()["RAY_AUTH_MODE"] == "token"
    assert len(raylet.environ()["RAY_AUTH_TOKEN"]) == 64
    process.kill()
    process.communicate()
    assert not job.output.exists()
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    seen = []
    by_ray(desk, job, on_progress=seen.append)
    assert seen[-1].rows == 40 * small_blocks
    assert 0 < seen[-1].resumed < 40 * small_blocks
    desk.score(source, "local.csv")
    assert desk.bytes("out.csv") == desk.bytes("local.csv")


def test_what_a_reader_finds_wrong_is_told_as_it_is(desk):
    source = desk.lines([json.dumps({"text": "a1"})] * 3 + ["{broken"])
    with pytest.raises(DataError, match=r"in\.jsonl, line 4: broken JSON.*Without --strict"):
        by_ray(desk, desk.job(source, "out.csv", strict=True))
    assert not (desk.directory / "out.csv").exists()


def test_what_a_worker_raises_is_told_as_it_is():
    done = []

    def breaks():
        raise DataError("in.csv breaks off")

    with pytest.raises(DataError, match=r"^in\.csv breaks off$"):
        on_ray.Cluster(workers=1).run([int, breaks], done.append)
    assert done == [0]
