"""Explain a few texts with their model: the one part of a report that needs it."""

from collections.abc import Sequence

from uatlite.attribution.tokens import TokenAttribution, attribute_tokens
from uatlite.backbone.loading import Checkpoint
from uatlite.backbone.tokens import longest
from uatlite.passes.config import UATConfig
from uatlite.report.explanations import ExplainedWord, Explanation
from uatlite.values import Choices, Example

LONGEST = 64
"""Tokens of a text that is shown word by word; what is beyond is not read."""


def explain(
    checkpoint: Checkpoint, examples: Sequence[Example], labels: Sequence[str], config: UATConfig | None = None
) -> tuple[Explanation, ...]:
    """Word by word, how uncertain each text is; questions with choices are left out.

    `labels` are those of the data set; the predicted class is named as the model names it.
    """
    return tuple(
        _explain(checkpoint, example, labels, config) for example in examples if not isinstance(example.text, Choices)
    )


def _explain(checkpoint: Checkpoint, example: Example, labels: Sequence[str], config: UATConfig | None) -> Explanation:
    first, second = (example.text, None) if isinstance(example.text, str) else example.text  # type: ignore[misc]
    limit = longest(checkpoint.model, checkpoint.tokenizer, LONGEST)
    encoded = checkpoint.tokenizer(
        [first], None if second is None else [second], truncation=True, max_length=limit, return_tensors="pt"
    )
    found: TokenAttribution = attribute_tokens(checkpoint.model, checkpoint.tokenizer, encoded, config)
    return Explanation(
        id=example.id,
        predicted=checkpoint.id2label[int(found.predicted[0])],
        gold=None if example.label is None else labels[example.label],
        confidence=float(found.confidence[0]),
        words=tuple(
            ExplainedWord(one.word.text, one.uncertainty, one.share, one.confidence_change)
            for one in found.words[0]
            if not one.word.special
        ),
    )
