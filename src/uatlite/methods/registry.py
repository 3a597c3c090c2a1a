"""The methods by name. A new one is a file and a line here; the contract test runs over all of them."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from uatlite.codec import dump
from uatlite.errors import ConfigurationError, nearest
from uatlite.methods.distilled import DISTILLED
from uatlite.methods.method import Method
from uatlite.methods.sampling import ANALYTIC, BASE, SAMPLING
from uatlite.methods.trained import Ensemble, Laplace, Snapshot, Sngp, Swag, VariationalLastLayer
from uatlite.spelling import parse_spelling

if TYPE_CHECKING:
    from uatlite.model.weights import MethodWeights

_TRAINED = (Ensemble(), Snapshot(), Swag(), Laplace(), Sngp(), VariationalLastLayer())
METHODS: dict[str, Method] = {
    method.key: method for method in (BASE, DISTILLED, *SAMPLING.values(), ANALYTIC, *_TRAINED)
}

STORED: Any = reduce(or_, map(type, METHODS.values()))
"""The types of methods, as one union."""

# what is gone -> what to use instead
GONE_METHODS: dict[str, str] = dict.fromkeys(
    ("cascade", "adaptive"),
    "use 'distilled', which costs one pass; more passes for the texts that are abstained on are a second look: "
    "calibrate(..., second_look='uat'), --second-look uat.",
)

# short name -> name
METHOD_ALIASES: dict[str, str] = {"mc": "mc-uniform"}


def method_to_dict(method: Method) -> dict[str, Any]:
    """All settings but the seed, as plain JSON values; what it learned is left out."""
    state: dict[str, Any] = dump(method, {}, kind=STORED)
    return state


def method_of_weights(weights: "MethodWeights") -> Method | None:
    """The method that weights were trained for; None if this version does not have it."""
    method = METHODS.get(weights.method)
    if method is None or not method.trained:
        return None
    members = weights.tensors.get("members")
    return method if members is None else method.changed(members=str(1 + len(members)))


def parse_method(text: str) -> Method:
    """The method that is spelt 'name' or 'name:setting=value,...'; its `name` is the canonical spelling of it."""
    key, settings = split_spelling(text)
    return METHODS[key].changed(**settings) if settings else METHODS[key]


def split_spelling(text: str) -> tuple[str, dict[str, str]]:
    """The key in `METHODS` of a spelling 'name:setting=value,...', and its settings as they are spelt."""
    name, settings = parse_spelling(text)
    key = METHOD_ALIASES.get(name, name)
    if key in GONE_METHODS:
        raise ConfigurationError(f"The method {key!r} is gone: {GONE_METHODS[key]}")
    if key not in METHODS:
        allowed = [*METHODS, *METHOD_ALIASES]
        raise ConfigurationError(
            f"There is no method {name!r}; there are {', '.join(allowed)}.{nearest(name, allowed)}"
        )
    return key, settings
