"""The plain pass: a classifier without dropout, as it is.

Where the head reads the first token of the last layer alone, and nobody else looks, that layer runs for it alone, in a
view of the model: the same logits for less. Everywhere else the model itself runs.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from uatlite.model.architectures import ARCHITECTURES
from uatlite.model.view import EMBEDDINGS, AttentionInput, Site, View, intervene, is_known, view_of

_ATTENTIONS = ("eager", "sdpa")
"""What a model may attend by for PyTorch's fused attention to stand in for it; others run as they are."""


@contextmanager
def plain(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """What to call, inside the block, for a pass over these inputs without dropout or gradients."""
    view = _narrow_view(model, inputs)
    if view is None:
        with torch.inference_mode(), evaluating(model):
            yield model
    else:
        with torch.inference_mode(), intervene(PlainPass(view.layers - 1)):
            yield view.model


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model to evaluation mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _narrow_view(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> View | None:
    """The view whose last layer may run for the first token alone; None where the model should run itself."""
    row = ARCHITECTURES.get(getattr(getattr(model, "config", None), "model_type", ""))
    if row is None or row.narrow is None or not is_known(type(model)) or _has_a_way_of_its_own(model):
        return None
    mask = inputs.get("attention_mask")
    if mask is not None and not bool(mask[..., 0].all()):  # the first token is padding
        return None
    view = view_of(model)
    return view if view.narrows else None


def _has_a_way_of_its_own(model: PreTrainedModel) -> bool:
    """Whether the user chose how this model runs: compiled, wrapped, dispatched over devices, by another attention."""
    own = ("_compiled_call_impl", "forward", "_hf_hook")
    chosen = any(module.__dict__.get(name) is not None for module in model.modules() for name in own)
    return chosen or "_orig_mod" in model._modules or model.config._attn_implementation not in _ATTENTIONS


class PlainPass:
    """The intervention of a pass without dropout whose `narrow_layer` goes on with the first token alone."""

    def __init__(self, narrow_layer: int) -> None:
        self._narrow_layer = narrow_layer
        self._layer = EMBEDDINGS

    def enter_layer(self, hidden: Tensor) -> None:
        self._layer += 1

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        return x

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, None]:
        asked = inputs.of_first_token() if self.narrows() else inputs
        context = scaled_dot_product_attention(
            asked.query, asked.key, asked.value, attn_mask=asked.mask, scale=asked.scaling
        )
        return context.expand_as(inputs.query), None

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        return probabilities

    def narrows(self) -> bool:
        return self._layer == self._narrow_layer

    def at_values(self, values: Tensor) -> Tensor:
        return values


def noting_its_encoder(model: PreTrainedModel, seen: list[Any]) -> PreTrainedModel:
    """A shell around the same modules whose encoder notes its output in `seen`; the model itself is not touched."""
    shell = copy.copy(model)
    shell._modules = {**model._modules, model.base_model_prefix: _Noting(model.base_model, seen)}
    return shell


class _Noting(nn.Module):
    """An encoder that notes what it puts out."""

    def __init__(self, encoder: nn.Module, seen: list[Any]) -> None:
        super().__init__()
        self.encoder = encoder
        self.training = encoder.training
        self._seen = seen

    def forward(self, *args: Any, **inputs: Any) -> Any:
        output = self.encoder(*args, **inputs)
        self._seen.append(output)
        return output
