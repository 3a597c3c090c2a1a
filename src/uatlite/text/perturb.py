"""Controlled damage to texts, and linguistic buckets of them.

`swap` is typing noise and keeps the meaning, and every word in its place, so that entities are where they were.
`negation` may change the true label, so its effect on confidence, margin and entropy says more than its effect on
accuracy. Gold answers, ids and the split stay as they are.

A text is in a bucket if it has one of the cues in perturb.toml: it negates, counts, hedges or uses medical terms. The
cues are coarse on purpose, as the paper's are, and match whole words in any case. A text may be in several buckets, or
in none.
"""

import hashlib
import random
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from uatlite.errors import ConfigurationError, check_choice
from uatlite.values import Choices, Dataset, ScoredText, Text, Words, strings

SWAP_RATE = 0.05
NEGATION = "It is not true that {}"

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ORDINARY_OPENERS = frozenset(_LISTS["openers"].split())
_FIRST_WORD = re.compile(r"[^\W\d_]+(?:(?<=n)['’]t)?")


def swap_characters(text: Text, seed: int = 0, *, rate: float = SWAP_RATE) -> Text:
    """Every string of the text, but not the options of a question, with `rate` of its characters swapped.

    round(rate · n) of a string's n characters change places with the letter after them in the same word; no letter is
    moved twice. The choice depends only on the seed and the string.
    """
    if not 0 <= rate <= 0.5:
        raise ConfigurationError(f"rate={rate} must lie in 0 to 0.5: a swap takes two characters.")
    swap = partial(_swapped, seed=seed, rate=rate)
    if isinstance(text, Choices):
        return replace(text, question=swap(text.question))
    if isinstance(text, Words):
        swapped = swap(text.text)
        return Words(tuple(swapped[start:end] for start, end in text.spans))
    assert not isinstance(text, ScoredText), "scores have no words"
    return swap(text) if isinstance(text, str) else (swap(text[0]), swap(text[1]))


def _swapped(string: str, seed: int, rate: float) -> str:
    neighbours = enumerate(pairwise(string))
    swaps = [i for i, (first, second) in neighbours if first.isalpha() and second.isalpha() and first != second]
    digest = hashlib.sha256(f"{seed}\n{string}".encode("utf-8", "surrogatepass")).digest()
    rng = random.Random(int.from_bytes(digest))
    swaps.sort(key=lambda i: rng.random())  # only random() gives the same numbers in all versions of Python
    letters = list(string)
    moved: set[int] = set()
    for i in swaps:
        if len(moved) >= 2 * int(rate * len(string) + 0.5):
            break
        if moved.isdisjoint((i, i + 1)):
            moved |= {i, i + 1}
            letters[i], letters[i + 1] = letters[i + 1], letters[i]
    return "".join(letters)


def negate(text: Text, seed: int = 0) -> Text:
    """The text as a denial: "It is not true that …", of the one text, the hypothesis of a pair, or the question.

    `seed` is unused: all perturbations have the same signature.
    """
    if isinstance(text, Choices):
        return replace(text, question=_negated(text.question))
    if isinstance(text, Words):
        return Words(tuple(_negated(text.text).split()))
    assert not isinstance(text, ScoredText), "scores have no words"
    return _negated(text) if isinstance(text, str) else (text[0], _negated(text[1]))


def _negated(string: str) -> str:
    string = string.strip()
    first = match[0] if (match := _FIRST_WORD.match(string)) else ""
    if first == first.capitalize() and (first.lower() in ORDINARY_OPENERS or first.endswith(("n't", "n’t"))):
        string = string[0].lower() + string[1:]
    return NEGATION.format(string)


PERTURBATIONS: dict[str, Callable[[Text, int], Text]] = {"swap": swap_characters, "negation": negate}


def perturb(dataset: Dataset, name: str, seed: int = 0) -> Dataset:
    """The same data set, ids and gold, with every text perturbed; its name says how: 'sst2+swap'."""
    check_choice("perturbation", name, PERTURBATIONS)
    change = PERTURBATIONS[name]
    if change is negate and any(example.entities is not None for example in dataset.examples):
        raise ConfigurationError(
            f"negation cannot perturb {dataset.name}: its entities would be in other places. Use swap, which leaves "
            "every word where it is."
        )
    examples = tuple(replace(example, text=change(example.text, seed)) for example in dataset.examples)
    source = f"{dataset.source}, perturbed: {name}, seed {seed}"
    return replace(dataset, name=f"{dataset.name}+{name}", examples=examples, source=source)


BUCKETS: dict[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<!\w)(?:{'|'.join(cues)})(?!\w)", re.IGNORECASE) for name, cues in _LISTS["cues"].items()
}


def buckets_of(text: Text) -> frozenset[str]:
    """The names of the buckets that a text is in; of a multiple choice only the question is read."""
    parts = (text.question,) if isinstance(text, Choices) else strings(text)
    return frozenset(name for name, cue in BUCKETS.items() if any(cue.search(string) for string in parts))
