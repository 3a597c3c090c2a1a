"""A saved, calibrated tiny classifier, and files to score."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier import UncertaintyClassifier
from uatlite.scoring import blocks

BLOCK = 16
"""Rows of a block in these tests, so that a few dozen rows are several of them."""


@pytest.fixture(scope="session")
def made_texts() -> Callable[..., list[str]]:
    """`made_texts(rows, seed=0)`: random texts of the tiny tokenizer's words."""

    def make(rows: int, seed: int = 0) -> list[str]:
        generator = np.random.default_rng(seed)
        sizes = generator.integers(3, 20, size=rows)
        return [" ".join(f"a{word}" for word in generator.integers(0, 56, size=size)) for size in sizes]

    return make


@pytest.fixture(scope="session")
def saved(
    tmp_path_factory: pytest.TempPathFactory,
    tiny: Callable[..., PreTrainedModel],
    tokenizer: BertTokenizer,
    made_texts: Callable[..., list[str]],
) -> Path:
    """The directory of a calibrated classifier of three classes."""
    directory = tmp_path_factory.mktemp("classifier") / "saved"
    clf = UncertaintyClassifier(tiny("bert", id2label={0: "bad", 1: "fair", 2: "good"}), tokenizer, "uat:samples=2")
    texts = made_texts(150)
    labels = clf.predict(texts).predicted
    labels[::4] = (labels[::4] + 1) % 3  # a quarter is wrong
    clf.calibrate(texts, labels, target_coverage=0.8, label_sets=0.8, calibrator="temperature")
    clf.save_pretrained(directory)
    return directory


@pytest.fixture
def classifier(saved: Path) -> UncertaintyClassifier:
    """The saved classifier, loaded."""
    return UncertaintyClassifier.from_pretrained(saved)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of `BLOCK` rows."""
    monkeypatch.setattr(blocks.blocks, "__defaults__", (BLOCK, blocks.BLOCK_CHARACTERS))
    return BLOCK
