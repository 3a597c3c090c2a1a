"""The architecture table: where each model family drops, attends and classifies; and what a model can take.

To add an architecture, add a table to architectures.toml and its tiny configuration to `tests/conftest.py`; every
engine test then runs on it. Importing the table does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uatlite import codec
from uatlite.errors import InputError, ModelError, NotAClassifier, UnknownArchitecture, nearest
from uatlite.text.schema import read_tables
from uatlite.values import Kind

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Architecture:
    """Module paths of one family, as `named_modules` spells them. The defaults are BERT's."""

    base: str
    """The encoder, an attribute of the classifier."""
    embedding: str = "embeddings.dropout"
    """The module whose output is the embedding block's, relative to the base."""
    layers: str = "encoder.layer"
    """The list of layers, relative to the base; `*` stands for each group of a list of groups."""
    attention: str = "attention.self"
    """The module that computes self-attention, relative to a layer."""
    attention_rate: str = "dropout"
    """The attribute of `attention` with its own rate: a float, or a Dropout module."""
    attention_output: str | None = "attention.output.dropout"
    """The dropout after the attention's output projection, relative to a layer; None if there is none."""
    feed_forward: str = "output.dropout"
    """The dropout of the feed-forward output, relative to a layer."""
    head: tuple[str, ...] = ("dropout",)
    """Dropouts of the classification head, relative to the model; a model may lack some of them."""
    added: tuple[str, ...] = ()
    """Components without dropout in the model: their path names the module whose output the engine drops."""
    interface: bool = True
    """Whether attention runs through transformers' AttentionInterface."""
    value: str | None = None
    """Outside the interface: the value projection, relative to a layer."""
    key: str | None = None
    """Outside the interface: the key projection, where attention takes (hidden, mask, position terms); else None."""
    position: str | None = None
    """A dropout on relative-position embeddings shared by the whole batch, relative to a layer."""
    convolution: str | None = None
    """A dropout of a convolution beside the first layer, relative to the base; a checkpoint may lack it."""
    narrow: str | None = None
    """The module of the last layer from which on only the first token matters, relative to the layer.

    None where the head reads more than the first token of the last layer.
    """
    reads_last: bool = False
    """Whether the head reads the last real token, as in decoders; others read the first, or a pooler's output."""
    reserved_positions: int = 0
    """Position embeddings that no token can use: RoBERTa counts positions from padding_idx + 1."""


@cache
def architectures() -> Mapping[str, Architecture]:
    """model_type of a configuration -> row, as architectures.toml has them."""
    rows: dict[str, dict[str, object]] = {}
    for name, table in read_tables(Path(__file__).with_name("architectures.toml")).items():
        rows[name] = rows.get(table.pop("like", ""), {}) | table
    return {name: codec.load(Architecture, row, advice="mend architectures.toml.") for name, row in rows.items()}


MULTI_LABEL = "multi_label_classification"
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
"""The parts of a tokenizer's output that a model takes."""


@dataclass(frozen=True)
class _Head:
    """How transformers makes a classifier of one kind of answers, and the axes of what that takes and gives."""

    ending: str
    """how the names of its classes end"""
    fewest: int
    """labels that it has at least"""
    logits: tuple[str, ...] = ("batch", "classes")
    inputs: tuple[str, ...] = ("batch", "tokens")
    problem: str | None = None
    """`problem_type` of its configuration"""
    several: str | None = None
    """the name in `uatlite` of what runs it, where it gives several answers a text"""

    @property
    def auto(self) -> str:
        """The class of transformers that loads it."""
        return f"AutoModel{self.ending}"

    @property
    def named(self) -> bool:
        """Whether its classes have names; options of a question are positions."""
        return "classes" in self.logits


HEADS: Mapping[Kind, _Head] = {
    "one": _Head("ForSequenceClassification", fewest=2),
    "choice": _Head("ForMultipleChoice", fewest=0, logits=("batch", "choices"), inputs=("batch", "choices", "tokens")),
    "labels": _Head("ForSequenceClassification", fewest=1, problem=MULTI_LABEL, several="UncertaintyLabeler"),
    "entities": _Head(
        "ForTokenClassification", fewest=2, logits=("batch", "tokens", "classes"), several="UncertaintyTagger"
    ),
}


def unwrap(model: PreTrainedModel) -> PreTrainedModel:
    """The model inside the wrapper of `torch.compile`; other models as they are."""
    return getattr(model, "_orig_mod", model)


def kind_by_name(names: Sequence[str], problem: str | None) -> Kind | None:
    """What a classifier answers, by the names of its classes and its problem_type; None where it is no classifier."""
    kinds = [kind for kind, head in HEADS.items() if any(name.endswith(head.ending) for name in names)]
    return next((kind for kind in kinds if HEADS[kind].problem == problem), kinds[0] if kinds else None)


def answering(model: PreTrainedModel) -> Kind:
    """What a classifier answers."""
    return _kind_of(model) or "one"


def _kind_of(model: PreTrainedModel) -> Kind | None:
    model = unwrap(model)
    names = [base.__name__ for base in type(model).__mro__]
    return kind_by_name(names, getattr(getattr(model, "config", None), "problem_type", None))


def head_of(model: PreTrainedModel) -> _Head:
    """The row of `HEADS` for a classifier."""
    return HEADS[answering(model)]


def check_classifier(model: PreTrainedModel) -> None:
    """Raise unless the model returns the logits of classes: of one for each text or token, or of several labels."""
    from torch import nn

    kind = _kind_of(model)
    if not isinstance(model, nn.Module) or kind is None:
        raise NotAClassifier(
            f"{type(model).__name__} is not a classifier; UAT-Lite needs a Hugging Face model with class logits. "
            "Load it with AutoModelForSequenceClassification, AutoModelForTokenClassification or "
            "AutoModelForMultipleChoice."
        )
    if hasattr(model, "merge_and_unload"):
        raise ModelError(f"{type(model).__name__} is a model that PEFT has wrapped; give model.merge_and_unload().")
    config: Any = model.config
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or config.num_labels < HEADS[kind].fewest:
        raise NotAClassifier(
            f"{type(model).__name__} has {config.num_labels} label(s) and problem_type={problem!r}; UAT-Lite needs "
            "two or more exclusive classes (problem_type None or 'single_label_classification'), or labels that do "
            f"not exclude each other ({MULTI_LABEL!r})."
        )


def check_one_answer(model: PreTrainedModel, advice: str | None = None) -> None:
    """Raise unless the model gives one answer a text: a class, or an option. `advice` says why, and what to do."""
    kind = answering(model)
    if HEADS[kind].several is not None:
        raise ModelError(
            f"{type(unwrap(model)).__name__} gives several answers a text ({kind}), and this needs a model that gives "
            f"one. {advice or f'Use {HEADS[kind].several}.'}"
        )


def architecture_of(model: PreTrainedModel) -> Architecture:
    """The model's row in the architecture table."""
    kind = model.config.model_type
    if kind not in architectures():
        raise UnknownArchitecture(
            f"model_type {kind!r} is not in the architecture table; it has {', '.join(architectures())}."
            f"{nearest(kind, architectures())} To add it, write one table in uatlite/model/architectures.toml: "
            "CONTRIBUTING.md shows how."
        )
    return architectures()[kind]


def longest_input(model: PreTrainedModel) -> int | None:
    """The most tokens that a model has positions for; None if it has no limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    row = architectures().get(model.config.model_type)
    return None if positions is None else int(positions - (row.reserved_positions if row else 0))


def check_encoded(encoded: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    """The model's inputs as tensors on its device, with an attention mask; raise if they cannot be used."""
    from torch import Tensor, ones_like

    if not isinstance(encoded, Mapping) or "input_ids" not in encoded:
        keys = list(encoded) if isinstance(encoded, Mapping) else type(encoded).__name__
        raise InputError(f"encoded has no input_ids (it is {keys}); pass what the tokenizer returns.")
    for name, value in encoded.items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"encoded[{name!r}] is a {type(value).__name__}, not a tensor; "
                "call the tokenizer with return_tensors='pt' and padding=True."
            )
    ids = encoded["input_ids"]
    axes = head_of(model).inputs
    if ids.ndim != len(axes) or ids.shape[-1] == 0:
        wanted = ", ".join(axes)
        raise InputError(f"input_ids has shape {tuple(ids.shape)}; this model takes ({wanted}), with a token or more.")
    limit = longest_input(model)
    if limit is not None and ids.shape[-1] > limit:
        raise InputError(
            f"the sequences have {ids.shape[-1]} tokens and this model takes at most {limit}; "
            f"call the tokenizer with truncation=True, max_length={limit}."
        )
    device = next(model.parameters()).device
    inputs = {name: encoded[name].to(device) for name in MODEL_INPUTS if name in encoded}
    inputs.setdefault("attention_mask", ones_like(inputs["input_ids"]))
    if "position_ids" in inputs and inputs["position_ids"].numel() == ids.shape[-1]:  # one row for all texts
        inputs["position_ids"] = inputs["position_ids"].expand(ids.shape)
    for name, value in inputs.items():
        if value.shape != ids.shape:
            got, needed = tuple(value.shape), tuple(ids.shape)
            raise InputError(f"{name} has shape {got}; it must be that of input_ids, {needed}.")
    given = encoded.get("attention_mask", ids)  # where it is: most often on the CPU, so no device is waited for
    empty = [] if given is ids else (~given.bool().flatten(1).any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise InputError(
            f"text {empty[0]} of the batch has no tokens: its attention_mask is 0 everywhere. Leave it out, or "
            "tokenize it with special tokens."
        )
    return inputs
