"""A tiny classifier, texts for it, and labels drawn from what a sharper version of it believes."""

from functools import cache

import numpy as np
import pytest

CLASSES = ("bad", "fair", "good")


@pytest.fixture(scope="session")
def build(product_of):
    """`build(config=None, choices=False, **options)`: a new tiny classifier."""
    return lambda config=None, choices=False, **options: product_of("choice" if choices else "one", config, **options)


@pytest.fixture(scope="session")
def labelled(build, made_texts):
    """`labelled(rows, seed=0)`: texts, and labels that the tiny model's probabilities are right about."""

    @cache
    def make(rows, seed=0):
        texts = made_texts(rows, seed)
        probabilities = build("base").predict_proba(texts)
        drawn = np.random.default_rng(seed).random((rows, 1))
        return texts, [CLASSES[column] for column in (probabilities.cumsum(axis=1) < drawn).sum(axis=1).clip(max=2)]

    return make


@pytest.fixture(scope="session")
def _calibrated(build, labelled):
    texts, labels = labelled(300)
    return build().calibrate(texts, labels, target_risk=0.5, label_sets=0.8)


@pytest.fixture
def calibrated(_calibrated, build):
    """A calibrated classifier that a test may change: a new one with the session's calibration."""
    fresh = build()
    fresh.calibration_ = _calibrated.calibration_
    return fresh
