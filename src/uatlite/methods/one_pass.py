"""Methods of one pass: `base`, the model as it is, and `analytic`, UAT-Lite without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.errors import ConfigurationError
from uatlite.methods.method import MethodDefaults, Passes
from uatlite.passes.config import COMPONENTS, UATConfig
from uatlite.predictive import PassLogits
from uatlite.spelling import change, differences, spelling

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates


@dataclass(frozen=True)
class Deterministic(MethodDefaults):
    """The plain model without dropout: one pass, and no uncertainty but the softmax's own."""

    name: str = "base"
    summary: str = "one deterministic pass, the model as it is"

    def changed(self, **settings: str) -> Self:
        if settings:
            raise ConfigurationError(f"{self.name} has no settings; drop {', '.join(settings)!r}.")
        return self

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.name}

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        return plain

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """The model's own logits (1, batch, classes), and what its head reads (batch, units)."""
        from uatlite.model.architectures import check_classifier, unwrap
        from uatlite.model.plain import plain_pass

        check_classifier(unwrap(model))
        device = next(model.parameters()).device
        inputs = {key: value.to(device) for key, value in encoded.items() if key != "labels"}
        logits, representation = plain_pass(model, inputs)
        return Passes(logits.float()[None], representation=representation)


BASE = Deterministic()


SETTINGS = ("penalty", "gate", "form", "uncertainty", "rate", *COMPONENTS)
"""The other settings of UATConfig are about sampling."""
STANDARD = UATConfig(estimate="closed-form")


@dataclass(frozen=True)
class Analytic(MethodDefaults):
    """The gated model's logits, and to first order the variance that dropout would give their margin.

    The variance comes from one backward pass. It widens the temperature of each text: combine this method with the
    calibrator `input-temperature`. Without a calibrator the probabilities are the softmax of the logits.
    """

    config: UATConfig = STANDARD
    summary: str = "UAT-Lite without sampling: the margin's variance from one backward pass; for +its"
    knows_variance: bool = True

    @property
    def name(self) -> str:
        return spelling("analytic", differences(self.config, STANDARD))

    @property
    def cost(self) -> int:
        return 2

    def changed(self, **settings: str) -> Self:
        return self.with_config(change(self.config, settings, "analytic", SETTINGS))

    def with_config(self, config: UATConfig) -> Self:
        return replace(self, config=config)

    def to_dict(self) -> dict[str, Any]:
        return {"method": "analytic", "config": without_seed(self.config)}

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        return self.with_config(UATConfig.from_dict(values["config"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes), the first-order variance of the margin (batch,), and where it comes from.

        Of a model of many labels the variance of each label's logit, (batch, labels), by a backward pass for each.
        """
        from uatlite.attribution.case import Case
        from uatlite.attribution.first_order import every_logit, first_orders
        from uatlite.attribution.layers import propagate
        from uatlite.model.architectures import answering

        if answering(model) == "labels":
            labels = first_orders(Case.of(model, encoded, self.config), every_logit)
            return Passes(labels.logits[None], labels.parts.sum(dim=-1).T, representation=labels.representation)
        found = propagate(model, encoded, self.config)
        return Passes(found.logits[None], found.variance, sources=found, representation=found.representation)

    def run_tokens(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], candidates: Candidates) -> Passes:
        """As `run`, with one backward pass for each candidate of a text; the texts of a batch share them."""
        from uatlite.attribution.first_order import token_margins

        found, variances = token_margins(model, encoded, self.config, candidates)
        return Passes(found.logits[None], variances, representation=found.representation)


ANALYTIC = Analytic()


def without_seed(config: UATConfig) -> dict[str, Any]:
    """A configuration as plain JSON values; the seed is stored beside a method, not in it."""
    return {name: value for name, value in config.to_dict().items() if name != "seed"}
