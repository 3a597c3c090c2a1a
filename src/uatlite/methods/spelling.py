"""How a method is spelt on a command line: its name, and what to set otherwise, 'uat:gate=k,penalty=1.0'."""

from uatlite.errors import ConfigurationError, nearest
from uatlite.methods.method import Method
from uatlite.methods.registry import METHOD_ALIASES, METHODS


def parse_method(text: str) -> Method:
    """The method that is spelt 'name' or 'name:setting=value,...'; its `name` is the canonical spelling of it."""
    key, settings = split_spelling(text)
    return METHODS[key].changed(**settings) if settings else METHODS[key]


def split_spelling(text: str) -> tuple[str, dict[str, str]]:
    """The key in `METHODS` of a spelling 'name:setting=value,...', and its settings as they are spelt."""
    name, colon, rest = (part.strip() for part in text.partition(":"))
    key = METHOD_ALIASES.get(name, name)
    if key not in METHODS:
        allowed = [*METHODS, *METHOD_ALIASES]
        raise ConfigurationError(
            f"There is no method {name!r}; there are {', '.join(allowed)}.{nearest(name, allowed)}"
        )
    settings: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        setting, equals, value = (part.strip() for part in item.partition("="))
        if not (setting and equals and value):
            raise ConfigurationError(f"{item!r} in {text!r} is not a setting; spell it as in 'uat:gate=k,penalty=1.0'.")
        if setting in settings:
            raise ConfigurationError(f"{text!r} sets {setting!r} twice.")
        settings[setting] = value
    return key, settings
