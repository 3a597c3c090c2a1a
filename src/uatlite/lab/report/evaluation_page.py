"""The report of an evaluation on disk: one page, with every figure as files beside it.

DIR/report.html                    one file that needs no other
    figures/NAME.svg .png .csv     each figure, and its numbers

A few texts can be explained word by word; `explanations.json` beside the results keeps what the model says of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uatlite.codec import dump
from uatlite.codec import load as load_value
from uatlite.errors import ConfigurationError, DataError, ModelError, StoreError
from uatlite.lab.report import results as view
from uatlite.lab.report.curves import menu_figure, set_figures
from uatlite.lab.report.evaluation import (
    TARGET_RISK,
    Abstention,
    Evaluation,
    abstain,
    as_line,
    name_of_row,
    open_evaluation,
)
from uatlite.lab.report.explanation import Shading
from uatlite.lab.report.page import filled
from uatlite.text.write import make_directory, write_text
from uatlite.trust.distribution import Band
from uatlite.trust.scope import Scope
from uatlite.values import Choices, Example, WordAttribution

if TYPE_CHECKING:
    from uatlite.model.load import Checkpoint

_FILES_ONLY = ("macro_f1", "debiased_ece")
"""Metrics that are in results.csv but not on the page, so that its tables fit a screen."""
SHOWN = 12
"""At most this many abstained texts are listed, the least confident first."""
EXPLANATIONS = "explanations.json"
EXPLAINED = 6
"""Texts that are explained: the least confident of those that were not answered."""
METHOD = "analytic"
"""It takes one forward and one backward pass for a text."""
LONGEST = 64
"""At most this many tokens of a text are explained; the rest is cut off."""


def build_report(
    evaluation: str | Path,
    directory: str | Path,
    *,
    contender: str | None = None,
    target_risk: float = TARGET_RISK,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    scope: Scope | None = None,
    title: str = "When not to trust this classifier",
) -> Path:
    """Write the report of an evaluation and return the path of its page.

    With `model`, the evaluated one, a few texts are explained word by word and kept in `explanations.json` beside the
    results. Where that file exists they are shown without a model. The rest of the report never needs one. `scope` is
    that of a calibrated classifier; without it the calibration rows say what is in scope.
    """
    directory, opened = Path(directory), open_evaluation(evaluation)
    results, home, several = opened.results, opened.home, opened.results.several
    for option, given in (("--method", contender), ("--model", model)):
        if several and given is not None:
            raise ConfigurationError(f"{option} {given} is for one answer a text; leave it out for {home}.")
    abstention, examples, explained = None, dict[str, Example](), tuple[ExplainedText, ...]()
    if not several:
        abstention = abstain(opened, contender, target=target_risk, scope=scope)
        if model is not None and abstention is not None:
            explain_stored(opened, abstention, model, home / EXPLANATIONS, data_dir)
        examples = opened.examples(data_dir)
        explained = read_explanations(home / EXPLANATIONS) if (home / EXPLANATIONS).is_file() else ()
    figures = [set_figures(opened, scores) for scores in results.sets]
    menu = menu_figure(opened, abstention)
    html = filled(
        "evaluation.html.j2",
        title=title,
        results=results,
        view=view,
        several=several,
        noun=results.kind if several else "texts",
        metrics=[metric for metric in results.metrics if metric not in _FILES_ONLY],
        figures=figures,
        abstention=abstention,
        menu_figure=menu,
        abstained=abstention.sets[0].abstained[:SHOWN] if abstention else (),
        examples=examples,
        as_line=as_line,
        name_of_row=name_of_row,
        explained=explained,
        shading_of=Shading,
    )
    make_directory(directory / "figures")
    for drawn in [*(drawn for of_set in figures for drawn in of_set.values()), [menu] if menu else []]:
        for figure in drawn:
            figure.write(directory / "figures")
    write_text(directory / "report.html", html)
    return directory / "report.html"


# ── texts explained word by word ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ExplainedText:
    """One text. Its confidence, and that of its words, is before any calibration."""

    id: str
    predicted: str
    gold: str | None
    confidence: float
    words: tuple[WordAttribution, ...]
    band: Band | None = None
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
    wanted = [row.id for row in abstention.sets[0].abstained if row.id in examples][:EXPLAINED]
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
    explained = []
    for example in examples:
        if not isinstance(example.text, Choices):
            said = classifier.explain(example.text, attention=False)
            gold = None if example.label is None else labels[example.label]
            values = (said.prediction.confidence, said.words, said.band)
            explained.append(ExplainedText(example.id, said.label, gold, *values))
    return tuple(explained)
