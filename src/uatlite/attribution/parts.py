"""The parts of a network that noise is attributed to: the embedding block, each layer's components, the head.

A part is the set of all site calls of one component in one layer, or of one layer as a whole. Parts are in forward
order, so "up to a part" has a meaning: what was drawn until then decides the hidden state that the next receives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from uatlite.backbone.sites import ATTENTION, CLASSIFIER, EMBEDDING, EMBEDDINGS, FEED_FORWARD, HEAD

COMPONENTS = (ATTENTION, FEED_FORWARD)
"""What a layer is made of, in forward order."""


@dataclass(frozen=True)
class Part:
    """Some components of one layer; EMBEDDINGS and HEAD count as layers."""

    layer: int
    components: tuple[str, ...]

    def holds(self, component: str, layer: int) -> bool:
        """Whether a site of a component that `layer` calls belongs to this part."""
        return layer == self.layer and component in self.components

    def contains(self, other: "Part") -> bool:
        """Whether all of another part belongs to this one."""
        return other.layer == self.layer and set(other.components) <= set(self.components)


def whole_layers(layers: int) -> tuple[Part, ...]:
    """The embedding block, each layer as a whole, the head: layers + 2 parts in forward order."""
    return _between([Part(layer, COMPONENTS) for layer in range(layers)])


def split_layers(layers: int) -> tuple[Part, ...]:
    """The embedding block, each layer's attention and feed-forward, the head: 2·layers + 2 parts in forward order."""
    return _between([Part(layer, (component,)) for layer in range(layers) for component in COMPONENTS])


def _between(middle: list[Part]) -> tuple[Part, ...]:
    return Part(EMBEDDINGS, (EMBEDDING,)), *middle, Part(HEAD, (CLASSIFIER,))


def part_index(layer: int, component: str, layers: int) -> int:
    """Where a component of a layer stands among `split_layers`."""
    if layer in (EMBEDDINGS, HEAD):
        return 0 if layer == EMBEDDINGS else 2 * layers + 1
    return 1 + 2 * layer + COMPONENTS.index(component)


def pair_up(components: Tensor) -> Tensor:
    """From (batch, 2·layers), attention and feed-forward in turn, to (batch, layers, 2)."""
    return components.reshape(len(components), components.shape[1] // 2, 2)


def components_of(parts: Tensor) -> Tensor:
    """From values by split part (batch, 2·layers + 2), those of attention and feed-forward: (batch, layers, 2)."""
    return pair_up(parts[:, 1:-1])


def sum_by_layer(parts: Tensor) -> Tensor:
    """From values by split part (batch, 2·layers + 2), those by layer: (batch, layers + 2)."""
    return torch.cat([parts[:, :1], components_of(parts).sum(dim=-1), parts[:, -1:]], dim=1)


def layer_names(layers: int) -> tuple[str, ...]:
    """The names of the columns of (batch, layers + 2): embeddings, layer 1 .. layer L, head."""
    return "embeddings", *(f"layer {i}" for i in range(1, layers + 1)), "head"
