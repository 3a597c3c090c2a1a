"""What MC dropout and UAT-Lite share: stochastic passes through the engine under one configuration.

MC dropout (Gal and Ghahramani, 2016): passes with dropout on, attention as it is.

UAT-Lite: dropout by component, and attention modulated by token uncertainty.

UAT-Lite that stops early: passes in blocks, until a text's decision is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.methods.method import Passes
from uatlite.passes.config import RATES, SCALARS, DropoutRates, UATConfig, change, differences, spell, take
from uatlite.passes.stopping import Stopping

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


MC_UNIFORM = Sampling.of("mc-uniform", "MC dropout, p = 0.1 at every site", rates_only(DropoutRates.uniform(0.1)))
MC_COMPONENT = Sampling.of(
    "mc-component", "MC dropout at the rates of UAT-Lite, attention not modulated", rates_only(DropoutRates())
)
MC_GLOBAL = Sampling.of("mc-global", "MC dropout at the checkpoint's own rates", rates_only(DropoutRates.own()))


UAT = Sampling.of("uat", "UAT-Lite as in the paper: lagged uncertainty, ten independent passes", UATConfig())
FAST = Sampling.of("fast", "UAT-Lite in fewer passes: closed-form uncertainty, stratified masks", UATConfig.fast())


CAP = 10
STANDARD = UATConfig.fast(samples=CAP)
BY_LABEL = Stopping()
OWN = tuple(field.name for field in fields(Stopping))


@dataclass(frozen=True)
class Adaptive:
    """At most `config.samples` passes; a text stops when its label, and whether to answer, are settled.

    Calibrating learns where one answers and how much passes usually differ; before that only the label counts.
    """

    config: UATConfig = STANDARD
    stopping: Stopping = BY_LABEL
    summary: str = "UAT-Lite in blocks of passes; a text stops when its decision is settled"
    stochastic: bool = True
    trained: bool = False
    knows_variance: bool = True

    @property
    def name(self) -> str:
        settings = [*differences(self.stopping, BY_LABEL), *filter(None, [spell(self.config, STANDARD)])]
        return f"adaptive:{','.join(settings)}" if settings else "adaptive"

    @property
    def passes(self) -> int:
        return self.config.samples

    def changed(self, **settings: str) -> Self:
        stopping, others = take(self.stopping, settings, OWN)
        config = change(self.config, others, (*SCALARS, *RATES), "adaptive")
        return replace(self, config=config, stopping=stopping)

    def seeded(self, seed: int) -> Self:
        return self.with_config(replace(self.config, seed=seed))

    def with_config(self, config: UATConfig) -> Self:
        """The same rule to stop by under another configuration."""
        return replace(self, config=config)

    def untuned(self) -> Self:
        """The same method before anything was learned."""
        return replace(self, stopping=Stopping(confidence=self.stopping.confidence, block=self.stopping.block))

    def to_dict(self) -> dict[str, Any]:
        config = self.config.to_dict()
        del config["seed"]
        return {"method": "adaptive", "config": config, "stopping": asdict(self.stopping)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The method that `to_dict` described, with seed 0."""
        return cls(UATConfig.from_dict(values["config"]), Stopping(**values["stopping"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes), NaN where a text had stopped."""
        from uatlite.passes.engine import sample_adaptively

        found = sample_adaptively(model, encoded, self.config, self.stopping)
        return Passes(found.logits, counts=found.counts)


ADAPTIVE = Adaptive()
