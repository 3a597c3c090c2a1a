"""Contenders of an evaluation: a method, with or without a calibrator, as in 'uat:gate=k+ts'."""

from dataclasses import dataclass

from uatlite.errors import ConfigurationError, nearest
from uatlite.methods.method import Method
from uatlite.methods.registry import parse_method
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
