"""What became of a file that was scored, for a person and for the file beside the output."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uatlite.decision import ShiftReport


@dataclass(frozen=True)
class Summary:
    """Counts of rows, the shift report, and the job that made them."""

    job: Mapping[str, Any]
    rows: int
    """rows of output"""
    rejected: int
    abstained: int | None
    """None without a rule to abstain by"""
    truncated_texts: int
    truncated_tokens: int
    shift: ShiftReport | None
    promise: str | None
    """what the rule promises for rows like the calibration rows"""
    rejects: str | None
    """the file that lists the rejected rows, where there are any"""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the shift report with its verdict in words."""
        values = asdict(self)
        if self.shift is not None:
            values["shift"] = {"verdict": self.shift.describe(), **self.shift.to_dict()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Summary":
        """The summary that `to_dict` described."""
        shift = values["shift"]
        report = None if shift is None else ShiftReport(**{name: shift[name] for name in shift if name != "verdict"})
        return cls(**{**values, "shift": report})

    def describe(self) -> list[str]:
        """A line for each thing that a person should know."""
        lines = [f"{self.rows:,} rows scored"]
        if self.abstained is not None and self.rows:
            lines[0] += f", {self.abstained:,} abstained ({self.abstained / self.rows:.1%})"
        if self.rejected:
            lines.append(f"{self.rejected:,} rows rejected; line numbers and reasons are in {self.rejects}")
        if self.truncated_texts:
            cut = f"{self.truncated_texts:,} texts were cut, {self.truncated_tokens:,} tokens in all"
            lines.append(f"{cut}; --windows reads them whole")
        if self.shift is not None:
            lines.append(self.shift.describe())
        return lines
