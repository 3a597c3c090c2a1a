"""What a cluster is asked for, and what is said where it cannot be had."""

import socket
import sys
from pathlib import Path

import pytest

from uatlite.cli import main
from uatlite.errors import ConfigurationError, DataError, MissingDependency

REASON = "ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'"
cluster = pytest.importorskip("uatlite.scoring.on_ray", reason=REASON)


@pytest.mark.parametrize(
    ("wished", "there", "workers"),
    [
        ({}, {"CPU": 4.0}, 4),
        ({"workers": 2}, {"CPU": 4.0}, 2),
        ({"gpus_per_worker": 0.5}, {"CPU": 8.0, "GPU": 2.0}, 4),
        ({"gpus_per_worker": 1}, {"CPU": 8.0, "GPU": 2.0}, 2),
        ({"gpus_per_worker": 1}, {"CPU": 1.0, "GPU": 2.0}, 1),
    ],
)
def test_as_many_workers_as_there_is_room_for(wished: dict[str, float], there: dict[str, float], workers: int) -> None:
    assert cluster._workers(cluster.Cluster(**wished), there) == workers


@pytest.mark.parametrize("wished", [{"workers": 5}, {"gpus_per_worker": 1}, {"workers": 2, "gpus_per_worker": 1}])
def test_more_workers_than_there_is_room_for_are_refused_and_not_waited_for(wished: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=r"the cluster has room for \d, with 4 CPUs and 0 GPUs"):
        cluster._workers(cluster.Cluster(**wished), {"CPU": 4.0})


@pytest.mark.parametrize("wished", [{"workers": 0}, {"gpus_per_worker": -1}])
def test_a_cluster_of_nothing_is_no_cluster(wished: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="is not"):
        cluster.Cluster(**wished)


def test_an_address_where_nobody_answers_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # bound and not listening
        with (
            pytest.raises(ConfigurationError, match=rf"address='{address}': no Ray cluster answers.*--address"),
            cluster.connected(cluster.Cluster(address)),
        ):
            pass
    with pytest.raises(ConfigurationError, match="address='nonsense'"), cluster.connected(cluster.Cluster("nonsense")):
        pass


def test_without_ray_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_options_that_do_not_go_together(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["predict", "model", "in.csv", "-o", "out.csv", *options])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_what_a_worker_raised_on_purpose_comes_out_of_its_wrapping() -> None:
    inner = DataError("in.csv breaks off")
    outer = RuntimeError("a task failed")
    outer.__cause__ = ValueError("on the way")
    outer.__cause__.__cause__ = inner
    assert cluster.our_own(outer) is inner
    stranger = RuntimeError("out of memory")
    assert cluster.our_own(stranger) is stranger


def test_nothing_else_imports_ray() -> None:
    source = Path(cluster.__file__).parents[1]
    importers = {
        path.parent.name
        for path in source.rglob("*.py")
        if any(line.strip().startswith(("import ray", "from ray")) for line in path.read_text().splitlines())
    }
    assert importers == {"scale"}
