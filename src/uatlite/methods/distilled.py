"""UAT-Lite in one pass: the teacher's variance is read off the plain pass, by a ridge regression.

The variance that dropout would give the margin is nearly a linear function, in logarithms, of what the head reads.
Calibrating runs the teacher on the calibration texts, whose labels are not needed for it, and fits

    log(σ² + 1e-4) ≈ w · [what the head reads, top-3 logits, margin, entropy] + b

with the penalty that leave-one-out prediction likes best. Predicting then costs the plain pass and a dot product.
Of a model of many labels it is the variance of each label's logit, from [what the head reads, all logits, the top 3].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from uatlite.errors import ConfigurationError, check_choice
from uatlite.methods.method import CalibrationRows, Method, MethodDefaults, Passes, Tuned
from uatlite.methods.one_pass import ANALYTIC, BASE, Analytic
from uatlite.methods.read_out import (
    FEWEST_TEXTS,
    FLOOR,
    ReadOut,
    features_of,
    fit_read_out,
    label_features_of,
    sampling_noise,
)
from uatlite.methods.sampling import FAST, MC_COMPONENT, MC_GLOBAL, MC_UNIFORM, UAT, Sampling
from uatlite.passes.config import UATConfig
from uatlite.predictive import PassLogits
from uatlite.spelling import spelling
from uatlite.values import Floats

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates

Teacher = Sampling | Analytic

TEACHERS: dict[str, Teacher] = {
    "fast": FAST,
    "analytic": ANALYTIC,
    "uat": UAT,
    "mc-uniform": MC_UNIFORM,
    "mc-component": MC_COMPONENT,
    "mc-global": MC_GLOBAL,
}
"""Whose variance may be read off."""

ARRAY = "read_out"
"""The name under which its numbers are stored."""


@dataclass(frozen=True)
class Distilled(MethodDefaults):
    """One plain pass, and the variance that `teacher` would find, by a read-out that calibrating fits.

    Before it is fitted, or where the read-out is poor, the teacher itself runs. Of many labels the teacher samples:
    where the read-out is poor the plain pass runs instead, and there are no variances.

    Of a token classifier the variances are those of candidate tokens, and what the head reads is that of the token.
    Before the read-out is fitted the plain model runs alone, so that its entities are those of the model as it is.
    """

    teacher: Teacher = ANALYTIC
    read_out: ReadOut | None = None
    summary: str = "UAT-Lite read off one plain pass, fitted when calibrating (of=analytic, uat, ...); for +its"
    knows_variance: bool = True

    @property
    def name(self) -> str:
        parts = [] if self.teacher == ANALYTIC else [f"of={self.teacher.name.replace(':', ',')}"]
        return spelling("distilled", parts)

    @property
    def reads(self) -> bool:
        """Whether the read-out is used, and not the teacher."""
        return self.read_out is not None and self.read_out.serves and self.read_out.loaded

    @property
    def instead(self) -> Method:
        """What runs where the read-out is not used."""
        return BASE if self.read_out is not None and self.read_out.of_labels else self.teacher

    @property
    def stochastic(self) -> bool:
        return self.teacher.stochastic

    @property
    def seed(self) -> int:
        return self.teacher.seed

    @property
    def passes(self) -> int:
        return 1 if self.reads else self.instead.passes

    @property
    def cost(self) -> int:
        return 1 if self.reads else self.instead.cost

    @property
    def config(self) -> UATConfig:
        return self.teacher.config

    @property
    def sampled(self) -> UATConfig | None:
        return None if self.reads else self.instead.sampled

    @property
    def tunable(self) -> bool:
        return self.read_out is None or not self.read_out.loaded

    def changed(self, **settings: str) -> Self:
        key = settings.pop("of", None)
        if key is not None:
            check_choice("of", key, TEACHERS)
        teacher = self.teacher if key is None else TEACHERS[key]
        return replace(self, teacher=teacher.changed(**settings) if settings else teacher)

    def seeded(self, seed: int) -> Self:
        return replace(self, teacher=self.teacher.seeded(seed))

    def with_config(self, config: UATConfig) -> Self:
        """The read-out is of the old configuration; with another one the teacher runs."""
        read_out = self.read_out if config == self.config else None
        return replace(self, teacher=self.teacher.with_config(config), read_out=read_out)

    def untuned(self) -> Self:
        return replace(self, read_out=None)

    def to_dict(self) -> dict[str, Any]:
        read_out = None if self.read_out is None else self.read_out.to_dict()
        return {"method": "distilled", "read_out": read_out, "teacher": self.teacher.to_dict()}

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        described = values["teacher"]
        teacher = TEACHERS[described["method"]].from_dict(described)
        state = values["read_out"]
        read_out = None if state is None else ReadOut.empty(**state)
        return replace(self, teacher=teacher, read_out=read_out)

    def to_arrays(self) -> dict[str, Floats]:
        return {} if self.read_out is None else {ARRAY: self.read_out.to_array()}

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Self:
        if self.read_out is None:
            return self
        if ARRAY not in arrays:
            raise ConfigurationError("the weights of the read-out are missing; copy the whole directory.")
        return replace(self, read_out=ReadOut.from_array(arrays[ARRAY], self.read_out.to_dict()))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """The plain logits (1, batch, classes), the variance read off them (batch,), and what the head reads."""
        if not self.reads:
            return self.instead.run(model, encoded)
        plain = BASE.run(model, encoded)
        logits, read = plain.logits.double().cpu().numpy(), plain.representation
        outputs = PassLogits(logits, representations=None if read is None else read.double().cpu().numpy())
        said = self.read_from(outputs)
        assert said is not None
        assert said.given_variance is not None
        return replace(plain, margin_variance=plain.logits.new_tensor(said.given_variance))

    def run_tokens(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], candidates: Candidates) -> Passes:
        """The plain logits (1, batch, tokens, classes), and the variances read off them (batch, tokens)."""
        import torch

        if self.read_out is not None and not self.reads:
            return self.teacher.run_tokens(model, encoded, candidates)
        plain = BASE.run(model, encoded)
        if self.read_out is None:
            return plain
        logits = plain.logits[0]
        chosen = candidates(torch.arange(len(logits), device=logits.device), logits).to(logits.device)
        read = plain.representation
        outputs = PassLogits(
            logits[chosen].double().cpu().numpy()[None],
            representations=None if read is None else read[chosen].double().cpu().numpy(),
        )
        said = self.read_from(outputs)
        assert said is not None
        assert said.given_variance is not None
        variances = torch.full(chosen.shape, torch.nan, device=logits.device)
        variances[chosen] = logits.new_tensor(said.given_variance)
        return replace(plain, margin_variance=variances)

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        if self.read_out is None or not self.reads:
            return plain if self.instead is BASE else None
        features = label_features_of(plain) if self.read_out.of_labels else features_of(plain)
        if features.shape[1] != len(self.read_out.weights):
            raise ConfigurationError(
                f"the read-out has {len(self.read_out.weights)} weights and the model gives {features.shape[1]} "
                "features: it was fitted on another model. Calibrate again."
            )
        return replace(plain, given_variance=self.read_out.variance(features))

    def tuned(self, rows: CalibrationRows) -> Tuned:
        """Fit the read-out on the calibration texts, and on the reference texts where there are some."""
        plain, (places, taught) = rows.run(BASE), rows.teach(self.teacher)
        read = label_features_of if rows.many else features_of
        every, variance = read(plain), taught.label_variance if rows.many else taught.margin_variance
        assert variance is not None
        features, own, name = every[places], len(places), self.teacher.name
        runs = "the plain pass runs, without variances" if rows.many else f"{name} itself runs"
        if own < FEWEST_TEXTS:
            nothing = ReadOut.empty(0.0, 0.0, own, features.shape[1], *variance.shape[1:])
            reason = f"Distilled: {own} {rows.unit} are too few to fit a read-out ({FEWEST_TEXTS}); {runs}."
            return Tuned(replace(self, read_out=nothing), reason, plain if rows.many else taught)
        if rows.run_reference is not None:
            more = rows.run_reference(self.teacher)
            others = more.label_variance if rows.many else more.margin_variance
            assert others is not None
            features = np.concatenate([features, read(rows.run_reference(BASE))])
            variance = np.concatenate([variance, others])
        # Masks that texts share give all of them the same noise, which a read-out would learn: it cannot be taken out.
        drawn = taught.given_variance is None and self.config.per_input
        noise = sampling_noise(len(taught.logits)) if drawn else 0.0
        read_out, left_out = fit_read_out(features, variance, own, noise)
        found = replace(self, read_out=read_out)
        measured = (
            f"R² {read_out.r2:.2f}, rank correlation {read_out.rank_correlation:.2f}, cross-validated on {own} "
            f"{rows.unit}"
        )
        if not read_out.serves:
            reason = (
                f"Distilled: the variance of {name} cannot be read off one pass here ({measured}; {FLOOR} is asked "
                f"for), so {runs}."
            )
            whole = None if len(places) < len(every) else taught
            return Tuned(found, reason, plain if rows.many else whole)
        reason = f"Distilled: the variance of {name}, read off one plain pass ({measured})."
        said = read_out.variance(every)
        said[places] = left_out
        return Tuned(found, reason, replace(plain, given_variance=said))


DISTILLED = Distilled()
