"""A view shares a model's weights and nothing else, follows its changes, and does not keep it alive."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from uatlite import DropoutRates, UATConfig, sample
from uatlite.model.view import ATTENTION_KEY, view_of

OWN = UATConfig(samples=3, gate="none", rates=DropoutRates.own())


def test_a_view_shares_parameters_and_buffers(architecture, model):
    view = view_of(model)
    assert view_of(model) is view
    assert view.model is not model
    ours, theirs = dict(view.model.named_modules()), dict(model.named_modules())
    assert ours.keys() == theirs.keys()
    for path, module in theirs.items():
        assert ours[path] is not module
        assert type(ours[path]) is type(module)
        assert ours[path]._parameters is module._parameters
        assert ours[path]._buffers is module._buffers
    assert view.model.config is not model.config
    assert view.model.config._attn_implementation == ATTENTION_KEY != model.config._attn_implementation
    assert len({id(module) for module in ours.values()}) == len({id(module) for module in theirs.values()})


def test_a_view_does_not_keep_its_model_alive(architecture, tiny, texts):
    model = tiny(architecture)
    sample(model, texts((5,)), UATConfig(samples=2))
    gone = weakref.ref(model)
    weights = weakref.ref(next(model.parameters()))
    del model
    if gone() is not None:  # a collection of this process's many objects takes long
        gc.collect()
    assert gone() is None
    assert weights() is None


def swap(model):
    """Several times: a new module may lie where an old one was."""
    for _ in range(3):
        model.classifier = nn.Linear(32, 3)


def set_rates(model):
    model.bert.embeddings.dropout.p = 0.5
    model.dropout = nn.Dropout(0.4)
    model.bert.encoder.layer[0].attention.self.dropout.p = 0.3


CHANGES = {
    "weights in place": ("bert", lambda model: model.classifier.weight.data.mul_(2)),
    "another parameter": ("bert", lambda model: setattr(model.classifier, "weight", nn.Parameter(torch.ones(3, 32)))),
    "loaded weights": ("bert", lambda model: model.load_state_dict({k: v / 2 for k, v in model.state_dict().items()})),
    "other modules": ("bert", swap),
    "rates": ("bert", set_rates),
    "rate of an attention": ("llama", lambda model: setattr(model.model.layers[1].self_attn, "attention_dropout", 0.4)),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
def test_changes_are_seen(tiny, texts, name, change):
    """A model with the change that was never run before gives the same."""
    model, batch = tiny(name, rate=0.1), texts((9, 5))
    before = sample(model, batch, OWN).logits
    for _ in range(2):
        change(model)
        after, expected = sample(model, batch, OWN), sample(copy.deepcopy(model), batch, OWN)
        assert torch.equal(after.logits, expected.logits)
        assert [call.rate for call in after.fired] == [call.rate for call in expected.fired]
    assert (after.logits - before).abs().max() > 1e-2


def test_hooks_of_the_user_come_and_go(tiny, texts):
    """They run in a view as in the model, from when they are registered until they are removed."""
    model, batch, seen = tiny("bert"), texts((9, 9)), []
    sample(model, batch)
    handle = model.bert.encoder.layer[1].register_forward_hook(lambda *_: seen.append(1))
    sample(model, batch, chunk=2)
    assert len(seen) == 1
    handle.remove()
    sample(model, batch)
    assert len(seen) == 1
    double = model.bert.embeddings.LayerNorm.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    assert sample(model, batch).logits.std(dim=1).max() < 1e-4  # all texts are alike now
    double.remove()
    assert sample(model, batch).logits.std(dim=1).max() > 1e-2


def test_a_cast_model_is_seen(tiny, texts):
    model, batch = tiny("bert"), texts((9, 5))
    single = sample(model, batch, OWN)
    model.double()
    torch.testing.assert_close(sample(model, batch, OWN).logits, single.logits, rtol=0, atol=1e-5)
    assert next(view_of(model).model.parameters()).dtype == torch.float64


def test_a_used_model_can_be_copied_and_saved(tiny, texts, tmp_path):
    model, batch = tiny("bert"), texts((9, 5))
    expected = sample(model, batch).logits
    assert torch.equal(sample(copy.deepcopy(model), batch).logits, expected)
    assert torch.equal(sample(pickle.loads(pickle.dumps(model)), batch).logits, expected)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config._attn_implementation == model.config._attn_implementation
    torch.testing.assert_close(sample(again, batch).logits, expected)
