"""The folded engine equals Algorithm 1 of the paper, run as a loop over passes, on the same masks.

It does so however it runs: with the last layer for the first token alone or whole, attention at once or in blocks, for
texts or for each of their tokens.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from uatlite import DropoutRates, Layers, UATConfig, sample
from uatlite.errors import ConfigurationError
from uatlite.model.intervention import EMBEDDINGS
from uatlite.model.view import view_of
from uatlite.passes import engine, forward
from uatlite.passes.config import FORMS, GATES

RATES = DropoutRates(embedding=0.15, attention=0.2, feed_forward=0.3, classifier=0.25)
WITHOUT_ATTENTION = replace(RATES, attention=0.0)
EMBEDDING_ALONE = DropoutRates(embedding=0.2, attention=0.0, feed_forward=0.0, classifier=0.0)
STATISTICS = ("rms-std", "median-std", "cov-trace", "cv", "norm-cv", "mean-std+ln", "norm-cv+ln")


def config_of(architecture, **settings):
    """DeBERTa drops relative positions by one mask a forward, so layerwise U needs its attention rate at 0."""
    folds = settings.get("estimate") != "layerwise" or not architecture.startswith("deberta")
    return UATConfig(**{"samples": 4, "penalty": 2.0, "rates": RATES if folds else WITHOUT_ATTENTION, **settings})


def assert_equal(found, expected, real=slice(None), close=1e-3):
    """Logits at what is `real`, token uncertainty, and the uncertainty of layers where it is estimated."""
    logits, uncertainty, layers = expected
    torch.testing.assert_close(found.logits[:, real], logits[:, real], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.token_uncertainty, uncertainty, rtol=1e-4, atol=1e-5)
    assert (found.layer_uncertainty is None) == (layers is None)
    if layers is not None:
        torch.testing.assert_close(found.layer_uncertainty, layers, rtol=close, atol=1e-5)
    assert found.logits[:, real].std(dim=0).min() > 1e-3


OUTSIDE = ("deberta-v2", "deberta-v2-conv", "mpnet")
"""Architectures whose attention logits are out of reach; in DeBERTa no gate by column can be applied."""


@pytest.mark.parametrize(("estimate", "gate"), [("lagged", "q"), ("closed-form", "qkv"), ("layerwise", "k")])
def test_folded_passes_equal_the_loop(architecture, model, encoded, estimate, gate, reference):
    """Every architecture, without padding and with it on either side, with gates by row, by column and of values.

    DeBERTa masks all keys of a padding token: padded on the left it leaves no logits that a gate could be added to.
    """
    if architecture.startswith("deberta"):
        gate = {"qkv": "v", "k": "q"}.get(gate, gate)
    config = config_of(architecture, samples=5, estimate=estimate, gate=gate, seed=7)
    assert_equal(sample(model, encoded, config), reference(model, architecture, encoded, config))


def in_blocks(monkeypatch):
    monkeypatch.setattr(forward, "CACHED", 0)
    monkeypatch.setattr(forward, "_BLOCK", 30)


def with_whole_layers(monkeypatch):
    monkeypatch.setattr(engine, "view_of", lambda model: replace(view_of(model), narrows=False))


SWITCHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "as it is": lambda monkeypatch: None,
    "in blocks": in_blocks,
    "whole layers": with_whole_layers,
    "tokens": lambda monkeypatch: None,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "lagged": {},
    "closed form": {"estimate": "closed-form"},
    "layerwise": {"estimate": "layerwise"},
    "values": {"gate": "v"},
    "additive": {"form": "additive", "masks": "stratified"},
    "no attention dropout": {"rates": WITHOUT_ATTENTION},
    "one layer": {"layers": Layers.only("2"), "gate": "v"},
    "gates in one, dropout in another": {"layers": Layers("1", "2")},
    "gates in the last": {"layers": Layers(gate_layers="2"), "estimate": "layerwise"},
}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"])
def test_every_way_to_run_equals_the_loop(architecture, shared, texts, mixed, config, switch, reference, monkeypatch):
    """Three architectures: attention through the interface, outside of it, and grouped-query attention."""
    model, config = shared(architecture, tokens=switch == "tokens"), config_of(architecture, **config)
    batch = texts((9, 5, 7)) if architecture.startswith("deberta") else mixed
    expected = reference(model, architecture, batch, config)
    SWITCHES[switch](monkeypatch)
    found, real = sample(model, batch, config), batch["attention_mask"].bool()
    assert_equal(found, expected, real if switch == "tokens" else slice(None))
    assert switch != "tokens" or not found.logits[:, ~real].any()


@pytest.mark.parametrize("switch", ["in blocks", "whole layers"])
@pytest.mark.parametrize("architecture", ["bert", "albert", "modernbert", "gpt2", "llama", "mpnet"], indirect=True)
def test_masks_of_each_text_are_the_same_however_it_runs(architecture, model, encoded, switch, monkeypatch):
    """Algorithm 1 has no masks per text. Also for causal attention, windows and shared layers."""
    config = config_of(architecture, per_input=True)
    expected = sample(model, encoded, config)
    SWITCHES[switch](monkeypatch)
    found = sample(model, encoded, config)
    assert_equal(found, (expected.logits, expected.token_uncertainty, None))
    assert found.fired == expected.fired


@pytest.mark.parametrize(("gate", "form"), list(product(GATES[1:], FORMS)))
@pytest.mark.parametrize("architecture", ["bert", "modernbert", "llama", *OUTSIDE])
def test_every_gate_in_every_form(architecture, shared, texts, mixed, gate, form, reference, monkeypatch):
    """The logits change, at once as in blocks, and equal those of a model whose every attention is gated at its logits.

    For DeBERTa and MPNet the reference gates the true logits, position terms included, just before their softmax; the
    engine sees only the probabilities, and refuses what these cannot tell. The penalty is so strong that `linear`
    reaches 0 for some pairs.
    """
    batch, model = texts((9, 5, 7)) if architecture.startswith("deberta") else mixed, shared(architecture)
    config = UATConfig(samples=2, penalty=2.5, gate=gate, form=form, estimate="closed-form", rates=EMBEDDING_ALONE)
    reached = ("q", "v", "k") if architecture == "mpnet" else ("q", "v")  # its keys and position terms are in reach
    product_of_both = architecture == "mpnet" and form == "exp"
    if architecture in OUTSIDE and form != "additive" and gate not in reached and not product_of_both:
        with pytest.raises(
            ConfigurationError, match=rf"gate='{gate}' with form='{form}'.*position terms.*Use gate 'no"
        ):
            sample(model, batch, config)
        return
    plain, expected = sample(model, batch, replace(config, gate="none")), reference(model, architecture, batch, config)
    for change in (SWITCHES["as it is"], in_blocks):
        change(monkeypatch)
        gated = sample(model, batch, config).logits
        torch.testing.assert_close(gated, expected[0], rtol=0, atol=1e-5)
        assert (gated - plain.logits).abs().amax(dim=(0, 2)).min() > 1e-4  # of every text


@pytest.mark.parametrize("masks", ["independent", "stratified"])
@pytest.mark.parametrize("architecture", ["bert", "albert", "deberta-v2", "llama"])
def test_own_rates_and_either_kind_of_mask(architecture, tiny, mixed, masks, reference):
    model, rates = tiny(architecture, rate=0.2), DropoutRates(0.2, None, None, None)
    config = config_of(architecture, rates=rates, masks=masks)
    assert_equal(sample(model, mixed, config), reference(model, architecture, mixed, config))


@pytest.mark.parametrize("estimate", ["lagged", "layerwise"])
@pytest.mark.parametrize("uncertainty", STATISTICS)
def test_every_statistic_in_the_loop(shared, mixed, estimate, uncertainty, reference):
    config = config_of("bert", samples=5, penalty=0.5, gate="qk", uncertainty=uncertainty, estimate=estimate)
    expected = reference(shared("bert"), "bert", mixed, config)
    close = 5e-3 if uncertainty == "cv" else 1e-3  # the mean that it divides by is nearly 0 for some units
    assert_equal(sample(shared("bert"), mixed, config), expected, close=close)


def test_layers_are_those_of_the_loop_in_every_architecture(architecture, shared, texts, mixed, reference):
    """Also where layers share their weights (ALBERT), and where positions are dropped or a convolution is."""
    model, batch = shared(architecture), texts((9, 5, 7)) if architecture.startswith("deberta") else mixed
    found, listed = {}, "1&2-3" if view_of(model).layers > 2 else "1-2"
    for layers in (Layers(), Layers.only("2"), Layers("2", "1"), Layers.only(listed)):
        config = config_of(architecture, layers=layers)
        found[layers] = sample(model, batch, config)
        assert_equal(found[layers], reference(model, architecture, batch, config))
    every, one, crossed, listed = (samples.logits for samples in found.values())
    assert torch.equal(every, listed)
    for few in (one, crossed):
        assert (every - few).abs().amax(dim=(0, 2)).min() > 1e-4


def test_what_fired_is_said(shared, mixed):
    rates = replace(EMBEDDING_ALONE, feed_forward=0.3)
    config = UATConfig(samples=3, penalty=2.0, rates=rates, layers=Layers("1", "2"))
    fired = {call.layer for call in sample(shared("bert"), mixed, config).fired}
    assert fired == {EMBEDDINGS, 1}


def test_the_first_two_lagged_passes_run_unmodulated(shared, mixed):
    gated, plain = UATConfig(samples=4, penalty=2.0), UATConfig(samples=4, gate="none")
    difference = (sample(shared("bert"), mixed, gated).logits - sample(shared("bert"), mixed, plain).logits).abs()
    assert difference[:2].max() < 1e-6
    assert difference[2:].amax(dim=(1, 2)).min() > 1e-3
