"""The plain pass: a classifier without dropout, and the representation that its head reads.

Where the head reads only the first token of the last layer, that layer runs for this token alone, in a view of the
model: the same logits at a lower cost. Everywhere else the model itself runs.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from uatlite.model.architectures import ARCHITECTURES, unwrap
from uatlite.model.intervention import EMBEDDINGS, AttentionInput, Site, intervene
from uatlite.model.view import View, is_known, view_of

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
    """Logits (batch, classes) without dropout, and what the head reads of each text (batch, units).

    The second is None where the model has no encoder of its own under a head, or runs it in a way that cannot be seen.
    """
    with plain(model, inputs) as classifier:
        if getattr(classifier, "base_model_prefix", None) not in classifier._modules:
            logits: Tensor = classifier(**inputs).logits
            return logits, None
        outputs: list[Any] = []
        logits = _with_recorded_encoder(classifier, outputs)(**inputs).logits
        return logits, read_by_head(model, outputs[0], inputs) if outputs else None


def representation(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the head reads of each text, from a pass of the encoder alone: (batch, units); see `read_by_head`."""
    device = next(model.parameters()).device
    flat = {name: value.to(device).flatten(0, -2) for name, value in inputs.items()}
    with plain(unwrap(model), flat) as classifier:
        output = classifier.base_model(**flat)
    return read_by_head(model, output, inputs)


def read_by_head(model: PreTrainedModel, output: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the head reads of an encoder's output, averaged over options: (batch, units).

    This is the pooler's output where the encoder has one, else the hidden state of the first token, or of a decoder's
    last token. (A mean over tokens would depend on the length of the text.) None where it is no encoder's output.
    """
    pooled = getattr(output, "pooler_output", None)
    if pooled is None and (hidden := getattr(output, "last_hidden_state", None)) is not None:
        row = ARCHITECTURES.get(model.config.model_type)
        real = inputs["attention_mask"].to(hidden.device).flatten(0, -2)
        pooled = hidden[_read_token(real, last=row is not None and row.reads_last)]
    if pooled is None:
        return None
    rows = next(iter(inputs.values())).shape[0]
    result: Tensor = pooled.float().view(rows, -1, pooled.shape[-1]).mean(dim=1)
    return result


def _read_token(real: Tensor, *, last: bool) -> tuple[Tensor, Tensor]:
    """The index of each row's first or last real token, whichever side the padding is on: real (rows, tokens)."""
    places = torch.arange(real.shape[1], device=real.device)
    token = (real * places).argmax(dim=1) if last else real.argmax(dim=1)
    return torch.arange(len(real), device=real.device), token


def _with_recorded_encoder(model: PreTrainedModel, outputs: list[Any]) -> PreTrainedModel:
    """A copy that shares the model's modules and appends what the encoder returns to `outputs`.

    A hook would change the user's model while it runs.
    """
    shell = copy.copy(model)
    shell._modules = {**model._modules, model.base_model_prefix: _RecordedEncoder(model.base_model, outputs)}
    return shell


class _RecordedEncoder(nn.Module):
    """An encoder whose outputs are appended to a list."""

    def __init__(self, encoder: nn.Module, outputs: list[Any]) -> None:
        super().__init__()
        self.encoder = encoder
        self.training = encoder.training
        self._outputs = outputs

    def forward(self, *args: Any, **inputs: Any) -> Any:
        output = self.encoder(*args, **inputs)
        self._outputs.append(output)
        return output
