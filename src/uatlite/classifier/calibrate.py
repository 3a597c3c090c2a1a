"""From labelled texts to a record: a calibrator, rules, label sets, a scope, and what a shift is told by.

A promise about new texts must not rest on texts that fitted what it is about. A raw score, the margin of the logits or
the log-odds of answers, is fitted on no text, and no calibrator changes a prediction, so by default all texts fit the
calibrator and all decide the rule. Another score and label sets need texts of their own: there a third of them fits and
the others decide. Texts are the unit: a text fits, or decides, with all of its answers.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.answer_kind import AnswerKind, Read, Said
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.record import Calibration, CalibrationOptions, SecondLook
from uatlite.classifier.runtime import Runtime, Settings
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.method import TAUGHT, CalibrationRows, LearnedMethod, Method
from uatlite.methods.registry import parse_method
from uatlite.methods.sampling import BASE
from uatlite.trust.cost import SAVING
from uatlite.trust.promise import FITTING_SHARE, Labelled, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, Wanted
from uatlite.trust.scope import ScopeFit, fit_scope
from uatlite.trust.shift import REFERENCE_ROWS
from uatlite.values import Floats, Integers, Marks, Text

REFERENCE_BLOCK = 2048
"""Reference texts that are read at once: what is kept of them does not grow with their number."""
RATE_FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01)
"""What the usual rates are multiplied by, of a model that was trained without dropout."""
KEPT_ANSWERS, FEWEST_KEPT = 0.95, 0.8
"""The share of plain answers that rates are to keep; with less than the second the method is refused."""
RATE_TEXTS = 50
"""Calibration texts by which rates are chosen, at most."""
FEW_VALUES = 10
"""A score with so many values, or fewer, is warned of."""
_FOLDS = 5
FEWEST_DOUBTED = 40
"""Calibration texts that were abstained on; fewer do not fit a calibrator of their own for a second look."""


@dataclass(eq=False)
class CalibrationTexts(Generic[Read, Said]):
    """Calibration texts, and unlabelled ones of the same task, with what methods say about them."""

    kind: AnswerKind[Read, Said]
    runtime: Runtime
    settings: Settings
    texts: Sequence[Text]
    reference: Sequence[Text] = ()
    report: Callable[[int], None] | None = None
    """called with the number of texts that a pass has read"""
    _readings: dict[str, Read] = field(default_factory=dict)

    def read(self, method: Method) -> Read:
        """What a method says about the calibration texts; run once."""
        if method.name not in self._readings:
            self._readings[method.name] = self.read_texts(method, self.texts)
        return self._readings[method.name]

    def read_texts(self, method: Method, texts: Sequence[Text], like: Read | None = None) -> Read:
        """What a method says about some texts; with `like` about the same answers as there."""
        reading = self.kind.read(self.runtime, texts, self.under(method), like)
        if self.report is not None:
            self.report(len(texts))
        return reading

    def under(self, method: Method) -> Settings:
        """The settings with another method."""
        return replace(self.settings, method=method.seeded(self.settings.seed))

    def learn(self, teaching: Marks) -> tuple[LearnedMethod, Read]:
        """The method with what it learns from the `teaching` texts, (texts,) bool; and what it says about all of them,
        as if it had not learned from them."""
        method, rates = self.with_rates(self.settings.method)
        learned, reading = self._learned(method, teaching)
        return replace(learned, reason=" ".join(filter(None, (rates, learned.reason)))), reading

    def with_rates(self, method: Method) -> tuple[Method, str]:
        """The method with rates that a model without dropout of its own stands, and a sentence about them.

        The usual rates times the largest factor under which the answers to some texts, whose labels are not read, are
        mostly the plain ones; rates that a user named are kept.
        """
        if method.config is None or not self.runtime.dropless:
            return method, ""
        rows = np.sort(np.random.default_rng(self.settings.seed).permutation(len(self.texts))[:RATE_TEXTS])
        texts = [self.texts[row] for row in rows.tolist()]

        def answers(asked: Method) -> Sequence[object]:
            return self.kind.predictions.of(
                texts, self.read_texts(asked, texts), None, self.runtime.class_names
            ).outcomes

        plain, usual, rates = answers(BASE), parse_method(method.key).config, method.config.rates
        kept: dict[float, float] = {}
        for factor in RATE_FACTORS if usual is not None and usual.rates == rates else RATE_FACTORS[:1]:
            scaled = method if factor == 1 else method.changed(**rates.times(factor))
            kept[factor] = float(np.mean([said == other for said, other in zip(answers(scaled), plain, strict=True)]))
            if kept[factor] >= KEPT_ANSWERS:
                break
        if kept[factor] < FEWEST_KEPT:
            raise CalibrationError(
                f"{scaled.name} changes {1 - kept[factor]:.0%} of the plain answers to {len(texts)} texts: the model "
                "has no dropout of its own and does not stand these rates. Name lower ones, as in uat:rate=0.01, or "
                "use the method base."
            )
        under = f"under the method's rates {kept[1.0]:.0%} of {len(texts)} texts keep their plain answer"
        chosen = "" if factor == 1 else f"; all rates are multiplied by {factor:g}, under which {kept[factor]:.0%} do"
        return scaled, f"Rates: the model has no dropout of its own; {under}{chosen}."

    def _learned(self, method: Method, teaching: Marks) -> tuple[LearnedMethod, Read]:
        if not method.learns:
            return LearnedMethod(method), self.read(method)
        plain = self.read(BASE)
        if not plain.lesson.logits.shape[1]:
            nothing = f"The model finds no {plain.unit} in these texts, so no variance was learned."
            return LearnedMethod(method, nothing), plain
        learned = method.learn(self._rows(plain, teaching))
        outputs = learned.outputs
        said = None if outputs is None else learned.method.read_from(plain.lesson)
        if said is None or outputs is None:
            return learned, self.read(learned.method)
        if (variance := said.given_variance) is None:
            return learned, plain
        if outputs.given_variance is not None:
            variance = variance.copy()
            variance[teaching if plain.unit == "texts" else slice(None)] = outputs.given_variance
        return learned, plain.taught(variance)

    def _rows(self, plain: Read, teaching: Marks) -> CalibrationRows:
        """What a method learns from: texts; or answers, whose texts can only be run together."""
        if plain.unit != "texts":
            return CalibrationRows(
                plain.lesson.logits.shape[1],
                lambda asked: (
                    (plain if asked.key == BASE.key else self.read_texts(asked, self.texts, like=plain)).lesson
                ),
                kind=self.kind.name,
            )
        some = [text for text, chosen in zip(self.texts, teaching, strict=True) if chosen]
        drawn = np.sort(np.random.default_rng(0).permutation(len(self.reference))[:TAUGHT]).tolist()
        others: dict[str, Read] = {}

        def run_reference(asked: Method) -> Any:
            if asked.name not in others:
                others[asked.name] = self.read_texts(asked, [self.reference[i] for i in drawn])
            return others[asked.name].lesson

        return CalibrationRows(
            len(some),
            lambda asked: self.read(asked).lesson.take(teaching),
            run_reference if drawn else None,
            run_some=lambda asked, rows: self.read_texts(asked, [some[row] for row in rows.tolist()]).lesson,
            kind=self.kind.name,
        )

    def scope_fit(self, method: Method) -> tuple[ScopeFit | None, Labelled | None]:
        """What the scope keeps of the reference texts, block by block; None where there are none, or the model shows no
        representation. And the first block, which may plan a promise."""
        fit: ScopeFit | None = None
        plans: Labelled | None = None
        for start in range(0, len(self.reference), REFERENCE_BLOCK):
            texts = self.reference[start : start + REFERENCE_BLOCK]
            reading = self.read_texts(method, texts)
            if not start:
                plans = self.kind.predictions.of(texts, reading, None, ()).unlabelled
            if reading.representations is None:
                return None, plans
            logits = reading.scope_logits
            fit = fit or ScopeFit(reading.representations.shape[1], logits.shape[1])
            fit.add(reading.representations, logits.argmax(axis=1))
        return fit, plans


def calibrate(
    data: CalibrationTexts[Read, Said], gold: NDArray[Any], options: CalibrationOptions, classes: tuple[str, ...]
) -> Calibration:
    """Learn from texts and their gold."""
    kind, everything = data.kind, np.ones(len(gold), dtype=np.bool_)
    asked = options.wanted(kind.predictions, classes)
    fitting = _fitting(len(gold), asked[0], options, learns=data.settings.method.learns)
    learned, reading = data.learn(kind.teaching(everything if fitting is None else fitting))
    reference, plans = data.scope_fit(learned.method if reading.unit == "texts" else BASE)
    try:
        calibrator = kind.fit(reading, gold, options, everything if fitting is None else fitting)
    except CalibrationError as error:
        if fitting is None:
            raise
        share = f"of {len(gold)} rows one in {FITTING_SHARE} fits the calibrator, the others decide"
        raise CalibrationError(f"{share}: {error}") from error
    said = kind.predictions.of(data.texts, reading, calibrator, classes)
    enough, scope = len(gold) >= REFERENCE_ROWS, None
    if enough and reading.representations is not None:
        read = reading.representations, reading.scope_logits
        scope = fit_scope(reference, *read, false_alarm=options.false_alarm, frozen=data.runtime.frozen)
    inside = everything if scope is None or scope.inside is None else scope.inside
    # Texts that fitted the calibrator do not decide, but say where the search starts.
    labelled = [replace(said.labelled(gold, wanted), unlabelled=plans) for wanted in asked]
    if asked[0].costs is not None and fitting is None:
        with suppress(CalibrationError):  # enough rows for the calibrator, too few without a fifth of them
            labelled[0] = replace(_held_out(data, reading, gold, asked[0], options), unlabelled=plans)
    decisions = [
        decide(
            rows,
            wanted,
            inside=inside,
            fitting=fitting if wanted is asked[0] else None,
            menu=options.menu and wanted is asked[0],
        )
        for rows, wanted in zip(labelled, asked, strict=True)
    ]
    rules = tuple(decision.rule for decision in decisions if decision.rule is not None)
    decided = replace(said.ruled(rules), out_of_scope=None if scope is None else ~inside)
    free = everything if fitting is None else ~fitting
    return Calibration(
        settings=data.under(learned.method),
        model_hash=data.runtime.hash,
        classes=classes,
        rows=len(gold),
        calibrator=calibrator,
        rules=rules,
        menu=decisions[0].menu,
        instead=decisions[0].instead,
        sample=labelled[0].sample(asked[0], free & inside),
        scope=scope,
        # The comparison of scores and representations uses no label, so all texts may take part.
        shift=decided.reference(asked[0].score, inside, options.false_alarm) if enough else None,
        second_look=None if options.second_look is None else _second_look(options, data, gold, decided),
        spending=(learned.reason,) if learned.reason else (),
        ties=_ties(decided.scores(asked[0].score), asked[0].score),
        **vars(kind.evidence(said, gold, reading, partial(data.read, BASE), calibrator, options, free)),
    )


def _ties(scores: Floats, name: str) -> str:
    """What it means that scores (answers,) have few values; nothing where they have many."""
    values, counts = np.unique(scores, return_counts=True)
    if len(values) > FEW_VALUES or len(scores) < REFERENCE_ROWS:
        return ""
    tied, most = counts[counts > 1].sum() / len(scores), counts.max() / len(scores)
    return (
        f"The score {name} has {len(values)} values only: {tied:.1%} of the rows share theirs with others, {most:.1%} "
        "have the commonest. Rows that tie are answered or not together, so that the coverage changes in steps."
    )


def _held_out(
    data: CalibrationTexts[Read, Said], reading: Read, gold: NDArray[Any], wanted: Wanted, options: CalibrationOptions
) -> Labelled:
    """The answers, fold by fold, by a calibrator that their rows did not fit: for what costs are expected of it."""
    kind, folds = data.kind, np.random.default_rng(options.seed).permutation(len(gold)) % _FOLDS
    held = []
    for fold in range(_FOLDS):
        calibrator = kind.fit(reading, gold, options, folds != fold)
        held.append(kind.predictions.of(data.texts, reading, calibrator, ()).labelled(gold, wanted))
    rows = np.arange(len(gold))
    arrays: dict[str, Any] = {
        name: np.stack([getattr(fit, name) for fit in held])[folds, rows] for name in ("wrong", "kind", "paid")
    }
    scores = {name: np.stack([fit.scores[name] for fit in held])[folds, rows] for name in held[0].scores}
    return replace(held[0], scores=scores, **arrays)


def _fitting(texts: int, wanted: Wanted, options: CalibrationOptions, *, learns: bool) -> Marks | None:
    """Which texts fit the calibrator while the others decide, (texts,); None where all fit and all decide."""
    decides = wanted.kind is not None or options.label_sets is not None
    raw = options.label_sets is None and wanted.score in (RAW_SCORE, LOG_ODDS, SAVING)
    if not decides or raw or (options.calibrator == "none" and not learns):
        return None
    return fitting_rows(texts, options.seed)


def _second_look(
    options: CalibrationOptions, data: CalibrationTexts[Read, Said], gold: NDArray[Any], decided: Said
) -> SecondLook:
    """The further method for the texts that are abstained on, as the paper recommends for its passes.

    Its probabilities have a calibrator of their own, fitted on the calibration texts that were abstained on; where
    these are few, on all.
    """
    spelling = str(options.second_look)
    method = parse_method(spelling)
    if method.learns:
        raise ConfigurationError(
            f"second_look={spelling!r} learns from calibration rows; a second look is by a method that runs as it is, "
            "such as 'uat', 'fast' or 'analytic'."
        )
    if not decided.rules and decided.out_of_scope is None:
        raise ConfigurationError(
            f"second_look={spelling!r} is for texts that are abstained on, and there is no rule to "
            f"{data.kind.predictions.words.advice}"
        )

    def fitted(rows: Integers) -> SecondLook:
        reading = data.read_texts(method, [data.texts[row] for row in rows.tolist()])
        calibrator = data.kind.fit(reading, gold[rows], options, np.ones(len(rows), dtype=np.bool_))
        return SecondLook(spelling, calibrator, len(rows))

    if (doubted := decided.doubted).sum() >= FEWEST_DOUBTED:
        with suppress(CalibrationError):  # their gold is all the same
            return fitted(np.flatnonzero(doubted))
    return fitted(np.arange(len(decided)))
