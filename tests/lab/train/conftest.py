"""A tiny backbone on disk and two small data sets that can be told apart."""

import pytest
from safetensors.torch import load_file
from transformers import BertTokenizer

from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.values import Dataset, Example, Span, Words

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "good", "bad"]


def rows(split, count):
    """Sentences of several lengths whose label is whether they say 'good' or 'bad'."""
    examples = []
    for index in range(count):
        label = index % 2
        filler = " ".join("abcdefghij"[(index * step) % 10] for step in range(1, 2 + index % 5))
        examples.append(Example(f"{split}{index}", f"{filler} {('bad', 'good')[label]}", label))
    return Dataset("toy", split, ("negative", "positive"), tuple(examples), f"{count} toy rows")


@pytest.fixture(scope="session")
def backbone(tiny, tmp_path_factory):
    """A tiny BERT without a head, with its tokenizer."""
    directory = tmp_path_factory.mktemp("backbone")
    tiny("bert").base_model.save_pretrained(directory)
    BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def train():
    return rows("train", 48)


@pytest.fixture(scope="session")
def job(backbone, train):
    """Twelve steps, which do not learn much."""
    return TrainingJob(backbone, train, recipe=Recipe(learning_rate=3e-3, warmup_steps=2, batch_size=8, epochs=2))


@pytest.fixture(scope="session")
def unseen():
    return rows("unseen", 20)


@pytest.fixture(scope="session")
def tagged():
    """'good b' and 'bad' are entities of two types, wherever they stand."""
    examples = []
    for index in range(48):
        spans, text = [], ""
        for step in range(index, index + 2 + index % 5):
            written = ("good b", "bad", "cde"[(step - index) % 3])[step % 3]
            if step % 3 < 2:
                spans.append(Span(len(text), len(text) + len(written), ("G", "B")[step % 3]))
            text += f"{written} "
        examples.append(Example(str(index), Words(tuple(text.split())), entities=tuple(spans)))
    return Dataset("toy", "train", ("B", "G"), tuple(examples), "toy rows")


@pytest.fixture(scope="session")
def labelled():
    """A text has the label 'good' if the word is in it, and likewise 'bad'; some have both, some none."""
    examples = []
    for index in range(48):
        words = ["good"] * (index % 2) + ["bad"] * (index // 2 % 2) + list("abcde")[: 1 + index % 4]
        labels = tuple(place for place, word in enumerate(("bad", "good")) if word in words)
        examples.append(Example(str(index), " ".join(words), labels=labels))
    return Dataset("toy", "train", ("bad", "good"), tuple(examples), "toy rows")


@pytest.fixture(scope="session")
def stop_after():
    """What ends a run, as Ctrl-C does, after so many steps."""

    def stopping(steps):
        seen = []

        def advance(done):
            seen.append(done)
            if sum(seen) >= steps:
                raise KeyboardInterrupt

        return advance

    return stopping


@pytest.fixture(scope="session")
def same_weights():
    """Whether two directories hold the same tensors, those of a method too."""

    def tensors(directory):
        files = {path.name: load_file(path) for path in directory.glob("*.safetensors")}
        return {(file, name): tensor.numpy().tobytes() for file in files for name, tensor in files[file].items()}

    return lambda first, second: tensors(first) == tensors(second)
