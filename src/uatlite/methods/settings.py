"""A configuration's settings by name, as spelt on a command line: 'gate=k,penalty=1.0,embedding=own'."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from uatlite.errors import ConfigurationError, nearest
from uatlite.passes.config import COMPONENTS, UATConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
