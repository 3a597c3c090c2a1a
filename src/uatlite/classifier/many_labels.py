"""Many labels a text: which of them are reported, which are in doubt, and whether a person should look."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.display import BELOW, NO_PROMISE, UNSTABLE
from uatlite.classifier.predictions import CONFIDENCE, LOG_ODDS, WORDING, Predictions
from uatlite.classifier.record import CalibrationOptions, Evidence, Figures
from uatlite.classifier.runtime import Outputs, run
from uatlite.errors import ConfigurationError, check_choice
from uatlite.metrics.answers import LabelRows
from uatlite.metrics.intervals import intervals
from uatlite.predictive import sigmoid
from uatlite.text.labels import label_matrix
from uatlite.trust.answers import AnswerCalibrator, Answers
from uatlite.trust.promise import Labelled
from uatlite.trust.rule import RuleKind, Wanted
from uatlite.values import Floats, Kind, Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explained
    from uatlite.classifier.product import Predictor

EVEN = 0.5
"""Without a rule a label is reported above this probability."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelPredictions(Predictions):
    """The labels of texts. There is an answer for each text and label, text by text: does the label apply?

    A label is `reported` (the rule says yes), `withheld` (in doubt: not sure enough to report, too likely to rule out)
    or neither, which says no.
    """

    shown = ("labels", "abstain", "reason", "confidence", "scope")
    seconds: ClassVar[dict[str, str]] = {"second_labels": "labels", "second_confidence": "confidence"}
    words = WORDING["labels"]
    promises: ClassVar[dict[str, RuleKind]] = {"target_risk": "precision", "target_errors": "per-text"}

    @classmethod
    def of(
        cls, texts: Sequence[Text], reading: Outputs, calibrator: AnswerCalibrator | None, classes: tuple[str, ...]
    ) -> Self:
        answers = label_answers(reading.mean_logits, reading.label_variance)
        return cls(
            texts=tuple(texts),
            classes=classes,
            answers=answers,
            sure=sigmoid(answers.log_odds) if calibrator is None else calibrator.confidence(answers),
            passes=reading.passes,
            cut=reading.cut,
        )

    @property
    def probabilities(self) -> Floats:
        """(texts, labels): that each label applies, calibrated where the labeler is."""
        return self._matrix(self.sure)

    @property
    def logits(self) -> Floats:
        """(texts, labels): the mean over passes, before calibration."""
        return self._matrix(self.answers.log_odds)

    @property
    def logit_variance(self) -> Floats | None:
        """(texts, labels): of each logit under dropout; None where it is not known."""
        return None if self.answers.variance is None else self._matrix(self.answers.variance)

    def _matrix(self, values: NDArray[Any]) -> NDArray[Any]:
        """(texts, labels) of (answers,)."""
        return values.reshape(len(self), len(self.classes))

    @cached_property
    def reported(self) -> Marks:
        """(texts, labels): True where a label is reported; without a rule where its probability is above one half.

        Of a text out of scope nothing is reported.
        """
        return self._matrix(self.reports)

    @cached_property
    def withheld(self) -> Marks:
        """(texts, labels): True where a label is in doubt: not reported, and likelier than the rule allows for errors.

        With a precision of 0.9 promised, a label that is not reported and has a probability above 0.1 is in doubt: to
        deny it would be wrong more often than one answer in ten. Raises where there is no rule.
        """
        self._check_rule()
        allowed = min([EVEN, *(rule.target for rule in self.rules if rule.target is not None)])
        return ~self.reported & (self.probabilities > allowed)

    def thresholds(self, calibrator: AnswerCalibrator | None) -> Floats:
        """(texts, labels): the probability above which each label is reported; infinite where none is.

        A rule on log-odds has one threshold for all labels; the calibrator turns it into a probability for each.
        """
        rule = self.rule
        if rule is None or calibrator is None:
            return np.full_like(self.logits, EVEN)
        if rule.score != LOG_ODDS or np.isinf(rule.threshold):
            return np.full_like(self.logits, max(rule.threshold, 0.0))  # no threshold: above a probability of 0
        at_threshold = replace(self.answers, log_odds=np.full(len(self.answers), rule.threshold))
        return self._matrix(calibrator.confidence(at_threshold))

    @property
    def labels(self) -> list[tuple[str | int, ...]]:
        """For each text the labels that are reported, by name (or by column, as the labeler was told)."""
        return [self._names(row) for row in self.reported]

    @property
    def withheld_labels(self) -> list[tuple[str | int, ...]]:
        """For each text the labels that are in doubt, as in `labels`."""
        return [self._names(row) for row in self.withheld]

    @property
    def log_odds(self) -> Floats:
        """(texts,): the highest logit of a label; a shift is told by it."""
        return np.asarray(self.logits.max(axis=1, initial=-np.inf))

    @property
    def confidence(self) -> Floats:
        """(texts,): how sure the yes or no is of the label that is least sure: the least max(p, 1 - p)."""
        return np.asarray(np.maximum(self.probabilities, 1.0 - self.probabilities).min(axis=1, initial=1.0))

    def labelled(self, gold: NDArray[Any], wanted: Wanted) -> Labelled:
        return Labelled(
            {LOG_ODDS: self.answers.log_odds, CONFIDENCE: self.sure},
            ~gold.ravel(),
            self.answers.text,
            len(self),
            least=LEAST,
            gold=gold.sum(axis=1),
            covered="gold labels",
        )

    @property
    def outcomes(self) -> Sequence[object]:
        return self.labels

    @property
    def _reported(self) -> Marks:
        return super()._reported if self.rules else self.sure > EVEN

    def _cases(self) -> dict[str, Marks]:
        """No label is reported and one is in doubt."""
        assert self.rule is not None
        promised = self.rule.promised
        doubt = self.withheld.any(axis=1) if promised else np.ones(len(self), dtype=np.bool_)
        unsure = np.asarray(doubt & ~self.reported.any(axis=1))
        return {NO_PROMISE: unsure & (not promised), UNSTABLE: unsure & self._unstable, BELOW: unsure}

    def _above(self) -> Floats:
        """The highest score minus the threshold."""
        assert self.rule is not None
        scores = self._matrix(self.scores(self.rule.score))
        return np.asarray(scores.max(axis=1, initial=-np.inf) - self.rule.threshold)

    @property
    def _unstable(self) -> Marks:
        """(texts,): whether a standard deviation over the passes turns the likeliest label from yes to no, or back."""
        if self.logit_variance is None or not len(self):
            return np.zeros(len(self), dtype=np.bool_)
        rows, top = np.arange(len(self)), self.probabilities.argmax(axis=1)
        spread = np.sqrt(self.logit_variance[rows, top])
        return np.asarray((np.abs(self.logits[rows, top]) <= spread) & (spread > 0.0))

    def _names(self, row: Marks) -> tuple[str | int, ...]:
        return tuple(self.names[column] for column in np.flatnonzero(row).tolist())

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"labels": self.labels, "confidence": self.confidence, "log_odds": self.log_odds}
        if self.rules:
            columns["withheld"] = self.withheld_labels
        for prefix, values in (("p", self.probabilities), ("variance", self.logit_variance)):
            if values is not None:
                columns |= {f"{prefix}_{name}": column for name, column in zip(self.classes, values.T, strict=True)}
        return columns

    @property
    def counted(self) -> str:
        reported = f"{int(self.reported.sum()):,} labels reported"
        return f"{reported}, {int(self.withheld.sum()):,} in doubt" if self.rules else reported


def label_answers(logits: Floats, variance: Floats | None) -> Answers:
    """One answer for each text and label, text by text: does the label apply?

    Its log-odds are the label's logit, the mean over passes; its variance is that of the logit under dropout. Both are
    (texts, labels).
    """
    texts, labels = logits.shape
    return Answers(
        text=np.repeat(np.arange(texts), labels),
        kind=np.tile(np.arange(labels), texts),
        log_odds=logits.ravel(),
        variance=None if variance is None else variance.ravel(),
        texts=texts,
    )


_SHOWN = ("label_nll", "label_ece", "label_brier", "micro_f1")
"""The metrics of figures."""
_FOLDS = 3
_FEWEST_TEXTS = 20
"""Of a fold of figures."""
LEAST = 0.1
"""A label at or below this probability is never reported: a promise is planned for those that may be."""


class ManyLabels(AnswerKind[Outputs, LabelPredictions]):
    """A text has any number of labels."""

    name: Kind = "labels"
    predictions = LabelPredictions
    read = staticmethod(run)

    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> Marks:
        return label_matrix(given, classes)

    def fit(self, reading: Outputs, gold: Marks, options: CalibrationOptions, rows: Marks) -> AnswerCalibrator:
        answers = label_answers(reading.mean_logits, reading.label_variance)
        return AnswerCalibrator.fit(answers.of_texts(rows), gold[rows].ravel())

    def evidence(
        self,
        said: LabelPredictions,
        gold: Marks,
        reading: Outputs,
        read_plain: Callable[[], Outputs],
        calibrator: AnswerCalibrator,
        options: CalibrationOptions,
        free: Marks,
    ) -> Evidence:
        """Figures of the probabilities of each text by a calibrator that was fitted without it."""
        if len(gold) < _FOLDS * _FEWEST_TEXTS:
            return Evidence()
        folds = np.random.default_rng(options.seed).permutation(len(gold)) % _FOLDS
        answers, right, probs = said.answers, gold.ravel(), np.zeros(gold.shape)
        for fold in range(_FOLDS):
            out = folds == fold
            fitted = AnswerCalibrator.fit(answers.of_texts(~out), right[~out[answers.text]])
            probs[out] = fitted.confidence(answers.of_texts(out)).reshape(-1, gold.shape[1])
        before, after = (
            intervals(LabelRows.of(values, gold.astype(np.int64)).estimates().chosen(*_SHOWN))
            for values in (sigmoid(said.logits), probs)
        )
        basis = f"calibration data: {len(gold)} texts, cross-validated"
        return Evidence(Figures(basis, len(gold), calibrated=after, uncalibrated=before))

    def explained(self, predictor: "Predictor", text: Text, which: str | int | None) -> "Explained":
        from uatlite.attribution.first_order import every_logit
        from uatlite.classifier.explainer import run_text
        from uatlite.classifier.explanation import Explained

        read = run_text(predictor, text)
        names, probs = zip(*read["prediction"].probabilities.items(), strict=True)
        if isinstance(which, int):
            if not 0 <= which < len(names):
                raise ConfigurationError(f"label={which} is no column of this model; it has 0 to {len(names) - 1}.")
        elif which is not None:
            check_choice("label", which, names)
            which = names.index(which)
        column = int(np.abs(np.array(probs) - EVEN).argmin()) if which is None else which
        label = names[column]
        return Explained(
            **read,
            output=lambda rows, logits: every_logit(rows, logits)[column : column + 1],
            number=column,
            label=label,
            about=f"{label} with probability {probs[column]:.3f}; its logit",
            facts={"label": label, "probability": probs[column]},
        )


LABELS = ManyLabels()
