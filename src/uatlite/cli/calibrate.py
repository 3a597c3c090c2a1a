"""Learning calibrated probabilities, and when to abstain."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from uatlite.cli import options as shared
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.values import counted

if TYPE_CHECKING:
    from rich.console import Console

    from uatlite.classifier.classifiers import AnyProduct
    from uatlite.classifier.product import Product
    from uatlite.model.prompt import LabelPrompt
    from uatlite.text.rows import Reject


def calibrate(
    model: Annotated[
        str | None, Argument(help="Directory of a fine-tuned classifier, or a hub id; none with --scores.")
    ] = None,
    data: Annotated[
        str | None, Argument(help=f"Labelled rows that the model was not trained on. {shared.INPUT_HELP}")
    ] = None,
    scores: shared.ScoresFile = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Directory for the calibrated classifier; not needed with --menu.")
    ] = None,
    target_risk: Annotated[
        float | None, Option(help="Of the answers, reported labels or entities, at most this share is wrong: 0.05.")
    ] = None,
    target_errors: Annotated[
        float | None,
        Option(
            help="Of all texts, at most this share is answered wrongly: 0.05. Of several answers: wrong ones a text."
        ),
    ] = None,
    review_share: Annotated[
        float | None, Option(help="Leave at most this share of the texts to a person: 0.2.")
    ] = None,
    target_recall: Annotated[
        float | None, Option(help="Of entities: name the texts to look at, so that in the others this share is found.")
    ] = None,
    cost_wrong: Annotated[
        float | None,
        Option(help="Cost of a wrong answer: answer or review each text, whichever is likely to cost less."),
    ] = None,
    cost_review: Annotated[float, Option(help="Cost of a review.")] = 1.0,
    costs: Annotated[
        Path | None, Option(help="Table of costs instead: a row for each class in the column true, answers, review.")
    ] = None,
    confidence: Annotated[float, Option(help="Confidence with which the target holds.")] = 0.95,
    per_class: Annotated[
        bool, Option("--per-class", help="Keep the target for each class, not only for all together.")
    ] = False,
    menu: Annotated[
        bool, Option("--menu", help="Print what can be promised, with the coverage of each; needs no -o.")
    ] = False,
    reference: Annotated[
        str | None,
        Option(help="Unlabelled texts of the task, best those that trained the model: they tell what is in scope."),
    ] = None,
    false_alarm: Annotated[
        float, Option(help="Rate of false alarms: texts in scope that are refused, and shift checks.")
    ] = 0.01,
    score: Annotated[
        str | None,
        Option(
            help="Score to abstain by: logit-margin by default; confidence, margin, entropy, mutual-information, "
            "variance."
        ),
    ] = None,
    label_sets: Annotated[
        float | None, Option(help="Also give sets of labels that hold the true one this often, as in 0.9.")
    ] = None,
    method: Annotated[
        str | None, Option(help="Method, as in analytic, fast, base or uat:gate=k; distilled by default.")
    ] = None,
    second_look: Annotated[
        str | None, Option(help="Method for a second look at the texts that are abstained on, as in uat.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the passes and of the split of the rows.")] = 0,
    prompt: Annotated[
        str | None,
        Option(help="Of a language model: what it is asked of each text, as in 'Review: {text}\\nSentiment:'."),
    ] = None,
    labels: Annotated[
        str | None,
        Option(help="The words that answer the prompt: negative,positive, or by label 0=bad|awful,1=good|great."),
    ] = None,
    chat: Annotated[
        bool, Option("--chat", help="Ask the prompt as a user, in the chat template of the tokenizer.")
    ] = False,
    base: Annotated[
        str | None, Option(help="Of an adapter (LoRA): its base model, where it is not at the name that it gives.")
    ] = None,
    max_length: shared.MaxLength = None,
    windows: Annotated[
        bool, Option("--windows", help="Read long texts in overlapping windows, as a tagger always does.")
    ] = False,
    strict: shared.Strict = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Write into a directory that is not empty.")] = False,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    label: shared.KnownLabel = None,
    label_order: shared.LabelOrder = None,
    embeddings: shared.Embeddings = None,
    format: shared.Format = None,
    device: shared.Device = "auto",
    precision: shared.PassPrecision = None,
) -> None:
    """Learn calibrated probabilities, and when to abstain, from a few hundred labelled rows; exit code 5 if they cannot
    promise what is asked."""
    options_given = dict(locals())
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.saving import check_target
    from uatlite.scoring.source import Source, of_scores, read_costs

    options_given["costs"] = None if costs is None else read_costs(costs)
    if (scores is None) != (data is not None) or (scores is None) != (model is not None):
        raise ConfigurationError("give a model and labelled rows, or --scores with a file of labelled scores.")
    if output is None and not menu:
        raise ConfigurationError("give a directory to write to: -o DIR. Or print what can be promised: --menu.")
    if output is not None:
        check_target(output, overwrite=overwrite)
    console = shared.messages()
    asking = _prompt(prompt, labels, chat=chat)
    changes = shared.given(
        max_length=max_length, windows=windows or None, prompt=asking, base=base, precision=precision
    )
    names = None if label_order is None else [name.strip() for name in label_order.split(",")]
    source = Source(str(scores or data), format=format, embeddings=embeddings)
    if scores is not None:
        not_read = {"method": method, **changes, "text_pair": text_pair, "options": options}
        shared.refuse(not_read, "a file of scores, of which no text is read")
        classifier: AnyProduct = of_scores(source, label, names, seed=seed)
        console.print(*source.notes)
    else:
        classifier = load(str(model), method=method, calibrated=False, seed=seed, device=device, **changes)
        if names is not None:
            classifier.rename_classes(names)
    asked = _asked(classifier, options_given)
    columns = {"text": text, "pair": text_pair, "options": options, "label": label}
    rows = source.labelled_for(classifier, columns, strict=strict)
    classifier.columns = rows.layout.columns
    others = None if reference is None else Source(reference, format=format).texts(rows.layout, strict=strict)
    more = "" if others is None else f" and {counted(len(others), 'reference text')}"
    with warnings.catch_warnings(), console.status(f"Scoring {counted(len(rows.texts))}{more} …") as status:
        warnings.filterwarnings("ignore", category=UserWarning, module=r"uatlite\.cli\.")  # is printed below
        read: list[int] = []

        def report(texts: int) -> None:
            read.append(texts)
            status.update(f"Scoring {counted(len(rows.texts))}{more}: {sum(read):,} texts read …")

        try:
            classifier.calibrate(rows.texts, rows.gold, reference=others, report=report, **asked)
        except CalibrationError as error:
            if not rows.rejects:
                raise
            rejected = f"{counted(len(rows.rejects))} rejected, the first: {rows.rejects[0].as_error()}"
            raise CalibrationError(f"{error} {rejected}") from error
    calibration = classifier.calibration_
    assert calibration is not None
    if menu:
        promises = ["No menu: it takes 50 rows, and answers in them."]
        console.print(*(promises if calibration.menu is None else calibration.menu.describe()), sep="\n")
    if output is None:
        return
    classifier.save_pretrained(output, overwrite=overwrite)
    tell(console, output, classifier, rows.rejects, without_targets(options_given))


def _prompt(template: str | None, labels: str | None, *, chat: bool) -> "LabelPrompt | None":
    """What a language model is asked; None where the model is a classifier."""
    from uatlite.model.prompt import LabelPrompt

    if template is not None and labels is not None:
        return LabelPrompt.spelt(template, labels, chat=chat)
    if template is not None or labels is not None or chat:
        raise ConfigurationError("--prompt and --labels are given together: what is asked, and the words that answer.")
    return None


def tell(
    console: "Console", output: Path, classifier: "Product[Any]", rejects: "Sequence[Reject]", command: str = ""
) -> None:
    """List rejected rows, and say what was learned from the others; exit with 5 where a promise cannot be kept.

    Then `command` is shown with what can be promised instead.
    """
    from uatlite.classifier.record import asked_by
    from uatlite.text.write import write_rejects

    calibration = classifier.calibration_
    assert calibration is not None
    broken = [rule.describe() for rule in calibration.rules if not rule.promised]
    for unmet in broken:
        console.print(f"No promise: {output} answers nothing. {unmet}", style=shared.WARNING)
    words = classifier.kind.predictions.words
    for rule in calibration.instead:
        name, target = asked_by(classifier.kind.predictions, rule)
        asking = f"{command} --{name.replace('_', '-')} {target:g}"
        console.print(f"Instead they can promise: {rule.describe()}", f"  {asking.strip()}", sep="\n")
    told = [*broken, *(f"Instead they can promise: {rule.describe()}" for rule in calibration.instead)]
    lines = [line for line in calibration.describe() if line not in told]
    if not calibration.rules:
        lines.append(f"No rule for {words.deciding}; {words.example} makes one, and --menu lists what can be promised.")
    lines += write_rejects(output / "rejects.jsonl", rejects)
    lines += [] if calibration.figures is None else calibration.figures.describe()
    console.print(*lines, f"Wrote {output}" + (", which answers nothing" if broken else ""), sep="\n")
    if broken:
        raise Exit(shared.NO_PROMISE)


def without_targets(given: Mapping[str, Any]) -> str:
    """The command with these arguments, less the target of its answers."""
    from uatlite.classifier.record import PROMISE_OPTIONS

    left_out = {"model", "data", "menu", *PROMISE_OPTIONS} - {"target_recall"}
    words = ["uatlite", "calibrate", *(str(given[name]) for name in ("model", "data") if given[name] is not None)]
    for name, parameter in signature(calibrate).parameters.items():
        value = True if name == "overwrite" else given[name]
        if name not in left_out and value != parameter.default:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return join(words)


def _asked(product: "Product[Any]", given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that `calibrate` takes, by name; what the kind of the model does not take is refused."""
    from uatlite.classifier.record import CalibrationOptions

    takes, words = product.asks.__annotations__, product.kind.predictions.words
    options = [option for option in fields(CalibrationOptions) if option.name in given]
    asked = {option.name: given[option.name] for option in options if given[option.name] != option.default}
    others = {name: value for name, value in asked.items() if name not in takes}
    shared.refuse(others, f"a model of {words.model}; use {words.options}")
    return {name: value for name, value in asked.items() if name in takes}
