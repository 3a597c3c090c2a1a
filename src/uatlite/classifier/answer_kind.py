"""What a model says about a text: one class, one option, labels or entities. All that differs by it is behind one seam.

    texts → `read` → Reading → `say` → Predictions → what becomes of each text → row

One class is the case of one answer a text. A new kind is one implementation and one entry of `KINDS`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from uatlite.classifier.entities import ENTITIES
from uatlite.classifier.evidence import Evidence
from uatlite.classifier.many_labels import LABELS
from uatlite.classifier.one_class import CHOICE, ONE
from uatlite.classifier.predictions import Predictions, Wording
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import CalibrationOptions, Settings
from uatlite.predictive import PassLogits
from uatlite.trust.promise import Labelled
from uatlite.trust.rule import Wanted
from uatlite.values import Floats, Integers, Kind, Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.calibrate import Learned


class Reading(Protocol):
    """What the passes of a method say about some texts: `Outputs`, or token by token `TokenOutputs`."""

    @property
    def passes(self) -> Integers:
        """(texts,): passes run for each text."""
        ...

    @property
    def cut(self) -> Integers | None:
        """(texts,): tokens that were cut off each text."""
        ...

    @property
    def representations(self) -> Floats | None:
        """(texts, units): what the model read of each text."""
        ...

    @property
    def all_logits(self) -> Floats:
        """(passes, rows, classes): of every text, or of every token."""
        ...

    @property
    def scope_logits(self) -> Floats:
        """(texts, classes): the logits that a scope reads."""
        ...

    @property
    def lesson(self) -> PassLogits:
        """What a method's free settings are learned from: texts, or the weakest words of entities."""
        ...


class Gold(Protocol):
    """What the gold says about some texts, checked."""

    def __len__(self) -> int:
        """How many texts it is of."""
        ...

    def at(self, rows: Integers) -> Self:
        """The gold of the texts at these places."""
        ...

    def teaching(self, fitting: Marks) -> Marks:
        """(texts,): those from which a method may learn, where these fit the calibrator and the others decide."""
        ...

    def labelled(self, said: Any, wanted: Wanted) -> Labelled:
        """The answers of predictions, and which of them are wrong, for a promise."""
        ...

    def evidence(
        self, said: Any, learned: "Learned", calibrator: Any, options: CalibrationOptions, free: Marks
    ) -> Evidence:
        """What the labels say besides a rule; `free` (texts,) are those that did not fit the calibrator, or all."""
        ...


class AnswerKind(Protocol):
    """What a model says about a text. `KINDS` has all four, and nobody else asks which one it is."""

    @property
    def name(self) -> Kind:
        """The key in `KINDS`; it stands in uatlite.json, /model and results.json."""
        ...

    @property
    def words(self) -> Wording:
        """What its parts are called."""
        ...

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        """What the classes are called, by column; those of options only with texts."""
        ...

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        """The texts as the model takes them, or an error that names the first that it cannot take."""
        ...

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        """Why the model cannot take a text, in a few words; None where it can."""
        ...

    def read(self, model: Runtime, texts: Sequence[Text], settings: Settings, like: Any = None) -> Any:
        """What the method's passes say about checked texts, a `Reading`; with `like` about the answers found there."""
        ...

    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> Gold:
        """What the gold says about checked texts; names of classes, or their columns."""
        ...

    def wanted(self, options: CalibrationOptions, classes: tuple[str, ...]) -> tuple[Wanted, ...]:
        """What shall be promised: first about the answers, which may be nothing, then about the texts."""
        ...

    def fit(self, reading: Any, gold: Any, options: CalibrationOptions, rows: Marks) -> Any:
        """The calibrator of what is read, by the gold of some of the texts, (texts,) bool."""
        ...

    def say(self, texts: Sequence[Text], reading: Any, calibrator: Any, classes: tuple[str, ...]) -> Predictions:
        """The predictions of a reading, calibrated where there is a calibrator; nothing is decided yet."""
        ...


KINDS: dict[Kind, AnswerKind] = {kind.name: kind for kind in (ONE, CHOICE, LABELS, ENTITIES)}
