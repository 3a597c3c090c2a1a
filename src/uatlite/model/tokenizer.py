"""A tokenizer without transformers: the file tokenizer.json, and the settings that transformers keeps beside it.

It takes the calls that `uatlite.model.tokens` makes and gives what transformers' tokenizer of the same file gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uatlite.errors import MissingDependency, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILE = "tokenizer.json"
FIELDS = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}
UNLIMITED = int(1e30)
"""What transformers says of a tokenizer without a longest text."""
"""What a model takes -> what the tokenizer's library calls it."""


@dataclass(frozen=True)
class TokenizerSettings:
    """What transformers knows of a tokenizer besides its file."""

    pad_token_id: int
    pad_token_type_id: int
    padding_side: str
    truncation_side: str
    model_max_length: int | None
    """None where there is no limit"""
    split_special_tokens: bool
    unk_token_id: int | None
    names: tuple[str, ...]
    """what the model takes: input_ids, attention_mask and, for some, token_type_ids"""

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> TokenizerSettings:
        """The settings of transformers' tokenizer; raises where it has no file that another library can read."""
        if not tokenizer.is_fast:
            raise ModelError(
                f"{type(tokenizer).__name__} is a slow tokenizer, without the {FILE} that an exported model needs; use "
                "a checkpoint with a fast one."
            )
        limit = tokenizer.model_max_length
        return cls(
            pad_token_id=int(tokenizer.pad_token_id),
            pad_token_type_id=int(tokenizer.pad_token_type_id),
            padding_side=str(tokenizer.padding_side),
            truncation_side=str(tokenizer.truncation_side),
            model_max_length=None if limit > 1 << 40 else int(limit),
            split_special_tokens=bool(tokenizer.split_special_tokens),
            unk_token_id=None if tokenizer.unk_token_id is None else int(tokenizer.unk_token_id),
            names=tuple(tokenizer("a", verbose=False)),
        )


class Located(dict[str, Any]):
    """The features of one text with the places of its tokens, and the word that each is of."""

    def __init__(self, features: Mapping[str, Any], words: Sequence[int | None]) -> None:
        super().__init__(features)
        self._words = list(words)

    def word_ids(self, sequence: int = 0) -> list[int | None]:
        """The index of each token's word in the text; None of a special token."""
        return self._words


class FastTokenizer:
    """The tokenizer in a directory. Truncation is a state of it, so only one thread at a time may call it."""

    is_fast = True

    def __init__(self, directory: Path, settings: TokenizerSettings) -> None:
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise MissingDependency("tokenizers", "onnx") from error
        path = directory / FILE
        if not path.is_file():
            raise ModelError(f"{directory} holds no {FILE}; copy the whole directory, or export again.")
        self.backend_tokenizer = self._inner = Tokenizer.from_file(str(path))
        self._inner.no_padding()
        self._inner.encode_special_tokens = settings.split_special_tokens
        self.settings = settings
        self.pad_token_id = settings.pad_token_id
        self.unk_token_id = settings.unk_token_id
        self.pad_token_type_id = settings.pad_token_type_id
        self.padding_side = settings.padding_side
        self.truncation_side = settings.truncation_side
        self.model_max_length = UNLIMITED if settings.model_max_length is None else settings.model_max_length

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """The special tokens that a sequence gets."""
        return int(self._inner.num_special_tokens_to_add(pair))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The pieces of these ids."""
        return [self._inner.id_to_token(token) for token in ids]

    def locate(self, text: str | Sequence[str]) -> Located:
        """The features of a whole text, or of its words, with the places and special tokens of a token classifier."""
        self._inner.no_truncation()
        encoding = self._inner.encode(text, is_pretokenized=not isinstance(text, str))
        features = {name: getattr(encoding, FIELDS[name]) for name in self.settings.names}
        places = {"offset_mapping": encoding.offsets, "special_tokens_mask": encoding.special_tokens_mask}
        return Located({**features, **places}, encoding.word_ids)

    def __call__(
        self,
        first: str | Sequence[str],
        second: str | Sequence[str] | None = None,
        *,
        truncation: bool | str = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
        verbose: bool = True,
    ) -> dict[str, Any]:
        """The features of one sequence, or lists of those of several."""
        if truncation:
            strategy = "longest_first" if truncation is True else truncation
            self._inner.enable_truncation(max_length or 0, strategy=strategy, direction=self.truncation_side)
        else:
            self._inner.no_truncation()
        one = isinstance(first, str)
        if one:
            pairs: list[Any] = [(first, second) if second else first]
        else:
            pairs = list(zip(first, second, strict=True)) if second else list(first)
        encodings = self._inner.encode_batch_fast(pairs, add_special_tokens=add_special_tokens)
        found = {name: [getattr(encoding, FIELDS[name]) for encoding in encodings] for name in self.settings.names}
        return {name: values[0] for name, values in found.items()} if one else found
