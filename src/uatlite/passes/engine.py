"""The engine: stochastic passes over a batch of texts, folded into chunks that fit the caches and a memory budget.

A mask depends on pass, site and position, never on the other texts of the batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.device import Result, free_memory, in_halves
from uatlite.model.intervention import intervene
from uatlite.model.plain import forward_and_read
from uatlite.model.view import View, view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import Noise, SiteCall, Texts
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.gates import check_outside_interface

CACHED_BYTES = 64 * 2**20
"""Most bytes of activations of a folded batch that stays in the caches and in memory that the C library keeps."""
MEMORY_BUDGET = 2**30
"""Most bytes of activations of a chunk on a CPU; on a GPU its free memory decides."""
MOST_PADDING = 256
"""Most tokens of padding over all passes of a chunk; with more, a separate forward is cheaper."""
_LARGEST_KEPT = 2**25 - 2**16


MakeNoise = Callable[[Texts, range], Noise]
"""From the texts of a chunk and the passes of a block to the noise at their sites."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a batch, cut to their longest, and the blocks of passes they run in."""

    rows: Tensor
    tokens: int
    blocks: tuple[range, ...]
    shifted: bool = True
    """whether a text may begin after padding"""

    def take(self, value: Tensor) -> Tensor:
        """This chunk's part of an input (batch, ..., tokens)."""
        return value[self.rows][..., : self.tokens]

    def inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This chunk's part of all inputs."""
        return {name: self.take(value) for name, value in inputs.items()}

    def halves(self, *, by_pass: bool) -> list["Chunk"]:
        """The same in smaller forwards: halves of its rows, or of a single row's passes; empty where there are none."""
        if middle := len(self.rows) // 2:
            return [replace(self, rows=self.rows[:middle]), replace(self, rows=self.rows[middle:])]
        most = max(map(len, self.blocks)) // 2
        if not (most and by_pass):
            return []
        return [
            replace(self, blocks=tuple(some[i : i + most] for some in self.blocks for i in range(0, len(some), most)))
        ]


def chunks_of(
    inputs: Mapping[str, Tensor], view: View, config: UATConfig, passes: range, texts: int | None, budget: int
) -> Iterator[Chunk]:
    """Cut a batch into chunks of texts of similar length, all passes of a text together if they fit the budget.

    Others run in blocks of passes; where a forward shares a mask, each pass is one. `texts` sets the rows of a chunk.
    On a CPU a chunk fits in the caches; a GPU takes all at once, unless more than half of that were padding.
    """
    if texts is not None and texts < 1:
        raise ConfigurationError(f"chunk={texts!r} is not a number of texts, 1 or more.")
    mask, folds = inputs["attention_mask"], position_rate(view, config) == 0
    if not folds and config.per_input:
        texts = 1  # a mask that a whole forward shares can then only be one text's
    together, choices = len(passes) if folds else 1, math.prod(mask.shape[1:-1])
    places, on_cpu = mask.bool() * torch.arange(1, mask.shape[-1] + 1, device=mask.device), mask.device.type == "cpu"
    edges = torch.stack(
        [places.amax(dim=-1).clamp_min(1), mask.bool().int().argmax(dim=-1)]
    )  # where texts end and start
    ends, starts = edges.view(2, len(mask), math.prod(mask.shape[1:-1])).amax(dim=2).tolist()  # over all choices
    order = sorted(range(len(ends)), key=ends.__getitem__)
    while order:
        rows: list[int] = []
        filled = 0
        for row in order:
            size = (len(rows) + 1) * together * choices * text_bytes(view, ends[row])
            padding = together * choices * (len(rows) * ends[row] - filled)
            full = size > CACHED_BYTES or padding > MOST_PADDING if on_cpu else padding > together * choices * filled
            full = full if texts is None else len(rows) >= texts
            if rows and (full or size > budget):
                break
            rows.append(row)
            filled += ends[row]
        order, tokens = order[len(rows) :], ends[rows[-1]]
        load = choices * text_bytes(view, tokens)
        block = max(1, min(together, budget // load))
        if block < together and config.estimate == "layerwise" and config.modulates:
            raise ConfigurationError(
                f"estimate='layerwise' needs all {len(passes)} passes of a text in one batch, and {tokens} tokens take "
                f"{len(passes) * load} bytes of a memory budget of {budget}. Raise memory_budget, lower samples, or "
                "use estimate='lagged' or 'closed-form'."
            )
        blocks = tuple(passes[i : i + block] for i in range(0, len(passes), block))
        shifted = any(starts[row] for row in rows)
        yield Chunk(torch.tensor(rows, device=mask.device), tokens, blocks, shifted)


def over_chunks(
    inputs: Mapping[str, Tensor],
    view: View,
    config: UATConfig,
    passes: range,
    run: Callable[[Chunk], Result],
    *,
    texts: int | None = None,
    budget: int | None = None,
) -> Iterator[tuple[Chunk, Result]]:
    """The chunks of a batch, each with what `run` makes of it; where memory does not suffice, smaller ones."""
    halves = partial(Chunk.halves, by_pass=not (config.estimate == "layerwise" and config.modulates))
    for chunk in chunks_of(inputs, view, config, passes, texts, budget or room_on(inputs["input_ids"].device)):
        yield from in_halves(run, chunk, halves)


def room_on(device: torch.device) -> int:
    """Most bytes of activations of a chunk on a device."""
    return free_memory(device) or MEMORY_BUDGET


def text_bytes(view: View, tokens: int) -> int:
    """About how many bytes of activations one pass over so many tokens takes at the peak of a layer."""
    config = view.model.config
    hidden = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    return 4 * tokens * (2 * inner + 8 * hidden + 3 * int(config.num_attention_heads) * tokens)


def keep_freed_memory() -> None:
    """Let the C library keep what a layer frees for the next one, by freeing a large block once.

    glibc returns freed blocks to the system above a threshold, which grows with the largest block freed so far, up to
    32 MiB. With a low threshold every layer's tensors are paged in anew, which takes a fifth of the run time of small
    batches. The block is never touched, so this costs microseconds. With other C libraries it has no effect.
    """
    torch.empty(_LARGEST_KEPT, dtype=torch.uint8)


@dataclass(frozen=True)
class Samples:
    """The results of M stochastic passes over a batch, or over a chunk of it."""

    logits: Tensor
    """(passes, batch, classes); of a token classifier (passes, batch, tokens, classes), 0 at padding"""
    token_uncertainty: Tensor
    """U from all passes (batch, tokens), or (batch, choices, tokens) for multiple choice; 0 at padding"""
    layer_uncertainty: Tensor | None
    """with estimate='layerwise', U at the entrance of each layer: (layers, batch, tokens)"""
    fired: tuple[SiteCall, ...]
    """which sites dropped units, in forward order, and at which rate"""
    representation: Tensor | None = None
    """what the head reads, the mean over passes: (batch, units); None where it cannot be seen

    Of a token classifier (batch, tokens, units), 0 at padding.
    """


def sample(
    model: PreTrainedModel,
    encoded: Mapping[str, Tensor],
    config: UATConfig | None = None,
    *,
    chunk: int | None = None,
    memory_budget: int | None = None,
) -> Samples:
    """Run `config.samples` stochastic passes of a classifier over tokenised texts; the model is left untouched.

    `encoded` is what a tokenizer returns, as tensors. `chunk` sets how many texts run at once (by default what the
    caches like, on a GPU what fits). `memory_budget`, in bytes, bounds the activations whatever the batch: by default
    1 GiB on a CPU and half of a GPU's free memory.
    """
    config = UATConfig() if config is None else config
    view = view_of(model)
    check_samples(view, config)
    inputs = check_encoded(encoded, unwrap(model))
    keep_freed_memory()
    ids, real = inputs["input_ids"], inputs["attention_mask"] if view.tags else None
    logits = torch.zeros((config.samples, *view.logit_shape(ids)), device=ids.device)
    tokens = torch.zeros(ids.shape, device=ids.device)
    layerwise = config.estimate == "layerwise" and config.modulates
    layers = torch.zeros((view.layers, *ids.shape), device=ids.device) if layerwise else None
    fired: tuple[SiteCall, ...] = ()
    read: list[tuple[Chunk, Tensor | None]] = []

    def run(piece: Chunk) -> list[Forward]:
        return list(run_chunk(view, inputs, piece, config))

    passes = range(config.samples)
    for piece, forwards in over_chunks(inputs, view, config, passes, run, texts=chunk, budget=memory_budget):
        total: Tensor | None = None
        for forward in forwards:
            block, folded = slice(forward.passes.start, forward.passes.stop), forward.folded
            place(logits[block].transpose(0, 1), piece, forward.logits.transpose(0, 1), real)
            if forward.read is not None:
                total = forward.read.sum(dim=0) + (0.0 if total is None else total)
        read.append((piece, None if total is None else total / config.samples))
        check_fired(view, config, folded)
        assert folded.estimates is not None
        shape = (len(piece.rows), *ids.shape[1:-1], piece.tokens)
        tokens[piece.rows, ..., : piece.tokens] = folded.estimates[-1].view(shape)
        if layers is not None:
            layers[:, piece.rows, ..., : piece.tokens] = torch.stack(folded.layer_uncertainty).view(-1, *shape)
        fired = tuple(folded.fired)
    return Samples(logits, tokens, layers, fired, in_order(read, ids, real))


def place(batch: Tensor, chunk: Chunk, values: Tensor, real: Tensor | None) -> None:
    """Write a chunk's values (rows, ...) into those of the batch.

    With `real` (batch, tokens) the values are of tokens: the last axis but one is tokens, and padding stays 0.
    """
    if real is None:
        batch[chunk.rows] = values
        return
    padding = ~chunk.take(real).bool().view(len(chunk.rows), *[1] * (values.ndim - 3), chunk.tokens, 1)
    batch[chunk.rows, ..., : chunk.tokens, :] = values.masked_fill(padding, 0.0)


def in_order(parts: Sequence[tuple[Chunk, Tensor | None]], ids: Tensor, real: Tensor | None) -> Tensor | None:
    """Values of all rows from those of chunks of them, as `place` puts them; None where a chunk has none."""
    seen = [(chunk, value) for chunk, value in parts if value is not None]
    if not seen or len(seen) < len(parts):
        return None
    first = seen[0][1]
    shape = (len(ids), *first.shape[1:]) if real is None else (*real.shape, first.shape[-1])
    joined = torch.zeros(shape, dtype=first.dtype, device=first.device)
    for chunk, value in seen:
        place(joined, chunk, value, real)
    return joined


def check_samples(view: View, config: UATConfig) -> None:
    """Raise if the configuration cannot be run on this model as it is written."""
    name = view.model.config.model_type
    config.layers.check(view.layers, name)
    if not view.architecture.interface and config.modulates:
        check_outside_interface(config.gate, config.form, name, keys=view.architecture.key is not None)
    deterministic = config.rates.all_zero and config.gate == "none"
    rates = {site: config.rates.at(site) for site in view.sites}
    if not deterministic and not any(rates.values()):
        raise ConfigurationError(
            f"nothing samples: this {name} checkpoint has rate 0 at all of its {len(rates)} dropout sites and the "
            "configuration keeps them. Set rates, for instance DropoutRates.uniform(0.1)."
        )
    embedding = next(rate for site, rate in rates.items() if site.role == "embedding")
    if config.modulates and config.estimate != "layerwise" and embedding == 0:
        raise ConfigurationError(
            f"gate={config.gate!r} needs token uncertainty, and this {name} checkpoint's own embedding rate is 0, "
            "which makes it 0 everywhere. Set rates.embedding, or estimate='layerwise', or gate='none'."
        )
    if config.modulates and config.estimate == "layerwise" and position_rate(view, config) > 0:
        raise ConfigurationError(
            f"estimate='layerwise' needs all passes in one batch, and {name} drops relative positions by one mask "
            "a forward, so its passes run one by one. Use estimate='lagged' or 'closed-form'."
        )


def position_rate(view: View, config: UATConfig) -> float:
    """The rate of the dropout whose mask a whole forward shares, so that passes cannot be folded; 0 without one."""
    rates = [config.rate_at(site, site.layer) for site in view.sites if site.role == "position"]
    return max(rates, default=0.0)


@dataclass(frozen=True)
class Forward:
    """One folded forward and its results."""

    chunk: Chunk
    passes: range
    folded: FoldedPasses
    logits: Tensor
    """(passes, texts, [tokens,] classes)"""
    read: Tensor | None
    """what the head reads (passes, texts, [tokens,] units); None where it cannot be seen"""


def run_chunk(
    view: View, inputs: Mapping[str, Tensor], chunk: Chunk, config: UATConfig, make_noise: MakeNoise | None = None
) -> Iterator[Forward]:
    """The blocks of passes of one chunk of texts, a folded forward each; by default under the configuration's dropout.

    Under another noise the last layer is not narrowed, so that the attention of all tokens is seen.
    """
    inputs, estimates = chunk.inputs(inputs), None
    texts = Texts.of(inputs, config.per_input, shifted=chunk.shifted)
    narrow_layer = None if make_noise else view.narrow_layer(from_the_left=texts.positions is None)
    for passes in chunk.blocks:
        noise, count = make_noise(texts, passes) if make_noise else None, len(passes)
        run = FoldedPasses(config, texts, passes, estimates, noise, narrow_layer)
        folded = {name: value.repeat(count, *[1] * (value.ndim - 1)) for name, value in inputs.items()}
        with torch.inference_mode(), intervene(run):
            logits, read = forward_and_read(view.model, folded, return_dict=True)
        read = None if read is None else read.view(count, -1, *read.shape[1:])
        yield Forward(chunk, passes, run, logits.float().view(count, -1, *logits.shape[1:]), read)
        estimates = run.estimates


def check_fired(view: View, config: UATConfig, run: FoldedPasses) -> None:
    """Raise unless all sites of the view were reached, as its row in the table says."""
    expected = sum(site.calls for site in view.sites if config.rates.at(site) > 0)
    if run.reached != expected or run.attended != view.layers:
        raise ModelError(
            f"{type(view.model).__name__} reached {run.reached} of {expected} dropout sites and {run.attended} of "
            f"{view.layers} attentions: its row in the architecture table does not fit this checkpoint. "
            "Please report it with the output of uatlite.dropout_sites(model)."
        )
