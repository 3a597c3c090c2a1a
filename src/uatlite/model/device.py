"""Where a model computes, in which precision, and how much of it fits there at once.

A device is named as PyTorch names it: cpu, cuda, cuda:1, mps; `auto` is a GPU where there is one. Weights stay in fp32
on all of them. A lower precision is that of the matrix products of a forward: heads, variances and probabilities are
computed from its fp32 logits and representations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor

from uatlite.errors import ConfigurationError, ModelError, check_choice
from uatlite.values import FP32

AUTO = "auto"
TF32 = "tf32"
DTYPES = {FP32: None, "bf16": torch.bfloat16, "fp16": torch.float16, TF32: None}
"""precision -> the type that the products of a forward are cast to; TF32 rounds inside a GPU's units"""
SHARE = 0.5
"""Of the free memory of a GPU, for the activations of one forward; the estimate of these is rough."""

Work = TypeVar("Work")
Result = TypeVar("Result")

_PRECISION: ContextVar[str] = ContextVar("uatlite_precision", default=FP32)


def find_device(name: str | None = None) -> torch.device:
    """The device of this name; `auto` or None: a GPU, else Apple's, else the CPU. Raise where it is not there."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    there = {"cuda": gpus, "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if name is None or name == AUTO:
        name = next(kind for kind, count in there.items() if count)
    kind, _, number = str(name).partition(":")
    if kind not in there or not f"{number or 0}".isdecimal():
        check_choice("device", name, (AUTO, "cpu", "cuda", "cuda:1", "mps"))
    if int(number or 0) >= there[kind]:
        seen = ["the CPU", *(f"cuda:{i}" for i in range(gpus)), *["mps"] * there["mps"]]
        raise ConfigurationError(
            f"device={name!r} is not there: PyTorch {torch.__version__} sees {', '.join(seen)}. Use one of these, or "
            "auto; a GPU needs its driver and a PyTorch that was built for it."
        )
    if kind != "cuda":
        return torch.device(kind)
    return torch.device(kind, int(number) if number else torch.cuda.current_device())


# ── precision ──────────────────────────────────────────────────────────────────────────────────────────────────────


def precisions_of(device: torch.device) -> list[str]:
    """The precisions that a device has. Of CPUs some crash in bf16 products, so they compute in fp32."""
    if device.type == "cuda":
        return list(DTYPES) if torch.cuda.get_device_capability(device) >= (8, 0) else [FP32, "fp16"]
    if device.type == "mps":
        return [FP32, "fp16", *["bf16"] * torch.backends.mps.is_macos_or_newer(14, 0)]
    return [FP32]


def check_precision(precision: str, device: torch.device) -> None:
    """Raise where a device has not this precision."""
    check_choice("precision", precision, DTYPES)
    if precision not in (allowed := precisions_of(device)):
        raise ConfigurationError(
            f"precision={precision!r}: {device} computes in {' or '.join(allowed)} only. Use that, or another device; "
            "what was calibrated in another precision is calibrated again."
        )


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Within the block, this thread's forwards compute their products in a precision."""
    token = _PRECISION.set(precision)
    try:
        yield
    finally:
        _PRECISION.reset(token)


@contextmanager
def products_on(device: torch.device) -> Iterator[None]:
    """Around a forward: its matrix products are computed in the precision that was asked for."""
    precision = _PRECISION.get()
    if precision == FP32:
        yield
    elif precision == TF32:
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    else:
        with torch.autocast(device.type, dtype=DTYPES[precision]):
            yield


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def free_memory(device: torch.device) -> int | None:
    """Bytes that activations may take on a device, by what is free there now; None on a CPU, whose caches decide."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(SHARE * (torch.cuda.mem_get_info(device)[0] + kept))
    if device.type == "mps":
        return int(SHARE * (torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()))
    return None


def in_halves(
    run: Callable[[Work], Result], work: Work, halves: Callable[[Work], Sequence[Work]]
) -> Iterator[tuple[Work, Result]]:
    """What `run` makes of some work; where memory does not suffice for it, of its halves, one after the other.

    An answer depends on its text alone, so it is the same. What cannot be halved any more is an error.
    """
    try:
        result = run(work)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower() and not isinstance(error, torch.OutOfMemoryError):
            raise
        smaller = halves(work)
        if not smaller:
            raise ModelError(
                "the memory of the device does not suffice for one pass over one text. Set a lower max_length, use "
                "device='cpu', or free memory that other programs hold."
            ) from error
    else:
        yield work, result
        return
    if torch.accelerator.is_available():  # here the error is gone, and with it what its frames held
        torch.accelerator.empty_cache()
    for half in smaller:
        yield from in_halves(run, half, halves)


def over_inputs(run: Callable[[Mapping[str, Tensor]], Result], inputs: Mapping[str, Tensor]) -> list[Result]:
    """The results of a forward over all rows of its inputs, or over as many parts of them as memory makes it."""

    def halves(rows: slice) -> list[slice]:
        middle = (rows.start + rows.stop) // 2
        return [slice(rows.start, middle), slice(middle, rows.stop)] if middle > rows.start else []

    every = slice(0, len(next(iter(inputs.values()))))

    def run_rows(rows: slice) -> Result:
        return run({name: value[rows] if len(value) == every.stop else value for name, value in inputs.items()})

    return [result for _, result in in_halves(run_rows, every, halves)]
