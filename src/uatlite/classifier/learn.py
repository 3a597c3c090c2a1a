"""What a method learns from calibration texts: each method runs over them once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import Settings
from uatlite.methods.method import TAUGHT, CalibrationRows, LearnedMethod, Method
from uatlite.methods.sampling import BASE
from uatlite.predictive import PassLogits
from uatlite.trust.gaussians import ScopeFit
from uatlite.values import Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.answer_kind import AnswerKind

REFERENCE_BLOCK = 2048
"""Reference texts that are read at once: what is kept of them does not grow with their number."""
Report = Callable[[int], None]
"""Called with the number of texts that a pass has read."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What the method says about the calibration rows, once its own settings are learned."""

    settings: Settings
    outputs: Any
    """of the method, a `Reading` of each text as if the method had not learned from it"""
    plain: Any
    """of the plain pass, a `Reading` too"""
    reference: ScopeFit | None = None
    """of the unlabelled texts, where there are some"""
    spending: tuple[str, ...] = ()
    learns: bool = False
    """whether the method learned from the texts of these rows"""


@dataclass(eq=False)
class CalibrationTexts:
    """Calibration texts, and unlabelled ones of the same task, with what methods say about them."""

    kind: "AnswerKind"
    runtime: Runtime
    settings: Settings
    texts: Sequence[Text]
    reference: Sequence[Text] = ()
    report: Report | None = None
    _readings: dict[str, Any] = field(default_factory=dict)

    def learn(self, labels: NDArray[np.int64] | None = None, fitting: Marks | None = None) -> Learned:
        """The method with what it learns from these texts, or from the `fitting` ones, and what it says about them.

        `labels` are (texts,) or of many labels (texts, labels); without them the method learns from single answers.
        """
        method, plain = self.settings.method, self.read(BASE)
        tuned, reading = LearnedMethod(method), plain
        if method.learns:
            some = np.ones(len(self.texts), dtype=np.bool_) if fitting is None else fitting
            tuned = self._tuned(plain, labels, some)
            reading = self._as_if_not_learned(tuned, plain, some)
        elif method.key != BASE.key:
            reading = self.read(method)
        settings = self._settings(tuned.method)
        by_text = plain.unit == "texts"
        return Learned(
            settings=settings,
            outputs=reading,
            plain=plain,
            reference=self._scope_fit(settings if by_text else self._settings(BASE)) if self.reference else None,
            spending=(tuned.reason,) if tuned.reason else (),
            learns=method.learns,
        )

    def read(self, method: Method) -> Any:
        """What a method says about the calibration texts, a `Reading`; run once."""
        if method.name not in self._readings:
            self._readings[method.name] = self.read_texts(method, self.texts)
        return self._readings[method.name]

    def read_texts(self, method: Method, texts: Sequence[Text], like: Any = None) -> Any:
        """What a method says about some texts, a `Reading`; with `like` about the same answers as there."""
        reading = self.kind.read(self.runtime, texts, self._settings(method), like)
        self._tell(len(texts))
        return reading

    def _tuned(self, plain: Any, labels: NDArray[np.int64] | None, fitting: Marks) -> LearnedMethod:
        """The method with what it learns from texts; or from answers, whose texts can only be run together."""
        method = self.settings.method
        if labels is None:
            return self._tuned_by_answers(plain)
        some = [text for text, chosen in zip(self.texts, fitting, strict=True) if chosen]
        others: dict[str, PassLogits] = {}

        def run_reference(asked: Method) -> PassLogits:
            if asked.name not in others:
                others[asked.name] = self.read_texts(asked, self._some_reference())
            return others[asked.name]

        return method.learn(
            CalibrationRows(
                len(some),
                lambda asked: self.read(asked).take(fitting),
                run_reference if self.reference else None,
                run_some=lambda asked, rows: self.read_texts(asked, [some[row] for row in rows.tolist()]),
                kind=self.kind.name,
            )
        )

    def _tuned_by_answers(self, plain: Any) -> LearnedMethod:
        method, rows = self.settings.method, plain.lesson.logits.shape[1]
        if not rows:
            return LearnedMethod(method, f"The model finds no {plain.unit} in these texts, so no variance was learned.")

        def run(asked: Method) -> PassLogits:
            if asked.key == BASE.key:
                return plain.lesson  # type: ignore[no-any-return]
            return self.read_texts(asked, self.texts, like=plain).lesson  # type: ignore[no-any-return]

        return method.learn(CalibrationRows(rows, run, kind=self.kind.name))

    def _as_if_not_learned(self, tuned: LearnedMethod, plain: Any, fitting: Marks) -> Any:
        """What the method says about all texts; those that it learned from as if it had not."""
        lesson = plain.lesson
        if not lesson.logits.shape[1]:
            return plain
        said = None if tuned.outputs is None else tuned.method.read_from(lesson)
        if said is None or tuned.outputs is None:
            return self.read(tuned.method)
        if said.given_variance is None:
            return plain
        variance = said.given_variance
        if tuned.outputs.given_variance is not None:
            variance = variance.copy()
            variance[fitting if plain.unit == "texts" else slice(None)] = tuned.outputs.given_variance
        return plain.taught(variance)

    def _settings(self, method: Method) -> Settings:
        return replace(self.settings, method=method.seeded(self.settings.seed))

    def _some_reference(self) -> list[Text]:
        order = np.random.default_rng(0).permutation(len(self.reference))[:TAUGHT]
        return [self.reference[place] for place in np.sort(order).tolist()]

    def _scope_fit(self, settings: Settings) -> ScopeFit | None:
        """What the scope keeps of the reference texts, block by block; None where the model shows no representation."""
        fit: ScopeFit | None = None
        for start in range(0, len(self.reference), REFERENCE_BLOCK):
            texts = self.reference[start : start + REFERENCE_BLOCK]
            reading = self.kind.read(self.runtime, texts, settings)
            self._tell(len(texts))
            if reading.representations is None:
                return None
            logits = reading.scope_logits
            fit = fit or ScopeFit(reading.representations.shape[1], logits.shape[1])
            fit.add(reading.representations, logits.argmax(axis=1))
        return fit

    def _tell(self, texts: int) -> None:
        if self.report is not None:
            self.report(texts)
