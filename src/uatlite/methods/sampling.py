"""Methods that run the model as it is, or under a configuration of dropout.

`base` is the plain model. MC dropout (Gal and Ghahramani, 2016) and UAT-Lite run many stochastic passes of the engine:
MC dropout leaves attention as it is, UAT-Lite drops by component and modulates attention by token uncertainty.
`analytic` is UAT-Lite without sampling; which layers its variance comes from is in `uatlite.attribution.layers`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from uatlite.errors import check_choice
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method, Passes
from uatlite.passes.config import COMPONENTS, DropoutRates, Layers, UATConfig
from uatlite.predictive import PassLogits
from uatlite.spelling import change, spelling

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates


@dataclass(frozen=True)
class Deterministic(Method):
    """The plain model without dropout: one pass, and no uncertainty but the softmax's own."""

    key: ClassVar[str] = "base"
    summary: ClassVar[str] = "one deterministic pass, the model as it is"

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        return plain

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """The model's own logits (1, batch, classes), and what its head reads (batch, units)."""
        from uatlite.model.architectures import check_classifier, unwrap
        from uatlite.model.plain import plain_pass

        check_classifier(unwrap(model))
        device = next(model.parameters()).device
        inputs = {key: value.to(device) for key, value in encoded.items() if key != "labels"}
        logits, representation = plain_pass(model, inputs)
        return Passes(logits.float()[None], representation=representation)


BASE = Deterministic()


STANDARDS = {
    "mc-uniform": UATConfig(gate="none", rates=DropoutRates.uniform(0.1)),
    "mc-component": UATConfig(gate="none"),
    "mc-global": UATConfig(gate="none", rates=DropoutRates.own()),
    "uat": UATConfig(),
    "fast": UATConfig.fast(),
    "analytic": UATConfig(estimate="closed-form"),
}
"""The configuration that a key alone stands for."""


class Configured(Method):
    """A method whose settings are those of its configuration."""

    changeable: ClassVar[Collection[str] | None] = None
    """the settings that have an effect, where not all have one"""

    config: UATConfig

    @property
    def name(self) -> str:
        return spelling(self.key, self.config, STANDARDS[self.key])

    def changed(self, **settings: str) -> Self:
        return replace(self, config=change(self.config, settings, self.key, self.changeable))  # type: ignore[type-var]


SUMMARIES = {
    "mc-uniform": "MC dropout, p = 0.1 at every site",
    "mc-component": "MC dropout at the rates of UAT-Lite, attention not modulated",
    "mc-global": "MC dropout at the checkpoint's own rates",
    "uat": "UAT-Lite as in the paper: lagged uncertainty, ten independent passes",
    "fast": "UAT-Lite in fewer passes: closed-form uncertainty, stratified masks",
}


@dataclass(frozen=True)
class Sampling(Configured):
    """`config.samples` stochastic passes."""

    key: str = "uat"
    config: UATConfig = STANDARDS["uat"]
    asked: Layers | None = None
    """the layers as they were asked for, where calibration rows chose those of the configuration"""
    stochastic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("key", self.key, SUMMARIES)

    @property
    def summary(self) -> str:
        return SUMMARIES[self.key]

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def passes(self) -> int:
        return self.config.samples

    @property
    def name(self) -> str:
        config = self.config if self.asked is None else replace(self.config, layers=self.asked)
        return spelling(self.key, config, STANDARDS[self.key])

    @property
    def learns(self) -> bool:
        return self.config.layers.learn

    def changed(self, **settings: str) -> Self:
        asked = self.config.layers if self.asked is None else self.asked
        return super(Sampling, replace(self, config=replace(self.config, layers=asked), asked=None)).changed(**settings)

    def seeded(self, seed: int) -> Self:
        return replace(self, config=replace(self.config, seed=seed))

    def learn(self, rows: CalibrationRows) -> LearnedMethod:
        """Choose the layers with the largest V^(l), the mean over the calibration rows to first order."""
        if not self.learns:
            return LearnedMethod(self)
        _, said = rows.teach(LayerVariance(replace(self.config, layers=Layers())))
        assert said.given_variance is not None
        variances = said.given_variance.mean(axis=0)
        config = replace(self.config, layers=self.config.layers.chosen(variances.tolist()))
        shares = ", ".join(f"{share:.0%}" for share in variances / max(variances.sum(), 1e-300))
        reason = f"{self.name} became {Sampling(self.key, config).name}: the layers have {shares} of the variance."
        return LearnedMethod(replace(self, config=config, asked=self.config.layers), reason)

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """Logits (samples, batch, classes) of the engine's passes."""
        from uatlite.passes.engine import sample

        samples = sample(model, encoded, self.config)
        return Passes(samples.logits, representation=samples.representation)


SAMPLING: dict[str, Sampling] = {key: Sampling(key, STANDARDS[key]) for key in SUMMARIES}


def method_of_config(config: UATConfig) -> Sampling:
    """The method that samples under a configuration, by the key that it has in `METHODS`, else as 'uat' changed."""
    same = (key for key in SUMMARIES if STANDARDS[key] == replace(config, seed=STANDARDS[key].seed))
    return Sampling(next(same, "uat"), config)


@dataclass(frozen=True)
class LayerVariance(Method):
    """What layers are chosen by: V^(l) to first order, of the outputs whose variance `analytic` gives.

    It costs one forward and one backward pass a text. Nobody predicts with it.
    """

    key: ClassVar[str] = "layer-variance"
    summary: ClassVar[str] = "the variance of each layer, to first order"
    knows_variance: ClassVar[bool] = True
    cost: ClassVar[int] = 2

    config: UATConfig = STANDARDS["uat"]

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """Logits (1, batch, classes), and the variance of each layer (batch, layers), summed over a text's outputs."""
        from uatlite.attribution.first_order import Case, every_logit, first_orders, token_margins
        from uatlite.attribution.layers import pair_up
        from uatlite.model.architectures import MULTI_LABEL, head_of

        if tokens is not None:
            orders, _ = token_margins(model, encoded, self.config, tokens)
        else:
            output = every_logit if head_of(model).problem == MULTI_LABEL else "margin"
            orders = first_orders(Case.of(model, encoded, self.config), output)
        layers = pair_up(orders.parts.sum(dim=0)[:, 1:-1]).sum(dim=-1)
        if tokens is not None:  # each token has its text's
            layers = layers[:, None].expand(-1, orders.logits.shape[1], -1)
        return Passes(orders.logits[None], layers, representation=orders.representation)


@dataclass(frozen=True)
class Analytic(Configured):
    """The gated model's logits, and to first order the variance that dropout would give their margin.

    The variance comes from one backward pass. It widens the temperature of each text: combine this method with the
    calibrator `input-temperature`. Without a calibrator the probabilities are the softmax of the logits.
    """

    key: ClassVar[str] = "analytic"
    summary: ClassVar[str] = "UAT-Lite without sampling: the margin's variance from one backward pass; for +its"
    knows_variance: ClassVar[bool] = True
    cost: ClassVar[int] = 2
    changeable: ClassVar[Collection[str]] = (
        "penalty", "gate", "form", "uncertainty", "rate", *COMPONENTS, "layers", "gate_layers", "rate_layers"
    )  # fmt: skip

    config: UATConfig = STANDARDS["analytic"]

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """Logits (1, batch, classes), the first-order variance of the margin (batch, 1), and where it comes from.

        Of a model of many labels the variance of each label's logit, (batch, labels), by a backward pass for each; of
        tokens with one for each candidate of a text, which the texts of a batch share.
        """
        from uatlite.attribution.first_order import Case, every_logit, first_orders, token_margins
        from uatlite.attribution.layers import propagate
        from uatlite.model.architectures import MULTI_LABEL, head_of

        if tokens is not None:
            margins, variances = token_margins(model, encoded, self.config, tokens)
            return Passes(margins.logits[None], variances[..., None], representation=margins.representation)
        if head_of(model).problem == MULTI_LABEL:
            labels = first_orders(Case.of(model, encoded, self.config), every_logit)
            return Passes(labels.logits[None], labels.parts.sum(dim=-1).T, representation=labels.representation)
        margin = propagate(model, encoded, self.config)
        return Passes(margin.logits[None], margin.total[:, None], sources=margin, representation=margin.representation)


ANALYTIC = Analytic()
