"""Rescaled token embeddings: what changes within the block, and that nothing is left behind."""

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, ModelError
from uatlite.lab.evaluate.predict import rescaled_embeddings
from uatlite.model.load import model_hash
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample

ENCODED = {"input_ids": torch.tensor([[2, 7, 9, 4, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.long)}


@pytest.fixture
def model(tiny: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    return tiny("bert")


def test_it_is_the_model_with_other_embeddings(model: PreTrainedModel, tiny: Callable[..., PreTrainedModel]) -> None:
    other = tiny("bert")
    with torch.no_grad():
        other.get_input_embeddings().weight.mul_(2)
    config = UATConfig(samples=3)
    expected = sample(other, ENCODED, config).logits
    with rescaled_embeddings(model, 2.0):
        assert torch.allclose(sample(model, ENCODED, config).logits, expected, atol=1e-5)


def test_it_leaves_no_trace_also_after_an_error(model: PreTrainedModel) -> None:
    before, weights = sample(model, ENCODED).logits, model_hash(model)
    with rescaled_embeddings(model, 4.0):
        assert not torch.equal(sample(model, ENCODED).logits, before)
    with pytest.raises(ModelError), rescaled_embeddings(model, 4.0):
        raise ModelError
    assert torch.equal(sample(model, ENCODED).logits, before)
    assert model_hash(model) == weights
    assert not model.get_input_embeddings()._forward_hooks


def test_a_factor_of_nothing_is_refused(model: PreTrainedModel) -> None:
    with pytest.raises(ConfigurationError, match="factor=0"), rescaled_embeddings(model, 0):
        pass
