"""Scoring a file on a Ray cluster: the blocks and parts of `uatlite.scoring`, with Ray's actors between them.

    driver reads  ->  blocks of rows  ->  workers (one actor each, the model loaded once)  ->  parts on disk
                                                `->  counts  ->  driver: progress, and the output at the end

Blocks are cut as the local engine cuts them, so the output is the same to the byte. A part is written whole or not at
all, under the number of its block: if Ray hands a block out again after a worker or the driver died, there is still
one part.
"""

import logging
import operator
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from uatlite.classifier.product import Predictor, Product
from uatlite.errors import ConfigurationError, DataError, MissingDependency, ModelError
from uatlite.scoring.job import Job, Summary, Tally
from uatlite.scoring.run import OnProgress, Parts, ScoringRun, score_block
from uatlite.scoring.source import Block, Source

try:
    import ray
    from ray._private import ray_constants
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]
    from ray.util import ActorPool
except ImportError as error:
    raise MissingDependency("ray", "ray") from error

Load = Callable[..., Product[Any]]
"""Loads the classifier, on `device` if given. It is pickled, so it is `partial(from_pretrained, name)`, no closure."""

OBJECT_STORE = 256 * 2**20
"""Bytes of shared memory of a cluster that is started here."""
IN_HAND = 2
"""Items that a worker holds: one to work on, and the next. No more are read before, so memory stays bounded."""
REACH_SECONDS = 5.0
"""How long a cluster may take to accept a connection."""

_START_ERRORS = (ray.exceptions.RayError, ConnectionError, ValueError, RuntimeError, OSError)
"""What Ray raises where a cluster cannot be started or reached."""


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
                for work in worker_results(tasks, operator.call, self, min(workers, len(tasks))):
                    advance(work)


def score_file(
    load: Load,
    job: Job,
    cluster: Cluster,
    on_progress: OnProgress = lambda tally: None,
    *,
    source: Source | None = None,
) -> Summary:
    """`uatlite.scoring.score_file` by the workers of a cluster, with the same output.

    Driver and workers share a file system: model and output have the same paths for all.
    """
    source = source or Source(job.input, format=job.format)
    source.check_job(job)
    run = ScoringRun(job, load(device="cpu").predictor(here=False), source)
    scorer = Scorer(load, replace(run.job, input=job.source, output=job.output.absolute()), run.record)

    def score(blocks: Iterator[Block]) -> Iterator[Tally]:
        with connected(cluster) as workers:
            yield from worker_results(blocks, scorer, cluster, workers)

    return run.by(score, on_progress)


@dataclass(frozen=True)
class Scorer:
    """Scores blocks into parts, by a classifier that it loads once, where it is."""

    load: Load
    job: Job
    record: dict[str, Any]

    @cached_property
    def predictor(self) -> Predictor:
        """What the classifier says; the same path may hold another model than the driver's, which is an error."""
        predictor = self.load().predictor()
        here = self.job.record(predictor)
        if differs := [name for name in here if here[name] != self.record[name]]:
            raise ModelError(
                f"On {socket.gethostname()} another classifier was loaded than on the driver: {', '.join(differs)} "
                "differ. Give every machine the same files."
            )
        return predictor

    def __call__(self, block: Block) -> Tally:
        """Write the part of a block; a worker that outlives its driver does not write for a later run."""
        predictor, parts = self.predictor, Parts.of(self.job.output)
        if not parts.begun or parts.differences(self.record):
            raise DataError(
                f"{parts.directory} does not exist on {socket.gethostname()}, or belongs to another run. Give an "
                "output on a file system that driver and workers share."
            )
        return score_block(predictor, block, parts, self.job)


class Worker:
    """An actor of the cluster, which holds what turns items into results."""

    def __init__(self, turn: Callable[[Any], Any]) -> None:
        self._turn = turn

    def work(self, item: Any) -> Any:
        """The result of one item."""
        return self._turn(item)


def worker_results(items: Iterable[Any], turn: Callable[[Any], Any], cluster: Cluster, workers: int) -> Iterator[Any]:
    """What `turn` makes of the items on the workers, as they are done; what it raised there is raised here.

    A worker that dies is started anew, and what it held is given to it again.
    """
    actor = ray.remote(num_cpus=1, num_gpus=cluster.gpus_per_worker or None, max_restarts=-1, max_task_retries=-1)
    pool = ActorPool([actor(Worker).remote(turn) for _ in range(workers)] * IN_HAND)
    try:
        for item in items:
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda worker, item: worker.work.remote(item), item)
        while pool.has_next():
            yield pool.get_next_unordered()
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


@contextmanager
def connected(cluster: Cluster) -> Iterator[int]:
    """Connect to the cluster and yield the number of workers to run; an existing connection is used and left open."""
    with ExitStack() as stack:
        if not ray.is_initialized():
            if cluster.address is None:
                stack.enter_context(_closed_to_others())
            _connect(cluster)
            stack.callback(ray.shutdown)
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
    try:
        if cluster.address is None:
            # A worker takes one CPU; a caller may ask for more workers than there are cores.
            cores = max(cluster.workers or 1, os.cpu_count() or 1)
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
            os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors arrive as exceptions
            local = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
            ray.init("local", _node_ip_address="127.0.0.1", **local, **quiet)
            return
        host, _, port = cluster.address.removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # an error at once where nothing listens; Ray would retry for minutes
            socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
        ray.init(cluster.address, **quiet)
    except _START_ERRORS as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise ConfigurationError(
            f"Ray cannot be started on this machine ({reason}). Free memory and space in "
            f"{os.environ.get('RAY_TMPDIR', '/tmp')}, ask for fewer --workers, or use --engine local."
            if cluster.address is None
            else f"address={cluster.address!r}: no Ray cluster answers there ({reason}). Start one with 'ray start "
            "--head', or leave --address out to use this machine alone. If it asks for a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, as there."
        ) from error


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
