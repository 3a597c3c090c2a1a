"""Which rows of a scored file to label: answers at random, with known probabilities, and rows whose labels help most.

Only rows drawn with known probabilities say how often the answers are wrong. Rows that help most (doubtful, out of
scope) are chosen by what they look like; each has the inclusion probability 1, because the file alone decides. The unit
is the text, however many answers it has.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np

from uatlite.errors import ConfigurationError, DataError, check_choice
from uatlite.scoring.scored_rows import ScoredRow, check_columns, columns_of_input, scored_files, scored_rows
from uatlite.scoring.source import Source
from uatlite.text.examples import example_of
from uatlite.text.schema import Layout
from uatlite.trust.rule import column_of_score
from uatlite.values import (
    Choices,
    Floats,
    ScoredText,
    Text,
    Words,
    check_share,
    strings,
)

RANDOM, RANDOM_ROW, DOUBTFUL, OUTSIDE = "random answer", "random row", "doubtful", "out of scope"
"""Why a row was picked."""
RANDOM_SHARE = 0.75
POOL = 5
"""Helpful rows are spread among so many times as many of the most doubtful or strangest ones."""
SAME = 0.9
"""Two texts with this cosine of their n-gram counts, or more, are near-duplicates; one of them is enough."""
POPULATIONS = ("answers", "all")


@dataclass(frozen=True)
class Candidate:
    """What picking needs of a row of a scored file."""

    id: str
    text: Text
    predicted: object
    """the label; of several answers a list of those that are reported"""
    confidence: float
    answered: bool
    """also where the file has no decision"""
    outside: bool
    scope: float

    @classmethod
    def of(cls, row: ScoredRow, layout: Layout) -> "Candidate":
        """A scored row, its text by the layout of the file."""
        example = example_of(row.values, layout, None, unnamed=f"{row.file}:{row.line}")
        scope = row.optional("scope")
        return cls(
            id=example.id,
            text=example.text,
            predicted=row.answer,
            confidence=row.number("confidence"),
            answered=row.answered,
            outside=bool(row.truth("out_of_scope")),
            scope=1.0 if scope is None else scope,
        )


@dataclass(frozen=True)
class Picked:
    """A row to label: why it was picked, and the probability with which it was."""

    row: Candidate
    reason: str
    inclusion: float

    def as_row(self, *, predicted: bool = False) -> dict[str, object]:
        """The columns of the file to label; `label` is empty. A list of words is written as `tokens`.

        The prediction is left out unless asked for: who sees it agrees with it too often.
        """
        text = self.row.text
        columns: dict[str, object] = {"id": self.row.id}
        if isinstance(text, Words):
            columns["tokens"] = list(text.tokens)
        elif isinstance(text, ScoredText):
            columns |= {"text": text.text} if text.text else {}
            columns |= text.columns()
        else:
            columns["text"] = strings(text)[0]
        if isinstance(text, Choices):
            columns["options"] = list(text.options)
        elif isinstance(text, tuple):
            columns["text_pair"] = text[1]
        shown = {"predicted": self.row.predicted, "confidence": self.row.confidence} if predicted else {}
        return {**columns, "label": "", **shown, "reason": self.reason, "inclusion": self.inclusion}


def read_candidates(
    scored: str, asked: Mapping[str, str | None], *, id: str = "id", format: str | None = None
) -> list[Candidate]:
    """The rows of the files that `uatlite predict` wrote.

    The columns of the texts are those asked for, by their roles, or else those of each file that was scored.
    """
    candidates: list[Candidate] = []
    for file in scored_files(scored, format):
        source = Source(file, format=format)
        layout = source.layout(Layout(label=None, id=id), asked, columns_of_input(file))
        rows = list(map(ScoredRow.of, source))
        check_columns(rows[0], ("confidence",))
        layout = source.text_layout(layout, "entities" if rows[0].answer_column == "entities" else "one")
        try:
            source.check(layout)
        except DataError as error:
            way = f"Score the file again and keep the text: uatlite predict … --text {layout.text} --keep-text"
            raise DataError(f"{error} {way}") from error
        candidates += [Candidate.of(row, layout) for row in rows]
    return candidates


def pick(
    rows: Sequence[Candidate], budget: int, *, random_share: float = RANDOM_SHARE, of: str = "answers", seed: int = 0
) -> list[Picked]:
    """At most `budget` rows: `random_share` of them drawn from the answers, or from `all`, the others the helpful ones.

    The helpful ones are chosen first, doubtful and out of scope in equal parts, and the random ones from what is left:
    n of N rows without replacement, so that each has the inclusion probability n/N. Where there are few of a kind, the
    random ones get their share.
    """
    check_choice("of", of, POPULATIONS)
    if budget < 1:
        raise ConfigurationError(f"budget={budget} is not 1 or more.")
    if random_share != 1.0:
        check_share("random_share", random_share)
    helpful = budget - math.ceil(random_share * budget)
    outside = [i for i, row in enumerate(rows) if row.outside]
    outside.sort(key=lambda i: rows[i].scope)
    chosen = dict.fromkeys(_spread(rows, outside, helpful // 2), OUTSIDE)
    withheld = any(not row.answered for row in rows)
    doubtful = [i for i, row in enumerate(rows) if not row.outside and not (withheld and row.answered)]
    doubtful.sort(key=lambda i: rows[i].confidence)
    chosen |= dict.fromkeys(_spread(rows, doubtful, helpful - len(chosen)), DOUBTFUL)
    population = [i for i, row in enumerate(rows) if i not in chosen and (of == "all" or row.answered)]
    size = min(budget - len(chosen), len(population))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(population))[:size]).tolist()
    why = RANDOM_ROW if of == "all" else RANDOM
    picked = [Picked(rows[population[i]], why, size / len(population)) for i in drawn]
    return picked + [Picked(rows[i], reason, 1.0) for i, reason in chosen.items()]


def _spread(rows: Sequence[Candidate], ranked: Sequence[int], count: int) -> list[int]:
    """At most `count` of the ranked places, far from each other by their words and without near-duplicates.

    Among the first `POOL` times `count` the first is taken, then always the one that is farthest from those taken.
    """
    pool = list(ranked[: POOL * count])
    if not pool or count < 1:
        return []
    vectors = text_vectors([rows[i].text for i in pool])
    taken, left = [0], np.arange(len(pool)) > 0
    distance = np.full(len(pool), np.inf)
    while len(taken) < count:
        last = taken[-1]
        left &= vectors @ vectors[last] < SAME
        distance = np.minimum(distance, np.sum((vectors - vectors[last]) ** 2, axis=1))
        if not left.any():
            break
        farthest = int(np.argmax(np.where(left, distance, -1.0)))
        left[farthest] = False
        taken.append(farthest)
    return [pool[i] for i in taken]


def text_vectors(texts: Sequence[Text]) -> Floats:
    """Counts of words and pairs of words, hashed, of length 1: (texts, 4096); 0 of a row of scores without a text."""
    vectors = np.zeros((len(texts), 4096))
    for row, text in zip(vectors, texts, strict=True):
        words = re.findall(r"\w\w+", " ".join(strings(text)).lower())
        for gram in (*words, *map(" ".join, pairwise(words))):
            row[crc32(gram.encode()) % len(row)] += 1.0
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def describe(picked: Sequence[Picked], rows: int) -> list[str]:
    """What was picked, and from how many rows, a line for each reason."""
    lines = [f"{len(picked):,} of {rows:,} rows picked."]
    for reason in (RANDOM, RANDOM_ROW, DOUBTFUL, OUTSIDE):
        inclusions = [row.inclusion for row in picked if row.reason == reason]
        if inclusions:
            lines.append(f"  {len(inclusions):,} {reason}, each with the inclusion probability {inclusions[0]:.4g}")
    return lines


def current_scores(source: str, score: str, *, format: str | None = None) -> Floats:
    """The score of a rule, (rows,), of the texts in scope of a scored file."""
    rows = scored_rows(source, (column_of_score(score),), format=format)
    return np.array([row.score(score) for row in rows if not row.truth("out_of_scope")])


def inclusion_of(meta: Sequence[Mapping[str, object]]) -> Floats | None:
    """The inclusion probabilities of labelled rows, (rows,); None where the file has none: a plain random sample."""
    rows = [ScoredRow(values) for values in meta]
    missing = sum(row.optional("inclusion") is None for row in rows)
    if missing == len(rows):
        return None
    if missing:
        raise DataError(
            f"{missing} of {len(rows)} labelled rows have no inclusion probability; keep the column that uatlite "
            "pick wrote, or leave it out for a plain random sample."
        )
    return np.array([row.number("inclusion") for row in rows])
