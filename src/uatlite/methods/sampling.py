"""What MC dropout and UAT-Lite share: stochastic passes through the engine under one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from uatlite.errors import ConfigurationError, nearest
from uatlite.methods.method import Passes
from uatlite.passes.config import COMPONENTS, DropoutRates, UATConfig

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

OWN = "own"  # how a rate is spelt that the checkpoint decides
EVERY_RATE = "rate"  # a setting that stands for the rates of all components
_SCALARS = tuple(f.name for f in fields(UATConfig) if f.name not in ("rates", "seed"))
SETTINGS = (*_SCALARS, EVERY_RATE, *COMPONENTS)
"""What can be set by name: those of UATConfig, and the rate of each component or of all."""


@dataclass(frozen=True)
class Sampling:
    """`config.samples` stochastic passes. `key` and `standard` are the entry in `METHODS` that this came from."""

    key: str
    summary: str
    standard: UATConfig
    config: UATConfig
    stochastic: bool = True

    @classmethod
    def of(cls, key: str, summary: str, config: UATConfig) -> Self:
        """An entry of `METHODS`."""
        return cls(key, summary, standard=config, config=config)

    @property
    def name(self) -> str:
        own, standard = _flat(self.config), _flat(self.standard)
        differs = {name: value for name, value in own.items() if value != standard[name]}
        if set(COMPONENTS) <= set(differs) and len({differs[component] for component in COMPONENTS}) == 1:
            differs = {name: differs[name] for name in differs if name not in COMPONENTS} | {
                EVERY_RATE: differs[COMPONENTS[0]]
            }
        spelt = ",".join(f"{name}={_spelt(value)}" for name, value in differs.items())
        return f"{self.key}:{spelt}" if spelt else self.key

    def changed(self, **settings: str) -> Self:
        values: dict[str, Any] = {}
        rates: dict[str, float | None] = {}
        for setting, text in settings.items():
            if setting in COMPONENTS:
                rates[setting] = _rate(setting, text)
            elif setting == EVERY_RATE:
                every = _rate(setting, text)
                rates = {**dict.fromkeys(COMPONENTS, every), **rates}
            elif setting in _SCALARS:
                values[setting] = _value(setting, text)
            else:
                raise ConfigurationError(_no_such(self.key, setting))
        changed_rates = replace(self.config.rates, **rates)
        return replace(self, config=replace(self.config, rates=changed_rates, **values))

    def seeded(self, seed: int) -> Self:
        return replace(self, config=replace(self.config, seed=seed))

    def to_dict(self) -> dict[str, Any]:
        config = self.config.to_dict()
        del config["seed"]
        return {"method": self.key, "config": config}

    def with_config(self, config: UATConfig) -> Self:
        """The same entry of `METHODS` under another configuration."""
        return replace(self, config=config)

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes) of the engine's passes."""
        from uatlite.passes.engine import sample

        return Passes(sample(model, encoded, self.config).logits)


def _flat(config: UATConfig) -> dict[str, Any]:
    """Settings by the names of `SETTINGS`, without the seed."""
    return {name: getattr(config, name) for name in _SCALARS} | asdict(config.rates)


def _spelt(value: Any) -> str:
    if value is None:
        return OWN
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _value(setting: str, text: str) -> Any:
    """A setting of UATConfig from its spelling, by the type that the field has."""
    kind = get_type_hints(UATConfig)[setting]
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


def _no_such(key: str, setting: str) -> str:
    if setting == "seed":
        return f"{key}: the seed is not a setting of a method; it is given beside it (--seeds, or seeded(seed))."
    return f"{key} has no setting {setting!r}; it has {', '.join(SETTINGS)}.{nearest(setting, SETTINGS)}"


def rates_only(rates: DropoutRates) -> UATConfig:
    """MC dropout: the paper's number of passes at these rates, and attention left alone."""
    return UATConfig(gate="none", rates=rates)
