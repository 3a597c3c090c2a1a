"""Token uncertainty U, and how it modulates attention.

U(x_j) is taken over samples of a token's hidden vector. With s_k the standard deviation over passes (ddof 1; 0 for
fewer than two samples) and m_k the mean of unit k:

    mean-std    mean_k s_k            rms-std    sqrt(mean_k s_k²)       median-std    median_k s_k
    cov-trace   mean_k s_k²           cv         mean_k s_k/(|m_k|+1e-6) norm-cv       ‖s‖/‖m‖

The embedding block's samples are its dropout-free output e times a mask, z_k = e_k·w_k. So s_k = |e_k|·std(w_k) and
m_k = e_k·mean(w_k): the moments of the masks are enough, for all texts at once. Only `+ln`, a parameter-free LayerNorm
of z, needs the samples themselves.

Modulation scales logits and values,

    logits   a_ij · g(λ·u_ij)     u_ij = U_i (q), U_j (k) or U_i + U_j (qk, qkv)
    values   V_j · g(λ·U_j)       (v, qkv)

with g(x) = e^{-x} (exp), max(0, 1 - x) (linear) or 1/(1 + x) (reciprocal). This pulls logits toward 0: it flattens
attention. `additive` adds -λ·U_j to the logits instead, which multiplies the attention weight by e^{-λU_j}; a row
term would cancel in the softmax, so q, k and qk are the same there, and its factor on the values is e^{-λU_j}.

A row factor scales Q_i and a column factor scales K_j, and e^{-λ(U_i+U_j)} is both, so the ordinary kernel runs on
scaled projections. Only `linear` and `reciprocal` with both need the logits themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uatlite.errors import ConfigurationError

_EPSILON = 1e-6

Lazy = Callable[[], Tensor]


def _norm_cv(std: Tensor, mean: Lazy) -> Tensor:
    norm = mean().norm(dim=-1)
    return torch.where(norm > 0, std.norm(dim=-1) / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


def _median(std: Tensor) -> Tensor:
    """The median of the last dimension. (`torch.quantile` refuses more than 2^24 values.)"""
    ordered = std.sort(dim=-1).values
    width = std.shape[-1]
    return (ordered[..., (width - 1) // 2] + ordered[..., width // 2]) / 2


# name -> U (..., tokens) from the standard deviation of each unit (..., tokens, width) and, if needed, its mean
TOKEN_STATISTICS: dict[str, Callable[[Tensor, Lazy], Tensor]] = {
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
    """The running estimates: entry m is U from the first m passes, which modulates pass m (counted from 0).

    `embedding` (rows, tokens, width) is the block's output without dropout, `moments` are `running_moments` of its
    masks (passes + 1, rows or 1, tokens, width). Returns (passes + 1, rows, tokens).
    """
    statistic, _ = _parse(name)
    std, mean = moments
    magnitude = embedding.float().abs()
    return statistic(magnitude * std, lambda: magnitude * mean)


def lagged_normalised(embedding: Tensor, multipliers: Tensor, name: str) -> Tensor:
    """`lagged` for the `+ln` statistics, which need the samples themselves.

    `multipliers` (passes, rows or 1, tokens, width) are the embedding block's.
    """
    samples = embedding.float() * multipliers
    none = torch.zeros(embedding.shape[:-1], device=embedding.device)
    return torch.stack([none, *(from_samples(samples[:count], name) for count in range(1, len(samples) + 1))])


def closed_form(embedding: Tensor, rate: float, name: str) -> Tensor:
    """The limit of the sampled estimate: s_k = |e_k|·sqrt(p/(1-p)), m_k = e_k. Returns (rows, tokens)."""
    statistic, _ = _parse(name)
    magnitude = embedding.float().abs()
    return statistic(magnitude * (rate / (1 - rate)) ** 0.5, lambda: magnitude)


def _parse(name: str) -> tuple[Callable[[Tensor, Lazy], Tensor], bool]:
    statistic, _, normalise = name.partition("+")
    return TOKEN_STATISTICS[statistic], bool(normalise)


# form -> g
GATE_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(-x),
    "linear": lambda x: (1 - x).clamp_min(0),
    "reciprocal": lambda x: 1 / (1 + x),
    "additive": lambda x: torch.exp(-x),
}
_ROW, _COLUMN, _VALUES = ("q", "qk", "qkv"), ("k", "qk", "qkv"), ("v", "qkv")


@dataclass(frozen=True)
class Gates:
    """The factors of one modulation, each (rows, tokens) or None for 1."""

    row: Tensor | None = None
    """scales logits by query token"""
    column: Tensor | None = None
    """scales logits by key token"""
    pair: Tensor | None = None
    """scales logits by both, (rows, tokens, tokens), if the factor is no product"""
    bias: Tensor | None = None
    """is added to logits by key token"""
    value: Tensor | None = None
    """scales values by key token"""

    def of_first_token(self) -> "Gates":
        """The factors of the first token's attention to all."""
        row = None if self.row is None else self.row[:, :1]
        return replace(self, row=row, pair=None if self.pair is None else self.pair[:, :1])

    def of_row(self, row: int, queries: slice) -> "Gates":
        """The factors of logits, of one row and some queries; those of projections are left out."""
        pair = None if self.pair is None else self.pair[row : row + 1, queries]
        return Gates(pair=pair, bias=None if self.bias is None else self.bias[row : row + 1])

    def to(self, dtype: torch.dtype) -> "Gates":
        """The same factors in the precision of the projections they scale."""
        return Gates(**{name: None if factor is None else factor.to(dtype) for name, factor in vars(self).items()})


NO_GATES = Gates()


def gates(uncertainty: Tensor, gate: str, form: str, penalty: float) -> Gates:
    """The factors for token uncertainty (rows, tokens)."""
    g = GATE_FORMS[form]
    scaled = penalty * uncertainty
    value = g(scaled) if gate in _VALUES else None
    if form == "additive":
        return Gates(bias=-scaled if gate in _ROW + _COLUMN else None, value=value)
    if gate in ("qk", "qkv") and form != "exp":
        return Gates(pair=g(scaled[..., :, None] + scaled[..., None, :]), value=value)
    return Gates(row=g(scaled) if gate in _ROW else None, column=g(scaled) if gate in _COLUMN else None, value=value)


def check_outside_interface(gate: str, form: str, architecture: str, *, keys: bool) -> None:
    """Raise if a gate cannot be applied to attention outside the interface, whose logits are not accessible.

    Only the probabilities p are known there. Scaling a row of logits by g gives p^g, renormalised, and adding to the
    logits multiplies p. Scaling logits by column needs their absolute values, which the softmax loses: it can be done
    before, where `keys`, and the position terms, are within reach.
    """
    product = form == "exp" or gate == "k"
    if form != "additive" and gate in _COLUMN and not (keys and product):
        others = "'q', 'k' or 'v', form='exp'" if keys else "'q' or 'v'"
        raise ConfigurationError(
            f"gate={gate!r} with form={form!r} cannot be applied exactly to {architecture}: its attention logits "
            "have position terms and are out of reach, and a factor by key token cannot be recovered from "
            f"the probabilities. Use gate 'none', {others}, or form='additive'."
        )


def modulate_probabilities(probabilities: Tensor, gates: Gates) -> Tensor:
    """The softmax of modulated logits, from the probabilities without modulation (rows, heads, tokens, tokens)."""
    if gates.row is None and gates.bias is None:
        return probabilities
    # The logarithm of a probability is its logit minus a constant of the row, which the softmax cancels.
    logits = probabilities.float().clamp_min(torch.finfo(torch.float32).tiny).log()
    if gates.row is not None:
        logits = logits * gates.row[:, None, :, None]
    if gates.bias is not None:
        logits = logits + gates.bias[:, None, None, :]
    return torch.softmax(logits.masked_fill(probabilities == 0, -torch.inf), dim=-1).to(probabilities.dtype)
