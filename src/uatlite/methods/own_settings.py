"""Settings of a method beyond those of its configuration: the fields of a frozen value, as spelt on a command line."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

from uatlite.errors import ConfigurationError

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
