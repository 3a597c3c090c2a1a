"""The plain pass: a classifier without dropout, and the representation of each text that it leaves; and its ONNX graph.

Where the head reads only the first token of the last layer, that layer runs for this token alone, in a view of the
model: the same logits at a lower cost. Everywhere else the model itself runs.

A graph takes any batch size and length. It gives what the pass does, which is what `base`, a calibrated `distilled`,
scope and shift read.
"""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import MissingDependency, ModelError
from uatlite.model.architectures import architecture_of, architectures, head_of, unwrap
from uatlite.model.device import over_inputs, products_on
from uatlite.model.intervention import Intervention, current, enter_layer, intervene, see_states
from uatlite.model.view import WATCHED, View, is_known, layers_of, own_hooks, view_of

_ATTENTIONS = ("eager", "sdpa")
"""Attention implementations that PyTorch's fused attention may replace; models with others run as they are."""

OPSET = 18
QUANTISED = ["MatMul", "Gather"]
"""Operators whose weights become int8: products and embeddings. Activations are quantised as they come."""

LARGEST = 2 * 10**9
"""Bytes of weights; an ONNX file is at most 2 GiB."""


@contextmanager
def plain(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Iterator[PreTrainedModel]:
    """The model to call, inside the block, for a pass over these inputs without dropout or gradients."""
    view = _narrow_view(model, inputs)
    if view is None:
        with torch.inference_mode(), in_mode(model, training=False):
            yield model
    else:
        with torch.inference_mode(), intervene(Intervention(view.layers - 1)):
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
    row = architectures().get(getattr(getattr(model, "config", None), "model_type", ""))
    if row is None or row.narrow is None or not is_known(type(model)) or _is_customised(model):
        return None
    mask = inputs.get("attention_mask")
    if mask is not None and not bool(mask[..., 0].all()):  # the first token is padding
        return None
    view = view_of(model)
    return view if view.narrows else None


def _is_customised(model: PreTrainedModel) -> bool:
    """Whether the user changed how the model runs: compiled, wrapped, dispatched over devices, another attention."""
    names = ("_compiled_call_impl", "forward", "_hf_hook")
    chosen = any(module.__dict__.get(name) is not None for module in model.modules() for name in names)
    return chosen or "_orig_mod" in model._modules or model.config._attn_implementation not in _ATTENTIONS


def plain_pass(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Logits (batch, classes) without dropout, and the representation of each text (batch, units).

    Of a token classifier both are of tokens: (batch, tokens, classes) and (batch, tokens, units). The second is None
    where the model has no encoder of its own under a head, or runs it in a way that cannot be seen.
    """

    def run(rows: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        with plain(model, rows) as classifier:
            return forward_and_read(classifier, rows)

    logits, reads = zip(*over_inputs(run, inputs), strict=True)
    if len(logits) == 1:
        return logits[0], reads[0]
    return torch.cat(logits), None if None in reads else torch.cat(reads)


def forward_and_read(
    classifier: PreTrainedModel, inputs: Mapping[str, Tensor], **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Logits (batch, classes) of one forward as the caller has set it up, and the representation (batch, units)."""
    device = next(iter(inputs.values())).device
    if getattr(classifier, "base_model_prefix", None) not in classifier._modules:
        with products_on(device):
            logits: Tensor = classifier(**inputs, **options).logits
        return logits, None
    watched = classifier if WATCHED in classifier.__dict__ else _watched(classifier)
    seen = current() or Intervention()
    with intervene(seen), products_on(device):
        logits = watched(**inputs, **options).logits
    read = representation(classifier, seen, inputs)
    seen.states = seen.last_input = None  # they are as large as a layer's activations
    return logits, read


def representation(model: PreTrainedModel, seen: Intervention, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """What the last layer gives for the token that the head reads, and the mean of what it receives: (batch, units).

    The head reads the first token, or a decoder's last one. The mean is over all real tokens and stands behind it in
    the same vector; it is left out where the last layer is not known. Options of a question are averaged. Of a token
    classifier it is what the encoder gives for each token: (batch, tokens, units).
    """
    if seen.states is None:
        return None
    if "tokens" in head_of(model).logits:
        return seen.states.float()
    row = architectures().get(model.config.model_type)
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
    """A copy that shares the model's modules, and tells what passes through the encoder and its last layer.

    It is for a model that runs as the user made it, where a hook would change the model while it runs.
    """
    other = copy.copy(model)
    row = architectures().get(getattr(model.config, "model_type", ""))
    if row is not None:
        *_, (path, _) = layers_of(model, row)
        _copied(other, path.split(".")).register_forward_pre_hook(enter_layer, with_kwargs=True)
    _copied(other, [model.base_model_prefix]).register_forward_hook(see_states)
    return other


def _copied(model: nn.Module, path: list[str]) -> nn.Module:
    """Put copies in the place of the submodules along a path; the last of them, whose hooks are its alone."""
    module = model
    for name in path:
        copied = copy.copy(module.get_submodule(name))
        module._modules = {**module._modules, name: copied}
        module = copied
    own_hooks(module)
    return module


class _PlainGraph(nn.Module):
    """The plain pass as a module of tensors by place, which is what tracing takes.

    Where the head reads only the first token, and texts are padded on the right, the last layer runs for it alone.
    """

    def __init__(self, model: PreTrainedModel, names: tuple[str, ...], *, padding_side: str) -> None:
        super().__init__()
        view = view_of(model)
        self._names = names
        self._narrow_layer = view.narrow_layer(from_the_left=padding_side == "right")
        self.model = model if self._narrow_layer is None else view.model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (batch, [tokens,] classes) and representations (batch, [tokens,] units)."""
        with intervene(Intervention(self._narrow_layer)):
            given = dict(zip(self._names, inputs, strict=True))
            logits, read = forward_and_read(self.model, given, return_dict=True)
        if read is None:
            raise ModelError(f"{type(self.model).__name__} shows no representation, which an exported graph must give.")
        return logits.float(), read


def export_plain(model: PreTrainedModel, inputs: Mapping[str, Tensor], path: Path, *, padding_side: str) -> None:
    """Write the graph of the plain pass. `inputs` are an example batch of two rows or more, of the names it takes."""
    try:
        import onnx  # noqa: F401 - the exporter needs it
    except ModuleNotFoundError as error:
        raise MissingDependency("onnx", "export") from error
    model = unwrap(model)
    architecture_of(model)  # an unknown one is an error that says so
    size = sum(parameter.nbytes for parameter in model.parameters())
    if size > LARGEST:
        raise ModelError(
            f"{type(model).__name__} has {size / 2**30:.1f} GB of weights; one ONNX file holds less than 2. Export a "
            "smaller model."
        )
    head = head_of(model)
    axes, answers = dict(enumerate(head.inputs)), {i: axis for i, axis in enumerate(head.logits) if axis != "classes"}
    rows = {i: axis for i, axis in answers.items() if axis != "choices"}
    graph = _PlainGraph(model, tuple(inputs), padding_side=padding_side)
    with in_mode(model, training=False), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about values that tracing fixes; the check on texts covers them
        torch.onnx.export(
            graph.eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=["logits", "representation"],
            dynamic_axes={**dict.fromkeys(inputs, axes), "logits": answers, "representation": rows},
            opset_version=OPSET,
            dynamo=False,  # the other exporter takes half a minute where this one takes a second
        )


def quantise(path: Path) -> None:
    """Replace the weights of a graph by int8 ones, in place."""
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ModuleNotFoundError as error:
        raise MissingDependency(str(error.name), "export") from error
    model = onnx.load(path)
    # Without this mark it logs advice to run a shape inference first, which a traced graph does not need.
    onnx.helper.set_model_props(model, {"onnx.quant.pre_process": "onnxruntime.quant"})
    quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=QUANTISED)
