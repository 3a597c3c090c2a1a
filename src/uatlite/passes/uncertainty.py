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


def _norm_cv(std: Tensor, mean: Tensor) -> Tensor:
    norm = mean.norm(dim=-1)
    return torch.where(norm > 0, std.norm(dim=-1) / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


# name -> U (..., tokens) from the standard deviation and mean of each unit (..., tokens, width)
STATISTICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean-std": lambda std, mean: std.mean(dim=-1),
    "rms-std": lambda std, mean: std.square().mean(dim=-1).sqrt(),
    "median-std": lambda std, mean: std.quantile(0.5, dim=-1),
    "cov-trace": lambda std, mean: std.square().mean(dim=-1),
    "cv": lambda std, mean: (std / (mean.abs() + _EPSILON)).mean(dim=-1),
    "norm-cv": _norm_cv,
}


def from_samples(samples: Tensor, name: str) -> Tensor:
    """U of each token from samples (passes, rows, tokens, width), over all passes: (rows, tokens)."""
    statistic, normalise = _parse(name)
    if normalise:
        samples = torch.nn.functional.layer_norm(samples, samples.shape[-1:])
    std = torch.zeros_like(samples[0]) if len(samples) < 2 else samples.std(dim=0)
    return statistic(std, samples.mean(dim=0))


def lagged(embedding: Tensor, keep: Tensor, rate: float, name: str) -> Tensor:
    """The running estimates of every pass from the embedding block's masks.

    `embedding` (rows, tokens, width) is the block's output without dropout, `keep` (passes, rows or 1, tokens, width)
    its masks. Returns (passes + 1, rows, tokens): entry m is the estimate from the first m passes, so pass m
    (from 0) is modulated by entry m and the last entry is the estimate from all.
    """
    statistic, normalise = _parse(name)
    if normalise:
        return _welford(embedding, keep, rate, statistic)
    magnitude = embedding.float().abs()
    kept = torch.zeros_like(keep[0], dtype=torch.float32)
    estimates = [torch.zeros(embedding.shape[:-1], device=embedding.device)]
    for count, mask in enumerate(keep, start=1):
        kept = kept + mask
        std = (kept * (count - kept) / max(count * (count - 1), 1)).sqrt() / (1 - rate)
        estimates.append(statistic(magnitude * std, magnitude * (kept / (count * (1 - rate)))))
    return torch.stack(estimates)


def closed_form(embedding: Tensor, rate: float, name: str) -> Tensor:
    """The limit of the sampled estimate: s_k = |e_k|·sqrt(p/(1-p)), m_k = e_k. Returns (rows, tokens)."""
    statistic, _ = _parse(name)
    magnitude = embedding.float().abs()
    return statistic(magnitude * (rate / (1 - rate)) ** 0.5, magnitude)


def _welford(embedding: Tensor, keep: Tensor, rate: float, statistic: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`lagged` by Welford's update over the normalised samples."""
    mean = torch.zeros_like(embedding, dtype=torch.float32)
    squares = torch.zeros_like(mean)
    estimates = [torch.zeros(embedding.shape[:-1], device=embedding.device)]
    for count, mask in enumerate(keep, start=1):
        sample = embedding.float() * mask / (1 - rate)
        sample = torch.nn.functional.layer_norm(sample, sample.shape[-1:])
        difference = sample - mean
        mean = mean + difference / count
        squares = squares + difference * (sample - mean)
        estimates.append(statistic((squares / max(count - 1, 1)).sqrt(), mean))
    return torch.stack(estimates)


def _parse(name: str) -> tuple[Callable[[Tensor, Tensor], Tensor], bool]:
    statistic, _, normalise = name.partition("+")
    return STATISTICS[statistic], bool(normalise)
