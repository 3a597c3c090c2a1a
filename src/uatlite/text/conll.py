"""Words and their IOB2 tags, as CoNLL files have them: one word a line, its tag in the last column.

    # sent_id = 7             a comment, which is left out, as -DOCSTART- is
    Ada       NNP  B-PER
    Lovelace  NNP  I-PER      IOB2: every entity begins with B-
    of        IN   O
    London    NNP  B-LOC
                              a blank line ends a text

A fault is an InputError with the reason alone, as everywhere in reading rows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from uatlite.errors import InputError
from uatlite.values import Span, Words

_OUTSIDE = "O"
HANDLE = "@"
LONGEST_TEXT = 100_000  # words of one text; a file without blank lines must not fill the memory
_TAG = re.compile(r"O|[A-Z]-\S+")

_Line = tuple[int, bytes]
"""A line of a file and its number, from 1."""


def conll_texts(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """The lines of each text. Of a text that is too long there is one line more than is allowed."""
    text: list[_Line] = []
    for line, raw in lines:
        if not raw.strip():
            if text:
                yield text
            text = []
        elif len(text) <= LONGEST_TEXT:
            text.append((line, raw))
    if text:
        yield text


def conll_columns(lines: Sequence[_Line]) -> dict[str, object] | None:
    """`tokens` and `tags` of a text's lines, or `tokens` alone where they have one column; None if none is left."""
    if len(lines) > LONGEST_TEXT:
        raise InputError(f"more than {LONGEST_TEXT:,} lines without a blank one")
    tokens: list[str] = []
    tags: list[str] = []
    before = lines[0][0]
    for line, raw in lines:
        columns = _columns(line, raw, first=not tokens)
        if not columns:
            continue
        tokens.append(columns[0])
        tags += columns[-1:] if len(columns) > 1 else []
        if tags and len(tags) != len(tokens):
            bare, other = (line, lines[0][0]) if len(columns) == 1 else (before, line)
            raise InputError(f"line {bare} has a word without a tag, and line {other} has one")
        before = line
    if not tokens:
        return None
    return {"tokens": tokens, "tags": tags} if tags else {"tokens": tokens}


def _columns(line: int, raw: bytes, *, first: bool) -> list[str]:
    """The columns of a line; none of a comment, which stands before the first word."""
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"line {line} is {not_utf8(error)}") from error
    columns = [column.strip() for column in text.split("\t")] if "\t" in text else text.split()
    comment = first and text.startswith("#") and not _TAG.fullmatch(columns[-1])
    return [] if comment or columns[0] == "-DOCSTART-" else columns


def not_utf8(error: UnicodeDecodeError) -> str:
    """Which byte of a line is not UTF-8."""
    return f"not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start + 1}"


def tags_for(types: Iterable[str]) -> tuple[str, ...]:
    """The IOB2 tags of entity types, in the order of a model's columns: O, B-a, I-a, B-b, I-b, …"""
    return (_OUTSIDE, *(f"{mark}-{name}" for name in types for mark in "BI"))


def types_of(tags: Iterable[str]) -> tuple[str, ...]:
    """The entity types of tags, in the order in which they come; both B- and I- name a type."""
    return tuple(dict.fromkeys(tag[2:] for tag in tags if tag[:2] in ("B-", "I-")))


def spans_of_tags(words: Words, tags: Sequence[str], *, handles: bool = False) -> tuple[Span, ...]:
    """The entities of IOB2 tags, one for each word; tags that do not fit are an InputError.

    With `handles` an entity "@" and the entity of the same type right after it are one: some corpora cut "@name" into
    two words and tag each as a beginning.
    """
    if len(tags) != len(words.tokens):
        raise InputError(f"{len(tags)} tags for {len(words.tokens)} words")
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
        at = handles and words.text[start - 2 : start] == HANDLE + " "
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
