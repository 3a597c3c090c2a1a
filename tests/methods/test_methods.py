"""One contract over all methods, and what each of them is."""

import copy
import json

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.attribution.first_order import Case, first_orders
from uatlite.attribution.layers import propagate
from uatlite.codec import load
from uatlite.errors import ConfigurationError
from uatlite.methods.method import Method
from uatlite.methods.registry import METHOD_ALIASES, METHODS, STORED, method_to_dict, parse_method
from uatlite.model.load import model_hash

MANY = {"problem_type": "multi_label_classification"}


@pytest.fixture(params=tuple(METHODS))
def method(request):
    return METHODS[request.param]


@pytest.fixture
def batch(texts):
    return texts((9, 5, 7))


def test_passes_have_the_promised_shape_and_follow_the_seed(method, model_for, batch):
    model = model_for(method)
    first = method.seeded(1).run(model, batch)
    assert first.logits.shape == (method.passes, 3, 3)
    assert first.logits.dtype == torch.float32
    assert first.logits.isfinite().all()
    assert torch.equal(first.logits, method.seeded(1).run(model, batch).logits)
    assert torch.equal(first.logits, method.seeded(2).run(model, batch).logits) != method.stochastic
    assert first.variance is None or first.variance.shape == (3, 1)
    assert method.knows_variance == (len(first.logits) > 1 or first.variance is not None)


def test_a_text_gets_one_answer_whatever_its_batch(method, model_for, texts):
    model = model_for(method)
    batch, wider = texts((9, 5, 7)), texts((9, 5, 7), tokens=14)
    together = method.run(model, batch).logits
    alone = [method.run(model, {name: value[i : i + 1] for name, value in batch.items()}).logits for i in range(3)]
    close = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(torch.cat(alone, dim=1), together, **close)
    torch.testing.assert_close(method.run(model, wider).logits, together, **close)


def test_multiple_choice_gives_a_class_for_each_option(method, model_for, choices):
    if method.name == "laplace":
        with pytest.raises(ConfigurationError, match="laplace cannot be trained on the kind 'choice', only on one;"):
            model_for(method, choices=True)
        return
    assert method.run(model_for(method, choices=True), choices).logits.shape[1:] == (2, 4)


def test_the_model_is_left_as_it_was_also_when_a_call_fails(method, model_for, batch):
    model = copy.deepcopy(model_for(method)).train()
    model.bert.pooler.eval()
    modes = [module.training for module in model.modules()]
    before = model_hash(model)
    evaluated = method.run(copy.deepcopy(model).eval(), batch).logits
    assert torch.equal(method.run(model, batch).logits, evaluated)
    assert [module.training for module in model.modules()] == modes
    assert model_hash(model) == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises((IndexError, RuntimeError)):
        method.run(model, batch | {"input_ids": batch["input_ids"] + 1000})
    assert [module.training for module in model.modules()] == modes


def test_names_and_json_lead_back_to_the_method(method):
    assert isinstance(method, Method)
    assert METHODS[method.name] is method
    assert parse_method(method.name) == method
    assert load(STORED, json.loads(json.dumps(method_to_dict(method))), advice="") == method
    assert "seed" not in json.dumps(method_to_dict(method))
    assert method.summary


def test_base_is_the_model_itself(shared, batch):
    model = shared("bert")
    with torch.no_grad():
        expected = model(**batch).logits
    torch.testing.assert_close(METHODS["base"].run(model, batch).logits, expected[None], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("mc-uniform", UATConfig(gate="none", rates=DropoutRates.uniform(0.1))),
        ("mc-component", UATConfig(gate="none")),
        ("mc-global", UATConfig(gate="none", rates=DropoutRates.own())),
        ("uat", UATConfig()),
        ("fast", UATConfig.fast()),
        ("uat:gate=k,penalty=1.0,samples=4", UATConfig(gate="k", penalty=1.0, samples=4)),
        ("mc:rate=0.3,classifier=own", UATConfig(gate="none", rates=DropoutRates(0.3, 0.3, 0.3, None))),
    ],
)
def test_sampled_methods_are_the_engine_under_their_configuration(shared, batch, name, config):
    model = shared("bert")
    assert torch.equal(parse_method(name).run(model, batch).logits, sample(model, batch, config).logits)


@pytest.mark.parametrize(
    ("spelt", "canonical"),
    [
        ("mc", "mc-uniform"),
        ("uat:gate=q", "uat"),
        (" uat : penalty = 1 , gate = k ", "uat:penalty=1.0,gate=k"),
        ("uat:uncertainty=cv+ln,per_input=true,embedding=own", "uat:uncertainty=cv+ln,per_input=true,embedding=own"),
        ("mc:rate=0.2", "mc-uniform:rate=0.2"),
        ("uat:gate_layers=9-11,rate_layers=9-11", "uat:layers=9-11"),
        ("uat:layers=2&5,gate_layers=top-3", "uat:gate_layers=top-3,rate_layers=2&5"),
        ("mc-global:rate=0.2,attention=own", "mc-global:embedding=0.2,feed_forward=0.2,classifier=0.2"),
    ],
)
def test_spellings_have_one_canonical_form(spelt, canonical):
    method = parse_method(spelt)
    assert method.name == canonical
    assert parse_method(canonical) == method
    assert load(STORED, method_to_dict(method), advice="") == method


@pytest.mark.parametrize(
    ("spelt", "message"),
    [
        ("uta", "There is no method 'uta'.*Did you mean 'uat'"),
        ("uat:gat=k", "no setting 'gat'.*Did you mean 'gate'"),
        ("uat:gate", "'gate' in 'uat:gate' is not a setting"),
        ("uat:gate=k,gate=q", "sets 'gate' twice"),
        ("uat:seed=3", "--seeds"),
        ("uat:samples=few", "samples='few' is not a whole number"),
        ("uat:penalty=big", "penalty='big' is not a number"),
        ("uat:per_input=1", "not true or false"),
        ("uat:embedding=x", "embedding='x' is not a number or 'own'"),
        ("base:gate=k", "base has no settings"),
        ("analytic:samples=3", "analytic has no setting 'samples'"),
        ("vi-last-layer:samples=0", "samples=0"),
        ("cascade", r"is gone: use 'distilled'.*second_look='uat'"),
        ("adaptive", r"is gone: use 'distilled'.*second_look='uat'"),
    ],
)
def test_misspellings_are_explained(spelt, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_method(spelt)


def test_aliases_name_methods():
    assert set(METHOD_ALIASES.values()) <= set(METHODS)
    assert not set(METHOD_ALIASES) & set(METHODS)


def test_analytic_is_the_propagated_margin(shared, batch):
    passes = parse_method("analytic:gate=k").run(shared("bert"), batch)
    expected = propagate(shared("bert"), batch, UATConfig(estimate="closed-form", gate="k"))
    assert torch.equal(passes.logits, expected.logits[None])
    assert torch.equal(passes.variance[:, 0], expected.variance)


@pytest.mark.parametrize("name", ["base", "mc-uniform", "uat", "fast", "analytic", "distilled", "distilled:of=fast"])
def test_many_labels_have_the_passes_of_one_class_and_a_variance_each(name, shared, batch):
    """The meaning of the logits differs and nothing else: the logits of every pass are equal."""
    method = parse_method(name)
    many = method.run(shared("bert", **MANY), batch)
    torch.testing.assert_close(many.logits, method.run(shared("bert"), batch).logits)
    if method.passes == 1 and method.knows_variance:
        assert many.variance.shape == (3, 3)


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"])
def test_a_text_has_the_same_variances_of_labels_in_every_batch(architecture, tiny, batch):
    model, analytic = tiny(architecture, **MANY), METHODS["analytic"]
    together = analytic.run(model, batch).variance
    for row in range(3):
        alone = analytic.run(model, {key: value[row : row + 1] for key, value in batch.items()}).variance
        torch.testing.assert_close(alone, together[row : row + 1], rtol=1e-3, atol=1e-6)
    case = Case.of(model, batch, analytic.config)
    for label, weights in enumerate(torch.eye(3)):
        alone = first_orders(case, lambda rows, logits, of=weights: of.expand(1, *logits.shape))
        torch.testing.assert_close(alone.parts[0].sum(dim=1), together[:, label])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_first_order_variance_is_that_of_little_dropout(shared, texts):
    """Where few units are dropped, many sampled passes have the first-order variance."""
    rates = "embedding=0.001,attention=0.001,feed_forward=0.001,classifier=0.001,gate=none"
    model, batch = shared("bert", **MANY), texts((6,))
    analytic = parse_method(f"analytic:{rates}").run(model, batch).variance
    sampled = parse_method(f"uat:{rates},samples=6000").run(model, batch).logits
    torch.testing.assert_close(sampled.var(dim=0), analytic, rtol=0.15, atol=0.0)
