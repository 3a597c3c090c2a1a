"""Which rows of a scored file to label: answers at random, with known probabilities, and rows whose labels help most.

Only rows drawn with known probabilities say how often the answers are wrong. Rows that help most (doubtful, out of
scope) are chosen by what they look like; each has the inclusion probability 1, because the file alone decides.

Rows that are probably mislabelled are found by confident learning (Northcutt et al., 2021), by calibrated
probabilities. A class has a threshold of its own, the mean probability of it among rows with that label. A row counts
as a member of another class where the probability of that class reaches its threshold. Rows that do are suspected. A
class whose rows the model is rarely sure of so has a low threshold, and one that it favours a high one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.feature_extraction.text import HashingVectorizer

from uatlite.errors import ConfigurationError, DataError, InputError, check_choice
from uatlite.text.examples import example_of, require_columns
from uatlite.text.labels import class_indices
from uatlite.text.rows import Reject, read_rows
from uatlite.text.schema import Layout
from uatlite.text.write import row_writer
from uatlite.trust.rule import Uncertainties, trust
from uatlite.values import Choices, Floats, Integers, Text, check_array, check_labels, check_share, strings

RANDOM, RANDOM_ROW, DOUBTFUL, OUTSIDE = "random answer", "random row", "doubtful", "out of scope"
"""Why a row was picked."""
RANDOM_SHARE = 0.75
POOL = 5
"""Helpful rows are spread among so many times as many of the most doubtful or strangest ones."""
SAME = 0.9
"""Two texts with this cosine of their n-gram counts, or more, are near-duplicates; one of them is enough."""
MOST_OFF = 1e-3
"""How far the probabilities of a row may be from a sum of 1, for rounding in files."""
POPULATIONS = ("answers", "all")


@dataclass(frozen=True)
class ScoredRow:
    """What picking needs of a row of a scored file."""

    id: str
    text: Text
    label: str
    """the predicted class"""
    confidence: float
    answered: bool
    """also where the file has no decision"""
    outside: bool
    scope: float


@dataclass(frozen=True)
class Picked:
    """A row to label: why it was picked, and the probability with which it was."""

    row: ScoredRow
    reason: str
    inclusion: float

    def as_row(self) -> dict[str, object]:
        """The columns of the file to label; `label` is empty."""
        text = self.row.text
        columns: dict[str, object] = {"id": self.row.id, "text": strings(text)[0]}
        if isinstance(text, Choices):
            columns["options"] = list(text.options)
        elif isinstance(text, tuple):
            columns["text_pair"] = text[1]
        design = {"reason": self.reason, "inclusion": self.inclusion}
        return columns | {"label": "", "predicted": self.row.label, "confidence": self.row.confidence} | design


def read_scored(source: str, layout: Layout, *, format: str | None = None) -> list[ScoredRow]:
    """The rows of a file that `uatlite predict` wrote, with the column of the text."""
    rows = read_rows(source, format=format)
    try:
        checked = list(require_columns(rows, layout, with_label=False))
    except DataError as error:
        way = f"Score the file again and keep the text: uatlite predict … --text {layout.text} --keep-text"
        raise DataError(f"{error} {way}") from error
    found = []
    for row in checked:
        if isinstance(row, Reject):
            raise DataError(f"{row.file}, line {row.line}: {row.reason}; this is not a file of uatlite predict.")
        if "confidence" not in row.values:
            raise DataError(f"{row.file} has no column confidence; give a file that uatlite predict wrote.")
        example = example_of(row.values, layout, None, unnamed=f"{row.file}:{row.line}")
        found.append(_scored(example.id, example.text, row.values))
    if not found:
        raise DataError(f"{source} has no row to pick from.")
    return found


def _scored(name: str, text: Text, values: Mapping[str, object]) -> ScoredRow:
    return ScoredRow(
        id=name,
        text=text,
        label=str(values.get("label", "")),
        confidence=number(values["confidence"], "confidence"),
        answered=not truth(values.get("abstain", False)),
        outside=truth(values.get("out_of_scope", False)),
        scope=number(values["scope"], "scope") if values.get("scope") not in (None, "") else 1.0,
    )


def truth(value: object) -> bool:
    """A truth value of any format; CSV has 'true' and 'false'."""
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "1"))


def number(value: object, column: str) -> float:
    """A number of any format; CSV has text."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DataError(f"column {column!r} holds {value!r}, where a number is needed.") from error
    if not math.isfinite(found):
        raise DataError(f"column {column!r} holds {value!r}, where a finite number is needed.")
    return found


def pick(
    rows: Sequence[ScoredRow],
    budget: int,
    *,
    random_share: float = RANDOM_SHARE,
    of: str = "answers",
    seed: int = 0,
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
    outside = [place for place, row in enumerate(rows) if row.outside]
    outside.sort(key=lambda place: rows[place].scope)
    chosen = dict.fromkeys(spread(rows, outside, helpful // 2), OUTSIDE)
    withheld = any(not row.answered for row in rows)
    doubtful = [p for p, row in enumerate(rows) if not row.outside and not (withheld and row.answered)]
    doubtful.sort(key=lambda place: rows[place].confidence)
    chosen |= dict.fromkeys(spread(rows, doubtful, helpful - len(chosen)), DOUBTFUL)
    population = [p for p, row in enumerate(rows) if p not in chosen and (of == "all" or row.answered)]
    size = min(budget - len(chosen), len(population))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(population))[:size]).tolist()
    why = RANDOM_ROW if of == "all" else RANDOM
    picked = [Picked(rows[population[place]], why, size / len(population)) for place in drawn]
    return picked + [Picked(rows[place], reason, 1.0) for place, reason in chosen.items()]


def spread(rows: Sequence[ScoredRow], ranked: Sequence[int], count: int) -> list[int]:
    """At most `count` of the ranked places, far from each other by their words and without near-duplicates.

    Among the first `POOL` times `count` the first is taken, then always the one that is farthest from those taken.
    """
    pool = list(ranked[: POOL * count])
    if not pool or count < 1:
        return []
    vectors = text_vectors([rows[place].text for place in pool])
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
    return [pool[place] for place in taken]


def text_vectors(texts: Sequence[Text]) -> Floats:
    """Counts of words and pairs of words, hashed, of length 1: (texts, 4096)."""
    hashing = HashingVectorizer(n_features=4096, ngram_range=(1, 2), norm="l2", alternate_sign=False)
    return np.asarray(hashing.transform([" ".join(strings(text)) for text in texts]).toarray())


def write_picked(path: Path, picked: Iterable[Picked]) -> None:
    """Write rows to label: JSONL, CSV or Parquet by extension."""
    with row_writer(path) as write:
        for row in picked:
            write(row.as_row())


def describe(picked: Sequence[Picked], rows: int) -> list[str]:
    """What was picked, and from how many rows, a line for each reason."""
    reasons = (RANDOM, RANDOM_ROW, DOUBTFUL, OUTSIDE)
    counts = {reason: [one for one in picked if one.reason == reason] for reason in reasons}
    lines = [f"{len(picked):,} of {rows:,} rows picked."]
    for reason, some in counts.items():
        if some:
            lines.append(f"  {len(some):,} {reason}, each with the inclusion probability {some[0].inclusion:.4g}")
    return lines


def current_scores(source: str, score: str, *, format: str | None = None) -> Floats:
    """The score of a rule, (rows,), from the columns of a scored file."""
    name = score.replace("-", "_")
    rows = [row.values for row in read_rows(source, format=format) if not isinstance(row, Reject)]
    if not rows or name not in rows[0]:
        raise DataError(f"{source} has no column {name}; give a file that uatlite predict wrote.")
    inside = [row for row in rows if not truth(row.get("out_of_scope", False))]
    columns = SimpleNamespace(**{name: np.array([number(row[name], name) for row in inside])})
    return trust(score, cast(Uncertainties, columns))


def inclusion_of(meta: Sequence[Mapping[str, object]]) -> Floats | None:
    """The inclusion probabilities of labelled rows, (rows,); None where the file has none: a plain random sample."""
    values = [row.get("inclusion") for row in meta]
    missing = sum(value in (None, "") for value in values)
    if missing == len(values):
        return None
    if missing:
        raise DataError(
            f"{missing} of {len(values)} labelled rows have no inclusion probability; keep the column that uatlite "
            "pick wrote, or leave it out for a plain random sample."
        )
    return np.array([number(value, "inclusion") for value in values])


def probabilities_of(rows: Iterable[Mapping[str, object]]) -> tuple[tuple[str, ...], Floats]:
    """The classes and their probabilities (rows, classes), from the columns p_<class> of a scored file."""
    listed = list(rows)
    names = tuple(name.removeprefix("p_") for name in (listed[0] if listed else {}) if name.startswith("p_"))
    if len(names) < 2:
        raise DataError("the file has no columns p_<class>; give a file that uatlite predict wrote.")
    return names, np.array([[number(row[f"p_{name}"], f"p_{name}") for name in names] for row in listed])


def suspects(source: str, label: str, *, format: str | None = None) -> list[dict[str, object]]:
    """The rows of a scored and labelled file that are probably mislabelled, the surest first."""
    rows = [dict(row.values) for row in read_rows(source, format=format) if not isinstance(row, Reject)]
    if not rows or label not in rows[0]:
        raise DataError(
            f"{source} has no row with a column {label!r}. Score labelled rows and keep the label: uatlite predict DIR "
            "labelled.csv --keep label writes it as input_label."
        )
    classes, probabilities = probabilities_of(rows)
    labels: Integers = class_indices([row[label] for row in rows], classes)
    order, other = probably_mislabelled(probabilities, labels)
    own = probabilities[np.arange(len(rows)), labels]
    first = [name for name in rows[0] if not name.startswith("p_")]
    return [
        {name: rows[place][name] for name in first}
        | {
            "suggested": classes[other[place]],
            "p_given": float(own[place]),
            "p_suggested": float(probabilities[place, other[place]]),
        }
        for place in order.tolist()
    ]


def class_thresholds(probabilities: Floats, labels: Integers) -> Floats:
    """The mean of p_c among rows with the label c, (classes,); infinite where there is none."""
    thresholds = np.full(probabilities.shape[1], np.inf)
    for column in np.unique(labels).tolist():
        thresholds[column] = probabilities[labels == column, column].mean()
    return thresholds


def probably_mislabelled(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Integers, Integers]:
    """The suspected rows, surest first (by the probability of the given label), and the class of every row, (rows,).

    The class of a row is the most probable of those that reach their thresholds, and the given label where none does.
    The probabilities must be of a model that was not trained on these rows, or the errors will look right to it.
    """
    p = check_array("probabilities", probabilities, {"rows": 1, "classes": 2})
    y = check_labels(labels, rows=len(p), classes=p.shape[1])
    if not np.allclose(p.sum(axis=1), 1.0, atol=MOST_OFF):
        raise InputError("probabilities do not sum to 1 in each row; give those of all classes.")
    reached = np.where(p >= class_thresholds(p, y) - 1e-12, p, -np.inf)
    likely = np.where(np.isinf(reached).all(axis=1), y, reached.argmax(axis=1)).astype(np.int64)
    suspected = np.flatnonzero(likely != y)
    own = p[suspected, y[suspected]]
    return suspected[np.argsort(own, kind="stable")], likely
