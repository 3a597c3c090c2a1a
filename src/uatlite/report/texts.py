"""The words behind stored ids. The store keeps no texts; those of a task are loaded again, by its name and split."""

from pathlib import Path

from uatlite.data.loading import load
from uatlite.data.tasks import TASKS
from uatlite.errors import DataError, MissingDependency
from uatlite.experiments.provenance import Provenance
from uatlite.values import Dataset, Example, strings


def examples_of(provenance: Provenance, data_dir: str | Path | None = None) -> dict[str, Example]:
    """The examples of a stored run by id; empty where the task is the user's own or its data are not here."""
    recipe = provenance.recipe
    if recipe.task not in TASKS or recipe.perturbation is not None:
        return {}
    try:
        found: Dataset = load(recipe.task, recipe.split, data_dir)
    except (DataError, MissingDependency):
        return {}
    return {example.id: example for example in found.examples}


def as_line(example: Example) -> str:
    """A text in one piece; the parts of a pair or a question are put behind one another."""
    return " ⏵ ".join(" ".join(part.split()) for part in strings(example.text))
