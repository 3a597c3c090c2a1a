"""A folded forward: when it runs in blocks, and when the last layer runs for the first token alone.

What it answers then is compared in test_algorithm.
"""

import pytest
import torch
from transformers import BertForSequenceClassification

from uatlite import DropoutRates, UATConfig, sample
from uatlite.model.intervention import AttentionInput
from uatlite.model.view import view_of
from uatlite.passes import forward
from uatlite.passes.forward import attend_in_blocks
from uatlite.passes.gates import Gates, gates

CONFIG = UATConfig(samples=3, penalty=2.0, rates=DropoutRates(0.15, 0.2, 0.3, 0.25))
BLOCKS = {"part of the queries": 17, "one head": 7 * 7, "two heads": 2 * 7 * 7, "a row": 2**18, "less than a query": 1}


@pytest.fixture
def calls(monkeypatch):
    """Every attention runs in blocks; returns the list of their calls."""
    seen: list[AttentionInput] = []

    def counted(inputs, *args):
        seen.append(inputs)
        return attend_in_blocks(inputs, *args)

    monkeypatch.setattr(forward, "CACHED", 0)
    monkeypatch.setattr(forward, "attend_in_blocks", counted)
    return seen


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("texts", [1, 2], ids=["a mask for all texts", "a mask for each text"])
def test_dropped_probabilities_are_those_of_the_mask(texts, block, monkeypatch):
    """softmax(g·QKᵀ·scaling + mask) · keep/(1-p) · V, written out."""
    monkeypatch.setattr(forward, "_BLOCK", block)
    passes, heads, tokens, width, rate = 2, 3, 7, 4, 0.3
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(passes * 2, tokens, heads, width, generator=generator).transpose(1, 2) for _ in range(3))
    keep = torch.rand(passes, texts, heads, tokens, tokens, generator=generator) >= rate
    padding = torch.zeros(passes * 2, 1, tokens, tokens)
    padding[1, ..., 5:] = -1e9
    u = torch.rand(passes * 2, tokens, generator=generator)
    found = attend_in_blocks(AttentionInput(q, k, v, padding, 0.5), gates(u, "q", "exp", 1.0), keep, rate)
    logits = torch.exp(-u)[:, None, :, None] * (q @ k.transpose(-1, -2)) * 0.5 + padding
    multiplier = keep.expand(-1, 2, -1, -1, -1).flatten(0, 1) / (1 - rate)
    torch.testing.assert_close(found, torch.softmax(logits, -1) * multiplier @ v, rtol=0, atol=1e-5)
    plain = attend_in_blocks(AttentionInput(q, k, v, None, 0.5), Gates(), None, 0.0)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5)
    torch.testing.assert_close(plain, expected, rtol=0, atol=1e-5)


def test_only_what_exceeds_the_caches_runs_in_blocks(shared, texts, calls, monkeypatch):
    model = shared("bert")
    probabilities = 3 * model.config.num_attention_heads * 9 * 9
    monkeypatch.setattr(forward, "CACHED", probabilities)
    sample(model, texts((9,)), CONFIG)
    assert not calls
    monkeypatch.setattr(forward, "CACHED", probabilities - 1)
    sample(model, texts((9,)), CONFIG)
    assert len(calls) == model.config.num_hidden_layers - 1  # the last layer attends for one token


NARROW = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet")


def test_which_architectures_are_narrowed(architecture, tiny, texts):
    model = tiny(architecture)
    assert view_of(model).narrows == (architecture in NARROW)
    with torch.no_grad():  # transformers leaves hooks behind then
        model(**texts((7,)), output_hidden_states=True, output_attentions=True)
    assert view_of(model).narrows == (architecture in NARROW)


@pytest.mark.parametrize("architecture", NARROW, indirect=True)
def test_the_last_feed_forward_sees_one_token_and_the_others_all(architecture, model, texts, masks):
    sample(model, texts((7,)), UATConfig(samples=1, gate="none", estimate="closed-form"))
    last = model.config.num_hidden_layers - 1
    seen = {name: len(bits) for (_, _, name), bits in masks.items() if ".feed_forward." in name}
    assert seen == {f"{layer}.feed_forward.0": 1 if layer == last else 7 for layer in range(last + 1)}
    masks.clear()
    sample(model, texts((7,), side="left", tokens=9), UATConfig(samples=1, gate="none", estimate="closed-form"))
    left = {len(bits) for (_, _, name), bits in masks.items() if ".feed_forward." in name}
    assert left == {7}  # there the first token is padding, and the layer has no token to be narrowed to


class MeanPooled(BertForSequenceClassification):
    """A user's own classifier, which reads every token."""

    def forward(self, input_ids, attention_mask=None, **kwargs):
        out = super().forward(input_ids, attention_mask=attention_mask, output_hidden_states=True, **kwargs)
        out.logits = self.classifier(out.hidden_states[-1].mean(dim=1))
        return out


def test_a_model_with_parts_or_hooks_of_the_users_is_whole(tiny, texts):
    model, batch = tiny("bert"), texts((9, 9))
    own = MeanPooled(model.config)
    own.load_state_dict(model.state_dict())
    own.eval()
    assert not view_of(own).narrows
    quiet = UATConfig(samples=1, gate="none", rates=DropoutRates.none())
    with torch.no_grad():
        torch.testing.assert_close(sample(own, batch, quiet).logits[0], own(**batch).logits, rtol=0, atol=1e-5)

    seen = []
    handle = model.bert.encoder.register_forward_hook(lambda module, args, out: seen.append(out[0].shape[1]))
    sample(model, batch, quiet)
    assert seen == [9]
    handle.remove()
    assert view_of(model).narrows


def test_feed_forward_in_chunks_is_whole(tiny):
    """transformers cuts the feed-forward by tokens there, into parts that one token would not fill."""
    assert not view_of(tiny("bert", chunk_size_feed_forward=3)).narrows
