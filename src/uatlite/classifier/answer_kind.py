"""What a model says about a text: one class, one option, labels or entities. All that differs by it is behind one seam.

    texts → `read` → Reading → `predictions.of` → Predictions → what becomes of each text → row

One class is the case of one answer a text. A new kind is one class that derives from `AnswerKind`, one that derives
from `Predictions`, and one entry of `KINDS` (product.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.predictions import Predictions
from uatlite.classifier.record import AnyCalibrator, CalibrationOptions, Evidence
from uatlite.classifier.runtime import Outputs, Runtime, Settings
from uatlite.classifier.token_run import TokenOutputs
from uatlite.text.examples import check_texts, text_fault
from uatlite.values import Kind, Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explained
    from uatlite.classifier.product import Predictor


Reading = Outputs | TokenOutputs
"""What the passes of a method say about some texts: of each text, or token by token."""
Read = TypeVar("Read", Outputs, TokenOutputs)
Said = TypeVar("Said", bound=Predictions)


class AnswerKind(ABC, Generic[Read, Said]):
    """What a model says about a text. `KINDS` has all four, and nobody else asks which one it is.

    Gold is an array with an entry for each text: the column of its class, a mark for each label, or the set of its
    entities as (start, end, type).
    """

    name: Kind
    """the key in `KINDS`; it stands in uatlite.json, /model and results.json"""
    predictions: type[Said]
    """what is said about texts, what its parts are called, and what can be promised of it"""

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        """What the classes are called, by column; those of options only with texts."""
        return model.class_names

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        """The texts as the model takes them, or an error that names the first that it cannot take."""
        return check_texts(given, self.fault, classes)

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        """Why the model cannot take a text, in a few words; None where it can."""
        return text_fault(text, chooses=False)

    @abstractmethod
    def read(self, model: Runtime, texts: Sequence[Text], settings: Settings, like: Read | None = None) -> Read:
        """What the method's passes say about checked texts; with `like` about the answers found there."""

    @abstractmethod
    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> NDArray[Any]:
        """What the gold says about checked texts; names of classes, or their columns."""

    @abstractmethod
    def fit(self, reading: Read, gold: NDArray[Any], options: CalibrationOptions, rows: Marks) -> AnyCalibrator:
        """The calibrator of what is read, by the gold of some of the texts, (texts,) bool."""

    def teaching(self, fitting: Marks) -> Marks:
        """(texts,): those from which a method may learn, where these fit the calibrator and the others decide."""
        return np.ones_like(fitting)

    def evidence(
        self,
        said: Said,
        gold: NDArray[Any],
        reading: Read,
        read_plain: Callable[[], Read],
        calibrator: Any,
        options: CalibrationOptions,
        free: Marks,
    ) -> Evidence:
        """What the gold says besides a rule.

        `reading` is of each text as if the method had not learned from it, and `read_plain` gives that of the plain
        pass; `free` (texts,) are the texts that did not fit the calibrator, or all.
        """
        return Evidence()

    @abstractmethod
    def explained(self, predictor: "Predictor", text: Text, which: str | int | None) -> "Explained":
        """Which answer of a text to explain, by default the least sure one, and the output whose variance is told."""


AnyKind = AnswerKind[Any, Any]
