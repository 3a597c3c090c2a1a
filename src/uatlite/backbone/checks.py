"""What a model and its input must be before anything runs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.backbone.architectures import ARCHITECTURES, Architecture
from uatlite.errors import InputError, NotAClassifier, UnknownArchitecture, nearest

CLASSIFIERS = ("ForSequenceClassification", "ForMultipleChoice")
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
"""What of a tokenizer's output goes into a model."""


def unwrap(model: PreTrainedModel) -> PreTrainedModel:
    """The module itself, out of the wrapper that `torch.compile` puts around it."""
    return getattr(model, "_orig_mod", model)


def check_classifier(model: PreTrainedModel) -> None:
    """Raise unless the model returns the logits of two or more exclusive classes."""
    names = [base.__name__ for base in type(model).__mro__]
    if not isinstance(model, nn.Module) or not any(name.endswith(CLASSIFIERS) for name in names):
        raise NotAClassifier(
            f"{type(model).__name__} is not a classifier; UAT-Lite needs a Hugging Face model with class logits. "
            "Load it with AutoModelForSequenceClassification or AutoModelForMultipleChoice."
        )
    config: Any = model.config
    problem = getattr(config, "problem_type", None)
    if problem not in (None, "single_label_classification") or (config.num_labels < 2 and not _chooses(model)):
        raise NotAClassifier(
            f"{type(model).__name__} has {config.num_labels} label(s) and problem_type={problem!r}; UAT-Lite needs "
            "two or more exclusive classes (problem_type None or 'single_label_classification')."
        )


def architecture_of(model: PreTrainedModel) -> Architecture:
    """The model's row in the architecture table."""
    kind = model.config.model_type
    if kind not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"model_type {kind!r} is not in the architecture table; it has {', '.join(ARCHITECTURES)}."
            f"{nearest(kind, ARCHITECTURES)} To add it, write one row in uatlite/backbone/architectures.py: "
            "CONTRIBUTING.md shows how."
        )
    return ARCHITECTURES[kind]


def check_encoded(
    encoded: Mapping[str, Tensor], model: PreTrainedModel, architecture: Architecture
) -> dict[str, Tensor]:
    """The model's inputs as tensors on its device, with an attention mask; raise where they cannot be used."""
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
    wanted = "(batch, choices, tokens)" if _chooses(model) else "(batch, tokens)"
    if ids.ndim != wanted.count(",") + 1 or ids.shape[-1] == 0:
        raise InputError(f"input_ids has shape {tuple(ids.shape)}; this model takes {wanted}, with a token or more.")
    _check_length(ids, model, architecture)
    device = next(model.parameters()).device
    inputs = {name: encoded[name].to(device) for name in MODEL_INPUTS if name in encoded}
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    if "position_ids" in inputs and inputs["position_ids"].numel() == ids.shape[-1]:  # one row for all texts
        inputs["position_ids"] = inputs["position_ids"].expand(ids.shape)
    for name, value in inputs.items():
        if value.shape != ids.shape:
            got, needed = tuple(value.shape), tuple(ids.shape)
            raise InputError(f"{name} has shape {got}; it must be that of input_ids, {needed}.")
    _check_tokens(inputs["attention_mask"])
    return inputs


def _chooses(model: PreTrainedModel) -> bool:
    return any(base.__name__.endswith("ForMultipleChoice") for base in type(model).__mro__)


def _check_tokens(attention_mask: Tensor) -> None:
    empty = (~attention_mask.bool().flatten(1).any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise InputError(
            f"text {empty[0]} of the batch has no tokens: its attention_mask is 0 everywhere. Leave it out, or "
            "tokenize it with special tokens."
        )


def _check_length(ids: Tensor, model: PreTrainedModel, architecture: Architecture) -> None:
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return
    limit = positions - architecture.reserved_positions
    if ids.shape[-1] > limit:
        raise InputError(
            f"the sequences have {ids.shape[-1]} tokens and this model takes at most {limit}; "
            f"call the tokenizer with truncation=True, max_length={limit}."
        )
