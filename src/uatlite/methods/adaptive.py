"""UAT-Lite that stops early: passes in blocks, until a text's decision is settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.methods.method import Passes
from uatlite.methods.own_settings import differences, take
from uatlite.methods.settings import RATES, SCALARS, change, spell
from uatlite.passes.config import UATConfig
from uatlite.passes.stopping import Stopping

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

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
        from uatlite.passes.adaptive import sample_adaptively

        found = sample_adaptively(model, encoded, self.config, self.stopping)
        return Passes(found.logits, counts=found.counts)


ADAPTIVE = Adaptive()
