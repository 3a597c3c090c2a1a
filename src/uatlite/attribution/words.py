"""Word pieces merged to words, special tokens kept apart."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from uatlite.values import Word

_STARTS = ("▁", "Ġ")
"""What SentencePiece and byte-level BPE put before a piece that begins a word."""
_CONTINUES = "##"
"""What WordPiece puts before a piece that does not."""

Key = tuple[int | None, int | None]


def words_of(tokenizer: PreTrainedTokenizerBase, encoded: Mapping[str, Tensor]) -> list[tuple[Word, ...]]:
    """The words of each text of a batch (batch, [choices,] tokens), in order; padding is left out.

    What the tokenizer called a word is one word. Where it did not say (a slow tokenizer, choices), the pieces' own
    marks decide: '##' continues a word, '▁' and 'Ġ' begin one.
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
    """Which sequence and word each token is of, where the tokenizer says so for these very rows."""
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
