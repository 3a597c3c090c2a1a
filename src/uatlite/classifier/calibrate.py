"""From labelled texts to a record: a calibrator, rules, label sets, a scope, and what a shift is told by.

A promise about new texts must not rest on texts that fitted what it is about. A raw score, the margin of the logits or
the log-odds of answers, is fitted on no text, and no calibrator changes a prediction, so by default all texts fit the
calibrator and all decide the rule. Another score and label sets need texts of their own: there a third of them fits and
the others decide. Texts are the unit: a text fits, or decides, with all of its answers.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from uatlite.classifier.answer_kind import AnswerKind, Gold
from uatlite.classifier.learn import CalibrationTexts, Learned
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.record import Calibration
from uatlite.classifier.second_look import learn_second_look
from uatlite.classifier.settings import CalibrationOptions
from uatlite.errors import CalibrationError
from uatlite.trust.promise import FITTING_SHARE, Wanted, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE
from uatlite.trust.scope import Scope, fit_scope
from uatlite.trust.shift import REFERENCE_ROWS
from uatlite.values import Marks


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
