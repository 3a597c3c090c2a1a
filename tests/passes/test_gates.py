"""Token uncertainty, and how it modulates attention."""

import numpy as np
import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.passes import gates as uncertainty
from uatlite.passes.config import STATISTICS, UNCERTAINTIES
from uatlite.passes.gates import closed_form, from_samples

RATE = 0.2
EMBEDDING = DropoutRates(embedding=RATE, attention=0.0, feed_forward=0.0, classifier=0.0)


@pytest.mark.parametrize("passes", [1, 2, 7])
@pytest.mark.parametrize("width", [8, 9])  # medians of even and odd numbers
@pytest.mark.parametrize("name", UNCERTAINTIES)
def test_statistics(name, width, passes, by_definition):
    samples = torch.from_numpy(np.random.default_rng(0).normal(0.3, 1.0, (passes, 2, 3, width)).astype(np.float32))
    got = from_samples(samples, name)
    np.testing.assert_allclose(got, by_definition(samples, name), rtol=1e-4, atol=1e-6)
    assert (got == 0).all() == (passes == 1)
    assert torch.count_nonzero(from_samples(torch.zeros_like(samples), name)) == 0


def test_the_median_takes_large_batches():
    """torch.quantile refuses more than 2**24 values."""
    std = torch.ones(2**23 + 1, 2)
    assert uncertainty.TOKEN_STATISTICS["median-std"](std, std).shape == (2**23 + 1,)


def embedding_samples(model, encoded, rate, passes):
    """Samples of BERT's embedding output, by torch's own dropout."""
    seen = []
    handle = model.bert.embeddings.dropout.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        model(**encoded)
    handle.remove()
    torch.manual_seed(0)
    return seen[0], torch.nn.functional.dropout(seen[0].expand(passes, *seen[0].shape), rate, training=True)


@pytest.mark.parametrize("name", STATISTICS)
def test_closed_form_is_the_limit_of_the_sampled_estimate(tiny, texts, name, by_definition):
    """By torch's dropout and by the engine's own masks. The mean of 1/(|mean| + c) is a little above its limit."""
    model, batch, passes = tiny("bert"), texts((6, 4)), 2500
    real = batch["attention_mask"].bool()
    exact = sample(model, batch, UATConfig(samples=1, uncertainty=name, estimate="closed-form", rates=EMBEDDING))
    exact = exact.token_uncertainty[real]
    embedding, samples = embedding_samples(model, batch, RATE, passes)
    np.testing.assert_allclose(exact, closed_form(embedding, RATE, name)[real], rtol=1e-5)
    np.testing.assert_allclose(exact, by_definition(samples[:300], name)[real], rtol=0.15)
    np.testing.assert_allclose(exact, from_samples(samples, name)[real], rtol=0.04)
    config = UATConfig(samples=passes, gate="none", uncertainty=name, rates=EMBEDDING)
    np.testing.assert_allclose(exact, sample(model, batch, config).token_uncertainty[real], rtol=0.04)


def test_uncertainty_is_zero_at_padding_and_nowhere_else(architecture, model, encoded):
    for estimate in ("lagged", "closed-form"):
        u = sample(model, encoded, UATConfig(samples=6, estimate=estimate)).token_uncertainty
        assert u.shape == encoded["input_ids"].shape
        assert torch.equal(u > 0, encoded["attention_mask"].bool())


@pytest.mark.parametrize("architecture", ["deberta-v2", "mpnet"], indirect=True)
def test_a_penalty_of_zero_is_no_modulation(architecture, model, mixed):
    """Also where the gate could not be applied: nothing has to be."""
    none = sample(model, mixed, UATConfig(samples=2, gate="none")).logits
    assert torch.equal(sample(model, mixed, UATConfig(samples=2, gate="qk", penalty=0.0)).logits, none)
