"""The frozen values that flow: a text, an example, a data set, a word and what it does.

Nothing here reads, tokenizes or computes; every room imports these and they import nothing of ours.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Choices:
    """A multiple-choice question: the class of an example is the index of the right option."""

    question: str
    options: tuple[str, ...]


# What is classified: one text, a pair (premise and hypothesis, question and context), or choices.
Text = str | tuple[str, str] | Choices


def strings(text: Text) -> tuple[str, ...]:
    """Every string of a text, in order: one, two, or the question followed by its options."""
    if isinstance(text, Choices):
        return (text.question, *text.options)
    return (text,) if isinstance(text, str) else text


def map_strings(text: Text, change: Callable[[str], str]) -> Text:
    """The same text with `change` applied to every string of it but the options of a question."""
    if isinstance(text, Choices):
        return replace(text, question=change(text.question))
    return change(text) if isinstance(text, str) else (change(text[0]), change(text[1]))


@dataclass(frozen=True, slots=True)
class Example:
    """One row to classify. `label` indexes the labels of its data set; None is a row without a gold label."""

    id: str
    text: Text
    label: int | None = None
    meta: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Dataset:
    """One split of a task, in memory.

    `source` says in words where the rows came from, so that it can be printed and stored beside a result.
    `out_of_scope` is the index of the label that stands for "none of these classes", where a task has one.
    """

    name: str
    split: str
    labels: tuple[str, ...]
    examples: tuple[Example, ...]
    source: str
    out_of_scope: int | None = None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def ids(self) -> list[str]:
        return [example.id for example in self.examples]

    @property
    def texts(self) -> list[Text]:
        return [example.text for example in self.examples]

    @property
    def gold(self) -> list[int | None]:
        return [example.label for example in self.examples]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the labels and of each example's id, text and label, in order; meta is left out."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for example in self.examples:
            kind = type(example.text).__name__
            row = [example.id, kind, strings(example.text), example.label]
            digest.update(b"\n" + json.dumps(row).encode())
        return digest.hexdigest()

    def in_scope(self) -> "Dataset":
        """The same data set without its out-of-scope rows: what the other classes are trained on."""
        if self.out_of_scope is None:
            return self
        kept = tuple(example for example in self.examples if example.label != self.out_of_scope)
        return replace(self, examples=kept, source=f"{self.source}, in-scope rows only")


@dataclass(frozen=True)
class Word:
    """Some tokens that make a word, or one special token."""

    text: str
    tokens: tuple[int, ...]
    """where its pieces stand in the row of tokens, padding counted; the choices of a question follow one another"""
    special: bool


@dataclass(frozen=True)
class WordAttribution:
    """What one word, or one special token, of a text does to the uncertainty."""

    word: Word
    uncertainty: float
    """U, the mean over its pieces"""
    variance: float
    """its part of the first-order Var(y), the sum over its pieces"""
    share: float
    """that part over the whole"""
    confidence_change: float | None
    """of the predicted class when the word is masked, after minus before; None for special tokens"""
