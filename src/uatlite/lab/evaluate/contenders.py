"""Contenders of an evaluation: a method, with or without a calibrator, as in 'uat:gate=k+ts'; and their models.

Most methods run on the plain model. A method with trained weights runs on the model that was trained for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uatlite.errors import ConfigurationError, ModelError, nearest
from uatlite.methods.method import Method
from uatlite.methods.registry import parse_method
from uatlite.model.load import Checkpoint
from uatlite.model.weights import attached
from uatlite.trust.auto import CALIBRATORS

NO_CALIBRATOR = "none"
# short name -> calibrator; printed names are the short ones
CALIBRATOR_ALIASES: dict[str, str] = {"ts": "temperature", "its": "input-temperature"}
_SHORT = {name: alias for alias, name in CALIBRATOR_ALIASES.items()}


@dataclass(frozen=True)
class Contender:
    """A method and the name of the calibrator that is applied to its mean logits."""

    method: Method
    calibrator: str = NO_CALIBRATOR

    def __post_init__(self) -> None:
        if CALIBRATORS[self.calibrator].uses_variance and not self.method.knows_variance:
            raise ConfigurationError(
                f"{self.name}: the calibrator {self.calibrator!r} needs the margin's variance over passes, and "
                f"{self.method.name} runs one pass. Use it with a method of two passes or more, or use 'ts'."
            )

    @property
    def name(self) -> str:
        """The canonical spelling, 'base' or 'uat:gate=k+ts'."""
        calibrator = _SHORT.get(self.calibrator, self.calibrator)
        return self.method.name if self.calibrator == NO_CALIBRATOR else f"{self.method.name}+{calibrator}"

    @property
    def calibrated(self) -> bool:
        """Whether it has to be fitted on calibration rows."""
        return self.calibrator != NO_CALIBRATOR


def parse_contender(text: str) -> Contender:
    """'uat', 'uat+ts', 'uat:gate=k,penalty=1.0+platt', or a calibrator alone, which means one on the base method."""
    alone = _calibrator(text)
    if alone is not None:
        return Contender(parse_method("base"), alone)
    method, plus, last = text.rpartition("+")
    if not plus or _is_setting(method, last):
        return Contender(parse_method(text))
    calibrator = _calibrator(last)
    if calibrator is None:
        allowed = [*CALIBRATOR_ALIASES, *CALIBRATORS]
        raise ConfigurationError(
            f"There is no calibrator {last.strip()!r} (in {text!r}); there are {', '.join(allowed)}."
            f"{nearest(last.strip(), allowed)}"
        )
    return Contender(parse_method(method), calibrator)


def parse_contenders(text: str) -> tuple[Contender, ...]:
    """Contenders separated by commas. A part with '=' but no ':' is a setting of the contender before it."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and "=" in part and ":" not in part:
            parts[-1] += f",{part}"
        elif part.strip():
            parts.append(part.strip())
    contenders = tuple(dict.fromkeys(parse_contender(part) for part in parts))
    if not contenders:
        raise ConfigurationError(f"methods={text!r} names no method; give some, as in 'base,ts,uat,uat+ts'.")
    return contenders


def _calibrator(text: str) -> str | None:
    name = CALIBRATOR_ALIASES.get(text.strip(), text.strip())
    return name if name in CALIBRATORS else None


def _is_setting(before: str, last: str) -> bool:
    """Whether the '+' belongs to a setting's value, as in 'uat:uncertainty=cv+ln'."""
    return _calibrator(last) is None and before.rpartition(",")[2].rpartition(":")[2].strip().startswith("uncertainty")


@dataclass(frozen=True, eq=False)
class Models:
    """Which model each method runs on."""

    plain: Checkpoint
    """of all methods without trained weights"""
    trained: Mapping[str, Checkpoint] = field(default_factory=dict)
    """method -> the model that was trained for it"""

    @classmethod
    def of(cls, checkpoints: Sequence[Checkpoint]) -> "Models":
        """The plain model is the one trained for no method; without such a model, the first one."""
        trained: dict[str, Checkpoint] = {}
        plain: list[Checkpoint] = []
        for checkpoint in checkpoints:
            weights = attached(checkpoint.model)
            if weights is None:
                plain.append(checkpoint)
            elif weights.method in trained:
                raise ConfigurationError(
                    f"{trained[weights.method].name} and {checkpoint.name} are both trained for {weights.method}; "
                    "evaluate one of them at a time."
                )
            else:
                trained[weights.method] = checkpoint
        if len(plain) > 1:
            names = ", ".join(checkpoint.name for checkpoint in plain)
            raise ConfigurationError(
                f"{names} are all plain models, and every method would run on the first. Give one of them, and beside "
                "it models that were trained for a method; or evaluate each by itself."
            )
        return cls((plain or list(checkpoints))[0], trained)

    def of_method(self, method: Method) -> Checkpoint:
        """The model that a method runs on; a ModelError where the method needs a trained one that is not given."""
        if not method.trained:
            return self.plain
        key = str(method.to_dict()["method"])
        if key not in self.trained:
            there = f" (those given are trained for {', '.join(self.trained)})" if self.trained else ""
            raise ModelError(
                f"{method.name} needs a model that was trained for it, and none was given{there}. Train one, and name "
                f"its directory beside {self.plain.name}: uatlite train --method {key} --task TASK -o DIR."
            )
        return self.trained[key]
