"""The delta method and the analytic one built on it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution import first_order as first_order_module
from uatlite.attribution.first_order import (
    Case,
    Recorder,
    first_order,
    forwards,
    output_weights,
    part_index,
    without_noise,
)
from uatlite.attribution.layers import attribute, propagate
from uatlite.model.intervention import intervene
from uatlite.model.view import view_of
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.dropout import Noise, SiteCall, Texts
from uatlite.passes.forward import FoldedPasses

Encode = Callable[..., dict[str, Tensor]]

CONFIG = UATConfig(rates=DropoutRates(classifier=0.1))
Encoded = dict[str, Tensor]
Tiny = Callable[..., PreTrainedModel]
STEP = 1e-3
"""Large enough for the norms and rotations that transformers computes in single precision whatever the model's."""


class _Nudge(Noise):
    """Multiplies one element of one call by 1 + step: in pass n the n-th element, so that one forward does them all."""

    def __init__(self, config: UATConfig, name: str, elements: range, step: float) -> None:
        super().__init__(config)
        self._name, self._elements, self._step = name, elements, step

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.name != self._name:
            return x
        shared = call.site.role == "position"
        nudged = x.clone()
        rows = nudged.view(1 if shared else len(self._elements), -1)
        rows[torch.arange(len(rows)), torch.tensor(self._elements)] *= 1 + self._step
        return nudged


def _numerical_terms(case: Case, call: SiteCall, elements: int, weights: Tensor) -> float:
    """Σ over elements of (∂y/∂m)²·p/(1-p), by central differences of the model in double precision."""
    total = 0.0
    together = 1 if call.site.role == "position" else elements  # a table is one for all rows of a forward
    ids, mask = case.inputs["input_ids"], case.inputs["attention_mask"]
    for start in range(0, elements, together):
        block = range(start, start + together)
        y = []
        for step in (STEP, -STEP):
            noise = _Nudge(case.config, call.name, block, step)
            run = FoldedPasses(case.config, Texts.of(case.inputs, False), range(together), noise=noise)
            with torch.inference_mode(), intervene(run):
                inputs = {"input_ids": ids.repeat(together, 1), "attention_mask": mask.repeat(together, 1)}
                y.append((case.view.model(**inputs).logits * weights).sum(dim=-1))
        total += float(((y[0] - y[1]) / (2 * STEP)).square().sum())
    return total * call.rate / (1 - call.rate)


def _sizes(case: Case) -> Iterator[tuple[SiteCall, int]]:
    """Every call and how many elements it has for one text."""

    class Sizes(Noise):
        found: list[tuple[SiteCall, int]] = []  # noqa: RUF012

        def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
            self.found.append((call, x.numel()))
            return x

    list(forwards(case, range(1), lambda texts, passes: Sizes(case.config)))
    return (pair for pair in Sizes.found if pair[0].rate > 0)


def test_delta_equals_numerical_derivatives(tiny: Tiny, architecture: str, texts: Encode) -> None:
    # DeBERTa's table of positions takes a forward for each of its elements.
    small = {"max_position_embeddings": 8, "hidden_size": 16} if "deberta" in architecture else {}
    model = tiny(architecture, **small).double()
    case = Case.of(model, texts((4,)), CONFIG)
    weights = output_weights("predicted", without_noise(case)[0])
    expected = torch.zeros(2 * case.view.layers + 2)
    for call, elements in _sizes(case):
        term = _numerical_terms(case, call, elements, weights)
        expected[part_index(call.layer, call.site.component, case.view.layers)] += term
    torch.testing.assert_close(first_order(case, "predicted").parts[0, 0].float(), expected, rtol=2e-3, atol=1e-7)


def test_token_terms_and_those_of_no_token_make_the_total(model: PreTrainedModel, texts: Encode) -> None:
    encoded = texts((9, 5, 7), tokens=11)
    found = propagate(model, encoded, replace(CONFIG, rates=DropoutRates(0.1, 0.2, 0.3, 0.1)))
    padding = ~encoded["attention_mask"].bool()
    assert float(found.tokens[padding].abs().sum()) == 0
    assert bool((found.tokens >= 0).all())
    rest = found.variance - found.tokens.sum(dim=-1)
    head = found.contributions[:, -1]
    if "deberta" in model.config.model_type:  # its table of positions is of no token
        assert bool((rest > head).all())
    else:
        torch.testing.assert_close(rest, head, rtol=1e-4, atol=1e-5 * float(found.variance.max()))


def test_propagation_is_the_gated_pass(model: PreTrainedModel, encoded: Encoded) -> None:
    for config in (CONFIG, replace(CONFIG, gate="none")):
        found = propagate(model, encoded, config)
        torch.testing.assert_close(found.logits, without_noise(Case.of(model, encoded, config))[0])
    with torch.inference_mode():
        plain = model(**encoded).logits
    torch.testing.assert_close(found.logits, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("caller", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_no_gradient_is_left_and_none_is_needed(
    tiny: Tiny, texts: Encode, trainable: bool, caller: Callable[[], object]
) -> None:
    model, batch = tiny("bert"), texts((6, 4))
    expected = propagate(model, batch, CONFIG)
    model.requires_grad_(trainable)
    next(model.parameters()).requires_grad_(not trainable)
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    model.train()
    with caller():  # type: ignore[attr-defined]
        found = propagate(model, batch, CONFIG)
        attribute(model, batch, CONFIG, estimator="total-variance", samples=2)
    torch.testing.assert_close(found.variance, expected.variance)
    assert not any(value.requires_grad for value in vars(found).values() if isinstance(value, Tensor))
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_gradient_of_the_user_s_is_kept(tiny: Tiny, texts: Encode) -> None:
    model, batch = tiny("bert"), texts((6, 4))
    model(**batch).logits.sum().backward()
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    propagate(model, batch, CONFIG)
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert parameter.grad is grad is None or torch.equal(parameter.grad, grad)


def test_small_rates_make_the_first_order_exact(tiny: Tiny, texts: Encode) -> None:
    model, batch = tiny("bert"), texts((5,))
    config = UATConfig(gate="none", rates=DropoutRates.uniform(0.002))
    delta = attribute(model, batch, config)
    sampled = attribute(model, batch, config, estimator="isolated", samples=600)
    assert sampled.total_error is not None
    assert abs(float(delta.total - sampled.total)) < 4 * float(sampled.total_error) < float(delta.total)


def test_propagate_is_the_delta_attribution_of_the_margin(shared: Tiny, texts: Encode) -> None:
    model, batch = shared("bert"), texts((6, 4))
    found, expected = propagate(model, batch, CONFIG), attribute(model, batch, CONFIG, output="margin")
    assert found.to_dict() == expected.to_dict()
    assert found.variance is found.total
    none = propagate(model, {name: value[:0] for name, value in batch.items()}, CONFIG)
    assert (none.logits.shape, none.contributions.shape, none.components.shape) == ((0, 3), (0, 4), (0, 2, 2))


def test_choices_are_propagated(chooser: PreTrainedModel, choices: Encoded) -> None:
    found = propagate(chooser, choices, CONFIG)
    assert found.logits.shape == (2, 4)
    assert found.tokens.shape == choices["input_ids"].shape
    alone = propagate(chooser, {name: value[:1] for name, value in choices.items()}, CONFIG)
    torch.testing.assert_close(found.variance[:1], alone.variance, rtol=1e-3, atol=0)
    torch.testing.assert_close(found.tokens[:1], alone.tokens, rtol=1e-3, atol=1e-5)


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
    for name in ("logits", "variance", "contributions", "components", "tokens", "token_uncertainty"):
        torch.testing.assert_close(getattr(narrow, name), getattr(whole, name), rtol=1e-4, atol=1e-6)
