"""Uncertainty and variance by word: word pieces merged to words, special tokens kept apart."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from uatlite.attribution.layers import Attribution
from uatlite.values import Word, WordAttribution

_STARTS = ("▁", "Ġ")
"""The mark of SentencePiece and of byte-level BPE before a piece that begins a word."""
_CONTINUES = "##"
"""The mark of WordPiece before a piece that continues a word."""

_Key = tuple[int | None, int | None]
TokenPlaces = Mapping[int, tuple[str, int, int]]
"""Position of a token -> the string of the user that it is of, and where in it the token begins and ends."""


def words_of(tokenizer: PreTrainedTokenizerBase, encoded: Mapping[str, Tensor]) -> list[tuple[Word, ...]]:
    """The words of each text of a batch (batch, [choices,] tokens), in order; padding is left out.

    The tokenizer says what a word is. If it does not (a slow tokenizer, choices), the marks of the pieces decide: '##'
    continues a word, '▁' and 'Ġ' begin one.
    """
    ids, mask = encoded["input_ids"].flatten(1), encoded.get("attention_mask")
    real = ids.new_ones(ids.shape) if mask is None else mask.flatten(1)
    specials = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}  # an unknown word is a word
    texts = []
    for row, of_row in enumerate(ids.tolist()):
        pieces: list[str] = tokenizer.convert_ids_to_tokens(of_row)
        tokens, keys = real[row].nonzero()[:, 0].tolist(), _tokenizer_keys(encoded, row, len(pieces))
        # What is of no sequence is not the user's: [CLS], or a template around the text.
        outside = [key[0] is None for key in keys] if keys else [False] * len(pieces)
        special = [token in specials or none for token, none in zip(of_row, outside, strict=True)]
        marked = any(pieces[i].startswith(_STARTS) for i in tokens)
        runs: list[list[int]] = []
        last = None
        for i in tokens:
            if last is None or special[i] or special[last] or pieces[i].startswith(_STARTS):
                begins = True
            elif keys is None:
                begins = not marked and not pieces[i].startswith(_CONTINUES)
            else:
                begins = keys[i] != keys[last]
            if begins:
                runs.append([])
            runs[-1].append(i)
            last = i
        words = []
        for run in runs:
            spelt = [pieces[i] for i in run]
            text = "" if of_row[run[0]] in specials else tokenizer.convert_tokens_to_string(spelt).strip()
            words.append(Word(text or spelt[0], tuple(run), special[run[0]]))
        texts.append(tuple(words))
    return texts


def _tokenizer_keys(encoded: Mapping[str, Tensor], row: int, width: int) -> list[_Key] | None:
    """The sequence and word of each token, if the tokenizer knows them for these rows."""
    if not isinstance(encoded, BatchEncoding) or encoded.encodings is None or row >= len(encoded.encodings):
        return None
    keys = list(zip(encoded.sequence_ids(row), encoded.word_ids(row), strict=True))
    return keys if len(keys) == width else None


def as_written(word: Word, token_places: TokenPlaces) -> Word:
    """The word as the user wrote it, where that is known; a tokenizer may change case and accents."""
    spans = [token_places[token] for token in word.tokens if token in token_places]
    text = spans[0][0][spans[0][1] : spans[-1][2]].strip() if spans and not word.special else ""
    return replace(word, text=text or word.text)


def attribute_words(
    attribution: Attribution, tokenizer: PreTrainedTokenizerBase, encoded: Mapping[str, Tensor]
) -> tuple[tuple[WordAttribution, ...], ...]:
    """The words of each text with their uncertainty and their part of a first-order variance, in order.

    A token's variance is the sum of its terms of the delta method; those of attention belong to the query token (see
    `uatlite.attribution.first_order`).
    """
    assert attribution.tokens is not None
    assert attribution.token_uncertainty is not None
    texts, totals = [], attribution.total.tolist()
    uncertainties, variances = attribution.token_uncertainty.cpu(), attribution.tokens.cpu()  # a device is asked once
    for row, words in enumerate(words_of(tokenizer, encoded)):
        uncertainty, variance = uncertainties[row].flatten(), variances[row].flatten()
        total, attributed = totals[row], []
        for word in words:
            pieces = list(word.tokens)
            term = float(variance[pieces].sum())
            share = term / total if total > 0 else 0.0
            attributed.append(WordAttribution(word, float(uncertainty[pieces].mean()), term, share, None))
        texts.append(tuple(attributed))
    return tuple(texts)
