"""What a tagger says about some texts: a value that reads, slices, prints and becomes a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.display import SHOWN, as_list, excerpt
from uatlite.classifier.entities import Decoded
from uatlite.classifier.predictions import TextPrediction, TextPredictions
from uatlite.classifier.reasons import BELOW, MISSED, NO_PROMISE, first_reason
from uatlite.classifier.several import LOG_ODDS
from uatlite.classifier.token_run import recall_scores, text_log_odds
from uatlite.errors import CalibrationError
from uatlite.trust.answers import Answers
from uatlite.trust.grouped import GroupedRule
from uatlite.values import Floats, Integers, strings


@dataclass(frozen=True)
class FoundEntity:
    """An entity that is found in a text."""

    start: int
    """its first character"""
    end: int
    """the character after its last"""
    text: str
    label: str
    confidence: float
    """that it is right as a whole, span and type; calibrated where the tagger is"""
    boundaries: float
    """the probability that an entity of any type has exactly these boundaries, before calibration"""
    variance: float | None
    """of its log-odds under dropout; None where it is not known"""
    reported: bool
    """whether the rule reports it; without a rule every entity is reported"""


ENTITY_EXAMPLE = [asdict(FoundEntity(0, 3, "Ada", "person", 0.9, 0.9, 0.1, True))]
"""A value of the column `entities`, from which a table takes its type."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EntityPredictions(TextPredictions["EntityPrediction"]):
    """The entities of texts; rows are texts, in the order in which they were given.

    It is a sequence: `pred[0]` is an `EntityPrediction`, `pred[2:5]` and `pred[pred.abstain]` are EntityPredictions of
    these texts.
    """

    by_text = (*TextPredictions.by_text, "missed")

    decoded: tuple[Decoded, ...]
    """the entities of each text, before calibration"""
    answers: Answers
    """the entities of all texts"""
    confidence_of: Floats
    """(entities,): that each is right"""
    missed: Floats
    """(texts,): the probability that an entity of the text is not found, or not as it is"""
    rule: GroupedRule | None = None
    """the rule by which entities are reported, and what it promises; None where none was asked for"""
    recall_rule: GroupedRule | None = None
    """the rule by which a person should look at texts where entities may be missed; None where none was asked for"""

    @property
    def has_rule(self) -> bool:
        """Whether anything decides what is reported."""
        return self.rule is not None or self.recall_rule is not None

    @cached_property
    def scores(self) -> Floats:
        """(entities,): what the rule ranks entities by."""
        raw = self.rule is None or self.rule.score == LOG_ODDS
        return self.answers.log_odds if raw else self.confidence_of

    @cached_property
    def too_much_missed(self) -> NDArray[np.bool_]:
        """(texts,): True where the rule for recall does not answer a text, as an entity may be missed in it."""
        if self.recall_rule is None:
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.recall_rule.answers_texts(recall_scores(self.decoded))

    @cached_property
    def reported_of(self) -> NDArray[np.bool_]:
        """(entities,): True where an entity is reported; without a rule all are. Of a text out of scope none is."""
        found = np.ones(len(self.answers), dtype=np.bool_)
        if self.rule is not None:
            found = self.rule.reports(self.scores, self.answers.text)
        return found if self.out_of_scope is None else found & ~self.out_of_scope[self.answers.text]

    @cached_property
    def abstain(self) -> NDArray[np.bool_]:
        """(texts,): True where a person should look: out of scope, an entity is withheld, or one may be missed.

        Raises where no rule was asked for: silence would read as 'answer'.
        """
        if not self.has_rule:
            raise CalibrationError(
                "there is no rule to report entities by; ask for one: calibrate(texts, entities, target_risk=0.1), or "
                "target_recall=0.9."
            )
        withheld = np.zeros(len(self), dtype=np.bool_)
        withheld[self.answers.text[~self.reported_of]] = True
        unsure = withheld | self.too_much_missed
        return unsure if self.out_of_scope is None else unsure | self.out_of_scope

    @cached_property
    def entities(self) -> list[tuple[FoundEntity, ...]]:
        """For each text all entities that are found in it, reported or not."""
        found: list[list[FoundEntity]] = [[] for _ in self.texts]
        place = 0
        for row, one in enumerate(self.decoded):
            whole = strings(self.texts[row])[0]
            for entity in one.entities:
                known = self.answers.variance
                found[row].append(
                    FoundEntity(
                        start=entity.start,
                        end=entity.end,
                        text=whole[entity.start : entity.end],
                        label=self.classes[entity.type],
                        confidence=float(self.confidence_of[place]),
                        boundaries=entity.boundaries,
                        variance=None if known is None else float(known[place]),
                        reported=bool(self.reported_of[place]),
                    )
                )
                place += 1
        return [tuple(one) for one in found]

    @property
    def reported(self) -> list[tuple[FoundEntity, ...]]:
        """For each text the entities that are reported."""
        return [tuple(entity for entity in one if entity.reported) for one in self.entities]

    @cached_property
    def reasons(self) -> list[str]:
        """For each text why it is answered or not, one of `uatlite.classifier.reasons.REASONS`; needs no rule."""
        cases = None
        if self.has_rule:
            promised = all(rule.promised for rule in (self.rule, self.recall_rule) if rule is not None)
            cases = {NO_PROMISE: self.abstain & (not promised), MISSED: self.too_much_missed, BELOW: self.abstain}
        return first_reason(cases, out_of_scope=self.out_of_scope, cut=self.cut_tokens)

    @cached_property
    def log_odds(self) -> Floats:
        """(texts,): the lowest log-odds of an entity, or of no entity being missed; a shift is told by it."""
        return text_log_odds(self.decoded, self.answers)

    @cached_property
    def confidence(self) -> Floats:
        """(texts,): that of its least sure entity; 1 of a text without one."""
        found = np.ones(len(self))
        np.minimum.at(found, self.answers.text, self.confidence_of)
        return found

    @cached_property
    def above_threshold(self) -> Floats:
        """(texts,): the lowest score of an entity minus the threshold; NaN without a rule, threshold or entity."""
        found = np.full(len(self), np.inf)
        if self.rule is None or not np.isfinite(self.rule.threshold):
            return np.full(len(self), np.nan)
        np.minimum.at(found, self.answers.text, self.scores - self.rule.threshold)
        return np.where(np.isfinite(found), found, np.nan)

    def _one(self, row: int) -> "EntityPrediction":
        return EntityPrediction(self, row)

    def _take(self, rows: Integers) -> Self:
        places = [np.flatnonzero(self.answers.text == row) for row in rows.tolist()]
        kept = np.concatenate([*places, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        answers = self.answers
        return replace(
            super()._take(rows),
            decoded=tuple(self.decoded[row] for row in rows),
            answers=Answers(
                text=np.repeat(np.arange(len(rows)), [len(one) for one in places]),
                kind=answers.kind[kept],
                log_odds=answers.log_odds[kept],
                variance=None if answers.variance is None else answers.variance[kept],
                texts=len(rows),
                features=None if answers.features is None else answers.features[kept],
            ),
            confidence_of=self.confidence_of[kept],
        )

    def __repr__(self) -> str:
        found, reported = len(self.answers), int(self.reported_of.sum())
        heading = f"{len(self):,} texts, {found:,} entities"
        if self.has_rule:
            heading += f", {reported:,} reported; a person should look at {int(self.abstain.sum()):,} texts"
        lines = [f"{excerpt(one.text):<60}  {_listed(one.entities)}" for one in self[:SHOWN]]
        return as_list(self, heading, lines)


def _listed(entities: Sequence[FoundEntity]) -> str:
    """'Ada Lovelace person 97 %, London place 61 % (withheld)'."""
    return (
        ", ".join(
            f"{one.text} {one.label} {one.confidence:.0%}{'' if one.reported else ' (withheld)'}" for one in entities
        )
        or "–"
    )


@dataclass(frozen=True, eq=False, repr=False)
class EntityPrediction(TextPrediction[EntityPredictions]):
    """What a tagger says about one text."""

    @property
    def entities(self) -> tuple[FoundEntity, ...]:
        """All entities that are found, reported or not."""
        return self.among.entities[self.row]

    @property
    def reported(self) -> tuple[FoundEntity, ...]:
        """The entities that are reported."""
        return self.among.reported[self.row]

    @property
    def missed(self) -> float:
        """The probability that an entity is missed: not found, or not as it is."""
        return float(self.among.missed[self.row])

    @property
    def missed_at(self) -> tuple[int, int] | None:
        """The characters of the word outside of all entities that is likeliest to belong to one."""
        return self.among.decoded[self.row].place

    def as_row(self) -> dict[str, object]:
        """entities, abstain, reason, above_threshold, confidence, log_odds, missed, missed_at, passes, cut_tokens,
        scope, out_of_scope.

        `entities` is a list of objects with the fields of `FoundEntity`. What was not asked for at calibration (abstain
        and above_threshold) is left out, and so is a scope that is not known.
        """
        among, at = self.among, self.row
        row: dict[str, object] = {"entities": [asdict(entity) for entity in self.entities]}
        if among.has_rule:
            row["abstain"] = self.abstain
        row["reason"] = self.reason
        if among.has_rule:
            row["above_threshold"] = self.above_threshold
        row |= {"confidence": float(among.confidence[at]), "log_odds": float(among.log_odds[at])}
        row |= {"missed": self.missed, "missed_at": None if self.missed_at is None else list(self.missed_at)}
        return row | self._reading()

    def __repr__(self) -> str:
        lines = [f"{name:<16} {value}" for name, value in self.as_row().items() if name != "entities"]
        return "\n".join([f"Entities of {excerpt(self.text)!r}: {_listed(self.entities)}", *lines])
