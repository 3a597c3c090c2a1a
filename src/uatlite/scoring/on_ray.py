"""Scoring a file on a Ray cluster: the blocks and parts of `uatlite.scoring`, with Ray Data between them.

    reader (one task)  ->  blocks of rows  ->  workers (one actor each, the model loaded once)  ->  parts on disk
                                                     `->  counts  ->  driver: progress, shift, the output at the end

Blocks are cut as the local engine cuts them, so the output is the same to the byte. A part is written whole or not at
all, under the number of its block: if Ray hands a block out again after a worker or the driver died, there is still
one part. Ray's own readers are not used: they stop at the first broken row and know no line numbers.
"""

import logging
import os
import pickle
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from uatlite.classifier.answer_kind import AnyKind
from uatlite.classifier.product import Product
from uatlite.errors import ConfigurationError, DataError, MissingDependency, ModelError, UATLiteError
from uatlite.scoring.job import Job, Summary, Tally
from uatlite.scoring.run import OnProgress, Parts, ScoringRun, check_output, score_block, scored_items
from uatlite.scoring.source import BLOCK_ROWS, Block, Source, blocks
from uatlite.text.files import STDIN

try:
    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
    from ray.data import ActorPoolStrategy, DataContext, ExecutionResources
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    raise MissingDependency("ray", "ray") from error

Load = Callable[..., Product[Any]]
"""Loads the classifier, on `device` if given. It is pickled, so it is `partial(from_pretrained, name)`, no closure."""

OBJECT_STORE = 256 * 2**20
"""Bytes of shared memory of a cluster that is started here."""
IN_FLIGHT = 32 * 2**20
"""Bytes of blocks between reader and workers; the reader waits when there are more, so memory stays bounded."""
WAITING = 2
"""Items that a worker holds: one to work on, and the next."""
REACH_SECONDS = 5.0
"""How long a cluster may take to accept a connection."""

_START_ERRORS = (ray.exceptions.RayError, ConnectionError, ValueError, RuntimeError, OSError)
"""What Ray raises where a cluster cannot be started or reached."""

ITEM, RESULT = "item", "result"  # columns of the Ray datasets


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and how many workers of which size to run on it."""

    address: str | None = None
    """of a running cluster, as Ray spells it ('10.0.0.1:6379', 'auto'); None starts one on this machine"""
    workers: int | None = None
    """processes that hold the model; by default as many as the cluster has CPUs or shares of GPUs for"""
    gpus_per_worker: float = 0.0
    """may be a fraction: 0.5 puts two workers on a GPU"""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(f"workers={self.workers} is not 1 or more.")
        if self.gpus_per_worker < 0:
            raise ConfigurationError(f"gpus_per_worker={self.gpus_per_worker} is not 0 or more.")

    def run(self, tasks: Sequence[Callable[[], float]], advance: Callable[[float], None]) -> None:
        """Run tasks on the workers; `advance` gets what each returns. Without tasks the cluster is not asked."""
        if tasks:
            with connected(self) as workers:
                size, items = min(workers, len(tasks)), partial(iter, tasks)
                for work in worker_results(items, Worker, (), cluster=self, workers=size):
                    advance(work)


def score_file(
    load: Load,
    job: Job,
    cluster: Cluster,
    on_progress: OnProgress = lambda tally: None,
    *,
    block_rows: int = BLOCK_ROWS,
) -> Summary:
    """`uatlite.scoring.score_file` by the workers of a cluster, with the same output.

    Driver and workers share a file system: model, input and output have the same paths for all.
    """
    if job.input == STDIN:
        raise ConfigurationError("Standard input cannot be read by other machines; give a file, or use --engine local.")
    check_output(job)
    Source(job.input, format=job.format).check(job.layout, also=job.named)  # an error before the model is loaded
    predictor = load(device="cpu").predictor()
    run = ScoringRun(job, predictor)
    if (summary := run.finished()) is not None:
        return summary
    everywhere = replace(job, input=job.source, output=job.output.absolute())
    read = partial(_read_blocks, everywhere, predictor.kind, predictor.class_names, block_rows)
    with connected(cluster) as workers:
        tallies = worker_results(read, Scorer, (load, everywhere, run.record), cluster=cluster, workers=workers)
        return run.over(tallies, on_progress)


def _read_blocks(job: Job, kind: AnyKind, classes: tuple[str, ...], block_rows: int) -> Iterator[Block]:
    return blocks(scored_items(job, Source(job.input, format=job.format), kind, classes), block_rows)


class Worker:
    """An actor of the cluster that turns items into results. Ray moves both as pickles, in tables of one row."""

    def work(self, item: Any) -> Any:
        """The result of one item: of a task that brings all that it needs, what it returns."""
        return item()

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.table({RESULT: [pickle.dumps(self.work(pickle.loads(item.as_py()))) for item in batch[ITEM]]})


class Scorer(Worker):
    """Loads the classifier once and scores blocks into parts."""

    def __init__(self, load: Load, job: Job, record: dict[str, Any]) -> None:
        self._predictor, self._job, self._record = load().predictor(), job, record
        self._parts = Parts.of(job.output)
        here = job.record(self._predictor)
        if differs := [name for name in here if here[name] != record[name]]:  # the same path may hold another model
            raise ModelError(
                f"On {socket.gethostname()} another classifier was loaded than on the driver: {', '.join(differs)} "
                "differ. Give every machine the same files."
            )

    def work(self, item: Block) -> Tally:
        """Write the part of a block; a worker that outlives its driver does not write for a later run."""
        if not self._parts.begun or self._parts.differences(self._record):
            raise DataError(
                f"{self._parts.directory} does not exist on {socket.gethostname()}, or belongs to another run. Give an "
                "output on a file system that driver and workers share."
            )
        return score_block(self._predictor, item, self._parts, self._job)


def worker_results(
    read: Callable[[], Iterable[Any]],
    worker: type[Worker],
    arguments: tuple[Any, ...],
    *,
    cluster: Cluster,
    workers: int,
) -> Iterator[Any]:
    """The results of the items that `read` gives, as they are done; what a worker raised is raised here.

    `read` runs in one task, and `worker(*arguments)` in each of the `workers` actors. All of them are pickled.
    """
    dataset = ray.data.read_datasource(
        ItemSource(read),
        override_num_blocks=1,
        num_cpus=0,  # it mostly waits for the workers, and must not take a CPU from them
    ).map_batches(
        worker,
        fn_constructor_args=arguments,
        batch_size=1,
        batch_format="pyarrow",
        num_gpus=cluster.gpus_per_worker or None,
        num_cpus=1,
        compute=ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=WAITING),
    )
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row[RESULT])
    except ray.exceptions.RayError as error:
        raise _original_error(error) from error


def _original_error(error: BaseException) -> BaseException:
    """The UATLiteError that a worker raised, out of Ray's wrapping; the given error where there is none."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, UATLiteError):
        inner = getattr(inner, "cause", None) or inner.__cause__
    return inner or error


class ItemSource(Datasource):  # type: ignore[misc]
    """Items, pickled, because a kept column may hold any value that a file format knows."""

    def __init__(self, read: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._read = read

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown before it is read."""
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        """One task: where a block of rows begins depends on all rows before it."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(self._tables, unknown)]

    def _tables(self) -> Iterator[pa.Table]:
        for item in self._read():
            yield pa.table({ITEM: [pickle.dumps(item)]})


@contextmanager
def connected(cluster: Cluster) -> Iterator[int]:
    """Connect to the cluster and yield the number of workers to run; an existing connection is used and left open."""
    with ExitStack() as stack:
        if not ray.is_initialized():
            if cluster.address is None:
                stack.enter_context(_closed_to_others())
            _connect(cluster)
            stack.callback(ray.shutdown)
        stack.enter_context(DataContext.current(_data_context()))
        logger = logging.getLogger("ray.data")
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.ERROR)  # the caller shows the progress
        yield _workers(cluster, ray.cluster_resources())


@contextmanager
def _closed_to_others() -> Iterator[None]:
    """What makes a Ray that is started here refuse others: a token of its own, and the loopback address only.

    Ray turns its token authentication on by itself where RAY_AUTH_MODE is not set. Without the constant it would
    replace 127.0.0.1 by the address of the machine and listen on all interfaces.
    """
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    before, cluster = {name: os.environ.pop(name, None) for name in names}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    AuthenticationTokenLoader.instance().reset_cache()  # Ray keeps the token that it read first
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})
        AuthenticationTokenLoader.instance().reset_cache()


def _connect(cluster: Cluster) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address is None:
        # A worker takes one CPU; a caller may ask for more workers than there are cores.
        cores = max(cluster.workers or 1, os.cpu_count() or 1)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors arrive as exceptions
        local = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        try:
            ray.init("local", _node_ip_address="127.0.0.1", **local, **quiet)
        except _START_ERRORS as error:
            raise ConfigurationError(
                f"Ray cannot be started on this machine ({_reason(error)}). Free memory and space in "
                f"{os.environ.get('RAY_TMPDIR', '/tmp')}, ask for fewer --workers, or use --engine local."
            ) from error
        return
    try:
        _reach(cluster.address)
        ray.init(cluster.address, **quiet)
    except _START_ERRORS as error:
        raise ConfigurationError(
            f"address={cluster.address!r}: no Ray cluster answers there ({_reason(error)}). Start one with 'ray start "
            "--head', or leave --address out to use this machine alone. If it asks for a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, as there."
        ) from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _reach(address: str) -> None:
    """Raise at once where nothing listens at host:port; Ray would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def _data_context() -> DataContext:
    """No output, one of our blocks in each Ray block, and a bounded number of them in memory."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.target_max_block_size = 1  # smaller than any row: each is a block of its own
    context.execution_options.resource_limits = ExecutionResources.for_limits(object_store_memory=IN_FLIGHT)
    return context


def _workers(cluster: Cluster, there: dict[str, float]) -> int:
    """How many workers to run; more than the cluster has room for are an error, because Ray would wait forever."""
    room = int(there.get("CPU", 0))
    if cluster.gpus_per_worker:
        room = min(room, int(there.get("GPU", 0) / cluster.gpus_per_worker))
    wanted = cluster.workers or max(room, 1)
    if wanted > room:
        raise ConfigurationError(
            f"workers={wanted}: the cluster has room for {room}, with {there.get('CPU', 0):g} CPUs and "
            f"{there.get('GPU', 0):g} GPUs, at one CPU and {cluster.gpus_per_worker:g} GPUs a worker. Ask for fewer "
            "with --workers or --gpus-per-worker, or add machines to the cluster."
        )
    return wanted
