"""A tiny classifier, texts for it, and labels drawn from what a sharper version of it believes."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifiers import UncertaintyClassifier

CLASSES = ("bad", "fair", "good")


def made_texts(rows: int, seed: int = 0, longest: int = 20) -> list[str]:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(3, longest, size=rows)
    return [" ".join(f"a{word}" for word in generator.integers(0, 56, size=size)) for size in sizes]


@pytest.fixture(scope="session")
def texts_of() -> Callable[..., list[str]]:
    """`texts_of(rows, seed=0, longest=20)`: random texts of the tiny tokenizer's words."""
    return made_texts


@pytest.fixture(scope="session")
def build(tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer) -> Callable[..., UncertaintyClassifier]:
    """`build(config=None, architecture="bert", choices=False, **options)`: a new tiny classifier."""

    def make(
        config: object = None, *, architecture: str = "bert", choices: bool = False, **options: object
    ) -> UncertaintyClassifier:
        names = {} if choices else {"id2label": dict(enumerate(CLASSES))}
        model = tiny(architecture, choices=choices, **names)
        return UncertaintyClassifier(model, tokenizer, config, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def labelled(build: Callable[..., UncertaintyClassifier]) -> Callable[..., tuple[list[str], list[str]]]:
    """`labelled(rows, seed=0)`: texts, and labels that the tiny model's probabilities are right about."""

    @cache
    def make(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
        texts = made_texts(rows, seed)
        probabilities = build("base").predict_proba(texts)
        drawn = np.random.default_rng(seed).random((rows, 1))
        return texts, [CLASSES[column] for column in (probabilities.cumsum(axis=1) < drawn).sum(axis=1).clip(max=2)]

    return make


@pytest.fixture(scope="session")
def _calibrated(
    build: Callable[..., UncertaintyClassifier], labelled: Callable[..., tuple[list[str], list[str]]]
) -> UncertaintyClassifier:
    texts, labels = labelled(300)
    return build().calibrate(texts, labels, target_risk=0.5, label_sets=0.8)


@pytest.fixture
def calibrated(
    _calibrated: UncertaintyClassifier, build: Callable[..., UncertaintyClassifier]
) -> UncertaintyClassifier:
    """A calibrated classifier that a test may change: a new one with the session's calibration."""
    fresh = build()
    fresh.calibration_ = _calibrated.calibration_
    return fresh
