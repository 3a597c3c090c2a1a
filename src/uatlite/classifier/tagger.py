"""Entities: from a fine-tuned token classifier to entities that are reported only where they can be trusted."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from uatlite.classifier.calibrate import Learned
from uatlite.classifier.entities import EntityPredictions
from uatlite.classifier.learn import Report
from uatlite.classifier.product import CheckedPredictor, Product
from uatlite.classifier.settings import Config
from uatlite.classifier.several import (
    LOG_ODDS,
    TOP_LOG_ODDS,
    AnswerCalibration,
    AnswerOptions,
    calibrate_answers,
    sigmoid,
)
from uatlite.classifier.tagged_rows import Matches, TaggedRows, check_rows, check_tagged
from uatlite.classifier.tags import TagScheme, check_strategy
from uatlite.classifier.token_run import (
    TokenOutputs,
    entity_answers,
    missed_answers,
    recall_scores,
    run_tokens,
    text_log_odds,
)
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError
from uatlite.trust.answers import AnswerCalibrator, Answers
from uatlite.trust.grouped import PILOT_TEXTS, GroupedRule, grouped_recall
from uatlite.trust.promise import pilot_rows
from uatlite.trust.scope import Scope
from uatlite.trust.shift import REFERENCE_ROWS, summarise
from uatlite.values import Floats, Kind, Words, check_share

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import EntityExplanation
    from uatlite.model.spans import TaggedText
    from uatlite.model.tokens import Tokenizer

SHARE_FOUND = "share found"
"""The score of texts that a promise of recall ranks by, `recall_scores`: the share of entities expected to be found."""
MISSED, RECALL, STRATEGY = "missed", "recall", "aggregation_strategy"
"""What the calibration of a tagger has besides that of other answers."""


class UncertaintyTagger(Product[AnswerCalibration]):
    """A token classifier with the confidence of each entity as a whole, and a rule for which entities to report.

    `config` is a UATConfig, or the spelling of any method; by default 'distilled': one plain pass, once it is
    calibrated with the variance of each entity read off it. Texts longer than `max_length` tokens (by default what the
    model takes) are read in overlapping windows, and each entity is found once; with `windows=False` they are cut.
    `aggregation_strategy` joins tokens to words and entities as transformers' pipeline does: 'simple', 'first',
    'average' or 'max'. By default it is 'first', and for texts that are given as words 'words', where the first token
    of each word decides.
    """

    answers: ClassVar[tuple[Kind, ...]] = ("entities",)
    usage: ClassVar[str] = "pred.entities, pred.missed, pred.reasons"
    noun: ClassVar[str] = "types of entities"
    task: ClassVar[str] = "token-classification"

    def __init__(
        self,
        model: Any,
        tokenizer: "Tokenizer",
        config: Config = None,
        *,
        seed: int | None = None,
        max_length: int | None = None,
        windows: bool = True,
        indices: bool = False,
        aggregation_strategy: str | None = None,
    ) -> None:
        check_strategy(aggregation_strategy)
        self.aggregation_strategy = aggregation_strategy
        super().__init__(model, tokenizer, config, seed=seed, max_length=max_length, windows=windows, indices=indices)

    @property
    def further_options(self) -> dict[str, Any]:
        return {STRATEGY: self.aggregation_strategy}

    @property
    def scheme(self) -> TagScheme:
        """The tags of the model, by column."""
        return TagScheme(self.runtime.class_names)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the types of entities are called."""
        return self.scheme.names

    def predictor(self) -> "EntityPredictor":
        """The tagger as it is now, ready to run: settings and calibration are built and checked once."""
        if self.calibration_ is not None and self.calibration_.extra[STRATEGY] != self.aggregation_strategy:
            raise CalibrationError(
                f"the tagger was calibrated with aggregation_strategy={self.calibration_.extra[STRATEGY]!r}, now "
                f"{self.aggregation_strategy!r}; calibrate it again, or set that back."
            )
        return EntityPredictor(
            self.runtime, self.checked_settings(), self.calibration_, self.scheme, self.aggregation_strategy
        )

    def calibrate(
        self,
        texts: Iterable[Any],
        entities: Iterable[Iterable[Any]] | None = None,
        *,
        target_risk: float | None = None,
        target_recall: float | None = None,
        confidence: float = 0.95,
        score: str = LOG_ODDS,
        reference: Iterable[Any] | None = None,
        false_alarm: float = 0.01,
        seed: int = 0,
        menu: bool = False,
        report: Report | None = None,
    ) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        `entities` are for each text its gold entities, as (start, end, label) in characters; without them `texts` are
        rows: {"tokens": [...], "tags": [...]} in IOB2, or {"text": ..., "entities": [{"start", "end", "label"}, ...]}.
        A rule to report entities by comes from `target_risk`: at most this share of the reported entities is wrong,
        span or type, with the stated `confidence`. With `target_recall` a person is asked to look at texts where
        entities may be missed, and in the others at least this share of the gold entities is found. Texts are the unit:
        the promises hold whatever the entities of one text have to do with each other. The `score` that ranks entities
        is by default the model's log-odds that it is right as a whole, so that all texts decide; with 'confidence' a
        third of them fits the calibrator and the others decide.

        `reference` are unlabelled texts of the task: they tell which texts are in scope. With `menu`,
        `calibration_.menu` lists which shares of wrong entities can be promised.
        """
        for name, value in (("target_risk", target_risk), ("target_recall", target_recall)):
            if value is not None:
                check_share(name, value)
        options = AnswerOptions(
            target_precision=None if target_risk is None else 1.0 - target_risk,
            confidence=confidence,
            score=score,
            false_alarm=false_alarm,
            seed=seed,
            menu=menu,
        )
        checked, gold = check_rows(texts, entities, self.class_names)
        known = set(checked)
        others = [] if reference is None else [one for one in check_tagged(reference) if one not in known]
        settings = replace(self.settings, method=self._asked())
        data = TaggedRows(self.runtime, settings, self.scheme, self.aggregation_strategy, checked, report)
        tuned, outputs, variances = data.learn()
        answers = entity_answers(outputs, variances)
        learned = Learned(
            settings=replace(settings, method=tuned.method.seeded(settings.seed)),
            outputs=outputs.text_outputs(self.scheme),
            plain=outputs.text_outputs(self.scheme),
            reference=data.read_reference(others) if others else None,
            spending=(tuned.reason,) if tuned.reason else (),
        )
        matches = Matches.of(outputs, gold, self.class_names)
        calibration = calibrate_answers(
            learned, answers, matches.right, options, model_hash=self.runtime.hash, classes=self.class_names
        )
        scores = text_log_odds(outputs.decoded, answers)
        recall = None
        if target_recall is not None:
            shares = recall_scores(outputs.decoded)
            recall = _recall_rule(shares, answers, matches, calibration.scope, target_recall, options)
        enough = len(checked) >= REFERENCE_ROWS
        self.calibration_ = replace(
            calibration,
            shift=summarise(scores, score=TOP_LOG_ODDS, false_alarm=false_alarm) if enough else None,
            extra={
                MISSED: dump(AnswerCalibrator.fit(missed_answers(outputs.decoded), matches.missed > 0)),
                RECALL: None if recall is None else recall.to_dict(),
                STRATEGY: self.aggregation_strategy,
            },
        )
        for rule in (self.calibration_.rule, recall):
            if rule is not None and not rule.promised:
                warnings.warn(rule.describe(), stacklevel=2)
        return self

    def predict(self, texts: Iterable[Any], *, check_shift: bool = True) -> EntityPredictions:
        """The entities of texts, strings or lists of words. One string is a list of one.

        Where it is calibrated, the texts are compared with the calibration rows and a shift is warned of; a caller who
        gives a stream in parts sets `check_shift=False`.
        """
        predictor = self.predictor()
        predictions = predictor.predict(check_tagged([texts] if isinstance(texts, str | Words) else texts))
        return predictor.with_shift(predictions) if check_shift else predictions

    def explain(self, text: Any, entity: int | None = None) -> "EntityExplanation":
        """Where the uncertainty about one entity of a text comes from: words and layers, to first order.

        `entity` is its number among those found, from 0; by default the least sure one. It is about the weakest word of
        the entity, and takes the prediction's passes, one forward and one backward pass.
        """
        from uatlite.classifier.answer_explanation import explain_entity

        (checked,) = check_tagged([text])
        return explain_entity(self.predictor(), checked, entity)


def _recall_rule(
    scores: Floats, answers: Answers, matches: Matches, scope: Scope | None, target: float, options: AnswerOptions
) -> GroupedRule:
    """The rule by which texts are answered; the search is planned on a tenth of the texts, which do not decide.

    Texts without entities have nothing to find, so the plan counts a text by its entities.
    """
    aside = pilot_rows(len(scores), options.seed, PILOT_TEXTS)
    inside = np.ones(len(scores), dtype=np.bool_) if scope is None or scope.inside is None else scope.inside
    deciding, found = ~aside & inside, answers.counts[aside]
    return grouped_recall(
        scores[deciding],
        matches.missed[deciding],
        matches.gold[deciding],
        target,
        score=SHARE_FOUND,
        confidence=options.confidence,
        most=max(1, int(np.quantile(found, 0.99))),
        reference=np.repeat(scores[aside], np.maximum(found, 1) if not found.any() else found),
        seed=options.seed,
    )


@dataclass(frozen=True, eq=False)
class EntityPredictor(CheckedPredictor[AnswerCalibration]):
    """A tagger at one moment; its texts are already checked."""

    scheme: TagScheme
    strategy: str | None

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.scheme.names

    @cached_property
    def _missed(self) -> AnswerCalibrator | None:
        if self.calibration is None:
            return None
        return load(AnswerCalibrator, self.calibration.extra[MISSED], advice="calibrate again.")

    @cached_property
    def _recall(self) -> GroupedRule | None:
        stored = None if self.calibration is None else self.calibration.extra[RECALL]
        return None if stored is None else GroupedRule.from_dict(stored)

    def predict(self, texts: Sequence[Any]) -> EntityPredictions:
        """The entities of checked texts, without the comparison of all of them with the calibration rows."""
        if not texts:
            return self._filled((), (), None)
        return self.predictions(texts, run_tokens(self.runtime, texts, self.settings, self.scheme, self.strategy))

    def predictions(self, texts: "Sequence[TaggedText]", outputs: TokenOutputs) -> EntityPredictions:
        """The entities of texts from what the method's passes say about them."""
        found = self._filled(tuple(texts), outputs.decoded, outputs)
        scope = None if self.calibration is None else self.calibration.scope
        if scope is None:
            return found
        of_texts = outputs.text_outputs(self.scheme)
        p_values = scope.p_values(of_texts.representations, of_texts.mean_logits)
        return replace(found, scope=p_values, out_of_scope=scope.out_of_scope(p_values))

    def _filled(self, texts: Any, decoded: Any, outputs: TokenOutputs | None) -> EntityPredictions:
        calibration, none = self.calibration, np.zeros(0, dtype=np.int64)
        answers = entity_answers(TokenOutputs.nothing() if outputs is None else outputs)
        missed = missed_answers(decoded)
        return EntityPredictions(
            texts=texts,
            classes=self.class_names,
            decoded=decoded,
            answers=answers,
            sure=sigmoid(answers.log_odds) if calibration is None else calibration.calibrator.confidence(answers),
            missed=sigmoid(missed.log_odds) if self._missed is None else self._missed.confidence(missed),
            passes=none if outputs is None else outputs.passes,
            rules=() if calibration is None else tuple(rule for rule in (calibration.rule, self._recall) if rule),
            cut=none if outputs is None else outputs.cut,
        )
