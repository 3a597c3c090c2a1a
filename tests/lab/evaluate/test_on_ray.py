"""A store that workers fill piece by piece holds what one process would have put there."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from uatlite.errors import DataError
from uatlite.lab.evaluate.evaluate import jobs_of, sets_of
from uatlite.lab.evaluate.models import load_models
from uatlite.lab.evaluate.plan import Plan, choose_set, parse_contenders
from uatlite.lab.evaluate.predict import StoreJob, predict
from uatlite.lab.evaluate.runs import Runs, remote_jobs
from uatlite.lab.evaluate.store import Store

REASON = "ray is not installed, so computing on a cluster is NOT tested: pip install 'uatlite[ray]'"
on_ray = pytest.importorskip("uatlite.lab.evaluate.on_ray", reason=REASON)


@pytest.fixture
def plan(tmp_path: Path, made_texts) -> Plan:  # type: ignore[no-untyped-def]
    """Two methods, two seeds where they matter, over half of 60 rows and the other half."""
    path = tmp_path / "rows.csv"
    rows = [f"{text},{('bad', 'fair', 'good')[place % 3]}" for place, text in enumerate(made_texts(60))]
    path.write_text("\n".join(["text,label", *rows]))
    chosen = choose_set(None, path, text="text", text_pair=None, label="label")
    return Plan(parse_contenders("base,uat:samples=2+ts"), chosen, seeds=2)


@pytest.fixture
def jobs(saved: Path, plan: Plan, tmp_path: Path) -> list[StoreJob]:
    return make_jobs(saved, plan, tmp_path)()


def make_jobs(saved: Path, plan: Plan, tmp_path: Path) -> Callable[[], list[StoreJob]]:
    """What a worker gets, to make the jobs of the evaluation."""
    source = partial(load_models, [str(saved)], [str(saved)], plan)
    jobs = jobs_of(plan, sets_of(plan), Runs(source(), Store(tmp_path / "store")))
    return partial(remote_jobs, source, tmp_path / "store", jobs)


def test_workers_fill_a_store_as_one_process_does(
    saved: Path, plan: Plan, jobs: list[StoreJob], tmp_path: Path
) -> None:
    assert [(method.name, one.set_name.split("/")[1], seed) for one, method, seed in jobs] == [
        ("base", "test", 0),
        ("base", "calibration", 0),
        *(("uat:samples=2", split, seed) for split in ("test", "calibration") for seed in (0, 1)),
    ]
    shared, own = Store(tmp_path / "shared"), Store(tmp_path / "own")
    units = [unit for job in jobs for unit in on_ray.missing_pieces(shared, job)]
    workers = [on_ray.PieceWorker(make_jobs(saved, plan, tmp_path)) for _ in range(2)]
    done = sum(workers[place % 2].work(unit) for place, unit in enumerate(reversed(units)))
    assert done == sum(len(one.dataset) * method.passes for one, method, _ in jobs)
    for job in jobs:
        filled = predict(shared, *job, advance=lambda rows: pytest.fail("rows were computed again")).read()
        expected = predict(own, *job).read()
        assert filled.ids == expected.ids
        np.testing.assert_array_equal(filled.logits, expected.logits)
    assert not [unit for job in jobs for unit in on_ray.missing_pieces(shared, job)]


def test_other_data_on_a_worker_are_refused(saved: Path, plan: Plan, jobs: list[StoreJob], tmp_path: Path) -> None:
    (run, number, rows), *_ = on_ray.missing_pieces(Store(tmp_path / "store"), jobs[0])
    source = tmp_path / "rows.csv"
    source.write_text(source.read_text().replace("a1", "a2"))
    worker = on_ray.PieceWorker(make_jobs(saved, plan, tmp_path))
    with pytest.raises(DataError, match="the models or the data are not those of the driver: there is no base on"):
        worker.work((run, number, rows))
