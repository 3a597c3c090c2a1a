"""A saved tiny model and files for the command line."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import BertTokenizer, PreTrainedModel
from transformers.utils import logging

LABELS = ("negative", "neutral", "positive")
TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}
WORDS = [f"w{number}" for number in range(50)]


@pytest.fixture(autouse=True)
def _no_bars() -> Iterator[None]:
    """`main` silences transformers through the environment, which this process's transformers has already read."""
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


@pytest.fixture(scope="session")
def model_dir(tiny: Callable[..., PreTrainedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT of three sentiments with its tokenizer."""
    directory = tmp_path_factory.mktemp("model")
    tiny("bert", id2label=dict(enumerate(LABELS))).save_pretrained(directory)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    BertTokenizer(vocab={word: index for index, word in enumerate(vocabulary)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def tagger_dir(
    tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A tiny token classifier of persons and places that finds entities here and there, with its tokenizer."""
    directory = tmp_path_factory.mktemp("models") / "tokens"
    made = tiny("bert", tokens=True, num_labels=5, id2label=TAGS)
    made.classifier.weight.data *= 5
    made.classifier.bias.data[0] += 5.0
    made.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 labelled rows with the columns body and stars."""
    rng = random.Random(0)
    rows = [
        {"body": " ".join(rng.choices(WORDS, k=rng.randint(1, 20))), "stars": rng.choice(LABELS)} for _ in range(100)
    ]
    path = tmp_path_factory.mktemp("rows") / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path
