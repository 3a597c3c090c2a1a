"""Heads with a posterior, the bound on a linear map, and SWAG's Gaussian over weights."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from uatlite.model.heads import (
    GaussianProcessHead,
    VariationalLinear,
    add_to_moments,
    bound_spectral_norm,
    draw_weights,
    empty_moments,
    mean_field_logits,
    weight_posterior,
)

Rows = Callable[[float, int], Tensor]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def turned(angle, rows):
    """Rows (rows, 16) scattered about a direction that is `angle` from the first axis.

    Both axes have mean 0 and variance 1, so the head's normalisation leaves the angle as it is.
    """
    first, second = torch.tensor([1.0, -1.0] * 8), torch.tensor([1.0, 1.0, -1.0, -1.0] * 4)
    return math.cos(angle) * first + math.sin(angle) * second + 0.05 * torch.randn(rows, 16)


def layer(**changes):
    made = VariationalLinear(6, 3, prior_scale=0.7, **changes)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()


@pytest.mark.parametrize("bias", [True, False])
def test_kl_is_that_of_the_distributions(bias):
    made = layer(bias=bias)
    pairs = [(made.weight, made.weight_log_scale)] + ([(made.bias, made.bias_log_scale)] if bias else [])
    expected = sum(kl_divergence(Normal(mean, scale.exp()), Normal(0.0, 0.7)).sum() for mean, scale in pairs)
    torch.testing.assert_close(made.kl(), expected)


def test_training_draws_logits_with_the_moments_of_drawn_weights():
    """And outside training it is the linear layer of the means; scales begin where they are told."""
    made, x = layer().train(), torch.randn(4, 6)
    drawn = made(x.repeat(40_000, 1)).view(40_000, 4, 3)
    sampled = made.sample(x, 4_000, seed=1)
    for logits, tolerance in ((drawn, 0.03), (sampled, 0.1)):
        torch.testing.assert_close(logits.mean(dim=0), made.eval()(x), atol=tolerance, rtol=0.02)
        torch.testing.assert_close(logits.var(dim=0), made.variance(x), atol=0, rtol=0.1)
    assert torch.equal(made(x), functional.linear(x, made.weight, made.bias))
    scales = [
        value.exp() for name, value in VariationalLinear(6, 3, initial_scale=0.2).named_parameters() if "_" in name
    ]
    assert [scale.unique().tolist() for scale in scales] == [[pytest.approx(0.2)]] * 2


def test_a_draw_is_a_function_of_seed_and_number_alone():
    made, x = layer(), torch.randn(5, 6)
    whole = made.sample(x, 4, seed=2)
    torch.testing.assert_close(made.sample(x[1:3], 2, seed=2), whole[:2, 1:3])
    assert not torch.allclose(whole[0], whole[1])
    assert not torch.allclose(made.sample(x, 4, seed=3), whole)


def test_the_elbo_recovers_the_posterior_of_a_linear_gaussian_model():
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


@pytest.mark.parametrize("shape", [(8, 8), (5, 20), (20, 5)])
def test_only_a_map_that_stretches_too_far_is_scaled(shape):
    wide, narrow = torch.randn(shape), 0.01 * torch.randn(shape)
    before = wide.clone(), narrow.clone()
    bound_spectral_norm([wide, narrow], 0.95)
    assert float(torch.linalg.svdvals(wide)[0]) == pytest.approx(0.95)
    torch.testing.assert_close(wide / wide.norm(), before[0] / before[0].norm())
    assert torch.equal(narrow, before[1])


def head(classes=2, features=24, **changes):
    made = GaussianProcessHead(16, classes, features=features, **changes)
    made.draw(seed=3)
    torch.nn.init.normal_(made.coefficients, std=0.5)
    return made.eval()


def test_features_make_a_gaussian_kernel():
    made = GaussianProcessHead(16, 2, features=4_000, length_scale=0.8)
    made.draw(seed=0)
    x = functional.layer_norm(torch.randn(6, 16), (16,))
    features = made.features(x)
    distance = torch.cdist(x, x)
    kernel = torch.exp(-distance.square() / (2 * 0.8**2 * 16))
    torch.testing.assert_close(features @ features.T, kernel, atol=5 / math.sqrt(4_000), rtol=0)


def test_the_same_seed_draws_the_same_features():
    one, same, other = head(), head(), head()
    other.draw(seed=4)
    assert torch.equal(one.frequencies, same.frequencies)
    assert not torch.equal(one.frequencies, other.frequencies)


def test_posterior_of_two_classes_is_the_laplace_of_logistic_regression():
    made, x, labels = head(prior_variance=2.5), torch.randn(40, 16), torch.randint(0, 2, (40,)).double()
    features = made.features(x).double()
    # f_1 − f_0 = φᵀβ, and the coefficients are held as sqrt(2/D)·β
    beta = (made.coefficients[1] - made.coefficients[0]).double().detach() * math.sqrt(24 / 2)

    def negative_log_posterior(beta):
        fit = functional.binary_cross_entropy_with_logits(features @ beta, labels, reduction="sum")
        return fit + beta.square().sum() / (2 * 2.5)

    hessian = torch.autograd.functional.hessian(negative_log_posterior, beta)
    made.condition(made.information(x))
    torch.testing.assert_close(made.covariance.double(), hessian.inverse(), atol=1e-6, rtol=1e-4)


def test_more_classes_weigh_a_row_by_how_unsure_its_best_class_is():
    made, x = head(classes=4), torch.randn(9, 16)
    expected = torch.zeros(24, 24, dtype=torch.float64)
    for row in x:
        best = made.mean(row).softmax(dim=0).max().double()
        feature = made.features(row).double()
        expected += best * (1 - best) * feature.outer(feature)
    torch.testing.assert_close(made.information(x), expected.detach(), atol=1e-6, rtol=1e-5)


def test_choices_share_one_function_and_its_curvature_is_exact():
    made, x, labels = head(classes=1), torch.randn(5 * 3, 16), torch.tensor([0, 2, 1, 1, 0])
    features = made.features(x).double()
    beta = made.coefficients[0].double().detach() * math.sqrt(24 / 2)

    def negative_log_likelihood(beta):
        return functional.cross_entropy((features @ beta).view(5, 3), labels, reduction="sum")

    hessian = torch.autograd.functional.hessian(negative_log_likelihood, beta)
    torch.testing.assert_close(made.information(x, choices=3), hessian, atol=1e-6, rtol=1e-5)


def test_rows_of_unit_curvature_give_gaussian_process_regression():
    made, seen, new = head(prior_variance=3.0), torch.randn(7, 16), torch.randn(4, 16)
    features = made.features(seen).double()
    made.condition(features.T @ features)  # noise variance 1
    kernel = lambda a, b: 3.0 * made.features(a).double() @ made.features(b).double().T  # noqa: E731
    gain = torch.linalg.solve(kernel(seen, seen) + torch.eye(7), kernel(seen, new))
    posterior = kernel(new, new) - kernel(new, seen) @ gain
    torch.testing.assert_close(made.covariances(new).double(), posterior, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(made.variance(new).double(), posterior.diagonal(), atol=1e-5, rtol=1e-4)


def test_variance_grows_with_distance_from_the_training_data():
    made = head(features=512, length_scale=0.7, prior_variance=2.0)
    made.coefficients.data.zero_()  # p = ½ everywhere: nothing but the place of a row tells
    made.condition(made.information(turned(0.0, 400)))
    angles = [0.0, 0.2, 0.4, 0.6, 0.9, 1.2, 1.5]
    variances = [float(made.variance(turned(angle, 50)).mean()) for angle in angles]
    assert variances == sorted(variances)
    assert variances[0] < 0.1
    opposite = float(made.variance(turned(math.pi, 50)).mean())
    assert opposite == pytest.approx(2.0, rel=0.15)  # the prior's, to the accuracy of 512 random features


def test_its_logits_are_the_mean_field_of_what_it_was_conditioned_on_and_in_training_the_mean():
    made, x = head(prior_variance=50.0), torch.randn(30, 16)
    assert torch.equal(made(x), made.mean(x))  # it saw no rows
    made.condition(made.information(x))
    assert torch.equal(made(x), mean_field_logits(made.mean(x), made.variance(x)[:, None]))
    assert not torch.allclose(made(x), made.mean(x))
    assert torch.equal(made.train()(x), made.mean(x))


@pytest.mark.parametrize("variance", [0.0, 0.3, 2.0, 10.0])
def test_mean_field_is_the_average_of_the_softmax(variance):
    margins = torch.linspace(-5, 5, 11, dtype=torch.float64)
    mean = torch.stack([margins / 2, -margins / 2], dim=1)
    approximate = mean_field_logits(mean, torch.tensor(variance)).softmax(dim=1)[:, 0]
    drawn = margins + math.sqrt(variance) * torch.randn(200_000, 1, dtype=torch.float64)
    torch.testing.assert_close(approximate, drawn.sigmoid().mean(dim=0), atol=0.02, rtol=0)


def test_the_moments_are_those_of_the_collected_weights():
    weights = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)) + 100
    moments = empty_moments(5, rank=3)
    averages = []
    for number, vector in enumerate(weights, start=1):
        add_to_moments(moments, vector)
        averages.append(weights[:number].mean(dim=0))
    spread = weight_posterior(moments)
    torch.testing.assert_close(moments["mean"], weights.mean(dim=0))
    torch.testing.assert_close(spread["variance"], weights.var(dim=0), rtol=1e-4, atol=1e-5)
    last = torch.stack([weights[i] - averages[i] for i in (4, 5, 6)])
    found = spread["deviations"]
    torch.testing.assert_close(found[found[:, 0].argsort()], last[last[:, 0].argsort()], atol=1e-5, rtol=1e-4)


def test_draws_depend_on_seed_and_number_alone_and_scale_with_the_scale():
    mean = torch.zeros(4)
    spread = {"variance": torch.ones(4), "deviations": torch.randn(3, 4, generator=torch.Generator().manual_seed(1))}
    one = draw_weights(mean, spread, seed=3, number=1)
    torch.rand(5)  # a generator that others use
    assert torch.equal(draw_weights(mean, spread, seed=3, number=1), one)
    assert not torch.equal(draw_weights(mean, spread, seed=3, number=2), one)
    assert not torch.equal(draw_weights(mean, spread, seed=4, number=1), one)
    torch.testing.assert_close(draw_weights(mean, spread, seed=3, number=1, scale=4.0), 2 * one)
    assert torch.equal(draw_weights(mean + 2, spread, seed=3, number=1, scale=0.0), mean + 2)


def test_draws_have_the_covariance_of_the_formula():
    deviations = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    spread = {"variance": torch.tensor([1.0, 4.0, 0.25]), "deviations": deviations}
    drawn = torch.stack([draw_weights(torch.zeros(3), spread, seed=0, number=number) for number in range(5000)])
    expected = 0.5 * torch.diag(spread["variance"]) + 0.5 * deviations.T @ deviations / 3
    torch.testing.assert_close(torch.cov(drawn.T), expected, atol=0.15, rtol=0.05)
