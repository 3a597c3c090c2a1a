"""Uncertainty, variance and occlusion by token and word; word pieces merged to words, special tokens kept apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from uatlite.attribution.case import Case, Output, without_noise
from uatlite.attribution.first_order import first_order
from uatlite.attribution.layers import Propagation
from uatlite.errors import InputError
from uatlite.passes.config import UATConfig
from uatlite.values import Word, WordAttribution

_STARTS = ("▁", "Ġ")
"""The mark of SentencePiece and of byte-level BPE before a piece that begins a word."""
_CONTINUES = "##"
"""The mark of WordPiece before a piece that continues a word."""

Key = tuple[int | None, int | None]


def words_of(tokenizer: PreTrainedTokenizerBase, encoded: Mapping[str, Tensor]) -> list[tuple[Word, ...]]:
    """The words of each text of a batch (batch, [choices,] tokens), in order; padding is left out.

    The tokenizer says what a word is. If it does not (a slow tokenizer, choices), the marks of the pieces decide: '##'
    continues a word, '▁' and 'Ġ' begin one.
    """
    ids, mask = encoded["input_ids"], encoded.get("attention_mask")
    real = ids.new_ones(ids.shape).bool() if mask is None else mask.bool()
    batch, width = ids.shape[0], ids[0].numel()
    specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}  # an unknown word is a word
    texts = []
    for row in range(batch):
        row_ids = ids[row].flatten().tolist()
        pieces: list[str] = tokenizer.convert_ids_to_tokens(row_ids)
        places = [place for place in range(width) if real[row].flatten()[place]]
        special = [row_ids[place] in specials for place in places]
        keys = _tokenizer_keys(encoded, row, width)
        starts = _starts([pieces[place] for place in places], special, keys and [keys[place] for place in places])
        texts.append(tuple(_words(tokenizer, pieces, places, special, starts)))
    return texts


def _tokenizer_keys(encoded: Mapping[str, Tensor], row: int, width: int) -> list[Key] | None:
    """The sequence and word of each token, if the tokenizer knows them for these rows."""
    if not isinstance(encoded, BatchEncoding) or encoded.encodings is None or row >= len(encoded.encodings):
        return None
    keys = list(zip(encoded.sequence_ids(row), encoded.word_ids(row), strict=True))
    return keys if len(keys) == width else None


def _starts(pieces: Sequence[str], special: Sequence[bool], keys: Sequence[Key] | None) -> list[bool]:
    """Whether each piece begins a word."""
    marked = any(piece.startswith(_STARTS) for piece in pieces)
    found = []
    for i, piece in enumerate(pieces):
        if i == 0 or special[i] or special[i - 1] or piece.startswith(_STARTS):
            found.append(True)
        elif keys is not None:
            found.append(keys[i] != keys[i - 1])
        else:
            found.append(not marked and not piece.startswith(_CONTINUES))
    return found


def _words(
    tokenizer: PreTrainedTokenizerBase,
    pieces: Sequence[str],
    places: Sequence[int],
    special: Sequence[bool],
    starts: Sequence[bool],
) -> list[Word]:
    begins = [i for i, start in enumerate(starts) if start]
    words = []
    for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
        tokens = tuple(places[begin:end])
        own = [pieces[place] for place in tokens]
        text = own[0] if special[begin] else tokenizer.convert_tokens_to_string(own).strip()
        words.append(Word(text, tokens, special[begin]))
    return words


@dataclass(frozen=True)
class TokenAttribution:
    """Uncertainty and variance of the tokens and words of each text of a batch."""

    predicted: Tensor
    """the class that the pass without dropout predicts: (batch,)"""
    confidence: Tensor
    """its probability: (batch,)"""
    uncertainty: Tensor
    """closed-form U of each token, 0 at padding: (batch, [choices,] tokens)"""
    variance: Tensor
    """the first-order variance of y by token: (batch, [choices,] tokens)"""
    total: Tensor
    """the first-order Var(y), with the head's part, which belongs to no token: (batch,)"""
    words: tuple[tuple[WordAttribution, ...], ...]
    """the words of each text in order"""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        tensors = {name: value.tolist() for name, value in self.__dict__.items() if isinstance(value, Tensor)}
        return {**tensors, "words": [[asdict(word) for word in text] for text in self.words]}


def attribute_tokens(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, Tensor],
    config: UATConfig | None = None,
    *,
    output: Output = "predicted",
    occlusion: bool = True,
) -> TokenAttribution:
    """Attribute uncertainty to tokens and words by one forward and one backward pass; the model is left untouched.

    A token's variance is the sum of its terms of the delta method; those of attention belong to the query token (see
    `uatlite.attribution.first_order`). With `occlusion`, one more forward pass per word, with all its pieces replaced
    by the mask token, measures the predicted class's probability without the word.
    """
    case = Case.of(model, encoded, config)
    return _attribute(case, tokenizer, encoded, Propagation.of(first_order(case, output)), occlusion)


def tokens_of(
    propagation: Propagation,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, Tensor],
    config: UATConfig | None = None,
    *,
    occlusion: bool = True,
) -> TokenAttribution:
    """`attribute_tokens` of the margin from the result of `propagate`: it runs the passes of occlusion only."""
    return _attribute(Case.of(model, encoded, config), tokenizer, encoded, propagation, occlusion)


def _attribute(
    case: Case,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, Tensor],
    found: Propagation,
    occlusion: bool,
) -> TokenAttribution:
    words = words_of(tokenizer, encoded)
    confidence, predicted = found.logits.softmax(dim=-1).max(dim=-1)
    masked = {}
    if occlusion:
        embeddings = case.view.model.get_input_embeddings().num_embeddings
        masked = _masked_confidence(case, words, predicted, replacement_id(tokenizer, embeddings))
    texts = []
    for row, text in enumerate(words):
        values = found.token_uncertainty[row].flatten(), found.tokens[row].flatten(), float(found.variance[row])
        texts.append(tuple(_attributed(word, *values, masked.get((row, i))) for i, word in enumerate(text)))
    return TokenAttribution(
        predicted, confidence, found.token_uncertainty, found.tokens, found.variance, words=tuple(texts)
    )


def _attributed(
    word: Word, uncertainty: Tensor, variance: Tensor, total: float, masked: float | None
) -> WordAttribution:
    """A word's values from those of all tokens (tokens,) of its text."""
    pieces = list(word.tokens)
    own = float(variance[pieces].sum())
    return WordAttribution(word, float(uncertainty[pieces].mean()), own, own / total if total > 0 else 0.0, masked)


def replacement_id(tokenizer: PreTrainedTokenizerBase, embeddings: float = math.inf) -> int:
    """The id that replaces a masked token: the mask token's, else the unknown or padding token's.

    A token that the model has no embedding for does not count.
    """
    for name in ("mask_token_id", "unk_token_id", "pad_token_id"):
        found = getattr(tokenizer, name, None)
        if found is not None and found < embeddings:
            return int(found)
    raise InputError(
        f"{type(tokenizer).__name__} has no mask, unknown or padding token to replace a word by. "
        "Set tokenizer.mask_token, or call with occlusion=False."
    )


def _masked_confidence(
    case: Case, words: list[tuple[Word, ...]], predicted: Tensor, replacement: int
) -> dict[tuple[int, int], float]:
    """For each text and word that is not special, the predicted class's probability when the word is masked."""
    places = [(row, i) for row, text in enumerate(words) for i, word in enumerate(text) if not word.special]
    if not places:
        return {}
    rows = [row for row, _ in places]
    inputs = masked_inputs(case.inputs, rows, [words[row][i] for row, i in places], replacement)
    logits = without_noise(replace(case, inputs=inputs)).logits
    confidence = logits.softmax(dim=-1).gather(1, predicted[rows, None])[:, 0]
    return dict(zip(places, confidence.tolist(), strict=True))


def masked_inputs(
    inputs: Mapping[str, Tensor], rows: Sequence[int], words: Sequence[Word], replacement: int
) -> dict[str, Tensor]:
    """Copies of rows of (batch, [choices,] tokens), each with all pieces of one word replaced: (words, ...)."""
    copies = {name: value[list(rows)].clone() for name, value in inputs.items()}
    flat = copies["input_ids"].view(len(rows), -1)
    for copy, word in enumerate(words):
        flat[copy, list(word.tokens)] = replacement
    return copies
