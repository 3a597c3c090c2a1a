"""How one answer of a text is explained: the method's passes, then its words and layers; no pass is run twice.

What is explained, of which kind so ever, is an `Explained`: `AnswerKind.explained` gives it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.first_order import OUTPUTS, Case, first_order, first_orders
from uatlite.attribution.layers import ESTIMATORS, Attribution, attribute
from uatlite.attribution.words import attribute_words
from uatlite.classifier.explanation import AnswerExplanation, Explained, ExplainedToken, Explanation, TextRun
from uatlite.classifier.predictions import Prediction
from uatlite.classifier.runtime import TorchRuntime, outputs_of, over_windows, tokenized
from uatlite.errors import ConfigurationError, InputError, ModelError, check_choice
from uatlite.model.tokens import BATCH_TEXTS, BATCH_TOKENS, TOKENIZING
from uatlite.trust.distribution import probabilities
from uatlite.values import Choices, Text, Word, WordAttribution, strings

if TYPE_CHECKING:
    from uatlite.classifier.product import Predictor


@dataclass(frozen=True)
class ExplanationOptions:
    """What the explanation of a class is to hold besides the prediction, its words and its layers."""

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


def with_gradients(predictor: "Predictor") -> TorchRuntime:
    """The PyTorch model of a predictor."""
    if isinstance(predictor.runtime, TorchRuntime):
        return predictor.runtime
    raise ModelError(
        "an exported model cannot be explained, which takes gradients; explain the checkpoint that it was exported "
        "from."
    )


def run_text(predictor: "Predictor", text: Text) -> tuple[TextRun, Prediction]:
    """Run the method's passes over a text that is read in one window."""
    runtime, settings = with_gradients(predictor), predictor.settings
    config = settings.method.config
    if config is None:
        raise ConfigurationError(
            f"the method {settings.method.name!r} drops nothing, so its predictions have no variance to explain. Name "
            "one that does, such as method='analytic', 'fast' or 'uat', and leave a saved calibration aside: "
            "calibrated=False (uatlite explain --method analytic --uncalibrated)."
        )
    windows = tokenized(runtime.tokenizer, [text], settings)
    if len(windows.tokens) > 1:
        raise InputError(
            f"the text is read in {len(windows.tokens)} windows of {settings.max_length} tokens, and one explanation "
            "is of one window; explain its parts, or set windows=False to explain its beginning."
        )
    (batch,) = windows.tokens.batches()
    passes = settings.method.run(runtime.model, batch.inputs)
    encoded = _with_words(runtime.tokenizer, text, batch.inputs, settings.max_length)
    reading = over_windows(outputs_of(passes), windows)
    run = TextRun(predictor, runtime.model, runtime.tokenizer, reading, encoded, config, passes.sources)
    return run, predictor.said([text], reading)[0]


def margin_at(place: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The margin between the two highest logits of one token, as `first_orders` takes an output."""

    def margin(rows: Tensor, logits: Tensor) -> Tensor:
        weights = torch.zeros_like(logits)
        weights[0, place] = OUTPUTS["margin"](logits[:, place])[0]
        return weights[None]

    return margin


def explain(predictor: "Predictor", text: Text, which: str | int | None = None, **options: Any) -> AnswerExplanation:
    """The explanation of one answer of a checked text, by default of the one that is least sure.

    That of a class is an `Explanation`; what `ExplanationOptions` ask for takes further passes.
    """
    asked = ExplanationOptions(**options)
    explained = predictor.kind.explained(predictor, text, which)
    run, attribution = explained.run, _first_order(explained)
    (words,) = attribute_words(attribution, run.tokenizer, run.encoded)
    spoken, special = (tuple(word for word in words if word.word.special == marked) for marked in (False, True))
    if explained.about:
        return AnswerExplanation(**vars(explained), attribution=attribution, words=spoken, special_tokens=special)
    compared, attention = attribution, None
    if asked.estimator != attribution.estimator:
        how: Any = {"estimator": asked.estimator, "output": explained.output, "samples": asked.samples}
        compared = attribute(run.model, run.encoded, run.config, **how)
    if asked.attention and run.config.modulates:
        attention = attention_shift(run.model, run.encoded, run.config, sampled=run.method.stochastic)
    return Explanation(
        **vars(explained),
        attribution=compared,
        words=_masked(explained, spoken) if asked.occlusion else spoken,
        special_tokens=special,
        tokens=_tokens(run, attribution, words),
        attention=attention,
    )


def _first_order(explained: Explained) -> Attribution:
    """The first-order variance of the output that is explained."""
    run, output = explained.run, explained.output
    if run.sources is not None and isinstance(output, tuple):
        highest: list[int] = run.sources.logits[0].topk(2).indices.tolist()
        if sorted(highest) == sorted(output):  # the variance of a margin has no direction
            return run.sources
    case = Case.of(run.model, run.encoded, run.config)
    if callable(output):
        return Attribution.of(first_orders(case, output), "margin")
    return Attribution.of(first_order(case, output), output)


def _masked(explained: Explained, words: Sequence[WordAttribution]) -> tuple[WordAttribution, ...]:
    """The words with what the method says of the explained class where each is masked, calibrated."""
    run = explained.run
    if not words:
        return ()
    replacement = replacement_id(run.tokenizer, run.model.get_input_embeddings().num_embeddings)
    most = max(1, min(BATCH_TEXTS, BATCH_TOKENS // run.encoded["input_ids"][0].numel()))
    confidence: list[float] = []
    for start in range(0, len(words), most):
        inputs = masked_inputs(run.encoded, [word.word for word in words[start : start + most]], replacement)
        said = probabilities(outputs_of(run.method.run(run.model, inputs)), run.predictor.calibrator)
        confidence += said[:, explained.number].tolist()
    return tuple(replace(word, masked_confidence=sure) for word, sure in zip(words, confidence, strict=True))


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


def _tokens(run: TextRun, margin: Attribution, words: Sequence[WordAttribution]) -> tuple[ExplainedToken, ...]:
    assert margin.tokens is not None
    assert margin.token_uncertainty is not None
    special = {i for word in words if word.word.special for i in word.word.tokens}
    pieces: list[str] = run.tokenizer.convert_ids_to_tokens(run.encoded["input_ids"].flatten().tolist())
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
