"""A classifier to score with, in small blocks."""

from pathlib import Path

import pytest

from uatlite.classifier import UncertaintyClassifier
from uatlite.scoring import blocks

BLOCK = 16
"""Rows of a block in these tests, so that a few dozen rows are several of them."""


@pytest.fixture
def classifier(saved: Path) -> UncertaintyClassifier:
    """The saved classifier, loaded."""
    return UncertaintyClassifier.from_pretrained(saved)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of `BLOCK` rows."""
    monkeypatch.setattr(blocks.blocks, "__defaults__", (BLOCK, blocks.BLOCK_CHARACTERS))
    return BLOCK
