"""The methods by name. A new one is a file and a line here; the contract test runs over all of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uatlite.errors import ConfigurationError, nearest
from uatlite.methods.distilled import DISTILLED
from uatlite.methods.last_layer import LAPLACE, SNGP, VI_LAST_LAYER
from uatlite.methods.method import Method
from uatlite.methods.one_pass import ANALYTIC, BASE
from uatlite.methods.sampling import FAST, MC_COMPONENT, MC_GLOBAL, MC_UNIFORM, UAT
from uatlite.methods.trained import ENSEMBLE, SNAPSHOT, SWAG
from uatlite.passes.config import UATConfig
from uatlite.spelling import parse_spelling

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METHODS: dict[str, Method] = {
    "base": BASE,
    "distilled": DISTILLED,
    "mc-uniform": MC_UNIFORM,
    "mc-component": MC_COMPONENT,
    "mc-global": MC_GLOBAL,
    "uat": UAT,
    "fast": FAST,
    "analytic": ANALYTIC,
    "ensemble": ENSEMBLE,
    "snapshot": SNAPSHOT,
    "swag": SWAG,
    "laplace": LAPLACE,
    "sngp": SNGP,
    "vi-last-layer": VI_LAST_LAYER,
}

# what is gone -> what to use instead
GONE_METHODS: dict[str, str] = dict.fromkeys(
    ("cascade", "adaptive"),
    "use 'distilled', which costs one pass; more passes for the texts that are abstained on are a second look: "
    "calibrate(..., second_look='uat'), --second-look uat.",
)

# short name -> name
METHOD_ALIASES: dict[str, str] = {"mc": "mc-uniform"}


def method_from_dict(values: Mapping[str, Any]) -> Method:
    """The method that `to_dict` described, with seed 0."""
    method = METHODS.get(str(values.get("method")))
    if method is None:
        raise ConfigurationError(f"the stored method {values.get('method')!r} is not one of: {', '.join(METHODS)}.")
    return method.from_dict(values)


SAMPLED = (MC_UNIFORM, MC_COMPONENT, MC_GLOBAL, UAT, FAST)
"""The entries of `METHODS` that are a configuration of the engine and nothing else."""


def method_of_config(config: UATConfig) -> Method:
    """The method that samples under a configuration, by the name of `METHODS` that it has, else as 'uat' changed."""
    same = (entry for entry in SAMPLED if entry.standard == replace(config, seed=entry.standard.seed))
    return next(same, UAT).with_config(config)


def equivalent_on(method: Method, model: "PreTrainedModel") -> Method:
    """The first entry of `SAMPLED` that runs the same passes on this model, else the method itself.

    On a checkpoint whose own rates are all 0.1 that of 'mc-global' is 'mc-uniform': what one says need not be computed
    again for the other.
    """
    config = method.sampled
    if config is None or method != method_of_config(config):
        return method
    from uatlite.passes.engine import written_out

    entries = (entry.with_config(replace(entry.standard, seed=config.seed)) for entry in SAMPLED)
    asked = written_out(model, config)
    return next((entry for entry in entries if written_out(model, entry.config) == asked), method)


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
