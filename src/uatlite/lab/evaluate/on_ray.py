"""Predictions for the store on many machines: each worker takes pieces of runs, computes them and writes them.

For a reproduction the workers train models too.

A piece is some rows of one data set with one method and one seed. Pieces are written whole or not at all, so a worker
may be killed at any time. `uatlite.lab.evaluate.runs` then reads the store as if it had computed everything itself.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from uatlite.errors import DataError
from uatlite.lab.evaluate.predict import StoreJob, compute, missing, provenance_of, recipe_of
from uatlite.lab.evaluate.store import Store, StoredRun
from uatlite.scoring.on_ray import Cluster, Worker, connected, worker_results

MakeJobs = Callable[[], Sequence[StoreJob]]
"""Makes the jobs in a worker: models, data and tokens. It is pickled, so it must be a `partial` and not a closure."""
Piece = tuple[StoredRun, int, list[int]]
"""A run of the store, the number of one of its pieces, and the rows of that piece."""


def _results(items: Sequence[Any], worker: type[Worker], arguments: tuple[Any, ...], cluster: Cluster) -> Iterator[Any]:
    """The results of some items; without items the cluster is not asked."""
    if items:
        with connected(cluster) as workers:
            size = min(workers, len(items))
            yield from worker_results(partial(iter, items), worker, arguments, cluster=cluster, workers=size)


@dataclass(frozen=True)
class OnCluster:
    """A cluster that predicts for an evaluation, and trains too for a reproduction."""

    cluster: Cluster

    def predict(
        self, jobs: Sequence[StoreJob], store: Store, advance: Callable[[float], None], *, make_jobs: MakeJobs
    ) -> None:
        """Compute the pieces of some jobs that the store does not have, on the workers.

        `make_jobs` makes the same jobs in a worker. `advance` gets the work of each finished piece, in passes over a
        row.
        """
        found = (piece for job in jobs for piece in missing_pieces(store, job))
        pieces = list({(run.directory, number): (run, number, rows) for run, number, rows in found}.values())
        for work in _results(pieces, PieceWorker, (make_jobs,), self.cluster):
            advance(work)

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run tasks on the workers, each as a whole. They are pickled, so they are a `partial` and not a closure."""
        for _ in _results(tasks, TaskWorker, (), self.cluster):
            pass


class TaskWorker(Worker):
    """Runs tasks that bring all that they need."""

    def work(self, item: Callable[[], None]) -> None:
        """Run a task."""
        item()


def missing_pieces(store: Store, job: StoreJob) -> Iterator[Piece]:
    """The pieces of a job that the store does not have."""
    prepared, method, seed = job
    run = store.begin(provenance_of(prepared, method, seed))
    run = replace(run, directory=run.directory.absolute())
    return ((run, number, rows.tolist()) for number, rows in missing(run, prepared))


class PieceWorker(Worker):
    """Holds the models and the data in a worker process, and computes pieces with them."""

    def __init__(self, make_jobs: MakeJobs) -> None:
        self._jobs = {
            recipe_of(prepared, method.seeded(seed), seed).key: (prepared, method.seeded(seed))
            for prepared, method, seed in make_jobs()
        }

    def work(self, item: Piece) -> float:
        """Compute and write a piece; returns the work done, in passes over a row."""
        run, number, rows = item
        key = run.provenance.recipe.key
        if key not in self._jobs:
            raise DataError(
                f"On {socket.gethostname()} the models or the data are not those of the driver: there is no "
                f"{run.provenance.method} on {run.provenance.set_name} with these. Give every machine the same files."
            )
        prepared, method = self._jobs[key]
        run.write(number, compute(prepared, method, rows))
        return float(len(rows) * method.passes)
