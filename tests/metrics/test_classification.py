"""Accuracy and macro F1 against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from uatlite.metrics.accuracy import accuracy, macro_f1


def test_accuracy_and_macro_f1_are_those_of_scikit_learn(case) -> None:
    probabilities, labels = case
    predicted = probabilities.argmax(axis=1)
    assert accuracy(probabilities, labels) == pytest.approx(accuracy_score(labels, predicted), abs=1e-12)
    expected = f1_score(labels, predicted, average="macro", zero_division=0)
    assert macro_f1(probabilities, labels) == pytest.approx(expected, abs=1e-12)


def test_of_equal_probabilities_the_first_class_is_predicted() -> None:
    assert accuracy([[0.5, 0.5]], [0]) == 1
    assert accuracy([[0.5, 0.5]], [1]) == 0


def test_macro_f1_leaves_out_classes_that_do_not_occur() -> None:
    probabilities = np.array([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1]])
    assert macro_f1(probabilities, [0, 1]) == pytest.approx((2 / 3 + 0) / 2)
