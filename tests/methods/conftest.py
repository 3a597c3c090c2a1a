"""Tiny models that were trained for each method that needs it, for texts and for multiple choice."""

from dataclasses import replace
from functools import cache

import pytest

from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.methods import METHOD_TRAININGS
from uatlite.lab.train.recipe import Recipe
from uatlite.lab.train.recipe import TrainingJob as Job
from uatlite.model.load import load_checkpoint
from uatlite.values import Choices, Dataset, Example

QUICK = Recipe(learning_rate=2e-3, warmup_steps=1, batch_size=4, epochs=1)  # 10 steps: two for each snapshot
LABELS = ("a", "b", "c")


def text_of(number):
    return " ".join(f"a{(number * step) % 50}" for step in range(1, 3 + number % 4))


def rows(*, choices):
    options = tuple(f"a{number}" for number in range(4))
    texts = [Choices(str(text_of(i)), options) if choices else text_of(i) for i in range(40)]
    labels = ("A", "B", "C", "D") if choices else LABELS
    examples = [Example(str(i), text, i % len(labels)) for i, text in enumerate(texts)]
    return Dataset("toy", "train", labels, tuple(examples), "toy rows")


@pytest.fixture(scope="session")
def job_from():
    """`job_from(backbone, **changes)`: a quick training of a backbone, with a changed recipe."""
    return lambda backbone, **changes: Job(backbone, rows(choices=False), recipe=replace(QUICK, **changes))


@pytest.fixture(scope="session")
def trained(tiny, tokenizer, tmp_path_factory):
    """`trained(key, choices=False)`: the directory of a tiny BERT that was trained for a method, made once."""
    backbone = tmp_path_factory.mktemp("backbone")
    tiny("bert").base_model.save_pretrained(backbone)
    tokenizer.save_pretrained(backbone)

    @cache
    def train(key, choices=False):
        directory = tmp_path_factory.mktemp(key)
        fine_tune(Job(backbone, rows(choices=choices), recipe=QUICK), directory, METHOD_TRAININGS[key])
        return directory

    return train


@pytest.fixture(scope="session")
def model_for(shared, trained):
    """`model_for(method, choices=False)`: a tiny BERT that the method runs on, which no test may change."""

    @cache
    def load(key, choices):
        return load_checkpoint(trained(key, choices), device="cpu").model

    def find(method, choices=False):
        return load(method.name, choices) if method.trained else shared("bert", choices=choices)

    return find
