"""Interleaved timing of several runs, and the results of a benchmark as JSON and Markdown.

Each round runs every contender once, so that other load on the machine affects all of them equally.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Runs = Mapping[str, Callable[[], None]]
OnStep = Callable[[str], None]
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Timed:
    """The cost of one contender."""

    seconds: float
    """the median over rounds"""
    ratio: float
    """its time over the baseline's, timed before and after it; the median over rounds"""
    peak_bytes: int | None
    """peak memory beyond what was in use before; None where the system does not report it"""


def take_turns(runs: Runs, baseline: str, rounds: int, on_step: OnStep = lambda step: None) -> dict[str, Timed]:
    """Time every run once in each round, with the baseline before and after it. One round before warms up.

    Memory is measured in the warm-up, as later runs find it allocated. `on_step` gets the name of each step.
    """
    peaks: dict[str, int | None] = {}
    for name, run in runs.items():
        on_step(f"warming up: {name}")
        peaks[name] = peak_of(run)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    ratios: dict[str, list[float]] = {name: [] for name in runs} | {baseline: [1.0]}
    for number in range(1, rounds + 1):
        taken[baseline].append(seconds(runs[baseline]))
        for name, run in runs.items():
            if name == baseline:
                continue
            on_step(f"round {number} of {rounds}: {name}")
            taken[name].append(seconds(run))
            taken[baseline].append(seconds(runs[baseline]))
            before, after = taken[baseline][-2:]
            ratios[name].append(taken[name][-1] / ((before + after) / 2))
    return {name: Timed(statistics.median(taken[name]), statistics.median(ratios[name]), peaks[name]) for name in runs}


def seconds(run: Callable[[], None]) -> float:
    """The seconds that a run takes."""
    begun = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def peak_of(run: Callable[[], None]) -> int | None:
    """The peak memory of a run beyond what was in use before: of the GPU, else of the process (Linux)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return int(torch.cuda.max_memory_allocated() - before)
    try:
        _CLEAR.write_text("5")  # resets the peak
        before = _status("VmRSS")
        run()
        return max(0, _status("VmHWM") - before)
    except OSError:  # another system, or one that does not allow it
        run()
        return None


def _status(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The b of cost = a·size^b, by least squares on logarithms; 1 is linear."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)


@dataclass(frozen=True)
class Curve:
    """How the cost of each contender grows with one quantity."""

    over: str
    """passes, tokens, texts or batch"""
    sizes: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]
    """contender -> seconds at each size"""
    exponents: Mapping[str, float]
    """contender -> the b of seconds ~ size^b"""


@dataclass(frozen=True)
class BenchResults:
    """The results of one benchmark on one machine."""

    model: str
    texts: int
    tokens: int
    """in all texts together"""
    passes: int
    rounds: int
    batch: int
    """texts of a batch: the size at which the deterministic pass was fastest"""
    machine: Mapping[str, str]
    contenders: Mapping[str, Timed]
    curves: tuple[Curve, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The tables in Markdown."""
        header = (
            f"{self.model}: {self.texts:,} texts of {self.tokens / self.texts:.0f} tokens on average, "
            f"M = {self.passes}, batches of {self.batch}, {self.rounds} rounds; {', '.join(self.machine.values())}"
        )
        table = ["| | cost | texts/s | peak memory |", "|---|---:|---:|---:|"]
        for name, timed in self.contenders.items():
            peak = "" if timed.peak_bytes is None else f"{timed.peak_bytes / 2**20:,.0f} MiB"
            table.append(f"| {name} | {timed.ratio:.2f} | {self.texts / timed.seconds:,.1f} | {peak} |")
        return [header, "", *table, "", *self._growth()]

    def _growth(self) -> list[str]:
        """How seconds grow with passes, tokens and texts: the fitted exponents."""
        names = [name for name in self.contenders if any(name in curve.exponents for curve in self.curves)]
        rows = ["| seconds grow with | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        for curve in self.curves:
            cells = [f"{curve.exponents[name]:.2f}" if name in curve.exponents else "" for name in names]
            rows.append(f"| {curve.over}^ ({curve.sizes[0]} to {curve.sizes[-1]}) | {' | '.join(cells)} |")
        return rows
