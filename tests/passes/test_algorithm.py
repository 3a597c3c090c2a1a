"""The folded engine equals Algorithm 1 of the paper, run as a loop over passes, on the same masks."""

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample

RATES = DropoutRates(embedding=0.15, attention=0.2, feed_forward=0.3, classifier=0.25)
WITHOUT_ATTENTION = DropoutRates(embedding=0.15, attention=0.0, feed_forward=0.3, classifier=0.25)


def rates_for(architecture: str, estimate: str) -> DropoutRates:
    """DeBERTa drops relative positions by one mask a forward, so layerwise U needs its attention rate at 0."""
    return WITHOUT_ATTENTION if estimate == "layerwise" and architecture.startswith("deberta") else RATES


@pytest.mark.parametrize("estimate", ["lagged", "closed-form", "layerwise"])
def test_folded_passes_equal_the_loop(architecture, model, encoded, estimate, reference):
    config = UATConfig(samples=5, penalty=2.0, estimate=estimate, rates=rates_for(architecture, estimate), seed=7)
    logits, uncertainty = reference(model, architecture, encoded, config)
    out = sample(model, encoded, config)
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(out.token_uncertainty, uncertainty, rtol=0, atol=1e-5)
    assert out.logits.std(dim=0).min() > 1e-3


@pytest.mark.parametrize("masks", ["independent", "stratified"])
@pytest.mark.parametrize("architecture", ["bert", "albert", "deberta-v2", "llama"], indirect=True)
def test_own_rates_and_either_kind_of_mask(architecture, tiny, mixed, masks, reference):
    model = tiny(architecture, rate=0.2)
    rates = DropoutRates(embedding=0.2, attention=None, feed_forward=None, classifier=None)
    config = UATConfig(samples=4, penalty=2.0, rates=rates, masks=masks)
    logits, _ = reference(model, architecture, mixed, config)
    torch.testing.assert_close(sample(model, mixed, config).logits, logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("estimate", ["lagged", "layerwise"])
@pytest.mark.parametrize(
    "uncertainty", ["rms-std", "median-std", "cov-trace", "cv", "norm-cv", "mean-std+ln", "norm-cv+ln"]
)
@pytest.mark.parametrize("architecture", ["bert"], indirect=True)
def test_every_statistic_in_the_loop(architecture, model, mixed, estimate, uncertainty, reference):
    config = UATConfig(samples=5, gate="qk", uncertainty=uncertainty, estimate=estimate, rates=RATES)
    logits, u = reference(model, architecture, mixed, config)
    out = sample(model, mixed, config)
    torch.testing.assert_close(out.token_uncertainty, u, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.logits, logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert"], indirect=True)
def test_the_first_two_lagged_passes_run_unmodulated(model, mixed):
    gated, plain = UATConfig(samples=4, penalty=2.0), UATConfig(samples=4, gate="none")
    difference = (sample(model, mixed, gated).logits - sample(model, mixed, plain).logits).abs().amax(dim=(1, 2))
    assert difference[:2].max() < 1e-6
    assert difference[2:].min() > 1e-3
