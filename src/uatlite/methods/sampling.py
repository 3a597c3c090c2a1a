"""What MC dropout and UAT-Lite share: stochastic passes through the engine under one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.methods.method import Passes
from uatlite.methods.settings import RATES, SCALARS, change, spell
from uatlite.passes.config import DropoutRates, UATConfig

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Sampling:
    """`config.samples` stochastic passes. `key` and `standard` are the entry in `METHODS` that this came from."""

    key: str
    summary: str
    standard: UATConfig
    config: UATConfig
    stochastic: bool = True
    trained: bool = False

    @classmethod
    def of(cls, key: str, summary: str, config: UATConfig) -> Self:
        """An entry of `METHODS`."""
        return cls(key, summary, standard=config, config=config)

    @property
    def name(self) -> str:
        settings = spell(self.config, self.standard)
        return f"{self.key}:{settings}" if settings else self.key

    @property
    def passes(self) -> int:
        return self.config.samples

    @property
    def knows_variance(self) -> bool:
        return self.config.samples > 1

    def changed(self, **settings: str) -> Self:
        return self.with_config(change(self.config, settings, (*SCALARS, *RATES), self.key))

    def seeded(self, seed: int) -> Self:
        return self.with_config(replace(self.config, seed=seed))

    def with_config(self, config: UATConfig) -> Self:
        """The same entry of `METHODS` under another configuration."""
        return replace(self, config=config)

    def to_dict(self) -> dict[str, Any]:
        config = self.config.to_dict()
        del config["seed"]
        return {"method": self.key, "config": config}

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes) of the engine's passes."""
        from uatlite.passes.engine import sample

        return Passes(sample(model, encoded, self.config).logits)


def rates_only(rates: DropoutRates) -> UATConfig:
    """MC dropout: the paper's number of passes at these rates, and attention left alone."""
    return UATConfig(gate="none", rates=rates)
