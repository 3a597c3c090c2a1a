"""Why one text is answered or not, and which words and layers the uncertainty comes from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Option

from uatlite.cli import options as shared

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import EntityExplanation, LabelExplanation
    from uatlite.classifier.classifiers import UncertaintyLabeler, UncertaintyTagger
    from uatlite.values import Text


def explain(
    model: shared.Classifier,
    text: Annotated[str, Argument(help="The text, the first text of a pair, or the question.")],
    pair: Annotated[str | None, Option(help="The second text of a pair.")] = None,
    option: Annotated[
        list[str] | None, Option(help="An option of a multiple-choice question; repeat for each.")
    ] = None,
    label: Annotated[
        str | None, Option(help="Of many labels: the one to explain; by default the least sure one.")
    ] = None,
    entity: Annotated[
        int | None, Option(help="Of entities: the number of the one to explain, from 0; by default the least sure one.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Also write it to a file: .html, .png, .svg or .json.")
    ] = None,
    shade: Annotated[
        str, Option(help="What words are shaded by: share (of the variance), masking or uncertainty (U).")
    ] = "share",
    estimator: Annotated[str, Option(help="How layers are compared: delta, isolated or total-variance.")] = "delta",
    method: shared.Method = None,
    uncalibrated: Annotated[bool, Option("--uncalibrated", help="Ignore a saved calibration.")] = False,
    max_length: shared.MaxLength = None,
    samples: Annotated[int, shared.in_more(help="Passes for each layer and component; delta needs none.")] = 200,
    layer: Annotated[int | None, shared.in_more(help="Layer of the attention maps, from 1; by default all.")] = None,
    head: Annotated[int | None, shared.in_more(help="Head of the attention maps, from 1; by default all.")] = None,
) -> None:
    """Say why one text is answered or not, and which words and layers the uncertainty comes from."""
    from uatlite.classifier.classifiers import UncertaintyClassifier, load
    from uatlite.errors import check_choice
    from uatlite.lab.report.explanation import SHADINGS
    from uatlite.lab.report.explanation_page import check_target, terminal_view, write_explanation
    from uatlite.text.examples import as_text

    check_choice("--shade", shade, SHADINGS)
    if output is not None:
        check_target(output)
    whole = as_text(text, pair, option or ())
    console = shared.messages()
    with console.status(f"Reading with {model} …"):
        classifier = load(model, method=method, calibrated=not uncalibrated, **shared.given(max_length=max_length))
        if not isinstance(classifier, UncertaintyClassifier):
            _explain_answer(classifier, whole, output, shade, label=label, entity=entity)
            return
        shared.refuse({"label": label, "entity": entity}, "a model of one class a text")
        found = classifier.explain(whole, estimator=estimator, samples=samples, attention=output is not None)
        if output is not None:
            write_explanation(found, output, shading=shade, layer=layer, head=head)
    Console().print(terminal_view(found, shading=shade))
    if output is not None:
        console.print(f"Wrote {output}")


def _explain_answer(
    product: "UncertaintyLabeler | UncertaintyTagger",
    text: "Text",
    output: Path | None,
    shade: str,
    *,
    label: str | None,
    entity: int | None,
) -> None:
    """Explain one label, or one entity, of a text."""
    from uatlite.classifier.classifiers import UncertaintyLabeler
    from uatlite.lab.report.explanation_page import answer_view, check_answer_target, write_answer

    if output is not None:
        check_answer_target(output)
    if isinstance(product, UncertaintyLabeler):
        shared.refuse({"entity": entity}, "a model of many labels; use --label")
        found: LabelExplanation | EntityExplanation = product.explain(text, label)
    else:
        shared.refuse({"label": label}, "a model of entities; use --entity")
        found = product.explain(text, entity)
    if output is not None:
        write_answer(found, output)
    Console().print(answer_view(found, shading=shade))
