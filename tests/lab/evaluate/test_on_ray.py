"""A store that workers fill piece by piece holds what one process would have put there."""

import pickle

import numpy as np
import pytest

from reference import Recorded
from uatlite.errors import DataError
from uatlite.lab.evaluate.evaluate import jobs_of
from uatlite.lab.evaluate.models import load_models
from uatlite.lab.evaluate.plan import Plan, choose_set, parse_contenders
from uatlite.lab.evaluate.runs import Runs, compute_piece
from uatlite.lab.evaluate.store import Store


@pytest.fixture
def plan(tmp_path, made_texts):
    """Two methods, two seeds where they matter, over half of 60 rows and the other half."""
    path = tmp_path / "rows.csv"
    rows = [f"{text},{('bad', 'fair', 'good')[place % 3]}" for place, text in enumerate(made_texts(60))]
    path.write_text("\n".join(["text,label", *rows]))
    chosen = choose_set(None, path, text="text", text_pair=None, label="label")
    return Plan(parse_contenders("base,uat:samples=2+ts"), chosen, seeds=2)


class Workers:
    """Runs tasks one after the other, each from its pickle, and counts their work."""

    def __init__(self):
        self.done = 0.0

    def run(self, tasks, advance):
        for task in reversed(tasks):
            self.done += pickle.loads(pickle.dumps(task))()


def test_workers_fill_a_store_as_one_process_does(saved, plan, tmp_path):
    workers, source = Workers(), load_models([str(saved)], [str(saved)], plan)
    shared, alone = (
        Runs(source, Store(tmp_path / name), remote) for name, remote in (("shared", workers), ("alone", None))
    )
    jobs = jobs_of(plan, shared)
    assert [(job.method.name, job.on.split("/")[1], job.seed) for job in jobs] == [
        ("base", "test", 0),
        ("base", "calibration", 0),
        *(("uat:samples=2", split, seed) for split in ("test", "calibration") for seed in (0, 1)),
    ]
    display = Recorded()
    display.begin("predicting", 0.0)
    for runs in (shared, alone):
        runs.compute(jobs, display)
    assert workers.done == sum(map(shared.work, jobs))  # this process computed nothing
    for job in jobs:
        filled, expected = shared.predictions(job), alone.predictions(job)
        assert filled.ids == expected.ids
        np.testing.assert_array_equal(filled.logits, expected.logits)
    Runs(source, Store(tmp_path / "shared"), workers).compute(jobs, display)
    assert workers.done == sum(map(shared.work, jobs))  # nor did the workers again


def test_other_data_on_a_worker_are_refused(saved, plan, tmp_path):
    source = load_models([str(saved)], [str(saved)], plan)
    job = jobs_of(plan, runs := Runs(source, Store(tmp_path / "store")))[0]
    key = runs.store_job(job).provenance.recipe.key
    rows = tmp_path / "rows.csv"
    rows.write_text(rows.read_text().replace("a1", "a2"))
    with pytest.raises(DataError, match="the models or the data are not those of the driver: there is no base on"):
        compute_piece(pickle.dumps(source), tmp_path / "store", job, key, 0)
