"""Which rows of a scored and labelled file are probably mislabelled."""

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import DataError
from uatlite.scoring.scored_rows import scored_rows
from uatlite.text.labels import class_indices
from uatlite.values import Integers, check_labels, check_probabilities


def suspects(source: str, label: str, *, format: str | None = None) -> list[dict[str, object]]:
    """The rows of a scored and labelled file that are probably mislabelled, the surest first."""
    rows = list(scored_rows(source, (), format=format))
    if not rows or label not in rows[0].values:
        raise DataError(
            f"{source} has no row with a column {label!r}. Score labelled rows and keep the label: uatlite predict DIR "
            "labelled.csv --keep label writes it as input_label."
        )
    if rows[0].answer_column != "label":
        raise DataError(
            f"{source} holds {rows[0].answer_column}, and rows are compared with one label each; review shows which of "
            "them to look at: uatlite review."
        )
    classes = tuple(name.removeprefix("p_") for name in rows[0].values if name.startswith("p_"))
    if len(classes) < 2:
        raise DataError(f"{source} has no columns p_<class>; give a file that uatlite predict wrote.")
    probabilities = np.array([[row.number(f"p_{name}") for name in classes] for row in rows])
    labels = class_indices([row.values[label] for row in rows], classes)
    order, likely = probably_mislabelled(probabilities, labels)
    suspected = []
    for i in order.tolist():
        row, p = {name: value for name, value in rows[i].values.items() if not name.startswith("p_")}, probabilities[i]
        row |= {"suggested": classes[likely[i]], "p_given": float(p[labels[i]]), "p_suggested": float(p[likely[i]])}
        suspected.append(row)
    return suspected


def probably_mislabelled(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Integers, Integers]:
    """The suspected rows, surest first (by the probability of the given label), and the class of every row, (rows,).

    This is confident learning (Northcutt et al., 2021), by calibrated probabilities: the class of a row is the most
    probable of those that reach their thresholds, and the given label where none does. The threshold of a class is the
    mean of its probability among the rows with that label. A class whose rows the model is
    rarely sure of so has a low threshold, and one that it favours a high one. The probabilities must be of a model that
    was not trained on these rows, or the errors will look right to it.
    """
    p = check_probabilities(probabilities, rows=1)
    y = check_labels(labels, rows=len(p), classes=p.shape[1])
    thresholds = np.full(p.shape[1], np.inf)
    for column in np.unique(y).tolist():
        thresholds[column] = p[y == column, column].mean()
    reached = np.where(p >= thresholds - 1e-12, p, -np.inf)
    likely = np.where(np.isinf(reached).all(axis=1), y, reached.argmax(axis=1)).astype(np.int64)
    suspected = np.flatnonzero(likely != y)
    given = p[suspected, y[suspected]]
    return suspected[np.argsort(given, kind="stable")], likely
