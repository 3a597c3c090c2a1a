"""Explain a few texts with their model: the one part of a report that needs it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from uatlite.backbone.loading import Checkpoint, load_checkpoint
from uatlite.backbone.tokens import longest
from uatlite.classifier import UncertaintyClassifier
from uatlite.errors import DataError, ModelError
from uatlite.report.abstention import Abstention
from uatlite.report.evaluation import Evaluation
from uatlite.report.explanations import ExplainedText, read_explanations, write_explanations
from uatlite.report.texts import examples_of
from uatlite.values import Choices, Example

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
