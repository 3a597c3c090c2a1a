"""Settings as they are spelt on a command line: 'gate=k,penalty=1.0,embedding=own', from a frozen dataclass and back.

The fields of a dataclass are its settings, but for those with `metadata=NOT_STORED`. The fields of a dataclass inside
it count too where the field has `metadata=inner_settings(every="rate", none="own")`: they stand after the others, the
word 'rate' sets all of them, and 'own' means None.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from uatlite.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


@dataclass(frozen=True)
class _Setting:
    name: str
    value: Any
    hint: Any
    """the type of its field"""
    none: str = "none"
    """how None is spelt"""
    inside: str | None = None
    """the field whose value has it, of a dataclass inside another one"""
    every: str | None = None
    """the word that sets all settings of that field"""


def inner_settings(*, every: str, none: str) -> Mapping[str, str]:
    """Metadata of a field whose own fields are settings: the word that sets all of them, and the word for None."""
    return {"every": every, "none": none}


def _settings(value: "DataclassInstance") -> list[_Setting]:
    """All settings of a value, those of dataclasses inside it last."""
    hints, plain, inner = get_type_hints(type(value)), [], []
    for field in fields(value):
        held = getattr(value, field.name)
        if "every" in field.metadata:
            inner += [replace(setting, inside=field.name, **field.metadata) for setting in _settings(held)]
        elif field.metadata.get("stored", True):
            plain.append(_Setting(field.name, held, hints[field.name]))
    return plain + inner


def setting_names(value: "DataclassInstance") -> tuple[str, ...]:
    """The names that a command line may set."""
    settings = _settings(value)
    every = dict.fromkeys(setting.every for setting in settings if setting.every is not None)
    plain = [setting.name for setting in settings if setting.inside is None]
    return *plain, *every, *(setting.name for setting in settings if setting.inside is not None)


def spelling(key: str, value: "DataclassInstance", standard: "DataclassInstance | None" = None) -> str:
    """A name with the settings that differ from the standard value, as in 'uat:gate=k,rate=0.1'; without one, all."""
    settings = _settings(value)
    usual = {} if standard is None else {setting.name: setting.value for setting in _settings(standard)}
    differs = {s.name: s for s in settings if s.name not in usual or s.value != usual[s.name]}
    for every in dict.fromkeys(setting.every for setting in settings if setting.every is not None):
        group = [setting for setting in settings if setting.every == every]
        if all(setting.name in differs and setting.value == group[0].value for setting in group):
            differs = {name: setting for name, setting in differs.items() if setting.every != every}
            differs[every] = group[0]
    spelt = ",".join(f"{name}={_spelt(setting)}" for name, setting in differs.items())
    return f"{key}:{spelt}" if spelt else key


def _spelt(setting: _Setting) -> str:
    if setting.value is None:
        return setting.none
    return str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)


def parse_spelling(text: str) -> tuple[str, dict[str, str]]:
    """The name and the settings of 'name:setting=value,...', as they are spelt."""
    name, colon, rest = (word.strip() for word in text.partition(":"))
    settings: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        setting, equals, value = (word.strip() for word in item.partition("="))
        if not (setting and equals and value):
            raise ConfigurationError(f"{item!r} in {text!r} is not a setting; spell it as in 'uat:gate=k,penalty=1.0'.")
        if setting in settings:
            raise ConfigurationError(f"{text!r} sets {setting!r} twice.")
        settings[setting] = value
    return name, settings


def change(value: Value, spelt: Mapping[str, str], what: str, allowed: Collection[str] | None = None) -> Value:
    """A frozen dataclass with some settings replaced, given as spelt; `what` names its owner in errors.

    `allowed` restricts the settings to those that have an effect.
    """
    allowed = setting_names(value) if allowed is None else allowed
    for name in spelt:
        if name not in allowed:
            raise ConfigurationError(_refusal(name, what, allowed))
    changes: defaultdict[str | None, dict[str, Any]] = defaultdict(dict)
    for setting in _settings(value):
        given = [name for name in (setting.name, setting.every) if name in spelt]
        if given:
            changes[setting.inside][setting.name] = _parsed(str(given[0]), spelt[str(given[0])], setting)
    plain = changes.pop(None, {})
    inner = {str(field): replace(getattr(value, str(field)), **new) for field, new in changes.items()}
    return replace(value, **plain, **inner)


def _refusal(name: str, what: str, allowed: Collection[str]) -> str:
    if name == "seed":
        return f"{what}: the seed is not a setting of a method; it is given beside it (--seeds, or seeded(seed))."
    if not allowed:
        return f"{what} has no settings; drop {name!r}."
    return f"{what} has no setting {name!r}; it has {', '.join(allowed)}.{nearest(name, allowed)}"


def _parsed(name: str, text: str, setting: _Setting) -> Any:
    """The value of a setting from its spelling, by the type of its field."""
    kinds = get_args(setting.hint) or (setting.hint,)
    none = f" or {setting.none!r}" if NoneType in kinds else ""
    if none and text == setting.none:
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
        raise ConfigurationError(f"{name}={text!r} is not {what}{none}.") from None
