"""Where stored predictions come from: the recipe that determines their numbers, and facts for the reader."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from uatlite.errors import StoreError
from uatlite.text.labels import Alignment

FORMAT = 1
"""The version of the layout on disk; a run of another version is not read."""


@dataclass(frozen=True)
class RunRecipe:
    """All that determines the numbers of a run. Runs of one recipe have the same logits; its hash is their key."""

    model: str
    """`model_hash` of the weights"""
    data: str
    """`Dataset.fingerprint` of ids, texts and labels"""
    tokens: str
    """`Tokens.fingerprint` of the tokenized and truncated texts"""
    task: str
    split: str
    perturbation: str | None
    method: Mapping[str, Any]
    """`Method.to_dict`"""
    seed: int | None
    """None for a method without randomness"""
    columns: tuple[tuple[int, ...], ...]
    """the model's columns that make up each class of the task"""
    uatlite: str
    """the version: another one may draw other masks for the same seed"""

    @property
    def key(self) -> str:
        """16 hex digits, the name of the run in the store."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Provenance:
    """A recipe, and facts for a reader of the numbers."""

    recipe: RunRecipe
    method: str
    """the method's canonical spelling"""
    passes: int
    model: str
    """the name that the checkpoint was loaded by"""
    source: str
    """where the rows came from, in words"""
    rows: int
    labels: tuple[str, ...]
    """of the data set: what the stored labels mean"""
    model_labels: tuple[str, ...]
    """what the columns of the logits mean"""
    classes: tuple[str, ...]
    """the task's classes that the model knows, in the order of `recipe.columns`"""
    alignment: str
    """how the model's columns became the task's classes, in words"""
    out_of_scope: int | None
    truncated_texts: int
    truncated_tokens: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """of uatlite, torch, transformers, numpy"""

    @property
    def set_name(self) -> str:
        """The rows in short: 'sst2/test', 'sst2+swap/test'."""
        return set_name(self.recipe.task, self.recipe.split, self.recipe.perturbation)

    def align(self) -> Alignment:
        """How probabilities of the model's classes become those of the task's."""
        return Alignment(self.recipe.columns, self.classes, self.alignment)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, text: str, place: str) -> "Provenance":
        """The inverse of `to_dict`, from its JSON text; `place` is named in errors."""
        try:
            values = json.loads(text)
            if values.pop("format") != FORMAT:
                raise StoreError(f"{place} is of another version of uatlite's store; evaluate into a new directory.")
            recipe = values.pop("recipe")
            columns = tuple(tuple(group) for group in recipe.pop("columns"))
            values |= {name: tuple(values[name]) for name in ("labels", "model_labels", "classes")}
            return cls(recipe=RunRecipe(**recipe, columns=columns), **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{place} is broken ({error!r}); delete its directory and run again.") from error


def set_name(task: str, split: str, perturbation: str | None = None) -> str:
    """'task/split', with the perturbation after the task."""
    return f"{task}+{perturbation}/{split}" if perturbation else f"{task}/{split}"
