"""What a reproduction runs with. The defaults are the paper's: BERT-base from the hub, its recipe, five seeds.

The rows that are trained on, calibrated on and tested on.

Where a data directory has no training rows of a task (SQuAD 2.0 and MedQA publish them in files that are not in every
copy), the calibration rows are divided: most of them train, the others calibrate. The test rows are the same either
way, and the output says which it was.

Which rows a cell is about: all of a set, or those that a condition names.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from uatlite.errors import ConfigurationError, DataError, check_choice
from uatlite.lab.evaluate.plan import CALIBRATION, TEST, parse_set
from uatlite.lab.train.recipe import RECIPES, Recipe
from uatlite.text.catalogue import find_task
from uatlite.text.perturb import buckets_of
from uatlite.text.schema import Task
from uatlite.text.tasks import find_rows, load, sample, take_share
from uatlite.values import Dataset, Example

BACKBONE = "bert-base-uncased"
TRAINING_ROWS = 10
"""With a limit, training sees at most so many times as many rows as are evaluated."""
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """How much of everything."""

    backbone: str | None = None
    """of every table; the paper's without it"""
    others: tuple[str, ...] = ()
    """stand in, with the backbone, for those that `backbones` and `scaling` compare"""
    data_dir: Path | None = None
    seeds: int = 5
    limit: int | None = None
    """rows drawn of each set that is evaluated"""
    train_limit: int | None = None
    """rows drawn to train on"""
    recipe: Recipe = RECIPES["paper"]
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        for name in ("seeds", "limit", "train_limit", "resamples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")

    @classmethod
    def of(
        cls,
        *,
        backbone: str | None = None,
        others: tuple[str, ...] = (),
        data_dir: Path | None = None,
        seeds: int = 5,
        limit: int | None = None,
        train_limit: int | None = None,
        recipe: str | None = None,
        resamples: int = RESAMPLES,
    ) -> "ReproductionSettings":
        """With a limit, the training rows are limited too and the recipe is the one for few rows, unless given."""
        name = recipe or ("paper" if limit is None else "few-rows")
        if name not in RECIPES:
            raise ConfigurationError(f"recipe={name!r} is not one of: {', '.join(RECIPES)}.")
        return cls(
            backbone=backbone,
            others=others,
            data_dir=data_dir,
            seeds=seeds,
            limit=limit,
            train_limit=train_limit or (None if limit is None else TRAINING_ROWS * limit),
            recipe=RECIPES[name],
            resamples=resamples,
        )

    def anywhere(self) -> "ReproductionSettings":
        """The same for a process with another working directory."""

        def absolute(backbone: str) -> str:
            return str(Path(backbone).absolute()) if Path(backbone).is_dir() else backbone

        return replace(
            self,
            backbone=None if self.backbone is None else absolute(self.backbone),
            others=tuple(map(absolute, self.others)),
            data_dir=None if self.data_dir is None else self.data_dir.absolute(),
        )

    @property
    def standing_in(self) -> tuple[str, ...]:
        """The backbones that were given, in place of the paper's; none where its own are to be run."""
        return () if self.backbone is None else (self.backbone, *self.others)

    def chosen(self, backbone: str | None) -> str:
        """The backbone that a cell names, or that of every table."""
        return backbone or self.backbone or BACKBONE

    def describe(self) -> list[str]:
        """What a reader of the numbers must know."""
        rows = "all rows of each set" if self.limit is None else f"at most {self.limit:,} rows of each set"
        trained = "all training rows" if self.train_limit is None else f"at most {self.train_limit:,} training rows"
        backbone = self.chosen(None)
        recipe = ", ".join(f"{name} {value}" for name, value in self.recipe.to_dict().items() if value is not None)
        return [
            f"Backbone {Path(backbone).name if Path(backbone).is_dir() else backbone}; {rows}, {trained}; "
            f"{self.seeds} seeds, each a fine-tuning and masks of its own, where the paper's table is not of one seed.",
            f"Recipe: {recipe}.",
            f"Intervals are 95 %, from {self.resamples:,} resamples of the rows of a set; two methods on the same "
            "rows are compared on the same resamples. They say what other rows would change, not what other "
            "fine-tunings would.",
        ]


TRAINING_SHARE = 70
"""Hundredths of the calibration rows that train where there are no training rows."""


@dataclass(frozen=True)
class Supply:
    """The rows of one task under some settings."""

    task: Task
    settings: ReproductionSettings

    @cached_property
    def divided(self) -> tuple[Dataset, Dataset] | None:
        """Calibration rows as (training, calibration), where the task has no training rows of its own."""
        try:
            find_rows(self.task, "train", self.settings.data_dir)
        except DataError:
            whole = load(self.task, CALIBRATION, self.settings.data_dir)
            return _part(whole, self.task, (0, TRAINING_SHARE)), _part(whole, self.task, (TRAINING_SHARE, 100))
        return None

    @cached_property
    def train(self) -> Dataset:
        limit = self.settings.train_limit
        if self.divided is None:
            return load(self.task, "train", self.settings.data_dir, limit=limit)
        return _drawn(self.divided[0], limit)

    @cached_property
    def calibration(self) -> Dataset:
        if self.divided is None:
            return load(self.task, CALIBRATION, self.settings.data_dir, limit=self.settings.limit)
        return _drawn(self.divided[1], self.settings.limit)

    def test(self, split: str = TEST) -> Dataset:
        return load(self.task, split, self.settings.data_dir, limit=self.settings.limit)

    @property
    def note(self) -> str:
        """Where the training rows came from, in words."""
        divided = "" if self.divided is None else (
            f" ({self.task.name} has no training rows here: {TRAINING_SHARE} % of its calibration rows train, the "
            "others calibrate; the test rows are untouched)"
        )  # fmt: skip
        return f"{self.task.name}: trained on {len(self.train):,} rows of {self.train.source}{divided}"


class Supplies:
    """Every task's rows, read once."""

    def __init__(self, settings: ReproductionSettings) -> None:
        self._settings = settings
        self._known: dict[str, Supply] = {}
        self._sets: dict[str, Dataset] = {}

    def of(self, task: str) -> Supply:
        if task not in self._known:
            self._known[task] = Supply(find_task(task), self._settings)
        return self._known[task]

    def at(self, name: str) -> Dataset:
        """The set that is called 'mnli', 'mnli/test' or 'mnli/calibration'."""
        if name not in self._sets:
            choice = parse_set(name)
            supply = self.of(choice.task.name)
            self._sets[name] = supply.calibration if choice.split == CALIBRATION else supply.test(choice.split)
        return self._sets[name]


def _part(whole: Dataset, task: Task, share: tuple[int, int]) -> Dataset:
    column = task.layout.group
    groups: list[Hashable] | None = None if column is None else [str(one.meta[column]) for one in whole.examples]
    chosen = take_share(whole.examples, share, groups)
    return replace(whole, examples=tuple(chosen), source=f"{whole.source}, {share[0]}–{share[1]} % of those")


def _drawn(dataset: Dataset, limit: int | None) -> Dataset:
    return replace(dataset, examples=tuple(sample(dataset.examples, limit)))


AND = "&"


def _bucket(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return value in buckets_of(example.text)


def _label(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return example.label is not None and labels[example.label] == value


def _heuristic(example: Example, value: str, labels: tuple[str, ...]) -> bool:
    return example.meta.get("heuristic") == value


CONDITIONS: dict[str, Callable[[Example, str, tuple[str, ...]], bool]] = {
    "bucket": _bucket,
    "label": _label,
    "heuristic": _heuristic,
}


def chosen(dataset: Dataset, subset: str | None, rows: int | None) -> frozenset[str]:
    """The ids of the rows that meet every condition of 'label=no&bucket=hedges'; then at most so many of them."""
    examples = list(dataset.examples)
    for condition in (subset or "").split(AND) if subset else ():
        name, equals, value = condition.partition("=")
        if not equals:
            raise ConfigurationError(f"{condition!r} in {subset!r} is no condition; as in 'bucket=negation'.")
        check_choice("condition", name, CONDITIONS)
        examples = [one for one in examples if CONDITIONS[name](one, value, dataset.labels)]
    return frozenset(example.id for example in sample(examples, rows))
