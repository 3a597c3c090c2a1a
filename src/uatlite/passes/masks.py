"""Counter-based dropout masks.

A mask bit is a pure function of (seed, pass, site, token position, unit). There is no generator state, so a text gets
the same answer in any batch, order, padding, chunk, thread and on any device. A unit's 32 random bits are

    bits = mix(mix(counter ^ key_0) ^ key_1),   counter = position · 2^16 + unit,

with `mix` a bijection of 32-bit words and the two keys from BLAKE2 of everything else. For attention the position is
the query's, the unit is the key's position, and the head is part of the key.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import InputError

_Words = NDArray[np.uint32]
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
    fewest, fraction = divmod(round(draw.rate * total * 2**32), 2**32)
    counters = _counters(shape)
    for stream in range(shape[0]):
        scaled = _bits(draw, "strata", stream, counters).astype(np.uint64) * np.uint64(total)
        phase[stream] = scaled >> np.uint64(32)
        drops[stream] = fewest + (scaled & np.uint64(0xFFFFFFFF) < np.uint64(fraction))
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


def _counters(shape: Shape) -> _Words:
    _, positions, units = shape
    if max(positions, units) > WIDEST:
        raise InputError(f"{positions} positions of {units} units: masks reach to {WIDEST} of each.")
    rows, columns = np.arange(positions, dtype=np.uint32), np.arange(units, dtype=np.uint32)
    words: _Words = (rows[:, None] << np.uint32(16)) + columns
    return words


def _bits(draw: Draw, label: str, stream: int, counters: _Words) -> _Words:
    name = f"{draw.seed}/{draw.site}/{label}/{stream}/".encode() + draw.text
    first, second = np.frombuffer(hashlib.blake2b(name, digest_size=8).digest(), dtype="<u4")
    words: _Words = counters ^ np.uint32(first)
    _mix(words)
    words ^= np.uint32(second)
    _mix(words)
    return words


def _mix(words: _Words) -> None:
    """A bijection of 32-bit words in which each output bit depends on each input bit nearly evenly, in place."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words ^= words >> np.uint32(shift)
        words *= np.uint32(factor)
    words ^= words >> np.uint32(16)


def _permutation(draw: Draw, total: int) -> NDArray[np.intp]:
    """A permutation of the passes, drawn from the seed and the site."""
    ranks = _bits(draw, "order", 0, np.arange(total, dtype=np.uint32))
    return np.argsort(ranks, kind="stable").argsort()


SMALLEST_BUCKET = 16


def bucket_of(tokens: int) -> int:
    """The length of the masks: the next power of two, so that few shapes are cached."""
    return max(SMALLEST_BUCKET, 1 << (tokens - 1).bit_length())
