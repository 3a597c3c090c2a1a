"""The settings of a stochastic run, as frozen values that serialise to JSON and back.

A configuration's settings by name, as spelt on a command line: 'gate=k,penalty=1.0,embedding=own'.

Settings of a method beyond those of its configuration: the fields of a frozen value, as spelt on a command line.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
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

# Passes of stratified masks whose mean logits are as precise as those of ten independent passes as far as could be
# measured on real weights and text: docs/reference/engine.md, "Stratified masks".
FAST_SAMPLES = 5


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
    """One setting of UAT-Lite. The defaults are the paper's; `UATConfig.fast()` is ours."""

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


OWN = "own"  # how a rate is spelt that the checkpoint decides
EVERY_RATE = "rate"  # stands for the rates of all components
RATES = (EVERY_RATE, *COMPONENTS)
SCALARS = tuple(f.name for f in fields(UATConfig) if f.name not in ("rates", "seed"))

Settable = TypeVar("Settable", bound="DataclassInstance")


def change(config: UATConfig, settings: Mapping[str, str], allowed: Collection[str], method: str) -> UATConfig:
    """The configuration with some settings replaced; only those in `allowed` do anything in `method`."""
    values: dict[str, Any] = {}
    rates: dict[str, float | None] = {}
    for setting, text in settings.items():
        if setting not in allowed:
            raise ConfigurationError(_no_such(method, setting, allowed))
        if setting == EVERY_RATE:
            rates = {**dict.fromkeys(COMPONENTS, _rate(setting, text)), **rates}
        elif setting in COMPONENTS:
            rates[setting] = _rate(setting, text)
        else:
            values[setting] = _value(UATConfig, setting, text)
    return replace(config, rates=replace(config.rates, **rates), **values)


def spell(config: UATConfig, standard: UATConfig) -> str:
    """What `change` has to be told to make the configuration of the standard one; empty where they are the same."""
    flat, usual = ({name: getattr(c, name) for name in SCALARS} | asdict(c.rates) for c in (config, standard))
    differs = {name: value for name, value in flat.items() if value != usual[name]}
    if all(name in differs for name in COMPONENTS) and len({flat[name] for name in COMPONENTS}) == 1:
        differs = {name: value for name, value in differs.items() if name not in COMPONENTS}
        differs[EVERY_RATE] = config.rates.embedding
    return ",".join(f"{name}={_spelt(value)}" for name, value in differs.items())


def change_fields(value: Settable, settings: Mapping[str, str], what: str) -> Settable:
    """A frozen dataclass with some of its fields but the seed replaced, their values as spelt on a command line."""
    allowed = field_names(value)
    for setting in settings:
        if setting not in allowed:
            raise ConfigurationError(_no_such(what, setting, allowed))
    return replace(value, **{setting: _value(type(value), setting, text) for setting, text in settings.items()})


def spell_fields(value: "DataclassInstance", *, all_of_them: bool = False) -> str:
    """What `change_fields` has to be told to make the value of the one with all defaults; or all its settings."""
    usual = type(value)()
    own = {name: getattr(value, name) for name in field_names(value)}
    spelt = {name: setting for name, setting in own.items() if all_of_them or setting != getattr(usual, name)}
    return ",".join(f"{name}={_spelt(setting)}" for name, setting in spelt.items())


def field_names(value: "DataclassInstance") -> tuple[str, ...]:
    """The fields that are settings: all but the seed."""
    return tuple(field.name for field in fields(value) if field.name != "seed")


def _spelt(value: Any) -> str:
    if value is None:
        return OWN
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _value(owner: type, setting: str, text: str) -> Any:
    """A setting of a dataclass from its spelling, by the type that the field has."""
    kind = get_type_hints(owner)[setting]
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigurationError(f"{setting}={text!r} is not true or false.")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigurationError(f"{setting}={text!r} is not {what}.") from None


def _rate(setting: str, text: str) -> float | None:
    try:
        return None if text == OWN else float(text)
    except ValueError:
        raise ConfigurationError(f"{setting}={text!r} is not a rate in [0, 1) or {OWN!r}.") from None


def _no_such(method: str, setting: str, allowed: Collection[str]) -> str:
    if setting == "seed":
        return f"{method}: the seed is not a setting of a method; it is given beside it (--seeds, or seeded(seed))."
    if not allowed:
        return f"{method} has no settings; drop {setting!r}."
    return f"{method} has no setting {setting!r}; it has {', '.join(allowed)}.{nearest(setting, allowed)}"


NONE = "none"
Value = TypeVar("Value")


def take(value: Value, settings: Mapping[str, str], names: tuple[str, ...]) -> tuple[Value, dict[str, str]]:
    """The value with those of `names` replaced that the settings have, and the settings that are left."""
    hints = get_type_hints(type(value))
    own = {name: _parsed(name, settings[name], hints[name]) for name in names if name in settings}
    rest = {name: text for name, text in settings.items() if name not in names}
    return replace(value, **own), rest  # type: ignore[type-var]


def differences(value: Any, standard: Any) -> list[str]:
    """What `take` has to be told to make the value of the standard one: ['block=3']; fields in their order."""
    pairs = ((field.name, getattr(value, field.name), getattr(standard, field.name)) for field in fields(value))
    return [f"{name}={NONE if own is None else own}" for name, own, usual in pairs if own != usual]


def _parsed(name: str, text: str, hint: Any) -> Any:
    kinds = get_args(hint) or (hint,)
    if text == NONE and type(None) in kinds:
        return None
    kind = next(kind for kind in kinds if kind is not type(None))
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r} is not a {'whole ' if kind is int else ''}number.") from None
