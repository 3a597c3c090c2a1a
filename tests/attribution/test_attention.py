"""The shift of attention under modulation."""

import json

import pytest
import torch

from uatlite.attribution.attention import attention_shift
from uatlite.errors import ConfigurationError
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.engine import sample

NEVER = 1e-12
"""A rate at which no unit is dropped in practice, though U in closed form is not 0: |e|·1e-6."""
CONFIG = UATConfig(samples=3, estimate="closed-form", penalty=0.5e6, rates=DropoutRates(NEVER, NEVER, NEVER, NEVER))


def test_rows_are_distributions_and_shifts_sum_to_zero(model, encoded):
    found = attention_shift(model, encoded, UATConfig(samples=4, penalty=2.0))
    real = encoded["attention_mask"].bool()
    layers, heads = int(model.config.num_hidden_layers), int(model.config.num_attention_heads)
    assert found.plain.shape == (layers, 3, heads, real.shape[1], real.shape[1])
    for weights in (found.plain, found.modulated):
        rows = weights.sum(dim=-1)
        torch.testing.assert_close(rows, real[None, :, None].expand_as(rows).float(), atol=1e-4, rtol=0)
    assert float(found.difference.sum(dim=-1).abs().max()) < 1e-4
    assert float(found.difference.abs().max()) > 1e-3


@pytest.mark.parametrize("architecture", ["bert", "roberta", "albert", "gpt2", "llama", "mpnet"], indirect=True)
def test_plain_attention_is_the_model_s_own(model, texts):
    batch = texts((6, 6))
    own = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            expected = torch.stack(model(**batch, output_attentions=True).attentions)
    finally:
        model.set_attn_implementation(own)
    torch.testing.assert_close(attention_shift(model, batch, CONFIG).plain, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "mpnet"], indirect=True)
def test_the_first_layer_is_flattened_by_its_gates(model, texts):
    """softmax(g_i·a_ij) is p_ij^g_i, normalised, with g_i = e^{-λU_i}."""
    batch = texts((6, 6))
    found = attention_shift(model, batch, CONFIG)
    gate = torch.exp(-CONFIG.penalty * sample(model, batch, CONFIG).token_uncertainty)
    assert float(gate.max()) < 0.95
    powers = found.plain[0] ** gate[:, None, :, None]
    torch.testing.assert_close(found.modulated[0], powers / powers.sum(dim=-1, keepdim=True), atol=1e-5, rtol=1e-4)


def test_a_layer_and_a_head_or_the_mean_over_all_is_one_map(shared, texts):
    found = attention_shift(shared("bert"), texts((5, 4)), UATConfig(samples=3))
    assert found.chosen().difference.shape == (1, 2, 1, 5, 5)
    torch.testing.assert_close(found.chosen().difference[0, :, 0], found.difference.mean(dim=(0, 2)))
    assert torch.equal(found.chosen(layer=2, head=3).plain[0, :, 0], found.plain[1, :, 2])
    torch.testing.assert_close(found.chosen(layer=1).modulated[0, :, 0], found.modulated[0].mean(dim=1))
    assert set(json.loads(json.dumps(found.to_dict()))) == {"plain", "modulated", "difference"}
    with pytest.raises(ConfigurationError, match=r"layer=0 is not one of this model's, which has layers 1 to 2"):
        found.chosen(layer=0)
    with pytest.raises(ConfigurationError, match=r"head=5 .* heads 1 to 4"):
        found.chosen(head=5)


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"], indirect=True)
def test_without_sampling_it_is_the_pass_in_which_nothing_is_dropped(model, texts):
    batch = texts((6, 4))
    found, expected = (attention_shift(model, batch, CONFIG, sampled=sampled) for sampled in (False, True))
    torch.testing.assert_close(found.plain, expected.plain, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.modulated, expected.modulated, atol=1e-5, rtol=0)
    assert float(found.difference.abs().max()) > 1e-3
    quiet = [attention_shift(model, batch, UATConfig(seed=seed), sampled=False).modulated for seed in (0, 1)]
    assert torch.equal(*quiet)


def test_layerwise_estimates_and_choices_run(chooser, choices):
    found = attention_shift(chooser, choices, UATConfig(samples=3, estimate="layerwise"))
    assert found.plain.shape == (2, 2, 4, 4, 9, 9)


def test_nothing_to_show_is_an_error(shared, texts):
    with pytest.raises(ConfigurationError, match=r"gate='none'.*modulates nothing"):
        attention_shift(shared("bert"), texts((4,)), UATConfig(gate="none"))
