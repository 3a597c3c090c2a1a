"""The last layer runs for the first token alone where the head reads no other, and the answer is the whole layer's."""

from dataclasses import replace

import pytest
import torch
from transformers import BertForSequenceClassification

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import ModelError
from uatlite.model.view import view_of
from uatlite.passes import engine

NARROW = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet")
RATES = DropoutRates(0.15, 0.2, 0.3, 0.25)
CONFIGS = {
    "lagged": UATConfig(samples=3, penalty=2.0, rates=RATES),
    "pair": UATConfig(samples=3, penalty=2.0, rates=RATES, gate="qkv", form="linear"),
    "additive": UATConfig(samples=3, penalty=2.0, rates=RATES, form="additive", masks="stratified"),
    "layerwise": UATConfig(samples=3, penalty=2.0, rates=RATES, estimate="layerwise", per_input=True),
}


@pytest.fixture
def whole(monkeypatch):
    """A function that samples with every layer whole."""

    def run(model, batch, config):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "view_of", lambda model: replace(view_of(model), narrows=False))
            return sample(model, batch, config)

    return run


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("architecture", NARROW, indirect=True)
def test_the_answer_is_that_of_the_whole_layer(architecture, model, encoded, whole, config):
    if architecture == "mpnet":
        config = replace(config, gate="q", form="exp")
    narrow, reference = sample(model, encoded, config), whole(model, encoded, config)
    torch.testing.assert_close(narrow.logits, reference.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(narrow.token_uncertainty, reference.token_uncertainty, rtol=0, atol=0)
    assert narrow.fired == reference.fired
    assert narrow.logits.std(dim=0).min() > 1e-3


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


def test_left_padding_is_whole(shared, texts, whole):
    """There the first token is padding; the layer has no token to be narrowed to."""
    batch = texts((9, 5), side="left")
    config = CONFIGS["lagged"]
    assert torch.equal(sample(shared("bert"), batch, config).logits, whole(shared("bert"), batch, config).logits)


class MeanPooled(BertForSequenceClassification):
    """A user's own classifier, which reads every token."""

    def forward(self, input_ids, attention_mask=None, **kwargs):
        out = super().forward(input_ids, attention_mask=attention_mask, output_hidden_states=True, **kwargs)
        out.logits = self.classifier(out.hidden_states[-1].mean(dim=1))
        return out


def test_a_model_with_parts_or_hooks_of_the_users_is_whole(tiny, texts, whole):
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


def test_feed_forward_in_chunks_is_refused_as_ever(tiny, texts):
    """transformers cuts the feed-forward by tokens there, into parts that one token would not fill."""
    chunked = tiny("bert", chunk_size_feed_forward=3)
    assert not view_of(chunked).narrows
    with pytest.raises(ModelError, match="does not fit this checkpoint"):
        sample(chunked, texts((9, 9)))
