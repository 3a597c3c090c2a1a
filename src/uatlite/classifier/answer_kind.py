"""What a model says about a text: one class, one option, labels or entities. All that differs by it is behind one seam.

    texts → `read` → Reading → `say` → Predictions → what becomes of each text → row

One class is the case of one answer a text. A new kind is one class that derives from `AnswerKind`, and one entry of
`KINDS` (product.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.predictions import CONFIDENCE, LOG_ODDS, Predictions, Wording
from uatlite.classifier.record import AnyCalibrator, Evidence
from uatlite.classifier.runtime import Outputs, Runtime, run
from uatlite.classifier.settings import CalibrationOptions, Settings
from uatlite.classifier.token_run import TokenOutputs
from uatlite.errors import InputError, check_choice
from uatlite.text.examples import check_texts, text_fault
from uatlite.trust.rule import RuleKind, Wanted
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
    words: ClassVar[Wording]
    """what its parts are called"""
    promises: ClassVar[Mapping[str, RuleKind]]
    """option of `calibrate` -> the kind of the rule about answers that keeps it"""
    scores: ClassVar[tuple[str, ...]] = (LOG_ODDS, CONFIDENCE)
    """what may rank its answers, first what does by default"""

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        """What the classes are called, by column; those of options only with texts."""
        return model.class_names

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        """The texts as the model takes them, or an error that names the first that it cannot take."""
        return check_texts(given, chooses=False)

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        """Why the model cannot take a text, in a few words; None where it can."""
        return text_fault(text, chooses=False)

    @abstractmethod
    def read(self, model: Runtime, texts: Sequence[Text], settings: Settings, like: Read | None = None) -> Read:
        """What the method's passes say about checked texts; with `like` about the answers found there."""

    @abstractmethod
    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> NDArray[Any]:
        """What the gold says about checked texts; names of classes, or their columns."""

    def paired_gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> NDArray[Any]:
        """The same, or an error where there is not one for each text."""
        given = given if isinstance(given, Sized) else list(given)
        if len(given) != len(texts):
            raise InputError(f"{len(texts)} texts came with {len(given)} {self.words.gold}; give one for each text.")
        return self.gold(given, texts, classes)

    def wanted(self, options: CalibrationOptions, classes: tuple[str, ...]) -> tuple[Wanted, ...]:
        """What shall be promised: first about the answers, which may be nothing, then about the texts."""
        score = options.score or (self.scores[0] if options.threshold is None else CONFIDENCE)
        check_choice("score", score, self.scores)
        return (options.wanted(self.promises, score, classes),)

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
    def say(self, texts: Sequence[Text], reading: Read, calibrator: Any, classes: tuple[str, ...]) -> Said:
        """The predictions of a reading, calibrated where there is a calibrator; nothing is decided yet."""

    @abstractmethod
    def explained(self, predictor: "Predictor", text: Text, which: str | int | None) -> "Explained":
        """Which answer of a text to explain, by default the least sure one, and the output whose variance is told."""


AnyKind = AnswerKind[Any, Any]


class TextKind(AnswerKind[Outputs, Said]):
    """A kind of answers that is read off the logits of texts."""

    def read(self, model: Runtime, texts: Sequence[Text], settings: Settings, like: Outputs | None = None) -> Outputs:
        return run(model, texts, settings)
