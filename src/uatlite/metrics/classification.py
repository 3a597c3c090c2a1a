"""How often the prediction is right: accuracy and macro F1."""

import numpy as np

from uatlite.metrics.metric import Statistic, mean_of, metric, ratio
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows


@metric("higher")
def accuracy(rows: Rows) -> Statistic:
    """The share of rows whose most probable class is the label."""
    return mean_of(rows.correct)


@metric("higher")
def macro_f1(rows: Rows) -> Statistic:
    """The mean over classes of F1_c = 2 TP_c / (predicted_c + labelled_c).

    Only classes that occur, as a label or as a prediction, are averaged (as in scikit-learn).
    """
    predicted = np.eye(rows.probabilities.shape[1])[rows.predicted]

    def statistic(counts: Floats) -> Floats:
        hits = counts @ (predicted * rows.one_hot)
        occurrences = counts @ (predicted + rows.one_hot)
        f1 = ratio(2 * hits, occurrences, otherwise=0.0)
        return np.asarray(f1.sum(axis=1) / (occurrences > 0).sum(axis=1))

    return statistic
