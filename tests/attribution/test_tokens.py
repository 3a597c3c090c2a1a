"""First-order variances of several outputs of a text, against a Jacobian by autograd and against sampled passes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from uatlite import DropoutRates, UATConfig, propagate, sample
from uatlite.attribution.first_order import Case, first_order, first_orders, output_weights, token_margins
from uatlite.errors import ModelError
from uatlite.methods.distilled import DISTILLED, ReadOut, features_of
from uatlite.methods.sampling import ANALYTIC, BASE
from uatlite.model.intervention import intervene
from uatlite.passes.dropout import Noise, Texts
from uatlite.passes.forward import FoldedPasses
from uatlite.predictive import PassLogits

CONFIG = UATConfig(rates=DropoutRates(0.1, 0.2, 0.3, 0.1))


def all_real(batch):
    return lambda rows, logits: batch["attention_mask"][rows][:, : logits.shape[1]].bool()


class Multipliers(Noise):
    """Multiplies the values of each call by multipliers of our own, which can be differentiated by."""

    def __init__(self, config, given=None):
        super().__init__(config)
        self.given, self.shapes, self.rates = given, [], []

    def perturb(self, call, x):
        if call.rate == 0:
            return x
        self.shapes.append(x.shape)
        self.rates.append(call.rate)
        return x if self.given is None else x * self.given[len(self.shapes) - 1]


def margins_by_jacobian(model, batch, config):
    """Σ (∂margin/∂m)²·p/(1-p) of every token of one text (tokens,): all derivatives of all logits, and no sharing."""
    case = Case.of(model, batch, config)
    texts = Texts.of(case.inputs, False)

    def run(noise):
        with intervene(FoldedPasses(case.config, texts, range(1), noise=noise)):
            return case.view.model(**case.inputs).logits[0]

    probe = Multipliers(case.config)
    with torch.no_grad():
        plain = run(probe)
    ones = tuple(torch.ones(shape) for shape in probe.shapes)
    jacobians = torch.autograd.functional.jacobian(lambda *given: run(Multipliers(case.config, given)), ones)
    first, second = plain.topk(2, dim=-1).indices.unbind(-1)
    places = torch.arange(len(plain))
    total = torch.zeros(len(plain))
    for rate, jacobian in zip(probe.rates, jacobians, strict=True):
        difference = (jacobian[places, first] - jacobian[places, second]).flatten(1)
        total += difference.square().sum(dim=1) * rate / (1 - rate)
    return total


def test_variances_of_all_tokens_equal_the_jacobian_s(architecture, tiny, texts):
    model, batch = tiny(architecture, tokens=True), texts((6,))
    found, variances = token_margins(model, batch, CONFIG, all_real(batch))
    torch.testing.assert_close(variances[0], margins_by_jacobian(model, batch, CONFIG), rtol=1e-3, atol=1e-6)
    assert found.logits.shape == (1, 6, 3)


def test_several_outputs_are_those_of_one_at_a_time(shared, texts):
    model, batch = shared("bert"), texts((9, 5, 7), tokens=11)
    case = Case.of(model, batch, CONFIG)
    both = first_orders(
        case, lambda rows, logits: torch.stack([output_weights(one, logits) for one in ("margin", "predicted")])
    )
    for number, name in enumerate(("margin", "predicted")):
        one = first_order(case, name)
        torch.testing.assert_close(both.parts[number], one.parts[0])
        torch.testing.assert_close(both.tokens[number], one.tokens[0])
        torch.testing.assert_close(both.logits, one.logits)


def test_backward_passes_that_run_together_are_those_of_one_at_a_time(architecture, shared, texts, monkeypatch):
    model, batch, calls = shared(architecture, tokens=True), texts((6,)), []
    grad = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *args, **options: calls.append(args[2]) or grad(*args, **options)
    )
    found = {}
    for most, expected in ((1, 6), (6 * 4, 2), (6 * 6, 1)):
        monkeypatch.setattr("uatlite.attribution.first_order.BACKWARD_TOKENS", most)
        calls.clear()
        found[most] = token_margins(model, batch, CONFIG, all_real(batch))
        assert len(calls) == expected
    one_by_one = found.pop(1)
    for parts, variances in found.values():
        torch.testing.assert_close(parts.parts, one_by_one[0].parts, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(parts.tokens, one_by_one[0].tokens, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(variances, one_by_one[1], rtol=1e-4, atol=1e-9)


def test_a_text_s_variances_do_not_depend_on_its_batch(architecture, shared, texts):
    model, batch = shared(architecture, tokens=True), texts((9, 4, 12))

    def chosen(rows, logits):  # the second text has none, the third two
        mask = torch.zeros(logits.shape[:2], dtype=torch.bool)
        for place, row in enumerate(rows.tolist()):
            mask[place, {0: [3], 1: [], 2: [0, 11]}[row]] = True
        return mask

    found, together = token_margins(model, batch, CONFIG, chosen)
    assert (~together.isnan()).nonzero().tolist() == [[0, 3], [2, 0], [2, 11]]
    alone = {name: value[2:] for name, value in batch.items()}
    _, single = token_margins(model, alone, CONFIG, lambda rows, logits: chosen(rows + 2, logits))
    torch.testing.assert_close(single[0], together[2], rtol=1e-3, atol=1e-6, equal_nan=True)
    assert found.parts.shape[0] == 2
    none, unknown = token_margins(model, batch, CONFIG, lambda rows, logits: torch.zeros(logits.shape[:2]).bool())
    assert unknown.isnan().all()
    torch.testing.assert_close(none.logits, found.logits)


def test_small_rates_make_them_those_of_many_passes(tiny, texts):
    model, batch = tiny("bert", tokens=True), texts((5,))
    config = UATConfig(gate="none", rates=DropoutRates.uniform(0.002), samples=3000)
    _, variances = token_margins(model, batch, config, all_real(batch))
    logits = sample(model, batch, config).logits[:, 0]
    first, second = logits.mean(dim=0).topk(2, dim=-1).indices.unbind(-1)
    places = torch.arange(5)
    margins = logits[:, places, first] - logits[:, places, second]
    sampled = margins.var(dim=0)
    error = (margins - margins.mean(dim=0)).square().std(dim=0) / 3000**0.5
    assert ((variances[0] - sampled).abs() < 4 * error).all()
    assert (4 * error < variances[0]).all()


def test_methods_on_tokens(shared, texts):
    model, batch = shared("bert", tokens=True), texts((6, 4))
    plain = BASE.run(model, batch, all_real(batch))
    assert plain.variance is None
    assert plain.logits.shape == (1, 2, 6, 3)
    assert plain.representation.shape == (2, 6, 32)
    taught = ANALYTIC.run(model, batch, all_real(batch))
    _, expected = token_margins(model, batch, ANALYTIC.config, all_real(batch))
    torch.testing.assert_close(taught.variance[..., 0], expected, equal_nan=True)
    torch.testing.assert_close(DISTILLED.run(model, batch, all_real(batch)).logits, plain.logits)
    poor = ReadOut.empty("entities", 100, 37, quality=0.1)
    found = replace(DISTILLED, read_out=poor).run(model, batch, all_real(batch))
    torch.testing.assert_close(found.variance[..., 0], expected, equal_nan=True)
    rng = np.random.default_rng(0)
    fitted = ReadOut(
        "entities", rng.normal(size=(37, 1)) / 10, np.array([-1.0]), np.array([[-9.0], [3.0]]), 0.9, 0.9, 100
    )
    read = replace(DISTILLED, read_out=fitted).run(model, batch, all_real(batch))
    torch.testing.assert_close(read.logits, plain.logits)
    real = batch["attention_mask"].bool()
    assert read.variance[..., 0].isnan().equal(~real)
    features = features_of(
        PassLogits(plain.logits[0, real].double().numpy()[None], representations=plain.representation[real].numpy())
    )
    assert read.variance[real].numpy() == pytest.approx(fitted.variance(features), rel=1e-5)


def test_the_variance_of_one_answer_is_refused(shared, texts):
    with pytest.raises(ModelError, match=r"several answers a text \(entities\).*first_orders"):
        propagate(shared("bert", tokens=True), texts((5,)))
