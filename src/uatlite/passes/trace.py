"""Writing the stochastic passes of a model as an ONNX graph whose inputs are the masks.

The folded forward is traced with an intervention that takes the bits of kept units as inputs. Everything else, gates
and token uncertainty included, is what the engine runs.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.export import batched, check_size, graph_of, trace
from uatlite.model.intervention import AttentionInput, Site, intervene
from uatlite.model.plain import forward_and_read
from uatlite.model.view import View, view_of
from uatlite.passes import gates as u
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import DropoutNoise, SiteCall, Texts
from uatlite.passes.engine import check_fired, check_samples, position_rate, sizes_of
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.gates import Gates
from uatlite.passes.graph import (
    ATTENTION,
    HIDDEN,
    KEPT,
    MEAN,
    POOLED,
    STD,
    TABLE,
    GraphMasks,
    GraphTexts,
    MaskInput,
    PassesGraph,
)


def export_passes(
    model: PreTrainedModel, config: UATConfig, encoded: Mapping[str, Tensor], path: Path, *, padding_side: str
) -> PassesGraph:
    """Write the graph of a configuration's passes. `encoded` are an example batch of two rows or more.

    Where the head reads only the first token, and texts are padded on the right, the last layer runs for it alone.
    """
    check_size(unwrap(model))
    view = view_of(model)
    check_samples(view, config)
    check_exports(config)
    inputs = check_encoded(encoded, unwrap(model))
    narrow_layer = view.narrow_layer(from_the_left=padding_side == "right")
    graph = PassesGraph(config, _mask_inputs(view, config, inputs, narrow_layer), sizes_of(view))
    passes = range(1 if graph.pass_by_pass else min(2, config.samples))
    arrays = {name: value.cpu().numpy() for name, value in inputs.items()}
    drawn = GraphMasks(graph).arrays(config, passes, GraphTexts.of(arrays, config.per_input))
    masks = {name: torch.from_numpy(value) for name, value in drawn.items()}

    def forward(given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        own = {name: given[name] for name in inputs}
        run = TracedPasses(config, own["attention_mask"], {name: given[name] for name in masks}, graph, narrow_layer)
        folded = {name: value.repeat(run.count, *[1] * (value.ndim - 1)) for name, value in own.items()}
        with intervene(run):
            logits, read = forward_and_read(view.model, folded, return_dict=True)
        assert read is not None
        return logits.float(), read

    axes = batched(inputs, model) | {name: _axes(name, graph) for name in masks}
    trace(graph_of(view.model, (*inputs, *masks), forward), {**inputs, **masks}, path, axes)
    return graph


def check_exports(config: UATConfig) -> None:
    """Raise where a configuration has no graph."""
    if config.modulates and config.estimate == "lagged" and u.normalises(config.uncertainty):
        raise ConfigurationError(
            f"uncertainty={config.uncertainty!r} with estimate='lagged' is not exported: it needs the normalised "
            "samples of all earlier passes. Drop the '+ln', or run it with the PyTorch checkpoint."
        )


def _axes(name: str, graph: PassesGraph) -> dict[int, str]:
    """The axes of a mask that may have any size."""
    if name in (STD, MEAN):
        return {0: "passes", 1: "masks", 2: "tokens"}
    one = next(one for one in graph.inputs if KEPT + one.name == name)
    if one.kind == TABLE:
        return {}
    whole = {0: "passes", 1: "masks"}
    if one.kind == HIDDEN and one.positions is None:
        return {**whole, 2: "tokens"}
    if one.kind == ATTENTION:
        return {**whole, **({3: "tokens"} if one.positions is None else {}), 4: "tokens"}
    return whole


class _Recorder(DropoutNoise):
    """Notes the shape of the masks at every call, and drops nothing."""

    def __init__(self, config: UATConfig, texts: Texts, passes: range) -> None:
        super().__init__(config, texts, passes)
        self.seen: list[MaskInput] = []

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.rate > 0:
            self.seen.append(_mask_input(call, x))
        return x


def _mask_input(call: SiteCall, x: Tensor) -> MaskInput:
    if call.site.role == "position":
        return MaskInput(call.name, call.rate, TABLE, 1, *x.shape)
    if call.site.role == "probabilities":
        return MaskInput(call.name, call.rate, ATTENTION, x.shape[1], 1 if x.shape[2] == 1 else None, None)
    if x.ndim == 2:
        return MaskInput(call.name, call.rate, POOLED, 1, 1, x.shape[-1])
    return MaskInput(call.name, call.rate, HIDDEN, 1, 1 if x.shape[1] == 1 else None, x.shape[-1])


def _mask_inputs(
    view: View, config: UATConfig, inputs: Mapping[str, Tensor], narrow_layer: int | None
) -> tuple[MaskInput, ...]:
    """The masks that a forward takes, found by running one."""
    texts, passes = Texts.of(inputs, per_input=False), range(1 if position_rate(view, config) else 2)
    recorder = _Recorder(config, texts, passes)
    run = FoldedPasses(config, texts, passes, noise=recorder, narrow_layer=narrow_layer)
    folded = {name: value.repeat(len(passes), *[1] * (value.ndim - 1)) for name, value in inputs.items()}
    with torch.inference_mode(), intervene(run):
        view.model(**folded, return_dict=True)
    check_fired(view, config, run)
    return tuple(recorder.seen)


class TracedPasses(FoldedPasses):
    """The folded forward with its masks, and the moments of the embedding's, as tensors of a graph."""

    def __init__(
        self,
        config: UATConfig,
        attention_mask: Tensor,
        masks: Mapping[str, Tensor],
        graph: PassesGraph,
        narrow_layer: int | None,
    ) -> None:
        real = attention_mask.flatten(0, -2).bool()
        super().__init__(config, Texts(real, None, None), range(config.samples), narrow_layer=narrow_layer)
        self._masks = masks
        folding = next((one for one in graph.inputs if one.kind != TABLE), None)
        self._count = 1 if folding is None or graph.pass_by_pass else masks[KEPT + folding.name].shape[0]
        self._noise = _InputNoise(config, masks, self._count)

    @property
    def count(self) -> int:
        """The passes of the forward: while tracing a number of the graph."""
        return self._count

    def _attend(self, site: Site, inputs: AttentionInput, g: Gates) -> tuple[Tensor, Tensor | None]:
        """The values have the scale of the probabilities that are kept: there are fewer of them."""
        kept = 1 - self._noise.rate(site, self._layer)
        return super()._attend(site, replace(inputs, value=inputs.value / kept), g)

    def _estimate(self, embedding: Tensor, rate: float) -> None:
        config = self._config
        if not config.modulates or config.estimate == "layerwise":
            return
        if config.estimate == "closed-form":
            estimates = u.closed_form(embedding, rate, config.uncertainty)[None]
        else:
            std = self._masks[STD]
            estimates = u.lagged(embedding, (std, self._masks.get(MEAN, std)), config.uncertainty)
        self._set_gates(estimates * self._real, embedding.dtype)


class _InputNoise:
    """Multiplies by what the inputs of a graph keep."""

    def __init__(self, config: UATConfig, masks: Mapping[str, Tensor], count: int) -> None:
        self._config = config
        self._masks = masks
        self._count = count

    def rate(self, site: Site, layer: int) -> float:
        return self._config.rates.of(site.component, site.own_rate)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.rate == 0:
            return x
        multiplier = self._masks[KEPT + call.name].to(x.dtype)
        if not call.site.functional:  # the values of functional attention have the scale
            multiplier = multiplier / (1 - call.rate)
        if call.site.role == "position":
            return x * multiplier
        unfolded = x.reshape(self._count, -1, *x.shape[1:])
        return (unfolded * multiplier).reshape(x.shape)
