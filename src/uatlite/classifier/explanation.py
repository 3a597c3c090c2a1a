"""One answer of a text explained: its prediction, and the words, layers and attention that its uncertainty comes from.

An answer is the predicted class, one label or one entity. About a class there is more, and it begins with plain
sentences: what the model says and how sure it is, what is decided and why, and whose doubt. Drawing is elsewhere
(`uatlite.lab.report`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from uatlite.classifier.display import NO_PROMISE, OUT_OF_SCOPE, SCORE_NAMES, UNSTABLE, excerpt, listed
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.predictions import Prediction
from uatlite.passes.config import COMPONENTS
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import Band, margin_band, pass_probabilities
from uatlite.values import Text, WordAttribution, strings

if TYPE_CHECKING:
    from torch import Tensor

    from uatlite.attribution.attention import AttentionShift
    from uatlite.attribution.first_order import Output, Weigh
    from uatlite.attribution.layers import Attribution
    from uatlite.attribution.words import TokenPlaces

_SHOWN = 5
"""Words of a printed explanation; `words` has all of them."""
CARRIES = 0.1
"""A word with this share of the variance or more carries doubt."""
NAMED = 3
"""At most this many words are named."""
NARROW = 0.05
"""Where dropout moves the probability by no more than this, there is no doubt for words to carry."""
_SURE = 0.9
"""From this confidence on, a narrow range means that there is hardly any uncertainty."""


@dataclass(frozen=True)
class ExplainedToken:
    """One token as the model reads it; padding is none."""

    text: str
    place: int
    """its index in the row of tokens, padding counted; the choices of a question follow one another"""
    special: bool
    uncertainty: float
    """U"""
    share: float
    """of the first-order variance of the margin"""


@dataclass(frozen=True)
class ExplainedLayer:
    """What one layer contributes to the variance."""

    name: str
    """'embeddings', 'layer 1' .. 'layer L', 'head'"""
    contribution: float
    share: float
    """of the sum of all contributions"""
    components: Mapping[str, float]
    """the contributions of its components; 'isolated' ones need not sum to the layer's"""
    error: float | None
    """standard error of the contribution; None for delta, which samples nothing"""
    component_errors: Mapping[str, float] | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explained:
    """Which answer of a text is explained, and what of the model's output its uncertainty is that of."""

    prediction: Prediction
    """the same as `predict([text])[0]`"""
    reading: Any
    """what the method says about the text, a `Reading`"""
    encoded: Mapping[str, Tensor]
    """the window in which the model read the answer: (1, [choices,] tokens)"""
    output: Output | Weigh
    """what varies: of a class the margin to the next likely one, of a label its logit, of an entity a token's margin"""
    number: int
    """the column of the class or label, or the number of the entity among those found, from 0"""
    label: str
    """the class, the label, or the type of the entity"""
    weakest: str = ""
    """of an entity the token that decides the tag of its weakest word"""
    about: str = ""
    """the answer, its probability and what of it varies, in words; empty of a class, which has a `summary`"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what `to_dict` tells of the answer"""
    sources: Attribution | None = None
    """of the margin between the two highest logits, where the method's passes found it"""
    token_places: TokenPlaces = field(default_factory=dict)
    """where the tokens stand in the strings of the text"""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnswerExplanation(Explained):
    """What is said about one answer of a text, and where the variance of its `output` under dropout comes from."""

    method: str
    attribution: Attribution
    """a batch of this one text"""
    words: tuple[WordAttribution, ...]
    """the words in order, each with its share of the variance; of a long text with entities those of one window"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    uncertainty_estimate: str
    """how the method estimates the U of words and tokens: 'closed-form', or 'lagged, 10 passes'"""

    @property
    def text(self) -> Text:
        return self.prediction.text

    @property
    def variance(self) -> float:
        return float(self.attribution.total[0])

    @property
    def layers(self) -> tuple[ExplainedLayer, ...]:
        """The contributions by layer, and within a layer by component."""
        attribution = self.attribution
        errors: Any = [(None, None)] * len(attribution.layers)
        if attribution.contribution_errors is not None:
            errors = _by_layer(attribution.contribution_errors, attribution.component_errors)
        values = _by_layer(attribution.contributions, attribution.components)
        rows = zip(attribution.layers, values, attribution.shares[0].tolist(), errors, strict=True)
        return tuple(ExplainedLayer(name, value, share, parts, *error) for name, (value, parts), share, error in rows)

    @property
    def says(self) -> str:
        """What is explained, in a sentence."""
        return f"{excerpt(self.text)!r}: {self.about} {self.varies}."

    @property
    def varies(self) -> str:
        """How far it moves: 'varies by 0.42 (one standard deviation) under dropout'."""
        return f"varies by {math.sqrt(self.variance):.2f} (one standard deviation) under dropout"

    def save(self, path: str | Path, **drawing: Any) -> None:
        """Write it as .html, .png, .svg or .json; an entity or a label as .json. `drawing` is as in `uatlite explain`:
        shading='share', 'masking' or 'uncertainty'; layer and head of the attention maps, from 1."""
        import_module("uatlite.lab.report.explanation_page").write_explanation(self, Path(path), **drawing)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            **self.facts,
            "method": self.method,
            "variance": self.variance,
            "uncertainty_estimate": self.uncertainty_estimate,
            "words": [asdict(word) for word in self.words],
            "special_tokens": [asdict(word) for word in self.special_tokens],
            "layers": {layer.name: layer.share for layer in self.layers},
            "prediction": self.prediction.as_row(),
        }

    def _first_words(self) -> list[WordAttribution]:
        return sorted(self.words, key=lambda word: -word.share)[:_SHOWN]

    def __repr__(self) -> str:
        layers = sorted(self.layers, key=lambda layer: -layer.share)[:3]
        words = ", ".join(f"{word.word.text} {word.share:.0%}" for word in self._first_words())
        shares = ", ".join(f"{layer.name} {layer.share:.0%}" for layer in layers)
        return f"{self.says}\nWords: {words}\nLayers: {shares}"


def _by_layer(layers: Tensor, components: Tensor | None) -> list[tuple[float, dict[str, float]]]:
    """The value of each layer, and those of its components by name; embeddings and head are of one component each."""
    assert components is not None  # explaining always asks for them
    first, *inner, last = COMPONENTS
    values: list[float] = layers[0].tolist()
    middle = [dict(zip(inner, pair, strict=True)) for pair in components[0].tolist()]
    return list(zip(values, [{first: values[0]}, *middle, {last: values[-1]}], strict=True))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation(AnswerExplanation):
    """The prediction of one text, and where the uncertainty about its class comes from.

    Of a word `masked_confidence` is what the method says of the predicted class without the word, calibrated like the
    prediction. The words of a question's options stand one after another.
    """

    tokens: tuple[ExplainedToken, ...]
    """every token in order"""
    attention: AttentionShift | None
    """a batch of this one text; None where it was not asked for, or the method does not modulate attention"""
    calibrator: Calibrator | None

    @property
    def sequence(self) -> range:
        """The places of the tokens that are read together, padding counted: all, or those of the predicted option."""
        ids = self.encoded["input_ids"]
        first = self.number * ids.shape[-1] if ids.ndim == 3 else 0
        return range(first, first + ids.shape[-1])

    @property
    def calibrated(self) -> bool:
        """Whether the probabilities are."""
        return self.calibrator is not None

    @property
    def quiet_label(self) -> str:
        """The class that the pass without dropout predicts; where the margin is small it can be another."""
        return self.prediction.among.classes[int(self.attribution.predicted[0])]

    @cached_property
    def band(self) -> Band | None:
        """How far the probability reaches where the margin varies; None for passes, which show it themselves."""
        band = margin_band(self.reading, self.calibrator)
        return None if band is None or band.spread == 0 else band

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Between which ends dropout moves the probability: 95% of the band, or all passes; None for a single pass."""
        if self.band is not None:
            return self.band.probabilities[0], self.band.probabilities[-1]
        each = pass_probabilities(self.reading, self.calibrator)[:, 0, self.number].tolist()
        return (min(each), max(each)) if len(each) > 1 else None

    @property
    def summary(self) -> Sentences:
        """What the model says, what is decided and why, and which words carry the doubt, in plain sentences."""
        return Sentences.of(self)

    @property
    def chosen_tokens(self) -> tuple[ExplainedToken, ...]:
        """The tokens of the text, or of the predicted option."""
        return tuple(token for token in self.tokens if token.place in self.sequence)

    @property
    def token_attention(self) -> AttentionShift | None:
        """Attention between `chosen_tokens`, (layers, heads, tokens, tokens); None without `attention`."""
        first, width = self.sequence.start, len(self.sequence)
        places = [token.place - first for token in self.chosen_tokens]
        return None if self.attention is None else self.attention.between(places, first // width)

    @property
    def segments(self) -> tuple[tuple[WordAttribution, ...], ...]:
        """The words in runs that no special token parts: a text, the parts of a pair, a question and an option."""
        runs: list[list[WordAttribution]] = []
        following = None
        for word in self.words:
            if word.word.tokens[0] != following:
                runs.append([])
            runs[-1].append(word)
            following = word.word.tokens[-1] + 1
        return tuple(map(tuple, runs))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; attention as (layers, [choices,] heads, tokens, tokens)."""
        attention = None if self.attention is None else self.attention.to_dict()
        compared, error = Comparison.of(self.prediction), self.attribution.total_error
        return {
            "summary": asdict(self.summary),
            "text": list(strings(self.text)),
            **super().to_dict(),
            "calibrated": self.calibrated,
            "threshold": None if compared is None else compared.to_dict(),
            "quiet_label": self.quiet_label,
            "band": None if self.band is None else asdict(self.band),
            "interval": self.interval,
            "truncated_tokens": self.prediction.cut_tokens,
            "tokens": [asdict(token) for token in self.tokens],
            "estimator": self.attribution.estimator,
            "samples": self.attribution.samples,
            "variance_error": None if error is None else float(error[0]),
            "layers": [asdict(layer) for layer in self.layers],
            "attention": attention and {name: [layer[0] for layer in maps] for name, maps in attention.items()},
        }

    def __repr__(self) -> str:
        likely = ", ".join(f"{name} {value:.1%}" for name, value in listed(self.prediction.probabilities))
        lines = [f"Explanation of {excerpt(self.text)!r}", str(self.summary), f"Probabilities: {likely}"]
        for word in self._first_words():
            masked = "" if word.masked_confidence is None else f", {word.masked_confidence:.1%} sure if masked"
            lines.append(f"  {word.word.text:<16} {word.share:6.1%} of the variance{masked}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Comparison:
    """The score of a text and the threshold that its predicted class must exceed."""

    score: str
    value: float
    threshold: float

    @classmethod
    def of(cls, prediction: Prediction) -> Comparison | None:
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
        score = f"its {self.name} of {self._spelt(self.value)}"
        distance = self.value - self.threshold
        if distance == 0:
            return f"{score} is not above the threshold, which is the same"
        much = f"{100 * abs(distance):.1f} points" if self.score == "confidence" else self._spelt(abs(distance))
        how = f"{much} {'above' if distance > 0 else 'below'}"
        return f"{score} is {how} the threshold of {self._spelt(self.threshold)}"

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
    def of(cls, explanation: Explanation) -> Sentences:
        """The sentences of an explanation."""
        basis = " (calibrated)." if explanation.calibrated else ", by probabilities that were not calibrated."
        says = f"The model says {explanation.label} and is {explanation.prediction.confidence:.1%} sure{basis}"
        return cls(says, _decision(explanation.prediction), _doubt(explanation))

    def __str__(self) -> str:
        return f"{self.says} {self.decision} {self.doubt}"


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
    unstable = "; dropout is enough to change its label" if reason == UNSTABLE else ""
    return f"It {'abstains' if prediction.abstain else 'answers'}: {compared.describe()}{unstable}."


def _doubt(explanation: Explanation) -> str:
    moved = ""  # one pass cannot know
    if explanation.interval is not None:
        low, high = explanation.interval
        how = f"the {explanation.prediction.passes} passes say"
        how = how if explanation.band is None else "under dropout the probability would be"
        moved = f"{how} between {low:.1%} and {high:.1%}"
        if high - low <= NARROW:
            if explanation.prediction.confidence >= _SURE:
                return f"There is hardly any uncertainty: {moved}."
            return f"Dropout hardly moves it ({moved}): the doubt lies in the text as a whole, not in single words."
    reach = f"; {moved}" if moved else ""
    ranked = sorted(explanation.words, key=lambda word: -word.share)
    named = [word for word in ranked[:NAMED] if word.share >= CARRIES]
    special = max(explanation.special_tokens, key=lambda word: word.share, default=None)
    rest = "is spread over many tokens and the head"
    of_all = ""
    if special is not None and special.share >= CARRIES:
        of_all = f"{special.share:.0%} comes from {special.word.text}, which every text has"
    if not named:
        return f"No word carries a tenth of the doubt: {of_all or f'it {rest}'}{reach}."
    *others, last = [f"“{word.word.text}”" for word in named]
    names = f"{', '.join(others)} and {last}" if others else last
    share = sum(word.share for word in named)
    if share >= 0.5:
        return f"Most of the doubt comes from {names} ({share:.0%} of the variance){reach}."
    return f"{share:.0%} of the doubt comes from {names}, {of_all or f'the rest {rest}'}{reach}."
