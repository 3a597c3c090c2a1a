"""The seams: where a view of a model asks whoever runs it what to do.

A view (see `view.py`) calls these functions at each dropout site, at the entrance of each layer and in each
attention. They look for the `Intervention` of the running call in a context variable, so that calls from
several threads over one view never meet; without one the view behaves as the plain model does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from uatlite.backbone.sites import Site


@dataclass(frozen=True)
class AttentionInput:
    """What an attention function receives: the projections and the additive mask."""

    query: Tensor
    """(rows, heads, tokens, head width)"""
    key: Tensor
    value: Tensor
    mask: Tensor | None
    """(rows or 1, 1, tokens, tokens), added to the logits; None without padding"""
    scaling: float

    def of_first_token(self) -> "AttentionInput":
        """What the first token alone asks."""
        mask = None if self.mask is None else self.mask[..., :1, :]
        return replace(self, query=self.query[..., :1, :], mask=mask)


class Intervention(Protocol):
    """What happens at the seams during one forward call."""

    def enter_layer(self, hidden: Tensor) -> None:
        """A layer begins; `hidden` (rows, tokens, width) is its input."""

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        """The values at a dropout site, to be replaced by what is returned."""

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, Tensor | None]:
        """Attention through the interface: context (rows, heads, tokens, width), and probabilities where there are."""

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        """Attention outside the interface: probabilities (rows, heads, tokens, tokens) after the softmax."""

    def narrows(self) -> bool:
        """Whether the running layer is the last and goes on with the first token alone."""

    def at_values(self, values: Tensor) -> Tensor:
        """Attention outside the interface: the projected values (rows, tokens, width)."""


_CURRENT: ContextVar[Intervention | None] = ContextVar("uatlite_intervention", default=None)


@contextmanager
def intervene(intervention: Intervention) -> Iterator[None]:
    """Let `intervention` answer at the seams of any view that this thread runs inside the block."""
    token = _CURRENT.set(intervention)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Intervention | None:
    """The intervention of the running call, if there is one."""
    return _CURRENT.get()


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers' AttentionInterface calls in a view's layers."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # grouped-query attention: each key and value head serves several query heads
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    inputs = AttentionInput(query, key, value, attention_mask, scaling)
    running = current()
    context, probabilities = (
        plain_attention(inputs) if running is None else running.attend(module._uatlite_site, inputs)  # type: ignore[arg-type]
    )
    if attention_mask is not None and getattr(module, "sliding_window", None) is not None:
        # Padding beyond the window of any token has nothing to attend to. Its context is 0, as in SDPA; the softmax
        # of equal logits would give it the mean of all values, and a model that pools it would see that.
        nothing = attention_mask.amax(dim=-1, keepdim=True) == torch.finfo(attention_mask.dtype).min
        context = context.masked_fill(nothing, 0.0)
    return context.transpose(1, 2).contiguous(), probabilities


def plain_attention(inputs: AttentionInput) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ·scaling + mask)·V, and the softmax."""
    logits = (inputs.query * inputs.scaling) @ inputs.key.transpose(-1, -2)
    if inputs.mask is not None:
        logits = logits + inputs.mask
    probabilities = torch.softmax(logits, dim=-1)
    return probabilities @ inputs.value, probabilities
