"""Labelled texts of a tagger: checked, run by methods that learn from them, and compared with their gold entities."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.entities import ENTITIES
from uatlite.classifier.token_run import TokenOutputs
from uatlite.errors import CalibrationError, InputError
from uatlite.text.examples import example_of
from uatlite.text.schema import Layout
from uatlite.values import Example, Integers, Span, Text, Words, strings


@dataclass(frozen=True, eq=False)
class Matches:
    """What is found against what is there."""

    right: NDArray[np.bool_]
    """(entities,): whether each entity that is found is one of its text's gold ones, span and type"""
    missed: Integers
    """(texts,): gold entities that are not found"""
    gold: Integers
    """(texts,): gold entities"""

    @classmethod
    def of(cls, outputs: TokenOutputs, gold: Sequence[Iterable[Span]], names: Sequence[str]) -> "Matches":
        """The entities of outputs against the gold ones of each text."""
        found = [[Span(one.start, one.end, names[one.type]) for one in decoded.entities] for decoded in outputs.decoded]
        wanted = [set(one) for one in gold]
        return cls(
            right=np.array([span in there for spans, there in zip(found, wanted, strict=True) for span in spans], bool),
            missed=np.array([len(there.difference(spans)) for spans, there in zip(found, wanted, strict=True)], int),
            gold=np.array([len(there) for there in wanted], int),
        )


LAYOUTS = (
    Layout(text="tokens", label="tags", gold="tags"),
    Layout(text="text", label="entities", gold="entities"),
)


def check_rows(
    texts: Iterable[Any], entities: Iterable[Iterable[Any]] | None, names: Sequence[str]
) -> tuple[list[Text], list[tuple[Span, ...]]]:
    """Calibration texts and their gold entities, from texts and entities or from rows."""
    given = list(texts)
    if not given:
        raise CalibrationError("there are no calibration rows; give labelled texts that the model was not trained on.")
    if entities is None:
        rows = [_row(one, place, names) for place, one in enumerate(given)]
        return [text for text, _ in rows], [spans for _, spans in rows]
    checked, gold = ENTITIES.texts(given, names), [tuple(_span(one) for one in spans) for spans in entities]
    if len(checked) != len(gold):
        raise InputError(f"{len(checked)} texts came with {len(gold)} lists of entities; give one for each text.")
    for place, (text, spans) in enumerate(zip(checked, gold, strict=True)):
        (whole,) = strings(text)
        for span in spans:
            if span.label not in names or not 0 <= span.start < span.end <= len(whole):
                raise InputError(
                    f"entities[{place}] has {tuple(span)}; allowed are (start, end, label) within the "
                    f"{len(whole)} characters of the text, with a label of {', '.join(names)}."
                )
    return checked, gold


def _row(row: Any, place: int, names: Sequence[str]) -> tuple[Text, tuple[Span, ...]]:
    if isinstance(row, Mapping):
        layout = next((one for one in LAYOUTS if one.text in row and one.label in row), None)
        if layout is None:
            raise InputError(
                f"row {place} has the columns {', '.join(row)}; give tokens and tags, or text and entities."
            )
        row = example_of(row, layout, tuple(names))
    if not isinstance(row, Example) or row.entities is None or not isinstance(row.text, str | Words):
        raise InputError(
            f"row {place} is {row!r:.80} without entities; give texts and their entities, or rows that have both."
        )
    return row.text, row.entities


def _span(value: Any) -> Span:
    if isinstance(value, Mapping):
        return Span(int(value["start"]), int(value["end"]), str(value["label"]))
    start, end, label = value
    return Span(int(start), int(end), str(label))
