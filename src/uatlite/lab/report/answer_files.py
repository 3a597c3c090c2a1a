"""An evaluation of several answers a text on disk: the answers behind its figures, and what was found, in sentences.

DIR/results.json          written by `uatlite evaluate … -o DIR`, as for one answer a text
    answers.safetensors   of the first seed: the confidence of every answer, and whether it is right
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from uatlite.errors import StoreError
from uatlite.lab.evaluate.answer_outcomes import AnswerOutcome
from uatlite.lab.evaluate.plan import AnswerContender, parse_answer_contenders
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.verdict import headline
from uatlite.text.write import atomic_file

FILE = "answers.safetensors"
JOINT = " | "
NOUNS = {"entities": "entities", "labels": "labels"}
"""What a model answers -> what its answers are called."""


@dataclass(frozen=True, eq=False)
class StoredAnswers:
    """Results of several answers a text, and the answers of the first seed."""

    results: Results
    found: Mapping[tuple[str, str], AnswerOutcome]
    """(set, contender) -> its answers"""

    @property
    def contenders(self) -> tuple[AnswerContender, ...]:
        return tuple(parse_answer_contenders(name)[0] for name in self.results.contenders)

    def outcomes(self, set_name: str) -> dict[str, AnswerOutcome]:
        """The answers of every contender on a scored set."""
        return {name: self.found[set_name, name] for name in self.results.contenders}


def write_answers(outcomes: Mapping[str, Mapping[str, AnswerOutcome]], directory: Path) -> Path:
    """Write the answers by set and contender."""
    arrays = {
        JOINT.join((set_name, contender, name)): np.ascontiguousarray(getattr(outcome, name))
        for set_name, of_set in outcomes.items()
        for contender, outcome in of_set.items()
        for name in ("confidence", "right", "text")
    }
    with atomic_file(directory / FILE) as file:
        file.write(save(arrays))
    return directory / FILE


def read_answers(directory: Path, results: Results) -> StoredAnswers:
    """The answers that `write_answers` wrote beside results."""
    try:
        arrays = load_file(directory / FILE)
        found = {
            (one.name, contender): AnswerOutcome(
                confidence=arrays[JOINT.join((one.name, contender, "confidence"))],
                right=arrays[JOINT.join((one.name, contender, "right"))],
                text=arrays[JOINT.join((one.name, contender, "text"))],
                texts=one.rows,
                pairs=results.kind == "labels",
            )
            for one in results.sets
            for contender in results.contenders
        }
    except (OSError, KeyError, SafetensorError) as error:
        raise StoreError(f"{directory / FILE} cannot be read ({error}); run `uatlite evaluate` again.") from error
    return StoredAnswers(results, found)


def answer_findings(results: Results) -> list[str]:
    """At most three sentences: the verdict, what calibrating changed, the promise. Their numbers are of the results."""
    verdict = "" if results.verdict is None else headline(results, results.verdict)
    found = [verdict, _calibrating(results), _promise(results)]
    return [sentence for sentence in found if sentence]


def _calibrating(results: Results) -> str:
    first, metric = results.sets[0], "answer_ece" if results.kind == "entities" else "label_ece"
    usual, *others = results.contenders
    calibrated = [name for name in others if results.methods[name]["calibrator"] != "none"]
    if not calibrated or results.methods[usual]["calibrator"] != "none":
        return ""
    best = min(calibrated, key=lambda name: first.scores[name][metric].mean)
    before, after = first.scores[usual][metric], first.scores[best][metric]
    apart = after.differences[usual]
    return (
        f"On {first.name} the calibration error (ECE) of {NOUNS[results.kind]} is {before.mean:.3f} with {usual} and "
        f"{after.mean:.3f} with {best} (difference {apart.low:+.3f} to {apart.high:+.3f})."
    )


def _promise(results: Results) -> str:
    first = next((one for one in results.promises if one.set == results.sets[0].name), None)
    if first is None:
        return ""
    if not first.promised or first.risk is None:
        return f"{first.contender} promises nothing at {first.target:.0%} wrong: {first.rule}"
    return (
        f"Told to keep wrong {NOUNS[results.kind]} at {first.target:.0%} or less of those reported, {first.contender} "
        f"reports {first.reported:,} on {first.set}, {first.wrong:,} of them wrong ({first.risk:.1%}); that is "
        f"{first.coverage:.0%} of the {first.covered}, where the best threshold in hindsight has {first.best:.0%}."
    )
