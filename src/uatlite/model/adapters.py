"""Adapters of the library PEFT, such as LoRA: read beside their base model, and merged into it.

adapter_config.json, adapter_model.safetensors    as PEFT writes them; the configuration names the base

A merged model is one of transformers, so everything runs on it as on any other. An adapter does not say how many labels
it has or what they are called: the head's weights say the first, and a config.json beside it both.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from uatlite.errors import MissingDependency, ModelError
from uatlite.text.files import file_beside

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Of the names of the base's weights in an adapter."""
_HEADS = ("classifier.out_proj.weight", "classifier.weight", "score.weight")
_ENDINGS = {"SEQ_CLS": "ForSequenceClassification", "TOKEN_CLS": "ForTokenClassification", "CAUSAL_LM": "ForCausalLM"}
"""A task of PEFT -> how the names of its classes of models end."""


@dataclass(frozen=True)
class Adapter:
    """What the files of an adapter say."""

    directory: Path
    base: str
    """the model that it was trained on"""
    ending: str | None
    """how the name of its class of models ends; None where it was trained for no named task"""
    saved: Mapping[str, int]
    """the weights of the base that it replaces as a whole, and the rows of each"""

    def adapt(self, config: Any) -> None:
        """Make the base's configuration that of the adapted model."""
        if self.ending is not None:
            config.architectures = [f"{config.model_type}{self.ending}"]
        labels = next((self.saved[key] for key in _HEADS if key in self.saved), config.num_labels)
        if labels != config.num_labels:
            config.num_labels = labels

    def merged(self, model: PreTrainedModel) -> PreTrainedModel:
        """The base model with the adapter in its weights."""
        try:
            from peft import PeftModel
        except ModuleNotFoundError as error:
            raise MissingDependency("peft", "peft") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about missing weights, which are checked
                result: PreTrainedModel = PeftModel.from_pretrained(model, self.directory).merge_and_unload()
        except (ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
            raise ModelError(
                f"the adapter in {self.directory} cannot be merged into {self.base} "
                f"({' '.join(str(error).split())[:200]}); give the base that it was trained on, base=... (--base). "
                "Adapters that add tokens to a prompt cannot be merged at all."
            ) from error
        return result


def read_adapter(name: str | Path, base: str | Path | None = None) -> Adapter | None:
    """The adapter in a directory or under a hub id, for this base or its own; None where there is none."""
    path = file_beside(name, _CONFIG)
    if path is None and base is None:
        return None
    weights = None if path is None else file_beside(name, _WEIGHTS)
    if path is None or weights is None:
        raise ModelError(
            f"{name} holds no {_CONFIG} with {_WEIGHTS}, so it is no adapter; save one with PEFT's save_pretrained, "
            "or leave the base away (--base)."
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        with safe_open(weights, framework="np") as file:
            saved = {key.removeprefix(_PREFIX): file.get_slice(key).get_shape()[0] for key in file.keys()}  # noqa: SIM118
    except (ValueError, SafetensorError) as error:
        raise ModelError(f"the adapter {name} is broken ({error!r}); copy it again.") from error
    trained_on = base or config.get("base_model_name_or_path")
    if trained_on is None:
        raise ModelError(f"the adapter {name} does not name its base; give it: base=... (--base DIR).")
    return Adapter(path.parent, str(trained_on), _ENDINGS.get(config.get("task_type")), saved)
