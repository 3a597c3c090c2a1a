"""A tiny checkpoint with a tokenizer, and data sets made of its words."""

import json
import random

import pytest
from transformers import BertTokenizer

from uatlite.lab.evaluate.plan import Plan, SetChoice, parse_contenders
from uatlite.lab.evaluate.runs import Prepared
from uatlite.metrics.intervals import Resampling
from uatlite.model.load import load_checkpoint
from uatlite.text.labels import Alignment
from uatlite.text.schema import Layout, Split, Task
from uatlite.values import Dataset, Example

LABELS = ("negative", "neutral", "positive")
WORDS = [f"w{number}" for number in range(50)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
FEW = Resampling(resamples=50)
TASK = Task(
    name="made",
    title="made",
    labels=(*LABELS, "oos"),
    layout=Layout(),
    splits={split: Split((split,)) for split in ("train", "calibration", "test")},
    out_of_scope="oos",
)


def write(path, data, outside=0):
    """The rows as a JSONL file; the last `outside` ones, of few words, are labelled oos."""
    lines = [{"text": example.text, "label": LABELS[example.label or 0]} for example in data.examples]
    rng = random.Random(9)
    lines += [
        {"text": " ".join(rng.choices(["w0", "w1"], k=rng.randint(5, 15))), "label": "oos"} for _ in range(outside)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def make_dataset(rows, *, split="test", seed=0):
    """Random texts of 1 to 20 words with random labels."""
    rng = random.Random(seed)
    examples = tuple(
        Example(f"{split}-{row}", " ".join(rng.choices(WORDS, k=rng.randint(1, 20))), rng.randrange(3))
        for row in range(rows)
    )
    return Dataset("made", split, LABELS, examples, source="made in a test")


@pytest.fixture(scope="session")
def checkpoint_dir(tiny, tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    tiny("bert", id2label=dict(enumerate(LABELS))).save_pretrained(directory)
    BertTokenizer(vocab={word: index for index, word in enumerate(VOCABULARY)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def checkpoint(checkpoint_dir):
    return load_checkpoint(checkpoint_dir, device="cpu")


@pytest.fixture(scope="session")
def dataset():
    """`dataset(rows, split="test", seed=0)`."""
    return make_dataset


@pytest.fixture(scope="session")
def prepared(checkpoint):
    """Eighty rows: five pieces of sixteen."""
    own_order = Alignment(((0,), (1,), (2,)), LABELS, "labels in the model's order")
    return Prepared(checkpoint, make_dataset(80), own_order, "made")


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    """120 made rows as a file of the user's."""
    return write(tmp_path_factory.mktemp("data") / "reviews.jsonl", make_dataset(120, seed=1))


@pytest.fixture(scope="session")
def mixed_plan(tmp_path_factory):
    """Rows in scope and out of scope in every split: 90 and 5, 70 and 4, 60 and 25."""
    directory, test = tmp_path_factory.mktemp("data"), SetChoice(TASK)
    for seed, (split, inside, outside) in enumerate((("train", 90, 5), ("calibration", 70, 4), ("test", 60, 25)), 1):
        write(directory / f"{split}.jsonl", make_dataset(inside, seed=seed), outside)
    methods, metrics = parse_contenders("base,ts,uat:samples=2"), ("nll", "aurc")
    return Plan(methods, test, out_of_scope=test, seeds=2, data_dir=directory, metrics=metrics, resampling=FEW)


@pytest.fixture(scope="session")
def strange_file(tmp_path_factory):
    """Thirty texts in the column `question`, and nothing else."""
    rng = random.Random(4)
    texts = [{"question": " ".join(rng.choices(["w2", "w3"], k=rng.randint(5, 15)))} for _ in range(30)]
    path = tmp_path_factory.mktemp("strange") / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, texts)))
    return path
