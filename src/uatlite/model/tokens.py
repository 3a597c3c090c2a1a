"""Texts to what a classifier takes: tokens, and batches of similar length; and a tokenizer without transformers.

tokens = tokenize(tokenizer, texts, longest(model, tokenizer))
for batch in tokens.batches():
    logits[list(batch.rows)] = model(**batch.inputs).logits

Nothing here needs torch, except to give a batch as tensors. `FastTokenizer` needs the file tokenizer.json, and the
settings that transformers keeps beside it: it takes the calls that are made here and gives what transformers' gives.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from uatlite.errors import ConfigurationError, InputError, MissingDependency, ModelError
from uatlite.model.architectures import longest_input
from uatlite.values import Choices, Integers, ScoredText, Text, strings

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Tokenizer: TypeAlias = "PreTrainedTokenizerBase | FastTokenizer"

FILE = "tokenizer.json"
TEXT_MARK, PAIR_MARK = "{text}", "{text_pair}"
"""Where a template has the text, and the second text of a pair."""
PROMPT = "label_prompt"
"""The setting of a tokenizer with a template that says what it is (`uatlite.model.prompt`)."""
FIELDS = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}
"""What a model takes -> what the tokenizer's library calls it."""
_UNLIMITED = int(1e30)
"""What transformers says of a tokenizer without a longest text."""

BATCH_TOKENS = 4096
"""Most tokens of a padded batch, choices included; the engine cuts it further, to fit the caches."""
BATCH_TEXTS = 64
BATCH_PADDING = 128
"""Most tokens of padding in a batch; with more, a separate forward is cheaper."""
TOKENIZING = threading.Lock()
"""Truncation is a state of a fast tokenizer, so two threads must not use one at the same time."""

Features = Mapping[str, list[int]]
"""A tokenizer's output for one sequence: input_ids, attention_mask and, for some, token_type_ids."""
Joined = str | tuple[str, str]
"""What is encoded together: a text alone, or two."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some texts, padded, and their indices among all texts."""

    rows: tuple[int, ...]
    arrays: dict[str, Integers]
    """(batch, tokens), or (batch, choices, tokens) for multiple choice"""

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The same as tensors, which share the memory of the arrays."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.arrays.items()}


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokenized texts, not yet padded: one sequence per text, or one per option."""

    tokenizer: Tokenizer
    rows: tuple[tuple[Features, ...], ...]
    cut: tuple[int, ...]
    """tokens that were cut off each text, 0 where it fits"""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def truncated_texts(self) -> int:
        """How many texts were cut to fit."""
        return sum(lost > 0 for lost in self.cut)

    @property
    def truncated_tokens(self) -> int:
        """How many tokens were cut off, in all texts together."""
        return sum(self.cut)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length of the longest sequence of each text."""
        return tuple(max(len(sequence["input_ids"]) for sequence in row) for row in self.rows)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all token ids and types, in order: what the model sees of the texts."""
        digest = hashlib.sha256()
        for row in self.rows:
            for sequence in row:
                digest.update(repr([sequence["input_ids"], sequence.get("token_type_ids")]).encode())
        return digest.hexdigest()

    def by_length(self) -> list[int]:
        """The indices of all texts, sorted by number of choices, then by length; equals keep their order."""
        return sorted(range(len(self.rows)), key=lambda i: (len(self.rows[i]), self.lengths[i]))

    def batches(
        self,
        rows: Sequence[int] | None = None,
        *,
        most_tokens: int = BATCH_TOKENS,
        most_texts: int = BATCH_TEXTS,
        most_padding: int = BATCH_PADDING,
    ) -> Iterator[Batch]:
        """All texts (or those at `rows`) in batches of similar length, within these bounds.

        A single text that is longer than `most_tokens` is a batch of its own.
        """
        wanted = None if rows is None else set(rows)
        order = [i for i in self.by_length() if wanted is None or i in wanted]
        for _, same_choices in groupby(order, key=lambda i: len(self.rows[i])):
            for batch in self._cut(list(same_choices), most_tokens, most_texts, most_padding):
                yield Batch(tuple(batch), self.padded(batch))

    def _cut(self, order: list[int], most_tokens: int, most_texts: int, most_padding: int) -> Iterator[list[int]]:
        batch: list[int] = []
        filled = 0
        for i in order:  # sorted by length, so the latest is the width of the padded batch
            size = len(self.rows[i]) * self.lengths[i]
            padded = (len(batch) + 1) * size
            if batch and (padded > most_tokens or len(batch) == most_texts or padded - size - filled > most_padding):
                yield batch
                batch, filled = [], 0
            batch.append(i)
            filled += size
        if batch:
            yield batch

    def pad(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The texts at these indices as one padded batch of tensors."""
        return Batch(tuple(rows), self.padded(rows)).inputs

    def padded(self, rows: Sequence[int]) -> dict[str, Integers]:
        """The texts at these indices as one batch of arrays, padded on the right, whatever the tokenizer prefers.

        On the left, padding would move the positions of models that count them from the start, and the answer to a
        text would depend on its batch. A decoder reads the last real token on either side.
        """
        sequences = [sequence for row in rows for sequence in self.rows[row]]
        width = max(self.lengths[row] for row in rows)
        values = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id}
        shape = len(rows), len(self.rows[rows[0]]), width
        padded: dict[str, Integers] = {}
        for name in sequences[0]:
            array = np.full((len(sequences), width), values.get(name, 0), dtype=np.int64)
            for line, sequence in zip(array, sequences, strict=True):
                tokens = sequence[name]
                line[: len(tokens)] = tokens
            padded[name] = array if shape[1] == 1 else array.reshape(shape)
        return padded


def longest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, limit: int | None = None) -> int:
    """The most tokens of a sequence for a model."""
    return most_tokens(longest_input(model), tokenizer, limit)


def most_tokens(positions: int | None, tokenizer: Tokenizer, limit: int | None = None) -> int:
    """The most tokens of a sequence: the least of a model's positions, the tokenizer's limit, and `limit`."""
    limits = (positions, limit, tokenizer.model_max_length)  # a tokenizer without a limit says 1e30
    most = int(min(limit for limit in limits if limit is not None))
    if most < 1 + (added := tokenizer.num_special_tokens_to_add(pair=True)):
        around = f" beside the {added} of the template" if prompt_of(tokenizer) else ""
        raise ConfigurationError(f"max_length={most} leaves no room for a token of the text{around}; 128 is usual.")
    return most


def tokenize(tokenizer: Tokenizer, texts: Sequence[Text], max_length: int | None) -> Tokens:
    """Tokens of each text; a sequence over `max_length` is cut, the longer part of a pair first. None cuts nothing."""
    of_texts = [sequences(text) for text in texts]
    flat = [sequence for of_text in of_texts for sequence in of_text]
    _check_template(tokenizer, flat)
    uncut = _encode(tokenizer, flat, None)
    kept, lost = list(uncut), [0] * len(uncut)
    if max_length is not None:
        too_long = [i for i, features in enumerate(uncut) if len(features["input_ids"]) > max_length]
        for i, features in zip(too_long, _encode(tokenizer, [flat[i] for i in too_long], max_length), strict=True):
            kept[i], lost[i] = features, len(uncut[i]["input_ids"]) - len(features["input_ids"])
    ends = accumulate(map(len, of_texts), initial=0)
    rows = [slice(start, stop) for start, stop in pairwise(ends)]
    return Tokens(tokenizer, tuple(tuple(kept[row]) for row in rows), tuple(sum(lost[row]) for row in rows))


def sequences(text: Text) -> list[Joined]:
    """The sequences of a text: the text, the pair, or the question with each option."""
    if isinstance(text, ScoredText):
        raise InputError("a row of scores was given, and this model reads texts.")
    if isinstance(text, Choices):
        return [(text.question, option) for option in text.options]
    return [text if isinstance(text, tuple) else strings(text)[0]]


def prompt_of(tokenizer: Tokenizer) -> Mapping[str, Any]:
    """What a tokenizer's template is: `template`, `chat`, and what is read of `labels`; empty where it has none."""
    prompt: Mapping[str, Any] = getattr(tokenizer, "init_kwargs", {}).get(PROMPT, {})
    return prompt


def takes(tokenizer: Tokenizer, text: Text) -> bool:
    """Whether a tokenizer can take a text, or a pair: its template may be for the other."""
    prompt = prompt_of(tokenizer)
    return not prompt or isinstance(text, tuple) is (PAIR_MARK in prompt["template"])


def _check_template(tokenizer: Tokenizer, joined: Sequence[Joined]) -> None:
    if not all(takes(tokenizer, each) for each in joined):
        template = prompt_of(tokenizer)["template"]
        pairs = "pairs of texts, and these are single: name the second column, --text-pair"
        single = f"single texts, and these are pairs: a template for them has {PAIR_MARK}"
        raise InputError(f"the template {template!r} takes {pairs if PAIR_MARK in template else single}.")


def _encode(tokenizer: Tokenizer, joined: Sequence[Joined], max_length: int | None) -> list[Features]:
    """Token features of each sequence, in order."""
    if not joined:
        return []
    features: Mapping[str, list[list[int]]] = tokenizer(
        joined, truncation=max_length is not None, max_length=max_length, verbose=False
    )
    return [dict(zip(features, values, strict=True)) for values in zip(*features.values(), strict=True)]


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
    prompt: Mapping[str, Any] = field(default_factory=dict)
    """what it sets around each text, as `prompt_of`"""

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
            prompt=prompt_of(tokenizer),
        )


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
        self._inner.encode_special_tokens = self.split_special_tokens = settings.split_special_tokens
        self.model_input_names = settings.names
        self.init_kwargs = {PROMPT: settings.prompt}
        self.pad_token_id = settings.pad_token_id
        self.unk_token_id = settings.unk_token_id
        self.pad_token_type_id = settings.pad_token_type_id
        self.padding_side = settings.padding_side
        self.truncation_side = settings.truncation_side
        self.model_max_length = _UNLIMITED if settings.model_max_length is None else settings.model_max_length

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """The special tokens that a sequence gets."""
        return int(self._inner.num_special_tokens_to_add(pair))

    def __call__(
        self,
        joined: Sequence[Joined],
        *,
        truncation: bool = False,
        max_length: int | None = None,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """The features of several texts and pairs."""
        if truncation:
            self._inner.enable_truncation(max_length or 0, strategy="longest_first", direction=self.truncation_side)
        else:
            self._inner.no_truncation()
        encodings = self._inner.encode_batch_fast(list(joined))
        return {name: [getattr(encoding, FIELDS[name]) for encoding in encodings] for name in self.model_input_names}
