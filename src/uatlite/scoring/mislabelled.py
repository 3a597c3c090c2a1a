"""Rows of a scored and labelled file that are probably mislabelled.

They are found by confident learning (Northcutt et al., 2021), by calibrated probabilities. A class has a threshold of
its own, the mean probability of it among rows with that label. A row counts as a member of another class where the
probability of that class reaches its threshold. Rows that do are suspected. A class whose rows the model is rarely sure
of so has a low threshold, and one that it favours a high one.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import DataError, InputError
from uatlite.scoring.scored_rows import ScoredRow, scored_rows
from uatlite.text.labels import class_indices
from uatlite.text.rows import read_rows
from uatlite.values import Floats, Integers, check_array, check_labels

MOST_OFF = 1e-3
"""How far the probabilities of a row may be from a sum of 1, for rounding in files."""


def suspects(source: str, label: str, *, format: str | None = None) -> list[dict[str, object]]:
    """The rows of a scored and labelled file that are probably mislabelled, the surest first."""
    rows = list(scored_rows(read_rows(source, format=format), ()))
    if not rows or label not in rows[0].values:
        raise DataError(
            f"{source} has no row with a column {label!r}. Score labelled rows and keep the label: uatlite predict DIR "
            "labelled.csv --keep label writes it as input_label."
        )
    classes, probabilities = probabilities_of(rows)
    labels = class_indices([row.values[label] for row in rows], classes)
    order, likely = probably_mislabelled(probabilities, labels)
    given = probabilities[np.arange(len(rows)), labels]
    first = [name for name in rows[0].values if not name.startswith("p_")]
    return [
        {name: rows[i].values[name] for name in first}
        | {
            "suggested": classes[likely[i]],
            "p_given": float(given[i]),
            "p_suggested": float(probabilities[i, likely[i]]),
        }
        for i in order.tolist()
    ]


def probabilities_of(rows: Sequence[ScoredRow]) -> tuple[tuple[str, ...], Floats]:
    """The classes and their probabilities (rows, classes), from the columns p_<class> of scored rows."""
    if rows[0].answer_column != "label":
        raise DataError(
            f"{rows[0].file} holds {rows[0].answer_column}, and rows are compared with one label each; review shows "
            "which of them to look at: uatlite review."
        )
    names = tuple(name.removeprefix("p_") for name in rows[0].values if name.startswith("p_"))
    if len(names) < 2:
        raise DataError(f"{rows[0].file} has no columns p_<class>; give a file that uatlite predict wrote.")
    return names, np.array([[row.number(f"p_{name}") for name in names] for row in rows])


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
    given = p[suspected, y[suspected]]
    return suspected[np.argsort(given, kind="stable")], likely
