"""Why a prediction is unsure, as a value: the words, tokens, layers and attention of one text.

`uatlite.classifier.explaining` makes an explanation; `uatlite.report` shows one. Nothing here computes or draws.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from uatlite.attribution import AttentionShift, Attribution
from uatlite.attribution.parts import COMPONENTS
from uatlite.backbone.sites import CLASSIFIER, EMBEDDING
from uatlite.classifier.display import excerpt
from uatlite.classifier.prediction import Prediction
from uatlite.values import Text, WordAttribution, strings

COMPONENT_NAMES = (EMBEDDING, *COMPONENTS, CLASSIFIER)
"""The components of a model in forward order."""


@dataclass(frozen=True)
class ExplainedToken:
    """One token as the model reads it; padding is none."""

    text: str
    place: int
    """where it stands in the row of tokens, padding counted; the choices of a question follow one another"""
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

    What is attributed is the variance of the margin under the method's dropout: the logit of the class that the pass
    without dropout predicts minus that of the runner-up.
    """

    prediction: Prediction
    """the same as `clf.predict([text])[0]`"""
    method: str
    quiet_label: str
    """the class that the pass without dropout predicts; sampled passes may together say another"""
    quiet_confidence: float
    """its probability there, before calibration: what a word's `confidence_change` starts from"""
    words: tuple[WordAttribution, ...]
    """the words in order; those of a question's options one after another"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    tokens: tuple[ExplainedToken, ...]
    """every token in order"""
    sequence_length: int
    """tokens of one sequence, padding counted: a text or pair is one sequence, a question one for each option"""
    chosen_sequence: int
    """the sequence of the option that the pass without dropout predicts; 0 for a text or a pair"""
    attribution: Attribution
    """a batch of this one text"""
    attention: AttentionShift | None
    """a batch of this one text; None where it was not asked for, or the method does not modulate attention"""

    @property
    def text(self) -> Text:
        return self.prediction.text

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
        return {
            "text": list(strings(self.text)),
            "method": self.method,
            "prediction": self.prediction.as_row(),
            "quiet_label": self.quiet_label,
            "quiet_confidence": self.quiet_confidence,
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
        unsure = sorted(self.words, key=lambda word: -word.uncertainty)[:3]
        layer = max(self.layers, key=lambda one: one.share)
        return (
            f"Explanation of {excerpt(self.text)!r}: {self.prediction.label}, {self.prediction.confidence:.1%} sure; "
            f"most uncertain {', '.join(repr(word.word.text) for word in unsure)}; "
            f"{layer.name} has {layer.share:.0%} of the variance"
        )
