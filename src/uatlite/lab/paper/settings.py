"""The settings of a reproduction. The defaults are the paper's: BERT-base from the hub, its recipe, five seeds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.train.recipe import CHANGES, RECIPES, Recipe, recipe_for
from uatlite.metrics.intervals import RESAMPLES
from uatlite.text.schema import catalogue

BACKBONE = "bert-base-uncased"
TRAINING_ROWS = 10
"""With a row limit, training uses at most this many times as many rows as are evaluated."""


@dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """Backbones, data, and how many rows, seeds and resamples."""

    backbone: str | None = None
    """the backbone of every table; the paper's by default"""
    others: tuple[str, ...] = ()
    """replace, together with `backbone`, the backbones that `backbones` and `scaling` compare"""
    data_dir: Path | None = None
    seeds: int = 5
    trained_seeds: int | None = None
    """at most this many seeds of methods with a training of their own, such as SNGP; as many as `seeds` by default"""
    limit: int | None = None
    """rows drawn from each evaluated set"""
    train_limit: int | None = None
    """rows drawn to train on"""
    recipe: Recipe = RECIPES["paper"]
    by_task: Mapping[str, Recipe] = field(default_factory=dict)
    """task -> its recipe, where that is another one"""
    resamples: int = RESAMPLES
    tasks: tuple[str, ...] = ()
    """only models of these tasks; cells of others stay empty. All tasks by default"""
    learned_only: bool = False
    """stop at the plain model of a task that it has not learned; cells that need more stay empty"""

    def __post_init__(self) -> None:
        for name in ("seeds", "trained_seeds", "limit", "train_limit", "resamples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")
        for task in self.tasks:
            check_choice("task", task, catalogue())

    @classmethod
    def of(
        cls,
        *,
        limit: int | None = None,
        train_limit: int | None = None,
        recipe: str | None = None,
        precision: str | None = None,
        **others: Any,
    ) -> "ReproductionSettings":
        """With `limit`, the defaults change: ten times as many training rows, and the recipe for few rows."""
        name = recipe or ("paper" if limit is None else "few-rows")
        train_limit = train_limit or (None if limit is None else TRAINING_ROWS * limit)
        changes: dict[str, Any] = {} if precision is None else {"precision": precision}
        by_task = {task: replace(recipe_for(name, task), **changes) for task in CHANGES.get(name, {})}
        usual = replace(recipe_for(name), **changes)
        return cls(limit=limit, train_limit=train_limit, recipe=usual, by_task=by_task, **others)

    def recipe_of(self, task: str) -> Recipe:
        """How models of a task are trained."""
        return self.by_task.get(task, self.recipe)

    def absolute(self) -> "ReproductionSettings":
        """The same settings for a process with another working directory."""

        def absolute(backbone: str) -> str:
            return str(Path(backbone).absolute()) if Path(backbone).is_dir() else backbone

        return replace(
            self,
            backbone=None if self.backbone is None else absolute(self.backbone),
            others=tuple(map(absolute, self.others)),
            data_dir=None if self.data_dir is None else self.data_dir.absolute(),
        )

    @property
    def substitutes(self) -> tuple[str, ...]:
        """The backbones given in place of the paper's, that of every table first unless `others` has a place for it.

        Empty where the paper's own are run.
        """
        if self.backbone is None:
            return ()
        return self.others if self.backbone in self.others else (self.backbone, *self.others)

    def backbone_of(self, name: str | None) -> str:
        """The backbone that a cell names, or else the one of every table."""
        return name or self.backbone or BACKBONE

    def describe(self, trained: Collection[str]) -> list[str]:
        """The settings in words, for the head of the report; `trained` are the tasks with models on it."""
        rows = "all rows of each set" if self.limit is None else f"at most {self.limit:,} rows of each set"
        training = "all training rows" if self.train_limit is None else f"at most {self.train_limit:,} training rows"
        backbone = self.backbone_of(None)
        usual = self.recipe.to_dict()
        recipe = ", ".join(f"{name} {value}" for name, value in usual.items() if value is not None)
        fewer = "" if self.trained_seeds is None else f", {self.trained_seeds} of methods that are trained differently"
        seeds = "one seed" if self.seeds == 1 else (
            f"{self.seeds} seeds, each with its own fine-tuning and masks; one seed where the paper's table has one"
        )  # fmt: skip
        own = {task: one for task, one in self.by_task.items() if task in trained}
        others = "".join(f"; {task}: {_changes(one.to_dict(), usual)}" for task, one in own.items())
        return [
            f"Backbone {Path(backbone).name if Path(backbone).is_dir() else backbone}; {rows}, {training}; "
            f"{seeds}{fewer}.",
            f"Recipe: {recipe}{others}.",
            f"Intervals are 95 %, from {self.resamples:,} resamples of the rows of a set and of the seeds; two methods "
            "on the same rows are compared on the same resamples. With one seed they cover the choice of rows only.",
        ]


def _changes(recipe: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Where a recipe differs from the usual one: 'epochs 1, batch_size 64'."""
    return ", ".join(f"{name} {value}" for name, value in recipe.items() if value != usual[name])
