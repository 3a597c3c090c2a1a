"""Calibrated models of every kind to score with, in small blocks, and files of rows for them."""

import numpy as np
import pytest

from scoring.desk import Desk
from uatlite.scoring import source

BLOCK = 16
"""Rows of a block in these tests, so that a few dozen rows are several of them."""


@pytest.fixture(scope="session")
def models(saved, product_of, made_texts, tmp_path_factory):
    """Kind -> the directory of a calibrated model of it."""
    directory, texts = tmp_path_factory.mktemp("models"), made_texts(80)
    tagger, labeler = product_of("entities", "base"), product_of("labels", "base")
    predictions = enumerate(tagger.predict(texts))
    gold = [[(e.start, e.end, e.label) for e in pred.entities if (i + e.start) % 4] for i, pred in predictions]
    tagger.calibrate(texts, gold).save_pretrained(directory / "entities")
    noise = np.random.default_rng(0).random((80, 4)) < 0.2
    labeler.calibrate(texts, (labeler.predict(texts).logits > 0) ^ noise).save_pretrained(directory / "labels")
    return {"one": saved, "entities": directory / "entities", "labels": directory / "labels"}


@pytest.fixture
def desk_of(models, made_texts, tmp_path):
    """A kind to its desk."""
    return lambda kind: Desk(kind, models[kind], tmp_path, made_texts)


@pytest.fixture
def desk(desk_of):
    """A classifier of one class a text."""
    return desk_of("one")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of `BLOCK` rows."""
    monkeypatch.setattr(source.blocks, "__defaults__", (BLOCK, source.BLOCK_CHARACTERS))
    return BLOCK
