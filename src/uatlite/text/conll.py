"""The columns of CoNLL files: one word a line, its IOB2 tag in the last column.

A text is a row with `tokens` and `tags`, or `tokens` alone. A blank line ends it; comments before its first word, and
-DOCSTART-, are left out:

    # sent_id = 7
    Ada       NNP  B-PER
    Lovelace  NNP  I-PER
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from uatlite.errors import InputError
from uatlite.text.files import Line, decoded

LONGEST_TEXT = 100_000
"""Lines of a text; a file without blank ones must not fill the memory."""
_TAG = re.compile(r"O|[A-Z]-\S+")


def texts_of(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of each text. Of a text that is too long there is one line more than is allowed."""
    for holds_words, text in groupby(lines, key=lambda line: bool(line[1].strip())):
        if holds_words:
            yield list(islice(text, LONGEST_TEXT + 1))


def values_of(lines: Sequence[Line]) -> dict[str, object] | None:
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
        text = decoded(line, raw)
    except InputError as error:
        raise InputError(f"line {line} is {error}") from error
    columns = [column.strip() for column in text.split("\t")] if "\t" in text else text.split()
    comment = first and text.startswith("#") and not _TAG.fullmatch(columns[-1])
    return [] if comment or columns[0] == "-DOCSTART-" else columns
