"""Single texts, word by word: how uncertain each is and what it does to the confidence. Kept as JSON beside a report.

Computing them takes the model (`uatlite.report.explaining`); showing them takes this alone.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.errors import StoreError

FILE = "explanations.json"


@dataclass(frozen=True)
class ExplainedWord:
    """A word of a text."""

    text: str
    uncertainty: float
    """U, how far its embedding moves under dropout"""
    share: float
    """its share of the first-order variance of the prediction"""
    change: float | None
    """of the predicted class's probability when the word is masked, after minus before"""


@dataclass(frozen=True)
class Explanation:
    """One text. `confidence` is of the pass without dropout, before any calibration."""

    id: str
    predicted: str
    gold: str | None
    confidence: float
    words: tuple[ExplainedWord, ...]


def write_explanations(explanations: tuple[Explanation, ...], path: Path) -> None:
    """Write them as one JSON list."""
    with atomic_file(path) as file:
        file.write(json.dumps([asdict(one) for one in explanations], ensure_ascii=False, indent=1).encode())


def read_explanations(path: Path) -> tuple[Explanation, ...]:
    """The inverse of `write_explanations`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Explanation(**{**one, "words": tuple(ExplainedWord(**word) for word in one["words"])}) for one in found
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a file of explanations ({error}); delete it and explain again.") from error
