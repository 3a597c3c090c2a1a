"""A few texts of an evaluation explained word by word, as JSON beside its results. Only explaining runs the model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uatlite.codec import dump
from uatlite.codec import load as load_value
from uatlite.errors import DataError, ModelError, StoreError
from uatlite.lab.report.abstention import Abstention
from uatlite.lab.report.evaluation import Evaluation
from uatlite.text.write import write_text
from uatlite.trust.distribution import MarginBand
from uatlite.values import Choices, Example, WordAttribution

if TYPE_CHECKING:
    from uatlite.model.load import Checkpoint

FILE = "explanations.json"
EXPLAINED = 6
"""Texts that are explained: the least confident of those that were not answered."""
METHOD = "analytic"
"""It takes one forward and one backward pass for a text."""
LONGEST = 64
"""At most this many tokens of a text are explained; the rest is cut off."""


@dataclass(frozen=True)
class ExplainedText:
    """One text. Its confidence, and that of its words, is before any calibration."""

    id: str
    predicted: str
    gold: str | None
    confidence: float
    words: tuple[WordAttribution, ...]
    band: MarginBand | None = None
    """how far that confidence reaches; None where it is not known"""


def write_explanations(explanations: Sequence[ExplainedText], path: Path) -> None:
    """Write explained texts as one JSON list."""
    write_text(path, json.dumps(dump(explanations), ensure_ascii=False, indent=1))


def read_explanations(path: Path) -> tuple[ExplainedText, ...]:
    """The inverse of `write_explanations`."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return load_value(tuple[ExplainedText, ...], state, advice="delete it and explain again.")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is not a file of explanations ({error}); delete it and explain again.") from error


def explain_stored(
    evaluation: Evaluation, abstention: Abstention, model: str | Path, file: Path, data_dir: str | Path | None = None
) -> None:
    """Explain the least confident texts that are not answered with the evaluated model, unless `file` has them."""
    first, examples = evaluation.results.sets[0], evaluation.examples(data_dir)
    if not examples:
        raise DataError(f"the texts of {first.name} were not found, so none can be explained; give --data-dir DIR.")
    wanted = [row.id for row in abstention.abstained if row.id in examples][:EXPLAINED]
    if file.is_file() and [text.id for text in read_explanations(file)] == wanted:
        return
    from uatlite.model.load import load_checkpoint  # imports torch, which the rest of a report does not need

    checkpoint = load_checkpoint(model)
    if checkpoint.hash != evaluation.results.model_hash:
        raise ModelError(
            f"{model} is not the model that was evaluated (hash {checkpoint.hash[:12]}, evaluated "
            f"{evaluation.results.model_hash[:12]}); give that one, or evaluate this one."
        )
    labels = evaluation.predictions(next(iter(first.runs)), first.name).provenance.labels
    write_explanations(explain(checkpoint, [examples[name] for name in wanted], labels), file)


def explain(checkpoint: "Checkpoint", examples: Sequence[Example], labels: Sequence[str]) -> tuple[ExplainedText, ...]:
    """The uncertainty of each word of each text; questions with choices are left out.

    `labels` are the names of the gold labels; the predicted class has the model's name.
    """
    from uatlite.classifier.classifiers import UncertaintyClassifier
    from uatlite.model.tokens import longest

    limit = longest(checkpoint.model, checkpoint.tokenizer, LONGEST)
    classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, METHOD, max_length=limit)
    texts = [example for example in examples if not isinstance(example.text, Choices)]
    return tuple(
        ExplainedText(
            id=example.id,
            predicted=explanation.label,
            gold=None if example.label is None else labels[example.label],
            confidence=explanation.prediction.confidence,
            words=explanation.words,
            band=explanation.band,
        )
        for example in texts
        for explanation in [classifier.explain(example.text, attention=False)]
    )
