"""What a benchmark found, as frozen values that go to JSON and to a Markdown table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uatlite.bench.timing import Timed


@dataclass(frozen=True)
class Curve:
    """How the cost of each contender grows with one thing."""

    over: str
    """passes, tokens, texts or batch"""
    sizes: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]
    """contender -> seconds at each size"""
    exponents: Mapping[str, float]
    """contender -> the b of seconds ~ size^b"""


@dataclass(frozen=True)
class Results:
    """One interleaved run on one machine."""

    model: str
    texts: int
    tokens: int
    """of all texts together"""
    passes: int
    rounds: int
    batch: int
    """texts of a batch, the number at which the deterministic pass was fastest"""
    machine: Mapping[str, str]
    contenders: Mapping[str, Timed]
    curves: tuple[Curve, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The tables in Markdown."""
        header = f"{self.model}: {self.texts:,} texts of {self.tokens / self.texts:.0f} tokens on average, "
        header += (
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
