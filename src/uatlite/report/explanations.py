"""Single texts of a report, word by word: how uncertain each word is. Kept as JSON beside the report.

Computing them takes the model (`uatlite.report.explaining`); showing them takes this alone.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uatlite.data.writing import atomic_file
from uatlite.errors import StoreError
from uatlite.values import Word, WordAttribution

FILE = "explanations.json"


@dataclass(frozen=True)
class ExplainedText:
    """One text. `confidence` is of the pass without dropout, before any calibration."""

    id: str
    predicted: str
    gold: str | None
    confidence: float
    words: tuple[WordAttribution, ...]


def write_explanations(explanations: tuple[ExplainedText, ...], path: Path) -> None:
    """Write them as one JSON list."""
    with atomic_file(path) as file:
        file.write(json.dumps([asdict(one) for one in explanations], ensure_ascii=False, indent=1).encode())


def read_explanations(path: Path) -> tuple[ExplainedText, ...]:
    """The inverse of `write_explanations`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(ExplainedText(**{**one, "words": tuple(_word(**word) for word in one["words"])}) for one in found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a file of explanations ({error}); delete it and explain again.") from error


def _word(word: dict[str, Any], **values: Any) -> WordAttribution:
    return WordAttribution(word=Word(**{**word, "tokens": tuple(word["tokens"])}), **values)
