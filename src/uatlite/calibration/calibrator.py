"""The contract of a calibrator: fitted on validation logits, applied to any logits, kept as plain JSON."""

from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from uatlite.calibration.inputs import FloatArray


@runtime_checkable
class Calibrator(Protocol):
    """Turns mean logits (rows, classes) into calibrated probabilities (rows, classes).

    `__init__` stores settings, `fit` validates and learns, and what was learned ends in `_`. A row of the
    result depends on that row alone, and on nothing that is added to all its logits.
    """

    name: ClassVar[str]
    """The key in `CALIBRATORS` and in the dict that `to_dict` returns."""
    keeps_argmax: ClassVar[bool]
    """Whether the most probable class is always the one with the largest logit."""
    uses_variance: ClassVar[bool]
    """Whether `fit` and `probabilities` need the margin's variance (rows,)."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn from validation rows: logits (rows, classes), labels (rows,), variance (rows,) or None."""
        ...

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """Probabilities (rows, classes); each row sums to 1."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, as plain JSON values; floats survive JSON bit by bit."""
        ...

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        ...
