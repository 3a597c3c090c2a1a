"""A saved tiny model and files for the command line."""

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from transformers import BertTokenizer, PreTrainedModel
from transformers.utils import logging

from uatlite import UncertaintyTagger
from uatlite.cli import main

LABELS = ("negative", "neutral", "positive")
TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
MODELS: dict[str, dict[str, Any]] = {
    "unnamed": {},
    "one": {"id2label": dict(enumerate(("bad", "fair", "good")))},
    "choice": {"choices": True},
    "labels": {"problem_type": "multi_label_classification", "id2label": dict(enumerate(("anger", "joy", "fear")))},
    "entities": {
        "tokens": True,
        "num_labels": 5,
        "id2label": dict(enumerate(TAGS)),
    },
}
"""A kind, or a model of one class whose classes have no names -> what is given to `tiny`."""
WORDS = [f"w{number}" for number in range(50)]


class Done(NamedTuple):
    """The outcome of a command: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error in one line."""
        return " ".join(self.err.split())

    @property
    def shown(self) -> str:
        """Standard output in one line."""
        return " ".join(self.out.split())


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], exit_code: Callable[..., int]) -> Run:
    """`run(*arguments, code=0)`: what `uatlite ARGUMENTS` prints; it must end with this exit code."""

    def call(*arguments: object, code: int | None = 0) -> Done:
        capsys.readouterr()
        done = Done(exit_code(*arguments), *capsys.readouterr())
        assert code in (None, done.code), done.err
        assert "Traceback" not in done.err
        return done

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
def model_of(
    tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """`model_of(kind)`: the directory of a tiny BERT of this kind with its tokenizer, which is made once."""

    @cache
    def make(kind: str) -> Path:
        directory = tmp_path_factory.mktemp("models") / kind
        model = tiny("bert", **MODELS[kind])
        if kind == "entities":  # found here and there
            model.classifier.weight.data *= 5
            model.classifier.bias.data[0] += 5.0
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        return directory

    return make


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


@pytest.fixture(scope="session")
def names(
    model_of: Callable[[str], Path], made_texts: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """200 texts whose gold entities are about those that the model of entities is sure of."""
    found = UncertaintyTagger.from_pretrained(model_of("entities"), "base").predict(made_texts(200))
    path = tmp_path_factory.mktemp("rows") / "names.jsonl"
    lines = []
    for number, said in enumerate(found):
        kept = [e for place, e in enumerate(said.entities) if e.confidence > 0.5 or (number + place) % 3 == 0]
        spans = [{"start": e.start, "end": e.end, "label": e.label} for e in kept]
        lines.append(json.dumps({"text": said.text, "entities": spans}) + "\n")
    path.write_text("".join(lines))
    return path
