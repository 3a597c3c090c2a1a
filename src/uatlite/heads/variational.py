"""A linear layer with a Gaussian posterior over its weights: variational inference in the last layer.

q(w) = Π_j N(μ_j, σ_j²), p(w) = N(0, s²I), and training minimises the negative ELBO per row (Blundell et al., 2015),

    E_q[cross-entropy] + KL(q ‖ p) / rows,   KL = Σ_j [log(s/σ_j) + (σ_j² + μ_j²)/(2s²) − ½].
"""

import math
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from uatlite.errors import ConfigurationError


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
