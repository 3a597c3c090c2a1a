"""Entities: from a fine-tuned token classifier to entities that are reported only where they can be trusted."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from uatlite.classifier.entities import ENTITIES, EntityCalibrator, EntityPredictions
from uatlite.classifier.learn import CalibrationTexts, Report
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.product import Product
from uatlite.classifier.settings import Config
from uatlite.classifier.several import TOP_LOG_ODDS, AnswerOptions, calibrate_answers
from uatlite.classifier.tagged_rows import Matches, check_rows
from uatlite.classifier.tags import check_strategy
from uatlite.classifier.token_run import entity_answers, missed_answers, recall_scores, text_log_odds
from uatlite.codec import dump
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.shift import REFERENCE_ROWS, summarise
from uatlite.values import check_share

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import EntityExplanation
    from uatlite.model.tokens import Tokenizer

SHARE_FOUND = "share found"
"""The score of texts that a promise of recall ranks by, `recall_scores`: the share of entities expected to be found."""
RECALL = "recall"
"""What the calibration of a tagger may have besides that of other answers."""


class UncertaintyTagger(Product[EntityPredictions]):
    """A token classifier with the confidence of each entity as a whole, and a rule for which entities to report.

    `config` is a UATConfig, or the spelling of any method; by default 'distilled': one plain pass, once it is
    calibrated with the variance of each entity read off it. Texts longer than `max_length` tokens (by default what the
    model takes) are read in overlapping windows, and each entity is found once; with `windows=False` they are cut.
    `aggregation_strategy` joins tokens to words and entities as transformers' pipeline does: 'simple', 'first',
    'average' or 'max'. By default it is 'first', and for texts that are given as words 'words', where the first token
    of each word decides.
    """

    kinds = (ENTITIES,)

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
        given = [] if reference is None else ENTITIES.texts(reference, self.class_names)
        others = [text for text in given if text not in known]
        settings = replace(self.settings, method=self._asked())
        learned = CalibrationTexts(ENTITIES, self.runtime, settings, checked, others, report).learn()
        outputs = learned.outputs
        answers = entity_answers(outputs)
        matches = Matches.of(outputs, gold, self.class_names)
        calibration = calibrate_answers(
            learned, answers, matches.right, options, model_hash=self.runtime.hash, classes=self.class_names
        )
        scores = text_log_odds(outputs.decoded, answers)
        recall = None
        if target_recall is not None:
            rows = Labelled(
                {SHARE_FOUND: recall_scores(outputs.decoded)},
                gold=matches.gold,
                missed=matches.missed,
                answers=answers.counts,
            )
            wanted = replace(options.wanted, kind="recall", target=1.0 - target_recall, score=SHARE_FOUND)
            inside = None if calibration.scope is None else calibration.scope.inside
            recall = decide(rows, wanted, inside=inside).rule
        enough = len(checked) >= REFERENCE_ROWS
        self.calibration_ = replace(
            calibration,
            shift=summarise(scores, score=TOP_LOG_ODDS, false_alarm=false_alarm) if enough else None,
            calibrator=EntityCalibrator(
                cast(AnswerCalibrator, calibration.calibrator),
                AnswerCalibrator.fit(missed_answers(outputs.decoded), matches.missed > 0),
            ),
            extra={} if recall is None else {RECALL: dump(recall)},
        )
        for rule in (self.calibration_.rule, recall):
            if rule is not None and not rule.promised:
                warnings.warn(rule.describe(), stacklevel=2)
        return self

    def explain(self, text: Any, entity: int | None = None) -> "EntityExplanation":
        """Where the uncertainty about one entity of a text comes from: words and layers, to first order.

        `entity` is its number among those found, from 0; by default the least sure one. It is about the weakest word of
        the entity, and takes the prediction's passes, one forward and one backward pass.
        """
        from uatlite.classifier.answer_explanation import explain_entity

        (checked,) = ENTITIES.texts([text], self.class_names)
        return explain_entity(self.predictor(), checked, entity)
