"""How one text is explained: the method's passes, then its words, layers and attention. No pass is run twice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from uatlite.attribution.attention import AttentionShift, attention_shift
from uatlite.attribution.layers import ESTIMATORS, Attribution, attribute
from uatlite.attribution.words import attribute_words
from uatlite.classifier.explanation import ExplainedToken, Explanation
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.predictions import Prediction
from uatlite.classifier.runtime import Outputs, outputs_of, over_windows, run_batch, tokenized
from uatlite.classifier.settings import Settings
from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.methods.method import Method
from uatlite.model.tokens import BATCH_TEXTS, BATCH_TOKENS, TOKENIZING
from uatlite.passes.config import UATConfig
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import MarginBand, margin_band, pass_probabilities, probabilities
from uatlite.values import Choices, Text, Word, WordAttribution, strings


@dataclass(frozen=True)
class ExplanationOptions:
    """What an explanation is to hold besides the prediction, its words and its layers."""

    estimator: str = "delta"
    """of the layers' contributions: delta, isolated or total-variance"""
    samples: int = 200
    """passes for each layer and component; delta needs none"""
    occlusion: bool = True
    """whether to mask each word in turn, which costs as much as predicting a text for each word"""
    attention: bool = True
    """whether to compare attention with and without modulation"""

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, ESTIMATORS)


@dataclass(frozen=True, eq=False)
class _Reading:
    """One tokenized text, and the outputs of the method's passes."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoded: Mapping[str, Tensor]
    """(1, [choices,] tokens)"""
    method: Method
    config: UATConfig
    outputs: Outputs
    sources: Attribution | None
    """of the margin between the two highest logits, where the method's passes found it"""


def read(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: Text, settings: Settings) -> _Reading:
    """Run the method's passes over a text."""
    config = _config_of(settings.method)
    windows = tokenized(tokenizer, [text], settings)
    if len(windows.tokens) > 1:
        raise InputError(
            f"the text is read in {len(windows.tokens)} windows of {settings.max_length} tokens, and one explanation "
            "is of one window; explain its parts, or set windows=False to explain its beginning."
        )
    (batch,) = windows.tokens.batches()
    passes = run_batch(model, settings.method, batch.inputs)
    return _Reading(
        model=model,
        tokenizer=tokenizer,
        encoded=_with_words(tokenizer, text, batch.inputs, settings.max_length),
        method=settings.method,
        config=config,
        outputs=over_windows(outputs_of(passes), windows),
        sources=passes.sources,
    )


def _config_of(method: Method) -> UATConfig:
    """The configuration whose dropout is explained; an error where nothing drops."""
    if method.config is not None:
        return method.config
    raise ConfigurationError(
        f"the method {method.name!r} drops nothing, so its predictions have no variance to explain. Name one that "
        "does, such as method='analytic', 'fast' or 'uat', and leave a saved calibration aside: calibrated=False "
        "(uatlite explain --method analytic --uncalibrated)."
    )


def explain(
    reading: _Reading, prediction: Prediction, options: ExplanationOptions, calibrator: Calibrator | None
) -> Explanation:
    """The explanation of a text from its passes; what else is asked for takes further ones."""
    encoded, outputs = reading.encoded, reading.outputs
    predicted, following = _contrast(prediction)
    margin = _of_margin(reading, predicted, following)
    (words,) = attribute_words(margin, reading.tokenizer, encoded)
    tokens = _tokens(reading, margin, words)
    if options.occlusion:
        words = _masked(reading, words, predicted, calibrator)
    band = margin_band(outputs, calibrator)
    band = None if band is None or band.spread == 0 else band
    return Explanation(
        prediction=prediction,
        outputs=outputs,
        method=reading.method.name,
        calibrated=calibrator is not None,
        quiet_label=prediction.among.classes[int(margin.predicted[0])],
        words=tuple(word for word in words if not word.word.special),
        special_tokens=tuple(word for word in words if word.word.special),
        tokens=tokens,
        sequence_length=encoded["input_ids"].shape[-1],
        chosen_sequence=predicted if encoded["input_ids"].ndim == 3 else 0,
        attribution=_attribution(reading, margin, (predicted, following), options),
        attention=_attention(reading) if options.attention else None,
        band=band,
        interval=_interval(outputs, calibrator, predicted, band),
    )


def origins(
    attribution: Attribution, tokenizer: PreTrainedTokenizerBase, encoded: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Where the variance of one text's answer comes from: the fields of an `AnswerExplanation` that say so."""
    (words,) = attribute_words(attribution, tokenizer, encoded)
    return {
        "variance": float(attribution.total[0]),
        "words": tuple(word for word in words if not word.word.special),
        "special_tokens": tuple(word for word in words if word.word.special),
        "layers": dict(zip(attribution.layers, attribution.shares[0].tolist(), strict=True)),
    }


def _contrast(prediction: Prediction) -> tuple[int, int]:
    """The columns of the predicted class and of the next likely one."""
    among = prediction.among
    assert isinstance(among, ClassPredictions)
    row, predicted = among.probabilities[prediction.row], int(among.predicted[prediction.row])
    following = max((column for column in range(len(row)) if column != predicted), key=lambda column: row[column])
    return predicted, following


def _of_margin(reading: _Reading, predicted: int, following: int) -> Attribution:
    """The first-order variance of the margin between two classes, which does not depend on their order."""
    sources = reading.sources
    if sources is not None and set(sources.logits[0].topk(2).indices.tolist()) == {predicted, following}:
        return sources
    return attribute(reading.model, reading.encoded, reading.config, output=(predicted, following))


def _masked(
    reading: _Reading, words: Sequence[WordAttribution], predicted: int, calibrator: Calibrator | None
) -> tuple[WordAttribution, ...]:
    """The words with what the method says of the predicted class where each is masked, calibrated."""
    places = [place for place, word in enumerate(words) if not word.word.special]
    if not places:
        return tuple(words)
    embeddings = reading.model.get_input_embeddings().num_embeddings
    replacement = replacement_id(reading.tokenizer, embeddings)
    most = max(1, min(BATCH_TEXTS, BATCH_TOKENS // reading.encoded["input_ids"][0].numel()))
    confidence: dict[int, float] = {}
    for start in range(0, len(places), most):
        part = places[start : start + most]
        inputs = masked_inputs(reading.encoded, [words[place].word for place in part], replacement)
        said = probabilities(outputs_of(run_batch(reading.model, reading.method, inputs)), calibrator)
        confidence |= dict(zip(part, said[:, predicted].tolist(), strict=True))
    return tuple(replace(word, masked_confidence=confidence.get(place)) for place, word in enumerate(words))


def replacement_id(tokenizer: PreTrainedTokenizerBase, embeddings: float = math.inf) -> int:
    """The id that replaces a masked token: the mask token's, else the unknown or padding token's.

    A token that the model has no embedding for does not count.
    """
    for name in ("mask_token_id", "unk_token_id", "pad_token_id"):
        token = getattr(tokenizer, name, None)
        if token is not None and token < embeddings:
            return int(token)
    raise InputError(
        f"{type(tokenizer).__name__} has no mask, unknown or padding token to replace a word by. "
        "Set tokenizer.mask_token, or call with occlusion=False."
    )


def masked_inputs(inputs: Mapping[str, Tensor], words: Sequence[Word], replacement: int) -> dict[str, Tensor]:
    """Copies of one text (1, [choices,] tokens), each with all pieces of one word replaced: (words, ...)."""
    copies = {name: value[[0] * len(words)].clone() for name, value in inputs.items()}
    flat = copies["input_ids"].view(len(words), -1)
    for copy, word in enumerate(words):
        flat[copy, list(word.tokens)] = replacement
    return copies


def _interval(
    outputs: Outputs, calibrator: Calibrator | None, predicted: int, band: MarginBand | None
) -> tuple[float, float] | None:
    """Between which ends the predicted class's probability moves under dropout."""
    if band is not None:
        return band.probabilities[0], band.probabilities[-1]
    each = pass_probabilities(outputs, calibrator)[:, 0, predicted]
    each = each[~np.isnan(each)]
    return (float(each.min()), float(each.max())) if len(each) > 1 else None


def _attribution(
    reading: _Reading, margin: Attribution, contrast: tuple[int, int], options: ExplanationOptions
) -> Attribution:
    if options.estimator == margin.estimator:
        return margin
    return attribute(
        reading.model,
        reading.encoded,
        reading.config,
        estimator=options.estimator,
        output=contrast,
        samples=options.samples,
    )


def _attention(reading: _Reading) -> AttentionShift | None:
    if not reading.config.modulates:
        return None
    return attention_shift(reading.model, reading.encoded, reading.config, sampled=reading.method.stochastic)


def _tokens(reading: _Reading, margin: Attribution, words: Sequence[WordAttribution]) -> tuple[ExplainedToken, ...]:
    assert margin.tokens is not None
    assert margin.token_uncertainty is not None
    special = {i for word in words if word.word.special for i in word.word.tokens}
    pieces: list[str] = reading.tokenizer.convert_ids_to_tokens(reading.encoded["input_ids"].flatten().tolist())
    uncertainty, variance = margin.token_uncertainty[0].flatten().tolist(), margin.tokens[0].flatten().tolist()
    total = float(margin.total[0]) or 1.0
    real = sorted(i for word in words for i in word.word.tokens)
    return tuple(ExplainedToken(pieces[i], i, i in special, uncertainty[i], variance[i] / total) for i in real)


def _with_words(
    tokenizer: PreTrainedTokenizerBase, text: Text, inputs: dict[str, Tensor], max_length: int
) -> Mapping[str, Tensor]:
    """The same tensors with a fast tokenizer's word indices; for options the marks of the pieces tell words apart."""
    if not tokenizer.is_fast or isinstance(text, Choices):
        return inputs
    first, second = text if isinstance(text, tuple) else (strings(text)[0], None)
    with TOKENIZING:
        encodings = tokenizer(first, second, truncation=True, max_length=max_length, verbose=False).encodings
    with_words: Mapping[str, Tensor] = BatchEncoding(inputs, encoding=encodings)
    return with_words
