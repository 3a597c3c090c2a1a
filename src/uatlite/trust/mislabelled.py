"""Rows that are probably mislabelled: confident learning (Northcutt et al., 2021) by calibrated probabilities.

A class has a threshold of its own, the mean probability of it among rows with that label. A row counts as a member of
another class where the probability of that class reaches its threshold. Rows that do are suspected. A class whose rows
the model is rarely sure of so has a low threshold, and one that it favours a high one.
"""

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import InputError
from uatlite.values import Floats, Integers, check_array, check_labels

MOST_OFF = 1e-3
"""How far the probabilities of a row may be from a sum of 1, for rounding in files."""


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
