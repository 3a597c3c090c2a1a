"""What a method learns from calibration texts: each method runs over them once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.calibrate import CalibrationOptions, Learned, split
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, Runtime
from uatlite.classifier.settings import Settings
from uatlite.methods.method import TAUGHT, CalibrationRows, Method, Tuned
from uatlite.methods.one_pass import BASE
from uatlite.predictive import PassLogits
from uatlite.trust.gaussians import ScopeFit
from uatlite.values import Text

REFERENCE_BLOCK = 2048
"""Reference texts that are read at once: what is kept of them does not grow with their number."""
Report = Callable[[int], None]
"""Called with the number of texts that a pass has read."""


@dataclass(eq=False)
class CalibrationTexts:
    """Labelled texts, and unlabelled ones of the same task, with what methods say about them."""

    runtime: Runtime
    settings: Settings
    texts: list[Text]
    labels: NDArray[np.int64]
    """(texts,)"""
    reference: Sequence[Text] = ()
    report: Report | None = None
    _runs: dict[tuple[str, str], Outputs] = field(default_factory=dict)

    def learn(self, options: CalibrationOptions) -> Learned:
        """The method with what it learns from these texts, and what it says about them."""
        method = self.settings.method
        fitting, _ = split(self.labels, options, options.calibrator_of(method), learns=method.tunable)
        tuned = Tuned(method, "")
        if method.tunable:
            some = [text for text, chosen in zip(self.texts, fitting, strict=True) if chosen]
            rows = CalibrationRows(
                self.labels[fitting],
                lambda asked: self._run(asked, "calibration").take(fitting),
                (lambda asked: self._run(asked, "reference")) if self.reference else None,
                run_some=lambda asked, places: self.run_over(asked, [some[place] for place in places.tolist()]),
            )
            tuned = method.tuned(rows)
        settings = replace(self.settings, method=tuned.method.seeded(self.settings.seed))
        plain = self._run(BASE, "calibration")
        return Learned(
            settings=settings,
            outputs=self._outputs(settings.method, plain, tuned.outputs, fitting),
            plain=plain,
            reference=self._read_reference(settings) if self.reference else None,
            spending=(tuned.reason,) if tuned.reason else (),
            learns=method.tunable,
        )

    def _outputs(
        self, method: Method, plain: Outputs, learned_from: PassLogits | None, fitting: NDArray[np.bool_]
    ) -> PassLogits:
        """What the method says about all rows; those that it learned from as if it had not."""
        if method.to_dict() == BASE.to_dict():
            return plain
        if learned_from is None:
            return self._run(method, "calibration")
        said = method.read_from(plain)
        if said is None:
            return self._run(method, "calibration")
        variance = said.given_variance
        if variance is None or learned_from.given_variance is None:
            return said
        own = variance.copy()
        own[fitting] = learned_from.given_variance
        return replace(said, given_variance=own)

    def _run(self, method: Method, which: str) -> Outputs:
        """What a method says about the calibration texts, or about some of the reference texts; run once."""
        key = which, repr(method.to_dict())
        if key not in self._runs:
            self._runs[key] = self.run_over(method, self.texts if which == "calibration" else self._some_reference())
        return self._runs[key]

    def run_over(self, method: Method, texts: list[Text]) -> Outputs:
        """What a method says about some texts."""
        settings = replace(self.settings, method=method.seeded(self.settings.seed))
        outputs = run(self.runtime, texts, settings)
        self._tell(len(texts))
        return outputs

    def _some_reference(self) -> list[Text]:
        order = np.random.default_rng(0).permutation(len(self.reference))[:TAUGHT]
        return [self.reference[place] for place in np.sort(order).tolist()]

    def _read_reference(self, settings: Settings) -> ScopeFit | None:
        """What the scope keeps of the reference texts, block by block; None where the model shows no representation."""
        fit: ScopeFit | None = None
        for start in range(0, len(self.reference), REFERENCE_BLOCK):
            texts = list(self.reference[start : start + REFERENCE_BLOCK])
            outputs = run(self.runtime, texts, settings)
            self._tell(len(texts))
            if outputs.representations is None:
                return None
            logits = outputs.mean_logits
            fit = fit or ScopeFit(outputs.representations.shape[1], logits.shape[1])
            fit.add(outputs.representations, logits.argmax(axis=1))
        return fit

    def _tell(self, texts: int) -> None:
        if self.report is not None:
            self.report(texts)
