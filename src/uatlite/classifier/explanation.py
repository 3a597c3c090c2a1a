"""One text explained: its prediction, and the words, layers and attention that the uncertainty comes from.

No pass is run twice. Drawing is elsewhere (`uatlite.lab.report`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from uatlite.attribution.attention import AttentionShift, attention_shift
from uatlite.attribution.case import LAYER_COMPONENTS
from uatlite.attribution.layers import ESTIMATORS, Attribution, Propagation, attribute, propagate
from uatlite.attribution.words import TokenAttribution, tokens_of
from uatlite.classifier.display import excerpt
from uatlite.classifier.predictions import Prediction
from uatlite.classifier.run import over_windows, tokenized
from uatlite.classifier.runtime import Outputs, outputs_of, run_batch
from uatlite.classifier.settings import Settings
from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.methods.method import Method
from uatlite.model.intervention import CLASSIFIER, EMBEDDING
from uatlite.model.tokens import TOKENIZING
from uatlite.passes.config import UATConfig
from uatlite.trust.distribution import MarginBand
from uatlite.values import Choices, Text, WordAttribution, strings

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

    What is attributed is the variance of the margin under the method's dropout: the logit of the class that the pass
    without dropout predicts minus that of the runner-up.
    """

    prediction: Prediction
    """the same as `clf.predict([text])[0]`"""
    outputs: Outputs
    """the logits of every pass, a batch of this one text"""
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
    band: MarginBand | None
    """how far the probability reaches where the margin varies; None for sampled passes, which show it themselves"""

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
    def chosen_tokens(self) -> tuple[ExplainedToken, ...]:
        """The tokens of the text, or of the option that the pass without dropout predicts."""
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
        return {
            "text": list(strings(self.text)),
            "method": self.method,
            "prediction": self.prediction.as_row(),
            "quiet_label": self.quiet_label,
            "quiet_confidence": self.quiet_confidence,
            "band": None if self.band is None else asdict(self.band),
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


@dataclass(frozen=True)
class ExplanationOptions:
    """What an explanation is to hold besides the prediction, its words and its layers."""

    estimator: str = "delta"
    """of the layers' contributions: delta, isolated or total-variance"""
    samples: int = 200
    """passes for each layer and component; delta needs none"""
    occlusion: bool = True
    """whether to mask each word in turn, a forward pass each"""
    attention: bool = True
    """whether to compare attention with and without modulation"""

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, ESTIMATORS)


@dataclass(frozen=True, eq=False)
class Reading:
    """One tokenized text, and the outputs of the method's passes."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoded: Mapping[str, Tensor]
    """(1, [choices,] tokens)"""
    method: Method
    config: UATConfig
    outputs: Outputs
    propagation: Propagation


def read(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: Text, settings: Settings) -> Reading:
    """Run the method's passes over a text, and one forward and backward pass where they are not among them."""
    config = config_of(settings.method)
    windows = tokenized(tokenizer, [text], settings)
    if len(windows.tokens) > 1:
        raise InputError(
            f"the text is read in {len(windows.tokens)} windows of {settings.max_length} tokens, and one explanation "
            "is of one window; explain its parts, or set windows=False to explain its beginning."
        )
    (batch,) = windows.tokens.batches()
    passes = run_batch(model, settings.method, batch.inputs)
    return Reading(
        model=model,
        tokenizer=tokenizer,
        encoded=_with_words(tokenizer, text, batch.inputs, settings.max_length),
        method=settings.method,
        config=config,
        outputs=over_windows(outputs_of(passes), windows),
        propagation=passes.sources or propagate(model, batch.inputs, config),
    )


def config_of(method: Method) -> UATConfig:
    """The configuration whose dropout is explained; an error where nothing drops."""
    if method.config is not None:
        return method.config
    raise ConfigurationError(
        f"the method {method.name!r} drops nothing, so its predictions have no variance to explain. Name one that "
        "does, such as method='analytic', 'fast' or 'uat', and leave a saved calibration aside: calibrated=False "
        "(uatlite explain --method analytic --uncalibrated)."
    )


def explain(
    reading: Reading, prediction: Prediction, options: ExplanationOptions, band: MarginBand | None
) -> Explanation:
    """The explanation of a text from its passes; what else is asked for takes further ones."""
    model, encoded, found = reading.model, reading.encoded, reading.propagation
    by_token = tokens_of(found, model, reading.tokenizer, encoded, reading.config, occlusion=options.occlusion)
    predicted = int(by_token.predicted[0])
    words = by_token.words[0]
    return Explanation(
        prediction=prediction,
        outputs=reading.outputs,
        method=reading.method.name,
        quiet_label=prediction.among.classes[predicted],
        quiet_confidence=float(by_token.confidence[0]),
        words=tuple(word for word in words if not word.word.special),
        special_tokens=tuple(word for word in words if word.word.special),
        tokens=_tokens(reading, by_token),
        sequence_length=encoded["input_ids"].shape[-1],
        chosen_sequence=predicted if encoded["input_ids"].ndim == 3 else 0,
        attribution=_attribution(reading, options),
        attention=_attention(reading) if options.attention else None,
        band=band,
    )


def _attribution(reading: Reading, options: ExplanationOptions) -> Attribution:
    if options.estimator == "delta":
        return reading.propagation.attribution()
    return attribute(
        reading.model,
        reading.encoded,
        reading.config,
        estimator=options.estimator,
        output="margin",
        samples=options.samples,
    )


def _attention(reading: Reading) -> AttentionShift | None:
    if not reading.config.modulates:
        return None
    return attention_shift(reading.model, reading.encoded, reading.config, sampled=reading.method.stochastic)


def _tokens(reading: Reading, found: TokenAttribution) -> tuple[ExplainedToken, ...]:
    special = {place for word in found.words[0] if word.word.special for place in word.word.tokens}
    pieces: list[str] = reading.tokenizer.convert_ids_to_tokens(reading.encoded["input_ids"].flatten().tolist())
    uncertainty, variance = found.uncertainty[0].flatten().tolist(), found.variance[0].flatten().tolist()
    total = float(found.total[0]) or 1.0
    real = sorted(place for word in found.words[0] for place in word.word.tokens)
    return tuple(
        ExplainedToken(pieces[place], place, place in special, uncertainty[place], variance[place] / total)
        for place in real
    )


def _with_words(
    tokenizer: PreTrainedTokenizerBase, text: Text, inputs: dict[str, Tensor], max_length: int
) -> Mapping[str, Tensor]:
    """The same tensors with a fast tokenizer's word indices; for options the marks of the pieces tell words apart."""
    if not tokenizer.is_fast or isinstance(text, Choices):
        return inputs
    first, second = (text, None) if isinstance(text, str) else text
    with TOKENIZING:
        encodings = tokenizer(first, second, truncation=True, max_length=max_length, verbose=False).encodings
    with_words: Mapping[str, Tensor] = BatchEncoding(inputs, encoding=encodings)
    return with_words
