"""Explaining one text: its prediction and where the uncertainty comes from, with no pass run twice."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from uatlite.attribution import (
    ESTIMATORS,
    AttentionShift,
    Attribution,
    Propagation,
    TokenAttribution,
    attention_shift,
    attribute,
    propagate,
    tokens_of,
)
from uatlite.classifier.explanation import ExplainedToken, Explanation
from uatlite.classifier.long_texts import TOKENIZING, truncated, windowed
from uatlite.classifier.outputs import Outputs, gather, on_cpu, pool
from uatlite.classifier.prediction import Prediction
from uatlite.classifier.settings import Settings
from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.methods import Method
from uatlite.methods.cascade import Cascade
from uatlite.passes.config import UATConfig
from uatlite.values import Choices, Text


@dataclass(frozen=True)
class Wishes:
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
    """One text as the model reads it, and what the method's passes say of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoded: Mapping[str, Tensor]
    """(1, [choices,] tokens)"""
    method: Method
    config: UATConfig
    outputs: Outputs
    propagation: Propagation


def read(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: Text, settings: Settings, *, represent: bool
) -> Reading:
    """Run the method's passes over a text, and one forward and backward pass where they are not among them."""
    config = config_of(settings.method)
    windows = (windowed if settings.windows else truncated)(tokenizer, [text], settings.max_length)
    if len(windows.tokens) > 1:
        raise InputError(
            f"the text is read in {len(windows.tokens)} windows of {settings.max_length} tokens, and one explanation "
            "is of one window; explain its parts, or set windows=False to explain its beginning."
        )
    (batch,) = windows.tokens.batches()
    passes = settings.method.run(model, batch.inputs)
    pooled = pool(model, batch.inputs) if represent else None
    return Reading(
        model=model,
        tokenizer=tokenizer,
        encoded=_knowing_words(tokenizer, text, batch.inputs, settings.max_length),
        method=settings.method,
        config=config,
        outputs=gather(windows, [batch], [on_cpu(passes)], [] if pooled is None else [pooled.cpu()]),
        propagation=passes.sources or propagate(model, batch.inputs, config),
    )


def config_of(method: Method) -> UATConfig:
    """The configuration whose dropout is explained, a cascade's by its second stage; an error where nothing drops."""
    config = getattr(method.then if isinstance(method, Cascade) else method, "config", None)
    if isinstance(config, UATConfig):
        return config
    raise ConfigurationError(
        f"the method {method.name!r} drops nothing, so its predictions have no variance to explain. Name one that "
        "does, such as method='analytic', 'fast' or 'uat', and leave a saved calibration aside: calibrated=False "
        "(uatlite explain --method analytic --uncalibrated)."
    )


def explain(reading: Reading, prediction: Prediction, wishes: Wishes) -> Explanation:
    """The explanation of a text from its passes; what else is wished for takes further ones."""
    model, encoded, found = reading.model, reading.encoded, reading.propagation
    by_token = tokens_of(found, model, reading.tokenizer, encoded, reading.config, occlusion=wishes.occlusion)
    predicted = int(by_token.predicted[0])
    words = by_token.words[0]
    return Explanation(
        prediction=prediction,
        method=reading.method.name,
        quiet_label=prediction.among.classes[predicted],
        quiet_confidence=float(by_token.confidence[0]),
        words=tuple(word for word in words if not word.word.special),
        special_tokens=tuple(word for word in words if word.word.special),
        tokens=_tokens(reading, by_token),
        sequence_length=encoded["input_ids"].shape[-1],
        chosen_sequence=predicted if encoded["input_ids"].ndim == 3 else 0,
        attribution=_attribution(reading, wishes),
        attention=_attention(reading) if wishes.attention else None,
    )


def _attribution(reading: Reading, wishes: Wishes) -> Attribution:
    if wishes.estimator == "delta":
        return reading.propagation.attribution()
    return attribute(
        reading.model,
        reading.encoded,
        reading.config,
        estimator=wishes.estimator,
        output="margin",
        samples=wishes.samples,
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


def _knowing_words(
    tokenizer: PreTrainedTokenizerBase, text: Text, inputs: dict[str, Tensor], max_length: int
) -> Mapping[str, Tensor]:
    """The same tensors with what a fast tokenizer says of words; options have none, their pieces' marks decide."""
    if not tokenizer.is_fast or isinstance(text, Choices):
        return inputs
    first, second = (text, None) if isinstance(text, str) else text
    with TOKENIZING:
        encodings = tokenizer(first, second, truncation=True, max_length=max_length, verbose=False).encodings
    knowing: Mapping[str, Tensor] = BatchEncoding(inputs, encoding=encodings)
    return knowing
