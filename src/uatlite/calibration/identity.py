"""No calibration: the softmax of the logits as they are."""

from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike
from scipy.special import softmax

from uatlite.calibration.inputs import FloatArray, check_fitted, check_labels, check_logits


class Identity:
    """softmax(logits): learns nothing, and is the line that every other calibrator has to beat."""

    name: ClassVar[str] = "none"
    keeps_argmax: ClassVar[bool] = True
    uses_variance: ClassVar[bool] = False

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Check logits (rows, classes) and labels (rows,); there is nothing to learn."""
        z = check_logits(logits)
        check_labels(labels, rows=len(z), classes=z.shape[1])
        self.classes_ = z.shape[1]
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """softmax(logits), (rows, classes)."""
        check_fitted(self, "classes_")
        result: FloatArray = softmax(check_logits(logits, classes=self.classes_), axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "none", "classes": ...}."""
        check_fitted(self, "classes_")
        return {"calibrator": self.name, "classes": self.classes_}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.classes_ = int(state["classes"])
        return new
