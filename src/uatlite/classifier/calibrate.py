"""From labelled texts to a record: a calibrator, rules, label sets, a scope, and what a shift is told by.

A promise about new texts must not rest on texts that fitted what it is about. A raw score, the margin of the logits or
the log-odds of answers, is fitted on no text, and no calibrator changes a prediction, so by default all texts fit the
calibrator and all decide the rule. Another score and label sets need texts of their own: there a third of them fits and
the others decide. Texts are the unit: a text fits, or decides, with all of its answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from uatlite.classifier.answer_kind import AnswerKind, Gold
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.record import Calibration
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.second_look import learn_second_look
from uatlite.classifier.settings import CalibrationOptions, Settings
from uatlite.errors import CalibrationError
from uatlite.methods.method import TAUGHT, CalibrationRows, LearnedMethod, Method
from uatlite.methods.sampling import BASE
from uatlite.predictive import PassLogits
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.promise import FITTING_SHARE, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, Wanted
from uatlite.trust.scope import Scope, fit_scope
from uatlite.trust.shift import REFERENCE_ROWS
from uatlite.values import Marks, Text

REFERENCE_BLOCK = 2048
"""Reference texts that are read at once: what is kept of them does not grow with their number."""
Report = Callable[[int], None]
"""Called with the number of texts that a pass has read."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What the method says about the calibration texts, once its own settings are learned."""

    settings: Settings
    reading: Any
    """a `Reading` of each text as if the method had not learned from it"""
    read_plain: Callable[[], Any]
    """that of the plain pass"""
    reference: ScopeFit | None = None
    """of the unlabelled texts, where there are some"""
    spending: tuple[str, ...] = ()

    @property
    def plain(self) -> Any:
        """The `Reading` of the plain pass."""
        return self.read_plain()


@dataclass(eq=False)
class CalibrationTexts:
    """Calibration texts, and unlabelled ones of the same task, with what methods say about them."""

    kind: AnswerKind
    runtime: Runtime
    settings: Settings
    texts: Sequence[Text]
    reference: Sequence[Text] = ()
    report: Report | None = None
    _readings: dict[str, Any] = field(default_factory=dict)

    def learn(self, teaching: Marks) -> Learned:
        """The method with what it learns from the `teaching` texts, (texts,) bool, and what it says about all."""
        method = self.settings.method
        learned = LearnedMethod(method)
        if method.learns:
            plain = self.read(BASE)
            learned = self._learned(plain, teaching)
            reading = self._as_if_not_learned(learned, plain, teaching)
        else:
            reading = self.read(method)
        settings = self._settings(learned.method)
        return Learned(
            settings=settings,
            reading=reading,
            read_plain=partial(self.read, BASE),
            reference=self._scope_fit(settings if _by_text(reading) else self._settings(BASE)),
            spending=(learned.reason,) if learned.reason else (),
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

    def _learned(self, plain: Any, teaching: Marks) -> LearnedMethod:
        """The method with what it learns from texts; or from answers, whose texts can only be run together."""
        method = self.settings.method
        if not _by_text(plain):
            return self._learned_by_answers(plain)
        some = [text for text, chosen in zip(self.texts, teaching, strict=True) if chosen]
        others: dict[str, PassLogits] = {}

        def run_reference(asked: Method) -> PassLogits:
            if asked.name not in others:
                others[asked.name] = self.read_texts(asked, self._some_reference())
            return others[asked.name]

        return method.learn(
            CalibrationRows(
                len(some),
                lambda asked: self.read(asked).take(teaching),
                run_reference if self.reference else None,
                run_some=lambda asked, rows: self.read_texts(asked, [some[row] for row in rows.tolist()]),
                kind=self.kind.name,
            )
        )

    def _learned_by_answers(self, plain: Any) -> LearnedMethod:
        method, rows = self.settings.method, plain.lesson.logits.shape[1]
        if not rows:
            return LearnedMethod(method, f"The model finds no {plain.unit} in these texts, so no variance was learned.")

        def run(asked: Method) -> PassLogits:
            if asked.key == BASE.key:
                return plain.lesson  # type: ignore[no-any-return]
            return self.read_texts(asked, self.texts, like=plain).lesson  # type: ignore[no-any-return]

        return method.learn(CalibrationRows(rows, run, kind=self.kind.name))

    def _as_if_not_learned(self, learned: LearnedMethod, plain: Any, teaching: Marks) -> Any:
        """What the method says about all texts; those that it learned from as if it had not."""
        lesson = plain.lesson
        if not lesson.logits.shape[1]:
            return plain
        said = None if learned.outputs is None else learned.method.read_from(lesson)
        if said is None or learned.outputs is None:
            return self.read(learned.method)
        if said.given_variance is None:
            return plain
        variance = said.given_variance
        if learned.outputs.given_variance is not None:
            variance = variance.copy()
            variance[teaching if _by_text(plain) else slice(None)] = learned.outputs.given_variance
        return plain.taught(variance)

    def _settings(self, method: Method) -> Settings:
        return replace(self.settings, method=method.seeded(self.settings.seed))

    def _some_reference(self) -> list[Text]:
        order = np.random.default_rng(0).permutation(len(self.reference))[:TAUGHT]
        return [self.reference[place] for place in np.sort(order).tolist()]

    def _scope_fit(self, settings: Settings) -> ScopeFit | None:
        """What the scope keeps of the reference texts, block by block; None where the model shows no representation."""
        fit: ScopeFit | None = None  # also where there are no such texts
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


def _by_text(reading: Any) -> bool:
    """Whether a method learns from a reading text by text, and so from reference texts too."""
    return bool(reading.unit == "texts")


def calibrate(data: CalibrationTexts, gold: Gold, options: CalibrationOptions, classes: tuple[str, ...]) -> Calibration:
    """Learn from texts and their gold."""
    kind, everything = data.kind, np.ones(len(gold), dtype=np.bool_)
    asked = kind.wanted(options, classes)
    fitting = _fitting(len(gold), asked[0], options, learns=data.settings.method.learns)
    learned = data.learn(gold.teaching(everything if fitting is None else fitting))
    reading = learned.reading
    calibrator = _fit(kind, reading, gold, options, fitting)
    said = kind.say(data.texts, reading, calibrator, classes)
    scope = _scope(learned, len(gold), options)
    inside = everything if scope is None or scope.inside is None else scope.inside
    # Texts that fitted the calibrator do not decide, but say where the search starts.
    decisions = [
        decide(
            gold.labelled(said, wanted),
            wanted,
            inside=inside,
            fitting=fitting if wanted is asked[0] else None,
            menu=options.menu and wanted is asked[0],
        )
        for wanted in asked
    ]
    rules = tuple(decision.rule for decision in decisions if decision.rule is not None)
    decided = replace(said, rules=rules, out_of_scope=None if scope is None else ~inside)
    evidence = gold.evidence(said, learned, calibrator, options, everything if fitting is None else ~fitting)
    calibration = Calibration(
        settings=learned.settings,
        model_hash=data.runtime.hash,
        classes=classes,
        rows=len(gold),
        calibrator=calibrator,
        rules=rules,
        menu=decisions[0].menu,
        label_sets=evidence.label_sets,
        scope=scope,
        # The comparison of scores and representations uses no label, so all texts may take part.
        shift=decided.reference(asked[0].score, inside, options.false_alarm) if len(gold) >= REFERENCE_ROWS else None,
        figures=evidence.figures,
        comparison=evidence.comparison,
        spending=learned.spending,
    )
    if options.second_look is None:
        return calibration
    return replace(calibration, second_look=learn_second_look(options, data, gold, decided))


def _fitting(texts: int, wanted: Wanted, options: CalibrationOptions, *, learns: bool) -> Marks | None:
    """Which texts fit the calibrator while the others decide, (texts,); None where all fit and all decide."""
    decides = wanted.kind is not None or options.label_sets is not None
    raw = options.label_sets is None and wanted.score in (RAW_SCORE, LOG_ODDS)
    if not decides or raw or (options.calibrator == "none" and not learns):
        return None
    return fitting_rows(texts, options.seed)


def _fit(kind: AnswerKind, reading: Any, gold: Gold, options: CalibrationOptions, fitting: Marks | None) -> Any:
    if fitting is None:
        return kind.fit(reading, gold, options, np.ones(len(gold), dtype=np.bool_))
    try:
        return kind.fit(reading, gold, options, fitting)
    except CalibrationError as error:
        share = f"of {len(gold)} rows one in {FITTING_SHARE} fits the calibrator, the others decide"
        raise CalibrationError(f"{share}: {error}") from error


def _scope(learned: Learned, texts: int, options: CalibrationOptions) -> Scope | None:
    if texts < REFERENCE_ROWS:
        return None
    reading = learned.reading
    return fit_scope(learned.reference, reading.representations, reading.scope_logits, false_alarm=options.false_alarm)
