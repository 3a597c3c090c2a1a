"""The methods by name. A new one is a file, a line here and nothing else: the contract test runs over all of them."""

from collections.abc import Mapping
from typing import Any

from uatlite.errors import ConfigurationError
from uatlite.methods.adaptive import ADAPTIVE, Adaptive
from uatlite.methods.analytic import ANALYTIC, Analytic
from uatlite.methods.cascade import CASCADE, Cascade
from uatlite.methods.deterministic import BASE
from uatlite.methods.ensemble import ENSEMBLE, SNAPSHOT
from uatlite.methods.laplace import LAPLACE
from uatlite.methods.mc_dropout import MC_COMPONENT, MC_GLOBAL, MC_UNIFORM
from uatlite.methods.method import Method
from uatlite.methods.sampling import Sampling
from uatlite.methods.sngp import SNGP
from uatlite.methods.swag import SWAG
from uatlite.methods.trained import TrainedMethod
from uatlite.methods.uat import FAST, UAT
from uatlite.methods.vi_last_layer import VI_LAST_LAYER
from uatlite.passes.config import UATConfig

METHODS: dict[str, Method] = {
    "base": BASE,
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
    "adaptive": ADAPTIVE,
    "cascade": CASCADE,
}

# short name -> name
METHOD_ALIASES: dict[str, str] = {"mc": "mc-uniform"}


def method_from_dict(values: Mapping[str, Any]) -> Method:
    """The method that `to_dict` described, with seed 0."""
    method = METHODS.get(str(values.get("method")))
    if method is None:
        raise ConfigurationError(f"the stored method {values.get('method')!r} is not one of: {', '.join(METHODS)}.")
    if isinstance(method, Adaptive | Cascade):
        return type(method).from_dict(values)
    if isinstance(method, Sampling | Analytic):
        return method.with_config(UATConfig.from_dict(values["config"]))
    if isinstance(method, TrainedMethod):
        return method.from_dict(values)
    return method
