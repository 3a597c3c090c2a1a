"""Metrics of texts with several answers: entities or labels. Texts are what is resampled, with all of their answers.

Three values hold what is scored, and each knows its metrics (`estimates`):

    Found       which answers were reported and which are right: precision, recall, F1
    AnswerRows  reported answers with their confidence, right or wrong: ECE, NLL, AURC, detection of wrong answers
    LabelRows   the probability of every label of every text: label-wise ECE and NLL, average precision, AURC of pairs

    intervals(AnswerRows.of(confidence, right, text, texts=len(texts)).estimates())
    intervals(ours.estimates() - theirs.estimates())    # differences on the same texts, which may have other answers
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import InputError
from uatlite.metrics.accuracy import SMALLEST_PROBABILITY, aupr_of, error_aupr, error_auroc, nll
from uatlite.metrics.calibration import column_ece, debiased_ece, ece, smooth_ece
from uatlite.metrics.intervals import CHUNK, Estimate, Estimates
from uatlite.metrics.rows import Judged, Metric, Ranking, Rows, Statistic, mean_of, precision_of, ratio
from uatlite.metrics.selective import aurc
from uatlite.values import Floats, Integers, check_array, check_labels

_Entities = Sequence[Iterable[tuple[Any, Any, str]]]
"""The entities of each text: (start, end, type), or (first word, last word, type)."""

ANSWER_METRICS: dict[str, Metric[[]]] = {
    "answer_ece": ece.bind(),
    "answer_debiased_ece": debiased_ece.bind(),
    "answer_smooth_ece": smooth_ece,
    "answer_nll": nll,
    "answer_aurc": aurc,
    "wrong_auroc": error_auroc,
    "wrong_aupr": error_aupr,
}
"""The metrics of answers, each that of a row whose confidence is the answer's and whose prediction is 'right'."""


def over_texts(statistic: Statistic, text: Integers) -> Statistic:
    """A statistic of answers as one of texts: an answer counts as often as its text. NaN where no answer is drawn."""

    def of_texts(counts: Floats) -> Floats:
        values = np.full(len(counts), np.nan)
        step = max(1, CHUNK // max(1, len(text)))  # an answer's counts take as much room as many texts
        for start in range(0, len(counts) if len(text) else 0, step):
            weights = counts[start : start + step][:, text]
            drawn = weights.sum(axis=1) > 0
            if drawn.any():
                values[start : start + step][drawn] = statistic(weights[drawn])
        return values

    return of_texts


@dataclass(frozen=True, eq=False)
class AnswerRows(Rows):
    """Answers as rows: the confidence of each (answers,) that it is right, and whether it is.

    `probabilities` are (wrong, right), `labels` 1 where an answer is right. The prediction is always 'right', so that
    the metrics of rows are those of answers.
    """

    text: Integers
    """(answers,): the text of each"""
    texts: int
    """how many there are, also those without an answer"""

    @classmethod
    def of(
        cls, confidence: ArrayLike, right: ArrayLike, text: ArrayLike | None = None, *, texts: int | None = None
    ) -> "AnswerRows":
        """Check the arrays and bind them; without `text` every answer is a text of its own."""
        given = np.asarray(confidence)
        values = _chances("confidence", given, {"rows": 0}, "goes", "give the probability that an answer is right")
        flags = np.asarray(right)
        labels = check_labels(flags.astype(np.int64) if flags.dtype.kind == "b" else flags, rows=len(values), classes=2)
        of_text = np.arange(len(values)) if text is None else np.asarray(text, dtype=np.int64)
        count = int(of_text.max(initial=-1)) + 1 if texts is None else texts
        if of_text.shape != values.shape or (len(of_text) and not 0 <= of_text.min() <= of_text.max() < count):
            raise InputError(
                f"text has shape {of_text.shape}; allowed is {values.shape}, a number from 0 to {count - 1} for each."
            )
        return cls(np.column_stack([1 - values, values]), labels, precision_of(given), of_text, count)

    @cached_property
    def confidence(self) -> Floats:
        """That each answer is right (answers,)."""
        return np.asarray(self.probabilities[:, 1])

    @cached_property
    def predicted(self) -> Integers:
        """Every answer is given as right (answers,)."""
        return np.ones(len(self), dtype=np.int64)

    def estimates(self) -> Estimates:
        """The metrics of answers, ready to resample texts."""
        of = {}
        for name, metric in ANSWER_METRICS.items():
            truth = metric.truth and over_texts(partial(metric.truth, self), self.text)
            of[name] = Estimate(over_texts(partial(metric.values, self), self.text), truth, lowest=0.0)
        return Estimates(of, (self.texts,))


@dataclass(frozen=True, eq=False)
class Found:
    """Answers that were found, reported and there to be found: (texts, kinds) each."""

    hits: Floats
    reported: Floats
    gold: Floats

    @classmethod
    def of_entities(cls, reported: _Entities, gold: _Entities) -> "Found":
        """From the entities (start, end, type) of each text; right are those with the same start, end and type."""
        if len(reported) != len(gold):
            raise InputError(f"{len(reported)} texts with reported entities, {len(gold)} with gold; give both of each.")
        said, true = ([set(map(tuple, text)) for text in texts] for texts in (reported, gold))
        kinds = sorted({kind for text in (*said, *true) for _, _, kind in text})

        def table(texts: Sequence[set[tuple[Any, ...]]]) -> Floats:
            tallies = [Counter(kind for _, _, kind in text) for text in texts]
            counts = [[float(tally[kind]) for kind in kinds] for tally in tallies]
            return np.array(counts).reshape(len(texts), len(kinds))

        return cls(table([a & b for a, b in zip(said, true, strict=True)]), table(said), table(true))

    @classmethod
    def of_labels(cls, reported: ArrayLike, gold: ArrayLike) -> "Found":
        """From the reported labels and the right ones, (texts, labels) of 0 and 1 each."""
        said, true = _flags("reported", reported), _flags("gold", gold)
        if said.shape != true.shape:
            raise InputError(f"reported labels have shape {said.shape}, gold {true.shape}; allowed is the same.")
        return cls(said * true, said, true)

    def estimates(self) -> Estimates:
        """Micro precision, recall and F1, and macro F1, ready to resample texts.

        Micro F1 is 2 hits / (reported + gold) over all kinds, macro F1 its mean over kinds that are reported or gold.
        Each is 0 where its denominator is.
        """
        either = self.reported + self.gold

        def micro(numerator: Floats, total: Floats) -> Estimate:
            return Estimate(
                lambda counts: ratio((counts @ numerator).sum(axis=1), (counts @ total).sum(axis=1), otherwise=0.0)
            )

        def macro_f1(counts: Floats) -> Floats:
            occurrences = counts @ either
            f1 = ratio(2 * (counts @ self.hits), occurrences, otherwise=0.0)
            return ratio(f1.sum(axis=1), (occurrences > 0).sum(axis=1), otherwise=0.0)

        of = {"precision": micro(self.hits, self.reported), "recall": micro(self.hits, self.gold)}
        of |= {"f1": micro(2 * self.hits, either), "macro_f1": Estimate(macro_f1)}
        return Estimates(of, (len(self.gold),))


@dataclass(frozen=True, eq=False)
class LabelRows(Judged):
    """The probability of each label of each text, and whether it applies: (texts, labels) both.

    Labels do not exclude each other, so that probabilities of a text need not sum to 1.
    """

    @classmethod
    def of(cls, probabilities: ArrayLike, labels: ArrayLike) -> "LabelRows":
        """Check both arrays and bind them."""
        given = np.asarray(probabilities)
        values = _chances("probabilities", given, {"rows": 1, "labels": 1}, "go", "pass the sigmoid of the logits")
        gold = _flags("labels", labels)
        if gold.shape != values.shape:
            raise InputError(f"labels have shape {gold.shape}; allowed is that of the probabilities, {values.shape}.")
        return cls(values, gold.astype(np.int64), precision_of(given))

    @cached_property
    def pairs(self) -> Rows:
        """Every pair of a text and a label as a row of two classes: it does not apply, it applies."""
        flat = self.probabilities.ravel()
        return Rows(np.column_stack([1 - flat, flat]), self.labels.ravel(), self.precision)

    def estimates(self) -> Estimates:
        """The metrics of labels, ready to resample texts."""
        text = np.repeat(np.arange(len(self)), self.labels.shape[1])
        wise = partial(column_ece, self)
        losses = np.where(self.labels == 1, self.probabilities, 1 - self.probabilities)
        decided = Found.of_labels(self.probabilities > self.threshold(0.5), self.labels).estimates()
        flat = self.pairs
        of = {
            "label_ece": Estimate(wise, truth=wise, lowest=0.0),
            "label_nll": Estimate(mean_of(-np.log(np.maximum(losses, SMALLEST_PROBABILITY)).mean(axis=1))),
            "label_brier": Estimate(mean_of(np.square(self.probabilities - self.one_hot).mean(axis=1))),
            "macro_average_precision": Estimate(self.macro_average_precision),
            "micro_average_precision": Estimate(
                over_texts(partial(aupr_of, Ranking.of(flat.probabilities[:, 1]), flat.labels.astype(np.float64)), text)
            ),
            "pair_aurc": Estimate(over_texts(partial(aurc.values, flat), text)),
            "micro_f1": decided["f1"],
            "macro_f1": decided["macro_f1"],
        }
        return Estimates(of, (len(self),))

    def macro_average_precision(self, counts: Floats) -> Floats:
        """The mean over labels of their average precision; labels that apply to no text, or to all, are left out."""
        columns = zip(self.probabilities.T, self.one_hot.T, strict=True)
        values = np.array([aupr_of(Ranking.of(probability), gold, counts) for probability, gold in columns])
        defined = np.isfinite(values)
        return ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0))


def _chances(name: str, given: ArrayLike, axes: Mapping[str, int], goes: str, advice: str) -> Floats:
    """Numbers from 0 to 1 as float64."""
    values = check_array(name, given, axes)
    if ((values < 0) | (values > 1)).any():
        raise InputError(f"{name} {goes} below 0 or above 1; {advice}.")
    return values


def _flags(name: str, values: ArrayLike) -> Floats:
    """A matrix (texts, labels) of 0 and 1 as float64."""
    flags = check_array(name, values, {"rows": 0, "labels": 1})
    if not np.isin(flags, (0.0, 1.0)).all():
        raise InputError(f"{name} hold other numbers than 0 and 1; give 1 where a label applies.")
    return flags
