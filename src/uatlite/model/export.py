"""A classifier as ONNX graphs, with any batch size and length: traced from PyTorch, and quantised where asked for.

The plain graph gives the logits (batch, classes) and the representation of each text (batch, units) of one pass without
dropout: all that `base`, a calibrated `distilled`, scope and shift read.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import MissingDependency, ModelError
from uatlite.model.architectures import architecture_of, is_multiple_choice, unwrap
from uatlite.model.intervention import intervene
from uatlite.model.plain import PlainPass, forward_and_read, in_mode
from uatlite.model.view import view_of

OPSET = 18
OUTPUTS = ("logits", "representation")
QUANTISED = ("MatMul", "Gather")
"""Operators whose weights become int8: products and embeddings. Activations are quantised as they come."""

LARGEST = 2 * 10**9
"""Bytes of weights; an ONNX file is at most 2 GiB."""

Forward = Callable[[Mapping[str, Tensor]], tuple[Tensor, ...]]


class _Graph(nn.Module):
    """A function of named tensors as a module: tracing takes a module and tensors by place."""

    def __init__(self, model: nn.Module, names: Sequence[str], forward: Forward) -> None:
        super().__init__()
        self.model = model
        self._names = tuple(names)
        self._forward = forward

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._forward(dict(zip(self._names, inputs, strict=True)))


def export_plain(model: PreTrainedModel, inputs: Mapping[str, Tensor], path: Path, *, padding_side: str) -> None:
    """Write the graph of the plain pass. `inputs` are an example batch of two rows or more, of the names it takes.

    Where the head reads only the first token, and texts are padded on the right, the last layer runs for it alone.
    """
    model = unwrap(model)
    architecture_of(model)  # an unknown one is an error that says so
    check_size(model)
    view = view_of(model)
    classifier, narrow = model, view.narrows and padding_side == "right"
    if narrow:
        classifier = view.model

    def forward(encoded: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        running: AbstractContextManager[None] = intervene(PlainPass(view.layers - 1)) if narrow else nullcontext()
        with running:
            logits, read = forward_and_read(classifier, encoded, return_dict=True)
        if read is None:
            raise ModelError(f"{type(model).__name__} shows no representation, which an exported graph must give.")
        return logits.float(), read

    with in_mode(model, training=False):
        trace(graph_of(classifier, tuple(inputs), forward), inputs, path, batched(inputs, model))


def check_size(model: PreTrainedModel) -> None:
    """Raise where the weights do not fit in one file."""
    size = sum(parameter.nbytes for parameter in model.parameters())
    if size > LARGEST:
        raise ModelError(
            f"{type(model).__name__} has {size / 2**30:.1f} GB of weights; one ONNX file holds less than 2. Export a "
            "smaller model."
        )


def graph_of(model: nn.Module, names: Sequence[str], forward: Forward) -> nn.Module:
    """A module that calls a function of tensors with these names, and has the model's parameters."""
    return _Graph(model, names, forward)


def batched(inputs: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, dict[int, str]]:
    """The axes of inputs and outputs that may have any size."""
    axes = {0: "batch", 1: "choices", 2: "tokens"} if is_multiple_choice(model) else {0: "batch", 1: "tokens"}
    logits = {0: "batch", 1: "choices"} if is_multiple_choice(model) else {0: "batch"}
    return {**dict.fromkeys(inputs, axes), "logits": logits, "representation": {0: "batch"}}


def trace(graph: nn.Module, inputs: Mapping[str, Tensor], path: Path, axes: Mapping[str, Mapping[int, str]]) -> None:
    """Write the ONNX file of a module called with these inputs, in their order; `axes` may have any size."""
    try:
        import onnx  # noqa: F401 - the exporter needs it
    except ModuleNotFoundError as error:
        raise MissingDependency("onnx", "export") from error
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about values that tracing fixes; the check on texts covers them
        torch.onnx.export(
            graph.eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=list(OUTPUTS),
            dynamic_axes=dict(axes),
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
    kinds = list(QUANTISED)
    quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=kinds)
