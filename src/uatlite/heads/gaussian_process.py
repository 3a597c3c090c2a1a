"""A Gaussian process as an output layer: random Fourier features and a Laplace posterior of their coefficients.

The head of SNGP (Liu et al., 2020). With W and b fixed at random and x normalised to mean 0 and variance 1,

    φ(x) = sqrt(2/D)·cos(Wx + b),   φ(x)ᵀφ(y) ≈ exp(−‖x − y‖² / 2ℓ²),   f_k(x) = φ(x)ᵀβ_k

is to D features a Gaussian process with a Gaussian kernel. Training finds the β_k. What decides is the margin between
two logits, and its coefficients β ~ N(0, s²I) have the Laplace posterior

    Σ⁻¹ = I/s² + Σ_i p̂_i(1 − p̂_i)·φ(x_i)φ(x_i)ᵀ,   p̂_i = max_k p_ik,   var(x) = φ(x)ᵀΣφ(x),

that of logistic regression with two classes, and one for all pairs with more. The variance tends to s² far from all
training texts, and the logits shrink by it: f / sqrt(1 + π/8·var).
"""

import math
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from uatlite.errors import ConfigurationError
from uatlite.heads.mean_field import mean_field_logits


class GaussianProcessHead(nn.Module):
    """Pooled features (..., width) to logits (..., classes); mean-field logits outside training.

    Logits of several choices come from one function and so from one β: a head of one class over (rows · choices).
    The covariance is 0, and the logits are the mean alone, until `condition` has seen the training rows.
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
        """`features` is D, `prior_variance` s²; ℓ = length_scale·sqrt(width), about the distance of unlike texts."""
        super().__init__()
        for name, value in {
            "features": features,
            "length_scale": length_scale,
            "prior_variance": prior_variance,
        }.items():
            if not value > 0:
                raise ConfigurationError(f"GaussianProcessHead({name}={value!r}) is not allowed: above 0.")
        self.width, self.classes = width, classes
        self.length_scale, self.prior_variance = length_scale, prior_variance
        self.frequencies: Tensor
        self.phases: Tensor
        self.covariance: Tensor
        self.register_buffer("frequencies", torch.zeros(features, width))
        self.register_buffer("phases", torch.zeros(features))
        self.register_buffer("covariance", torch.zeros(features, features))
        # √(2/D)·β: on features of size 1 an optimizer's step moves the logits as far as in a linear head.
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
        """Draw the random features, W ~ N(0, 1/ℓ²) and b ~ U(0, 2π); the coefficients begin at the prior's mean, 0."""
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
        """What rows x (rows, width) say about β: the curvature of their negative log-likelihood, (D, D), in float64.

        Σ_i p̂_i(1 − p̂_i)·φ_iφ_iᵀ. With `choices`, each run of so many rows is one question, and the curvature in the
        one β is exact: Σ_j p_j·(φ_j − φ̄)(φ_j − φ̄)ᵀ with φ̄ = Σ_j p_jφ_j for each question.
        """
        features, logits = self.features(x).double(), self.mean(x).double()
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
        precision = information.double() + torch.eye(len(information), device=information.device) / self.prior_variance
        self.covariance.copy_(torch.cholesky_inverse(torch.linalg.cholesky(precision)))

    def _cosines(self, x: Tensor) -> Tensor:
        normalised = functional.layer_norm(x, (self.width,))
        return torch.cos(functional.linear(normalised, self.frequencies, self.phases))
