"""The plain pass is narrowed where that is certain, the model itself runs elsewhere; and what is read off it."""

import copy

import pytest
import torch

from uatlite.attribution.layers import propagate
from uatlite.model.intervention import Intervention, intervene
from uatlite.model.plain import _watched, plain, plain_pass
from uatlite.model.view import view_of
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.engine import Chunk, run_chunk, sample

NARROW = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet")


def run(model, inputs):
    with plain(model, inputs) as classifier:
        return classifier(**inputs).logits


def own(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


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


# ── what it reads: the representation of a text, whatever the padding and the company ──

QUIET = UATConfig(gate="none", rates=DropoutRates.uniform(0.0), samples=2)


def read(model, inputs):
    """What is expected, from transformers' own hidden states: a loop over texts."""
    with torch.no_grad():
        states = copy.deepcopy(model).eval()(**inputs, output_hidden_states=True).hidden_states
    last = model.config.model_type in ("gpt2", "llama", "qwen2", "qwen3")
    rows = []
    for row, mask in enumerate(inputs["attention_mask"].flatten(0, -2)):
        real = mask.nonzero().flatten()
        token = int(real[-1] if last else real[0])
        rows.append(torch.cat([states[-1][row, token], states[-2][row, real].mean(dim=0)]))
    return torch.stack(rows)


def test_it_is_the_token_that_the_head_reads_and_a_mean_whatever_pass_reads_it(model, encoded):
    """Its logits are the model's own, the model has not changed, and each text has its own."""
    before = dict(model._modules)
    logits, found = plain_pass(model, encoded)
    torch.testing.assert_close(logits, own(model, encoded), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, read(model, encoded), rtol=1e-4, atol=1e-5)
    assert dict(model._modules) == before
    alone = plain_pass(model, {name: value[:1] for name, value in encoded.items()})[1]
    torch.testing.assert_close(alone, found[:1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sample(model, encoded, QUIET).representation, found)
    analytic = propagate(model, encoded, UATConfig(gate="none", rates=DropoutRates.uniform(0.1))).representation
    assert not analytic.requires_grad
    torch.testing.assert_close(analytic, found)


def test_of_a_token_classifier_it_is_what_the_encoder_says_of_each_token(architecture, shared, encoded):
    tagger = shared(architecture, tokens=True)
    logits, found = plain_pass(tagger, encoded)
    with torch.no_grad():
        torch.testing.assert_close(logits, tagger(**encoded).logits)
        torch.testing.assert_close(found, tagger.base_model(**encoded).last_hidden_state)
    assert not view_of(tagger).narrows


def test_options_are_averaged(chooser, choices):
    logits, found = plain_pass(chooser, choices)
    torch.testing.assert_close(logits, own(chooser, choices), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, read(chooser, choices).view(2, 4, -1).mean(dim=1), rtol=1e-4, atol=1e-5)


def test_what_is_no_encoder_with_a_head_has_none(shared):
    class Members(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.member = shared("bert")
            self.base_model = self.member  # as PreTrainedModel has it: the model itself where there is no encoder

        def forward(self, **inputs):
            return self.member(**inputs)

    inputs = {"input_ids": torch.tensor([[2, 5, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    assert plain_pass(Members(), inputs)[1] is None


def test_it_is_the_mean_over_passes(model, encoded):
    config, view = UATConfig(gate="none", rates=DropoutRates.uniform(0.2), samples=3), view_of(model)
    texts, tokens = encoded["input_ids"].shape
    chunk = Chunk(torch.arange(texts), tokens, tuple(range(number, number + 1) for number in range(3)))
    mean = torch.cat([forward.read for forward in run_chunk(view, encoded, chunk, config)]).mean(dim=0)
    torch.testing.assert_close(sample(model, encoded, config).representation, mean)
    assert not torch.allclose(mean, plain_pass(model, encoded)[1])
