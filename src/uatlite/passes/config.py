"""The settings of a stochastic run: `UATConfig` and `DropoutRates`, frozen values that `uatlite.codec` stores."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from uatlite.codec import NOT_STORED
from uatlite.errors import ConfigurationError, check_choice
from uatlite.spelling import inner_settings

if TYPE_CHECKING:
    from uatlite.model.intervention import Site

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

    def times(self, factor: float) -> dict[str, str]:
        """All rates but the checkpoint's own, multiplied, as they are spelt."""
        return {name: f"{rate * factor:.4g}" for name, rate in vars(self).items() if rate is not None}

    def at(self, site: "Site") -> float:
        """The rate at a site of a model."""
        rate = getattr(self, site.component)
        return site.own_rate if rate is None else float(rate)

    @property
    def all_zero(self) -> bool:
        """Whether dropout is switched off on purpose at every component."""
        return all(getattr(self, name) == 0 for name in COMPONENTS)


ALL_LAYERS, MOST_VARIANCE = "all", "top-"
_LAYERS = re.compile(r"all|top-[1-9]\d{0,2}|[1-9]\d{0,2}(-[1-9]\d{0,2})?(&[1-9]\d{0,2}(-[1-9]\d{0,2})?)*")


@dataclass(frozen=True)
class Layers:
    """The layers, counted from 1, in which attention is gated, and in which units are dropped.

    'all'; '9-11', '12' or '2&5&9-11'; or 'top-3', the three with the largest V^(l), chosen on calibration rows. The
    embedding block and the head are no layers: their rates hold whatever stands here.
    """

    gate_layers: str = ALL_LAYERS
    rate_layers: str = ALL_LAYERS

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, str) or not _LAYERS.fullmatch(value) or not all(_ranges(value)):
                raise ConfigurationError(
                    f"{name}={value!r} names no layers: they are 'all', a range from 1 such as '9-11', several joined "
                    "by '&' as in '2&5&9-11', or 'top-3' for those with the largest variance."
                )

    @classmethod
    def only(cls, layers: str) -> "Layers":
        """The same layers for both."""
        return cls(layers, layers)

    @property
    def learn(self) -> bool:
        """Whether calibration rows have to choose them."""
        return any(value.startswith(MOST_VARIANCE) for value in vars(self).values())

    def chosen(self, variances: Sequence[float]) -> "Layers":
        """The same with the layers named that have the largest of these variances, one for each layer."""
        order = sorted(range(1, 1 + len(variances)), key=lambda number: -variances[number - 1])
        named = {}
        for name, value in vars(self).items():
            count = int(value.removeprefix(MOST_VARIANCE)) if value.startswith(MOST_VARIANCE) else 0
            if count > len(order):
                raise ConfigurationError(f"{name}={value!r}: this model has {len(order)} layers.")
            named[name] = "&".join(map(str, sorted(order[:count]))) if count else value
        return Layers(**named)

    def check(self, count: int, model: str) -> None:
        """Raise where a model of so many layers does not have them, or they were not chosen yet."""
        for name, value in vars(self).items():
            if value.startswith(MOST_VARIANCE):
                raise ConfigurationError(
                    f"{name}={value!r}: the layers with the largest variance are chosen on calibration rows. Calibrate "
                    "first, or name them, as in '9-11'. Only the methods uat, fast and mc-* choose them."
                )
            if (last := max((numbers[-1] for numbers in _ranges(value)), default=0)) > count:
                raise ConfigurationError(
                    f"{name}={value!r}: this {model} has layers 1 to {count}, and no layer {last}."
                )


@lru_cache(maxsize=64)
def _ranges(layers: str) -> tuple[range, ...]:
    """The numbers of '2&5&9-11', from 1; of all layers, and of those that are not chosen yet, nothing."""
    if layers == ALL_LAYERS or layers.startswith(MOST_VARIANCE):
        return ()
    ends = [[int(end) for end in numbers.split("-")] for numbers in layers.split("&")]
    return tuple(range(end[0], end[-1] + 1) for end in ends)


def _has(layers: str, layer: int) -> bool:
    return layers == ALL_LAYERS or any(layer + 1 in numbers for numbers in _ranges(layers))


@dataclass(frozen=True)
class UATConfig:
    """The configuration of UAT-Lite. The defaults are the paper's; `UATConfig.fast()` is ours."""

    samples: int = 10
    penalty: float = 0.5
    gate: str = "q"
    form: str = "exp"
    uncertainty: str = "mean-std"
    estimate: str = "lagged"
    rates: DropoutRates = field(default_factory=DropoutRates, metadata=inner_settings(every="rate", none="own"))
    layers: Layers = field(default_factory=Layers, metadata=inner_settings(every="layers", none="all"))
    masks: str = "independent"
    seed: int = field(default=0, metadata=NOT_STORED)  # stored beside a method, not in it
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
        _check("layers", self.layers, Layers, lambda v: True, "a Layers, such as Layers.only('9-11')")
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

    def rate_at(self, site: "Site", layer: int) -> float:
        """The rate at a site of a model when a layer, counted from 0, calls it; other parts have a number below 0."""
        return self.rates.at(site) if layer < 0 or _has(self.layers.rate_layers, layer) else 0.0

    def gates_in(self, layer: int) -> bool:
        """Whether attention is gated in a layer, counted from 0."""
        return _has(self.layers.gate_layers, layer)

    @classmethod
    def fast(cls, **changes: Any) -> "UATConfig":
        """Closed-form uncertainty and stratified masks: the precision of ten independent passes in fewer."""
        return replace(cls(samples=FAST_SAMPLES, estimate="closed-form", masks="stratified"), **changes)

    @property
    def modulates(self) -> bool:
        """Whether attention is modulated at all."""
        return self.gate != "none" and self.penalty > 0


def _check(name: str, value: object, kind: Any, allowed: Callable[[Any], bool], what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not allowed(value):
        raise ConfigurationError(f"{name}={value!r} is not {what}.")
