"""Heads and weights with a Gaussian posterior: the parts that trained methods put on a model.

- `VariationalLinear`: variational inference in the last layer.
- `GaussianProcessHead` and `bound_spectral_norm`: SNGP.
- `empty_moments`, `add_to_moments`, `weight_posterior` and `draw_weights`: SWAG's Gaussian over all weights.

Draws of weights come from `normal`: they depend on a seed and a number, never on the device or the batch.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uatlite.predictive import PROBIT


def normal(seed: int, number: int, *shape: int) -> Tensor:
    """Standard normal float32 values from a counter-based generator (Philox) keyed by seed and number."""
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, number]))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


class VariationalLinear(nn.Linear):
    """A linear layer with a Gaussian posterior over its weights: features (..., in) to logits (..., out).

    q(w) = Π_j N(μ_j, σ_j²), p(w) = N(0, s²I). Training minimises the negative ELBO per row (Blundell et al., 2015),

        E_q[cross-entropy] + KL(q ‖ p) / rows,   KL = Σ_j [log(s/σ_j) + (σ_j² + μ_j²)/(2s²) − ½].

    `weight` and `bias` are the means μ, so a saved layer is also a plain linear one; log σ is kept beside them. In
    training the logits are drawn instead of the weights, with mean μᵀx and variance Σ x_j²σ_j² (local
    reparameterisation, Kingma et al., 2015): each row gets its own noise, and gradients vary less. Outside training
    the logits are those of the mean; `sample` draws weights.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        prior_scale: float = 1.0,
        initial_scale: float = 0.05,
    ) -> None:
        """`prior_scale` is s; every σ_j starts at `initial_scale`."""
        super().__init__(in_features, out_features, bias=bias)
        self.prior_scale = prior_scale
        start = math.log(initial_scale)
        self.weight_log_scale = nn.Parameter(torch.full((out_features, in_features), start))
        self.bias_log_scale = nn.Parameter(torch.full((out_features,), start)) if bias else None

    @classmethod
    def around(cls, layer: nn.Linear, **settings: float) -> Self:
        """A posterior around the weights of a linear layer; `settings` as in the constructor."""
        made = cls(layer.in_features, layer.out_features, bias=layer.bias is not None, **settings).to(layer.weight)
        made.load_state_dict(layer.state_dict(), strict=False)
        return made

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        if not self.training:
            return mean
        return mean + self.variance(x).sqrt() * torch.randn_like(mean)

    def variance(self, x: Tensor) -> Tensor:
        """The posterior variance of the logits, Σ_j x_j²σ_j²: (..., out)."""
        bias = None if self.bias_log_scale is None else (2 * self.bias_log_scale).exp()
        return functional.linear(x.square(), (2 * self.weight_log_scale).exp(), bias)

    def kl(self) -> Tensor:
        """KL(q ‖ p) over all weights, in nats; 0 where the posterior is the prior."""
        pairs = [(self.weight, self.weight_log_scale)]
        if self.bias_log_scale is not None:
            pairs.append((self.bias, self.bias_log_scale))
        prior, variance = math.log(self.prior_scale), self.prior_scale**2
        each = [prior - log + ((2 * log).exp() + mean.square()) / (2 * variance) - 0.5 for mean, log in pairs]
        return torch.stack([nats.sum() for nats in each]).sum()

    @torch.no_grad()
    def sample(self, x: Tensor, samples: int, seed: int) -> Tensor:
        """Logits of `samples` draws of the weights, each for all rows of x (rows, in): (samples, rows, out).

        A draw depends on the seed and its number alone: it is the same for every batch and on every device.
        """
        logits = []
        for number in range(samples):
            noise = normal(seed, number, self.out_features, self.in_features + 1).to(x)
            weight = self.weight + self.weight_log_scale.exp() * noise[:, :-1]
            bias = None if self.bias_log_scale is None else self.bias + self.bias_log_scale.exp() * noise[:, -1]
            logits.append(functional.linear(x, weight, bias))
        return torch.stack(logits)


@torch.no_grad()
def bound_spectral_norm(weights: Iterable[Tensor], bound: float) -> None:
    """Scale each matrix, in place, to a spectral norm of at most `bound`: W ← W·min(1, bound/σ(W)).

    This bounds how much a linear map stretches distances; a map below the bound is left alone (Liu et al., 2020). It
    is called after a step of the optimizer (projected gradient descent, Gouk et al., 2021), not as a parametrisation,
    so that the trained model is a plain one.

    σ is the root of the largest eigenvalue of the smaller of WWᵀ and WᵀW. Unlike power iteration this is exact and
    keeps no state, so a resumed training takes the same steps.
    """
    for weight in weights:
        wide = weight.float() if weight.shape[0] <= weight.shape[1] else weight.float().T
        square = wide @ wide.T
        square = square if square.is_cuda else square.cpu()  # PyTorch before 2.13 has no eigenvalues on MPS
        norm = float(torch.linalg.eigvalsh(square)[-1].clamp_min(0).sqrt())
        if norm > bound:
            weight.mul_(bound / norm)


def mean_field_logits(mean: Tensor, variance: Tensor) -> Tensor:
    """Logits whose softmax approximates E[softmax(f)], f ~ N(mean, variance): mean / sqrt(1 + π/8·variance).

    This is the mean-field approximation (MacKay, 1992). `variance` broadcasts against `mean` (..., classes).
    """
    return mean / torch.sqrt(1.0 + PROBIT * variance)


class GaussianProcessHead(nn.Module):
    """The head of SNGP (Liu et al., 2020): pooled features (..., width) to logits (..., classes).

    It is a Gaussian process with a Gaussian kernel, approximated by D random Fourier features. With W and b fixed at
    random and x normalised to mean 0 and variance 1,

        φ(x) = sqrt(2/D)·cos(Wx + b),   φ(x)ᵀφ(y) ≈ exp(−‖x − y‖² / 2ℓ²),   f_k(x) = φ(x)ᵀβ_k.

    Training finds the β_k. The margin between two logits decides; its coefficients β ~ N(0, s²I) have the Laplace
    posterior of logistic regression, one for all pairs of classes,

        Σ⁻¹ = I/s² + Σ_i p̂_i(1 − p̂_i)·φ(x_i)φ(x_i)ᵀ,   p̂_i = max_k p_ik,   var(x) = φ(x)ᵀΣφ(x).

    The variance tends to s² far from the training texts. Outside training the logits are `mean_field_logits` of it.
    Σ is 0, and the logits are the mean alone, until `condition` was called. Multiple choice uses a head of one class
    over (rows · choices), so that all choices share one β.
    """

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        features: int = 1024,
        length_scale: float = 1.0,
        prior_variance: float = 30.0,
    ) -> None:
        """`features` is D, `prior_variance` s²; ℓ = length_scale·sqrt(width), a typical distance between texts."""
        super().__init__()
        self.width, self.classes = width, classes
        self.length_scale, self.prior_variance = length_scale, prior_variance
        self.frequencies: Tensor
        self.phases: Tensor
        self.covariance: Tensor
        self.register_buffer("frequencies", torch.zeros(features, width))
        self.register_buffer("phases", torch.zeros(features))
        self.register_buffer("covariance", torch.zeros(features, features))
        # These are √(2/D)·β: on features of size 1 an optimizer's step moves the logits as far as in a linear head.
        self.coefficients = nn.Parameter(torch.zeros(classes, features))

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """A trained head from its `state_dict`, in evaluation mode."""
        (classes, features), (_, width) = tensors["coefficients"].shape, tensors["frequencies"].shape
        head = cls(width, classes, features=features).to(tensors["coefficients"].device)
        head.load_state_dict(tensors)
        return head.eval()

    @torch.no_grad()
    def draw(self, seed: int) -> None:
        """Draw the random features, W ~ N(0, 1/ℓ²) and b ~ U(0, 2π); set the coefficients to the prior's mean, 0."""
        generator = torch.Generator().manual_seed(seed)
        scale = self.length_scale * math.sqrt(self.width)
        self.frequencies.copy_(torch.randn(self.frequencies.shape, generator=generator) / scale)
        self.phases.copy_(torch.rand(self.phases.shape, generator=generator) * 2 * math.pi)
        self.coefficients.zero_()
        self.covariance.zero_()

    def features(self, x: Tensor) -> Tensor:
        """φ(x), (..., D): of length about 1."""
        return self._cosines(x) * math.sqrt(2 / len(self.phases))

    def mean(self, x: Tensor) -> Tensor:
        """The posterior mean of f, (..., classes)."""
        return self._cosines(x) @ self.coefficients.T

    def covariances(self, x: Tensor) -> Tensor:
        """φ(x_i)ᵀΣφ(x_j) between the rows of x (..., rows, width): (..., rows, rows)."""
        features = self.features(x)
        return features @ self.covariance @ features.transpose(-1, -2)

    def variance(self, x: Tensor) -> Tensor:
        """φ(x)ᵀΣφ(x), (...,): the posterior variance of the margin, or with choices of each one's logit."""
        features = self.features(x)
        return ((features @ self.covariance) * features).sum(dim=-1).clamp_min(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.mean(x)
        return mean_field_logits(self.mean(x), self.variance(x)[..., None])

    @torch.no_grad()
    def information(self, x: Tensor, choices: int | None = None) -> Tensor:
        """The curvature in β of the negative log-likelihood of rows x (rows, width): (D, D), in float64 on the CPU.

        Σ_i p̂_i(1 − p̂_i)·φ_iφ_iᵀ. With `choices`, every `choices` rows are one question, and the curvature is exact:
        Σ_j p_j·(φ_j − φ̄)(φ_j − φ̄)ᵀ with φ̄ = Σ_j p_jφ_j for each question.
        """
        features, logits = self.features(x).cpu().double(), self.mean(x).cpu().double()
        if choices is None:
            sure = torch.softmax(logits, dim=-1).amax(dim=-1, keepdim=True)
            return features.T @ (features * sure * (1 - sure))
        chosen = torch.softmax(logits.view(-1, choices), dim=-1)[..., None]
        grouped = features.view(-1, choices, features.shape[-1])
        apart = grouped - (chosen * grouped).sum(dim=1, keepdim=True)
        return apart.flatten(0, 1).T @ (apart * chosen).flatten(0, 1)

    @torch.no_grad()
    def condition(self, information: Tensor) -> None:
        """Set Σ to the inverse of I/s² + information (D, D), the sum over all training rows."""
        precision = information.cpu().double() + torch.eye(len(information)) / self.prior_variance
        self.covariance.copy_(torch.cholesky_inverse(torch.linalg.cholesky(precision)))

    def _cosines(self, x: Tensor) -> Tensor:
        normalised = functional.layer_norm(x, (self.width,))
        return torch.cos(functional.linear(normalised, self.frequencies, self.phases))


def empty_moments(parameters: int, rank: int) -> dict[str, Tensor]:
    """The moments of no weights yet, for SWAG's Gaussian of low rank plus diagonal."""
    return {
        "count": torch.zeros((), dtype=torch.int64),
        "mean": torch.zeros(parameters),
        "squares": torch.zeros(parameters),
        "deviations": torch.zeros(rank, parameters),
    }


def add_to_moments(moments: Mapping[str, Tensor], weights: Tensor) -> None:
    """Add weights (parameters,) to the moments, in place.

    `mean` is the running average and `squares` the sum of squared differences from it (Welford's update, which is
    numerically stable). `deviations` holds the last weights, each minus the average after adding it.
    """
    before = weights - moments["mean"]
    moments["count"].add_(1)
    count = int(moments["count"])
    moments["mean"].add_(before, alpha=1 / count)
    after = weights - moments["mean"]
    moments["squares"].addcmul_(before, after)
    rank = len(moments["deviations"])
    moments["deviations"][(count - 1) % rank] = after


def weight_posterior(moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The `variance` (parameters,) and `deviations` (rank, parameters) of two or more weights."""
    count = int(moments["count"])
    rank = min(count, len(moments["deviations"]))
    return {
        "variance": moments["squares"] / (count - 1),
        "deviations": moments["deviations"][:rank].clone(),
    }


def draw_weights(mean: Tensor, spread: Mapping[str, Tensor], seed: int, number: int, scale: float = 1.0) -> Tensor:
    """One draw of the weights (parameters,); it depends on the seed and the number alone."""
    variance, deviations = spread["variance"], spread["deviations"]
    rank, parameters = deviations.shape
    noise = normal(seed, number, parameters + rank).to(mean.device)
    diagonal = variance.sqrt().mul_(noise[:parameters]).mul_(math.sqrt(scale / 2))
    low_rank = noise[parameters:] @ deviations
    return mean + diagonal + low_rank * math.sqrt(scale / (2 * max(1, rank - 1)))
