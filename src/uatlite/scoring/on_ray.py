"""Where the work is done: a Ray cluster that is there, or one of this machine's processes for the time of a call.

The input as a Ray dataset: a row for each block, cut by one reader as the local engine cuts it.

Ray's own readers of JSONL and CSV raise at the first broken row, or guess types from the first ones, and know no line
numbers. Ours say which line was rejected and why, and a block's number decides the name of its part.

Scoring a file on many machines: the blocks and parts of `uatlite.scoring`, with Ray Data between them.

    reader (one task)  ->  blocks of rows  ->  workers (an actor each, the model loaded once)  ->  parts on disk
                                                     `->  counts  ->  driver: progress, shift, the output at the end

A block is cut by its number as the local engine cuts it, so it holds the same batches and its part the same bytes. A
part is written whole or not at all and under the block's number: however often Ray hands a block out again, because a
worker died or the driver did, there is one part of it.
"""

import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import ConfigurationError, DataError, MissingDependency, ModelError, UATLiteError
from uatlite.scoring.blocks import BLOCK_ROWS, Accepted, blocks, read_items
from uatlite.scoring.job import Job, Summary
from uatlite.scoring.parts import Parts, Scored, score_block
from uatlite.scoring.run import OnProgress, Run, finished
from uatlite.text.files import STDIN

try:
    import ray
    from ray.data import ActorPoolStrategy, DataContext, ExecutionResources
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    raise MissingDependency("ray", "ray") from error

OBJECT_STORE = 256 * 2**20
"""Bytes of shared memory of a cluster that is started here."""
IN_FLIGHT = 32 * 2**20
"""Bytes that may wait between reader and workers. What is more waits in the file: memory does not grow with it."""
REACH_SECONDS = 5.0
"""How long a cluster may take to answer at all."""

_LOCAL = "local"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the share of it that one call takes."""

    address: str | None = None
    """of a running cluster, as Ray spells it ('10.0.0.1:6379', 'auto'); None starts one here, for this call"""
    workers: int | None = None
    """how many processes hold the model; by default one for each GPU share or CPU that the cluster has"""
    gpus_per_worker: float = 0.0
    """a part of one is allowed: 0.5 puts two workers on a GPU"""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(f"workers={self.workers} is not 1 or more.")
        if self.gpus_per_worker < 0:
            raise ConfigurationError(f"gpus_per_worker={self.gpus_per_worker} is not 0 or more.")


@contextmanager
def connected(cluster: Cluster) -> Iterator[int]:
    """Be connected to the cluster, which is told as the number of workers that it is to run.

    A connection that the caller already has is used, and left as it is.
    """
    ours = not ray.is_initialized()
    if ours:
        _connect(cluster)
    try:
        with DataContext.current(_data_context()), _quiet("ray.data"):
            yield _workers(cluster, ray.cluster_resources())
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """No notes of a logger below errors: we say ourselves how far a run is."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _connect(cluster: Cluster) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address is None:
        # One process for the model each: more than there are cores is for the caller to decide.
        cores = max(cluster.workers or 1, os.cpu_count() or 1)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of this run is reported to anyone
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters reaches us as an exception
        ray.init(
            _LOCAL,
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _node_ip_address=_LOOPBACK,
            **quiet,
        )
        return
    try:
        _reach(cluster.address)
        ray.init(cluster.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ConfigurationError(
            f"address={cluster.address!r}: no Ray cluster answers there ({reason}). Start one by 'ray start --head', "
            "or leave --address out to use this machine alone."
        ) from error


def _reach(address: str) -> None:
    """Raise where nobody listens at host:port: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def _data_context() -> DataContext:
    """Quiet, one scoring block to a Ray block, and a bounded number of them under way."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.target_max_block_size = 1  # smaller than any row: each is a block of its own
    context.execution_options.resource_limits = ExecutionResources.for_limits(object_store_memory=IN_FLIGHT)
    return context


def _workers(cluster: Cluster, there: dict[str, float]) -> int:
    """How many workers to run, of those that the cluster has room for; Ray would wait for the others for ever."""
    room = int(there.get("CPU", 0))
    if cluster.gpus_per_worker:
        room = min(room, int(there.get("GPU", 0) / cluster.gpus_per_worker))
    wanted = cluster.workers or max(room, 1)
    if wanted > room:
        raise ConfigurationError(
            f"workers={wanted}: the cluster has room for {room}, with {there.get('CPU', 0):g} CPUs and "
            f"{there.get('GPU', 0):g} GPUs, at one CPU and {cluster.gpus_per_worker:g} GPUs a worker. Ask for fewer "
            "by --workers or --gpus-per-worker, or let machines join the cluster."
        )
    return wanted


def our_own(error: BaseException) -> BaseException:
    """The error that a worker raised on purpose, out of what Ray wraps it in; or the one that came."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, UATLiteError):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return error


BLOCK = "block"


class BlockSource(Datasource):  # type: ignore[misc]
    """The blocks of a job's input, pickled: a kept column may hold any value that a file format knows."""

    def __init__(self, job: Job, accepted: Accepted, block_rows: int) -> None:
        super().__init__()
        self._job = job
        self._accepted = accepted
        self._block_rows = block_rows

    def estimate_inmemory_data_size(self) -> int | None:
        """Nobody knows before it is read."""
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        """One task: where a block begins depends on all that stands before it."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(self._read, unknown)]

    def _read(self) -> Iterator[pa.Table]:
        for block in blocks(read_items(self._accepted, self._job), self._block_rows):
            yield pa.table({BLOCK: [pickle.dumps(block)]})


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
