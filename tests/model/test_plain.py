"""The plain pass is narrowed where that is certain, and the model itself runs everywhere else.

That its logits are the model's own is tested with what it reads, in test_representation.
"""

import copy

import pytest
import torch

from uatlite.model.intervention import Intervention, intervene
from uatlite.model.plain import _watched, plain
from uatlite.model.view import view_of

NARROW = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet")


def run(model, inputs):
    with plain(model, inputs) as classifier:
        return classifier(**inputs).logits


def own(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize("name", NARROW)
def test_options_of_multiple_choice(tiny, texts, name):
    chooser = tiny(name, choices=True)
    flat = texts((9, 5, 7, 9), tokens=11)
    inputs = {key: value.view(2, 2, -1) for key, value in flat.items()}
    torch.testing.assert_close(run(chooser, inputs), own(chooser, inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NARROW)
def test_the_last_layer_sees_one_token_and_the_head_reads_the_same(shared, texts, name):
    model, inputs = shared(name), texts((9, 5), tokens=11)
    narrow, whole = Intervention(view_of(model).layers - 1), Intervention()
    with plain(model, inputs) as classifier, intervene(narrow):
        assert classifier is view_of(model).model
        classifier(**inputs)
    with torch.no_grad(), intervene(whole):
        _watched(model)(**inputs)
    assert narrow.states.shape[1] == 1
    torch.testing.assert_close(narrow.states, whole.states[:, :1], rtol=0, atol=1e-5)


def test_a_model_in_train_mode_drops_nothing_and_stays_in_it(tiny, texts, architecture):
    model, inputs = tiny(architecture, rate=0.4), texts((9, 5))
    expected = own(model, inputs)
    model.train()
    torch.testing.assert_close(run(model, inputs), expected, rtol=0, atol=1e-5)
    assert all(module.training for module in model.modules())


class AdaptedForSequenceClassification(torch.nn.Module):
    """As adapter libraries wrap a classifier: its configuration, and its modules one level down."""

    def __init__(self, model):
        super().__init__()
        self.inner = model
        self.config = model.config

    def forward(self, **inputs):
        return self.inner(**inputs)


def forward_of_its_own(model):
    model.forward = model.forward  # as mixed-precision wrappers do
    return model


def hooked(model):
    model.bert.encoder.register_forward_hook(lambda module, args, out: None)
    return model


def another_attention(model):
    model.config._attn_implementation = "flex_attention"
    return model


THEMSELVES = {
    "wrapped": forward_of_its_own,
    "hooked": hooked,
    "another attention": another_attention,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "adapted": AdaptedForSequenceClassification,
    "padded on the left": lambda model: model,
}


@pytest.mark.parametrize("name", THEMSELVES)
def test_a_model_that_the_user_changed_runs_itself(tiny, texts, name):
    model, inputs = THEMSELVES[name](tiny("bert")), texts((9, 5), side="left" if "left" in name else "right")
    with plain(model, inputs) as classifier:
        assert classifier is model
    if name == "adapted":
        assert torch.equal(run(model, inputs), own(tiny("bert"), inputs))


def test_new_weights_are_seen(tiny, texts):
    """A view shares the parameters: what training or another seed puts there is what runs."""
    model, inputs = tiny("bert"), texts((9, 5))
    before = run(model, inputs)
    model.load_state_dict(copy.deepcopy(tiny("bert", seed=1).state_dict()))
    torch.testing.assert_close(run(model, inputs), own(model, inputs), rtol=0, atol=1e-5)
    assert not torch.allclose(before, run(model, inputs), atol=1e-2)
