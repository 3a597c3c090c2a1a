"""A data directory of a few made rows of every task, and a tiny random backbone that reads their words."""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.lab.evaluate.cells import Cell
from uatlite.lab.paper.claims import Reproduction
from uatlite.lab.paper.declaration import NAMES
from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.lab.paper.write import PaperReport, write_reproduction
from uatlite.lab.train.recipe import Recipe
from uatlite.text.schema import find_task

WORDS = """a b c d e f g h i j k l m n o p good bad not no may might glucose the film is it true that patient did
respond positively to treatment was bank two excellent stable .""".split()  # noqa: SIM905 - reads better as text
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NLI = ("entailment", "neutral", "contradiction")
HEURISTICS = ("lexical_overlap", "subsequence", "constituent")

Row = dict[str, Any]


def _sentence(rng: random.Random, said: int) -> str:
    """Words at random, and one that gives the label away most of the time."""
    words = rng.choices([*WORDS[:16], "not", "may", "two", "glucose"], k=rng.randint(2, 6))
    if rng.random() < 0.8:
        words.insert(rng.randrange(len(words)), ("good", "bad", "film")[said])
    return " ".join(words)


def _rows(count: int, labels: tuple[str, ...], make: Callable[[random.Random, int], Row], seed: int) -> Iterator[Row]:
    rng = random.Random(seed)
    for place in range(count):
        said = place % len(labels)
        yield {"id": f"{seed}-{place}", "label": labels[said], **make(rng, said)}


def _text(rng: random.Random, said: int) -> Row:
    return {"text": _sentence(rng, said)}


def _intent(rng: random.Random, said: int) -> Row:
    return {"text": _sentence(rng, said) if said < 3 else " ".join(rng.choices(("patient", "bank", "true"), k=4))}


def _pair(rng: random.Random, said: int) -> Row:
    return {"text_a": _sentence(rng, said), "text_b": _sentence(rng, said)}


def _heuristic(rng: random.Random, said: int) -> Row:
    return {**_pair(rng, said), "heuristic": rng.choice(HEURISTICS)}


def _question(rng: random.Random, said: int) -> Row:
    return {"question": _sentence(rng, said), "context": _sentence(rng, said), "title": f"t{rng.randrange(12)}"}


def _choice(rng: random.Random, said: int) -> Row:
    options = {letter: _sentence(rng, int(place == said)) for place, letter in enumerate("ABCD")}
    return {"question": _sentence(rng, 0), "options": options}


INTENTS = (*find_task("clinc150").labels[:3], "oos")

# file -> its labels, and how a row is made; squad2 and medqa have no training rows, as in many copies of them
FILES: dict[str, tuple[tuple[str, ...], Callable[[random.Random, int], Row]]] = {
    **dict.fromkeys(("sst2/train", "sst2/dev", "imdb/test"), (("negative", "positive"), _text)),
    **dict.fromkeys(("mnli/train", "mnli/dev_matched", "mnli/dev_mismatched", "anli/test", "snli/test"), (NLI, _pair)),
    "hans/test": (("entailment", "non-entailment"), _heuristic),
    "squad2/dev": (("answerable", "unanswerable"), _question),
    **dict.fromkeys(("medqa/dev", "medqa/test"), (("A", "B", "C", "D"), _choice)),
    **dict.fromkeys(("clinc150/train", "clinc150/dev", "clinc150/test"), (INTENTS, _intent)),
    **dict.fromkeys(("pubmedqa/train", "pubmedqa/test"), (("yes", "no", "maybe"), _question)),
}


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 rows of every file, and more of the one that has to serve for training too."""
    directory = tmp_path_factory.mktemp("data")
    for seed, (name, (labels, row_of)) in enumerate(FILES.items()):
        path = directory / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            count = 200 if name == "squad2/dev" else 120
            file.writelines(json.dumps(row) + "\n" for row in _rows(count, labels, row_of, seed))
    return directory


@pytest.fixture(scope="session")
def backbone(tiny: Callable[..., PreTrainedModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT without a head, with its tokenizer."""
    directory = tmp_path_factory.mktemp("backbone")
    tiny("bert").base_model.save_pretrained(directory)
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    BertTokenizer(vocab=vocabulary).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def settings(backbone: Path, data_dir: Path) -> Settings:
    """Few rows, one epoch, one seed."""
    return Settings(
        backbone=str(backbone),
        data_dir=data_dir,
        seeds=1,
        limit=24,
        train_limit=32,
        recipe=Recipe(learning_rate=1e-2, warmup_steps=1, batch_size=16, epochs=1, max_length=32),
        resamples=20,
    )


class ProgressRecorder:
    """A progress display that keeps what it shows."""

    def __init__(self) -> None:
        self.work = 0.0
        self.done = 0.0
        self.parts: list[str] = []
        self.steps: list[str] = []
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)
        assert not [step for step in self.steps if step.startswith("fine-tuning")]  # said before anything is trained

    def begin_all(self, total: float) -> None:
        self.work = total

    def begin(self, stage: str, total: float) -> None:
        self.parts.append(stage)

    def step(self, what: str) -> None:
        self.steps.append(what)

    def advance(self, amount: float) -> None:
        self.done += amount


@pytest.fixture(scope="session")
def recorder() -> type[ProgressRecorder]:
    """The class of a progress display that keeps what it shows."""
    return ProgressRecorder


@dataclass(frozen=True)
class Whole:
    """`reproduce all`, made once for all tests."""

    report: PaperReport
    display: ProgressRecorder
    directory: Path

    def table(self, name: str) -> Reproduction:
        return next(table for table in self.report.tables if table.declaration.name == name)

    def cell(self, name: str, panel: int, row: str, column: str) -> Cell:
        return self.table(name).grids[panel].cells[row, column]


@pytest.fixture(scope="session")
def whole(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    directory, display = tmp_path_factory.mktemp("made"), ProgressRecorder()
    return Whole(write_reproduction(NAMES, directory, settings, display), display, directory)
