"""A saved tiny model and files for the command line."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from transformers import BertTokenizer, PreTrainedModel
from transformers.utils import logging

from uatlite.cli import main

LABELS = ("negative", "neutral", "positive")
TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}
WORDS = [f"w{number}" for number in range(50)]


class Done(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], exit_code: Callable[..., int]) -> Run:
    """`run(*arguments)`: exit code, standard output and standard error of `uatlite ARGUMENTS`."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        return Done(exit_code(*arguments), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def exit_code() -> Callable[..., int]:
    """`exit_code(*arguments)`: that of `uatlite ARGUMENTS`."""

    def call(*arguments: object) -> int:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return int(ended.value.code or 0)

    return call


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
