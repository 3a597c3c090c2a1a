"""The rows that are trained on, calibrated on and tested on.

Where a data directory has no training rows of a task (SQuAD 2.0 and MedQA publish them in files that are not in every
copy), the calibration rows are divided: most of them train, the others calibrate. The test rows are the same either
way, and the output says which it was.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

from uatlite.data.loading import load
from uatlite.data.schema import Task
from uatlite.data.sources import find_rows
from uatlite.data.splits import sample, take_share
from uatlite.data.tasks import find_task
from uatlite.errors import DataError
from uatlite.experiments.plan import CALIBRATION, TEST, parse_set
from uatlite.reproduce.settings import Settings
from uatlite.values import Dataset

TRAINING_SHARE = 70
"""Hundredths of the calibration rows that train where there are no training rows."""


@dataclass(frozen=True)
class Supply:
    """The rows of one task under some settings."""

    task: Task
    settings: Settings

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

    def __init__(self, settings: Settings) -> None:
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
