"""The engine: M stochastic passes over a batch of texts, folded, in chunks that fit the caches and a memory budget."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.backbone.checks import check_encoded, unwrap
from uatlite.backbone.seams import intervene
from uatlite.backbone.view import View, view_of
from uatlite.errors import ConfigurationError, ModelError
from uatlite.passes.chunks import MEMORY_BUDGET, Chunk, keep_freed_memory, plan_chunks
from uatlite.passes.config import UATConfig
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.gates import check_outside_interface
from uatlite.passes.noise import Fired, Texts


@dataclass(frozen=True)
class Samples:
    """What M stochastic passes over a batch gave."""

    logits: Tensor
    """(passes, batch, classes)"""
    token_uncertainty: Tensor
    """U from all passes (batch, tokens), or (batch, choices, tokens) for multiple choice; 0 at padding"""
    layer_uncertainty: Tensor | None
    """with estimate='layerwise', U at the entrance of each layer: (layers, batch, tokens)"""
    fired: tuple[Fired, ...]
    """which sites dropped units, in forward order, and at which rate"""


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
    inputs = check_encoded(encoded, unwrap(model), view.architecture)
    keep_freed_memory()
    results = _Results(inputs["input_ids"], view, config)
    one_pass = position_rate(view, config) > 0
    if one_pass and config.per_input:
        chunk = 1  # a mask that a whole forward shares can then only be one text's
    for part in plan_chunks(inputs["attention_mask"], view, config, chunk, memory_budget, one_pass):
        results.add(part, run_chunk(view, inputs, part, config))
    return results.whole()


def check_samples(view: View, config: UATConfig) -> None:
    """Raise where the configuration would give something else than it says on this model."""
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
    """The rate of the dropout that a whole forward shares, so that passes with it cannot be folded; 0 without one."""
    rates = [config.rates.of(site.component, site.own_rate) for site in view.sites if site.role == "position"]
    return max(rates, default=0.0)


@dataclass(frozen=True)
class Part:
    """What a chunk gave: logits (passes, texts, classes), U (rows, tokens), layerwise U, sites."""

    logits: Tensor
    token_uncertainty: Tensor
    layer_uncertainty: Tensor | None
    fired: tuple[Fired, ...]


def run_chunk(view: View, inputs: Mapping[str, Tensor], part: Chunk, config: UATConfig) -> Part:
    """The blocks of passes of one chunk of texts."""
    texts_inputs = {name: part.take(value) for name, value in inputs.items()}
    ids = texts_inputs["input_ids"].flatten(0, -2)
    real = texts_inputs["attention_mask"].flatten(0, -2)
    texts = Texts.of(ids, real, config.per_input)
    narrow_layer = view.narrow_layer(from_the_left=texts.positions is None)
    logits: list[Tensor] = []
    estimates: Tensor | None = None
    for passes in part.blocks:
        run = FoldedPasses(config, texts, real.bool(), passes, estimates, narrow_layer=narrow_layer)
        logits.append(forward_folded(view, texts_inputs, run, len(passes)))
        estimates = run.estimates
    check_fired(view, config, run)
    assert estimates is not None
    layerwise = torch.stack(run.layer_uncertainty) if run.layer_uncertainty else None
    return Part(torch.cat(logits), estimates[-1], layerwise, tuple(run.fired))


def forward_folded(view: View, inputs: Mapping[str, Tensor], run: FoldedPasses, passes: int) -> Tensor:
    """Logits (passes, texts, classes) of one folded forward."""
    folded = {name: value.repeat(passes, *[1] * (value.ndim - 1)) for name, value in inputs.items()}
    with torch.inference_mode(), intervene(run):
        logits: Tensor = view.model(**folded, return_dict=True).logits
    return logits.float().view(passes, -1, logits.shape[-1])


def check_fired(view: View, config: UATConfig, run: FoldedPasses) -> None:
    """Raise if the view's sites were not all reached: a row of the table that does not fit the checkpoint."""
    asked = sum(site.calls for site in view.sites if config.rates.of(site.component, site.own_rate) > 0)
    if len(run.fired) != asked or run.attended != view.layers:
        raise ModelError(
            f"{type(view.model).__name__} reached {len(run.fired)} of {asked} dropout sites and {run.attended} of "
            f"{view.layers} attentions: its row in the architecture table does not fit this checkpoint. "
            "Please report it with the output of uatlite.dropout_sites(model)."
        )


class _Results:
    """Collects the chunks' results in the order of the batch."""

    def __init__(self, input_ids: Tensor, view: View, config: UATConfig) -> None:
        batch = input_ids.shape[0]
        classes = input_ids.shape[1] if input_ids.ndim == 3 else view.model.config.num_labels
        device = input_ids.device
        self._logits = torch.zeros((config.samples, batch, classes), device=device)
        self._tokens = torch.zeros(input_ids.shape, device=device)
        layerwise = config.estimate == "layerwise" and config.modulates
        self._layers = torch.zeros((view.layers, *input_ids.shape), device=device) if layerwise else None
        self._fired: tuple[Fired, ...] = ()

    def add(self, part: Chunk, result: Part) -> None:
        self._logits[:, part.rows] = result.logits
        shape = (len(part.rows), *self._tokens.shape[1:-1], part.tokens)
        self._tokens[part.rows, ..., : part.tokens] = result.token_uncertainty.view(shape)
        if self._layers is not None and result.layer_uncertainty is not None:
            self._layers[:, part.rows, ..., : part.tokens] = result.layer_uncertainty.view(-1, *shape)
        self._fired = result.fired

    def whole(self) -> Samples:
        return Samples(self._logits, self._tokens, self._layers, self._fired)
