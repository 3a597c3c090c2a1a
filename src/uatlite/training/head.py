"""A backbone with a new head for a task's labels: where fine-tuning starts."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from uatlite.backbone.embedded import backbone_directory
from uatlite.backbone.loading import load_tokenizer
from uatlite.backbone.quiet import quiet_transformers
from uatlite.data.schema import Kind
from uatlite.errors import ModelError


def with_new_head(
    backbone: str | Path, labels: tuple[str, ...], *, kind: Kind = "text", seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The backbone ('minilm', a directory or a hub id) with a head for these labels, and its tokenizer.

    The head is drawn by `seed`, and torch's generators are as before afterwards; one of another size is replaced.
    That the backbone has none is not reported: a new one is the purpose. The labels are written into the
    configuration, so that columns are later found by name.
    """
    source = backbone_directory(backbone)
    auto: Any = AutoModelForMultipleChoice if kind == "choice" else AutoModelForSequenceClassification
    try:
        config = AutoConfig.from_pretrained(source)
        if kind != "choice":  # there the classes are places among the options, and have no names
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: index for index, label in enumerate(labels)}
        with torch.random.fork_rng(), quiet_transformers():
            torch.manual_seed(seed)
            model = auto.from_pretrained(
                source, config=config, use_safetensors=True, dtype=torch.float32, ignore_mismatched_sizes=True
            )
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(
            f"{backbone} cannot be fine-tuned: {reason}. Give 'minilm', the directory of a saved model with "
            "safetensors weights, or a hub id."
        ) from error
    return model, load_tokenizer(source, config)
