"""The engine's dropout is Hugging Face's: logits over many passes against the model in train mode, and the rates."""

import math

import numpy as np
import pytest
import torch

from uatlite import DropoutRates, UATConfig, dropout_sites, sample
from uatlite.errors import ConfigurationError
from uatlite.passes.dropout import CACHE

PASSES = 2000
PASSES_ONE_BY_ONE = 250
"""DeBERTa drops relative positions once a forward, so each pass is a forward of its own."""
LENGTHS = (6, 4)
BOUND = 4.5
"""|z| that one of some 200 standard normals passes with a chance of about 1 in 1000"""
ATTENTION_ONLY = {  # the setting with which a family drops attention probabilities
    "distilbert": "attention_dropout",
    "modernbert": "attention_dropout",
    "gpt2": "attn_pdrop",
    **dict.fromkeys(("llama", "qwen2", "qwen3"), "attention_dropout"),
}


@pytest.fixture(autouse=True)
def _forget_masks():
    """Thousands of passes are not worth keeping."""
    yield
    CACHE.clear()


def passes_for(architecture):
    return PASSES_ONE_BY_ONE if architecture.startswith("deberta") else PASSES


def in_train_mode(model, batch, passes, one_by_one):
    """Logits (passes, texts, classes) of transformers' own dropout, with a mask of its own for each row."""
    rows = 1 if one_by_one else passes
    folded = {name: value.repeat(rows, 1) for name, value in batch.items()}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model.train()
        logits = [model(**folded).logits for _ in range(passes // rows)]
        model.eval()
    return torch.cat(logits).view(passes, len(LENGTHS), -1).double().numpy()


def largest_z(ours, theirs):
    """The largest |z| of the differences of means and of variances over passes, of each text and class."""

    def mean_and_variance(x):
        centred = x - x.mean(axis=0)
        variance = centred.var(axis=0, ddof=1)
        return (x.mean(axis=0), variance / len(x)), (variance, ((centred**4).mean(axis=0) - variance**2) / len(x))

    pairs = zip(mean_and_variance(ours), mean_and_variance(theirs), strict=True)
    return max(float(np.abs((a - b) / np.sqrt(va + vb)).max()) for (a, va), (b, vb) in pairs)


def test_mean_and_variance_are_those_of_train_mode(architecture, tiny, texts):
    """Every live site of transformers at 0.1, attention probabilities at 0.5; sites that we would add stay at 0."""
    attention = ATTENTION_ONLY.get(architecture, "attention_probs_dropout_prob")
    model, batch = tiny(architecture, rate=0.1, **{attention: 0.5}), texts(LENGTHS)
    passes, one_by_one = passes_for(architecture), architecture.startswith("deberta")
    config = UATConfig(samples=passes, gate="none", estimate="closed-form", rates=DropoutRates.own())
    theirs = in_train_mode(model, batch, passes, one_by_one)
    assert largest_z(sample(model, batch, config).logits.double().numpy(), theirs) < BOUND
    # The control: the same comparison with attention probabilities kept whole tells the two apart.
    without = tiny(architecture, rate=0.1, **{attention: 0.0})
    if architecture in ("llama", "qwen2", "qwen3"):  # it is all they drop
        with pytest.raises(ConfigurationError, match="nothing samples"):
            sample(without, batch, config)
    elif not one_by_one:
        assert largest_z(sample(without, batch, config).logits.double().numpy(), theirs) > 1.5 * BOUND


def test_each_site_drops_at_its_rate(architecture, tiny, texts, masks):
    """As often as it is called; counted over passes, tokens and units, and `fired` says the same."""
    model, batch = tiny(architecture, rate=0.0), texts((12,))
    rates = DropoutRates(embedding=0.1, attention=0.2, feed_forward=0.3, classifier=0.4)
    out = sample(model, batch, UATConfig(samples=60, gate="none", rates=rates))
    calls = {call.name: call for call in out.fired}
    assert len(calls) == len(out.fired)
    assert all(sum(call.site == site for call in out.fired) == site.calls for site in dropout_sites(model))
    assert sum(call.site.role == "probabilities" for call in out.fired) == model.config.num_hidden_layers
    assert {name for _, _, name in masks} == set(calls)
    for name, call in calls.items():
        expected = getattr(rates, call.site.component)
        assert call.rate == expected
        multipliers = torch.stack([bits for (_, _, site), bits in masks.items() if site == name])
        kept = multipliers[multipliers > 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - expected)))
        error = math.sqrt(expected * (1 - expected) / multipliers.numel())
        assert abs(float((multipliers == 0).double().mean()) - expected) < BOUND * error, name


def test_strata_bring_the_mean_closer(shared, texts):
    """What they are for: at equal passes the mean logits vary less from seed to seed than with independent masks."""
    model, batch = shared("bert"), texts((9,))

    def spread(masks):
        configs = [UATConfig(samples=6, gate="none", masks=masks, seed=seed) for seed in range(40)]
        means = [sample(model, batch, config).logits.mean(dim=0) for config in configs]
        return float(torch.stack(means).var(dim=0).mean())

    assert spread("stratified") < 0.85 * spread("independent")
