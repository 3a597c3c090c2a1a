"""Methods of many stochastic passes: MC dropout (Gal and Ghahramani, 2016) and UAT-Lite.

Both run the engine under one configuration. MC dropout leaves attention as it is; UAT-Lite drops by component and
modulates attention by token uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.methods.method import MethodDefaults, Passes
from uatlite.methods.one_pass import without_seed
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.spelling import change, differences, spelling

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

PAPER = UATConfig()


@dataclass(frozen=True)
class Sampling(MethodDefaults):
    """`config.samples` stochastic passes. `key` and `standard` are those of its entry in `METHODS`."""

    key: str = "uat"
    summary: str = ""
    standard: UATConfig = PAPER
    config: UATConfig = PAPER
    stochastic: bool = True

    @classmethod
    def of(cls, key: str, summary: str, config: UATConfig) -> Self:
        """An entry of `METHODS`."""
        return cls(key, summary, standard=config, config=config)

    @property
    def name(self) -> str:
        return spelling(self.key, differences(self.config, self.standard))

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def passes(self) -> int:
        return self.config.samples

    @property
    def sampled(self) -> UATConfig | None:
        return self.config

    def changed(self, **settings: str) -> Self:
        return self.with_config(change(self.config, settings, self.key))

    def seeded(self, seed: int) -> Self:
        return self.with_config(replace(self.config, seed=seed))

    def with_config(self, config: UATConfig) -> Self:
        return replace(self, config=config)

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.key, "config": without_seed(self.config)}

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        return self.with_config(UATConfig.from_dict(values["config"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes) of the engine's passes."""
        from uatlite.passes.engine import sample

        found = sample(model, encoded, self.config)
        return Passes(found.logits, representation=found.representation)


def rates_only(rates: DropoutRates) -> UATConfig:
    """MC dropout: the paper's number of passes at these rates, attention not modulated."""
    return UATConfig(gate="none", rates=rates)


MC_UNIFORM = Sampling.of("mc-uniform", "MC dropout, p = 0.1 at every site", rates_only(DropoutRates.uniform(0.1)))
MC_COMPONENT = Sampling.of(
    "mc-component", "MC dropout at the rates of UAT-Lite, attention not modulated", rates_only(DropoutRates())
)
MC_GLOBAL = Sampling.of("mc-global", "MC dropout at the checkpoint's own rates", rates_only(DropoutRates.own()))
UAT = Sampling.of("uat", "UAT-Lite as in the paper: lagged uncertainty, ten independent passes", PAPER)
FAST = Sampling.of("fast", "UAT-Lite in fewer passes: closed-form uncertainty, stratified masks", UATConfig.fast())
