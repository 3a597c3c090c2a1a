"""The Gaussian-process head against closed forms: the kernel, the Laplace posterior, regression, Monte Carlo."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from uatlite.errors import ConfigurationError
from uatlite.model.heads import GaussianProcessHead, mean_field_logits

Rows = Callable[[float, int], Tensor]


def head(classes: int = 2, features: int = 24, **changes: float) -> GaussianProcessHead:
    made = GaussianProcessHead(16, classes, features=features, **changes)
    made.draw(seed=3)
    torch.nn.init.normal_(made.coefficients, std=0.5)
    return made.eval()


def test_features_make_a_gaussian_kernel() -> None:
    made = GaussianProcessHead(16, 2, features=4_000, length_scale=0.8)
    made.draw(seed=0)
    x = functional.layer_norm(torch.randn(6, 16), (16,))
    features = made.features(x)
    distance = torch.cdist(x, x)
    kernel = torch.exp(-distance.square() / (2 * 0.8**2 * 16))
    torch.testing.assert_close(features @ features.T, kernel, atol=5 / math.sqrt(4_000), rtol=0)


def test_the_same_seed_draws_the_same_features() -> None:
    one, same, other = head(), head(), head()
    other.draw(seed=4)
    assert torch.equal(one.frequencies, same.frequencies)
    assert not torch.equal(one.frequencies, other.frequencies)


def test_posterior_of_two_classes_is_the_laplace_of_logistic_regression() -> None:
    made, x, labels = head(prior_variance=2.5), torch.randn(40, 16), torch.randint(0, 2, (40,)).double()
    features = made.features(x).double()
    # f_1 − f_0 = φᵀβ, and the coefficients are held as sqrt(2/D)·β
    beta = (made.coefficients[1] - made.coefficients[0]).double().detach() * math.sqrt(24 / 2)

    def negative_log_posterior(beta: Tensor) -> Tensor:
        fit = functional.binary_cross_entropy_with_logits(features @ beta, labels, reduction="sum")
        return fit + beta.square().sum() / (2 * 2.5)

    hessian = torch.autograd.functional.hessian(negative_log_posterior, beta)
    made.condition(made.information(x))
    torch.testing.assert_close(made.covariance.double(), hessian.inverse(), atol=1e-6, rtol=1e-4)


def test_more_classes_weigh_a_row_by_how_unsure_its_best_class_is() -> None:
    made, x = head(classes=4), torch.randn(9, 16)
    expected = torch.zeros(24, 24, dtype=torch.float64)
    for row in x:
        best = made.mean(row).softmax(dim=0).max().double()
        feature = made.features(row).double()
        expected += best * (1 - best) * feature.outer(feature)
    torch.testing.assert_close(made.information(x), expected.detach(), atol=1e-6, rtol=1e-5)


def test_choices_share_one_function_and_its_curvature_is_exact() -> None:
    made, x, labels = head(classes=1), torch.randn(5 * 3, 16), torch.tensor([0, 2, 1, 1, 0])
    features = made.features(x).double()
    beta = made.coefficients[0].double().detach() * math.sqrt(24 / 2)

    def negative_log_likelihood(beta: Tensor) -> Tensor:
        return functional.cross_entropy((features @ beta).view(5, 3), labels, reduction="sum")

    hessian = torch.autograd.functional.hessian(negative_log_likelihood, beta)
    torch.testing.assert_close(made.information(x, choices=3), hessian, atol=1e-6, rtol=1e-5)


def test_rows_of_unit_curvature_give_gaussian_process_regression() -> None:
    made, seen, new = head(prior_variance=3.0), torch.randn(7, 16), torch.randn(4, 16)
    features = made.features(seen).double()
    made.condition(features.T @ features)  # noise variance 1
    kernel = lambda a, b: 3.0 * made.features(a).double() @ made.features(b).double().T  # noqa: E731
    gain = torch.linalg.solve(kernel(seen, seen) + torch.eye(7), kernel(seen, new))
    posterior = kernel(new, new) - kernel(new, seen) @ gain
    torch.testing.assert_close(made.covariances(new).double(), posterior, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(made.variance(new).double(), posterior.diagonal(), atol=1e-5, rtol=1e-4)


def test_variance_grows_with_distance_from_the_training_data(turned: Rows) -> None:
    made = head(features=512, length_scale=0.7, prior_variance=2.0)
    made.coefficients.data.zero_()  # p = ½ everywhere: nothing but the place of a row tells
    made.condition(made.information(turned(0.0, 400)))
    angles = [0.0, 0.2, 0.4, 0.6, 0.9, 1.2, 1.5]
    variances = [float(made.variance(turned(angle, 50)).mean()) for angle in angles]
    assert variances == sorted(variances)
    assert variances[0] < 0.1
    opposite = float(made.variance(turned(math.pi, 50)).mean())
    assert opposite == pytest.approx(2.0, rel=0.15)  # the prior's, to the accuracy of 512 random features


def test_logits_shrink_far_from_the_training_data_and_only_outside_training(turned: Rows) -> None:
    made = head(features=512, length_scale=0.7, prior_variance=50.0)
    made.coefficients.data *= 0.1  # no row so sure that it tells nothing
    made.condition(made.information(turned(0.0, 400)))
    near, far = turned(0.0, 8), turned(math.pi, 8)
    shrunk = [float((made(x) / made.mean(x)).detach().mean()) for x in (near, far)]
    assert shrunk[0] > 0.9
    assert shrunk[1] < 0.3
    made.train()
    assert torch.equal(made(far), made.mean(far))


def test_a_head_that_saw_no_rows_returns_its_mean() -> None:
    made, x = head(), torch.randn(3, 16)
    assert torch.equal(made(x), made.mean(x))


@pytest.mark.parametrize("variance", [0.0, 0.3, 2.0, 10.0])
def test_mean_field_is_the_average_of_the_softmax(variance: float) -> None:
    margins = torch.linspace(-5, 5, 11, dtype=torch.float64)
    mean = torch.stack([margins / 2, -margins / 2], dim=1)
    approximate = mean_field_logits(mean, torch.tensor(variance)).softmax(dim=1)[:, 0]
    drawn = margins + math.sqrt(variance) * torch.randn(200_000, 1, dtype=torch.float64)
    torch.testing.assert_close(approximate, drawn.sigmoid().mean(dim=0), atol=0.02, rtol=0)


@pytest.mark.parametrize("changes", [{"features": 0}, {"length_scale": 0.0}, {"prior_variance": -1.0}])
def test_settings_without_meaning_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        GaussianProcessHead(16, 2, **changes)  # type: ignore[arg-type]
