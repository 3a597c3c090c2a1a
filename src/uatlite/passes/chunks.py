"""Which texts and passes run together: as many as the caches like, never more than the memory budget."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from uatlite.backbone.view import View
from uatlite.errors import ConfigurationError
from uatlite.passes.config import UATConfig

MEMORY_BUDGET = 2**30
"""Bytes of activations that a chunk may take."""
CACHED_BYTES = 64 * 2**20
"""Activations of a folded batch beyond which it falls out of the caches and of the memory that is kept."""
MOST_PADDING = 256
"""Tokens of padding, over all passes of a chunk, for which a forward of its own costs less."""
_BYTES = 4
_LARGEST_KEPT = 2**25 - 2**16


@dataclass(frozen=True)
class Chunk:
    """Some rows of a batch, cut to their longest, and the blocks of passes they run in."""

    rows: Tensor
    tokens: int
    blocks: tuple[range, ...]

    def take(self, value: Tensor) -> Tensor:
        """This chunk's part of an input (batch, ..., tokens)."""
        return value[self.rows][..., : self.tokens]


def plan_chunks(
    attention_mask: Tensor, view: View, config: UATConfig, texts: int | None, budget: int, one_pass: bool
) -> Iterator[Chunk]:
    """Cut a batch into chunks of rows of like length, all passes of a text together where they fit.

    `texts` sets the rows of a chunk; `one_pass` keeps each pass in a forward of its own.
    """
    if texts is not None and texts < 1:
        raise ConfigurationError(f"chunk={texts!r} is not a number of texts, 1 or more.")
    ends = _ends(attention_mask)
    order = torch.argsort(ends, stable=True)
    start = 0
    while start < len(order):
        longest, rows = _grow(ends[order[start:]], attention_mask, view, config, texts, budget, one_pass)
        blocks = _blocks(longest, attention_mask, view, config, budget, one_pass)
        yield Chunk(order[start : start + rows], longest, blocks)
        start += rows


def _ends(attention_mask: Tensor) -> Tensor:
    """Where each row's last real token ends, over all of its choices: (batch,)."""
    places = torch.arange(1, attention_mask.shape[-1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * places).flatten(1).amax(dim=1).clamp_min(1)


def _grow(
    ends: Tensor, mask: Tensor, view: View, config: UATConfig, texts: int | None, budget: int, one_pass: bool
) -> tuple[int, int]:
    """The length and number of the rows that begin with the shortest of `ends` and fit in one chunk."""
    together = 1 if one_pass else config.samples
    choices = mask[0].numel() // mask.shape[-1]
    rows, longest, filled = 0, 0, 0
    for end in ends.tolist():
        size = (rows + 1) * choices * together * end * token_bytes(view, end)
        padding = (rows * end - filled) * choices * together
        full = rows >= texts if texts is not None else size > CACHED_BYTES or padding > MOST_PADDING
        if rows and (full or size > budget):
            break
        rows, longest, filled = rows + 1, end, filled + end
    return longest, rows


def _blocks(tokens: int, mask: Tensor, view: View, config: UATConfig, budget: int, one_pass: bool) -> tuple[range, ...]:
    """The passes of a chunk in blocks: one block unless a single text with all passes exceeds the budget."""
    row_bytes = mask[0].numel() // mask.shape[-1] * tokens * token_bytes(view, tokens)
    size = 1 if one_pass else max(1, min(config.samples, budget // row_bytes))
    if size < config.samples and config.estimate == "layerwise" and config.modulates:
        raise ConfigurationError(
            f"estimate='layerwise' needs all {config.samples} passes of a text in one batch, and {tokens} tokens take "
            f"{config.samples * row_bytes} bytes of a memory budget of {budget}. Raise memory_budget, lower samples, "
            "or use estimate='lagged' or 'closed-form'."
        )
    return tuple(range(i, min(i + size, config.samples)) for i in range(0, config.samples, size))


def token_bytes(view: View, tokens: int) -> int:
    """About how many bytes of activations one token of one pass takes at the peak of a layer."""
    config = view.model.config
    hidden = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    return _BYTES * (2 * inner + 8 * hidden + 3 * int(config.num_attention_heads) * tokens)


def keep_freed_memory() -> None:
    """Let the C library keep what a layer frees for the next one, by showing it that large blocks come and go.

    glibc gives freed memory back to the system above a threshold that grows with the largest block it has seen freed,
    up to 32 MiB. Below it, each layer's tensors are taken page by page anew, at a fifth of the run time of small
    batches. The block is never touched, so this costs microseconds; elsewhere it does nothing.
    """
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8)
