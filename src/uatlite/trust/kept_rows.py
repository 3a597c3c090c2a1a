"""What calibration keeps of its rows, so that a later update can fit on old and new ones together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.predictive import PassLogits
from uatlite.values import Floats


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Labelled rows: mean logits (rows, classes), labels (rows,) and the variance of the margin (rows,), if known.

    Texts are not kept. 32-bit numbers are enough: 1,000 rows of two classes take 16 kB.
    """

    logits: Floats
    labels: NDArray[np.int64]
    variance: Floats | None

    prefix: ClassVar[str] = "kept."

    @classmethod
    def of(cls, outputs: PassLogits, labels: NDArray[np.int64]) -> Self:
        """The rows that these outputs are of."""
        return cls(outputs.mean_logits, labels, outputs.margin_variance)

    def take(self, rows: NDArray[np.bool_]) -> "KeptRows":
        """Some of the rows, those marked True."""
        return KeptRows(self.logits[rows], self.labels[rows], None if self.variance is None else self.variance[rows])

    def repeated(self, copies: int) -> "KeptRows":
        """Each row so many times."""
        variance = None if self.variance is None else np.repeat(self.variance, copies)
        return KeptRows(np.repeat(self.logits, copies, axis=0), np.repeat(self.labels, copies), variance)

    def after(self, earlier: "KeptRows | None") -> "KeptRows":
        """The earlier rows, then these."""
        if earlier is None:
            return self
        both = self.variance is not None and earlier.variance is not None
        return KeptRows(
            np.concatenate([earlier.logits, self.logits]),
            np.concatenate([earlier.labels, self.labels]),
            np.concatenate([earlier.variance, self.variance]) if both else None,
        )

    def to_arrays(self) -> dict[str, Any]:
        """The arrays by name, each name beginning with `prefix`."""
        arrays = {"logits": self.logits.astype(np.float32), "labels": self.labels.astype(np.int32)}
        if self.variance is not None:
            arrays["variance"] = self.variance.astype(np.float32)
        return {self.prefix + name: array for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self | None:
        """The rows that `to_arrays` described; None where they were not kept."""
        if f"{cls.prefix}logits" not in arrays:
            return None
        variance = arrays.get(f"{cls.prefix}variance")
        return cls(
            np.asarray(arrays[f"{cls.prefix}logits"], dtype=np.float64),
            np.asarray(arrays[f"{cls.prefix}labels"], dtype=np.int64),
            None if variance is None else np.asarray(variance, dtype=np.float64),
        )
