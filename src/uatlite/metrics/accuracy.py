"""Accuracy and macro F1; the proper scores NLL and Brier; detection by AUROC, AUPR and FPR95.

In detection, positives are what is to be found (errors, out-of-scope texts), and a high score says positive. The
`error_*` metrics find wrong predictions by low confidence. For anything else call auroc, aupr and fpr95 with your own
score (1 - confidence, entropy, mutual information) and the positives. All are NaN where there are only positives or
only negatives.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import InputError
from uatlite.metrics.rows import Metric, Ranking, Rows, at_once, mean_of, ratio
from uatlite.values import Floats, Integers, check_array


@Metric
def accuracy(rows: Rows, counts: Floats) -> Floats:
    """The share of rows whose most probable class is the label."""
    return mean_of(rows.correct)(counts)


@Metric
def macro_f1(rows: Rows, counts: Floats) -> Floats:
    """The mean over classes of F1_c = 2 TP_c / (predicted_c + labelled_c).

    Only classes that occur, as a label or as a prediction, are averaged (as in scikit-learn).
    """
    predicted = np.eye(rows.probabilities.shape[1])[rows.predicted]
    hits, occurrences = counts @ (predicted * rows.one_hot), counts @ (predicted + rows.one_hot)
    f1 = ratio(2 * hits, occurrences, otherwise=0.0)
    return np.asarray(f1.sum(axis=1) / (occurrences > 0).sum(axis=1))


# A probability of 0 for the true class would make the loss infinite, and probabilities published with five decimals
# have such zeros. As in scikit-learn they count as the machine epsilon of float64, a loss of 36.04.
SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


def log_losses(probabilities: Floats, labels: Integers) -> Floats:
    """-log p(label), (rows,), with probabilities (rows, classes) below 2.2e-16 counted as 2.2e-16."""
    of_label = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]
    return np.asarray(-np.log(np.maximum(of_label, SMALLEST_PROBABILITY)))


@Metric
def nll(rows: Rows, counts: Floats) -> Floats:
    """The mean of -log p(label), with probabilities below 2.2e-16 counted as 2.2e-16."""
    return mean_of(log_losses(rows.probabilities, rows.labels))(counts)


@Metric
def brier(rows: Rows, counts: Floats) -> Floats:
    """The mean of sum_c (p_c - [label is c])², from 0 to 2."""
    return mean_of(np.square(rows.probabilities - rows.one_hot).sum(axis=1))(counts)


RECALL = 0.95


def auroc_of(ranking: Ranking, positives: Floats, counts: Floats) -> Floats:
    """P(score of a positive > score of a negative) + P(equal) / 2."""
    hits, flagged = detection_curve(ranking, positives, counts)
    area = np.diff(flagged, axis=1) * (hits[:, 1:] + hits[:, :-1]) / 2
    return ratio(area.sum(axis=1), hits[:, -1] * flagged[:, -1])


def aupr_of(ranking: Ranking, positives: Floats, counts: Floats) -> Floats:
    """Average precision: the sum over thresholds of precision times the recall gained there."""
    hits, flagged = detection_curve(ranking, positives, counts)
    precision = ratio(hits, hits + flagged, otherwise=0.0)[:, 1:]
    area = (precision * np.diff(hits, axis=1)).sum(axis=1)
    return np.where(flagged[:, -1] > 0, ratio(area, hits[:, -1]), np.nan)


def fpr95_of(ranking: Ranking, positives: Floats, counts: Floats) -> Floats:
    """The share of negatives flagged at the highest threshold that finds at least 95 % of the positives."""
    hits, flagged = detection_curve(ranking, positives, counts)
    first = np.argmax(hits >= RECALL * hits[:, -1:] - 1e-9, axis=1)
    share = ratio(flagged[np.arange(len(counts)), first], flagged[:, -1])
    return np.where(hits[:, -1] > 0, share, np.nan)


DETECTION = {"auroc": auroc_of, "aupr": aupr_of, "fpr95": fpr95_of}


def detection_curve(ranking: Ranking, positives: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Positives found and negatives flagged as the threshold falls: two of (resamples, 1 + ties)."""
    return ranking.cumulate(counts, positives), ranking.cumulate(counts, 1 - positives)


@Metric
def error_auroc(rows: Rows, counts: Floats) -> Floats:
    """AUROC of finding wrong predictions by low confidence."""
    return auroc_of(rows.doubt, 1 - rows.correct, counts)


@Metric
def error_aupr(rows: Rows, counts: Floats) -> Floats:
    """Average precision of finding wrong predictions by low confidence."""
    return aupr_of(rows.doubt, 1 - rows.correct, counts)


@Metric
def error_fpr95(rows: Rows, counts: Floats) -> Floats:
    """The share of correct predictions flagged when 95 % of the wrong ones are, by low confidence."""
    return fpr95_of(rows.doubt, 1 - rows.correct, counts)


def auroc(scores: ArrayLike, positives: ArrayLike) -> float:
    """Area under the ROC curve of scores (rows,) for positives (rows,); ties count one half."""
    return _detected(auroc_of, scores, positives)


def aupr(scores: ArrayLike, positives: ArrayLike) -> float:
    """Average precision of scores (rows,) for positives (rows,); ties share a threshold."""
    return _detected(aupr_of, scores, positives)


def fpr95(scores: ArrayLike, positives: ArrayLike) -> float:
    """The share of negatives flagged where scores (rows,) flag at least 95 % of the positives (rows,)."""
    return _detected(fpr95_of, scores, positives)


def _detected(of: Callable[[Ranking, Floats, Floats], Floats], scores: ArrayLike, positives: ArrayLike) -> float:
    ranking, marks = check_detection(scores, positives)
    return at_once(partial(of, ranking, marks), len(marks))


def check_detection(scores: ArrayLike, positives: ArrayLike) -> tuple[Ranking, Floats]:
    """The ranking of scores (rows,), and the positives (rows,) as 0 and 1."""
    values, marks = check_array("scores", scores, {"rows": 1}), np.asarray(positives)
    if values.shape != marks.shape:
        raise InputError(f"positives have shape {marks.shape}; allowed is {values.shape}, one for each score.")
    if not np.isin(marks, (0, 1)).all():
        row = int(np.argmin(np.isin(marks, (0, 1))))
        raise InputError(
            f"positives[{row}] is {marks[row]!r}; allowed are True and False (or 1 and 0). Compare first, "
            "as in labels == out_of_scope."
        )
    return Ranking.of(values), marks.astype(np.float64)
