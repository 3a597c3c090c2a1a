"""The cascade: one deterministic pass for all texts, a second method only for those that it leaves in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from uatlite.errors import ConfigurationError, check_choice
from uatlite.methods.method import Passes
from uatlite.methods.one_pass import ANALYTIC, BASE, Analytic
from uatlite.methods.sampling import ADAPTIVE, FAST, MC_COMPONENT, MC_GLOBAL, MC_UNIFORM, UAT, Adaptive, Sampling
from uatlite.passes.config import UATConfig, differences, take
from uatlite.predictive import margin_variance, widened

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


Second = Sampling | Analytic | Adaptive

SECONDS: dict[str, Second] = {
    "fast": FAST,
    "analytic": ANALYTIC,
    "adaptive": ADAPTIVE,
    "uat": UAT,
    "mc-uniform": MC_UNIFORM,
    "mc-component": MC_COMPONENT,
    "mc-global": MC_GLOBAL,
}
"""What the second stage may be."""


@dataclass(frozen=True)
class Escalation:
    """Which texts go on to the second stage, and how the logits of the two stages come to one scale.

    A text goes on where the largest softmax(logits / first_temperature) is below `threshold`. The logits of its second
    stage are divided by then_temperature·sqrt(1 + widening·π/8·σ²), σ² the variance of their margin; those of a text
    that stays, by first_temperature. Calibrating learns all four. The defaults scale nothing.
    """

    threshold: float = 0.9
    first_temperature: float = 1.0
    then_temperature: float = 1.0
    widening: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ConfigurationError(
                f"threshold={self.threshold!r} is not in [0, 1]: 0 sends no text on to the second stage, 1 nearly all."
            )
        if min(self.first_temperature, self.then_temperature) <= 0 or self.widening < 0:
            raise ConfigurationError(
                f"first_temperature={self.first_temperature!r}, then_temperature={self.then_temperature!r}, "
                f"widening={self.widening!r}: allowed are temperatures above 0 and a widening from 0 on."
            )


PLAIN = Escalation()
OWN = tuple(field.name for field in fields(Escalation))


@dataclass(frozen=True)
class Cascade:
    """The base's pass for every text, and `then` for those whose confidence is below a threshold.

    Logits are those of the last stage that a text came to. A text that stays has one pass and no variance.
    """

    then: Second = FAST
    escalation: Escalation = PLAIN
    summary: str = "one deterministic pass; only texts in doubt get a second method (then=fast, analytic, adaptive)"
    trained: bool = False

    @property
    def name(self) -> str:
        key, _, settings = self.then.name.partition(":")
        parts = [*([] if key == "fast" else [f"then={key}"]), *differences(self.escalation, PLAIN)]
        parts += [settings] if settings else []
        return f"cascade:{','.join(parts)}" if parts else "cascade"

    @property
    def stochastic(self) -> bool:
        return self.then.stochastic

    @property
    def passes(self) -> int:
        return 1 + self.then.passes

    @property
    def knows_variance(self) -> bool:
        return self.then.knows_variance

    def changed(self, **settings: str) -> Self:
        escalation, others = take(self.escalation, settings, OWN)
        then = self.then
        if "then" in others:
            key = others.pop("then")
            check_choice("then", key, SECONDS)
            then = SECONDS[key]
        return replace(self, then=then.changed(**others), escalation=escalation)

    def seeded(self, seed: int) -> Self:
        return replace(self, then=self.then.seeded(seed))

    def untuned(self) -> Self:
        """The same method before anything was learned."""
        then = self.then.untuned() if isinstance(self.then, Adaptive) else self.then
        return replace(self, then=then, escalation=PLAIN)

    def to_dict(self) -> dict[str, Any]:
        return {"method": "cascade", "then": self.then.to_dict(), "escalation": asdict(self.escalation)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The method that `to_dict` described, with seed 0."""
        described = values["then"]
        then = SECONDS[described["method"]]
        if isinstance(then, Adaptive):
            then = Adaptive.from_dict(described)
        else:
            then = then.with_config(UATConfig.from_dict(described["config"]))
        return cls(then, Escalation(**values["escalation"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], first: Passes | None = None) -> Passes:
        """Logits (passes of the second stage, batch, classes), NaN where a text has fewer.

        `first` is the base's pass over the same texts, where the caller has it.
        """
        first = BASE.run(model, encoded) if first is None else first
        rows = self.escalates(first.logits[0])
        second = self.then.run(model, {name: value[rows] for name, value in encoded.items()}) if len(rows) else None
        return join(first, rows, second, self)

    def escalates(self, logits: Tensor) -> Tensor:
        """The rows that go on to the second stage, from the logits of the first (batch, classes)."""
        confidence = (logits / self.escalation.first_temperature).softmax(dim=-1).amax(dim=-1)
        return (confidence < self.escalation.threshold).nonzero().flatten().cpu()


def join(first: Passes, rows: Tensor, second: Passes | None, cascade: Cascade) -> Passes:
    """The passes of all texts: those at `rows` from the second stage, the others from the first."""
    own = first.logits[0].cpu()
    logits = own.new_full((cascade.then.passes, *own.shape), float("nan"))
    logits[0] = own / cascade.escalation.first_temperature
    counts = rows.new_ones(len(own))
    spent = rows.new_ones(len(own))
    known = second is not None and second.margin_variance is not None
    variance = own.new_zeros(len(own)) if known or isinstance(cascade.then, Analytic) else None
    if second is not None:
        run = rows.new_full((len(rows),), len(second.logits)) if second.counts is None else second.counts.cpu()
        logits[:, rows] = scaled(second, run, cascade.escalation)
        counts[rows] = run
        spent[rows] = 1 + run
        if variance is not None and second.margin_variance is not None:
            variance[rows] = second.margin_variance.detach().cpu()
    return Passes(logits, variance, counts=counts, spent=spent)


def scaled(second: Passes, counts: Tensor, escalation: Escalation) -> Tensor:
    """Logits (passes, batch, classes) of a second stage over their temperature, each text's own where one widens."""
    logits = second.logits.cpu() / escalation.then_temperature
    if escalation.widening == 0:
        return logits
    if second.margin_variance is not None:
        variance = second.margin_variance.detach().cpu().numpy()
    else:
        variance = margin_variance(second.logits.double().cpu().numpy(), counts.numpy())
    scales = logits.new_tensor(widened(variance, escalation.widening))
    return logits * scales[:, None]


CASCADE = Cascade()
