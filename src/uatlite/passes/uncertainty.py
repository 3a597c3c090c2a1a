"""Token uncertainty U(x_j) from samples of a token's hidden vector.

With s_k the standard deviation over passes (ddof 1; 0 for fewer than two samples) and m_k the mean of unit k:

    mean-std    mean_k s_k            rms-std    sqrt(mean_k s_k²)       median-std    median_k s_k
    cov-trace   mean_k s_k²           cv         mean_k s_k/(|m_k|+1e-6) norm-cv       ‖s‖/‖m‖

The embedding block's samples are its dropout-free output e times a mask, z_k = e_k·w_k. So s_k = |e_k|·std(w_k) and
m_k = e_k·mean(w_k): what the passes do is known from the masks alone, for all texts at once. Only `+ln`, a
parameter-free LayerNorm of z, needs the samples themselves.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_EPSILON = 1e-6


Lazy = Callable[[], Tensor]


def _norm_cv(std: Tensor, mean: Lazy) -> Tensor:
    norm = mean().norm(dim=-1)
    return torch.where(norm > 0, std.norm(dim=-1) / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


def _median(std: Tensor) -> Tensor:
    """The mean of the middle two where there is no middle one. (`quantile` refuses more than 2^24 values.)"""
    ordered = std.sort(dim=-1).values
    width = std.shape[-1]
    return (ordered[..., (width - 1) // 2] + ordered[..., width // 2]) / 2


# name -> U (..., tokens) from the standard deviation of each unit (..., tokens, width) and, where asked for, the mean
STATISTICS: dict[str, Callable[[Tensor, Lazy], Tensor]] = {
    "mean-std": lambda std, mean: std.mean(dim=-1),
    "rms-std": lambda std, mean: std.square().mean(dim=-1).sqrt(),
    "median-std": lambda std, mean: _median(std),
    "cov-trace": lambda std, mean: std.square().mean(dim=-1),
    "cv": lambda std, mean: (std / (mean().abs() + _EPSILON)).mean(dim=-1),
    "norm-cv": _norm_cv,
}


def from_samples(samples: Tensor, name: str) -> Tensor:
    """U of each token from samples (passes, rows, tokens, width), over all passes: (rows, tokens)."""
    statistic, normalise = _parse(name)
    if normalise:
        samples = torch.nn.functional.layer_norm(samples, samples.shape[-1:])
    std = torch.zeros_like(samples[0]) if len(samples) < 2 else samples.std(dim=0)
    return statistic(std, lambda: samples.mean(dim=0))


def running_moments(keep: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean of dropout multipliers over the first m passes, for m = 0 .. passes.

    From `keep` (passes, ...) both are (passes + 1, ...). With c of m kept, the mean is c/(m(1-p)) and the variance
    c(m-c)/(m(m-1)(1-p)²); for m < 2 the standard deviation is 0.
    """
    kept = torch.cat([torch.zeros_like(keep[:1], dtype=torch.float32), keep.cumsum(dim=0, dtype=torch.float32)])
    count = torch.arange(len(kept), device=keep.device, dtype=torch.float32).view(-1, *[1] * (keep.ndim - 1))
    variance = kept * (count - kept) / (count * (count - 1)).clamp_min(1)
    return variance.sqrt_().div_(1 - rate), kept.div_(count.clamp_min(1) * (1 - rate))


def lagged(embedding: Tensor, moments: tuple[Tensor, Tensor], name: str) -> Tensor:
    """The running estimates of every pass: entry m is U from the first m passes, by which pass m (from 0) is modulated.

    `embedding` (rows, tokens, width) is the block's output without dropout, `moments` are `running_moments` of its
    masks (passes + 1, rows or 1, tokens, width). Returns (passes + 1, rows, tokens).
    """
    statistic, _ = _parse(name)
    std, mean = moments
    magnitude = embedding.float().abs()
    return statistic(magnitude * std, lambda: magnitude * mean)


def lagged_normalised(embedding: Tensor, multipliers: Tensor, name: str) -> Tensor:
    """`lagged` for the `+ln` statistics, by Welford's update over the normalised samples.

    `multipliers` (passes, rows or 1, tokens, width) are the embedding block's.
    """
    statistic, _ = _parse(name)
    mean = torch.zeros_like(embedding, dtype=torch.float32)
    squares = torch.zeros_like(mean)
    estimates = [torch.zeros(embedding.shape[:-1], device=embedding.device)]
    for count, multiplier in enumerate(multipliers, start=1):
        sample = torch.nn.functional.layer_norm(embedding.float() * multiplier, embedding.shape[-1:])
        difference = sample - mean
        mean = mean + difference / count
        squares = squares + difference * (sample - mean)
        std = (squares / max(count - 1, 1)).sqrt()
        estimates.append(statistic(std, lambda mean=mean: mean))  # type: ignore[misc]
    return torch.stack(estimates)


def closed_form(embedding: Tensor, rate: float, name: str) -> Tensor:
    """The limit of the sampled estimate: s_k = |e_k|·sqrt(p/(1-p)), m_k = e_k. Returns (rows, tokens)."""
    statistic, _ = _parse(name)
    magnitude = embedding.float().abs()
    return statistic(magnitude * (rate / (1 - rate)) ** 0.5, lambda: magnitude)


def normalises(name: str) -> bool:
    """Whether a statistic is taken after LayerNorm, so that it needs the samples themselves."""
    return _parse(name)[1]


def _parse(name: str) -> tuple[Callable[[Tensor, Lazy], Tensor], bool]:
    statistic, _, normalise = name.partition("+")
    return STATISTICS[statistic], bool(normalise)
