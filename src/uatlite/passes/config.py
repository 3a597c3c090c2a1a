"""The settings of a stochastic run, and settings as spelt on a command line: 'gate=k,penalty=1.0,embedding=own'.

`UATConfig` and `DropoutRates` are frozen values that serialise to JSON and back. `change`, `differences` and
`spelling` read and write the settings of these and of any other frozen dataclass.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from uatlite.errors import ConfigurationError, check_choice, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


GATES = ("none", "q", "k", "qk", "v", "qkv")
FORMS = ("exp", "linear", "reciprocal", "additive")
STATISTICS = ("mean-std", "rms-std", "median-std", "cov-trace", "cv", "norm-cv")
UNCERTAINTIES = (*STATISTICS, *(f"{name}+ln" for name in STATISTICS))
ESTIMATES = ("lagged", "closed-form", "layerwise")
MASKS = ("independent", "stratified")
COMPONENTS = ("embedding", "attention", "feed_forward", "classifier")

# Passes of stratified masks whose mean logits are as precise as those of ten independent passes, measured on real
# weights and texts: docs/reference/engine.md, "Stratified masks".
FAST_SAMPLES = 5

OWN, NONE = "own", "none"  # how None is spelt: for a rate, which is then the checkpoint's own, and for other settings
EVERY_RATE = "rate"  # sets the rates of all components
RATES = (EVERY_RATE, *COMPONENTS)


@dataclass(frozen=True)
class DropoutRates:
    """The drop probability of each component; `None` keeps the checkpoint's own rate."""

    embedding: float | None = 0.1
    attention: float | None = 0.2
    feed_forward: float | None = 0.3
    classifier: float | None = None

    def __post_init__(self) -> None:
        for name in COMPONENTS:
            rate = getattr(self, name)
            if rate is None:
                continue
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
                raise ConfigurationError(
                    f"DropoutRates({name}={rate!r}): a rate is a number in [0, 1), "
                    "or None to keep the checkpoint's own."
                )

    @classmethod
    def uniform(cls, rate: float) -> "DropoutRates":
        """The same rate at every site: plain MC dropout."""
        return cls(rate, rate, rate, rate)

    @classmethod
    def none(cls) -> "DropoutRates":
        """No dropout anywhere."""
        return cls.uniform(0.0)

    @classmethod
    def own(cls) -> "DropoutRates":
        """The rates that the checkpoint was trained with."""
        return cls(None, None, None, None)

    def of(self, component: str, own: float) -> float:
        """The rate at a site of `component` whose own rate is `own`."""
        rate = getattr(self, component)
        return own if rate is None else float(rate)

    @property
    def all_zero(self) -> bool:
        """Whether dropout is switched off on purpose at every component."""
        return all(getattr(self, name) == 0 for name in COMPONENTS)


@dataclass(frozen=True)
class UATConfig:
    """The configuration of UAT-Lite. The defaults are the paper's; `UATConfig.fast()` is ours."""

    samples: int = 10
    penalty: float = 0.5
    gate: str = "q"
    form: str = "exp"
    uncertainty: str = "mean-std"
    estimate: str = "lagged"
    rates: DropoutRates = field(default_factory=DropoutRates)
    masks: str = "independent"
    seed: int = 0
    per_input: bool = False

    def __post_init__(self) -> None:
        check_choice("gate", self.gate, GATES)
        check_choice("form", self.form, FORMS)
        check_choice("uncertainty", self.uncertainty, UNCERTAINTIES)
        check_choice("estimate", self.estimate, ESTIMATES)
        check_choice("masks", self.masks, MASKS)
        _check("samples", self.samples, int, lambda v: v >= 1, "a whole number of passes, 1 or more")
        _check("seed", self.seed, int, lambda v: 0 <= v < 2**64, "a whole number in [0, 2**64)")
        _check("penalty", self.penalty, int | float, lambda v: 0 <= v < float("inf"), "a finite number >= 0")
        _check("rates", self.rates, DropoutRates, lambda v: True, "a DropoutRates")
        if not isinstance(self.per_input, bool):
            raise ConfigurationError(f"per_input={self.per_input!r} is not True or False.")
        self._check_modulation()

    def _check_modulation(self) -> None:
        if self.gate == "none":
            return
        if self.estimate == "closed-form" and self.uncertainty.endswith("+ln"):
            raise ConfigurationError(
                f"uncertainty={self.uncertainty!r} has no closed form (LayerNorm mixes the units); "
                "use estimate='lagged' or 'layerwise', or drop the '+ln'."
            )
        if self.rates.all_zero:
            raise ConfigurationError(
                f"nothing samples: every rate is 0, so token uncertainty is 0 and gate={self.gate!r} does "
                "nothing. Set a rate, or gate='none' for the plain deterministic model."
            )
        if self.rates.embedding == 0 and self.estimate != "layerwise":
            raise ConfigurationError(
                f"gate={self.gate!r} needs token uncertainty, and rates.embedding=0 makes it 0 everywhere. "
                "Set rates.embedding above 0, or estimate='layerwise', or gate='none'."
            )

    @classmethod
    def fast(cls, **changes: Any) -> "UATConfig":
        """Closed-form uncertainty and stratified masks: the precision of ten independent passes in fewer."""
        return replace(cls(samples=FAST_SAMPLES, estimate="closed-form", masks="stratified"), **changes)

    @property
    def modulates(self) -> bool:
        """Whether attention is modulated at all."""
        return self.gate != "none" and self.penalty > 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "UATConfig":
        """The inverse of `to_dict`; missing settings take their defaults, unknown ones raise."""
        _check_names(cls, values)
        rates = values.get("rates")
        if isinstance(rates, Mapping):
            _check_names(DropoutRates, rates)
            values = {**values, "rates": DropoutRates(**rates)}
        return cls(**values)

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "UATConfig":
        """The inverse of `to_json`."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"this is not JSON ({error}): {text[:80]!r}") from error
        if not isinstance(values, dict):
            raise ConfigurationError(f"a configuration is a JSON object, not {text[:80]!r}")
        return cls.from_dict(values)


def _check(name: str, value: object, kind: Any, allowed: Callable[[Any], bool], what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not allowed(value):
        raise ConfigurationError(f"{name}={value!r} is not {what}.")


def _check_names(cls: type, values: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(cls)]
    for name in values:
        if name not in known:
            hint = nearest(name, known)
            raise ConfigurationError(f"{cls.__name__} has no setting {name!r}; it has {', '.join(known)}.{hint}")


SETTINGS = (*(f.name for f in fields(UATConfig) if f.name not in ("rates", "seed")), *RATES)
"""The settings of a `UATConfig` on a command line."""

Value = TypeVar("Value", bound="DataclassInstance")


def settings_of(value: "DataclassInstance") -> dict[str, Any]:
    """The settings of a frozen dataclass by name: all fields but the seed, and rates by component."""
    settings = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in ("rates", "seed")}
    return settings | asdict(value.rates) if isinstance(value, UATConfig) else settings


def differences(value: "DataclassInstance", standard: "DataclassInstance | None") -> list[str]:
    """The settings that differ from the standard value, spelt as in ['gate=k', 'rate=0.1']; without one, all."""
    settings = settings_of(value)
    usual = {} if standard is None else settings_of(standard)
    differs = {name: own for name, own in settings.items() if name not in usual or own != usual[name]}
    if differs.keys() >= set(COMPONENTS) and len({differs[name] for name in COMPONENTS}) == 1:
        (differs[EVERY_RATE],) = {differs.pop(name) for name in COMPONENTS}
    return [f"{name}={_spelt(name, own)}" for name, own in differs.items()]


def spelling(key: str, settings: Collection[str]) -> str:
    """A name with its settings, as in 'uat:gate=k,penalty=1.0'; the name alone without any."""
    return f"{key}:{','.join(settings)}" if settings else key


def change(value: Value, settings: Mapping[str, str], what: str, allowed: Collection[str] | None = None) -> Value:
    """A frozen dataclass with some settings replaced, given as spelt; `what` names its owner in errors.

    `allowed` restricts the settings to those that have an effect.
    """
    changed, rest = change_known(value, settings, allowed)
    if rest:
        setting = next(iter(rest))
        allowed = _names(value) if allowed is None else allowed
        if setting == "seed":
            raise ConfigurationError(
                f"{what}: the seed is not a setting of a method; it is given beside it (--seeds, or seeded(seed))."
            )
        if not allowed:
            raise ConfigurationError(f"{what} has no settings; drop {setting!r}.")
        hint = nearest(setting, allowed)
        raise ConfigurationError(f"{what} has no setting {setting!r}; it has {', '.join(allowed)}.{hint}")
    return changed


def change_known(
    value: Value, settings: Mapping[str, str], allowed: Collection[str] | None = None
) -> tuple[Value, dict[str, str]]:
    """`change` by the settings that the value has; and the other settings."""
    allowed = _names(value) if allowed is None else allowed
    hints = {**get_type_hints(type(value)), **dict.fromkeys(RATES, float | None)}
    changes = {name: _parsed(name, text, hints[name]) for name, text in settings.items() if name in allowed}
    rest = {name: text for name, text in settings.items() if name not in allowed}
    if isinstance(value, UATConfig):
        rates = dict.fromkeys(COMPONENTS, changes.pop(EVERY_RATE)) if EVERY_RATE in changes else {}
        rates |= {name: changes.pop(name) for name in COMPONENTS if name in changes}
        changes["rates"] = replace(value.rates, **rates)
    return replace(value, **changes), rest


def _names(value: "DataclassInstance") -> Collection[str]:
    return SETTINGS if isinstance(value, UATConfig) else settings_of(value)


def _spelt(name: str, value: Any) -> str:
    if value is None:
        return OWN if name in RATES else NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, text: str, hint: Any) -> Any:
    """A setting from its spelling, by the type of its field."""
    kinds = get_args(hint) or (hint,)
    none = (OWN if name in RATES else NONE) if NoneType in kinds else None
    if text == none:
        return None
    kind = next(kind for kind in kinds if kind is not NoneType)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{name}={text!r} is not true or false.")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigurationError(f"{name}={text!r} is not {what}{f' or {none!r}' if none else ''}.") from None
