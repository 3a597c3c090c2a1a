"""SWAG's Gaussian: its moments by the textbook, and the posterior of a quadratic loss."""

import numpy as np
import pytest
import torch

from uatlite.model.heads import add_to_moments, draw_weights, empty_moments, weight_posterior


def test_the_moments_are_those_of_the_collected_weights() -> None:
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


def test_draws_depend_on_seed_and_number_alone_and_scale_with_the_scale() -> None:
    mean = torch.zeros(4)
    spread = {"variance": torch.ones(4), "deviations": torch.randn(3, 4, generator=torch.Generator().manual_seed(1))}
    one = draw_weights(mean, spread, seed=3, number=1)
    torch.rand(5)  # a generator that others use
    assert torch.equal(draw_weights(mean, spread, seed=3, number=1), one)
    assert not torch.equal(draw_weights(mean, spread, seed=3, number=2), one)
    assert not torch.equal(draw_weights(mean, spread, seed=4, number=1), one)
    torch.testing.assert_close(draw_weights(mean, spread, seed=3, number=1, scale=4.0), 2 * one)
    assert torch.equal(draw_weights(mean + 2, spread, seed=3, number=1, scale=0.0), mean + 2)


def test_draws_have_the_covariance_of_the_formula() -> None:
    deviations = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    spread = {"variance": torch.tensor([1.0, 4.0, 0.25]), "deviations": deviations}
    drawn = torch.stack([draw_weights(torch.zeros(3), spread, seed=0, number=number) for number in range(5000)])
    expected = 0.5 * torch.diag(spread["variance"]) + 0.5 * deviations.T @ deviations / 3
    torch.testing.assert_close(torch.cov(drawn.T), expected, atol=0.15, rtol=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_training_on_a_quadratic_loss_gives_its_gaussian_posterior(correlation: float) -> None:
    """w ← w - η(A(w - μ) + ε), ε ~ N(0, I), moves through N(μ, A⁻¹·η/2): AΣ + ΣA = ηI (Mandt et al., 2017).

    With η = 2/N that is the posterior of N rows whose mean loss is ½(w - μ)ᵀA(w - μ). Draws must have its mean and
    variances, and of its covariances half, because SWAG's diagonal half has none.
    """
    rows, centre = 100, (3.0, -2.0)
    noise = np.random.default_rng(4).standard_normal((100_000, 2)).tolist()
    x, y = centre
    moments = empty_moments(2, rank=2000)
    for step, (first, second) in enumerate(noise, start=1):
        dx, dy = x - centre[0], y - centre[1]
        x -= 2 / rows * (dx + correlation * dy + first)
        y -= 2 / rows * (dy + correlation * dx + second)
        if step % 50 == 0:
            add_to_moments(moments, torch.tensor([x, y]))
    expected = torch.linalg.inv(torch.tensor([[1.0, correlation], [correlation, 1.0]])) / rows
    spread = weight_posterior(moments)
    drawn = torch.stack([draw_weights(moments["mean"], spread, seed=0, number=number) for number in range(3000)])
    found = torch.cov(drawn.T)
    torch.testing.assert_close(drawn.mean(dim=0), torch.tensor(centre), atol=0.02, rtol=0)
    torch.testing.assert_close(found.diagonal(), expected.diagonal(), atol=0, rtol=0.15)
    assert float(found[0, 1]) == pytest.approx(float(expected[0, 1]) / 2, abs=0.1 * float(expected[0, 0]))
