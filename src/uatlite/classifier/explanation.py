"""One text explained: its prediction, and the words, layers and attention that the uncertainty comes from.

Drawing is elsewhere (`uatlite.lab.report`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from uatlite.attribution.attention import AttentionShift
from uatlite.attribution.first_order import LAYER_COMPONENTS
from uatlite.attribution.layers import Attribution
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.predictions import Prediction, excerpt
from uatlite.classifier.runtime import Outputs
from uatlite.classifier.summary import Comparison, Sentences, listed
from uatlite.model.intervention import CLASSIFIER, EMBEDDING
from uatlite.trust.distribution import MarginBand
from uatlite.values import Text, WordAttribution, strings

_SHOWN = 5
"""Words of a printed explanation; `words` has all of them."""
COMPONENT_NAMES = (EMBEDDING, *LAYER_COMPONENTS, CLASSIFIER)
"""The components of a model in forward order."""


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
    """What one layer contributes to the variance of the margin."""

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


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The prediction of one text, and where its uncertainty comes from.

    All of it is about the predicted class. What is attributed is the variance of its margin under the method's dropout:
    its logit minus that of the next likely class.
    """

    prediction: Prediction
    """the same as `clf.predict([text])[0]`"""
    outputs: Outputs
    """the logits of every pass, a batch of this one text"""
    method: str
    calibrated: bool
    """whether the probabilities are"""
    quiet_label: str
    """the class that the pass without dropout predicts; where the margin is small it can be another"""
    words: tuple[WordAttribution, ...]
    """the words in order, those of a question's options one after another; `masked_confidence` is what the method says
    of the predicted class without the word, calibrated like the prediction"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    tokens: tuple[ExplainedToken, ...]
    """every token in order"""
    sequence_length: int
    """tokens of one sequence, padding counted: a text or pair is one sequence, a question one for each option"""
    chosen_sequence: int
    """the sequence of the predicted option; 0 for a text or a pair"""
    attribution: Attribution
    """a batch of this one text"""
    attention: AttentionShift | None
    """a batch of this one text; None where it was not asked for, or the method does not modulate attention"""
    band: MarginBand | None
    """how far the probability reaches where the margin varies; None for sampled passes, which show it themselves"""
    interval: tuple[float, float] | None
    """between which ends dropout moves the probability: 95% of the band, or all passes; None for a single pass"""

    @property
    def text(self) -> Text:
        return self.prediction.text

    @property
    def label(self) -> str:
        """The predicted class by its name."""
        among = self.prediction.among
        assert isinstance(among, ClassPredictions)
        return among.classes[int(among.predicted[self.prediction.row])]

    @property
    def summary(self) -> Sentences:
        """What the model says, what is decided and why, and which words carry the doubt, in plain sentences."""
        return Sentences.of(self)

    @property
    def truncated_tokens(self) -> int:
        """How many tokens of the text were cut off, and so are not explained."""
        return self.prediction.among.truncated_tokens

    @property
    def layers(self) -> tuple[ExplainedLayer, ...]:
        """The contributions by layer, and within a layer by component."""
        found = self.attribution
        errors = None if found.contribution_errors is None else found.contribution_errors[0].tolist()
        shares, parts = found.shares[0].tolist(), self._components(found.contributions, found.components)
        part_errors = None
        if found.contribution_errors is not None:
            part_errors = self._components(found.contribution_errors, found.component_errors)
        return tuple(
            ExplainedLayer(
                name=name,
                contribution=value,
                share=shares[i],
                components=parts[i],
                error=None if errors is None else errors[i],
                component_errors=None if part_errors is None else part_errors[i],
            )
            for i, (name, value) in enumerate(zip(found.layers, found.contributions[0].tolist(), strict=True))
        )

    @staticmethod
    def _components(layers: torch.Tensor, components: torch.Tensor | None) -> list[dict[str, float]]:
        """By layer, the values of its components by name; embeddings and head are of one component each."""
        assert components is not None  # explaining always asks for them
        first, attention, feed_forward, last = COMPONENT_NAMES
        middle = [{attention: one, feed_forward: other} for one, other in components[0].tolist()]
        return [{first: float(layers[0, 0])}, *middle, {last: float(layers[0, -1])}]

    @property
    def chosen_tokens(self) -> tuple[ExplainedToken, ...]:
        """The tokens of the text, or of the predicted option."""
        first = self.chosen_sequence * self.sequence_length
        return tuple(token for token in self.tokens if 0 <= token.place - first < self.sequence_length)

    @property
    def token_attention(self) -> AttentionShift | None:
        """Attention between `chosen_tokens`, (layers, heads, tokens, tokens); None without `attention`."""
        places = [token.place % self.sequence_length for token in self.chosen_tokens]
        return None if self.attention is None else self.attention.between(places, self.chosen_sequence)

    @property
    def segments(self) -> tuple[tuple[WordAttribution, ...], ...]:
        """The words in runs that no special token parts: a text, the parts of a pair, a question and an option."""
        found: list[list[WordAttribution]] = []
        following = None
        for word in self.words:
            if word.word.tokens[0] != following:
                found.append([])
            found[-1].append(word)
            following = word.word.tokens[-1] + 1
        return tuple(tuple(run) for run in found)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; attention as (layers, [choices,] heads, tokens, tokens)."""
        found = self.attribution
        attention = None if self.attention is None else self.attention.to_dict()
        compared = Comparison.of(self.prediction)
        return {
            "summary": asdict(self.summary),
            "text": list(strings(self.text)),
            "method": self.method,
            "calibrated": self.calibrated,
            "prediction": self.prediction.as_row(),
            "threshold": None if compared is None else compared.to_dict(),
            "quiet_label": self.quiet_label,
            "band": None if self.band is None else asdict(self.band),
            "interval": self.interval,
            "truncated_tokens": self.truncated_tokens,
            "words": [asdict(word) for word in self.words],
            "special_tokens": [asdict(word) for word in self.special_tokens],
            "tokens": [asdict(token) for token in self.tokens],
            "estimator": found.estimator,
            "samples": found.samples,
            "variance": float(found.total[0]),
            "variance_error": None if found.total_error is None else float(found.total_error[0]),
            "layers": [asdict(layer) for layer in self.layers],
            "attention": attention and {name: [layer[0] for layer in maps] for name, maps in attention.items()},
        }

    def __repr__(self) -> str:
        likely = ", ".join(f"{name} {value:.1%}" for name, value in listed(self.prediction.probabilities))
        lines = [f"Explanation of {excerpt(self.text)!r}", str(self.summary), f"Probabilities: {likely}"]
        for word in sorted(self.words, key=lambda one: -one.share)[:_SHOWN]:
            masked = "" if word.masked_confidence is None else f", {word.masked_confidence:.1%} sure if masked"
            lines.append(f"  {word.word.text:<16} {word.share:6.1%} of the variance{masked}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnswerExplanation(ABC):
    """One of several answers about a text, and where its variance under dropout comes from, to first order."""

    prediction: Prediction
    """the same as `predict([text])[0]`"""
    method: str
    variance: float
    """first-order, of the label's logit or of the margin of an entity's weakest token"""
    words: tuple[WordAttribution, ...]
    """the words in order, each with its share of the variance; of a long text those of one window"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    layers: Mapping[str, float]
    """the share of each layer: embeddings, layer 1 .. layer L, head"""

    @property
    def text(self) -> Text:
        return self.prediction.text

    @property
    @abstractmethod
    def says(self) -> str:
        """What is explained, in a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "method": self.method,
            "variance": self.variance,
            "words": [asdict(word) for word in self.words],
            "special_tokens": [asdict(word) for word in self.special_tokens],
            "layers": dict(self.layers),
            "prediction": self.prediction.as_row(),
        }

    def __repr__(self) -> str:
        most = sorted(self.words, key=lambda word: -word.share)[:_SHOWN]
        layers = sorted(self.layers.items(), key=lambda item: -item[1])[:3]
        return "\n".join(
            [
                self.says,
                "Words: " + ", ".join(f"{word.word.text} {word.share:.0%}" for word in most),
                "Layers: " + ", ".join(f"{name} {share:.0%}" for name, share in layers),
            ]
        )
