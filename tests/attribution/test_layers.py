"""Layer attribution on tiny models of every architecture."""

from dataclasses import replace

import pytest
import torch

from uatlite.attribution.first_order import Case, output_weights, without_noise
from uatlite.attribution.layers import ESTIMATORS, attribute
from uatlite.errors import ConfigurationError
from uatlite.model.view import dropout_sites
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.engine import sample

CONFIG = UATConfig(rates=DropoutRates(classifier=0.1))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_one_text_has_one_attribution_in_any_batch(model, texts, side, estimator):
    encoded = texts((9, 5, 7), side=side, tokens=11)
    together = attribute(model, encoded, CONFIG, estimator=estimator, samples=2)
    layers = int(model.config.num_hidden_layers)
    assert together.contributions.shape == (3, layers + 2) == (3, len(together.layers))
    assert together.components.shape == (3, layers, 2)
    assert bool(torch.isfinite(together.contributions).all())
    assert bool((together.total > 0).all())
    for row, mask in enumerate(encoded["attention_mask"]):
        # A model that reads its first token gives another answer when that is padding: there padding has to stay.
        places = slice(0, int(mask.sum()) if mask[0] else len(mask))
        alone = {name: value[row : row + 1, places] for name, value in encoded.items()}
        single = attribute(model, alone, CONFIG, estimator=estimator, samples=2)
        scale = float(single.contributions.abs().max())
        torch.testing.assert_close(single.contributions[0], together.contributions[row], rtol=2e-3, atol=1e-4 * scale)
        torch.testing.assert_close(single.components[0], together.components[row], rtol=2e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("estimator", ["delta", "isolated"])
def test_contributions_are_not_negative(model, texts, estimator):
    found = attribute(model, texts((6, 4)), CONFIG, estimator=estimator, samples=5)
    assert bool((found.contributions >= 0).all())
    assert bool((found.components >= 0).all())
    torch.testing.assert_close(found.shares.sum(dim=-1), torch.ones(2))
    live = {site.component for site in dropout_sites(model)}
    assert bool((found.contributions[:, -1] > 0).all()) == ("classifier" in live)
    assert bool((found.contributions[:, :-1] > 0).all())


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("layer", [0, 1])
def test_noise_in_one_layer_alone_gets_all_the_variance(tiny, texts, estimator, layer):
    model = tiny("bert", rate=0.0)
    block = model.bert.encoder.layer[layer]
    block.attention.self.dropout.p = block.attention.output.dropout.p = block.output.dropout.p = 0.3
    config = UATConfig(gate="none", rates=DropoutRates.own())
    found = attribute(model, texts((6, 4)), config, estimator=estimator, samples=20)
    expected = torch.zeros(2, 4)
    expected[:, layer + 1] = 1
    torch.testing.assert_close(found.shares, expected)
    if estimator == "total-variance":
        errors = found.contribution_errors
        assert bool(((found.contributions.sum(dim=1) - found.total).abs() < 4 * errors[:, layer + 1]).all())


@pytest.mark.parametrize("architecture", ["bert", "albert", "gpt2"], indirect=True)
def test_contributions_sum_to_the_variance_of_plain_passes(model, texts):
    batch, samples = texts((7, 5)), 400
    config = replace(CONFIG, estimate="closed-form")
    found = attribute(model, batch, config, estimator="total-variance", samples=samples)
    other = sample(model, batch, replace(config, seed=1, samples=1000)).logits
    weights = output_weights("predicted", without_noise(Case.of(model, batch, config))[0])
    variance = (other * weights).sum(dim=-1).var(dim=0)
    # 800 passes gave the total and 1,000 others the variance; the sum is the variance of 400 of them less the
    # covariance with 400 unrelated ones, which is 0 up to about variance/√400.
    assert bool(((found.total - variance).abs() < 4 * 2**0.5 * found.total_error).all())
    bound = 4 * (3 * found.total_error**2 + variance**2 / samples) ** 0.5
    assert bool(((found.contributions.sum(dim=1) - variance).abs() < bound).all())


@pytest.mark.parametrize("estimator", ["isolated", "total-variance"])
def test_layers_are_the_same_without_their_components(shared, texts, estimator):
    model, batch = shared("bert"), texts((6, 4))
    whole = attribute(model, batch, CONFIG, estimator=estimator, samples=12, components=False)
    split = attribute(model, batch, CONFIG, estimator=estimator, samples=12)
    assert whole.components is None
    torch.testing.assert_close(whole.contributions, split.contributions, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(whole.contribution_errors, split.contribution_errors, rtol=1e-4, atol=1e-6)
    if estimator == "total-variance":
        torch.testing.assert_close(split.components.sum(-1), split.contributions[:, 1:-1], rtol=1e-4, atol=1e-6)


def test_isolated_is_the_variance_when_other_rates_are_zero(tiny, texts):
    model, batch = tiny("bert", rate=0.2), texts((6, 4))
    config = UATConfig(gate="none", rates=DropoutRates(embedding=0.2, attention=0, feed_forward=0, classifier=0))
    all_on = UATConfig(gate="none", rates=DropoutRates.own())
    found = attribute(model, batch, all_on, estimator="isolated", samples=50)
    plain = sample(model, batch, replace(config, samples=50)).logits
    weights = output_weights("predicted", without_noise(Case.of(model, batch, all_on))[0])
    expected = (plain * weights).sum(dim=-1).var(dim=0)
    torch.testing.assert_close(found.contributions[:, 0], expected, rtol=1e-3, atol=0)


def test_gates_change_what_is_attributed_and_stay_on_when_the_embedding_is_silent(tiny, texts):
    model, batch = tiny("bert"), texts((6, 4))
    gated = attribute(model, batch, replace(CONFIG, penalty=2.0), estimator="isolated", samples=20)
    plain = attribute(model, batch, replace(CONFIG, gate="none"), estimator="isolated", samples=20)
    assert bool(((gated.contributions - plain.contributions)[:, 1:3].abs() > 1e-3 * plain.contributions[:, 1:3]).all())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"estimator": "exact"}, "estimator='exact' is not one of"),
        ({"samples": 1}, "samples=1 is not"),
        ({"output": "logit"}, "output='logit' is not one of"),
        ({"output": 3}, "output=3 is no class.*0 to 2"),
        ({"output": (1, 1)}, r"output=\(1, 1\) is no class.*no two of them"),
        ({"config": UATConfig(estimate="layerwise")}, "closed form of U.*gate='none'"),
        ({"config": UATConfig(uncertainty="mean-std+ln")}, "closed form of U.*gate='none'"),
        ({"config": UATConfig(gate="none", rates=DropoutRates.none())}, r"no variance to attribute.*DropoutRates"),
        ({"config": UATConfig(gate="none", rates=DropoutRates.own())}, "nothing samples"),
    ],
)
def test_settings_are_checked(tiny, texts, setting, message):
    with pytest.raises(ConfigurationError, match=message):
        attribute(tiny("bert", rate=0.0), texts((4,)), **setting)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_choices_are_attributed_too(chooser, choices, estimator):
    found = attribute(chooser, choices, CONFIG, estimator=estimator, samples=3)
    alone = attribute(chooser, {k: v[1:] for k, v in choices.items()}, CONFIG, estimator=estimator, samples=3)
    assert found.contributions.shape == (2, 4)
    scale = float(found.contributions.abs().max())
    torch.testing.assert_close(found.contributions[1:], alone.contributions, rtol=2e-3, atol=1e-4 * scale)
    if estimator == "delta":
        assert found.tokens.shape == choices["input_ids"].shape
        torch.testing.assert_close(found.tokens[1:], alone.tokens, rtol=1e-3, atol=1e-5)
    assert found.layers == ("embeddings", "layer 1", "layer 2", "head")
    assert (found.contribution_errors is None) == (estimator == "delta")


@pytest.mark.parametrize(
    ("output", "expected"), [("predicted", (1.5, 3.0)), ("margin", (1.0, 1.0)), (0, (-1.5, 3.0)), ((0, 2), (-1.0, 1.0))]
)
def test_outputs_are_contrasts(output, expected):
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 0.0, 4.0]])
    torch.testing.assert_close((output_weights(output, logits) * logits).sum(-1), torch.tensor(expected))
