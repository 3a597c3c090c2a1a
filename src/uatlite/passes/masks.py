"""Counter-based dropout masks, and the multipliers that a folded batch gets from them.

A mask bit is a pure function of (seed, pass, site, token position, unit). There is no generator state, so a text gets
the same answer in any batch, order, padding, chunk, thread and on any device. A unit's 32 random bits are

    bits = mix(mix(counter ^ key_0) ^ key_1),   counter = position · 2^16 + unit,

with `mix` a bijection of 32-bit words and the two keys from BLAKE2 of everything else. For attention the position is
the query's, the unit is the key's position, and the head is part of the key. A multiplier is 0 where a unit is dropped
and 1/(1-p) where it is kept.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uatlite.errors import InputError
from uatlite.model.intervention import Site
from uatlite.passes.config import UATConfig
from uatlite.passes.gates import running_moments

Words = NDArray[np.uint32]
Keep = NDArray[np.bool_]

WIDEST = 1 << 16
"""Most positions, and most units: they share a 32-bit counter."""


@dataclass(frozen=True)
class Draw:
    """Everything that a mask depends on besides pass, position and unit."""

    seed: int
    site: str
    rate: float
    text: bytes = b""
    """a hash of the text for independent draws per input; empty for masks that all texts share"""


Shape = tuple[int, int, int]
"""(streams, positions, units): heads, query and key positions for attention; 1, tokens, width elsewhere."""


def independent(draw: Draw, passes: range, total: int, shape: Shape) -> Keep:
    """Which units each pass keeps, drawn anew in every pass: (passes, streams, positions, units)."""
    threshold = np.uint32(min(round(draw.rate * 2**32), 2**32 - 1))
    keep = np.empty((len(passes), *shape), dtype=np.bool_)
    counters = _counters(shape)
    for row, number in enumerate(passes):
        for stream in range(shape[0]):
            np.greater_equal(_bits(draw, f"{number}", stream, counters), threshold, out=keep[row, stream])
    return keep


def stratified(draw: Draw, passes: range, total: int, shape: Shape) -> Keep:
    """As `independent`, but each unit is dropped in exactly floor or ceil(rate·total) of the `total` passes.

    One uniform u per unit is used for all passes. With u·M = phase + fraction, the unit is dropped
    n = floor(pM) + [fraction < frac(pM)] times, in the passes m with (phase + π(m)) mod M < n. Each pass then
    drops it with probability p. π is a permutation of the passes, drawn anew at each site.
    """
    word = np.uint16 if total <= 2**15 else np.uint32  # holds the sum of a phase and an order
    phase = np.empty(shape, dtype=word)
    drops = np.empty(shape, dtype=word)
    whole, fraction = divmod(round(draw.rate * total * 2**32), 2**32)
    counters = _counters(shape)
    for stream in range(shape[0]):
        scaled = _bits(draw, "strata", stream, counters).astype(np.uint64) * np.uint64(total)
        phase[stream] = scaled >> np.uint64(32)
        drops[stream] = whole + (scaled & np.uint64(0xFFFFFFFF) < np.uint64(fraction))
    order = _permutation(draw, total).astype(word)
    keep = np.empty((len(passes), *shape), dtype=np.bool_)
    for row, number in enumerate(passes):
        np.greater_equal((phase + order[number]) % word(total), drops, out=keep[row])
    return keep


MASKS: dict[str, Callable[[Draw, range, int, Shape], Keep]] = {
    "independent": independent,
    "stratified": stratified,
}


def text_hash(token_ids: NDArray[np.integer]) -> bytes:
    """A digest of the real tokens of a text, for `Draw.text`."""
    return hashlib.blake2b(token_ids.astype("<i8").tobytes(), digest_size=16).digest()


def _keys(draw: Draw, label: str, stream: int) -> tuple[np.uint32, np.uint32]:
    name = f"{draw.seed}/{draw.site}/{label}/{stream}/".encode() + draw.text
    first, second = np.frombuffer(hashlib.blake2b(name, digest_size=8).digest(), dtype="<u4")
    return np.uint32(first), np.uint32(second)


def _counters(shape: Shape) -> Words:
    _, positions, units = shape
    if max(positions, units) > WIDEST:
        raise InputError(f"{positions} positions of {units} units: masks reach to {WIDEST} of each.")
    rows, columns = np.arange(positions, dtype=np.uint32), np.arange(units, dtype=np.uint32)
    words: Words = (rows[:, None] << np.uint32(16)) + columns
    return words


def _bits(draw: Draw, label: str, stream: int, counters: Words) -> Words:
    first, second = _keys(draw, label, stream)
    words = counters ^ first
    _mix(words)
    words ^= second
    _mix(words)
    return words


def _mix(words: Words) -> None:
    """A bijection of 32-bit words in which each output bit depends on each input bit nearly evenly, in place."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words ^= words >> np.uint32(shift)
        words *= np.uint32(factor)
    words ^= words >> np.uint32(16)


def _permutation(draw: Draw, total: int) -> NDArray[np.intp]:
    """A permutation of the passes, drawn from the seed and the site."""
    ranks = _bits(draw, "order", 0, np.arange(total, dtype=np.uint32))
    return np.argsort(ranks, kind="stable").argsort()


CACHE_BYTES = 512 * 2**20
_SMALLEST_BUCKET = 16
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


class Noise(Protocol):
    """What is done to the values at each call of a site while some passes run folded."""

    def rate(self, site: Site, layer: int) -> float:
        """The drop probability of a site when `layer` calls it; 0 where nothing is dropped."""

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        """The new values (passes · texts, ...) at a call, or the new table that a forward shares."""


class MultiplierCache:
    """The most recently used multipliers, up to a number of bytes; all calls share them, as they are pure values.

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
            with torch.inference_mode(False):
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


CACHE = MultiplierCache(CACHE_BYTES)


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
    def of(cls, inputs: Mapping[str, Tensor], per_input: bool) -> "Texts":
        """From `input_ids` and `attention_mask` (batch, [choices,] tokens); a choice is a row."""
        ids, real = inputs["input_ids"].flatten(0, -2), inputs["attention_mask"].flatten(0, -2).bool()
        starts = real.int().argmax(dim=-1)
        positions = None
        if bool(starts.any()):
            positions = (torch.arange(real.shape[-1], device=starts.device) - starts[:, None]).clamp_min(0)
        hashes = None
        if per_input:
            rows = zip(ids.cpu(), real.cpu(), strict=True)
            hashes = tuple(text_hash(row[kept].numpy()) for row, kept in rows)
        return cls(real, positions, hashes)


class DropoutNoise:
    """The multipliers of one folded forward: passes `passes` of `config.samples` over the rows of `texts`."""

    def __init__(self, config: UATConfig, texts: Texts, passes: range) -> None:
        self._config = config
        self._texts = texts
        self._passes = passes

    def rate(self, site: Site, layer: int) -> float:
        return self._config.rates.of(site.component, site.own_rate)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.rate == 0:
            return x
        multiplier = self._multiplier_at(call, x)
        if call.site.role == "position":
            return x * multiplier
        unfolded = x.reshape(len(self._passes), -1, *x.shape[1:])
        if call.site.role in _FRESH and not torch.is_grad_enabled() and unfolded.data_ptr() == x.data_ptr():
            unfolded.mul_(multiplier)
            return x
        return (unfolded * multiplier).reshape(x.shape)

    def _multiplier_at(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.site.role == "position":
            return self.table(call.name, call.rate, x)
        if call.site.role == "probabilities":
            return self.attention(call.name, call.rate, x)
        return self.pooled(call.name, call.rate, x) if x.ndim == 2 else self.hidden(call.name, call.rate, x)

    def hidden(self, site: str, rate: float, like: Tensor, passes: range | None = None) -> Tensor:
        """For values (rows, tokens, width): (passes, rows or 1, tokens, width); by default of this forward's passes."""
        passes = self._passes if passes is None else passes
        whole = self._multiplier(site, rate, _hidden_shape(like), like, passes)[:, :, 0]
        return _scaled(self._place(whole, like), rate, like)

    def moments(self, site: str, rate: float, like: Tensor) -> tuple[Tensor, Tensor]:
        """The `running_moments` over all passes of the configuration: each (passes + 1, rows or 1, tokens, width)."""
        shape, every = _hidden_shape(like), range(self._config.samples)
        key = ("moments", *self._key(Draw(self._config.seed, site, rate), shape, like, every))
        known = None if self._texts.hashes else CACHE.get(key)
        if known is None:
            keep = self._multiplier(site, rate, shape, like, every)[:, :, 0] > 0
            with torch.inference_mode(False):
                known = torch.stack(running_moments(keep.clone(), rate))
            if not self._texts.hashes:
                CACHE.put(key, known)
        std, mean = known
        return self._place(std, like), self._place(mean, like)

    def _place(self, whole: Tensor, like: Tensor) -> Tensor:
        """Cut (..., rows or 1, bucket, width) to the batch's tokens, each at its position in its text."""
        if self._texts.positions is None:
            return whole[:, :, : like.shape[-2]]
        rows = torch.arange(whole.shape[1], device=whole.device)[:, None]
        return whole[:, rows, self._texts.positions]

    def attention(self, site: str, rate: float, like: Tensor) -> Tensor:
        """For probabilities (rows, heads, queries, tokens): (passes, rows or 1, heads, queries, tokens)."""
        heads, queries, tokens = like.shape[1:]  # of type bool it asks for bits
        bucket = _bucket(tokens)
        whole = self._multiplier(site, rate, (heads, 1 if queries == 1 else bucket, bucket), like, self._passes)
        at = self._texts.positions
        if at is None:
            return _scaled(whole[..., :queries, :tokens], rate, like)
        shared = whole.shape[1] == 1
        chosen = [whole[:, 0 if shared else row][..., p[:, None], p[None, :]] for row, p in enumerate(at)]
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
        known = CACHE.get(key)
        if known is None:
            known = self._one(draw, shape, like, passes)
            CACHE.put(key, known, shrinks=known.dtype != torch.bool)
        return known

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
    return 1, _bucket(like.shape[-2]), like.shape[-1]


def _bucket(tokens: int) -> int:
    """The length of the masks: the next power of two, so that few shapes are cached."""
    return max(_SMALLEST_BUCKET, 1 << (tokens - 1).bit_length())
