"""The dropout sites of a model: where they are, what they belong to, and their own rates."""

from collections.abc import Iterable
from dataclasses import dataclass

EMBEDDING, ATTENTION, FEED_FORWARD, CLASSIFIER = "embedding", "attention", "feed_forward", "classifier"

HEAD = -2
"""The layer of the classification head, as a site states it."""
EMBEDDINGS = -1
"""The layer of the embedding block, as a site states it."""


@dataclass(frozen=True)
class Site:
    """One place where units are dropped.

    `calls` is how often one forward pass goes through it: ALBERT's layers share theirs, RoBERTa's head calls its
    own twice. Each call draws a mask of its own.
    """

    name: str
    """Its path in the model, or for functional attention dropout the attention module's."""
    role: str
    """What it is inside its layer: `probabilities`, `output`, `feed_forward`, ..."""
    component: str
    """embedding, attention, feed_forward or classifier"""
    layer: int
    """0 .. layers-1, EMBEDDINGS or HEAD; for shared layers the first that it serves"""
    own_rate: float
    """The checkpoint's own rate; 0 where the engine added the site"""
    functional: bool = False
    """Whether transformers applies it as a function, so that switching modules to train mode misses it"""
    added: bool = False
    """Whether the model has no dropout here and the engine adds it"""
    calls: int = 1


class Sites(tuple[Site, ...]):
    """All sites of a model in forward order; prints as a table."""

    def __new__(cls, sites: Iterable[Site]) -> "Sites":
        return super().__new__(cls, tuple(sites))

    def of(self, component: str) -> "Sites":
        """The sites of one component."""
        return Sites(site for site in self if site.component == component)

    def __str__(self) -> str:
        header = ("site", "component", "layer", "own rate", "calls", "kind")
        rows = [header, *(_row(site) for site in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__


def _row(site: Site) -> tuple[str, ...]:
    layer = {EMBEDDINGS: "embeddings", HEAD: "head"}.get(site.layer, str(site.layer))
    kind = "added" if site.added else "functional" if site.functional else "module"
    return site.name, site.component, layer, f"{site.own_rate:g}", str(site.calls), kind
