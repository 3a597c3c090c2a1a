"""The dropout of a folded batch: multipliers from the masks, at every call of a site.

A multiplier is 0 where a unit is dropped and 1/(1-p) where it is kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from uatlite.model.intervention import Site
from uatlite.passes.config import UATConfig
from uatlite.passes.gates import running_moments
from uatlite.passes.masks import MASKS, Draw, Shape, bucket_of, text_hash

# Roles whose input is a fresh tensor that nothing else reads, so that it may be overwritten.
_FRESH = ("embedding", "probabilities", "output", "feed_forward")


@dataclass(frozen=True)
class SiteCall:
    """One call of a dropout site in a forward, and its rate."""

    site: Site
    layer: int
    """EMBEDDINGS, HEAD, or the number of the layer in the forward, also if layers share a site"""
    call: int
    """earlier calls of a site of this role by the same layer"""
    rate: float

    @property
    def name(self) -> str:
        """The name that the masks of this call depend on."""
        return f"{self.layer}.{self.site.role}.{self.call}"


class Noise:
    """What is done at each call of a site while some passes run folded: nothing, unless a class says so."""

    def __init__(self, config: UATConfig) -> None:
        self._config = config

    def rate(self, site: Site, layer: int) -> float:
        """The drop probability of a site when `layer` calls it; 0 where nothing is dropped."""
        return self._config.rate_at(site, layer)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        """The new values (passes · texts, ...) at a call, or the new table that a forward shares."""
        return x


class MultiplierCache:
    """The most recently used arrays, up to a number of bytes; all calls share them, as they are pure values.

    Over the limit the largest are stored as bits, a quarter of their size, before any is dropped: the masks of long
    texts exceed the limit, and computing them again costs as much as the passes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._whole: set[Hashable] = set()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Tensor | None:
        """The value, or if it was shrunk the bits where it is not 0; None if it is not there."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Hashable, value: Tensor, *, shrinks: bool = False) -> None:
        """Store a value; with `shrinks` it may be stored as the bits where it is not 0."""
        with self._lock:
            if key not in self._entries and value.nbytes <= self._limit:
                self._entries[key] = value
                self._bytes += value.nbytes
                if shrinks:
                    self._whole.add(key)
            while self._bytes > self._limit:
                self._make_room()

    def _make_room(self) -> None:
        if self._whole:
            key = max(self._whole, key=lambda key: self._entries[key].nbytes)
            with torch.inference_mode(False):  # so that they can take part in a backward pass
                bits = self._entries[key] != 0
            self._bytes -= self._entries[key].nbytes - bits.nbytes
            self._entries[key] = bits
            self._whole.remove(key)
        else:
            self._bytes -= self._entries.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._whole.clear()
            self._bytes = 0


CACHE = MultiplierCache(512 * 2**20)


@dataclass(frozen=True)
class Texts:
    """The rows of a chunk, as far as masks and gates depend on them."""

    real: Tensor
    """(rows, tokens): which tokens are not padding"""
    positions: Tensor | None
    """(rows, tokens): each token's position counted from the text's first; None if every text starts at 0"""
    hashes: tuple[bytes, ...] | None
    """one digest per row for draws per input; None for masks that all texts share"""

    @classmethod
    def of(cls, inputs: Mapping[str, Tensor], per_input: bool, *, shifted: bool = True) -> "Texts":
        """From `input_ids` and `attention_mask` (batch, [choices,] tokens); a choice is a row.

        Where it is known that no text begins after padding, `shifted` is False.
        """
        ids, real = inputs["input_ids"].flatten(0, -2), inputs["attention_mask"].flatten(0, -2).bool()
        positions = None
        if shifted:
            starts = real.int().argmax(dim=-1)
            positions = (torch.arange(real.shape[-1], device=starts.device) - starts[:, None]).clamp_min(0)
        hashes = None
        if per_input:
            rows = zip(ids.cpu(), real.cpu(), strict=True)
            hashes = tuple(text_hash(row[kept].numpy()) for row, kept in rows)
        return cls(real, positions, hashes)


class DropoutNoise(Noise):
    """The multipliers of one folded forward: passes `passes` of `config.samples` over the rows of `texts`."""

    def __init__(self, config: UATConfig, texts: Texts, passes: range) -> None:
        super().__init__(config)
        self._texts = texts
        self._passes = passes

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.rate == 0:
            return x
        if call.site.role == "position":
            return x * self.table(call.name, call.rate, x)
        kind = self.attention if call.site.role == "probabilities" else self.pooled if x.ndim == 2 else self.hidden
        multiplier = kind(call.name, call.rate, x)
        unfolded = x.reshape(len(self._passes), -1, *x.shape[1:])
        if call.site.role in _FRESH and not torch.is_grad_enabled() and unfolded.data_ptr() == x.data_ptr():
            unfolded.mul_(multiplier)
            return x
        return (unfolded * multiplier).reshape(x.shape)

    def hidden(self, site: str, rate: float, like: Tensor, passes: range | None = None) -> Tensor:
        """For values (rows, tokens, width): (passes, rows or 1, tokens, width); by default of this forward's passes."""
        passes = self._passes if passes is None else passes
        multiplier = self._multiplier(site, rate, _hidden_shape(like), like, passes)[:, :, 0]
        return _scaled(self._place(multiplier, like), rate, like)

    def moments(self, site: str, rate: float, like: Tensor) -> tuple[Tensor, Tensor]:
        """The `running_moments` over all passes of the configuration: each (passes + 1, rows or 1, tokens, width)."""
        shape, every = _hidden_shape(like), range(self._config.samples)
        key = ("moments", *self._key(Draw(self._config.seed, site, rate), shape, like, every))
        moments = None if self._texts.hashes else CACHE.get(key)
        if moments is None:
            keep = self._multiplier(site, rate, shape, like, every)[:, :, 0] > 0
            with torch.inference_mode(False):
                moments = torch.stack(running_moments(keep.clone(), rate))
            if not self._texts.hashes:
                CACHE.put(key, moments)
        std, mean = moments
        return self._place(std, like), self._place(mean, like)

    def _place(self, multiplier: Tensor, like: Tensor) -> Tensor:
        """Cut (..., rows or 1, bucket, width) to the batch's tokens, each at its position in its text."""
        if self._texts.positions is None:
            return multiplier[:, :, : like.shape[-2]]
        rows = torch.arange(multiplier.shape[1], device=multiplier.device)[:, None]
        return multiplier[:, rows, self._texts.positions]

    def attention(self, site: str, rate: float, like: Tensor) -> Tensor:
        """For probabilities (rows, heads, queries, tokens): (passes, rows or 1, heads, queries, tokens)."""
        heads, queries, tokens = like.shape[1:]  # of type bool it asks for bits
        bucket = bucket_of(tokens)
        multiplier = self._multiplier(site, rate, (heads, 1 if queries == 1 else bucket, bucket), like, self._passes)
        at = self._texts.positions
        if at is None:
            return _scaled(multiplier[..., :queries, :tokens], rate, like)
        shared = multiplier.shape[1] == 1
        chosen = [multiplier[:, 0 if shared else row][..., p[:, None], p[None, :]] for row, p in enumerate(at)]
        return _scaled(torch.stack(chosen, dim=1), rate, like)

    def pooled(self, site: str, rate: float, like: Tensor) -> Tensor:
        """For one vector per text (rows, width): (passes, rows or 1, width)."""
        return _scaled(self._multiplier(site, rate, (1, 1, like.shape[-1]), like, self._passes)[:, :, 0, 0], rate, like)

    def table(self, site: str, rate: float, like: Tensor) -> Tensor:
        """For a table that a forward of one pass shares (entries, width), with one text if draws are per input."""
        text = b"".join(self._texts.hashes or ())
        return self._one(Draw(self._config.seed, site, rate, text), (1, *like.shape), like, self._passes)[0, 0, 0]

    def _multiplier(self, site: str, rate: float, shape: Shape, like: Tensor, passes: range) -> Tensor:
        """(passes, rows or 1, streams, positions, units): multipliers, or bits to be `_scaled` after cutting."""
        if self._texts.hashes is not None:
            draws = (Draw(self._config.seed, site, rate, text) for text in self._texts.hashes)
            return torch.cat([self._one(draw, shape, like, passes) for draw in draws], dim=1)
        draw = Draw(self._config.seed, site, rate)
        key = self._key(draw, shape, like, passes)
        if (cached := CACHE.get(key)) is not None:
            return cached
        multiplier = self._one(draw, shape, like, passes)
        CACHE.put(key, multiplier, shrinks=multiplier.dtype != torch.bool)
        return multiplier

    def _key(self, draw: Draw, shape: Shape, like: Tensor, passes: range) -> tuple[Hashable, ...]:
        return self._config.masks, self._config.samples, draw, passes, shape, like.dtype, like.device

    def _one(self, draw: Draw, shape: Shape, like: Tensor, passes: range) -> Tensor:
        keep = MASKS[self._config.masks](draw, passes, self._config.samples, shape)
        with torch.inference_mode(False):  # so that a cached value can also take part in a backward pass
            return _scaled(torch.from_numpy(keep).to(like.device), draw.rate, like).unsqueeze(1)


def _scaled(multiplier: Tensor, rate: float, like: Tensor) -> Tensor:
    """A multiplier, or bits where `like` has bits, as it is; else a multiplier from its bits."""
    return multiplier if multiplier.dtype == like.dtype else multiplier.to(like.dtype).div_(1 - rate)


def _hidden_shape(like: Tensor) -> Shape:
    return 1, bucket_of(like.shape[-2]), like.shape[-1]
