"""UAT-Lite without sampling: one pass without dropout, and the margin's variance from one backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.methods.method import Passes
from uatlite.methods.settings import RATES, change, spell
from uatlite.passes.config import UATConfig

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SETTINGS = ("penalty", "gate", "form", "uncertainty", *RATES)
"""The others say how to sample, and nothing is sampled."""
STANDARD = UATConfig(estimate="closed-form")


@dataclass(frozen=True)
class Analytic:
    """The gated model's logits, and to first order the variance that dropout would give their margin.

    The variance widens the temperature of each text: stack the calibrator `input-temperature` on it. Without a
    calibrator the probabilities are the softmax of the logits alone.
    """

    config: UATConfig = STANDARD
    summary: str = "UAT-Lite without sampling: the margin's variance from one backward pass; for +its"
    stochastic: bool = False
    passes: int = 1
    knows_variance: bool = True
    trained: bool = False

    @property
    def name(self) -> str:
        settings = spell(self.config, STANDARD)
        return f"analytic:{settings}" if settings else "analytic"

    def changed(self, **settings: str) -> Self:
        return self.with_config(change(self.config, settings, SETTINGS, "analytic"))

    def seeded(self, seed: int) -> Self:
        return self

    def with_config(self, config: UATConfig) -> Self:
        """The same method under another configuration."""
        return replace(self, config=config)

    def to_dict(self) -> dict[str, Any]:
        config = self.config.to_dict()
        del config["seed"]
        return {"method": "analytic", "config": config}

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes), the first-order variance of the margin (batch,), and where it comes from."""
        from uatlite.attribution.analytic import propagate

        found = propagate(model, encoded, self.config)
        return Passes(found.logits[None], found.variance, sources=found)


ANALYTIC = Analytic()
