"""Standard normal numbers that depend on a seed and a number and on nothing else.

A linear layer with a Gaussian posterior over its weights: variational inference in the last layer.

q(w) = Π_j N(μ_j, σ_j²), p(w) = N(0, s²I), and training minimises the negative ELBO per row (Blundell et al., 2015),

    E_q[cross-entropy] + KL(q ‖ p) / rows,   KL = Σ_j [log(s/σ_j) + (σ_j² + μ_j²)/(2s²) − ½].

Spectral normalisation: a bound on how much a linear map stretches distances.

The weights themselves are scaled after a step of the optimizer (projected gradient descent, Gouk et al., 2021), not
behind a parametrisation, so that a trained model is a plain one. The bound is soft as in Liu et al. (2020): a map
that stretches by less than it is left alone.

The mean-field approximation of a softmax averaged over Gaussian logits.

sigmoid(m) averaged over m ~ N(μ, σ²) is close to sigmoid(μ / sqrt(1 + π/8·σ²)) (MacKay, 1992).

A Gaussian process as an output layer: random Fourier features and a Laplace posterior of their coefficients.

The head of SNGP (Liu et al., 2020). With W and b fixed at random and x normalised to mean 0 and variance 1,

    φ(x) = sqrt(2/D)·cos(Wx + b),   φ(x)ᵀφ(y) ≈ exp(−‖x − y‖² / 2ℓ²),   f_k(x) = φ(x)ᵀβ_k

is to D features a Gaussian process with a Gaussian kernel. Training finds the β_k. What decides is the margin between
two logits, and its coefficients β ~ N(0, s²I) have the Laplace posterior

    Σ⁻¹ = I/s² + Σ_i p̂_i(1 − p̂_i)·φ(x_i)φ(x_i)ᵀ,   p̂_i = max_k p_ik,   var(x) = φ(x)ᵀΣφ(x),

that of logistic regression with two classes, and one for all pairs with more. The variance tends to s² far from all
training texts, and the logits shrink by it: f / sqrt(1 + π/8·var).

The Gaussian that SWAG fits to the weights of a training's last steps: low rank plus diagonal.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uatlite.errors import ConfigurationError
from uatlite.predictive import PROBIT


def normal(seed: int, number: int, *shape: int) -> Tensor:
    """N(0, 1) in float32 from a counter-based generator (Philox) keyed by seed and number: one draw, one answer."""
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, number]))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


class VariationalLinear(nn.Linear):
    """Features (..., in) to logits (..., out). `weight` and `bias` are the posterior means, so that a saved layer is
    also a plain linear one; the logarithms of the σ_j stand beside them.

    In training the logits are drawn, not the weights: given x they are Gaussian with mean μᵀx and variance Σ x_j²σ_j²
    (local reparameterisation, Kingma et al., 2015), which gives each row noise of its own and a calmer gradient.
    Outside training the logits are those of the posterior mean; `sample` draws weights.
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
        """`prior_scale` is s; every σ_j begins at `initial_scale`."""
        super().__init__(in_features, out_features, bias=bias)
        for name, value in {"prior_scale": prior_scale, "initial_scale": initial_scale}.items():
            if not value > 0:
                raise ConfigurationError(f"VariationalLinear({name}={value!r}) is not allowed: above 0.")
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
        return torch.stack([_kl(mean, log_scale, self.prior_scale) for mean, log_scale in pairs]).sum()

    @torch.no_grad()
    def sample(self, x: Tensor, samples: int, seed: int) -> Tensor:
        """Logits of `samples` draws of the weights, each for all rows of x (rows, in): (samples, rows, out).

        A draw is a pure function of seed and number, the same whatever rows it meets and on every device.
        """
        logits = []
        for number in range(samples):
            noise = _normal(seed, number, self.out_features, self.in_features + 1).to(x)
            weight = self.weight + self.weight_log_scale.exp() * noise[:, :-1]
            bias = None if self.bias_log_scale is None else self.bias + self.bias_log_scale.exp() * noise[:, -1]
            logits.append(functional.linear(x, weight, bias))
        return torch.stack(logits)


def _kl(mean: Tensor, log_scale: Tensor, prior_scale: float) -> Tensor:
    spread = ((2 * log_scale).exp() + mean.square()) / (2 * prior_scale**2)
    return (math.log(prior_scale) - log_scale + spread - 0.5).sum()


def _normal(seed: int, number: int, *shape: int) -> Tensor:
    """Standard normal numbers from a counter-based generator, keyed by seed and number."""
    generator = np.random.Generator(np.random.Philox(key=[seed % 2**64, number]))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


def spectral_norm(weight: Tensor) -> Tensor:
    """The largest singular value of a matrix (out, in): sup ‖Wx − Wy‖ / ‖x − y‖.

    The root of the largest eigenvalue of the smaller of WWᵀ and WᵀW. Exact, where power iteration tends to it from
    below, and without state, so that a resumed training takes the same steps.
    """
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    largest: Tensor = torch.linalg.eigvalsh(gram)[-1]
    return largest.clamp_min(0).sqrt()


@torch.no_grad()
def bound_spectral_norm(weights: Iterable[Tensor], bound: float) -> None:
    """Scale each matrix, in place, to a spectral norm of at most `bound`: W ← W·min(1, bound/σ(W))."""
    for weight in weights:
        norm = float(spectral_norm(weight.float()))
        if norm > bound:
            weight.mul_(bound / norm)


def mean_field_logits(mean: Tensor, variance: Tensor) -> Tensor:
    """Logits whose softmax stands for E[softmax(f)], f ~ N(mean, variance): mean / sqrt(1 + π/8·variance).

    `variance` broadcasts against `mean` (..., classes). At variance 0 the logits are the mean itself.
    """
    return mean / torch.sqrt(1.0 + PROBIT * variance)


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


def empty(parameters: int, rank: int, device: torch.device | None = None) -> dict[str, Tensor]:
    """Room for the moments of no weights yet."""
    return {
        "count": torch.zeros((), dtype=torch.int64, device=device),
        "mean": torch.zeros(parameters, device=device),
        "squares": torch.zeros(parameters, device=device),
        "deviations": torch.zeros(rank, parameters, device=device),
    }


def collect(moments: Mapping[str, Tensor], weights: Tensor) -> None:
    """Add weights (parameters,) to the moments, in place.

    `mean` is the running average and `squares` the sum of squared differences from it (Welford's update, which loses
    no digits); `deviations` are those of the last weights from the average that they made.
    """
    before = weights - moments["mean"]
    moments["count"].add_(1)
    count = int(moments["count"])
    moments["mean"].add_(before, alpha=1 / count)
    after = weights - moments["mean"]
    moments["squares"].addcmul_(before, after)
    rank = len(moments["deviations"])
    moments["deviations"][(count - 1) % rank] = after


def posterior(moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a draw needs beside the mean, of two weights or more: `variance` (parameters,), `deviations` (K, ...)."""
    count = int(moments["count"])
    rank = min(count, len(moments["deviations"]))
    return {
        "variance": moments["squares"] / (count - 1),
        "deviations": moments["deviations"][:rank].clone(),
    }


def draw(mean: Tensor, spread: Mapping[str, Tensor], seed: int, number: int, scale: float = 1.0) -> Tensor:
    """One draw of the weights (parameters,), a pure function of seed and number."""
    variance, deviations = spread["variance"], spread["deviations"]
    rank, parameters = deviations.shape
    noise = normal(seed, number, parameters + rank).to(mean.device)
    diagonal = variance.sqrt().mul_(noise[:parameters]).mul_(math.sqrt(scale / 2))
    low_rank = noise[parameters:] @ deviations
    return mean + diagonal + low_rank * math.sqrt(scale / (2 * max(1, rank - 1)))
