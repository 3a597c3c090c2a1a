"""A tiny checkpoint with a tokenizer, and data sets made of its words."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.lab.evaluate.predict import Prepared, prepare
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.labels import Alignment
from uatlite.values import Dataset, Example

LABELS = ("negative", "neutral", "positive")
WORDS = [f"w{number}" for number in range(50)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]


def make_dataset(rows: int, *, split: str = "test", seed: int = 0) -> Dataset:
    """Random texts of 1 to 20 words with random labels."""
    rng = random.Random(seed)
    examples = tuple(
        Example(f"{split}-{row}", " ".join(rng.choices(WORDS, k=rng.randint(1, 20))), rng.randrange(3))
        for row in range(rows)
    )
    return Dataset("made", split, LABELS, examples, source="made in a test")


@pytest.fixture(scope="session")
def checkpoint_dir(tiny: Callable[..., PreTrainedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    tiny("bert", id2label=dict(enumerate(LABELS))).save_pretrained(directory)
    BertTokenizer(vocab={word: index for index, word in enumerate(VOCABULARY)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def checkpoint(checkpoint_dir: Path) -> Checkpoint:
    return load_checkpoint(checkpoint_dir, device="cpu")


@pytest.fixture(scope="session")
def dataset() -> Callable[..., Dataset]:
    """`dataset(rows, split="test", seed=0)`."""
    return make_dataset


@pytest.fixture(scope="session")
def own_order() -> Alignment:
    return Alignment(((0,), (1,), (2,)), LABELS, "labels in the model's order")


@pytest.fixture(scope="session")
def prepared(checkpoint: Checkpoint, own_order: Alignment) -> Prepared:
    """Eighty rows: five pieces of sixteen."""
    return prepare(checkpoint, make_dataset(80), own_order)
