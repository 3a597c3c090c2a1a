"""The stochastic passes of an exported graph: which masks it takes, and running it over texts. It needs no torch.

A graph of passes takes a batch of texts and, for every call of a dropout site, the bits of the units that each pass
keeps. It folds the passes into its batch and gives the logits (passes · texts, classes) and what the head reads. Seed,
number of passes and kind of masks are in the bits; rates, gate and token uncertainty are in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.passes.config import UATConfig
from uatlite.passes.masks import CACHE_BYTES, MASKS, Draw, MultiplierCache, bucket_of, text_hash
from uatlite.values import Floats, Integers

KEPT = "kept."
"""Before the name of a call: the input with the bits of the units that it keeps."""
STD, MEAN = "uncertainty.std", "uncertainty.mean"
"""Inputs with the moments of the embedding's masks over the passes before each, for a lagged estimate."""
TABLE, HIDDEN, ATTENTION, POOLED = "table", "hidden", "attention", "pooled"
OF_MEANS = ("cv", "norm-cv")
"""Statistics that need the mean, too."""
FREE = ("samples", "masks", "seed", "per_input")
"""Settings that the bits decide, and not the graph."""
CACHED_BYTES = 64 * 2**20
"""Most bytes of activations of a folded batch that stays in the caches and in memory that the C library keeps."""
MEMORY_BUDGET = 2**30
"""Most bytes of activations of a chunk."""
_BYTES = 4

Bits = NDArray[np.bool_]
Run = Callable[[Mapping[str, NDArray[Any]]], list[Any]]
"""A graph: inputs by name to logits and representations, a row for each pass and text."""


@dataclass(frozen=True)
class MaskInput:
    """A call of a dropout site in a graph, and the shape of its masks."""

    name: str
    """what its masks depend on, as `SiteCall.name`"""
    rate: float
    kind: str
    """hidden (tokens, width), attention (heads, queries, tokens), pooled (width), or a table that a pass shares"""
    streams: int
    positions: int | None
    """None for the tokens of the text"""
    units: int | None

    def shape(self, tokens: int) -> tuple[int, int, int]:
        """(streams, positions, units) for texts of so many tokens."""
        return self.streams, self.positions or tokens, self.units or tokens


@dataclass(frozen=True)
class Sizes:
    """What the memory of a forward depends on."""

    hidden: int
    inner: int
    heads: int

    def token_bytes(self, tokens: int) -> int:
        """About how many bytes of activations one token of one pass takes at the peak of a layer."""
        return _BYTES * (2 * self.inner + 8 * self.hidden + 3 * self.heads * tokens)


@dataclass(frozen=True)
class PassesGraph:
    """What a graph of passes computes, and the masks that it takes."""

    config: UATConfig
    inputs: tuple[MaskInput, ...]
    sizes: Sizes

    @property
    def moments(self) -> tuple[str, ...]:
        """Which moments of the embedding's masks it takes: those of a lagged estimate, else none."""
        if not self.config.modulates or self.config.estimate != "lagged":
            return ()
        return (STD, MEAN) if self.config.uncertainty in OF_MEANS else (STD,)

    @property
    def pass_by_pass(self) -> bool:
        """Whether a mask is one that a whole forward shares, so that each pass is a forward."""
        return any(one.kind == TABLE for one in self.inputs)

    @property
    def embedding(self) -> MaskInput:
        """The call at the embedding block."""
        return next(one for one in self.inputs if one.name == "-1.embedding.0")

    def check(self, config: UATConfig) -> None:
        """Raise unless the graph computes the passes of this configuration."""
        own = replace(config, **{name: getattr(self.config, name) for name in FREE})
        if own != self.config:
            raise ConfigurationError(
                f"the exported passes are those of {self.config.to_json()}; only {', '.join(FREE)} may be others. "
                "Export the checkpoint again with the method that you want."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"config": self.config.to_dict(), "inputs": [asdict(one) for one in self.inputs]} | {
            "sizes": asdict(self.sizes)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PassesGraph:
        """The description that `to_dict` made."""
        inputs = tuple(MaskInput(**one) for one in values["inputs"])
        return cls(UATConfig.from_dict(values["config"]), inputs, Sizes(**values["sizes"]))


@dataclass(frozen=True, eq=False)
class GraphTexts:
    """The rows of a chunk, as far as masks depend on them."""

    tokens: int
    positions: Integers | None
    """(rows, tokens): each token's position counted from the text's first; None if every text starts at 0"""
    hashes: tuple[bytes, ...] | None
    """one digest per row for draws per input; None for masks that all texts share"""

    @classmethod
    def of(cls, encoded: Mapping[str, Integers], per_input: bool) -> GraphTexts:
        """From `input_ids` and `attention_mask` (batch, [choices,] tokens); a choice is a row."""
        tokens = encoded["input_ids"].shape[-1]
        ids, real = encoded["input_ids"].reshape(-1, tokens), encoded["attention_mask"].reshape(-1, tokens) > 0
        starts = real.argmax(axis=1)
        at = np.maximum(np.arange(tokens) - starts[:, None], 0) if starts.any() else None
        hashes = tuple(text_hash(row[kept]) for row, kept in zip(ids, real, strict=True)) if per_input else None
        return cls(tokens, at, hashes)


@dataclass(eq=False)
class GraphMasks:
    """The masks that a graph takes, the most recent ones kept."""

    graph: PassesGraph
    cache: MultiplierCache = field(default_factory=lambda: MultiplierCache(CACHE_BYTES))

    def arrays(self, config: UATConfig, passes: range, texts: GraphTexts) -> dict[str, NDArray[Any]]:
        """The inputs of a graph besides the texts, for some passes of a configuration."""
        found: dict[str, NDArray[Any]] = {
            KEPT + one.name: np.ascontiguousarray(self._kept(one, config, passes, texts)) for one in self.graph.inputs
        }
        if self.graph.moments:
            known = dict(zip((STD, MEAN), self._moments(config, texts), strict=True))
            for name in self.graph.moments:
                found[name] = np.ascontiguousarray(_placed(known[name][passes.start : passes.stop], texts))
        return found

    def _kept(self, one: MaskInput, config: UATConfig, passes: range, texts: GraphTexts) -> Bits:
        whole = self._whole(one, config, passes, texts)
        if one.kind == TABLE:
            return np.asarray(whole[0, 0, 0])
        if one.kind == POOLED:
            return whole[:, :, 0, 0]
        if one.kind == HIDDEN:
            return whole[:, :, 0] if one.positions else _placed(whole[:, :, 0], texts)
        tokens, at = texts.tokens, texts.positions
        if at is None:
            return whole[..., : one.positions or tokens, :tokens]
        rows = [whole[:, row % whole.shape[1]][..., p[:, None], p[None, :]] for row, p in enumerate(at)]
        return np.stack(rows, axis=1)

    def _whole(self, one: MaskInput, config: UATConfig, passes: range, texts: GraphTexts) -> Bits:
        """(passes, rows or 1, streams, positions, units), as long as the bucket of the texts."""
        shape = one.shape(bucket_of(texts.tokens))

        def drawn(text: bytes) -> Bits:
            return MASKS[config.masks](Draw(config.seed, one.name, one.rate, text), passes, config.samples, shape)

        if texts.hashes is not None:
            if one.kind == TABLE:
                return drawn(b"".join(texts.hashes))[:, None]
            return np.stack([drawn(text) for text in texts.hashes], axis=1)
        key = one.name, config.masks, config.samples, config.seed, passes, shape
        known: Bits | None = self.cache.get(key)
        if known is not None:
            return known
        found: Bits = drawn(b"")[:, None]
        self.cache.put(key, found)
        return found

    def _moments(self, config: UATConfig, texts: GraphTexts) -> tuple[Floats, Floats]:
        """Each (passes + 1, rows or 1, bucket, width)."""
        one, every = self.graph.embedding, range(config.samples)
        key = "moments", config.masks, config.samples, config.seed, bucket_of(texts.tokens)
        known = None if texts.hashes else self.cache.get(key)
        if known is None:
            known = np.stack(running_moments(self._whole(one, config, every, texts)[:, :, 0], one.rate))
            if not texts.hashes:
                self.cache.put(key, known)
        return known[0], known[1]


def _placed(whole: NDArray[Any], texts: GraphTexts) -> NDArray[Any]:
    """Cut (..., rows or 1, bucket, width) to the batch's tokens, each at its position in its text."""
    if texts.positions is None:
        return whole[:, :, : texts.tokens]
    return whole[:, np.arange(whole.shape[1])[:, None], texts.positions]


def running_moments(keep: Bits, rate: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`uatlite.passes.gates.running_moments` in NumPy: both (passes + 1, ...) from `keep` (passes, ...)."""
    kept = np.concatenate([np.zeros_like(keep[:1], dtype=np.float32), keep.cumsum(axis=0, dtype=np.float32)])
    count = np.arange(len(kept), dtype=np.float32).reshape(-1, *[1] * (keep.ndim - 1))
    variance = kept * (count - kept) / np.maximum(count * (count - 1), 1)
    std, mean = np.sqrt(variance) / (1 - rate), kept / (np.maximum(count, 1) * (1 - rate))
    return np.asarray(std, dtype=np.float32), np.asarray(mean, dtype=np.float32)


def run_passes(
    masks: GraphMasks, run: Run, encoded: Mapping[str, Integers], config: UATConfig
) -> tuple[Floats, Floats]:
    """Logits (passes, batch, classes) of all passes of a configuration, and what the head reads (batch, units)."""
    masks.graph.check(config)
    logits: list[Floats] = []
    read: list[Floats] = []
    for part in parts_of(encoded, masks.graph, config):
        texts, rows = GraphTexts.of(part, config.per_input), len(part["input_ids"])
        found = []
        for passes in _blocks(part["input_ids"], masks.graph, config):
            values = run({**part, **masks.arrays(config, passes, texts)})
            found.append([one.reshape(len(passes), rows, -1).astype(np.float64) for one in values])
        logits.append(np.concatenate([one for one, _ in found]))
        read.append(np.concatenate([one for _, one in found]).mean(axis=0))
    return np.concatenate(logits, axis=1), np.concatenate(read)


def parts_of(encoded: Mapping[str, Integers], graph: PassesGraph, config: UATConfig) -> Iterator[dict[str, Integers]]:
    """The texts of a batch in the chunks that run together, each cut to its longest."""
    ids = encoded["input_ids"]
    if graph.pass_by_pass and config.per_input:
        yield from alone(encoded)
        return
    passes = 1 if graph.pass_by_pass else config.samples
    size = max(1, CACHED_BYTES // (passes * ids[0].size * graph.sizes.token_bytes(ids.shape[-1])))
    for start in range(0, len(ids), size):
        yield _cut({name: value[start : start + size] for name, value in encoded.items()})


def alone(encoded: Mapping[str, Integers]) -> Iterator[dict[str, Integers]]:
    """Each text of a batch by itself, without padding."""
    for row in range(len(encoded["input_ids"])):
        yield _cut({name: value[row : row + 1] for name, value in encoded.items()})


def _cut(encoded: Mapping[str, Integers]) -> dict[str, Integers]:
    """A batch without the columns that are padding in all of its rows."""
    mask = encoded["attention_mask"]
    columns = np.flatnonzero(mask.reshape(-1, mask.shape[-1]).any(axis=0))
    return {name: np.ascontiguousarray(value[..., columns[0] : columns[-1] + 1]) for name, value in encoded.items()}


def _blocks(ids: Integers, graph: PassesGraph, config: UATConfig) -> Iterator[range]:
    """The passes of a chunk in blocks that fit the memory; a layerwise estimate needs all of them together."""
    size = 1 if graph.pass_by_pass else max(1, MEMORY_BUDGET // (ids.size * graph.sizes.token_bytes(ids.shape[-1])))
    if config.estimate == "layerwise" and config.modulates:
        size = config.samples
    for start in range(0, config.samples, size):
        yield range(start, min(start + size, config.samples))
