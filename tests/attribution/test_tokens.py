"""First-order variances of several outputs of a text, as of its tokens: together and alone, and by sampled passes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from uatlite import DropoutRates, UATConfig, propagate, sample
from uatlite.attribution.first_order import OUTPUTS, token_margins
from uatlite.errors import ModelError
from uatlite.methods.distilled import DISTILLED, FEATURES, ReadOut
from uatlite.methods.sampling import ANALYTIC, BASE

CONFIG = UATConfig(rates=DropoutRates(0.1, 0.2, 0.3, 0.1))


def all_real(batch):
    return lambda rows, logits: batch["attention_mask"][rows][:, : logits.shape[1]].bool()


def test_backward_passes_that_run_together_are_those_of_one_at_a_time(architecture, shared, texts, monkeypatch):
    model, batch, calls = shared(architecture, tokens=True), texts((6,)), []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **how: calls.append(args[2]) or grad(*args, **how))
    found = {}
    for most, expected in ((1, 6), (6 * 4, 2), (6 * 6, 1)):
        monkeypatch.setattr("uatlite.attribution.first_order.BACKWARD_TOKENS", most)
        calls.clear()
        found[most] = token_margins(model, batch, CONFIG, all_real(batch))
        assert len(calls) == expected
    alone, expected = found.pop(1)
    for parts, variances in found.values():
        torch.testing.assert_close(parts.parts, alone.parts, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(parts.tokens, alone.tokens, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(variances, expected, rtol=1e-4, atol=1e-9)


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


@pytest.mark.parametrize("tokens", [False, True])
def test_small_rates_make_them_those_of_many_passes(tiny, texts, tokens):
    model, batch = tiny("bert", tokens=tokens), texts((5,))
    config = UATConfig(gate="none", rates=DropoutRates.uniform(0.002), samples=3000)
    variances = (
        replace(ANALYTIC, config=config).run(model, batch, all_real(batch) if tokens else None).variance.flatten()
    )
    logits = sample(model, batch, config).logits.flatten(1, -2)  # (passes, outputs, classes)
    margins = (logits * OUTPUTS["margin"](logits.mean(dim=0))).sum(dim=-1)
    error = (margins - margins.mean(dim=0)).square().std(dim=0) / 3000**0.5
    assert ((variances - margins.var(dim=0)).abs() < 4 * error).all()
    assert (4 * error < variances).all()


def test_methods_on_tokens(shared, texts):
    model, batch = shared("bert", tokens=True), texts((6, 4))
    poor = ReadOut.empty("entities", 100, 37, quality=0.1)
    drawn = np.random.default_rng(0).normal(size=(37, 1)) / 10
    fitted = ReadOut("entities", drawn, np.array([-1.0]), np.array([[-9.0], [3.0]]), 0.9, 0.9, 100)
    methods = [BASE, DISTILLED, ANALYTIC, *(replace(DISTILLED, read_out=read_out) for read_out in (poor, fitted))]
    plain, untaught, taught, fallen_back, read = (method.run(model, batch, all_real(batch)) for method in methods)
    assert plain.variance is None
    assert plain.logits.shape == (1, 2, 6, 3)
    assert plain.representation.shape == (2, 6, 32)
    _, expected = token_margins(model, batch, ANALYTIC.config, all_real(batch))
    for found in (taught, fallen_back):
        torch.testing.assert_close(found.variance[..., 0], expected, equal_nan=True)
    for found in (untaught, read):
        torch.testing.assert_close(found.logits, plain.logits)
    real = batch["attention_mask"].bool()
    assert read.variance[..., 0].isnan().equal(~real)
    assert read.variance[real].numpy() == pytest.approx(
        fitted.variance(FEATURES["one"].of(plain.arrays(real))), rel=1e-5
    )


def test_the_variance_of_one_answer_is_refused(shared, texts):
    with pytest.raises(ModelError, match=r"several answers a text \(entities\).*first_orders"):
        propagate(shared("bert", tokens=True), texts((5,)))
