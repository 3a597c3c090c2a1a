"""What a model says about some texts: a value that reads, slices, prints and becomes a table, whatever it answers.

One class a text is the case of one answer: `ClassPredictions` (one_class.py), `LabelPredictions` (many_labels.py) and
`EntityPredictions` (entities.py) add the names of their kind. Why a text is answered or not is one reason of a fixed
list, the same in files, the service, the page and Python, so that rows can be counted and filtered by it.
"""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.display import ANSWERED, CUT, NO_RULE, OUT_OF_SCOPE, excerpt, html_table, sentence, spelt, table
from uatlite.errors import CalibrationError, MissingDependency
from uatlite.trust.answers import Answers
from uatlite.trust.promise import Labelled
from uatlite.trust.rule import Rule, RuleKind, Wanted
from uatlite.trust.scope import benjamini_hochberg
from uatlite.trust.shift import ShiftReference, ShiftReport, summarise
from uatlite.values import Floats, Integers, Marks, ScoredText, Text, Words

if TYPE_CHECKING:
    import pandas as pd

    from uatlite.classifier.answer_kind import Reading
    from uatlite.classifier.record import Calibration

MEASURES = (
    "confidence", "margin", "logit_margin", "entropy", "expected_entropy", "mutual_information", "variance"
)  # fmt: skip
ORDER = (
    "label", "labels", "entities", "abstain", "withheld", "reason", "above_threshold", "label_set", *MEASURES,
    "second_label", "second_labels", "second_entities", "second_confidence", "second_mutual_information", "log_odds",
    "missed", "missed_at", "passes", "cut_tokens", "scope", "out_of_scope",
)  # fmt: skip
"""The columns of a row of output; those of single classes come after them."""

LOG_ODDS = "log-odds"
"""The score of answers of which a text may have several, before calibration: no labelled text has fitted it."""
CONFIDENCE = "confidence"
"""The other score of answers: the calibrated probability that each is right."""
SHARE_FOUND = "share found"
"""The score of texts that a promise of recall ranks by: the share of entities expected to be found."""
TOP_LOG_ODDS = "log_odds"
"""The score of such texts that a shift is told by, a column of their rows."""


@dataclass(frozen=True)
class Wording:
    """What the parts of a kind of answer are called."""

    model: str
    """what its models give, as in 'a model of one class a text'"""
    classes: str
    """what its classes are"""
    gold: str
    """what its gold is, one for each text"""
    task: str
    """the name of its task on the hub"""
    usage: str
    """what a model card reads off predictions"""
    advice: str
    """what there is no rule to do, and how to ask for one in Python"""
    deciding: str
    """what a rule is for"""
    options: str
    """the options of the command line that ask for a rule, where others are refused"""
    example: str
    """one of them, with a number"""


_FILE = Path(__file__).with_name("wording.toml")
WORDING = {kind: Wording(**words) for kind, words in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()}
"""Kind of answer -> its words; a choice has those of one class."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predictions(ABC):
    """What is said about texts; rows are texts, in the order in which they were given.

    It is a sequence: `pred[0]` is a `Prediction`, `pred[2:5]` and `pred[pred.abstain]` are predictions of these texts.
    """

    by_text: ClassVar[tuple[str, ...]] = ("texts", "passes", "cut", "scope", "out_of_scope", "looked")
    """the fields with a row for each text, by name"""
    words: ClassVar[Wording]
    """what the parts of its kind are called"""
    promises: ClassVar[Mapping[str, RuleKind]]
    """option of `calibrate` -> the kind of the rule that keeps it: about the answers, or of recall about the texts"""
    ranked_by: ClassVar[tuple[str, ...]] = (LOG_ODDS, CONFIDENCE)
    """the scores of a rule about the answers, first that by default"""
    shown: ClassVar[tuple[str, ...]] = ()
    """the columns of a printed table"""
    seconds: ClassVar[Mapping[str, str]] = {}
    """column of a row -> what a second look says there, an attribute of its predictions"""

    texts: tuple[Text, ...]
    classes: tuple[str, ...]
    """what the classes, labels or types of entities are called, by column"""
    answers: Answers
    """every answer of every text, before calibration"""
    sure: Floats
    """(answers,): the probability that each is right, calibrated where the model is"""
    passes: Integers
    """(texts,): how many passes were run for each text"""
    cut: Integers | None = None
    """(texts,): tokens that were cut off each text; None where none was"""
    rules: tuple[Rule, ...] = ()
    """what calibration promised: which answers to report, and of entities also which texts to answer"""
    scope: Floats | None = None
    """(texts,): p-values of being a text of the task; under the calibration rows' distribution they are uniform"""
    out_of_scope: Marks | None = None
    """(texts,): where the p-value is at most the stated rate of false alarms"""
    indices: bool = False
    """whether classes are said by column rather than by name"""
    second: "Predictions | None" = None
    """what a second look says about the texts that are abstained on; None where none was asked for at calibration"""
    looked: Integers | None = None
    """(texts,): the place of each text in `second`; -1 where it had no second look"""
    shift: ShiftReport | None = None
    """whether these texts, all together, are like the calibration rows; None for a selection of them"""

    @classmethod
    @abstractmethod
    def of(cls, texts: Sequence[Text], reading: Any, calibrator: Any, classes: tuple[str, ...]) -> Self:
        """The predictions of a reading, calibrated where there is a calibrator; nothing is decided yet."""

    def under(self, calibration: "Calibration", reading: "Reading") -> Self:
        """The same predictions with the rules that were calibrated, and the scope by what was read of the texts."""
        decided = self.ruled(calibration.rules)
        if calibration.scope is None or not len(self):
            return decided
        p_values = calibration.scope.p_values(reading.representations, reading.scope_logits)
        return replace(decided, scope=p_values, out_of_scope=calibration.scope.out_of_scope(p_values))

    def ruled(self, rules: tuple[Rule, ...]) -> Self:
        """The same predictions with these rules."""
        return replace(self, rules=rules)

    def scores(self, name: str) -> Floats:
        """(answers,): what a rule of this score ranks answers by."""
        return self.answers.log_odds if name == LOG_ODDS else self.sure

    def text_scores(self, name: str) -> Floats:
        """(texts,): the score of each text that a shift is told by, a column of its row."""
        return np.asarray(getattr(self, name))

    @staticmethod
    def text_score(score: str) -> str:
        """The name of that score, where `score` is that of the rule."""
        return TOP_LOG_ODDS

    def reference(self, score: str, inside: Marks, false_alarm: float) -> ShiftReference:
        """What new texts are compared with; `score` is that of the rule, and `inside` (texts,) are in scope."""
        score = self.text_score(score)
        return summarise(self.text_scores(score), score=score, false_alarm=false_alarm)

    @abstractmethod
    def labelled(self, gold: NDArray[Any], wanted: Wanted) -> Labelled:
        """The answers, and which of them are wrong by the gold of the texts, for a promise."""

    @property
    def unlabelled(self) -> Labelled | None:
        """The same of texts without gold, to plan a promise with; None of several answers a text."""
        return None

    @property
    @abstractmethod
    def outcomes(self) -> Sequence[object]:
        """(texts,): what is said of each, to compare with what another model says."""

    @abstractmethod
    def _cases(self) -> dict[str, Marks]:
        """(texts,) each: for which reasons, the first that holds, texts are abstained on. There is a rule."""

    @abstractmethod
    def _above(self) -> Floats:
        """(texts,): score minus threshold; infinite or NaN where that says nothing. There is a rule."""

    @abstractmethod
    def _columns(self) -> dict[str, Any]:
        """The columns of the kind's own, each a list or an array with an entry for each text."""

    @property
    def counted(self) -> str:
        """What else the heading of a printed table counts."""
        return ""

    @property
    def rule(self) -> Rule | None:
        """The rule by which answers are reported: its score, its threshold, what it promises; None without one."""
        return next((rule for rule in self.rules if rule.kind != "recall"), None)

    @cached_property
    def reports(self) -> Marks:
        """(answers,): True where the rule reports an answer. Of a text out of scope none is."""
        marks = self._reported
        return marks if self.out_of_scope is None else marks & ~self.out_of_scope[self.answers.text]

    @property
    def _reported(self) -> Marks:
        """(answers,): what the rule reports, in or out of scope; without one everything."""
        if self.rule is None:
            return np.ones(len(self.answers), dtype=np.bool_)
        return self.rule.reports(self.scores(self.rule.score), self.answers.text, self.answers.kind)

    @cached_property
    def _reasons_to_doubt(self) -> dict[str, Marks]:
        """(texts,) each: out of scope, and where there is a rule the cases of the kind."""
        outside = np.zeros(len(self), dtype=np.bool_) if self.out_of_scope is None else self.out_of_scope
        return {OUT_OF_SCOPE: outside} | (self._cases() if self.rules else {})

    @property
    def doubted(self) -> Marks:
        """(texts,): what gets a second look: where not to answer, or without a rule what is out of scope."""
        return np.asarray(np.logical_or.reduce(list(self._reasons_to_doubt.values())))

    @property
    def abstain(self) -> Marks:
        """(texts,): True where not to answer. Raises where no rule was asked for: silence would read as 'answer'."""
        self._check_rule()
        return self.doubted

    def _check_rule(self) -> None:
        if not self.rules:
            raise CalibrationError(f"there is no rule to {self.words.advice}")

    @cached_property
    def reasons(self) -> list[str]:
        """For each text why it is answered or not, one of `REASONS`; needs no rule. The first that holds counts."""
        marks = {**self._reasons_to_doubt, CUT: self.cut_tokens > 0}
        return list(map(str, np.select(list(marks.values()), list(marks), ANSWERED if self.rules else NO_RULE)))

    @cached_property
    def above_threshold(self) -> Floats:
        """(texts,): score minus threshold, negative where it is below; NaN where that is not known."""
        above = self._above() if self.rules else np.full(len(self), np.nan)
        return np.where(np.isfinite(above), above, np.nan)

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
    def names(self) -> Sequence[str | int]:
        """What each class is said as: its name, or with `indices` its column."""
        return range(len(self.classes)) if self.indices else self.classes

    def _of_second(self, name: str) -> list[Any]:
        """(texts,): an attribute of the second look, None where a text had none."""
        if self.second is None or self.looked is None:
            return [None] * len(self)
        values = _as_list(getattr(self.second, name))
        return [None if i < 0 else values[i] for i in self.looked.tolist()]

    def out_of_scope_among(self, rate: float = 0.01) -> Marks:
        """(texts,): out of scope by Benjamini and Hochberg's procedure over all of these texts.

        Of the texts that it names at most this share is in scope, on average. Raises where the scope is not known.
        """
        if self.scope is None:
            raise CalibrationError("the scope of the classifier is not known; calibrate it on 50 rows or more.")
        return benjamini_hochberg(self.scope, rate)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Every row of output, column by column.

        What was not asked for at calibration (abstain, above_threshold) is left out, and so is a scope that is not
        known. A number that the method cannot know is None.
        """
        columns = self._columns() | {"reason": self.reasons, "passes": self.passes, "cut_tokens": self.cut_tokens}
        if self.second is not None:
            columns |= {name: self._of_second(said) for name, said in self.seconds.items()}
        if self.rules:
            columns |= {"abstain": self.abstain, "above_threshold": self.above_threshold}
        if self.scope is not None:
            columns |= {"scope": self.scope, "out_of_scope": self.out_of_scope}
        order = [*(name for name in ORDER if name in columns), *(name for name in columns if name not in ORDER)]
        return {name: _as_list(columns[name]) for name in order}

    def rows(self) -> Iterator[dict[str, object]]:
        """Each prediction as a row of plain values: what `to_pandas` and the command line write."""
        return (prediction.as_row() for prediction in self)

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each text: the text, then its columns."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependency("pandas", "data") from error
        table = pd.DataFrame(list(self.rows()))
        table.insert(0, "text", [text.text if isinstance(text, Words | ScoredText) else text for text in self.texts])
        return table

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> "Prediction": ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> Self: ...
    def __getitem__(self, index: Any) -> "Prediction | Self":
        rows = np.arange(len(self))[index]
        if not rows.ndim:
            return Prediction(self, int(rows))
        taken: dict[str, Any] = {name: value for name in self.by_text if (value := getattr(self, name)) is not None}
        for name, value in taken.items():
            taken[name] = tuple(value[row] for row in rows) if isinstance(value, tuple) else value[rows]
        answers, kept = self.answers.at_texts(rows)
        return replace(self, answers=answers, sure=self.sure[kept], shift=None, **taken)

    def __iter__(self) -> "Iterator[Prediction]":
        return (Prediction(self, row) for row in range(len(self)))

    def __repr__(self) -> str:
        return table(self)

    def _repr_html_(self) -> str:
        return html_table(self)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What is said about one text. The columns of its row are attributes: `pred[0].confidence`, `pred[0].reason`."""

    among: Predictions
    row: int

    @property
    def text(self) -> Text:
        return self.among.texts[self.row]

    @property
    def why(self) -> str:
        """The reason with its numbers: '0.42 below the threshold'."""
        return sentence(self.as_row())

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each class, or label, by its name."""
        chances = getattr(self.among, "probabilities")[self.row]  # noqa: B009 (of kinds that have them)
        return dict(zip(self.among.classes, chances.tolist(), strict=True))

    def as_row(self) -> dict[str, object]:
        """The columns as plain values."""
        return {name: _plain(values[self.row]) for name, values in self.among.columns.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copy and pickle look for
            raise AttributeError(name)
        columns = self.among.columns
        if name in columns:
            return columns[name][self.row]
        of_all = getattr(self.among, _PLURALS.get(name, name))  # says what is missing, where it was not asked for
        return of_all if of_all is None else of_all[self.row]

    def __repr__(self) -> str:
        lines = [f"{name:<20} {spelt(value)}" for name, value in self.as_row().items()]
        return "\n".join([f"Prediction of {excerpt(self.text)!r}", *lines])


_PLURALS = {"label_set": "label_sets"}
"""Attribute of one prediction -> that of all, where they differ."""


def _as_list(values: Any) -> list[Any]:
    """A column as a list; NaN is None."""
    if not isinstance(values, np.ndarray):
        return list(values)
    listed: list[Any] = values.tolist()
    if values.dtype.kind == "f" and np.isnan(values).any():
        return [None if value != value else value for value in listed]
    return listed


def _plain(value: Any) -> Any:
    """A value of a row without tuples and dataclasses."""
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
