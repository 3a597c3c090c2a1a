"""The report of an evaluation on disk: one page, with every figure as files beside it.

DIR/report.html                    one file that needs no other
    figures/NAME.svg .png .csv     each figure, and its numbers

A few texts can be explained word by word; `explanations.json` beside the results keeps what the model says of them.
"""

import json
from collections.abc import Mapping, Sequence
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
from uatlite.lab.report.explanation_page import Shading
from uatlite.lab.report.figures import filled
from uatlite.text.write import make_directory, write_text
from uatlite.trust.calibrators import CALIBRATORS
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


def report(
    evaluation: str | Path,
    directory: str | Path | None = None,
    *,
    method: str | None = None,
    target_risk: float = TARGET_RISK,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    scope: Scope | None = None,
    device: str = "auto",
) -> Path:
    """Write the report of an evaluation, by default into its own directory, and return the path of its page.

    With `model`, the evaluated one, a few texts are explained word by word and kept in `explanations.json` beside the
    results. Where that file exists they are shown without a model. The rest of the report never needs one. `scope` is
    that of a calibrated classifier; without it the calibration rows say what is in scope.
    """
    opened = open_evaluation(evaluation)
    results, directory = opened.results, opened.home if directory is None else Path(directory)
    for option, given in (("--method", method), ("--model", model)):
        if results.several and given is not None:
            raise ConfigurationError(f"{option} {given} is for one answer a text; leave it out for {opened.home}.")
    abstention, examples, explained = None, dict[str, Example](), tuple[ExplainedText, ...]()
    if not results.several:
        abstention = abstain(opened, method, target=target_risk, scope=scope)
        examples = opened.examples(data_dir)
        explained = explained_texts(opened, abstention, examples, model, device)
    figures = [set_figures(opened, scores) for scores in results.sets]
    menu = menu_figure(opened, abstention)
    html = filled(
        "evaluation.html.j2",
        title="When not to trust this classifier",
        results=results,
        view=view,
        noun=results.kind if results.several else "texts",
        metrics=[metric for metric in results.metrics if metric not in _FILES_ONLY],
        figures=figures,
        abstention=abstention,
        ruled=None if results.several else opened.ruled(method),
        promisable=[each.name for each in opened.contenders if each.calibrator in CALIBRATORS],
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


def read_explanations(path: Path) -> tuple[ExplainedText, ...]:
    """The explained texts of a file."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return load_value(tuple[ExplainedText, ...], state, advice="delete it and explain again.")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is not a file of explanations ({error}); delete it and explain again.") from error


def explained_texts(
    evaluation: Evaluation,
    abstention: Abstention | None,
    examples: Mapping[str, Example],
    model: str | Path | None,
    device: str = "auto",
) -> tuple[ExplainedText, ...]:
    """The least confident texts that are not answered: of the file beside the results, written with `model`."""
    file, first = evaluation.home / EXPLANATIONS, evaluation.results.sets[0]
    kept = read_explanations(file) if file.is_file() else ()
    if model is None or abstention is None:
        return kept
    if not examples:
        raise DataError(f"the texts of {first.name} were not found, so none can be explained; give --data-dir DIR.")
    wanted = [row.id for row in abstention.sets[0].abstained if row.id in examples][:EXPLAINED]
    if [text.id for text in kept] == wanted:
        return kept
    from uatlite.model.load import load_checkpoint  # imports torch, which the rest of a report does not need

    checkpoint = load_checkpoint(model, device=device)
    if checkpoint.hash != evaluation.results.model_hash:
        raise ModelError(
            f"{model} is not the model that was evaluated (hash {checkpoint.hash[:12]}, evaluated "
            f"{evaluation.results.model_hash[:12]}); give that one, or evaluate this one."
        )
    labels = evaluation.predictions(next(iter(first.runs)), first.name).provenance.labels
    explained = explain(checkpoint, [examples[name] for name in wanted], labels)
    write_text(file, json.dumps(dump(explained), ensure_ascii=False, indent=1))
    return explained


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
