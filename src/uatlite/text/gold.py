"""The gold of rows with several answers: entities, from IOB2 tags or from characters, and sets of labels.

A fault is an InputError with the reason alone, as everywhere in reading rows.

    tokens    ["Ada", "Lovelace", "of", "London"]        the words of a text
    tags      ["B-PER", "I-PER", "O", "B-LOC"]           IOB2: every entity begins with B-
    entities  [{"start": 0, "end": 12, "label": "PER"}]  characters of the text; of words, joined by one space
    labels    ["joy", "surprise"]                        none, one or several
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from uatlite.errors import InputError
from uatlite.text.labels import fold, label_index
from uatlite.values import Span, Text, Words, strings

OUTSIDE = "O"
HANDLE = "@"


def tags_for(types: Iterable[str]) -> tuple[str, ...]:
    """The IOB2 tags of entity types, in the order of a model's columns: O, B-a, I-a, B-b, I-b, …"""
    return (OUTSIDE, *(f"{mark}-{name}" for name in types for mark in "BI"))


def types_of(tags: Iterable[str]) -> tuple[str, ...]:
    """The entity types of tags, in the order in which they come; both B- and I- name a type."""
    return tuple(dict.fromkeys(tag[2:] for tag in tags if tag[:2] in ("B-", "I-")))


def words_of(value: object, place: str) -> Words:
    """A list of words; CSV and TSV write it as JSON, or with spaces between the words."""
    tokens = read_list(value, place)
    for number, token in enumerate(tokens, start=1):
        if not token.strip():
            raise InputError(f"word {number} of {len(tokens)} in {place} is empty")
    if not tokens:
        raise InputError(f"no words in {place}")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place} holds half a surrogate pair, which is not text") from error
    return Words(tuple(tokens))


def read_list(value: object, place: str) -> list[str]:
    """A list of strings; a string is read as JSON where it begins with '[', else cut at its spaces."""
    if isinstance(value, str):
        value = _json_list(value, place) if value.lstrip().startswith("[") else value.split()
    if not isinstance(value, list | tuple):
        raise InputError(f"{place} holds {_kind(value)}, not a list")
    for part in value:
        if not isinstance(part, str):
            raise InputError(f"{place} holds a list with {_kind(part)} in it ({part!r:.40}), not strings alone")
    return list(value)


def spans_of_tags(words: Words, tags: Sequence[str], *, handles: bool = False) -> tuple[Span, ...]:
    """The entities of IOB2 tags, one for each word; tags that do not fit are an InputError.

    With `handles` an entity "@" and the entity of the same type right after it are one: some corpora cut "@name" into
    two words and tag each as a beginning.
    """
    if len(tags) != len(words.tokens):
        raise InputError(f"{len(tags)} tags for {len(words.tokens)} words")
    found: list[Span] = []
    before = OUTSIDE
    for number, (tag, token, (start, end)) in enumerate(zip(tags, words.tokens, words.spans, strict=True), start=1):
        mark, _, name = tag.partition("-")
        if tag != OUTSIDE and (mark not in ("B", "I") or not name):
            raise InputError(f"tag {number} of {token!r:.40} is {tag!r}; allowed are O, B-type and I-type (IOB2)")
        if mark == "I" and before[2:] != name:
            raise InputError(
                f"tag {number} of {token!r:.40} is {tag!r} after {before!r}; in IOB2 an entity begins with B-{name}"
            )
        at = handles and words.text[start - 2 : start] == HANDLE + " "
        if mark == "I" or (at and mark == "B" and found and found[-1] == (start - 2, start - 1, name)):
            found[-1] = found[-1]._replace(end=end)
        elif mark == "B":
            found.append(Span(start, end, name))
        before = tag
    return tuple(found)


def tags_of_spans(places: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[str]:
    """The IOB2 tag of the words at these places (start, end), in order.

    A word belongs to the first entity that it overlaps, and the first word of an entity gets B-.
    """
    tags = []
    begun: set[Span] = set()
    for start, end in places:
        span = next((span for span in spans if span.start < end and start < span.end), None)
        tags.append(OUTSIDE if span is None else f"{'I' if span in begun else 'B'}-{span.label}")
        if span is not None:
            begun.add(span)
    return tags


def spans_of(value: object, text: Text, column: str) -> tuple[Span, ...]:
    """Entities given as objects with start, end and label, in any order; CSV and TSV write the list as JSON."""
    place = f"column {column!r}"
    listed = _json_list(value, place) if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise InputError(f"{place} holds {_kind(value)}, not a list of entities")
    if isinstance(text, str | Words):
        whole = strings(text)[0]
    else:
        raise InputError("entities of a pair or a question; they need one text")
    found = sorted(_span(entity, whole, place) for entity in listed)
    for one, other in pairwise(found):
        if other.start < one.end:
            raise InputError(
                f"entities overlap in {place}: {one.label} {one.start}–{one.end} and {other.label} "
                f"{other.start}–{other.end}"
            )
    return tuple(found)


def _span(entity: object, text: str, place: str) -> Span:
    if not isinstance(entity, Mapping) or not {"start", "end", "label"} <= set(entity):
        raise InputError(f"an entity in {place} is {entity!r:.60}; it needs start, end and label")
    start, end, label = entity["start"], entity["end"], entity["label"]
    if not all(isinstance(edge, int) and not isinstance(edge, bool) for edge in (start, end)):
        raise InputError(f"an entity in {place} has start={start!r:.20} and end={end!r:.20}; they are whole numbers")
    if not isinstance(label, str) or not label.strip():
        raise InputError(f"the entity {start}–{end} in {place} has no label")
    if not 0 <= start < end <= len(text):
        raise InputError(f"the entity {start}–{end} in {place} lies outside its text of {len(text)} characters")
    if not text[start:end].strip():
        raise InputError(f"the entity {start}–{end} in {place} covers only space")
    return Span(start, end, label.strip())


def names_in(value: object, gold: str, column: str) -> list[str]:
    """The types or labels that occur in the gold of a row; what is not gold at all is an InputError."""
    if gold == "labels":
        return label_names(value, column)
    if gold == "tags":
        return list(types_of(read_list(value, f"column {column!r}")))
    listed = json_list(value) if isinstance(value, str) else value
    entities = listed if isinstance(listed, list | tuple) else ()
    return [str(entity["label"]).strip() for entity in entities if isinstance(entity, Mapping) and "label" in entity]


def known_types(spans: Sequence[Span], labels: Sequence[str], column: str) -> tuple[Span, ...]:
    """The same entities with the types as `labels` spell them; an unknown type is an InputError."""
    index = label_index(labels)
    return tuple(span._replace(label=labels[_known(span.label, index, column)]) for span in spans)


def label_set(value: object, labels: Sequence[str], codes: Sequence[str], column: str) -> tuple[int, ...]:
    """The positions of a row's labels among `labels`, ascending.

    Whole numbers are looked up in `codes`, unless they are names themselves.
    """
    index = label_index(labels)
    found = set()
    for name in label_names(value, column):
        if codes and name.isdecimal() and fold(name) not in index and int(name) < len(codes):
            name = codes[int(name)]
        found.add(_known(name, index, column))
    return tuple(sorted(found))


def label_names(value: object, column: str) -> list[str]:
    """The names of a label set: a list, or a string as JSON or with commas or semicolons; None is no set."""
    place = f"column {column!r}"
    if value is None:
        raise InputError(f"no list of labels in {place}; an empty list means that no label applies")
    if isinstance(value, str):
        cut = value.replace(";", ",").split(",")
        value = _json_list(value, place) if value.lstrip().startswith("[") else [part for part in cut if part.strip()]
    if not isinstance(value, list | tuple):
        raise InputError(f"{place} holds {_kind(value)}, not a list of labels")
    for part in value:
        if isinstance(part, bool) or not isinstance(part, str | int) or not str(part).strip():
            raise InputError(f"{place} holds a list with {part!r:.40} in it, which is not the name of a label")
    return [str(part).strip() for part in value]


def _known(name: str, index: Mapping[str, int], column: str) -> int:
    if fold(name) not in index:
        raise InputError(f"unknown label {name!r} in column {column!r}")
    return index[fold(name)]


def json_list(value: str) -> list[Any] | None:
    """A list that is written as JSON; None where the string is something else."""
    try:
        found = json.loads(value) if value.lstrip().startswith("[") else None
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def _json_list(value: str, place: str) -> list[Any]:
    found = json_list(value)
    if found is None:
        raise InputError(f"{place} is not a list in JSON")
    return found


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
