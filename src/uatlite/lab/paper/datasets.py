"""The rows that a reproduction trains on, calibrates on and tests on.

Where a data directory has no training rows of a task (many copies of SQuAD 2.0 and MedQA lack them), its calibration
rows are divided: most train, the rest calibrate. The test rows are the same either way, and the report says which.
"""

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from uatlite.errors import DataError
from uatlite.lab.evaluate.cells import draw
from uatlite.lab.evaluate.plan import CALIBRATION, TEST, parse_set
from uatlite.lab.evaluate.scope import REFERENCE, REFERENCE_ROWS
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.text.schema import Task, find_task
from uatlite.text.tasks import find_rows, load, take_share
from uatlite.values import Dataset

TRAINING_SHARE = 70
"""Per cent of the calibration rows that train where there are no training rows."""
LARGER = "test-original"
"""A labelled test set that some tasks have besides the paper's, which is half of a dev set."""


@dataclass(frozen=True)
class TaskData:
    """The rows of one task, read when first used."""

    task: Task
    settings: ReproductionSettings

    @cached_property
    def divided(self) -> tuple[Dataset, Dataset] | None:
        """The calibration rows as (training, calibration); None where the task has training rows of its own."""
        try:
            find_rows(self.task, "train", self.settings.data_dir)
        except DataError:
            rows = load(self.task, CALIBRATION, self.settings.data_dir)
            return _share(rows, self.task, (0, TRAINING_SHARE)), _share(rows, self.task, (TRAINING_SHARE, 100))
        return None

    @cached_property
    def train(self) -> Dataset:
        limit = self.settings.train_limit
        if self.divided is None:
            return load(self.task, "train", self.settings.data_dir, limit=limit)
        return draw(self.divided[0], limit)

    @cached_property
    def calibration(self) -> Dataset:
        return self.test(CALIBRATION) if self.divided is None else draw(self.divided[1], self.settings.limit)

    def test(self, split: str = TEST) -> Dataset:
        """The rows of a split; in place of test rows that are too few for the limit, those of a larger labelled set."""
        rows = load(self.task, split, self.settings.data_dir, limit=self.settings.limit)
        if split == TEST and LARGER in self.task.splits and len(rows) < (self.settings.limit or 0):
            with suppress(DataError):  # it is in files only, and not everyone has them
                return load(self.task, LARGER, self.settings.data_dir, limit=self.settings.limit)
        return rows

    @property
    def note(self) -> str:
        """Where the training rows came from, in words."""
        divided = "" if self.divided is None else (
            f" ({self.task.name} has no training rows here: {TRAINING_SHARE} % of its calibration rows train, the "
            "others calibrate; the test rows are untouched)"
        )  # fmt: skip
        limit = self.settings.train_limit
        fewer = f", fewer than the {limit:,} asked for" if limit is not None and len(self.train) < limit else ""
        return f"{self.task.name}: trained on {len(self.train):,} rows of {self.train.source}{divided}{fewer}"


class Datasets:
    """The rows of every task, each set read once."""

    def __init__(self, settings: ReproductionSettings) -> None:
        self._settings = settings
        self._tasks: dict[str, TaskData] = {}
        self._sets: dict[str, Dataset] = {}

    def task(self, name: str) -> TaskData:
        """All rows of a task."""
        if name not in self._tasks:
            self._tasks[name] = TaskData(find_task(name), self._settings)
        return self._tasks[name]

    def find(self, name: str) -> Dataset:
        """The set called 'mnli', 'mnli/test' or 'mnli/calibration'; 'mnli/reference' says what is in scope."""
        if name not in self._sets and name.endswith(f"/{REFERENCE}"):
            self._sets[name] = draw(self.task(name.partition("/")[0]).train.in_scope(), REFERENCE_ROWS)
        if name not in self._sets:
            choice = parse_set(name)
            task = self.task(choice.task.name)
            self._sets[name] = task.calibration if choice.split == CALIBRATION else task.test(choice.split)
        return self._sets[name]


def _share(dataset: Dataset, task: Task, share: tuple[int, int]) -> Dataset:
    """The rows between two percentages; rows of one group, such as an article, stay together."""
    column = task.layout.group
    groups: list[Hashable] | None = None if column is None else [str(one.meta[column]) for one in dataset.examples]
    examples = take_share(dataset.examples, share, groups)
    return replace(dataset, examples=tuple(examples), source=f"{dataset.source}, {share[0]}–{share[1]} % of those")
