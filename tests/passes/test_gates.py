"""Every gate and form on every architecture: against one attention layer written out pair by pair, and end to end."""

import copy
import math
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import ConfigurationError
from uatlite.passes import engine
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.gates import gates, modulate_probabilities

GATES, FORMS = ("q", "k", "qk", "v", "qkv"), ("exp", "linear", "reciprocal", "additive")
PENALTY = 2.5  # strong enough that `linear` reaches 0 for some pairs
RATES = DropoutRates(embedding=0.2, attention=0.0, feed_forward=0.0, classifier=0.0)
OUTSIDE = ("deberta-v2", "deberta-v2-conv", "mpnet")
EMBEDDING_SITE = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert"), "embeddings.dropout"),
    "modernbert": "embeddings.drop",
    "gpt2": "transformer.drop",
    **dict.fromkeys(("llama", "qwen2", "qwen3"), "embed_tokens"),
}
INTERFACE = tuple(EMBEDDING_SITE)
EVERY_PAIR = ("bert", "modernbert", "llama")
"""Architectures for which every gate meets every form: plain, with local layers, with grouped keys."""
KINDS = (  # elsewhere each combination of factors once: by row, column, pair, value, and a bias
    *((gate, "exp") for gate in GATES),
    *((gate, "linear") for gate in ("qk", "qkv")),
    ("q", "reciprocal"),
    *((gate, "additive") for gate in ("k", "v", "qkv")),
)
EXACT_OUTSIDE = [(g, f) for g in GATES for f in FORMS if f == "additive" or g in ("q", "v")]


def cases(architectures: tuple[str, ...]) -> Iterator[Any]:
    for architecture in architectures:
        for gate, form in product(GATES, FORMS):
            chosen = EXACT_OUTSIDE if architecture in OUTSIDE else KINDS
            if architecture in EVERY_PAIR or (gate, form) in chosen:
                yield pytest.param(architecture, gate, form, id=f"{architecture}-{gate}-{form}")


def shrink(form: str, x: float) -> float:
    return {"linear": max(0.0, 1 - x), "reciprocal": 1 / (1 + x)}.get(form, math.exp(-x))


def attention_pair_by_pair(q, k, v, mask, scaling: float, u, config: UATConfig) -> np.ndarray:
    """Context (rows, heads, tokens, width) from DESIGN §2, one query token and one key token at a time."""
    rows, heads, tokens, _ = q.shape
    context = np.zeros(v.shape)
    for b, h, i in np.ndindex(rows, heads, tokens):
        logits = np.zeros(tokens)
        for j in range(tokens):
            a = scaling * float(q[b, h, i] @ k[b, h, j])
            u_ij = {"q": u[b, i], "k": u[b, j], "v": 0.0}.get(config.gate, u[b, i] + u[b, j])
            if config.gate != "v":
                additive = config.form == "additive"
                a = a - config.penalty * u[b, j] if additive else a * shrink(config.form, config.penalty * u_ij)
            logits[j] = a + (0.0 if mask is None else mask[b % len(mask), 0, i, j])
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        scale_v = [shrink(config.form, config.penalty * x) if "v" in config.gate else 1.0 for x in u[b]]
        context[b, h, i] = sum(weights[j] * scale_v[j] * v[b, h, j] for j in range(tokens))
    return context


class Recording(FoldedPasses):
    """The engine's intervention, which also keeps what the first attention got and gave."""

    calls: ClassVar[list[tuple[Any, Tensor]]] = []

    def attend(self, site, inputs):
        got = copy.deepcopy(inputs)
        context, probabilities = super().attend(site, inputs)
        self.calls.append((got, context.clone()))
        return context, probabilities


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Tensor]]:
    monkeypatch.setattr(Recording, "calls", [])
    monkeypatch.setattr(engine, "FoldedPasses", Recording)
    return Recording.calls


def first_attention(model, name: str, batch: dict[str, Tensor]) -> dict[str, Any]:
    """What the plain model (a copy of it) gives its first attention, and its embedding block's output."""
    seen: dict[str, Any] = {}

    def attention(module, query, key, value, attention_mask, scaling=None, **_):
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        if "q" not in seen:
            seen.update(q=query, k=key, v=value, mask=attention_mask, scaling=scaling or query.shape[-1] ** -0.5)
        return torch.zeros_like(query).transpose(1, 2).contiguous(), None

    AttentionInterface.register("first_attention", attention)
    AttentionMaskInterface.register("first_attention", eager_mask)
    plain = copy.deepcopy(model)
    plain.set_attn_implementation("first_attention")
    site = next(module for path, module in plain.named_modules() if path.endswith(EMBEDDING_SITE[name]))
    site.register_forward_hook(lambda module, args, output: seen.update(embedding=output))
    with torch.no_grad():
        plain(**batch)
    return seen


def double(x: Tensor) -> np.ndarray:
    return x.detach().double().numpy()


@pytest.mark.parametrize(("architecture", "gate", "form"), list(cases(INTERFACE)), indirect=["architecture"])
def test_one_layer_equals_the_equations(architecture, model, mixed, gate, form, recording):
    """The view's first attention against the sums over pairs, on the plain model's own Q, K, V and mask.

    A rate that drops nothing in practice (0 < p << 1/units) leaves the plain Q, K, V, while U is the closed form's; the
    penalty makes up for the small U.
    """
    rate = 1e-7
    plain = first_attention(model, architecture, mixed)
    u = plain["embedding"].abs().mean(-1) * math.sqrt(rate / (1 - rate)) * mixed["attention_mask"]
    rates = DropoutRates(embedding=rate, attention=0.0, feed_forward=0.0, classifier=0.0)
    penalty = PENALTY * 0.2 / float(u.mean())
    config = UATConfig(samples=1, penalty=penalty, gate=gate, form=form, estimate="closed-form", rates=rates)
    sample(model, mixed, config, chunk=3)
    got, context = recording[0]
    order = torch.argsort((mixed["attention_mask"] * torch.arange(9)).amax(1), stable=True)  # a chunk sorts by length
    q, k, v, u = (double(x[order]) for x in (plain["q"], plain["k"], plain["v"], u))
    np.testing.assert_allclose(double(got.query), q, atol=1e-5)
    mask = None if plain["mask"] is None else double(plain["mask"].expand(3, -1, -1, -1)[order])
    expected = attention_pair_by_pair(q, k, v, mask, plain["scaling"], u, config)
    real = mixed["attention_mask"][order].bool()[:, None, :].expand(-1, q.shape[1], -1).numpy()
    np.testing.assert_allclose(double(context)[real], expected[real], atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "gate", "form"), list(cases((*INTERFACE, *OUTSIDE))), indirect=["architecture"]
)
def test_end_to_end(architecture, model, texts, mixed, gate, form, reference):
    """The logits change, and equal those of a model whose every attention is gated at its logits.

    For DeBERTa and MPNet the reference gates the true logits, position terms included, just before their softmax; the
    engine sees only the probabilities. DeBERTa masks all keys of a padding token, and padded on the left it pools
    one: there no logits are left that a gate could act on, so its batch is padded on the right.
    """
    batch = texts((9, 5, 7)) if architecture.startswith("deberta") else mixed
    config = UATConfig(samples=2, penalty=PENALTY, gate=gate, form=form, estimate="closed-form", rates=RATES)
    plain = UATConfig(samples=2, gate="none", rates=RATES)
    logits, _ = reference(model, architecture, batch, config)
    gated, ungated = sample(model, batch, config).logits, sample(model, batch, plain).logits
    torch.testing.assert_close(gated, logits, rtol=0, atol=1e-5)
    assert (gated - ungated).abs().amax(dim=(0, 2)).min() > 1e-4  # of every text


@pytest.mark.parametrize("form", ["exp", "linear", "reciprocal"])
@pytest.mark.parametrize("gate", ["k", "qk", "qkv"])
@pytest.mark.parametrize("architecture", OUTSIDE, indirect=True)
def test_column_factors_outside_the_interface_raise(architecture, model, mixed, gate, form):
    with pytest.raises(ConfigurationError, match=rf"gate='{gate}' with form='{form}'.*position terms.*Use gate 'none'"):
        sample(model, mixed, UATConfig(gate=gate, form=form))


@pytest.mark.parametrize("architecture", OUTSIDE, indirect=True)
def test_a_penalty_of_zero_is_no_modulation(architecture, model, mixed):
    """Also where the gate could not be applied: nothing has to be."""
    none = sample(model, mixed, UATConfig(samples=2, gate="none")).logits
    assert torch.equal(sample(model, mixed, UATConfig(samples=2, gate="qk", penalty=0.0)).logits, none)


def test_additive_is_the_same_for_q_k_and_qk():
    u = torch.rand(2, 5)
    biases = [gates(u, gate, "additive", 0.5).bias for gate in ("q", "k", "qk")]
    assert all(torch.equal(bias, -0.5 * u) for bias in biases)


def test_a_row_factor_is_a_power_of_the_probabilities():
    """softmax(g·a) = p^g renormalised, also where a key is masked and where the factor is 0."""
    logits = torch.randn(2, 3, 4, 4, dtype=torch.float64) * 3
    masked = torch.zeros(2, 1, 1, 4).bool()
    masked[1, ..., 3] = True
    u = torch.tensor([[0.1, 0.5, 2.0, 9.0], [0.3, 0.0, 1.0, 0.7]], dtype=torch.float64)
    factors = gates(u, "q", "linear", 0.5)
    assert factors.row.min() == 0
    p = torch.softmax(logits.masked_fill(masked, -torch.inf), dim=-1)
    expected = torch.softmax((logits * factors.row[:, None, :, None]).masked_fill(masked, -torch.inf), dim=-1)
    torch.testing.assert_close(modulate_probabilities(p, factors), expected)
