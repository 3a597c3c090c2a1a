"""Spellings of contenders, and which model each of them runs on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import BertTokenizer, PreTrainedModel

from uatlite.errors import ConfigurationError, ModelError
from uatlite.lab.evaluate.contenders import Models, parse_contender, parse_contenders
from uatlite.methods.registry import parse_method
from uatlite.model.load import Checkpoint
from uatlite.model.weights import MethodWeights, attach


@pytest.mark.parametrize(
    ("spelt", "method", "calibrator", "canonical"),
    [
        ("base", "base", "none", "base"),
        ("ts", "base", "temperature", "base+ts"),
        ("isotonic", "base", "isotonic", "base+isotonic"),
        ("uat+ts", "uat", "temperature", "uat+ts"),
        ("mc+temperature", "mc-uniform", "temperature", "mc-uniform+ts"),
        ("uat:gate=k,penalty=1.0+platt", "uat:penalty=1.0,gate=k", "platt", "uat:penalty=1.0,gate=k+platt"),
        ("uat:uncertainty=cv+ln", "uat:uncertainty=cv+ln", "none", "uat:uncertainty=cv+ln"),
        ("uat:uncertainty=cv+ln+ts", "uat:uncertainty=cv+ln", "temperature", "uat:uncertainty=cv+ln+ts"),
        ("analytic+its", "analytic", "input-temperature", "analytic+its"),
        ("uat+none", "uat", "none", "uat"),
    ],
)
def test_a_contender_is_a_method_and_a_calibrator(spelt: str, method: str, calibrator: str, canonical: str) -> None:
    contender = parse_contender(spelt)
    assert (contender.method.name, contender.calibrator, contender.name) == (method, calibrator, canonical)
    assert parse_contender(canonical) == contender


def test_a_list_keeps_the_commas_of_settings_and_drops_repetitions() -> None:
    found = parse_contenders("base, ts,uat:gate=k,penalty=1.0+ts,mc,mc-uniform")
    assert [contender.name for contender in found] == ["base", "base+ts", "uat:penalty=1.0,gate=k+ts", "mc-uniform"]


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("uat+tz", r"There is no calibrator 'tz' \(in 'uat\+tz'\).*Did you mean 'ts'"),
        ("uta+ts", "There is no method 'uta'.*Did you mean 'uat'"),
        ("base+its", "needs the margin's variance.*base runs one pass"),
        ("uat:samples=1+its", "needs the margin's variance"),
        (" , ", "names no method"),
    ],
)
def test_misspellings_are_explained(spelt: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_contenders(spelt)


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
