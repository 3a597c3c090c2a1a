"""The engine: stochastic passes over a batch of texts, folded into chunks that fit the caches and a memory budget.

A mask depends on pass, site and position, never on the other texts of the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    one_pass = position_rate(view, config) > 0
    if one_pass and config.per_input:
        texts = 1  # a mask that a whole forward shares can then only be one text's
    plan = replace(config, samples=len(passes))
    for chunk in plan_chunks(inputs["attention_mask"], view, plan, texts, budget, one_pass):
        yield replace(chunk, blocks=tuple(passes[block.start : block.stop] for block in chunk.blocks))


def plan_chunks(
    attention_mask: Tensor, view: View, config: UATConfig, texts: int | None, budget: int, one_pass: bool
) -> Iterator[Chunk]:
    """Cut a batch into chunks of rows of similar length, all passes of a text together if they fit.

    `texts` sets the rows of a chunk; `one_pass` runs each pass in a separate forward.
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
    """The end of each row's last real token, over all of its choices: (batch,)."""
    places = torch.arange(1, attention_mask.shape[-1] + 1, device=attention_mask.device)
    return (attention_mask.bool() * places).flatten(1).amax(dim=1).clamp_min(1)


def _grow(
    ends: Tensor, mask: Tensor, view: View, config: UATConfig, texts: int | None, budget: int, one_pass: bool
) -> tuple[int, int]:
    """The length and number of the first rows, sorted by `ends`, that fit in one chunk."""
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
    view, inputs = _prepare(model, encoded, config)
    ids = inputs["input_ids"]
    tokens = torch.zeros(ids.shape, device=ids.device)
    layerwise = config.estimate == "layerwise" and config.modulates
    layers = torch.zeros((view.layers, *ids.shape), device=ids.device) if layerwise else None
    fired: tuple[SiteCall, ...] = ()
    parts: list[tuple[Chunk, Samples]] = []
    for part in chunks_of(inputs, view, config, range(config.samples), chunk, memory_budget):
        found = run_chunk(view, inputs, part, config)
        parts.append((part, found))
        tokens[part.rows, ..., : part.tokens] = found.token_uncertainty
        if layers is not None and found.layer_uncertainty is not None:
            layers[:, part.rows, ..., : part.tokens] = found.layer_uncertainty
        fired = found.fired
    logits, read = _joined(parts, view, inputs, config.samples)
    return Samples(logits, tokens, layers, fired, read)


def _joined(
    parts: Sequence[tuple[Chunk, Samples]], view: View, inputs: Mapping[str, Tensor], passes: int
) -> tuple[Tensor, Tensor | None]:
    """Logits (passes, batch, ...) and representations (batch, ...) of a batch from those of its chunks."""
    ids, real = inputs["input_ids"], inputs["attention_mask"] if view.tags else None
    logits = torch.zeros((passes, *view.logit_shape(ids)), device=ids.device)
    for part, found in parts:
        place(logits.transpose(0, 1), part, found.logits.transpose(0, 1), real)
    return logits, in_order([(part, found.representation) for part, found in parts], real)


def place(whole: Tensor, part: Chunk, values: Tensor, real: Tensor | None) -> None:
    """Write a chunk's values (rows, ...) into those of the batch.

    With `real` (batch, tokens) the values are of tokens: the last axis but one is tokens, and padding stays 0.
    """
    if real is None:
        whole[part.rows] = values
        return
    padding = ~part.take(real).bool().view(len(part.rows), *[1] * (values.ndim - 3), part.tokens, 1)
    whole[part.rows, ..., : part.tokens, :] = values.masked_fill(padding, 0.0)


def in_order(parts: Sequence[tuple[Chunk, Tensor | None]], real: Tensor | None) -> Tensor | None:
    """Values of all rows from those of chunks of them, as `place` puts them; None where a chunk has none."""
    known = [(part, value) for part, value in parts if value is not None]
    if not known or len(known) < len(parts):
        return None
    rows, first = sum(len(part.rows) for part, _ in known), known[0][1]
    shape = (rows, *first.shape[1:]) if real is None else (*real.shape, first.shape[-1])
    whole = torch.zeros(shape, dtype=first.dtype, device=first.device)
    for part, value in known:
        place(whole, part, value, real)
    return whole


def _prepare(
    model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig
) -> tuple[View, dict[str, Tensor]]:
    """The view and the inputs of a run, checked before anything runs."""
    view = view_of(model)
    check_samples(view, config)
    inputs = check_encoded(encoded, unwrap(model))
    keep_freed_memory()
    return view, inputs


def check_samples(view: View, config: UATConfig) -> None:
    """Raise if the configuration cannot be run on this model as it is written."""
    name = view.model.config.model_type
    if not view.architecture.interface and config.modulates:
        check_outside_interface(config.gate, config.form, name)
    deterministic = config.rates.all_zero and config.gate == "none"
    rates = {site: config.rates.of(site.component, site.own_rate) for site in view.sites}
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
    rates = [config.rates.of(site.component, site.own_rate) for site in view.sites if site.role == "position"]
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
    expected = sum(site.calls for site in view.sites if config.rates.of(site.component, site.own_rate) > 0)
    if len(run.fired) != expected or run.attended != view.layers:
        raise ModelError(
            f"{type(view.model).__name__} reached {len(run.fired)} of {expected} dropout sites and {run.attended} of "
            f"{view.layers} attentions: its row in the architecture table does not fit this checkpoint. "
            "Please report it with the output of uatlite.dropout_sites(model)."
        )
