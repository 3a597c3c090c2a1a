"""A tiny backbone on disk and two small data sets that can be told apart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.values import Dataset, Example

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "good", "bad"]


def rows(split: str, count: int) -> Dataset:
    """Sentences of several lengths whose label is whether they say 'good' or 'bad'."""
    examples = []
    for index in range(count):
        label = index % 2
        filler = " ".join("abcdefghij"[(index * step) % 10] for step in range(1, 2 + index % 5))
        examples.append(Example(f"{split}{index}", f"{filler} {('bad', 'good')[label]}", label))
    return Dataset("toy", split, ("negative", "positive"), tuple(examples), f"{count} toy rows")


@pytest.fixture(scope="session")
def backbone(tiny: Callable[..., PreTrainedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT without a head, with its tokenizer."""
    directory = tmp_path_factory.mktemp("backbone")
    tiny("bert").base_model.save_pretrained(directory)
    BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def train() -> Dataset:
    return rows("train", 48)


@pytest.fixture(scope="session")
def validation() -> Dataset:
    return rows("validation", 20)
