"""The delta method and the analytic one built on it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from uatlite.attribution import first_order as first_order_module
from uatlite.attribution.first_order import (
    OUTPUTS,
    Case,
    Recorder,
    first_orders,
    forwards,
    part_index,
    token_margins,
    without_noise,
)
from uatlite.attribution.layers import attribute, propagate
from uatlite.model.intervention import intervene
from uatlite.model.view import view_of
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.dropout import Noise, Texts
from uatlite.passes.forward import FoldedPasses

CONFIG = UATConfig(rates=DropoutRates(0.1, 0.2, 0.3, 0.1))
STEP = 1e-3
"""Large enough for the norms and rotations that transformers computes in single precision whatever the model's."""


class Nudge(Noise):
    """Multiplies one element of one call by 1 + step: in pass n the n-th element, so that one forward does them all."""

    def __init__(self, config, name, elements, step):
        super().__init__(config)
        self._name, self._elements, self._step = name, elements, step

    def perturb(self, call, x):
        if call.name != self._name:
            return x
        shared = call.site.role == "position"
        nudged = x.clone()
        rows = nudged.view(1 if shared else len(self._elements), -1)
        rows[torch.arange(len(rows)), torch.tensor(self._elements)] *= 1 + self._step
        return nudged


def numerical_terms(case, call, elements, weights):
    """Σ over elements of (∂y/∂m)²·p/(1-p) of outputs y (outputs,), by central differences in double precision."""
    total = 0.0
    together = 1 if call.site.role == "position" else elements  # a table is one for all rows of a forward
    for start in range(0, elements, together):
        y = []
        for step in (STEP, -STEP):
            noise = Nudge(case.config, call.name, range(start, start + together), step)
            run = FoldedPasses(case.config, Texts.of(case.inputs, False), range(together), noise=noise)
            with torch.inference_mode(), intervene(run):
                inputs = {name: value.repeat(together, 1) for name, value in case.inputs.items()}
                logits = case.view.model(**inputs).logits
                y.append((logits.view(together, -1, logits.shape[-1]) * weights).sum(dim=-1))
        total = total + ((y[0] - y[1]) / (2 * STEP)).square().sum(dim=0)
    return (total * call.rate / (1 - call.rate)).float()


def calls_of(case):
    """Every call that drops units, and how many elements it has for one text."""
    sizes = []

    class Sizes(Noise):
        def perturb(self, call, x):
            sizes.append((call, x.numel()))
            return x

    list(forwards(case, range(1), lambda texts, passes: Sizes(case.config)))
    return [(call, elements) for call, elements in sizes if call.rate > 0]


@pytest.mark.parametrize("tokens", [False, True])
def test_delta_equals_numerical_derivatives(tiny, architecture, texts, tokens):
    """By layer and component, of the margin of a text and of those of its tokens."""
    # DeBERTa's table of positions takes a forward for each of its elements.
    small = {"max_position_embeddings": 8, "hidden_size": 16} if "deberta" in architecture else {}
    model, batch = tiny(architecture, tokens=tokens, **small).double(), texts((4,))
    case = Case.of(model, batch, CONFIG)
    weights = OUTPUTS["margin"](without_noise(case)[0].view(-1, 3))
    parts = torch.zeros(2 * case.view.layers + 2, len(weights))
    for call, elements in calls_of(case):
        terms = numerical_terms(case, call, elements, weights)
        parts[part_index(call.layer, call.site.component, case.view.layers)] += terms
    if tokens:
        found, variances = token_margins(model, batch, CONFIG, lambda rows, logits: torch.ones(1, 4).bool())
        torch.testing.assert_close(variances[0], parts.sum(dim=0), rtol=2e-3, atol=1e-7)
    else:
        found = first_orders(case, "margin")
    torch.testing.assert_close(found.parts[:, 0].T, parts, rtol=2e-3, atol=1e-7)


def test_token_terms_and_those_of_no_token_make_the_total(model, texts):
    encoded = texts((9, 5, 7), tokens=11)
    found = propagate(model, encoded, CONFIG)
    padding = ~encoded["attention_mask"].bool()
    assert float(found.tokens[padding].abs().sum()) == 0
    assert bool((found.tokens >= 0).all())
    rest = found.total - found.tokens.sum(dim=-1)
    head = found.contributions[:, -1]
    if "deberta" in model.config.model_type:  # its table of positions is of no token
        assert bool((rest > head).all())
    else:
        torch.testing.assert_close(rest, head, rtol=1e-4, atol=1e-5 * float(found.total.max()))


def test_propagation_is_the_gated_pass(model, encoded):
    for config in (CONFIG, replace(CONFIG, gate="none")):
        found = propagate(model, encoded, config)
        torch.testing.assert_close(found.logits, without_noise(Case.of(model, encoded, config))[0])
    with torch.inference_mode():
        plain = model(**encoded).logits
    torch.testing.assert_close(found.logits, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("caller", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_no_gradient_is_left_and_none_is_needed(tiny, texts, trainable, caller):
    model, batch = tiny("bert"), texts((6, 4))
    expected = propagate(model, batch, CONFIG)
    model.requires_grad_(trainable)
    next(model.parameters()).requires_grad_(not trainable)
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    model.train()
    with caller():
        found = propagate(model, batch, CONFIG)
        attribute(model, batch, CONFIG, estimator="total-variance", samples=2)
    torch.testing.assert_close(found.total, expected.total)
    assert not any(value.requires_grad for value in vars(found).values() if isinstance(value, Tensor))
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_gradient_of_the_user_s_is_kept(tiny, texts):
    model, batch = tiny("bert"), texts((6, 4))
    model(**batch).logits.sum().backward()
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    propagate(model, batch, CONFIG)
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert parameter.grad is grad is None or torch.equal(parameter.grad, grad)


def test_propagate_is_the_delta_attribution_of_the_margin(shared, texts):
    model, batch = shared("bert"), texts((6, 4))
    found, expected = propagate(model, batch, CONFIG), attribute(model, batch, CONFIG, output="margin")
    assert torch.equal(found.contributions, expected.contributions)
    assert found.variance is found.total
    none = propagate(model, {name: value[:0] for name, value in batch.items()}, CONFIG)
    assert (none.logits.shape, none.contributions.shape, none.components.shape) == ((0, 3), (0, 4), (0, 2, 2))


NARROW = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet")


@pytest.mark.parametrize("architecture", NARROW, indirect=True)
def test_a_narrow_last_layer_gives_what_the_whole_one_does(model, encoded, monkeypatch):
    """y reads the first token alone, so no dropout at another one of the last layer moves it."""
    config = UATConfig(penalty=2.0, rates=DropoutRates(0.15, 0.2, 0.3, 0.25))
    seen = []

    class Watched(Recorder):
        def perturb(self, call, x):
            seen.append((call.name, x.shape[1])) if call.site.role == "feed_forward" else None
            return super().perturb(call, x)

    monkeypatch.setattr(first_order_module, "Recorder", Watched)
    narrow = propagate(model, encoded, config)
    begins_left = bool(encoded["attention_mask"][:, 0].all())
    last = f"{model.config.num_hidden_layers - 1}.feed_forward.0"
    assert all((tokens == 1) == (name == last and begins_left) for name, tokens in seen)
    monkeypatch.setattr(first_order_module, "view_of", lambda model: replace(view_of(model), narrows=False))
    whole = propagate(model, encoded, config)
    for name in ("logits", "total", "contributions", "components", "tokens", "token_uncertainty"):
        torch.testing.assert_close(getattr(narrow, name), getattr(whole, name), rtol=1e-4, atol=1e-6)
