"""Which model a method of an evaluation runs on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import BertTokenizer, PreTrainedModel

from uatlite.errors import ConfigurationError, ModelError
from uatlite.lab.evaluate.contenders import Models
from uatlite.methods.registry import parse_method
from uatlite.model.load import Checkpoint
from uatlite.model.weights import MethodWeights, attach

Make = Callable[..., Checkpoint]


@pytest.fixture
def make(tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer) -> Make:
    """`make(name, method=None)`: a checkpoint, with weights for a method."""

    def checkpoint(name: str, method: str | None = None) -> Checkpoint:
        model: Any = tiny("bert")
        if method is not None:
            attach(model, MethodWeights(method, {"some": torch.zeros(1)}))
        return Checkpoint(name, model, tokenizer)

    return checkpoint


def test_each_method_runs_on_the_model_that_was_trained_for_it(make: Make) -> None:
    models = Models.of([make("swag-dir", "swag"), make("plain-dir"), make("ens-dir", "ensemble")])
    names = {name: models.of_method(parse_method(name)).name for name in ("base", "uat", "swag:samples=3", "ensemble")}
    assert names == {"base": "plain-dir", "uat": "plain-dir", "swag:samples=3": "swag-dir", "ensemble": "ens-dir"}


def test_a_trained_model_alone_is_also_the_plain_one(make: Make) -> None:
    models = Models.of([make("swag-dir", "swag")])
    assert {models.of_method(parse_method(name)).name for name in ("base", "swag")} == {"swag-dir"}


def test_what_is_missing_or_there_twice_is_named(make: Make) -> None:
    models = Models.of([make("plain-dir"), make("swag-dir", "swag")])
    with pytest.raises(ModelError, match=r"ensemble needs a model .* trained for swag.*train --method ensemble"):
        models.of_method(parse_method("ensemble"))
    with pytest.raises(ConfigurationError, match="a and b are both trained for swag"):
        Models.of([make("a", "swag"), make("b", "swag")])
    with pytest.raises(ConfigurationError, match="a, b are all plain models"):
        Models.of([make("a"), make("b")])
