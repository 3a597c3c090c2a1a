"""Where the work is done: a Ray cluster that is there, or one of this machine's processes for the time of a call."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.data import DataContext, ExecutionResources

from uatlite.errors import ConfigurationError, UATLiteError

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
