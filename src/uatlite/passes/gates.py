"""How token uncertainty modulates attention.

    logits   a_ij · g(λ·u_ij)     u_ij = U_i (q), U_j (k) or U_i + U_j (qk, qkv)
    values   V_j · g(λ·U_j)       (v, qkv)

with g(x) = e^{-x} (exp), max(0, 1 - x) (linear) or 1/(1 + x) (reciprocal). This pulls logits toward 0: it flattens
attention. `additive` adds -λ·U_j to the logits instead, which multiplies the attention weight by e^{-λU_j}; a row
term would cancel in the softmax, so q, k and qk are the same there, and its factor on the values is e^{-λU_j}.

A row factor is a scaling of Q_i and a column factor one of K_j, and e^{-λ(U_i+U_j)} is both, so the ordinary kernel
runs on scaled projections. Only `linear` and `reciprocal` with both need the logits themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uatlite.errors import ConfigurationError

# form -> g
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
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
    """scales logits by both, (rows, tokens, tokens), where the factor is no product"""
    bias: Tensor | None = None
    """is added to logits by key token"""
    value: Tensor | None = None
    """scales values by key token"""

    def of_first_token(self) -> "Gates":
        """The factors of the first token's attention to all."""
        row = None if self.row is None else self.row[:, :1]
        return replace(self, row=row, pair=None if self.pair is None else self.pair[:, :1])

    def to(self, dtype: torch.dtype) -> "Gates":
        """The same factors in the precision of the projections they scale."""
        return Gates(**{name: None if factor is None else factor.to(dtype) for name, factor in vars(self).items()})


NO_GATES = Gates()


def gates(uncertainty: Tensor, gate: str, form: str, penalty: float) -> Gates:
    """The factors for token uncertainty (rows, tokens)."""
    g = FORMS[form]
    scaled = penalty * uncertainty
    value = g(scaled) if gate in _VALUES else None
    if form == "additive":
        return Gates(bias=-scaled if gate in _ROW + _COLUMN else None, value=value)
    if gate in ("qk", "qkv") and form != "exp":
        return Gates(pair=g(scaled[..., :, None] + scaled[..., None, :]), value=value)
    return Gates(row=g(scaled) if gate in _ROW else None, column=g(scaled) if gate in _COLUMN else None, value=value)


def check_outside_interface(gate: str, form: str, architecture: str) -> None:
    """Raise where a gate cannot be applied to attention whose logits are out of reach.

    There only the probabilities p are to be had. Scaling a row of logits by g is p^g, renormalised, and adding to the
    logits multiplies p. Scaling logits by column is neither: it needs their absolute height, which softmax forgot.
    """
    if form != "additive" and gate in _COLUMN:
        raise ConfigurationError(
            f"gate={gate!r} with form={form!r} cannot be applied exactly to {architecture}: its attention logits "
            "have position terms and are out of reach, and a factor by key token cannot be recovered from "
            "the probabilities. Use gate 'none', 'q' or 'v', or form='additive'."
        )


def modulate_probabilities(probabilities: Tensor, gates: Gates) -> Tensor:
    """What the softmax would have given for modulated logits, from its probabilities (rows, heads, tokens, tokens)."""
    if gates.row is None and gates.bias is None:
        return probabilities
    # The logarithm of a probability is its logit less a constant of the row, which the softmax cancels again.
    logits = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    if gates.row is not None:
        logits = logits * gates.row[:, None, :, None]
    if gates.bias is not None:
        logits = logits + gates.bias[:, None, None, :]
    return torch.softmax(logits.masked_fill(probabilities == 0, -torch.inf), dim=-1)
