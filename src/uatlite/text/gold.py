"""The gold of a row as its label column has it: `GOLD` says how each kind is read and written.

    class     "positive"                                 a name, or a number that is looked up in the layout's codes
    labels    ["joy", "surprise"]                        none, one or several
    tags      ["B-PER", "I-PER", "O", "B-LOC"]           IOB2, one for each word
    entities  [{"start": 0, "end": 12, "label": "PER"}]  characters of the text; of words, joined by one space

CSV and TSV write a list as JSON. A fault is an InputError with the reason alone, as everywhere in reading rows.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from uatlite.errors import InputError
from uatlite.text.labels import LabelIndex, fold
from uatlite.text.schema import Layout
from uatlite.values import Choices, Example, Kind, Span, Text, Words, counted, strings

_OUTSIDE = "O"
_HANDLE = "@"


@dataclass(frozen=True)
class GoldFormat:
    """How the gold of a kind stands in a row. `value` is what the label column of the layout holds."""

    field: Literal["label", "labels", "entities"]
    """the field of an Example that has it"""
    parse: Callable[[object, Text, Layout, LabelIndex], Any]
    """(value, text, layout, index) to that field"""
    names: Callable[[object, Layout], Iterable[str]]
    """(value, layout) to the labels, or types, that occur in it"""
    write: Callable[[Example, Sequence[str], Layout], object]
    """(example, labels, layout) to the value"""
    fewest: int
    """labels that a classifier of this kind needs"""
    in_place: bool = False
    """whether it counts characters, so that texts are left as they are and may be words"""


def _parse_class(value: object, text: Text, layout: Layout, index: LabelIndex) -> int:
    if layout.label is None:
        raise InputError("no label column")
    if layout.presence is not None:
        return index.classes[fold(layout.presence[0 if value else 1])]
    label = index.find(label_name(value), layout.label)
    if isinstance(text, Choices) and label >= len(text.options):
        raise InputError(f"the label is option {label + 1} of {len(text.options)}")
    return label


def label_name(value: object) -> str:
    """A label as a name: text as it is, whole numbers and truth values as their digits and words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError("no label")
    if not isinstance(value, str):
        raise InputError(f"the label is a {type(value).__name__} ({value!r}), not a name or a whole number")
    return value.strip()


def _label_names(value: object, layout: Layout) -> list[str]:
    """The names of a label set: a list, or a string as JSON or with commas or semicolons; None is no set."""
    where = f"column {layout.label!r}"
    if value is None:
        raise InputError(f"no list of labels in {where}; an empty list means that no label applies")
    names = as_list(value, where, cut=lambda cell: list(filter(str.strip, re.split("[,;]", cell))), of=" of labels")
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
            raise InputError(f"{where} holds a list with {name!r:.40} in it, which is not the name of a label")
    return [str(name).strip() for name in names]


def _parse_entities(value: object, text: Text, layout: Layout, index: LabelIndex) -> tuple[Span, ...]:
    """Entities in the order of the text, with their types as the labels spell them."""
    where = f"column {layout.label!r}"
    if layout.gold != "tags":
        spans = _spans_of_entities(value, text, where)
    elif isinstance(text, Words):
        spans = spans_of_tags(text, list_of_strings(value, where), handles=layout.handles)
    else:
        raise InputError(f"tags in {where}, and no words in column {layout.text!r}")
    return tuple(span._replace(label=index.labels[index.find(span.label, layout.label)]) for span in spans)


def _spans_of_entities(value: object, text: Text, where: str) -> tuple[Span, ...]:
    """Entities given as objects with start, end and label, in any order."""
    entities = as_list(value, where, of=" of entities")
    if not isinstance(text, str | Words):
        raise InputError("entities of a pair or a question; they need one text")
    spans = sorted(_span(entity, strings(text)[0], where) for entity in entities)
    for span, after in pairwise(spans):
        if after.start < span.end:
            raise InputError(
                f"entities overlap in {where}: {span.label} {span.start}–{span.end} and {after.label} "
                f"{after.start}–{after.end}"
            )
    return tuple(spans)


def _span(entity: object, text: str, where: str) -> Span:
    if not isinstance(entity, Mapping) or not {"start", "end", "label"} <= set(entity):
        raise InputError(f"an entity in {where} is {entity!r:.60}; it needs start, end and label")
    start, end, label = entity["start"], entity["end"], entity["label"]
    if not all(isinstance(edge, int) and not isinstance(edge, bool) for edge in (start, end)):
        raise InputError(f"an entity in {where} has start={start!r:.20} and end={end!r:.20}; they are whole numbers")
    if not isinstance(label, str) or not label.strip():
        raise InputError(f"the entity {start}–{end} in {where} has no label")
    if not 0 <= start < end <= len(text):
        raise InputError(f"the entity {start}–{end} in {where} lies outside its text of {len(text)} characters")
    if not text[start:end].strip():
        raise InputError(f"the entity {start}–{end} in {where} covers only space")
    return Span(start, end, label.strip())


def _entity_types(value: object, layout: Layout) -> list[str]:
    if layout.gold == "tags":
        return [tag[2:] for tag in list_of_strings(value, f"column {layout.label!r}") if tag[:2] in ("B-", "I-")]
    entities = json_list(value) or []
    return [str(entity["label"]).strip() for entity in entities if isinstance(entity, Mapping) and "label" in entity]


def _write_entities(example: Example, labels: Sequence[str], layout: Layout) -> object:
    entities = example.entities or ()
    if layout.gold == "tags" and isinstance(example.text, Words):
        return tags_of_spans(example.text.spans, entities)
    return [span._asdict() for span in entities]


_CLASS = GoldFormat(
    field="label",
    parse=_parse_class,
    names=lambda value, layout: [label_name(value)],
    write=lambda example, labels, layout: labels[example.label or 0],
    fewest=2,
)

GOLD: Mapping[Kind, GoldFormat] = {
    "one": _CLASS,
    "choice": _CLASS,
    "labels": GoldFormat(
        field="labels",
        parse=lambda value, text, layout, index: tuple(
            sorted({index.find(name, layout.label) for name in _label_names(value, layout)})
        ),
        names=_label_names,
        write=lambda example, labels, layout: [labels[i] for i in example.labels or ()],
        fewest=1,
    ),
    "entities": GoldFormat(
        field="entities", parse=_parse_entities, names=_entity_types, write=_write_entities, fewest=1, in_place=True
    ),
}


def as_list(value: object, where: str, *, cut: Callable[[str], list[str]] | None = None, of: str = "") -> list[Any]:
    """The list in a cell. A string is read as JSON; with `cut`, one that does not begin with '[' is cut by it."""
    if cut is not None and isinstance(value, str) and not value.lstrip().startswith("["):
        return cut(value)
    listed = json_list(value)
    if listed is None:
        fault = "is not a list in JSON" if isinstance(value, str) else f"holds {_type_of(value)}, not a list{of}"
        raise InputError(f"{where} {fault}")
    return listed


def json_list(value: object) -> list[Any] | None:
    """A list as it is, or one that is written as JSON; None where the value is something else."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else None
        except ValueError:
            return None
    return list(value) if isinstance(value, list | tuple) else None


def list_of_strings(value: object, where: str) -> list[str]:
    """The strings in a cell; a string that is not JSON is cut at its spaces."""
    words = as_list(value, where, cut=str.split)
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"{where} holds a list with {_type_of(word)} in it ({word!r:.40}), not strings alone")
    return words


def _type_of(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def tags_for(types: Iterable[str]) -> tuple[str, ...]:
    """The IOB2 tags of entity types, in the order of a model's columns: O, B-a, I-a, B-b, I-b, …"""
    return (_OUTSIDE, *(f"{mark}-{name}" for name in types for mark in "BI"))


def spans_of_tags(words: Words, tags: Sequence[str], *, handles: bool = False) -> tuple[Span, ...]:
    """The entities of IOB2 tags, one for each word; tags that do not fit are an InputError.

    With `handles` an entity "@" and the entity of the same type right after it are one: some corpora cut "@name" into
    two words and tag each as a beginning.
    """
    if len(tags) != len(words.tokens):
        raise InputError(f"{counted(len(tags), 'tag')} for {counted(len(words.tokens), 'word')}")
    spans: list[Span] = []
    before = _OUTSIDE
    for number, (tag, token, (start, end)) in enumerate(zip(tags, words.tokens, words.spans, strict=True), start=1):
        mark, _, name = tag.partition("-")
        if tag != _OUTSIDE and (mark not in ("B", "I") or not name):
            raise InputError(f"tag {number} of {token!r:.40} is {tag!r}; allowed are O, B-type and I-type (IOB2)")
        if mark == "I" and before[2:] != name:
            raise InputError(
                f"tag {number} of {token!r:.40} is {tag!r} after {before!r}; in IOB2 an entity begins with B-{name}"
            )
        at = handles and words.text[start - 2 : start] == _HANDLE + " "
        if mark == "I" or (at and mark == "B" and spans and spans[-1] == (start - 2, start - 1, name)):
            spans[-1] = spans[-1]._replace(end=end)
        elif mark == "B":
            spans.append(Span(start, end, name))
        before = tag
    return tuple(spans)


def tags_of_spans(places: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[str]:
    """The IOB2 tag of the words at these places (start, end), in order.

    A word belongs to the first entity that it overlaps, and the first word of an entity gets B-.
    """
    tags = []
    begun: set[Span] = set()
    for start, end in places:
        span = next((span for span in spans if span.start < end and start < span.end), None)
        tags.append(_OUTSIDE if span is None else f"{'I' if span in begun else 'B'}-{span.label}")
        if span is not None:
            begun.add(span)
    return tags
