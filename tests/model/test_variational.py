"""The variational layer against torch.distributions, its own moments, and a posterior that is known in closed form."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from uatlite.errors import ConfigurationError
from uatlite.model.heads import VariationalLinear


def layer(**changes: float) -> VariationalLinear:
    made = VariationalLinear(6, 3, prior_scale=0.7, **changes)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()


@pytest.mark.parametrize("bias", [True, False])
def test_kl_is_that_of_the_distributions(bias: bool) -> None:
    made = layer(bias=bias)
    pairs = [(made.weight, made.weight_log_scale)] + ([(made.bias, made.bias_log_scale)] if bias else [])
    expected = sum(kl_divergence(Normal(mean, scale.exp()), Normal(0.0, 0.7)).sum() for mean, scale in pairs)
    torch.testing.assert_close(made.kl(), expected)


def test_kl_goes_to_zero_at_the_prior() -> None:
    made = layer()
    optimizer = torch.optim.Adam(made.parameters(), lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        made.kl().backward()
        optimizer.step()
    assert 0 <= float(made.kl().detach()) < 1e-4
    torch.testing.assert_close(made.weight_log_scale.exp(), torch.full((3, 6), 0.7), atol=1e-3, rtol=0)
    torch.testing.assert_close(made.weight, torch.zeros(3, 6), atol=1e-3, rtol=0)


def test_training_draws_logits_with_the_moments_of_drawn_weights() -> None:
    made, x = layer().train(), torch.randn(4, 6)
    drawn = made(x.repeat(40_000, 1)).view(40_000, 4, 3)
    sampled = made.sample(x, 4_000, seed=1)
    for logits, tolerance in ((drawn, 0.03), (sampled, 0.1)):
        torch.testing.assert_close(logits.mean(dim=0), made.eval()(x), atol=tolerance, rtol=0.02)
        torch.testing.assert_close(logits.var(dim=0), made.variance(x), atol=0, rtol=0.1)


def test_a_draw_is_a_function_of_seed_and_number_alone() -> None:
    made, x = layer(), torch.randn(5, 6)
    whole = made.sample(x, 4, seed=2)
    torch.testing.assert_close(made.sample(x[1:3], 2, seed=2), whole[:2, 1:3])
    assert not torch.allclose(whole[0], whole[1])
    assert not torch.allclose(made.sample(x, 4, seed=3), whole)


def test_outside_training_it_is_the_linear_layer_of_the_means() -> None:
    made, x = layer(), torch.randn(5, 6)
    assert torch.equal(made(x), torch.nn.functional.linear(x, made.weight, made.bias))


def test_the_elbo_recovers_the_posterior_of_a_linear_gaussian_model() -> None:
    """y = wᵀx + noise has a Gaussian posterior; with orthogonal columns it is a product, and so q can be exact."""
    rows, noise, prior = 40, 0.5, 0.7
    x = torch.linalg.qr(torch.randn(rows, 4))[0] * torch.tensor([1.0, 2.0, 3.0, 4.0])
    y = x @ torch.tensor([[0.5], [-1.0], [0.3], [0.0]]) + noise * torch.randn(rows, 1)
    precision = x.T @ x / noise**2 + torch.eye(4) / prior**2
    mean = torch.linalg.solve(precision, x.T @ y / noise**2)
    made = VariationalLinear(4, 1, bias=False, prior_scale=prior).train()
    optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
    steps = 1500
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        optimizer.zero_grad()
        fit = (made(x.repeat(8, 1)) - y.repeat(8, 1)).square().sum() / (8 * 2 * noise**2)
        (fit + made.kl()).backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(made.weight.T, mean, atol=0.02, rtol=0.02)
    torch.testing.assert_close(made.weight_log_scale.exp()[0], precision.diagonal().rsqrt(), atol=0, rtol=0.05)


@pytest.mark.parametrize("changes", [{"prior_scale": 0.0}, {"initial_scale": -1.0}])
def test_settings_without_meaning_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        VariationalLinear(6, 3, **changes)


def test_scales_begin_where_they_are_told() -> None:
    made = VariationalLinear(6, 3, initial_scale=0.2)
    assert float(made.weight_log_scale.detach().exp().mean()) == pytest.approx(0.2)
    assert made.bias_log_scale is not None
    assert float(made.bias_log_scale.detach()[0]) == pytest.approx(math.log(0.2))
