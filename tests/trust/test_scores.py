"""Every score ranks a sure row above an unsure one."""

import numpy as np
import pytest

from uatlite.errors import ConfigurationError
from uatlite.predictive import predict
from uatlite.trust.rule import SCORES, trust

SURE = [[5.0, 0.0, 0.0], [5.1, 0.0, 0.0], [4.9, 0.0, 0.0]]
UNSURE = [[0.5, 0.0, 0.0], [2.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]


@pytest.fixture
def predictive():
    return predict(np.stack([SURE, UNSURE], axis=1))  # (passes, rows, classes)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_higher_is_more_trustworthy(name, predictive):
    sure, unsure = trust(name, predictive)
    assert sure > unsure


def test_the_scores_are_the_five_of_the_design():
    assert set(SCORES) == {"confidence", "entropy", "mutual-information", "margin", "variance"}


def test_an_unknown_score_names_the_nearest(predictive):
    with pytest.raises(ConfigurationError, match="Did you mean 'confidence'"):
        trust("confidense", predictive)
