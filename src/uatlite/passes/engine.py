"""The engine: stochastic passes over a batch of texts, folded into chunks that fit the caches and a memory budget.

A mask depends on pass, site and position, never on the other texts of the batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.intervention import intervene
from uatlite.model.plain import forward_and_read
from uatlite.model.view import View, view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import SiteCall, Texts
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.gates import check_outside_interface

CACHED_BYTES = 64 * 2**20
"""Most bytes of activations of a folded batch that stays in the caches and in memory that the C library keeps."""
MEMORY_BUDGET = 2**30
"""Most bytes of activations of a chunk."""
MOST_PADDING = 256
"""Most tokens of padding over all passes of a chunk; with more, a separate forward is cheaper."""
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

    def inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This chunk's part of all inputs."""
        return {name: self.take(value) for name, value in inputs.items()}


def chunks_of(
    inputs: Mapping[str, Tensor], view: View, config: UATConfig, passes: range, texts: int | None, budget: int
) -> Iterator[Chunk]:
    """The chunks in which some passes of a configuration run over a batch; `texts` sets the rows of a chunk."""
    mask, folds = inputs["attention_mask"], position_rate(view, config) == 0
    if not folds and config.per_input:
        texts = 1  # a mask that a whole forward shares can then only be one text's
    choices = math.prod(mask.shape[1:-1])

    def load(tokens: int) -> int:
        return choices * tokens * token_bytes(view, tokens)

    places = mask.bool() * torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    ends = places.flatten(1).amax(dim=1).clamp_min(1).tolist()  # of each text, over all of its choices
    padding = MOST_PADDING // choices
    for chunk in plan_chunks(ends, passes, load, texts=texts, budget=budget, most_padding=padding, folds=folds):
        if len(chunk.blocks) > 1 and config.estimate == "layerwise" and config.modulates:
            raise ConfigurationError(
                f"estimate='layerwise' needs all {len(passes)} passes of a text in one batch, and {chunk.tokens} "
                f"tokens take {len(passes) * load(chunk.tokens)} bytes of a memory budget of {budget}. Raise "
                "memory_budget, lower samples, or use estimate='lagged' or 'closed-form'."
            )
        yield replace(chunk, rows=chunk.rows.to(mask.device))


def plan_chunks(
    ends: Sequence[int],
    passes: range,
    load: Callable[[int], int],
    *,
    texts: int | None,
    budget: int,
    most_padding: int,
    folds: bool,
) -> Iterator[Chunk]:
    """Cut texts with these numbers of tokens into chunks of similar length, all passes of a text together if they fit.

    `load` gives the bytes of one pass over one text of so many tokens. A text that exceeds the budget with all passes
    runs in blocks of them. `texts` sets the rows of a chunk; without `folds` each pass runs in a separate forward.
    """
    if texts is not None and texts < 1:
        raise ConfigurationError(f"chunk={texts!r} is not a number of texts, 1 or more.")
    together, order = len(passes) if folds else 1, sorted(range(len(ends)), key=ends.__getitem__)
    start = 0
    while start < len(order):
        rows: list[int] = []
        filled = 0
        for row in order[start:]:
            size = (len(rows) + 1) * together * load(ends[row])
            padding = together * (len(rows) * ends[row] - filled)
            full = len(rows) >= texts if texts is not None else size > CACHED_BYTES or padding > most_padding
            if rows and (full or size > budget):
                break
            rows.append(row)
            filled += ends[row]
        tokens = ends[rows[-1]]
        block = max(1, min(together, budget // load(tokens)))
        blocks = tuple(passes[i : i + block] for i in range(0, len(passes), block))
        yield Chunk(torch.tensor(rows), tokens, blocks)
        start += len(rows)


def token_bytes(view: View, tokens: int) -> int:
    """About how many bytes of activations one token of one pass takes at the peak of a layer."""
    config = view.model.config
    hidden = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    return 4 * (2 * inner + 8 * hidden + 3 * int(config.num_attention_heads) * tokens)


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
    memory_budget: int = MEMORY_BUDGET,
) -> Samples:
    """Run `config.samples` stochastic passes of a classifier over tokenised texts; the model is left untouched.

    `encoded` is what a tokenizer returns, as tensors. `chunk` sets how many texts run at once (by default what the
    caches like); `memory_budget`, in bytes, bounds the activations whatever the batch.
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
    for part in chunks_of(inputs, view, config, range(config.samples), chunk, memory_budget):
        samples = run_chunk(view, inputs, part, config)
        place(logits.transpose(0, 1), part, samples.logits.transpose(0, 1), real)
        tokens[part.rows, ..., : part.tokens] = samples.token_uncertainty
        if layers is not None and samples.layer_uncertainty is not None:
            layers[:, part.rows, ..., : part.tokens] = samples.layer_uncertainty
        read.append((part, samples.representation))
        fired = samples.fired
    return Samples(logits, tokens, layers, fired, in_order(read, real))


def place(batch: Tensor, part: Chunk, values: Tensor, real: Tensor | None) -> None:
    """Write a chunk's values (rows, ...) into those of the batch.

    With `real` (batch, tokens) the values are of tokens: the last axis but one is tokens, and padding stays 0.
    """
    if real is None:
        batch[part.rows] = values
        return
    padding = ~part.take(real).bool().view(len(part.rows), *[1] * (values.ndim - 3), part.tokens, 1)
    batch[part.rows, ..., : part.tokens, :] = values.masked_fill(padding, 0.0)


def in_order(parts: Sequence[tuple[Chunk, Tensor | None]], real: Tensor | None) -> Tensor | None:
    """Values of all rows from those of chunks of them, as `place` puts them; None where a chunk has none."""
    seen = [(part, value) for part, value in parts if value is not None]
    if not seen or len(seen) < len(parts):
        return None
    rows, first = sum(len(part.rows) for part, _ in seen), seen[0][1]
    shape = (rows, *first.shape[1:]) if real is None else (*real.shape, first.shape[-1])
    joined = torch.zeros(shape, dtype=first.dtype, device=first.device)
    for part, value in seen:
        place(joined, part, value, real)
    return joined


def check_samples(view: View, config: UATConfig) -> None:
    """Raise if the configuration cannot be run on this model as it is written."""
    name = view.model.config.model_type
    if not view.architecture.interface and config.modulates:
        check_outside_interface(config.gate, config.form, name)
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
    rates = [config.rates.at(site) for site in view.sites if site.role == "position"]
    return max(rates, default=0.0)


def run_chunk(view: View, inputs: Mapping[str, Tensor], part: Chunk, config: UATConfig) -> Samples:
    """The blocks of passes of one chunk of texts."""
    inputs = part.inputs(inputs)
    texts = Texts.of(inputs, config.per_input)
    narrow_layer = view.narrow_layer(from_the_left=texts.positions is None)
    logits: list[Tensor] = []
    read: Tensor | None = None
    estimates: Tensor | None = None
    for passes in part.blocks:
        run = FoldedPasses(config, texts, passes, estimates, narrow_layer=narrow_layer)
        of_block, representations = forward_folded(view, inputs, run, len(passes))
        logits.append(of_block)
        if representations is not None:
            read = representations.sum(dim=0) + (0.0 if read is None else read)
        estimates = run.estimates
    check_fired(view, config, run)
    assert estimates is not None
    shape = inputs["input_ids"].shape
    layerwise = torch.stack(run.layer_uncertainty).view(-1, *shape) if run.layer_uncertainty else None
    every = torch.cat(logits)
    read = None if read is None else read / len(every)
    return Samples(every, estimates[-1].view(shape), layerwise, tuple(run.fired), read)


def forward_folded(
    view: View, inputs: Mapping[str, Tensor], run: FoldedPasses, passes: int
) -> tuple[Tensor, Tensor | None]:
    """Logits (passes, texts, classes) of one folded forward, and what the head reads (passes, texts, units)."""
    folded = {name: value.repeat(passes, *[1] * (value.ndim - 1)) for name, value in inputs.items()}
    with torch.inference_mode(), intervene(run):
        logits, read = forward_and_read(view.model, folded, return_dict=True)
    read = None if read is None else read.view(passes, -1, *read.shape[1:])
    return logits.float().view(passes, -1, *logits.shape[1:]), read


def check_fired(view: View, config: UATConfig, run: FoldedPasses) -> None:
    """Raise unless all sites of the view were reached, as its row in the table says."""
    expected = sum(site.calls for site in view.sites if config.rates.at(site) > 0)
    if len(run.fired) != expected or run.attended != view.layers:
        raise ModelError(
            f"{type(view.model).__name__} reached {len(run.fired)} of {expected} dropout sites and {run.attended} of "
            f"{view.layers} attentions: its row in the architecture table does not fit this checkpoint. "
            "Please report it with the output of uatlite.dropout_sites(model)."
        )
