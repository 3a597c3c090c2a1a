"""Inside a forward pass of a view: its dropout sites, the intervention that acts there, and the hooks.

The hooks look up the `Intervention` of the running call in a context variable, so calls from several threads over one
view are independent. A view runs under an intervention only; one that changes nothing makes it the plain model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

EMBEDDING, ATTENTION, FEED_FORWARD, CLASSIFIER = "embedding", "attention", "feed_forward", "classifier"

HEAD = -2
"""`Site.layer` of the classification head."""
EMBEDDINGS = -1
"""`Site.layer` of the embedding block."""


@dataclass(frozen=True)
class Site:
    """One place where units are dropped."""

    name: str
    """its path in the model; for functional attention dropout that of the attention module"""
    role: str
    """what it is inside its layer: `probabilities`, `output`, `feed_forward`, ..."""
    component: str
    """embedding, attention, feed_forward or classifier"""
    layer: int
    """0 .. layers-1, EMBEDDINGS or HEAD; for shared layers the first that it serves"""
    own_rate: float
    """the checkpoint's rate; 0 for a site that the engine added"""
    functional: bool = False
    """whether transformers applies it as a function, which the train mode of modules does not switch on"""
    added: bool = False
    """whether the model has no dropout here and the engine adds it"""
    calls: int = 1
    """calls in one forward pass, each with its own mask: ALBERT's layers share sites, RoBERTa's head drops twice"""


class Sites(tuple[Site, ...]):
    """All sites of a model in forward order; prints as a table."""

    def of(self, component: str) -> "Sites":
        """The sites of one component."""
        return Sites(site for site in self if site.component == component)

    def __str__(self) -> str:
        rows = [("site", "component", "layer", "own rate", "calls", "kind")]
        for site in self:
            layer = {EMBEDDINGS: "embeddings", HEAD: "head"}.get(site.layer, str(site.layer))
            kind = "added" if site.added else "functional" if site.functional else "module"
            rows.append((site.name, site.component, layer, f"{site.own_rate:g}", str(site.calls), kind))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__


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
        """The attention of the first token alone."""
        mask = None if self.mask is None else self.mask[..., :1, :]
        return replace(self, query=self.query[..., :1, :], mask=mask)

    def mask_of(self, row: int, queries: slice) -> Tensor | None:
        """The mask (1, 1, queries, tokens) of some queries of one row."""
        if self.mask is None:
            return None
        row = row if len(self.mask) > 1 else 0
        return self.mask[row : row + 1, :, queries]


class Intervention:
    """What a view does differently from the plain model during one forward call: nothing, unless a class says so.

    `narrow_layer` continues with the first token of each row alone. It also sees what the encoder says.
    """

    def __init__(self, narrow_layer: int | None = None) -> None:
        self.layer = EMBEDDINGS
        """the layer that runs"""
        self.last_input: Tensor | None = None
        """its input (rows, tokens, units), after a forward that of the last layer"""
        self.states: Tensor | None = None
        """the encoder's output (rows, tokens, units)"""
        self._narrow_layer = narrow_layer

    def enter_layer(self, hidden: Tensor) -> None:
        """A layer starts; `hidden` (rows, tokens, width) is its input."""
        self.layer += 1
        self.last_input = hidden

    def narrows(self) -> bool:
        """Whether the running layer is the last and continues with the first token alone."""
        return self.layer == self._narrow_layer

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        """The new values at a dropout site."""
        return x

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, Tensor | None]:
        """Attention through the interface: context (rows, heads, tokens, width), and its probabilities if known."""
        used = inputs.of_first_token() if self.narrows() else inputs
        context = scaled_dot_product_attention(
            used.query, used.key, used.value, attn_mask=used.mask, scale=used.scaling
        )
        return context.expand_as(inputs.query), None  # the model expects all tokens, and drops the others next

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        """Attention outside the interface: new probabilities (rows, heads, tokens, tokens)."""
        return probabilities

    def at_values(self, values: Tensor) -> Tensor:
        """Attention outside the interface: new projected values (rows, tokens, width)."""
        return values

    def at_keys(self, keys: Tensor) -> Tensor:
        """Attention outside the interface: new projected keys (rows, tokens, width)."""
        return keys

    def at_bias(self, bias: Tensor) -> Tensor:
        """Attention outside the interface: new position terms of the logits (rows, heads, queries, tokens)."""
        return bias


_CURRENT: ContextVar[Intervention] = ContextVar("uatlite_intervention")


@contextmanager
def intervene(intervention: Intervention) -> Iterator[None]:
    """Use `intervention` in every view that this thread runs inside the block."""
    token = _CURRENT.set(intervention)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Intervention | None:
    """The intervention of the running call; None without one."""
    return _CURRENT.get(None)


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention of a view's layers, called through transformers' AttentionInterface."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # grouped-query attention: each key and value head serves several query heads
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    inputs = AttentionInput(query, key, value, attention_mask, scaling)
    context, probabilities = _CURRENT.get().attend(module._uatlite_site, inputs)  # type: ignore[arg-type]
    if attention_mask is not None and getattr(module, "sliding_window", None) is not None:
        # Padding outside every window attends to nothing. Its context is 0, as in SDPA; the softmax of equal logits
        # would make it the mean of all values, which a pooling model would see.
        nothing = attention_mask.amax(dim=-1, keepdim=True) == torch.finfo(attention_mask.dtype).min
        context = context.masked_fill(nothing, 0.0)
    return context.transpose(1, 2).contiguous(), probabilities


def enter_layer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A forward pre-hook of every layer."""
    _CURRENT.get().enter_layer(args[0] if args else kwargs["hidden_states"])


def narrow(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    """A forward pre-hook that cuts inputs to the first token in the layer that narrows."""
    return tuple(x[:, :1] for x in args) if _CURRENT.get().narrows() else None


def output_hook(change: Callable[[Intervention, Tensor], Tensor]) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """A forward hook through which the running intervention changes a module's output."""
    return lambda module, args, output: change(_CURRENT.get(), output)


def change_bias(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A forward pre-hook of attention that takes (hidden, mask, position terms)."""
    return *args[:2], _CURRENT.get().at_bias(args[2]), *args[3:]


def see_states(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """A forward hook of the encoder."""
    _CURRENT.get().states = getattr(output, "last_hidden_state", None)
