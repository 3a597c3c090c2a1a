"""Scoring a file on many machines: the blocks and parts of `uatlite.scoring`, with Ray Data between them.

    reader (one task)  ->  blocks of rows  ->  workers (an actor each, the model loaded once)  ->  parts on disk
                                                     `->  counts  ->  driver: progress, shift, the output at the end

A block is cut by its number as the local engine cuts it, so it holds the same batches and its part the same bytes. A
part is written whole or not at all and under the block's number: however often Ray hands a block out again, because a
worker died or the driver did, there is one part of it.
"""

import pickle
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy

from uatlite.classifier import UncertaintyClassifier
from uatlite.data.files import STDIN
from uatlite.errors import ConfigurationError, DataError, ModelError
from uatlite.scale.cluster import Cluster, connected, our_own
from uatlite.scale.reading import BLOCK, BlockSource
from uatlite.scoring.blocks import BLOCK_ROWS
from uatlite.scoring.job import Job
from uatlite.scoring.parts import Parts
from uatlite.scoring.reading import Accepted, read_items
from uatlite.scoring.run import OnProgress, Run, finished
from uatlite.scoring.scored import Scored, score_block
from uatlite.scoring.summary import Summary

Load = Callable[[], UncertaintyClassifier]
"""Makes the classifier anew in a worker. It travels there, so it is `partial(from_pretrained, name)` and no closure."""

SCORED = "scored"
WAITING = 2
"""Blocks that a worker is given at once: one to score, one to go on with."""


def score_file(
    load: Load,
    job: Job,
    cluster: Cluster,
    on_progress: OnProgress = lambda progress: None,
    *,
    classifier: UncertaintyClassifier | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Summary:
    """`uatlite.scoring.score_file` by the workers of a cluster; what it writes is the same.

    `classifier` is what `load` makes, where the caller has it already. Driver and workers share a file system: the
    model, the input and the output have the same paths for all.
    """
    if job.input == STDIN:
        raise ConfigurationError("Standard input cannot be read by other machines; give a file, or use --engine local.")
    classifier = classifier or load()
    if (whole := finished(classifier, job)) is not None:
        return whole
    read_items(Accepted.by(classifier), job)  # an input that cannot be read is an error before anything is begun
    with connected(cluster) as workers:
        run = Run(classifier, job)
        everywhere = replace(job, input=job.source, output=job.output.absolute())
        for scored in _scored(load, everywhere, classifier, workers, cluster.gpus_per_worker, block_rows):
            on_progress(run.add(scored))
    return run.finish()


def _scored(
    load: Load, job: Job, classifier: UncertaintyClassifier, workers: int, gpus: float, block_rows: int
) -> Iterator[Scored]:
    """Each block as it is done."""
    options = {"compute": ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=WAITING), "num_cpus": 1}
    dataset = ray.data.read_datasource(
        BlockSource(job, Accepted.by(classifier), block_rows),
        override_num_blocks=1,
        num_cpus=0,  # it waits for the workers most of the time, and must not wait for their CPU
    ).map_batches(
        Scorer,
        fn_constructor_args=(load, job, job.describe(classifier)),
        batch_size=1,
        batch_format="pyarrow",
        num_gpus=gpus or None,
        **options,
    )
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row[SCORED])
    except ray.exceptions.RayError as error:
        raise our_own(error) from error


class Scorer:
    """A worker: holds the classifier, makes blocks parts."""

    def __init__(self, load: Load, job: Job, described: dict[str, Any]) -> None:
        self._classifier = load()
        self._job = job
        self._described = described
        self._parts = Parts(job.output)
        self._check_model()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """A table of one block to a table of what became of it."""
        self._check_place()
        scored = [
            score_block(self._classifier, pickle.loads(block.as_py()), self._parts, self._job) for block in batch[BLOCK]
        ]
        return pa.table({SCORED: [pickle.dumps(one) for one in scored]})

    def _check_model(self) -> None:
        """The directory of that name on this machine may hold another model than on the driver's."""
        own = self._job.describe(self._classifier)
        if differs := [name for name in own if own[name] != self._described[name]]:
            raise ModelError(
                f"On {socket.gethostname()} another classifier was loaded than on the driver: {', '.join(differs)} "
                "differ. Give every machine the same files."
            )

    def _check_place(self) -> None:
        """A worker that outlives its driver must not write into the directory of a later run."""
        if not self._parts.is_of(self._described):
            raise DataError(
                f"{self._parts.directory} is not on {socket.gethostname()}, or is of another run. Give an output on a "
                "file system that driver and workers share."
            )
