"""The plain pass of a classifier as an ONNX graph, with any batch size and length; quantised where asked for.

The graph gives the logits (batch, classes) and the representation of each text (batch, units) of one pass without
dropout: all that `base`, a calibrated `distilled`, scope and shift read. Those of a token classifier are of each token,
(batch, tokens, classes) and (batch, tokens, units).
"""

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import MissingDependency, ModelError
from uatlite.model.architectures import architecture_of, head_of, unwrap
from uatlite.model.intervention import intervene
from uatlite.model.plain import PlainPass, forward_and_read, in_mode
from uatlite.model.view import view_of

OPSET = 18
QUANTISED = ("MatMul", "Gather")
"""Operators whose weights become int8: products and embeddings. Activations are quantised as they come."""

LARGEST = 2 * 10**9
"""Bytes of weights; an ONNX file is at most 2 GiB."""


class PlainGraph(nn.Module):
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
        with nullcontext() if self._narrow_layer is None else intervene(PlainPass(self._narrow_layer)):
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
    _check_size(model)
    head = head_of(model)
    axes, answers = dict(enumerate(head.inputs)), {i: axis for i, axis in enumerate(head.logits) if axis != "classes"}
    rows = {i: axis for i, axis in answers.items() if axis != "choices"}
    graph = PlainGraph(model, tuple(inputs), padding_side=padding_side)
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


def _check_size(model: PreTrainedModel) -> None:
    """Raise where the weights do not fit in one file."""
    size = sum(parameter.nbytes for parameter in model.parameters())
    if size > LARGEST:
        raise ModelError(
            f"{type(model).__name__} has {size / 2**30:.1f} GB of weights; one ONNX file holds less than 2. Export a "
            "smaller model."
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
