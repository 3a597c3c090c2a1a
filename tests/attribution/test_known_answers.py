"""Stacks whose variance is known in closed form: each estimator must find it, and part from the others as it should."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from uatlite.attribution import layers
from uatlite.attribution.first_order import Case, first_orders
from uatlite.model.architectures import architectures
from uatlite.model.intervention import EMBEDDINGS, HEAD, Site, Sites, current
from uatlite.model.view import View
from uatlite.passes.config import DropoutRates, UATConfig

LAYERS = 2
RATES = DropoutRates(0.1, 0.2, 0.3, 0.15)
RATIOS = {name: rate / (1 - rate) for name, rate in RATES.__dict__.items()}
"""The variance p/(1-p) of a multiplier."""


def _sites():
    found = {(EMBEDDINGS, "embedding"): Site("embedding", "embedding", "embedding", EMBEDDINGS, 0.0)}
    for layer in range(LAYERS):
        found[layer, "probabilities"] = Site(f"{layer}.attention", "probabilities", "attention", layer, 0.0)
        found[layer, "output"] = Site(f"{layer}.output", "output", "attention", layer, 0.0)
        found[layer, "feed_forward"] = Site(f"{layer}.feed", "feed_forward", "feed_forward", layer, 0.0)
    found[HEAD, "head"] = Site("head", "head", "classifier", HEAD, 0.0)
    return found


class Stack(nn.Module):
    """Calls the seams as an encoder does; its answer y is the logit of the first of two classes, the other's is 0."""

    def __init__(self, tokens, width):
        super().__init__()
        self.config = SimpleNamespace(hidden_size=width, num_attention_heads=1, num_labels=2, model_type="stack")
        self.sites = _sites()
        generator = torch.Generator().manual_seed(0)
        self.constants = {key: torch.randn(tokens, width, generator=generator) for key in self.sites}
        self.attention = torch.rand(LAYERS, tokens, tokens, generator=generator)
        self.values = torch.randn(LAYERS, tokens, width, generator=generator)

    def at(self, layer, role, x):
        return current().at_site(self.sites[layer, role], x)

    def attend(self, layer, hidden, weights):
        current().enter_layer(hidden)
        return current().at_probabilities(self.sites[layer, "probabilities"], weights.clone())

    def forward(self, input_ids, attention_mask, return_dict):
        y = self.answer(len(input_ids))
        return SimpleNamespace(logits=torch.stack([y, torch.zeros_like(y)], dim=-1))

    def case(self):
        tokens = self.attention.shape[-1]
        view = View(self, architectures()["bert"], Sites(self.sites.values()), LAYERS, narrows=False)
        inputs = {"input_ids": torch.ones(1, tokens, dtype=torch.long)}
        inputs["attention_mask"] = inputs["input_ids"].clone()
        return Case(view, inputs, UATConfig(gate="none", rates=RATES, estimate="closed-form"))


class Sum(Stack):
    """y is a sum over sites of constants times their multipliers, plus 100: noises add up and nothing else happens."""

    def answer(self, rows):
        def fresh(key):
            return self.constants[key].expand(rows, -1, -1).clone()

        y = self.at(EMBEDDINGS, "embedding", fresh((EMBEDDINGS, "embedding"))).sum(dim=(1, 2))
        for layer in range(LAYERS):
            weights = self.attend(layer, y[:, None, None], self.attention[layer].expand(rows, 1, -1, -1))
            y = y + (weights @ self.values[layer]).sum(dim=(1, 2, 3))
            for role in ("output", "feed_forward"):
                y = y + self.at(layer, role, fresh((layer, role))).sum(dim=(1, 2))
        return 100 + y + self.at(HEAD, "head", fresh((HEAD, "head"))[:, 0]).sum(dim=1)

    def variances(self):
        """Σ (constant)²·p/(1-p) by layer."""
        squares = {key: value.square() for key, value in self.constants.items()}
        found = [RATIOS["embedding"] * squares[EMBEDDINGS, "embedding"].sum()]
        for layer in range(LAYERS):
            # token i receives Σ_j attention_ij·value_j, of which y takes the sum over units
            weighted = (self.attention[layer] * self.values[layer].sum(dim=1)).square().sum()
            attention = RATIOS["attention"] * (weighted + squares[layer, "output"].sum())
            found.append(attention + RATIOS["feed_forward"] * squares[layer, "feed_forward"].sum())
        return torch.stack([*found, RATIOS["classifier"] * squares[HEAD, "head"][0].sum()])


class Product(Stack):
    """One token, one unit: y is 2 times the product of all multipliers, so noises multiply and the estimators part."""

    def answer(self, rows):
        y = self.at(EMBEDDINGS, "embedding", torch.full((rows, 1, 1), 2.0))
        for layer in range(LAYERS):
            y = y * self.attend(layer, y, torch.ones(rows, 1, 1, 1))[:, 0]
            for role in ("output", "feed_forward"):
                y = self.at(layer, role, y)
        return self.at(HEAD, "head", y[:, 0])[:, 0]

    def cumulative(self):
        """S_l = y²·(Π over multipliers up to layer l of (1 + p/(1-p)) - 1), from S of the embeddings."""
        layer = (1 + RATIOS["attention"]) ** 2 * (1 + RATIOS["feed_forward"])
        growth = [1 + RATIOS["embedding"], *[layer] * LAYERS, 1 + RATIOS["classifier"]]
        return 4 * (torch.tensor(growth).cumprod(dim=0) - 1)


def _within(found, error, expected, errors=4.5):
    return bool(((found - expected).abs() <= errors * error + 1e-6).all())


def test_all_three_find_the_variance_of_a_sum():
    stack = Sum(tokens=3, width=4)
    case, expected = stack.case(), stack.variances()
    delta = layers.Attribution.of(first_orders(case, "predicted"))
    torch.testing.assert_close(delta.contributions[0], expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(delta.components.sum(dim=-1), delta.contributions[:, 1:-1])
    for estimator in ("isolated", "total-variance"):
        found = layers._sampled(case, estimator, "predicted", 1000, True)
        assert bool((found.contribution_errors[0] < 0.15 * expected.sum()).all())
        assert _within(found.contributions[0], found.contribution_errors[0], expected)
        assert _within(found.components.sum(-1)[0], found.component_errors.sum(-1)[0], expected[1:-1])
        assert _within(found.total[0], found.total_error[0], expected.sum())


def test_they_part_on_a_product_exactly_as_algebra_says():
    stack = Product(tokens=1, width=1)
    case, cumulative = stack.case(), stack.cumulative()
    first_order = torch.tensor(
        [RATIOS["embedding"], *[2 * RATIOS["attention"] + RATIOS["feed_forward"]] * LAYERS, RATIOS["classifier"]]
    )
    one_layer = 4 * ((1 + RATIOS["attention"]) ** 2 * (1 + RATIOS["feed_forward"]) - 1)
    alone = torch.tensor([*cumulative[:1], *[one_layer] * LAYERS, 4 * RATIOS["classifier"]])
    delta = layers.Attribution.of(first_orders(case, "predicted"))
    torch.testing.assert_close(delta.contributions[0], 4 * first_order)
    isolated = layers._sampled(case, "isolated", "predicted", 2500, True)
    assert _within(isolated.contributions[0], isolated.contribution_errors[0], alone)
    total = layers._sampled(case, "total-variance", "predicted", 2500, True)
    steps = torch.diff(cumulative, prepend=torch.zeros(1))
    assert _within(total.contributions[0], total.contribution_errors[0], steps)
    assert _within(total.total[0], total.total_error[0], cumulative[-1])
    # what is left out by the other two is no small thing here
    assert float(cumulative[-1]) > 1.5 * float(alone.sum()) > 1.5 * 4 * float(first_order.sum())


@pytest.mark.parametrize("estimator", ["isolated", "total-variance"])
def test_standard_errors_are_those_of_repeated_runs(estimator):
    case = Sum(tokens=3, width=4).case()
    runs = [
        layers._sampled(replace(case, config=replace(case.config, seed=seed)), estimator, "predicted", 60, True)
        for seed in range(40)
    ]
    spread = torch.stack([run.contributions[0] for run in runs]).std(dim=0)
    stated = torch.stack([run.contribution_errors[0] for run in runs]).mean(dim=0)
    assert bool(((stated / spread - 1).abs() < 0.35).all())
