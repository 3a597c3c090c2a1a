"""What a labeler says about some texts: a value that reads, slices, prints and becomes a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.display import excerpt
from uatlite.classifier.reasons import ANSWERED, BELOW, CUT, DISAGREE, NO_PROMISE, NO_RULE, OUT_OF_SCOPE, sentence
from uatlite.classifier.several import LOG_ODDS
from uatlite.errors import CalibrationError, MissingDependency
from uatlite.trust.grouped import GroupedRule
from uatlite.trust.shift import ShiftReport
from uatlite.values import Floats, Integers, Text

if TYPE_CHECKING:
    import pandas as pd

EVEN = 0.5
"""Without a rule a label is reported above this probability."""
SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class LabelPredictions:
    """The labels of texts; rows are texts, in the order in which they were given.

    A label is `reported` (the rule says yes), `withheld` (in doubt: not sure enough to report, too likely to rule out)
    or neither, which says no. It is a sequence: `pred[0]` is a `LabelPrediction`, `pred[2:5]` and `pred[pred.abstain]`
    are LabelPredictions of these texts.
    """

    texts: tuple[Text, ...]
    classes: tuple[str, ...]
    """what the columns of `probabilities` are called"""
    probabilities: Floats
    """(texts, labels): that each label applies, calibrated where the labeler is"""
    logits: Floats
    """(texts, labels): the mean over passes, before calibration"""
    logit_variance: Floats | None
    """(texts, labels): of each logit under dropout; None where it is not known"""
    passes: Integers
    """(texts,): how many passes were run for each text"""
    rule: GroupedRule | None = None
    """the rule that calibration made, and what it promises; None where none was asked for"""
    scope: Floats | None = None
    """(texts,): p-values of being a text of the task"""
    out_of_scope: NDArray[np.bool_] | None = None
    """(texts,): where the p-value is at most the stated rate of false alarms"""
    shift: ShiftReport | None = None
    """whether these texts, all together, are like the calibration rows; None for a selection of them"""
    cut: Integers | None = None
    """(texts,): tokens that were cut off each text; None where none was"""

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
        outside = np.zeros(len(self), dtype=np.bool_) if self.out_of_scope is None else self.out_of_scope
        if self.rule is None:
            return np.select([outside, self.cut_tokens > 0], [OUT_OF_SCOPE, CUT], NO_RULE).tolist()  # type: ignore[no-any-return]
        cases = {
            OUT_OF_SCOPE: outside,
            NO_PROMISE: self.abstain & (not self.rule.promised),
            DISAGREE: self.abstain & self._disagree,
            BELOW: self.abstain,
            CUT: self.cut_tokens > 0,
        }
        return np.select(list(cases.values()), list(cases), ANSWERED).tolist()  # type: ignore[no-any-return]

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
    def cut_tokens(self) -> Integers:
        """(texts,): tokens that were cut off each text, 0 where it was read whole."""
        return np.zeros(len(self), dtype=np.int64) if self.cut is None else self.cut

    @property
    def truncated_texts(self) -> int:
        """How many texts were cut."""
        return int((self.cut_tokens > 0).sum())

    @property
    def truncated_tokens(self) -> int:
        """How many tokens were cut off, in all texts together."""
        return int(self.cut_tokens.sum())

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

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> "LabelPrediction": ...
    @overload
    def __getitem__(self, place: slice | Sequence[int] | NDArray[Any]) -> "LabelPredictions": ...
    def __getitem__(self, place: Any) -> "LabelPrediction | LabelPredictions":
        rows = np.arange(len(self))[place]
        return self._take(rows) if rows.ndim else LabelPrediction(self, int(rows))

    def __iter__(self) -> Iterator["LabelPrediction"]:
        return (LabelPrediction(self, row) for row in range(len(self)))

    def _take(self, rows: Integers) -> "LabelPredictions":
        names = ("probabilities", "logits", "logit_variance", "passes", "scope", "out_of_scope", "cut")
        taken = {name: getattr(self, name)[rows] for name in names if getattr(self, name) is not None}
        return replace(self, texts=tuple(self.texts[row] for row in rows), shift=None, **taken)

    def rows(self) -> Iterator[dict[str, object]]:
        """Each prediction as a flat row of plain values: what `to_pandas` and the command line write."""
        return (prediction.as_row() for prediction in self)

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each text: the text, then what `LabelPrediction.as_row` holds."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependency("pandas", "data") from error
        table = pd.DataFrame(list(self.rows()))
        table.insert(0, "text", list(self.texts))
        return table

    def __repr__(self) -> str:
        heading = f"{len(self):,} texts, {len(self.classes)} labels"
        if self.rule is not None and len(self):
            shares = int(self.reported.sum()), int(self.withheld.sum()), int(self.abstain.sum())
            heading += "; {:,} labels reported, {:,} in doubt; {:,} texts abstained on".format(*shares)
        lines = [f"{excerpt(one.text):<60}  {', '.join(one.labels) or '–':<30}  {one.why}" for one in self[:SHOWN]]
        more = [f"… and {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []
        notes = [] if self.shift is None or not self.shift.shifted else [self.shift.describe()]
        return "\n".join([heading, *lines, *more, *notes])


@dataclass(frozen=True, eq=False, repr=False)
class LabelPrediction:
    """What a labeler says about one text."""

    among: LabelPredictions
    row: int

    @property
    def text(self) -> Text:
        return self.among.texts[self.row]

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

    @property
    def abstain(self) -> bool:
        """Whether not to answer; raises as `LabelPredictions.abstain` does."""
        return bool(self.among.abstain[self.row])

    @property
    def reason(self) -> str:
        """Why it is answered or not, as in `LabelPredictions.reasons`."""
        return self.among.reasons[self.row]

    @property
    def why(self) -> str:
        """The reason with its numbers: '0.42 below the threshold'."""
        return sentence(self.as_row())

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
            above = float(among.above_threshold[at])
            row["above_threshold"] = None if np.isnan(above) else above
        row |= {"confidence": float(among.confidence[at]), "log_odds": float(among.log_odds[at])}
        row |= {"passes": int(among.passes[at]), "cut_tokens": int(among.cut_tokens[at])}
        if among.scope is not None and among.out_of_scope is not None:
            row |= {"scope": float(among.scope[at]), "out_of_scope": bool(among.out_of_scope[at])}
        row |= {f"p_{name}": value for name, value in self.probabilities.items()}
        return row | {f"variance_{name}": value for name, value in (self.variances or {}).items()}

    def __repr__(self) -> str:
        lines = [f"{name:<20} {value}" for name, value in self.as_row().items()]
        return "\n".join([f"Labels of {excerpt(self.text)!r}", *lines])
