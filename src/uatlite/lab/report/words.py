"""How dark a word is: wherever words are coloured by their uncertainty, the page, the image and the terminal alike.

Single texts of a report, word by word: how uncertain each word is. Kept as JSON beside the report.

Computing them takes the model (`uatlite.report.explaining`); showing them takes this alone.

Explain a few texts with their model: the one part of a report that needs it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import DataError, ModelError, StoreError
from uatlite.lab.report.abstention import Abstention
from uatlite.lab.report.evaluation import Evaluation, examples_of
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.tokens import longest
from uatlite.text.write import atomic_file
from uatlite.values import Choices, Example, Word, WordAttribution

SHADES = 6
HEAT = (200, 85, 30)
"""The colour of the most uncertain word on a light ground; `--heat` of the style sheet."""
OPACITY = (0.0, 0.1, 0.2, 0.3, 0.42, 0.55)
"""How much of it each shade has; `.s0` to `.s5` of the style sheet."""


def shade(word: WordAttribution, words: Sequence[WordAttribution]) -> int:
    """0 to SHADES - 1: where a word lies between the least and the most uncertain of its text."""
    values = [one.uncertainty for one in words]
    low, high = min(values), max(values)
    if high == low:
        return 0
    return round((SHADES - 1) * (word.uncertainty - low) / (high - low))


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


EXPLAINED = 6
"""Texts that are shown word by word: the least sure of those that were not answered."""
METHOD = "analytic"
"""One forward and one backward pass for each of them."""
LONGEST = 64
"""Tokens of a text that is shown word by word; what is beyond is not read."""


def explain_stored(
    evaluation: Evaluation, abstention: Abstention, model: str | Path, file: Path, data_dir: str | Path | None = None
) -> None:
    """Explain texts of an evaluation with the model that was evaluated, and write them to `file`."""
    first = evaluation.results.sets[0]
    about = evaluation.predictions(next(iter(first.runs)), first.name).provenance
    examples = examples_of(about, data_dir)
    if not examples:
        raise DataError(f"the texts of {first.name} are not at hand, so none can be explained; say where: --data-dir.")
    checkpoint = load_checkpoint(model)
    if checkpoint.hash != evaluation.results.model_hash:
        raise ModelError(
            f"{model} is not the model that was evaluated (hash {checkpoint.hash[:12]}, evaluated "
            f"{evaluation.results.model_hash[:12]}); give that one, or evaluate this one."
        )
    explain_least_sure(checkpoint, abstention, examples, about.labels, file)


def explain_least_sure(
    checkpoint: Checkpoint,
    abstention: Abstention,
    examples: Mapping[str, Example],
    labels: Sequence[str],
    file: Path,
    count: int = EXPLAINED,
) -> bool:
    """Write explanations of the texts that the rule was least sure of; False where the file has them already."""
    wanted = [row.id for row in abstention.abstained if row.id in examples][:count]
    if file.is_file() and [one.id for one in read_explanations(file)] == wanted:
        return False
    write_explanations(explain(checkpoint, [examples[name] for name in wanted], labels), file)
    return True


def explain(checkpoint: Checkpoint, examples: Sequence[Example], labels: Sequence[str]) -> tuple[ExplainedText, ...]:
    """Word by word, how uncertain each text is; questions with choices are left out.

    `labels` are those of the data set; the predicted class is named as the model names it.
    """
    limit = longest(checkpoint.model, checkpoint.tokenizer, LONGEST)
    classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, METHOD, max_length=limit)
    return tuple(_explain(classifier, example, labels) for example in examples if not isinstance(example.text, Choices))


def _explain(classifier: UncertaintyClassifier, example: Example, labels: Sequence[str]) -> ExplainedText:
    found = classifier.explain(example.text, attention=False)
    return ExplainedText(
        id=example.id,
        predicted=found.quiet_label,
        gold=None if example.label is None else labels[example.label],
        confidence=found.quiet_confidence,
        words=found.words,
    )
