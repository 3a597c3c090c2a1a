"""Laplace in the last layer equals laplace-torch."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uatlite.lab.train.methods import fit_laplace, last_layer_posterior
from uatlite.methods.trained import logit_covariance

laplace = pytest.importorskip("laplace")
pytestmark = pytest.mark.filterwarnings("ignore:By default `link_approx`")


def clouds(rows: int = 90, units: int = 6, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Features around a centre for each class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    centres = torch.randn(classes, units, generator=generator)
    return centres[labels] + torch.randn(rows, units, generator=generator), labels


def layer_of(units: int, classes: int, *, bias: bool) -> nn.Linear:
    layer = nn.Linear(units, classes, bias=bias)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    return layer


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_covariances_and_probabilities_are_those_of_laplace_torch(bias: bool) -> None:
    x, labels = clouds()
    layer = layer_of(6, 3, bias=bias)
    theirs = fit_laplace(layer, x, labels)
    covariance = logit_covariance(last_layer_posterior(layer, x, labels), x)
    _, expected = theirs._glm_predictive_distribution(x)
    torch.testing.assert_close(covariance, expected, rtol=1e-4, atol=1e-6)
    widened = layer(x) / torch.sqrt(1 + torch.pi / 8 * covariance.diagonal(dim1=1, dim2=2))
    probabilities = theirs(x, pred_type="glm", link_approx="probit")
    torch.testing.assert_close(widened.softmax(dim=-1), probabilities, rtol=1e-4, atol=1e-6)


def test_the_prior_is_the_one_of_the_highest_marginal_likelihood() -> None:
    x, labels = clouds()
    fitted = fit_laplace(layer_of(6, 3, bias=True), x, labels)
    best = float(fitted.log_marginal_likelihood())
    own = fitted.prior_precision
    for factor in (0.7, 1.4):
        assert float(fitted.log_marginal_likelihood(own * factor)) < best


def test_it_is_the_last_layer_laplace_of_a_whole_model() -> None:
    """laplace-torch on a model with an encoder before the last layer, and ours on the features of it, agree."""
    x, labels = clouds()
    encoder, layer = nn.Sequential(layer_of(6, 6, bias=True), nn.Tanh()), layer_of(6, 3, bias=True)
    whole = nn.Sequential(encoder, layer)
    theirs = laplace.Laplace(whole, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    theirs.fit(DataLoader(TensorDataset(x, labels), batch_size=256))
    theirs.optimize_prior_precision(method="marglik")
    _, expected = theirs._glm_predictive_distribution(x)
    with torch.no_grad():
        read = encoder(x)
    torch.testing.assert_close(
        logit_covariance(last_layer_posterior(layer, read, labels), read), expected, rtol=1e-3, atol=1e-6
    )
