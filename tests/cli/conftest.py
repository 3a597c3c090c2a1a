"""A saved tiny model and files for the command line."""

import json
import random
from functools import cache
from typing import NamedTuple

import pytest
from transformers import BertTokenizer
from transformers.utils import logging

from uatlite import UncertaintyTagger
from uatlite.cli import main

LABELS = ("negative", "neutral", "positive")
TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
MODELS = {
    "unnamed": {},
    "one": {"id2label": dict(enumerate(("bad", "fair", "good")))},
    "choice": {"choices": True},
    "labels": {"problem_type": "multi_label_classification", "id2label": dict(enumerate(("anger", "joy", "fear")))},
    "entities": {"tokens": True, "num_labels": 5, "id2label": dict(enumerate(TAGS))},
}
"""A kind, or a model of one class whose classes have no names -> what is given to `tiny`."""
WORDS = [f"w{number}" for number in range(50)]


class Done(NamedTuple):
    """The outcome of a command: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self):
        """Standard error in one line."""
        return " ".join(self.err.split())

    @property
    def shown(self):
        """Standard output in one line."""
        return " ".join(self.out.split())


@pytest.fixture
def run(capsys, exit_code):
    """`run(*arguments, code=0)`: what `uatlite ARGUMENTS` prints; it must end with this exit code."""

    def call(*arguments, code=0):
        capsys.readouterr()
        done = Done(exit_code(*arguments), *capsys.readouterr())
        assert code in (None, done.code), done.err
        assert "Traceback" not in done.err
        return done

    return call


@pytest.fixture(scope="session")
def exit_code():
    """`exit_code(*arguments)`: that of `uatlite ARGUMENTS`."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return int(ended.value.code or 0)

    return call


@pytest.fixture(autouse=True)
def _no_bars():
    """`main` silences transformers through the environment, which this process's transformers has already read."""
    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


@pytest.fixture(scope="session")
def model_dir(tiny, tmp_path_factory):
    """A tiny BERT of three sentiments with its tokenizer."""
    directory = tmp_path_factory.mktemp("model")
    tiny("bert", id2label=dict(enumerate(LABELS))).save_pretrained(directory)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    BertTokenizer(vocab={word: index for index, word in enumerate(vocabulary)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def model_of(tiny, tokenizer, tmp_path_factory):
    """`model_of(kind)`: the directory of a tiny BERT of this kind with its tokenizer, which is made once."""

    @cache
    def make(kind):
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
def reviews(tmp_path_factory):
    """100 labelled rows with the columns body and stars."""
    rng = random.Random(0)
    rows = [
        {"body": " ".join(rng.choices(WORDS, k=rng.randint(1, 20))), "stars": rng.choice(LABELS)} for _ in range(100)
    ]
    path = tmp_path_factory.mktemp("rows") / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture(scope="session")
def names(model_of, made_texts, tmp_path_factory):
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
