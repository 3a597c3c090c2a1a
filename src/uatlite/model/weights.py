"""Weights beyond a model's own: those of a trained method, the file that holds them, and copies of the model.

DIR/model.safetensors, config.json …    the model as transformers saves and loads it: the mean, or the first member
    uatlite-method.safetensors          tensors of the method; the file's header names the method

Method weights are buffers of the model that its state dict does not list. They move with the model and `model_hash`
covers them, while transformers saves the plain model.

A copy shares parameters with its original, or has its structure around other parameters. It has no hooks and swaps
nothing, so another thread may use the original meanwhile. Making one takes about ten milliseconds; `made` caches it.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import ModelError
from uatlite.model.architectures import MODEL_INPUTS, unwrap
from uatlite.model.device import over_inputs, products_on
from uatlite.text.files import file_beside

FILE = "uatlite-method.safetensors"
_FORMAT = "1"
ATTRIBUTE = "method_weights"

Made = TypeVar("Made")


class MethodWeights(nn.Module):
    """Tensors by name, and the method that they belong to.

    `headless`: the model has no linear last layer, the method's tensors are its head. `persistent`: the tensors are
    saved with the model's state, so that a training run can be resumed.
    """

    def __init__(
        self, method: str, tensors: Mapping[str, Tensor], *, headless: bool = False, persistent: bool = False
    ) -> None:
        super().__init__()
        self.method = method
        self.headless = headless
        self._made: tuple[object, Any] | None = None
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.detach(), persistent=persistent)

    @property
    def tensors(self) -> dict[str, Tensor]:
        return dict(self.named_buffers())

    def made(self, model: PreTrainedModel, key: object, make: Callable[[], Made]) -> Made:
        """The result of `make()`, cached until the key, these weights or the model's change.

        It holds what all batches share: a draw from a posterior, a copy of the model.
        """
        tensors = (*model.parameters(), *self.buffers())
        state = (key, tuple((tensor.data_ptr(), tensor._version) for tensor in tensors))
        cached = self._made  # one read: another thread may replace it
        if cached is None or cached[0] != state:
            cached = self._made = (state, make())
        result: Made = cached[1]
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        tensors = {name: copy.deepcopy(tensor, memo) for name, tensor in self.named_buffers()}
        persistent = not self._non_persistent_buffers_set
        return type(self)(self.method, tensors, headless=self.headless, persistent=persistent)


def attach(model: PreTrainedModel, weights: MethodWeights | None) -> None:
    """Set the method weights of a model, replacing others; None removes them."""
    model = unwrap(model)
    if weights is not None:
        setattr(model, ATTRIBUTE, weights.to(model.device))
    elif attached(model) is not None:
        delattr(model, ATTRIBUTE)


def attached(model: PreTrainedModel) -> MethodWeights | None:
    """The method weights of a model; None if it has none."""
    weights = getattr(unwrap(model), ATTRIBUTE, None)
    return weights if isinstance(weights, MethodWeights) else None


def weights_for(model: PreTrainedModel, method: str) -> MethodWeights:
    """The weights of this method; raise, saying how to train them, if the model has none."""
    weights = attached(model)
    if weights is None or weights.method != method:
        other = "" if weights is None else f" (it has those of {weights.method})"
        raise ModelError(
            f"{method} needs weights of its own, and this model has none{other}. Train them and use that directory: "
            f"uatlite train --method {method} --task TASK -o DIR."
        )
    return weights


def write(model: PreTrainedModel, directory: Path) -> None:
    """Write the method weights of a model beside it; without any, the file of an earlier model is removed."""
    weights, path = attached(model), directory / FILE
    path.unlink(missing_ok=True)
    if weights is not None:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.tensors.items()}
        header = {"format": _FORMAT, "method": weights.method, "headless": str(weights.headless).lower()}
        save_file(tensors, path, metadata=header)


def read(name: str | Path) -> MethodWeights | None:
    """The method weights beside the model in a directory or on the hub; None if there are none."""
    path = file_beside(name, FILE)
    if path is None:
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise ModelError(
                    f"{name}/{FILE} has the format {header.get('format')!r}, this version of uatlite reads "
                    f"{_FORMAT!r}; install the version that wrote it, or train again."
                )
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
            return MethodWeights(header["method"], tensors, headless=header["headless"] == "true")
    except (SafetensorError, KeyError, OSError) as error:
        raise ModelError(f"{name}/{FILE} is broken ({error}); copy it again, or train again.") from error


def flat_parameters(model: PreTrainedModel) -> Tensor:
    """All parameters of a model as one vector (parameters,), in the order of `named_parameters`."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in unwrap(model).parameters()])


def load_flat(model: PreTrainedModel, vector: Tensor) -> None:
    """Set a model's parameters to those of a vector (parameters,), in place."""
    with torch.no_grad():
        for values, parameter in zip(_parts(model, vector).values(), unwrap(model).parameters(), strict=True):
            parameter.copy_(values)


def with_parameters(model: PreTrainedModel, vector: Tensor) -> PreTrainedModel:
    """A copy of the model around other parameters, given as one vector (parameters,), which is not copied."""
    return _copy(model, _parts(model, vector))


def without_last_layer(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model up to its last layer, sharing its parameters: its `logits` are that layer's input."""
    name = next((name for name, module in unwrap(model).named_modules() if isinstance(module, AbsentHead)), None)
    name = last_layer(model)[0] if name is None else name
    body = _copy(model, {})
    body.set_submodule(name, nn.Identity())
    return body


def features(body: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Tensor:
    """The last layer's input for each text, from a model `without_last_layer`: (batch, [choices,] units)."""
    device = next(body.parameters()).device
    inputs = {name: value.to(device) for name, value in encoded.items() if name in MODEL_INPUTS}

    def run(rows: Mapping[str, Tensor]) -> Tensor:
        with products_on(device):
            logits: Tensor = body(**rows).logits
        return logits.float()

    inputs_of_head = torch.cat(over_inputs(run, inputs))
    *batch, _ = inputs["input_ids"].shape
    return inputs_of_head.reshape(*batch, -1)  # a multiple-choice model puts the options last


def last_layer(model: PreTrainedModel) -> tuple[str, nn.Linear]:
    """The name and module of the linear layer that gives the logits: the last one outside the encoder."""
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


class AbsentHead(nn.Module):
    """A placeholder for the last layer of a model whose head belongs to a method; running it raises."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def forward(self, features: Tensor) -> Tensor:
        raise ModelError(
            f"this model was trained for {self.method} and has no other head: run it with the method {self.method!r}, "
            "or use a model that was trained without it."
        )


def behead(model: PreTrainedModel, method: str) -> set[str]:
    """Replace the last layer by an `AbsentHead`; return the names of the weights that this removed."""
    name, layer = last_layer(model)
    model.set_submodule(name, AbsentHead(method))
    return {f"{name}.{parameter}" for parameter, _ in layer.named_parameters()}


def _parts(model: PreTrainedModel, vector: Tensor) -> dict[str, Tensor]:
    named = dict(unwrap(model).named_parameters())
    sizes = [parameter.numel() for parameter in named.values()]
    parts = torch.split(vector, sizes)
    return {name: values.view_as(named[name]) for name, values in zip(named, parts, strict=True)}


def _copy(model: PreTrainedModel, parameters: Mapping[str, Tensor]) -> PreTrainedModel:
    """A copy of the model in evaluation mode around the given parameters; it shares the others and all buffers."""
    model = unwrap(model)
    memo: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    memo[id(model.config)] = model.config
    memo[id(attached(model))] = None  # a copy has no method weights
    for name, parameter in model.named_parameters():
        other = parameters.get(name)
        memo[id(parameter)] = parameter if other is None else nn.Parameter(other, requires_grad=False)
    return copy.deepcopy(model, memo).eval()
