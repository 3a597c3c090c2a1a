"""What a classifier says about some texts: a value that reads, slices, prints and becomes a table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from uatlite.classifier.display import as_html, as_text, describe_one
from uatlite.classifier.reasons import above_threshold, reasons, sentence
from uatlite.errors import CalibrationError, MissingDependency
from uatlite.predictive import Predictive
from uatlite.trust.rule import AbstentionRule, trust
from uatlite.trust.scope import benjamini_hochberg
from uatlite.trust.shift import ShiftReport
from uatlite.values import Floats, Integers, Text, Words

if TYPE_CHECKING:
    import pandas as pd

MEASURES = (
    "confidence", "margin", "logit_margin", "entropy", "expected_entropy", "mutual_information", "variance"
)  # fmt: skip


One = TypeVar("One", bound="TextPrediction[Any]")
Among = TypeVar("Among", bound="TextPredictions[Any]")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TextPredictions(Generic[One]):
    """What the predictions of all products share: a sequence of texts, each of them with a prediction."""

    by_text: ClassVar[tuple[str, ...]] = ("passes", "scope", "out_of_scope", "cut")
    """the arrays with a row for each text, by name"""

    texts: tuple[Text, ...]
    classes: tuple[str, ...]
    """what the classes, labels or types of entities are called, by column"""
    passes: Integers
    """(texts,): how many passes were run for each text"""
    scope: Floats | None = None
    """(texts,): p-values of being a text of the task; under the calibration rows' distribution they are uniform"""
    out_of_scope: NDArray[np.bool_] | None = None
    """(texts,): where the p-value is at most the stated rate of false alarms"""
    shift: ShiftReport | None = None
    """whether these texts, all together, are like the calibration rows; None for a selection of them"""
    cut: Integers | None = None
    """(texts,): tokens that were cut off each text; None where none was"""

    @property
    def abstain(self) -> NDArray[np.bool_]:
        """(texts,): True where not to answer; raises where no rule was asked for."""
        raise NotImplementedError

    @property
    def reasons(self) -> list[str]:
        """For each text why it is answered or not, one of `uatlite.classifier.reasons.REASONS`; needs no rule."""
        raise NotImplementedError

    @property
    def above_threshold(self) -> Floats:
        """(texts,): score minus threshold, negative where it is below; NaN where that is not known."""
        raise NotImplementedError

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

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> One: ...
    @overload
    def __getitem__(self, place: slice | Sequence[int] | NDArray[Any]) -> Self: ...
    def __getitem__(self, place: Any) -> One | Self:
        rows = np.arange(len(self))[place]
        return self._take(rows) if rows.ndim else self._one(int(rows))

    def __iter__(self) -> Iterator[One]:
        return (self._one(row) for row in range(len(self)))

    def _one(self, row: int) -> One:
        raise NotImplementedError

    def _take(self, rows: Integers) -> Self:
        taken: dict[str, Any] = {name: getattr(self, name) for name in self.by_text}
        taken = {name: None if values is None else values[rows] for name, values in taken.items()}
        return replace(self, texts=tuple(self.texts[row] for row in rows), shift=None, **taken)

    def rows(self) -> Iterator[dict[str, object]]:
        """Each prediction as a row of plain values: what `to_pandas` and the command line write."""
        return (prediction.as_row() for prediction in self)

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each text: the text, then what `as_row` of its prediction holds."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependency("pandas", "data") from error
        table = pd.DataFrame(list(self.rows()))
        table.insert(0, "text", [text.text if isinstance(text, Words) else text for text in self.texts])
        return table


@dataclass(frozen=True, eq=False, repr=False)
class TextPrediction(Generic[Among]):
    """What the predictions of one text share, whatever the product."""

    among: Among
    row: int

    @property
    def text(self) -> Text:
        return self.among.texts[self.row]

    @property
    def abstain(self) -> bool:
        """Whether not to answer; raises as `abstain` of all predictions does."""
        return bool(self.among.abstain[self.row])

    @property
    def reason(self) -> str:
        """Why it is answered or not, one of `uatlite.classifier.reasons.REASONS`."""
        return self.among.reasons[self.row]

    @property
    def above_threshold(self) -> float | None:
        """The score minus the threshold, negative where it is below; None where that is not known."""
        return _known(self.among.above_threshold[self.row])

    @property
    def why(self) -> str:
        """The reason with its numbers: '0.42 below the threshold'."""
        return sentence(self.as_row())

    @property
    def passes(self) -> int:
        """How many passes were run for the text."""
        return int(self.among.passes[self.row])

    @property
    def cut_tokens(self) -> int:
        """How many tokens of the text were cut off."""
        return int(self.among.cut_tokens[self.row])

    @property
    def scope(self) -> float | None:
        """The p-value of being a text of the task; None where it is not known."""
        return None if self.among.scope is None else float(self.among.scope[self.row])

    @property
    def out_of_scope(self) -> bool | None:
        """Whether it is no text of the task; None where that is not known."""
        return None if self.among.out_of_scope is None else bool(self.among.out_of_scope[self.row])

    def as_row(self) -> dict[str, object]:
        """The prediction as plain values."""
        raise NotImplementedError

    def _reading(self) -> dict[str, object]:
        """passes, cut_tokens, and scope and out_of_scope where they are known."""
        known = {} if self.among.scope is None else {"scope": self.scope, "out_of_scope": self.out_of_scope}
        return {"passes": self.passes, "cut_tokens": self.cut_tokens, **known}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predictions(TextPredictions["Prediction"]):
    """Labels, probabilities and uncertainties of texts; rows are texts, in the order in which they were given.

    It is a sequence: `pred[0]` is a `Prediction`, `pred[2:5]` and `pred[pred.abstain]` are Predictions of these texts.
    As an array it is its labels, which is what scikit-learn's tools ask for.
    """

    by_text = (*TextPredictions.by_text, "sets", "second_probabilities", "second_mutual_information")

    predictive: Predictive
    rule: AbstentionRule | None = None
    """the rule that calibration made: its score, its threshold, what it promises; None where none was asked for"""
    sets: NDArray[np.bool_] | None = None
    """(rows, classes): True where the class is in the row's label set"""
    indices: bool = False
    """whether labels are columns rather than names"""
    second_probabilities: Floats | None = None
    """(rows, classes): by a second look, NaN where a text had none; None where none was asked for at calibration"""
    second_mutual_information: Floats | None = None
    """(rows,): what the passes of a second look disagree about, as `mutual_information`"""

    @cached_property
    def labels(self) -> NDArray[Any]:
        """(rows,): the predicted class of each text, by name (or by column, as the classifier was told)."""
        return self.predicted if self.indices else np.array(self.classes, dtype=np.str_)[self.predicted]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(rows,): the column of the predicted class."""
        return self.predictive.predicted

    @property
    def probabilities(self) -> Floats:
        """(rows, classes): calibrated where the classifier is."""
        return self.predictive.probabilities

    @property
    def confidence(self) -> Floats:
        """(rows,): the probability of the predicted class."""
        return self.predictive.confidence

    @property
    def margin(self) -> Floats:
        """(rows,): the largest probability minus the second largest."""
        return self.predictive.margin

    @property
    def logit_margin(self) -> Floats:
        """(rows,): the largest mean logit minus the second largest, before calibration."""
        return self.predictive.logit_margin

    @property
    def entropy(self) -> Floats:
        """(rows,): of the mean distribution over passes, in nats; the total uncertainty."""
        return self.predictive.entropy

    @property
    def expected_entropy(self) -> Floats:
        """(rows,): the mean entropy of a pass, in nats; the part that lies in the data. NaN where it is not known."""
        return self.predictive.expected_entropy

    @property
    def mutual_information(self) -> Floats:
        """(rows,): entropy minus expected entropy, in nats; what passes disagree about. NaN where it is not known."""
        return self.predictive.mutual_information

    @property
    def variance(self) -> Floats:
        """(rows,): over passes, of the predicted class's probability. NaN where it is not known."""
        return self.predictive.variance

    @cached_property
    def abstain(self) -> NDArray[np.bool_]:
        """(rows,): True where not to answer: out of scope, or not sure enough for the rule.

        Raises where no rule was asked for: silence would read as 'answer'.
        """
        if self.rule is None:
            raise CalibrationError(
                "there is no rule to abstain by; ask for one: clf.calibrate(texts, labels, target_risk=0.05), "
                "or target_coverage= or threshold=."
            )
        unsure = ~self.rule.answers(trust(self.rule.score, self.predictive), self.predicted)
        return unsure if self.out_of_scope is None else unsure | self.out_of_scope

    @property
    def doubted(self) -> NDArray[np.bool_]:
        """(rows,): what gets a second look: where not to answer, or without a rule what is out of scope."""
        if self.rule is not None:
            return self.abstain
        return np.zeros(len(self), dtype=np.bool_) if self.out_of_scope is None else self.out_of_scope

    @cached_property
    def second_labels(self) -> list[str | int | None]:
        """For each text the class by a second look; None where it had none."""
        if self.second_probabilities is None:
            return [None] * len(self)
        names = range(len(self.classes)) if self.indices else self.classes
        return [None if np.isnan(row).any() else names[int(row.argmax())] for row in self.second_probabilities]

    @cached_property
    def reasons(self) -> list[str]:
        """For each text why it is answered or not, one of `uatlite.classifier.reasons.REASONS`; needs no rule."""
        return reasons(self.predictive, self.rule, out_of_scope=self.out_of_scope, cut=self.cut_tokens)

    @cached_property
    def above_threshold(self) -> Floats:
        """(rows,): score minus threshold, negative where it is below; NaN without a rule or a finite threshold."""
        if self.rule is None:
            return np.full(len(self), np.nan)
        above = above_threshold(self.rule, self.predictive)
        return np.where(np.isfinite(above), above, np.nan)

    def out_of_scope_among(self, rate: float = 0.01) -> NDArray[np.bool_]:
        """(rows,): out of scope by Benjamini and Hochberg's procedure over all of these texts.

        Of the texts that it names at most this share is in scope, on average. Raises where the scope is not known.
        """
        if self.scope is None:
            raise CalibrationError("the scope of the classifier is not known; calibrate it on 50 rows or more.")
        return benjamini_hochberg(self.scope, rate)

    @cached_property
    def label_sets(self) -> list[tuple[str, ...]]:
        """For each text the labels that conform. Raises where no label sets were asked for."""
        if self.sets is None:
            raise CalibrationError(
                "there are no label sets; ask for them: clf.calibrate(texts, labels, label_sets=0.9)."
            )
        return [tuple(name for name, inside in zip(self.classes, row, strict=True) if inside) for row in self.sets]

    def _one(self, row: int) -> "Prediction":
        return Prediction(self, row)

    def _take(self, rows: Integers) -> Self:
        fields = {name: value[rows] for name, value in vars(self.predictive).items()}
        return replace(super()._take(rows), predictive=Predictive(**fields))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(TextPrediction[Predictions]):
    """What a classifier says about one text."""

    @property
    def label(self) -> str | int:
        """The predicted class."""
        label: str | int = self.among.labels[self.row].item()
        return label

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each class by its name."""
        return dict(zip(self.among.classes, self.among.probabilities[self.row].tolist(), strict=True))

    @property
    def confidence(self) -> float:
        return float(self.among.confidence[self.row])

    @property
    def margin(self) -> float:
        return float(self.among.margin[self.row])

    @property
    def logit_margin(self) -> float:
        return float(self.among.logit_margin[self.row])

    @property
    def entropy(self) -> float:
        return float(self.among.entropy[self.row])

    @property
    def expected_entropy(self) -> float | None:
        """None where it is not known, as of the next two."""
        return _known(self.among.expected_entropy[self.row])

    @property
    def mutual_information(self) -> float | None:
        return _known(self.among.mutual_information[self.row])

    @property
    def variance(self) -> float | None:
        return _known(self.among.variance[self.row])

    @property
    def label_set(self) -> tuple[str, ...]:
        """The labels that conform; raises as `Predictions.label_sets` does."""
        return self.among.label_sets[self.row]

    def as_row(self) -> dict[str, object]:
        """label, abstain, reason, above_threshold, label_set, the measures, second_label, ..., passes, ..., p_<class>.

        What was not asked for at calibration (abstain and above_threshold, label_set, a second look) is left out, and
        so is a scope that is not known. A measure that the method cannot know is None.
        """
        among = self.among
        row: dict[str, object] = {"label": self.label}
        if among.rule is not None:
            row["abstain"] = self.abstain
        row["reason"] = self.reason
        if among.rule is not None:
            row["above_threshold"] = self.above_threshold
        if among.sets is not None:
            row["label_set"] = list(self.label_set)
        row |= {name: _known(getattr(among.predictive, name)[self.row]) for name in MEASURES}
        if among.second_probabilities is not None and among.second_mutual_information is not None:
            row["second_label"] = among.second_labels[self.row]
            row["second_confidence"] = _known(among.second_probabilities[self.row].max())
            row["second_mutual_information"] = _known(among.second_mutual_information[self.row])
        row |= self._reading()
        return row | {f"p_{name}": value for name, value in self.probabilities.items()}

    def __repr__(self) -> str:
        return describe_one(self)


def _known(value: float) -> float | None:
    plain = float(value)  # of numpy's numbers everything takes longer
    return None if math.isnan(plain) else plain
