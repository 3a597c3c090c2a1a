"""A tiny classifier, texts for it, and labels drawn from what a sharper version of it believes."""

from functools import cache

import numpy as np
import pytest

from reference import Build, Sample, Texts
from uatlite.classifier.classifiers import UncertaintyClassifier

CLASSES = ("bad", "fair", "good")


@pytest.fixture(scope="session")
def build(product_of: Build) -> Build:
    """`build(config=None, choices=False, **options)`: a new tiny classifier."""
    return lambda config=None, choices=False, **options: product_of("choice" if choices else "one", config, **options)


@pytest.fixture(scope="session")
def labelled(build: Build, made_texts: Texts) -> Sample:
    """`labelled(rows, seed=0)`: texts, and labels that the tiny model's probabilities are right about."""

    @cache
    def make(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
        texts = made_texts(rows, seed)
        probabilities = build("base").predict_proba(texts)
        drawn = np.random.default_rng(seed).random((rows, 1))
        return texts, [CLASSES[column] for column in (probabilities.cumsum(axis=1) < drawn).sum(axis=1).clip(max=2)]

    return make


@pytest.fixture(scope="session")
def _calibrated(build: Build, labelled: Sample) -> UncertaintyClassifier:
    texts, labels = labelled(300)
    return build().calibrate(texts, labels, target_risk=0.5, label_sets=0.8)


@pytest.fixture
def calibrated(_calibrated: UncertaintyClassifier, build: Build) -> UncertaintyClassifier:
    """A calibrated classifier that a test may change: a new one with the session's calibration."""
    fresh = build()
    fresh.calibration_ = _calibrated.calibration_
    return fresh
