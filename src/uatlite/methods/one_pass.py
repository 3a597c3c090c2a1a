"""The base: one deterministic pass of the model as it is.

UAT-Lite without sampling: one pass without dropout, and the margin's variance from one backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.errors import ConfigurationError
from uatlite.methods.method import Passes
from uatlite.passes.config import RATES, UATConfig, change, spell

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Deterministic:
    """The plain model without dropout: one pass, and no uncertainty but the softmax's own."""

    name: str = "base"
    summary: str = "one deterministic pass, the model as it is"
    stochastic: bool = False
    passes: int = 1
    knows_variance: bool = False
    trained: bool = False

    def changed(self, **settings: str) -> Self:
        if settings:
            raise ConfigurationError(f"{self.name} has no settings; drop {', '.join(settings)!r}.")
        return self

    def seeded(self, seed: int) -> Self:
        return self

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.name}

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], seen: list[Any] | None = None) -> Passes:
        """The model's own logits, as (1, batch, classes); what its encoder put out is added to `seen`."""
        from uatlite.model.architectures import check_classifier, unwrap
        from uatlite.model.plain import noting_its_encoder, plain

        check_classifier(unwrap(model))
        device = next(model.parameters()).device
        inputs = {key: value.to(device) for key, value in encoded.items() if key != "labels"}
        with plain(model, inputs) as classifier:
            watched = classifier if seen is None else noting_its_encoder(classifier, seen)
            logits: Tensor = watched(**inputs).logits
        return Passes(logits.float()[None])


BASE = Deterministic()


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
        from uatlite.attribution.layers import propagate

        found = propagate(model, encoded, self.config)
        return Passes(found.logits[None], found.variance, sources=found)


ANALYTIC = Analytic()
