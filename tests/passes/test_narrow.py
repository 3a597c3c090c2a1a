"""The last layer runs for the first token alone where the head reads no other. Its answer: test_algorithm."""

import pytest
import torch
from transformers import BertForSequenceClassification

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import ModelError
from uatlite.model.view import view_of

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


def test_feed_forward_in_chunks_is_refused_as_ever(tiny, texts):
    """transformers cuts the feed-forward by tokens there, into parts that one token would not fill."""
    chunked = tiny("bert", chunk_size_feed_forward=3)
    assert not view_of(chunked).narrows
    with pytest.raises(ModelError, match="does not fit this checkpoint"):
        sample(chunked, texts((9, 9)))
