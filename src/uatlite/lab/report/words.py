"""Texts word by word: how each word is shaded, and the explained texts of a report as JSON beside it.

Shades are the same on a page, in an image and in a terminal. Only `explain` runs the model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uatlite.errors import ConfigurationError, DataError, ModelError, StoreError, check_choice
from uatlite.lab.report.abstention import Abstention
from uatlite.lab.report.evaluation import Evaluation
from uatlite.text.write import write_text
from uatlite.trust.distribution import MarginBand
from uatlite.values import Choices, Example, Word, WordAttribution

if TYPE_CHECKING:
    from uatlite.model.load import Checkpoint

SHADES = 6
HEAT, COLD = (200, 85, 30), (31, 111, 180)
"""The colours of the darkest words on a light background; `--heat` and `--cold` in the style sheet."""
OPACITY = (0.0, 0.1, 0.2, 0.3, 0.42, 0.55)
"""The opacity of each shade; `.s0` to `.s5` and `.c1` to `.c5` in the style sheet."""
FAINT = 0.1
"""Shares and changes up to this one are never shaded darkest, however small all others are."""
SHADINGS = {
    "share": "The darker a word, the larger its share of the variance.",
    "masking": "Orange: without the word the model is less sure of {label}. Blue: without it, it is surer.",
    "uncertainty": "The darker a word, the more its embedding moves under dropout (U), whatever the word means.",
}
"""What words are shaded by -> what their colours mean."""
FILE = "explanations.json"
EXPLAINED = 6
"""Texts that are explained: the least confident of those that were not answered."""
METHOD = "analytic"
"""It takes one forward and one backward pass for a text."""
LONGEST = 64
"""At most this many tokens of a text are explained; the rest is cut off."""


@dataclass(frozen=True)
class Shading:
    """How the words of one text are shaded, compared with one another."""

    words: tuple[WordAttribution, ...]
    confidence: float
    """in the predicted class, with every word"""
    by: str = "share"

    def __post_init__(self) -> None:
        check_choice("shading", self.by, SHADINGS)
        if self.by == "masking" and all(word.masked_confidence is None for word in self.words):
            raise ConfigurationError("no word was masked, so none can be shaded by it; explain with occlusion=True.")

    def shade(self, word: WordAttribution) -> int:
        """0 to SHADES - 1, the darker the larger; below 0 for a word whose masking makes the model surer."""
        values = [self._value(one) for one in self.words]
        low = min(values) if self.by == "uncertainty" else 0.0
        high = max(values) if self.by == "uncertainty" else max(FAINT, *(abs(value) for value in values))
        return round((SHADES - 1) * (self._value(word) - low) / (high - low)) if high > low else 0

    def style(self, word: WordAttribution) -> str:
        """The class of a word in the style sheet."""
        found = self.shade(word)
        return f"c{-found}" if found < 0 else f"s{found}"

    def caption(self, label: str) -> str:
        """What the colours mean."""
        return SHADINGS[self.by].format(label=label)

    def _value(self, word: WordAttribution) -> float:
        if self.by == "masking":
            return 0.0 if word.masked_confidence is None else self.confidence - word.masked_confidence
        return word.share if self.by == "share" else word.uncertainty


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

    @property
    def shading(self) -> Shading:
        """By the share of the variance."""
        return Shading(self.words, self.confidence)


def reach(band: MarginBand, label: str) -> str:
    """The spread of a margin in a sentence: '… between 55.9% and 85.7% sure of negative.'"""
    low, high = band.probabilities[0], band.probabilities[-1]
    return (
        f"Margin {band.margin:.2f} ± {band.spread:.2f} logits: for 95% of its Gaussian between {low:.1%} and "
        f"{high:.1%} sure of {label}."
    )


def write_explanations(explanations: tuple[ExplainedText, ...], path: Path) -> None:
    """Write explained texts as one JSON list."""
    write_text(path, json.dumps([asdict(one) for one in explanations], ensure_ascii=False, indent=1))


def read_explanations(path: Path) -> tuple[ExplainedText, ...]:
    """The inverse of `write_explanations`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(_text(**one) for one in found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a file of explanations ({error}); delete it and explain again.") from error


def _text(words: list[dict[str, Any]], band: dict[str, Any] | None = None, **values: Any) -> ExplainedText:
    known = None
    if band is not None:
        lists = {name: tuple(band[name]) for name in ("shares", "probabilities")}
        known = MarginBand(**{**band, **lists})
    return ExplainedText(words=tuple(_word(**word) for word in words), band=known, **values)


def _word(word: dict[str, Any], **values: Any) -> WordAttribution:
    return WordAttribution(word=Word(**{**word, "tokens": tuple(word["tokens"])}), **values)


def explain_stored(
    evaluation: Evaluation, abstention: Abstention, model: str | Path, file: Path, data_dir: str | Path | None = None
) -> None:
    """Explain the least confident texts of an evaluation with the evaluated model, and write them to `file`."""
    first = evaluation.results.sets[0]
    about = evaluation.predictions(next(iter(first.runs)), first.name).provenance
    examples = evaluation.examples(data_dir)
    if not examples:
        raise DataError(f"the texts of {first.name} were not found, so none can be explained; give --data-dir DIR.")
    from uatlite.model.load import load_checkpoint  # imports torch, which the rest of a report does not need

    checkpoint = load_checkpoint(model)
    if checkpoint.hash != evaluation.results.model_hash:
        raise ModelError(
            f"{model} is not the model that was evaluated (hash {checkpoint.hash[:12]}, evaluated "
            f"{evaluation.results.model_hash[:12]}); give that one, or evaluate this one."
        )
    explain_least_sure(checkpoint, abstention, examples, about.labels, file)


def explain_least_sure(
    checkpoint: "Checkpoint",
    abstention: Abstention,
    examples: Mapping[str, Example],
    labels: Sequence[str],
    file: Path,
) -> None:
    """Write explanations of the least confident texts that the rule does not answer, unless `file` has them."""
    wanted = [row.id for row in abstention.abstained if row.id in examples][:EXPLAINED]
    if not file.is_file() or [one.id for one in read_explanations(file)] != wanted:
        write_explanations(explain(checkpoint, [examples[name] for name in wanted], labels), file)


def explain(checkpoint: "Checkpoint", examples: Sequence[Example], labels: Sequence[str]) -> tuple[ExplainedText, ...]:
    """The uncertainty of each word of each text; questions with choices are left out.

    `labels` are the names of the gold labels; the predicted class has the model's name.
    """
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.model.tokens import longest

    limit = longest(checkpoint.model, checkpoint.tokenizer, LONGEST)
    classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, METHOD, max_length=limit)
    found = []
    for example in (example for example in examples if not isinstance(example.text, Choices)):
        explanation = classifier.explain(example.text, attention=False)
        text = ExplainedText(
            id=example.id,
            predicted=explanation.label,
            gold=None if example.label is None else labels[example.label],
            confidence=explanation.prediction.confidence,
            words=explanation.words,
            band=explanation.band,
        )
        found.append(text)
    return tuple(found)
