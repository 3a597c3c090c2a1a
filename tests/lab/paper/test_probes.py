"""What runs a model itself: groups of layers, weighted correlations, and rescaled embeddings, which leave no trace."""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from uatlite.errors import ConfigurationError, ModelError
from uatlite.lab.evaluate.models import rescaled_embeddings
from uatlite.lab.paper.probes import layers_of, weighted_correlation
from uatlite.model.load import model_hash
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample


@pytest.mark.parametrize(("layers", "sizes"), [(12, (4, 4, 3)), (3, (1, 1, 0)), (2, (1, 0, 0)), (6, (2, 2, 1))])
def test_layers_fall_into_thirds(layers, sizes):
    groups = [layers_of(name, layers) for name in ("embeddings", "early", "middle", "late", "output")]
    assert tuple(map(len, groups[1:4])) == sizes
    assert sorted(place for one in groups for place in one) == list(range(layers + 2))


def test_a_weighted_correlation_is_that_of_repeated_tokens():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40))
    counts = rng.integers(0, 4, size=(5, 40)).astype(float)
    expected = [pearsonr(np.repeat(x, row.astype(int)), np.repeat(y, row.astype(int))).statistic for row in counts]
    assert weighted_correlation(x, y, counts) == pytest.approx(expected)


# ── rescaled embeddings ──

ENCODED = {"input_ids": torch.tensor([[2, 7, 9, 4, 3]]), "attention_mask": torch.ones(1, 5, dtype=torch.long)}


@pytest.fixture
def model(tiny):
    return tiny("bert")


def test_it_is_the_model_with_other_embeddings(model, tiny):
    other = tiny("bert")
    with torch.no_grad():
        other.get_input_embeddings().weight.mul_(2)
    config = UATConfig(samples=3)
    expected = sample(other, ENCODED, config).logits
    with rescaled_embeddings(model, 2.0):
        assert torch.allclose(sample(model, ENCODED, config).logits, expected, atol=1e-5)


def test_it_leaves_no_trace_also_after_an_error(model):
    before, weights = sample(model, ENCODED).logits, model_hash(model)
    with rescaled_embeddings(model, 4.0):
        assert not torch.equal(sample(model, ENCODED).logits, before)
    with pytest.raises(ModelError), rescaled_embeddings(model, 4.0):
        raise ModelError
    assert torch.equal(sample(model, ENCODED).logits, before)
    assert model_hash(model) == weights
    assert not model.get_input_embeddings()._forward_hooks
    with pytest.raises(ConfigurationError, match="factor=0"), rescaled_embeddings(model, 0):
        pass
