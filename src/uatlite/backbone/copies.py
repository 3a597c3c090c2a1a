"""Models that share the parameters of another one, or have its structure around other parameters.

A copy and its original do not disturb each other: no hook, no swapped parameter, so another thread's use of the
original runs as ever. A copy takes some ten milliseconds; whoever needs one for every batch keeps it.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.backbone.checks import MODEL_INPUTS, unwrap
from uatlite.backbone.method_weights import attached
from uatlite.errors import ModelError


def flat_parameters(model: PreTrainedModel) -> Tensor:
    """All parameters of a model as one vector (parameters,), in the order of `named_parameters`."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in unwrap(model).parameters()])


def load_flat(model: PreTrainedModel, vector: Tensor) -> None:
    """Set a model's parameters to those of a vector, in place."""
    with torch.no_grad():
        for (_, part), parameter in zip(_parts(model, vector).items(), unwrap(model).parameters(), strict=True):
            parameter.copy_(part)


def with_parameters(model: PreTrainedModel, vector: Tensor) -> PreTrainedModel:
    """The model around other parameters, given as one vector (parameters,); they are not copied."""
    return _copy(model, _parts(model, vector))


def without_last_layer(model: PreTrainedModel) -> PreTrainedModel:
    """The model up to its last layer, sharing its parameters: its `logits` are what that layer would read."""
    name = next((name for name, module in unwrap(model).named_modules() if isinstance(module, AbsentHead)), None)
    name = last_layer(model)[0] if name is None else name
    body = _copy(model, {})
    replace_module(body, name, nn.Identity())
    return body


def features(body: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Tensor:
    """What the last layer reads of each text, from a model `without_last_layer`: (batch, [choices,] units)."""
    device = next(body.parameters()).device
    inputs = {name: value.to(device) for name, value in encoded.items() if name in MODEL_INPUTS}
    found: Tensor = body(**inputs).logits
    *batch, _ = inputs["input_ids"].shape
    return found.float().reshape(*batch, -1)  # a multiple-choice model has put the options last: put them back


def last_layer(model: PreTrainedModel) -> tuple[str, nn.Linear]:
    """The name and the module of the linear layer that gives the logits: the last one outside the encoder."""
    model = unwrap(model)
    encoder = {id(module) for module in model.base_model.modules()}
    outside = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and id(module) not in encoder
    ]
    if not outside:
        raise ModelError(f"{type(model).__name__} has no linear layer after its encoder; this method needs one.")
    return outside[-1]


def replace_module(model: PreTrainedModel, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one that `named_modules` calls by this name."""
    parent, _, attribute = name.rpartition(".")
    setattr(unwrap(model).get_submodule(parent), attribute, module)


class AbsentHead(nn.Module):
    """Stands where the last layer of a model was whose head is a method's: whoever runs it is told so."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def forward(self, features: Tensor) -> Tensor:
        raise ModelError(
            f"this model was trained for {self.method} and has no other head: run it with the method {self.method!r}, "
            "or use a model that was trained without it."
        )


def behead(model: PreTrainedModel, method: str) -> set[str]:
    """Put `AbsentHead` in the place of the last layer; returns the names of the weights that are gone with it."""
    name, layer = last_layer(model)
    replace_module(model, name, AbsentHead(method))
    return {f"{name}.{parameter}" for parameter, _ in layer.named_parameters()}


def _parts(model: PreTrainedModel, vector: Tensor) -> dict[str, Tensor]:
    named = dict(unwrap(model).named_parameters())
    sizes = [parameter.numel() for parameter in named.values()]
    parts = torch.split(vector, sizes)
    return {name: part.view_as(named[name]) for name, part in zip(named, parts, strict=True)}


def _copy(model: PreTrainedModel, parameters: Mapping[str, Tensor]) -> PreTrainedModel:
    """The model's structure in evaluation mode, around the parameters given and its own for the others."""
    model = unwrap(model)
    memo: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    memo[id(model.config)] = model.config
    memo[id(attached(model))] = None  # a copy has no method weights
    for name, parameter in model.named_parameters():
        other = parameters.get(name)
        memo[id(parameter)] = parameter if other is None else nn.Parameter(other, requires_grad=False)
    return copy.deepcopy(model, memo).eval()
