"""An explanation in plain sentences: what the model says and how sure it is, what is decided and why, and whose doubt.

Every view of an explanation (terminal, page, image, JSON, service, `print`) begins with them.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.predictions import Prediction
from uatlite.classifier.reasons import DISAGREE, NO_PROMISE, OUT_OF_SCOPE
from uatlite.values import WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explanation

CARRIES = 0.1
"""A word with this share of the variance or more carries doubt."""
NAMED = 3
"""At most this many words are named."""
NARROW = 0.05
"""Where dropout moves the probability by no more than this, there is no doubt for words to carry."""
_SURE = 0.9
"""From this confidence on, a narrow range means that there is hardly any uncertainty."""
LISTED = 6
"""At most this many classes are listed with their probabilities."""
SCORE_NAMES = {"logit-margin": "logit margin", "mutual-information": "negative mutual information"} | {
    name: f"negative {name}" for name in ("entropy", "variance")
}
"""Score of a rule -> its name for a reader, where that differs: a high score means trust, so some are negative."""


@dataclass(frozen=True)
class Comparison:
    """The score of a text and the threshold that its predicted class must exceed."""

    score: str
    value: float
    threshold: float

    @classmethod
    def of(cls, prediction: Prediction) -> "Comparison | None":
        """None where there is no rule to abstain by."""
        among, row = prediction.among, prediction.row
        assert isinstance(among, ClassPredictions)
        if (rule := among.rule) is None:
            return None
        threshold = float(rule.thresholds(among.predicted[[row]]).item())
        return cls(rule.score, float(among.scores(rule.score)[row]), threshold)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an infinite threshold, which always or never answers, is None."""
        threshold = self.threshold if math.isfinite(self.threshold) else None
        return {"score": self.score, "value": self.value, "threshold": threshold}

    @property
    def name(self) -> str:
        """The score's name for a reader."""
        return SCORE_NAMES.get(self.score, self.score)

    def describe(self) -> str:
        """'its logit margin of 0.40 is 0.73 below the threshold of 1.13'"""
        own = f"its {self.name} of {self._spelt(self.value)}"
        distance = self.value - self.threshold
        if distance == 0:
            return f"{own} is not above the threshold, which is the same"
        much = f"{100 * abs(distance):.1f} points" if self.score == "confidence" else self._spelt(abs(distance))
        how = f"{much} {'above' if distance > 0 else 'below'}"
        return f"{own} is {how} the threshold of {self._spelt(self.threshold)}"

    def _spelt(self, value: float) -> str:
        return f"{value:.1%}" if self.score == "confidence" else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


@dataclass(frozen=True)
class Sentences:
    """An explanation in plain words."""

    # The service describes the fields by their docstrings.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"use_attribute_docstrings": True}

    says: str
    """the label, and how sure the model is of it"""
    decision: str
    """whether it is answered, and why"""
    doubt: str
    """which words the uncertainty comes from, or that there is hardly any"""

    @classmethod
    def of(cls, explanation: "Explanation") -> "Sentences":
        """The sentences of an explanation."""
        return cls(_says(explanation), _decision(explanation.prediction), _doubt(explanation))

    def __str__(self) -> str:
        return f"{self.says} {self.decision} {self.doubt}"


def listed(probabilities: dict[str, float]) -> list[tuple[str, float]]:
    """The classes and their probabilities, the likeliest first; of many classes the last entry sums up the rest."""
    ranked = sorted(probabilities.items(), key=lambda one: -one[1])
    if len(ranked) <= LISTED:
        return ranked
    rest = ranked[LISTED - 1 :]
    return [*ranked[: LISTED - 1], (f"{len(rest)} others", sum(value for _, value in rest))]


def carriers(words: tuple[WordAttribution, ...]) -> tuple[WordAttribution, ...]:
    """The words that carry the doubt, the first with the largest share; none where it is spread over the text."""
    ranked = sorted(words, key=lambda word: -word.share)
    return tuple(word for word in ranked[:NAMED] if word.share >= CARRIES)


def _says(explanation: "Explanation") -> str:
    sure = f"The model says {explanation.label} and is {explanation.prediction.confidence:.1%} sure"
    return f"{sure} (calibrated)." if explanation.calibrated else f"{sure}, by probabilities that were not calibrated."


def _decision(prediction: Prediction) -> str:
    compared, rule, reason = Comparison.of(prediction), prediction.among.rule, prediction.reason
    outside = f"the text is out of scope (p-value {prediction.scope:.2g})" if reason == OUT_OF_SCOPE else ""
    unlike = "unlike the calibration texts, so both label and confidence mean little"
    if compared is None or rule is None:
        return f"It has no rule to abstain by{f', but {outside}, {unlike}' if outside else ''}."
    if outside:
        return f"It abstains: {outside}, {unlike}."
    every = f"every text{' with this label' if rule.per_kind else ''}"
    if reason == NO_PROMISE:
        return f"It abstains, as on {every}: the calibration rows can promise nothing."
    if compared.threshold == -math.inf:
        return f"It answers, as {every}."
    disagree = "; dropout is enough to change its label" if reason == DISAGREE else ""
    return f"It {'abstains' if prediction.abstain else 'answers'}: {compared.describe()}{disagree}."


def _doubt(explanation: "Explanation") -> str:
    moved = _moved(explanation)
    if explanation.interval is not None and explanation.interval[1] - explanation.interval[0] <= NARROW:
        if explanation.prediction.confidence >= _SURE:
            return f"There is hardly any uncertainty: {moved}."
        return f"Dropout hardly moves it ({moved}): the doubt lies in the text as a whole, not in single words."
    reach = f"; {moved}" if moved else ""
    found = carriers(explanation.words)
    if not found:
        rest = "it is spread over the text or belongs to the special tokens and the head"
        return f"No word carries a tenth of the doubt: {rest}{reach}."
    *others, last = [f"“{word.word.text}”" for word in found]
    names = f"{', '.join(others)} and {last}" if others else last
    share = sum(word.share for word in found)
    most = "Most of the doubt" if share >= 0.5 else f"{share:.0%} of the doubt"
    exactly = f" ({share:.0%} of the variance)" if share >= 0.5 else ", the rest is spread over the text"
    return f"{most} comes from {names}{exactly}{reach}."


def _moved(explanation: "Explanation") -> str:
    """How far dropout moves the probability; empty where one pass cannot know."""
    if explanation.interval is None:
        return ""
    low, high = explanation.interval
    between = f"between {low:.1%} and {high:.1%}"
    if explanation.band is None:
        return f"the {explanation.prediction.passes} passes say {between}"
    return f"under dropout the probability would be {between}"
