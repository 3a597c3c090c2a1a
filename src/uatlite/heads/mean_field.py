"""The mean-field approximation of a softmax averaged over Gaussian logits.

sigmoid(m) averaged over m ~ N(μ, σ²) is close to sigmoid(μ / sqrt(1 + π/8·σ²)) (MacKay, 1992).
"""

import torch
from torch import Tensor

from uatlite.predictive import PROBIT


def mean_field_logits(mean: Tensor, variance: Tensor) -> Tensor:
    """Logits whose softmax stands for E[softmax(f)], f ~ N(mean, variance): mean / sqrt(1 + π/8·variance).

    `variance` broadcasts against `mean` (..., classes). At variance 0 the logits are the mean itself.
    """
    return mean / torch.sqrt(1.0 + PROBIT * variance)
