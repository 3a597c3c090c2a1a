"""The Gaussian that SWAG fits to the weights of a training's last steps: low rank plus diagonal."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from uatlite.heads.noise import normal


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
