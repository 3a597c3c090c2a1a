"""How one answer of a text is explained: the method's passes, then its words and layers; no pass is run twice.

What is explained, of which kind so ever, is an `Explained`: `AnswerKind.explained` gives it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.first_order import OUTPUTS, Case, Weigh, first_orders, with_fixed_gates, without_noise
from uatlite.attribution.layers import ESTIMATORS, Attribution, attribute
from uatlite.attribution.words import as_written, attribute_words
from uatlite.classifier.explanation import AnswerExplanation, Explained, ExplainedToken, Explanation
from uatlite.classifier.runtime import TorchRuntime, over_windows, tokenized
from uatlite.errors import ConfigurationError, InputError, ModelError, check_choice
from uatlite.methods.method import Method
from uatlite.methods.sampling import ANALYTIC
from uatlite.model.tokens import BATCH_TEXTS, BATCH_TOKENS, TOKENIZING, sequences
from uatlite.passes.config import UATConfig
from uatlite.trust.distribution import probabilities
from uatlite.values import Text, WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.product import Predictor


def with_gradients(predictor: "Predictor") -> TorchRuntime:
    """The PyTorch model of a predictor."""
    if isinstance(predictor.runtime, TorchRuntime):
        return predictor.runtime
    raise ModelError(
        f"{predictor.runtime.architecture} cannot be explained here and does not show its token uncertainty: an "
        "exported model or scores have no gradients; use the PyTorch checkpoint."
    )


def run_text(predictor: "Predictor", text: Text) -> dict[str, Any]:
    """The fields of `Explained` that are of the text: the method's passes over it, in one window."""
    runtime, settings = with_gradients(predictor), predictor.settings
    if settings.method.config is None:
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
    reading = over_windows(passes.arrays(), windows)
    return {
        "prediction": predictor.said([text], reading)[0],
        "reading": reading,
        "sources": passes.sources,
        **_located(runtime.tokenizer, text, batch.inputs, settings.max_length),
    }


def margin_at(token: int) -> Weigh:
    """The output that is the margin between the two highest logits of one token."""

    def margin(rows: Tensor, logits: Tensor) -> Tensor:
        weights = torch.zeros_like(logits)
        weights[0, token] = OUTPUTS["margin"](logits[:, token])[0]
        return weights[None]

    return margin


def explain(
    predictor: "Predictor",
    text: Text,
    which: str | int | None = None,
    *,
    estimator: str = "delta",
    samples: int = 200,
    occlusion: bool = True,
    attention: bool = True,
) -> AnswerExplanation:
    """The explanation of one answer of a checked text, by default of the one that is least sure.

    That of a class is an `Explanation`. For it `estimator` compares the layers by `samples` passes of each (delta needs
    none), `occlusion` masks each word in turn, and `attention` is compared with and without modulation.
    """
    check_choice("estimator", estimator, ESTIMATORS)
    explained, runtime = predictor.kind.explained(predictor, text, which), with_gradients(predictor)
    method, encoded = predictor.settings.method, explained.encoded
    config = method.config or ANALYTIC.config
    attribution = _first_order(runtime.model, explained, config)
    gated = _gated(method)
    if method.stochastic:
        _, _, uncertainty = without_noise(Case.of(runtime.model, encoded, gated, fixed_gates=False))
        attribution = replace(attribution, token_uncertainty=uncertainty)
    (words,) = attribute_words(attribution, runtime.tokenizer, encoded)
    words = tuple(replace(word, word=as_written(word.word, explained.token_places)) for word in words)
    spoken, special = (tuple(word for word in words if word.word.special == marked) for marked in (False, True))
    estimate = gated.estimate if gated.estimate == "closed-form" else f"{gated.estimate}, {gated.samples} passes"
    every: dict[str, Any] = {**vars(explained), "method": method.name, "uncertainty_estimate": estimate}
    if explained.about:
        return AnswerExplanation(**every, attribution=attribution, words=spoken, special_tokens=special)
    compared, shift = attribution, None
    if estimator != attribution.estimator:
        how: Any = {"estimator": estimator, "output": explained.output, "samples": samples}
        compared = attribute(runtime.model, encoded, config, **how)
    if attention and config.modulates:
        shift = attention_shift(runtime.model, encoded, config, sampled=method.stochastic)
    return Explanation(
        **every,
        attribution=compared,
        words=_masked(predictor, explained, spoken) if occlusion else spoken,
        special_tokens=special,
        tokens=_tokens(runtime, encoded, attribution, words),
        attention=shift,
        calibrator=predictor.calibrator,
    )


def _gated(method: Method) -> UATConfig:
    """The configuration whose U is told: that of the method's passes, in closed form where none drops anything."""
    config = method.config or ANALYTIC.config
    return config if method.stochastic else with_fixed_gates(config)


def uncertain_tokens(predictor: "Predictor", texts: Sequence[Text]) -> list[list[dict[str, Any]]]:
    """The tokens of each text in order, each with its U as the method estimates it; of a long text window by window."""
    runtime, settings = with_gradients(predictor), predictor.settings
    windows, by_row = tokenized(runtime.tokenizer, texts, settings), dict[int, list[dict[str, Any]]]()
    for batch in windows.tokens.batches():
        case = Case.of(runtime.model, batch.inputs, _gated(settings.method), fixed_gates=False)
        _, _, uncertainty = without_noise(case)
        real, uncertainty = batch.inputs["attention_mask"].bool(), uncertainty.cpu()
        for i, row in enumerate(batch.rows):
            pieces = runtime.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][i][real[i]].tolist())
            pairs = zip(pieces, uncertainty[i][real[i]].tolist(), strict=True)
            by_row[row] = [{"token": piece, "uncertainty": round(value, 6)} for piece, value in pairs]
    rows = iter(sorted(by_row))
    return [[token for _ in range(count) for token in by_row[next(rows)]] for count in windows.counts.tolist()]


def _first_order(model: PreTrainedModel, explained: Explained, config: UATConfig) -> Attribution:
    """The first-order variance of the output that is explained."""
    sources, output = explained.sources, explained.output
    if sources is not None and isinstance(output, tuple):
        highest: list[int] = sources.logits[0].topk(2).indices.tolist()
        if sorted(highest) == sorted(output):  # the variance of a margin has no direction
            return sources
    return Attribution.of(first_orders(Case.of(model, explained.encoded, config), output))


def _masked(
    predictor: "Predictor", explained: Explained, words: Sequence[WordAttribution]
) -> tuple[WordAttribution, ...]:
    """The words with what the method says of the explained class where each is masked, calibrated."""
    if not words:
        return ()
    runtime, method, encoded = with_gradients(predictor), predictor.settings.method, explained.encoded
    replacement = replacement_id(runtime.tokenizer, runtime.model.get_input_embeddings().num_embeddings)
    most = max(1, min(BATCH_TEXTS, BATCH_TOKENS // encoded["input_ids"][0].numel()))
    confidence: list[float] = []
    for start in range(0, len(words), most):
        some = words[start : start + most]
        copies = {name: value[[0] * len(some)].clone() for name, value in encoded.items()}
        for ids, word in zip(copies["input_ids"].view(len(some), -1), some, strict=True):
            ids[list(word.word.tokens)] = replacement
        said = probabilities(method.run(runtime.model, copies).arrays(), predictor.calibrator)
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


def _tokens(
    runtime: TorchRuntime, encoded: Mapping[str, Tensor], margin: Attribution, words: Sequence[WordAttribution]
) -> tuple[ExplainedToken, ...]:
    assert margin.tokens is not None
    assert margin.token_uncertainty is not None
    special = {i: word.word.special for word in words for i in word.word.tokens}
    pieces: list[str] = runtime.tokenizer.convert_ids_to_tokens(encoded["input_ids"].flatten().tolist())
    uncertainty, variance = margin.token_uncertainty[0].flatten().tolist(), margin.tokens[0].flatten().tolist()
    total = float(margin.total[0]) or 1.0
    return tuple(ExplainedToken(pieces[i], i, special[i], uncertainty[i], variance[i] / total) for i in sorted(special))


def _located(
    tokenizer: PreTrainedTokenizerBase, text: Text, inputs: dict[str, Tensor], max_length: int
) -> dict[str, Any]:
    """The tensors with a fast tokenizer's word indices, and where each token stands in the strings of the text.

    Options have no word indices: the marks of the pieces tell their words apart.
    """
    if not tokenizer.is_fast:
        return {"encoded": inputs}
    joined, width = sequences(text), inputs["input_ids"].shape[-1]
    with TOKENIZING:
        encodings = tokenizer(joined, truncation=True, max_length=max_length, verbose=False).encodings
    parts = [(each,) if isinstance(each, str) else each for each in joined]
    token_places = {
        number * width + i: (parts[number][segment], *ends)
        for number, encoding in enumerate(encodings or ())
        for i, (segment, ends) in enumerate(zip(encoding.sequence_ids, encoding.offsets, strict=True))
        if segment is not None
    }
    return {"encoded": BatchEncoding(inputs, encoding=encodings), "token_places": token_places}
