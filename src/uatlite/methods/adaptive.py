"""UAT-Lite that stops early: passes in blocks, until the decision about a text is settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from uatlite.methods.method import CalibrationRows, Passes, Tuned
from uatlite.methods.sampling import FAST, Sampling
from uatlite.passes.config import UATConfig, change, change_known, differences, spelling
from uatlite.passes.stopping import Stopping, fit_prior
from uatlite.predictive import PassLogits, softmax
from uatlite.trust.calibrators import best_temperature

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

CAP = 10
STANDARD = UATConfig.fast(samples=CAP)
BY_LABEL = Stopping()
DIGITS = 6
"""Of learned settings, which are spelt out in the method's name."""


@dataclass(frozen=True)
class Adaptive(Sampling):
    """At most `config.samples` passes; a text stops when its label, and whether to answer, are settled.

    Calibrating learns the threshold to answer above and how much passes usually differ. Before that only the label
    counts.
    """

    key: str = "adaptive"
    summary: str = "UAT-Lite in blocks of passes; a text stops when its decision is settled"
    standard: UATConfig = STANDARD
    config: UATConfig = STANDARD
    stopping: Stopping = BY_LABEL

    @property
    def name(self) -> str:
        return spelling(self.key, differences(self.stopping, BY_LABEL) + differences(self.config, self.standard))

    @property
    def sampled(self) -> UATConfig | None:
        return None

    @property
    def tunable(self) -> bool:
        return self == self.untuned()

    @property
    def learns_from_labels(self) -> bool:
        return self.tunable

    @property
    def whole(self) -> Sampling:
        """The same passes, all of them for every text."""
        return FAST.with_config(self.config)

    def changed(self, **settings: str) -> Self:
        stopping, others = change_known(self.stopping, settings)
        return replace(self, config=change(self.config, others, self.key), stopping=stopping)

    def untuned(self) -> Self:
        return replace(self, stopping=Stopping(confidence=self.stopping.confidence, block=self.stopping.block))

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"stopping": asdict(self.stopping)}

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        return replace(super().from_dict(values), stopping=Stopping(**values["stopping"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes), NaN where a text had stopped."""
        from uatlite.passes.engine import sample_adaptively

        found = sample_adaptively(model, encoded, self.config, self.stopping)
        return Passes(found.logits, counts=found.counts, representation=found.representation)

    def tuned(self, rows: CalibrationRows) -> Tuned:
        return Tuned(*self.learned(rows.run(self.whole), rows))

    def learned(self, whole: PassLogits, rows: CalibrationRows) -> tuple[Self, str]:
        """The method with what all passes of the rows teach, and a sentence that says it."""
        rows.check_labels()
        means = whole.mean_logits
        temperature = round(best_temperature(means, rows.labels), DIGITS)
        prior = dict(zip(("spread", "weight", "trend"), fit_prior(whole.logits), strict=True))
        settings: dict[str, Any] = {name: round(value, DIGITS) for name, value in prior.items()}
        if rows.boundary is not None:
            probabilities = softmax(means / temperature)
            threshold = rows.boundary(probabilities.max(axis=1), probabilities.argmax(axis=1) != rows.labels)
            if 0 < threshold < 1:  # answering all or none leaves nothing to settle
                settings |= {"boundary": round(float(np.log(threshold / (1 - threshold))), DIGITS)}
                settings |= {"temperature": temperature}
        tuned = replace(self, stopping=replace(self.stopping, **settings))
        passes = tuned.stopping.counts(whole.logits).mean()
        decision = "label and whether to answer are" if "boundary" in settings else "label is"
        return tuned, (
            f"Adaptive: a text stops when its {decision} that of all {self.passes} passes with a confidence of "
            f"{self.stopping.confidence:g}; {passes:.1f} passes a text on {len(rows.labels)} calibration rows."
        )

    def cut(self, whole: PassLogits) -> PassLogits:
        """What this method gives, from all passes of the same rows."""
        counts = self.stopping.counts(whole.logits)
        own = np.arange(len(whole.logits))[:, None] < counts
        return replace(whole, logits=np.where(own[..., None], whole.logits, np.nan), counts=counts)


ADAPTIVE = Adaptive()
