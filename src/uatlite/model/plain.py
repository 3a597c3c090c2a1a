"""The plain pass: a classifier without dropout, and the representation of each text that it leaves.

Where the head reads only the first token of the last layer, that layer runs for this token alone, in a view of the
model: the same logits at a lower cost. Everywhere else the model itself runs.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from uatlite.model.architectures import ARCHITECTURES, answering
from uatlite.model.intervention import EMBEDDINGS, AttentionInput, Seen, Site, intervene, see_input, see_states, watch
from uatlite.model.view import WATCHED, View, is_known, layers_of, view_of

_ATTENTIONS = ("eager", "sdpa")
"""Attention implementations that PyTorch's fused attention may replace; models with others run as they are."""


@contextmanager
def plain(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """The model to call, inside the block, for a pass over these inputs without dropout or gradients."""
    view = _narrow_view(model, inputs)
    if view is None:
        with torch.inference_mode(), in_mode(model, training=False):
            yield model
    else:
        with torch.inference_mode(), intervene(PlainPass(view.layers - 1)):
            yield view.model


@contextmanager
def in_mode(model: PreTrainedModel, *, training: bool) -> Iterator[None]:
    """Switch a model to train or evaluation mode; afterwards every module is in the mode it was in."""
    switched = [module for module in model.modules() if module.training != training]
    for module in switched:
        module.training = training
    try:
        yield
    finally:
        for module in switched:
            module.training = not training


def _narrow_view(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> View | None:
    """The view whose last layer may run for the first token alone; None if the model itself should run."""
    row = ARCHITECTURES.get(getattr(getattr(model, "config", None), "model_type", ""))
    if row is None or row.narrow is None or not is_known(type(model)) or _is_customised(model):
        return None
    mask = inputs.get("attention_mask")
    if mask is not None and not bool(mask[..., 0].all()):  # the first token is padding
        return None
    view = view_of(model)
    return view if view.narrows else None


def _is_customised(model: PreTrainedModel) -> bool:
    """Whether the user changed how the model runs: compiled, wrapped, dispatched over devices, another attention."""
    own = ("_compiled_call_impl", "forward", "_hf_hook")
    chosen = any(module.__dict__.get(name) is not None for module in model.modules() for name in own)
    return chosen or "_orig_mod" in model._modules or model.config._attn_implementation not in _ATTENTIONS


class PlainPass:
    """The intervention of a pass without dropout whose `narrow_layer` continues with the first token alone."""

    def __init__(self, narrow_layer: int) -> None:
        self._narrow_layer = narrow_layer
        self._layer = EMBEDDINGS

    def enter_layer(self, hidden: Tensor) -> None:
        self._layer += 1

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        return x

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, None]:
        used = inputs.of_first_token() if self.narrows() else inputs
        context = scaled_dot_product_attention(
            used.query, used.key, used.value, attn_mask=used.mask, scale=used.scaling
        )
        return context.expand_as(inputs.query), None

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        return probabilities

    def narrows(self) -> bool:
        return self._layer == self._narrow_layer

    def at_values(self, values: Tensor) -> Tensor:
        return values


def plain_pass(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Logits (batch, classes) without dropout, and the representation of each text (batch, units).

    Of a token classifier both are of tokens: (batch, tokens, classes) and (batch, tokens, units). The second is None
    where the model has no encoder of its own under a head, or runs it in a way that cannot be seen.
    """
    with plain(model, inputs) as classifier:
        return forward_and_read(classifier, inputs)


def forward_and_read(
    classifier: PreTrainedModel, inputs: Mapping[str, Tensor], **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Logits (batch, classes) of one forward as the caller has set it up, and the representation (batch, units)."""
    if getattr(classifier, "base_model_prefix", None) not in classifier._modules:
        logits: Tensor = classifier(**inputs, **options).logits
        return logits, None
    watched = classifier if WATCHED in classifier.__dict__ else _watched(classifier)
    with watch() as seen:
        logits = watched(**inputs, **options).logits
    return logits, representation(classifier, seen, inputs)


def representation(model: PreTrainedModel, seen: Seen, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the last layer gives for the token that the head reads, and the mean of what it receives: (batch, units).

    The head reads the first token, or a decoder's last one. The mean is over all real tokens and stands behind it in
    the same vector; it is left out where the last layer is not known. Options of a question are averaged. Of a token
    classifier it is what the encoder gives for each token: (batch, tokens, units).
    """
    if seen.states is None:
        return None
    if answering(model) == "entities":
        return seen.states.float()
    row = ARCHITECTURES.get(model.config.model_type)
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))
    real = mask.to(seen.states.device).flatten(0, -2).long()
    parts = [seen.states[_read_token(real, last=row is not None and row.reads_last)].float()]
    if seen.last_input is not None:
        weights = real.to(torch.float32) / real.sum(dim=1, keepdim=True)
        parts.append((weights[:, None] @ seen.last_input.float())[:, 0])
    rows = next(iter(inputs.values())).shape[0]
    result = torch.cat(parts, dim=1)
    return result.view(rows, -1, result.shape[-1]).mean(dim=1)


def _read_token(real: Tensor, *, last: bool) -> tuple[Tensor, Tensor]:
    """The index of each row's first or last real token, whichever side the padding is on: real (rows, tokens)."""
    places = torch.arange(real.shape[1], device=real.device)
    token = (real * places).argmax(dim=1) if last else real.argmax(dim=1)
    return torch.arange(real.shape[0], device=real.device), token


def _watched(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that shares the model's modules, and tells `watch` what passes through the encoder and its last layer.

    It is for a model that runs as the user made it, where a hook would change the model while it runs.
    """
    row = ARCHITECTURES.get(getattr(model.config, "model_type", ""))
    if row is not None:
        *_, (path, _) = layers_of(model, row)
        model = _with_module(model, path.split("."), _LastLayer)
    return _with_module(model, [model.base_model_prefix], _Encoder)


Module = TypeVar("Module", bound=nn.Module)


def _with_module(module: Module, path: list[str], wrap: Callable[[nn.Module], nn.Module]) -> Module:
    """A copy whose submodule at the path is wrapped; every other submodule is shared."""
    shell = copy.copy(module)
    name, *rest = path
    inner = module._modules[name]
    assert inner is not None
    shell._modules = {**module._modules, name: _with_module(inner, rest, wrap) if rest else wrap(inner)}
    return shell


class _Wrapped(nn.Module):
    """A module that tells what passes through another one; in all else it is that one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class _Encoder(_Wrapped):
    def forward(self, *args: Any, **inputs: Any) -> Any:
        output = self.inner(*args, **inputs)
        see_states(self, args, output)
        return output


class _LastLayer(_Wrapped):
    def forward(self, *args: Any, **inputs: Any) -> Any:
        see_input(self, args, inputs)
        return self.inner(*args, **inputs)
