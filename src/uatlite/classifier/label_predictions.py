"""What a labeler says about some texts: a value that reads, slices, prints and becomes a table."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.display import SHOWN, as_list, excerpt
from uatlite.classifier.predictions import TextPrediction, TextPredictions
from uatlite.classifier.reasons import BELOW, DISAGREE, NO_PROMISE, first_reason
from uatlite.classifier.several import LOG_ODDS
from uatlite.errors import CalibrationError
from uatlite.trust.grouped import GroupedRule
from uatlite.values import Floats

EVEN = 0.5
"""Without a rule a label is reported above this probability."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelPredictions(TextPredictions["LabelPrediction"]):
    """The labels of texts; rows are texts, in the order in which they were given.

    A label is `reported` (the rule says yes), `withheld` (in doubt: not sure enough to report, too likely to rule out)
    or neither, which says no. It is a sequence: `pred[0]` is a `LabelPrediction`, `pred[2:5]` and `pred[pred.abstain]`
    are LabelPredictions of these texts.
    """

    by_text = (*TextPredictions.by_text, "probabilities", "logits", "logit_variance")

    probabilities: Floats
    """(texts, labels): that each label applies, calibrated where the labeler is"""
    logits: Floats
    """(texts, labels): the mean over passes, before calibration"""
    logit_variance: Floats | None
    """(texts, labels): of each logit under dropout; None where it is not known"""
    rule: GroupedRule | None = None
    """the rule that calibration made, and what it promises; None where none was asked for"""

    @cached_property
    def scores(self) -> Floats:
        """(texts, labels): what the rule ranks labels by."""
        raw = self.rule is None or self.rule.score == LOG_ODDS
        return self.logits if raw else self.probabilities

    @cached_property
    def reported(self) -> NDArray[np.bool_]:
        """(texts, labels): True where a label is reported; without a rule where its probability is above one half.

        Of a text out of scope nothing is reported.
        """
        if self.rule is None:
            found = self.probabilities > EVEN
        else:
            labels = len(self.classes)
            text = np.repeat(np.arange(len(self)), labels)
            found = self.rule.reports(self.scores.ravel(), text).reshape(len(self), labels)
        return found if self.out_of_scope is None else found & ~self.out_of_scope[:, None]

    @cached_property
    def withheld(self) -> NDArray[np.bool_]:
        """(texts, labels): True where a label is in doubt: not reported, and likelier than the rule allows for errors.

        With a precision of 0.9 promised, a label that is not reported and has a probability above 0.1 is in doubt: to
        deny it would be wrong more often than one answer in ten. Raises where there is no rule.
        """
        rule = self._required_rule()
        return ~self.reported & (self.probabilities > min(rule.target, EVEN))

    @cached_property
    def abstain(self) -> NDArray[np.bool_]:
        """(texts,): True where not to answer: out of scope, or no label is reported and one is in doubt.

        Raises where no rule was asked for: silence would read as 'answer'.
        """
        rule = self._required_rule()
        doubt = self.withheld.any(axis=1) if rule.promised else np.ones(len(self), dtype=np.bool_)
        unsure = doubt & ~self.reported.any(axis=1)
        return np.asarray(unsure if self.out_of_scope is None else unsure | self.out_of_scope)

    @property
    def labels(self) -> list[tuple[str, ...]]:
        """For each text the labels that are reported, by name."""
        return [self._names(row) for row in self.reported]

    @property
    def withheld_labels(self) -> list[tuple[str, ...]]:
        """For each text the labels that are in doubt, by name."""
        return [self._names(row) for row in self.withheld]

    @cached_property
    def reasons(self) -> list[str]:
        """For each text why it is answered or not, one of `uatlite.classifier.reasons.REASONS`; needs no rule."""
        cases = None
        if self.rule is not None:
            unpromised = self.abstain & (not self.rule.promised)
            cases = {NO_PROMISE: unpromised, DISAGREE: self.abstain & self._disagree, BELOW: self.abstain}
        return first_reason(cases, out_of_scope=self.out_of_scope, cut=self.cut_tokens)

    @property
    def log_odds(self) -> Floats:
        """(texts,): the highest logit of a label; a shift is told by it."""
        return np.asarray(self.logits.max(axis=1, initial=-np.inf))

    @property
    def confidence(self) -> Floats:
        """(texts,): how sure the yes or no is of the label that is least sure: the least max(p, 1 - p)."""
        return np.asarray(np.maximum(self.probabilities, 1.0 - self.probabilities).min(axis=1, initial=1.0))

    @cached_property
    def above_threshold(self) -> Floats:
        """(texts,): the highest score minus the threshold; NaN without a rule or a finite threshold."""
        if self.rule is None or not np.isfinite(self.rule.threshold):
            return np.full(len(self), np.nan)
        return np.asarray(self.scores.max(axis=1, initial=-np.inf) - self.rule.threshold)

    @property
    def _disagree(self) -> NDArray[np.bool_]:
        """(texts,): whether a standard deviation over the passes turns the likeliest label from yes to no, or back."""
        if self.logit_variance is None or not len(self):
            return np.zeros(len(self), dtype=np.bool_)
        rows, top = np.arange(len(self)), self.probabilities.argmax(axis=1)
        spread = np.sqrt(self.logit_variance[rows, top])
        return np.asarray((np.abs(self.logits[rows, top]) <= spread) & (spread > 0.0))

    def _required_rule(self) -> GroupedRule:
        if self.rule is None:
            raise CalibrationError(
                "there is no rule to report labels by; ask for one: calibrate(texts, labels, target_precision=0.9), or "
                "target_wrong=0.1 for at most one wrong label in ten texts."
            )
        return self.rule

    def _names(self, row: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.classes[place] for place in np.flatnonzero(row))

    def _one(self, row: int) -> "LabelPrediction":
        return LabelPrediction(self, row)

    def __repr__(self) -> str:
        heading = f"{len(self):,} texts, {len(self.classes)} labels"
        if self.rule is not None and len(self):
            shares = int(self.reported.sum()), int(self.withheld.sum()), int(self.abstain.sum())
            heading += "; {:,} labels reported, {:,} in doubt; {:,} texts abstained on".format(*shares)
        lines = [f"{excerpt(one.text):<60}  {', '.join(one.labels) or '–':<30}  {one.why}" for one in self[:SHOWN]]
        return as_list(self, heading, lines)


@dataclass(frozen=True, eq=False, repr=False)
class LabelPrediction(TextPrediction[LabelPredictions]):
    """What a labeler says about one text."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are reported."""
        return self.among._names(self.among.reported[self.row])

    @property
    def withheld(self) -> tuple[str, ...]:
        """The labels that are in doubt; raises as `LabelPredictions.withheld` does."""
        return self.among._names(self.among.withheld[self.row])

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each label by its name."""
        return dict(zip(self.among.classes, self.among.probabilities[self.row].tolist(), strict=True))

    @property
    def variances(self) -> dict[str, float] | None:
        """The variance of each label's logit under dropout by its name; None where it is not known."""
        known = self.among.logit_variance
        return None if known is None else dict(zip(self.among.classes, known[self.row].tolist(), strict=True))

    def as_row(self) -> dict[str, object]:
        """labels, abstain, withheld, reason, above_threshold, confidence, log_odds, passes, cut_tokens, scope, ...,
        p_<label>, variance_<label>.

        What was not asked for at calibration (abstain, withheld and above_threshold) is left out, and so are a scope
        and variances that are not known.
        """
        among, at = self.among, self.row
        row: dict[str, object] = {"labels": list(self.labels)}
        if among.rule is not None:
            row |= {"abstain": self.abstain, "withheld": list(self.withheld)}
        row["reason"] = self.reason
        if among.rule is not None:
            row["above_threshold"] = self.above_threshold
        row |= {"confidence": float(among.confidence[at]), "log_odds": float(among.log_odds[at])}
        row |= self._reading()
        row |= {f"p_{name}": value for name, value in self.probabilities.items()}
        return row | {f"variance_{name}": value for name, value in (self.variances or {}).items()}

    def __repr__(self) -> str:
        lines = [f"{name:<20} {value}" for name, value in self.as_row().items()]
        return "\n".join([f"Labels of {excerpt(self.text)!r}", *lines])
