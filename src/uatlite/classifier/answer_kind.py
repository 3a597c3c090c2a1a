"""What a model says about a text: one class, one option, labels or entities. All that differs by it is behind one seam.

    texts → `read` → Reading → `say` → Predictions → what becomes of each text → row

One class is the case of one answer a text. A new kind is one implementation and one entry of `KINDS`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from uatlite.classifier.entities import ENTITIES
from uatlite.classifier.many_labels import LABELS
from uatlite.classifier.one_class import CHOICE, ONE
from uatlite.classifier.predictions import Predictions, Wording
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import Settings
from uatlite.predictive import PassLogits
from uatlite.values import Floats, Integers, Kind, Text


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

    def say(self, texts: Sequence[Text], reading: Any, calibrator: Any, classes: tuple[str, ...]) -> Predictions:
        """The predictions of a reading, calibrated where there is a calibrator; nothing is decided yet."""
        ...


KINDS: dict[Kind, AnswerKind] = {kind.name: kind for kind in (ONE, CHOICE, LABELS, ENTITIES)}
