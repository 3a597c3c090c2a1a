"""A data directory of a few made rows of every task, and a tiny random backbone that reads their words."""

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from transformers import BertTokenizer

from reference import Recorded
from uatlite.lab.paper.claims import Reproduction
from uatlite.lab.paper.declaration import NAMES
from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.lab.paper.write import write_reproduction
from uatlite.text.schema import find_task

WORDS = """a b c d e f g h i j k l m n o p good bad not no may might glucose the film is it true that patient did
respond positively to treatment was bank two excellent stable .""".split()  # noqa: SIM905 - reads better as text
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NLI = ("entailment", "neutral", "contradiction")
HEURISTICS = ("lexical_overlap", "subsequence", "constituent")


def _sentence(rng, said):
    """Words at random, and one that gives the label away most of the time."""
    words = rng.choices([*WORDS[:16], "not", "may", "two", "glucose"], k=rng.randint(2, 6))
    if rng.random() < 0.8:
        words.insert(rng.randrange(len(words)), ("good", "bad", "film")[said])
    return " ".join(words)


FORMS = {
    "text": lambda rng, said: {"text": _sentence(rng, said)},
    "intent": lambda rng, said: {
        "text": _sentence(rng, said) if said < 3 else " ".join(rng.choices(("patient", "bank", "true"), k=4))
    },
    "pair": lambda rng, said: {"text_a": _sentence(rng, said), "text_b": _sentence(rng, said)},
    "heuristic": lambda rng, said: {**FORMS["pair"](rng, said), "heuristic": rng.choice(HEURISTICS)},
    "question": lambda rng, said: {
        "question": _sentence(rng, said), "context": _sentence(rng, said), "title": f"t{rng.randrange(12)}",
    },
    "choice": lambda rng, said: {
        "options": {letter: _sentence(rng, int(i == said)) for i, letter in enumerate("ABCD")},
        "question": _sentence(rng, 0),
    },
}  # fmt: skip
"""form -> how a row with this label is made"""
INTENTS = (*find_task("clinc150").labels[:3], "oos")
FILES = {
    **dict.fromkeys(("sst2/train", "sst2/dev", "imdb/test"), (("negative", "positive"), "text")),
    **dict.fromkeys(("mnli/train", "mnli/dev_matched", "mnli/dev_mismatched", "anli/test", "snli/test"), (NLI, "pair")),
    "hans/test": (("entailment", "non-entailment"), "heuristic"),
    "squad2/dev": (("answerable", "unanswerable"), "question"),
    **dict.fromkeys(("medqa/dev", "medqa/test"), (("A", "B", "C", "D"), "choice")),
    **dict.fromkeys(("clinc150/train", "clinc150/dev", "clinc150/test"), (INTENTS, "intent")),
    **dict.fromkeys(("pubmedqa/train", "pubmedqa/test"), (("yes", "no", "maybe"), "question")),
}
"""file -> its labels and the form of its rows; squad2 and medqa have no training rows, as in many copies of them"""


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """120 rows of every file, and more of the one that has to serve for training too."""
    directory = tmp_path_factory.mktemp("data")
    for seed, (name, (labels, form)) in enumerate(FILES.items()):
        path, rng = directory / f"{name}.jsonl.gz", random.Random(seed)
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            for i in range(200 if name == "squad2/dev" else 120):
                said = i % len(labels)
                row = {"id": f"{seed}-{i}", "label": labels[said], **FORMS[form](rng, said)}
                file.write(json.dumps(row) + "\n")
    return directory


@pytest.fixture(scope="session")
def backbone(tiny, tmp_path_factory):
    """A tiny BERT without a head, with its tokenizer."""
    directory = tmp_path_factory.mktemp("backbone")
    tiny("bert").base_model.save_pretrained(directory)
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    BertTokenizer(vocab=vocabulary).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def settings(backbone, data_dir):
    """Few rows, one epoch, one seed."""
    return Settings(
        backbone=str(backbone),
        data_dir=data_dir,
        seeds=1,
        limit=24,
        train_limit=32,
        recipe="paper",
        changes={"learning_rate": 1e-2, "warmup_steps": 1, "epochs": 1, "max_length": 32},
        resamples=20,
    )


@dataclass(frozen=True)
class Whole:
    """`reproduce all`, made once for all tests."""

    tables: list[Reproduction]
    display: Recorded
    directory: Path

    def table(self, name):
        return next(table for table in self.tables if table.declaration.name == name)

    def cell(self, name, panel, row, column):
        return self.table(name).grids[panel].cells[row, column]


@pytest.fixture(scope="session")
def whole(settings, tmp_path_factory):
    directory, display = tmp_path_factory.mktemp("made"), Recorded()
    return Whole(write_reproduction(NAMES, directory, settings, display), display, directory)
