"""A classifier to score with, in small blocks; and a Ray of two processes on this machine, with a file to score."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifiers import UncertaintyClassifier, UncertaintyLabeler, UncertaintyTagger
from uatlite.classifier.settings import Settings
from uatlite.scoring import source

BLOCK = 16
"""Rows of a block in these tests, so that a few dozen rows are several of them."""


@pytest.fixture
def classifier(saved: Path) -> UncertaintyClassifier:
    """The saved classifier, loaded."""
    return UncertaintyClassifier.from_pretrained(saved)


MANY = "multi_label_classification"
TAGS = {0: "O", 1: "B-person", 2: "I-person", 3: "B-place", 4: "I-place"}


@pytest.fixture(scope="session")
def several(
    tiny: Callable[..., PreTrainedModel],
    tokenizer: BertTokenizer,
    made_texts: Callable[..., list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """The directories of a calibrated tagger, "entities", and of a calibrated labeler, "labels"."""
    directory, texts = tmp_path_factory.mktemp("several"), made_texts(80)
    model = tiny("bert", tokens=True, num_labels=5, id2label=TAGS)
    model.classifier.weight.data *= 5  # sure of what it says, and of no entity more often than not
    model.classifier.bias.data[0] += 5.0
    tagger = UncertaintyTagger(model, tokenizer, "base")
    found = enumerate(tagger.predict(texts))
    gold = [[(e.start, e.end, e.label) for e in one.entities if (row + e.start) % 4] for row, one in found]
    tagger.calibrate(texts, gold).save_pretrained(directory / "entities")
    labeler = UncertaintyLabeler(tiny("bert", num_labels=4, problem_type=MANY), tokenizer, "base")
    noise = np.random.default_rng(0).random((80, 4)) < 0.2
    labeler.calibrate(texts, (labeler.predict(texts).logits > 0) ^ noise).save_pretrained(directory / "labels")
    return {name: directory / name for name in ("entities", "labels")}


@pytest.fixture
def several_rows(made_texts: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Path]:
    """`several_rows(kind, count)`: a JSONL file of words or texts, and three rows that cannot be scored."""

    def write(kind: str, count: int) -> Path:
        of_text: dict[str, Callable[[str], dict[str, object]]] = {
            "entities": lambda text: {"tokens": text.split()},
            "labels": lambda text: {"text": text},
        }
        lines = [json.dumps({"id": f"r{n}", **of_text[kind](text)}) for n, text in enumerate(made_texts(count, seed=3))]
        broken = {"entities": ['{"tokens": []}', '{"tokens": ["a1", ""]}'], "labels": ['{"text": ""}', '{"text": 3}']}
        path = tmp_path / f"{kind}.jsonl"
        path.write_text("\n".join([*lines[:5], *broken[kind], "{broken", *lines[5:]]) + "\n")
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of `BLOCK` rows."""
    monkeypatch.setattr(source.blocks, "__defaults__", (BLOCK, source.BLOCK_CHARACTERS))
    return BLOCK


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], list[object]]:
    """`counted(function)`: a list that gets the last positional argument of each call, wherever it was imported."""

    def count(function: Callable[..., Any]) -> list[object]:
        calls: list[object] = []

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(args[-1])
            return function(*args, **options)

        owners = [module for module in [json, *sys.modules.values()] if module.__name__.startswith(("uatlite", "json"))]
        for owner in [*owners, Settings]:
            if vars(owner).get(function.__name__) is function:
                monkeypatch.setattr(owner, function.__name__, counting)
        return calls

    return count


NOT_TESTED = "ray is not installed, so scoring on a cluster is NOT tested: pip install 'uatlite[ray]'"


@pytest.fixture(scope="module")
def cluster_here() -> Iterator[None]:
    """Two workers' worth of Ray; `uatlite.scoring` finds that it is connected and starts none of its own."""
    ray = pytest.importorskip("ray", reason=NOT_TESTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # workers are otherwise the last to run on a busy machine
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
        )
        yield
        ray.shutdown()


@pytest.fixture
def rows_to_score(made_texts: Callable[..., list[str]], tmp_path: Path) -> Callable[[int], Path]:
    """`rows_to_score(rows)`: a CSV file of random texts with ids r0, r1, ... and a column to keep."""

    def write(rows: int) -> Path:
        path = tmp_path / "in.csv"
        lines = [f"r{place},{text},{place % 5}" for place, text in enumerate(made_texts(rows))]
        path.write_text("\n".join(["id,text,stars", *lines]) + "\n")
        return path

    return write


@pytest.fixture(scope="session")
def descendants() -> Callable[..., list[int]]:
    """`descendants(pid, named="")`: processes that a process started, and theirs, whose command line has that name."""

    def find(ancestor: int, named: str = "") -> list[int]:
        parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
        found = [pid for pid in parents if ancestor in _line(pid, parents)]
        return [pid for pid in found if named in _command(pid)]

    return find


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None  # gone meanwhile


def _line(pid: int, parents: dict[int, int]) -> list[int]:
    line = []
    while (pid := parents.get(pid, 0)) and pid not in line:
        line.append(pid)
    return line


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
