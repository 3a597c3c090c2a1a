"""The options of a cluster, and a worker by itself, without a running Ray: what they do and what they refuse."""

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from uatlite.cli import main
from uatlite.errors import ConfigurationError, DataError, MissingDependency, ModelError, StoreError
from uatlite.scoring.run import Parts
from uatlite.scoring.source import Block
from uatlite.values import Example

REASON = "ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'"
on_ray = pytest.importorskip("uatlite.scoring.on_ray", reason=REASON)


def handed(scorer, *texts):
    return scorer(Block(0, tuple(Example(f"r{i}", text) for i, text in enumerate(texts))))


def test_a_block_handed_out_twice_is_one_part(desk):
    job, parts = desk.job("in.jsonl"), Parts.of(desk.directory / "out.jsonl")
    record = job.record(desk.classifier.predictor())
    parts.begin(record)
    scorer, path = on_ray.Scorer(lambda: desk.classifier, job, record), parts.path(parts.name(0))
    first = handed(scorer, "a1 a2", "a3")
    part = path.read_bytes()
    assert handed(scorer, "a1 a2", "a3") == replace(first, resumed=2)
    assert path.read_bytes() == part
    with pytest.raises(StoreError, match="has changed since"):
        handed(scorer, "a1 a2", "a4")


def test_a_worker_writes_only_where_its_own_run_is_and_with_its_model(desk):
    job, load = desk.job("in.jsonl"), lambda: desk.classifier
    record = job.record(desk.classifier.predictor())
    scorer = on_ray.Scorer(load, job, record)
    shared = r"out\.jsonl\.unfinished does not exist on .* a file system that driver and workers"
    with pytest.raises(DataError, match=shared):
        handed(scorer, "a1")
    Parts.of(job.output).begin(record | {"input": "other.jsonl"})  # a later run has taken the place
    with pytest.raises(DataError, match="belongs to another run"):
        handed(scorer, "a1")
    with pytest.raises(ModelError, match=r"another classifier was loaded than on the driver: model differ"):
        handed(on_ray.Scorer(load, job, record | {"model": "0" * 64}), "a1")


NO_ROOM = r"the cluster has room for \d, with 4 CPUs and 0 GPUs"


@pytest.mark.parametrize(
    ("asked", "there", "workers"),
    [
        ({}, {"CPU": 4.0}, 4),
        ({"workers": 2}, {"CPU": 4.0}, 2),
        ({"gpus_per_worker": 0.5}, {"CPU": 8.0, "GPU": 2.0}, 4),
        ({"gpus_per_worker": 1}, {"CPU": 8.0, "GPU": 2.0}, 2),
        ({"gpus_per_worker": 1}, {"CPU": 1.0, "GPU": 2.0}, 1),
        ({"workers": 5}, {"CPU": 4.0}, NO_ROOM),
        ({"gpus_per_worker": 1}, {"CPU": 4.0}, NO_ROOM),
        ({"workers": 2, "gpus_per_worker": 1}, {"CPU": 4.0}, NO_ROOM),
        ({"workers": 0}, {}, "is not"),
        ({"gpus_per_worker": -1}, {}, "is not"),
    ],
)
def test_as_many_workers_as_there_is_room_for_and_more_are_not_waited_for(asked, there, workers):
    if isinstance(workers, int):
        assert on_ray._workers(on_ray.Cluster(**asked), there) == workers
        return
    with pytest.raises(ConfigurationError, match=workers):
        on_ray._workers(on_ray.Cluster(**asked), there)


def connect(refused, cluster):
    with pytest.raises(ConfigurationError, match=refused), on_ray.connected(cluster):
        pass


def test_an_address_where_nobody_answers_is_told_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # bound and not listening
        connect(f"address='{address}': no Ray cluster answers.*--address", on_ray.Cluster(address))
    connect("address='nonsense'", on_ray.Cluster("nonsense"))


def test_a_start_that_fails_is_one_sentence_and_leaves_the_environment_as_it_was(monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 120)  # longer than the path of a socket may be
    deep.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(deep))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    before = dict(os.environ)
    connect(r"^Ray cannot be started on this machine \(.*107 bytes.*--engine local", on_ray.Cluster(workers=1))
    assert {name: os.environ.get(name) for name in before} == before
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_a_cluster_of_our_own_has_a_new_token_each_time(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster")
    tokens = []
    for _ in range(2):
        with on_ray._closed_to_others():
            assert "RAY_AUTH_MODE" not in os.environ  # Ray asks for a token by itself
            tokens.append(os.environ["RAY_AUTH_TOKEN"])
    assert len({*tokens, "of another cluster"}) == 3
    assert os.environ["RAY_AUTH_TOKEN"] == "of another cluster"


def test_without_ray_the_way_to_it_is_told(monkeypatch):
    monkeypatch.delitem(sys.modules, "uatlite.scoring.on_ray")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"ray is not installed.*uatlite\[ray\]"):
        import uatlite.scoring.on_ray  # noqa: F401


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "2"], "--workers 2 is about a cluster, and --engine is local; add --engine ray"),
        (["--address", "auto"], "add --engine ray"),
        (["--engine", "rya"], "engine='rya' is not one of: local, ray. Did you mean 'ray'?"),
        (["--engine", "ray", "--workers", "0"], "workers=0 is not 1 or more"),
    ],
)
def test_options_that_do_not_go_together(options, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(["predict", "model", "in.csv", "-o", "out.csv", *options])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_nothing_else_imports_ray():
    source = Path(on_ray.__file__).parents[1]
    importers = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if any(line.strip().startswith(("import ray", "from ray")) for line in path.read_text().splitlines())
    }
    assert importers == {"scoring/on_ray.py"}
