"""The commands of the product: calibrate, predict, explain and serve a classifier, and list its dropout sites."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument, Option, echo

from uatlite.cli import options as shared
from uatlite.cli.bars import ScoringBar
from uatlite.errors import ConfigurationError

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import EntityExplanation, LabelExplanation
    from uatlite.classifier.labeler import UncertaintyLabeler
    from uatlite.classifier.product import Product
    from uatlite.classifier.tagger import UncertaintyTagger
    from uatlite.values import Text


def predict(
    model: shared.Classifier,
    input: Annotated[str, Argument(help=shared.INPUT_HELP)],
    output: Annotated[Path, Option("--output", "-o", help="JSONL, CSV or Parquet, by extension (.gz too).")],
    method: shared.Method = None,
    max_length: shared.MaxLength = None,
    windows: Annotated[
        bool, Option("--windows", help="Read long texts in overlapping windows; calibration stores this setting.")
    ] = False,
    rejects: Annotated[Path | None, Option(help="File for rejected rows; OUT.rejects.jsonl by default.")] = None,
    strict: shared.Strict = False,
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing output or an unfinished run.")] = False,
    review: Annotated[
        int | None, Option(min=1, help="Also write the N rows that a person should see first to OUT.review.csv.")
    ] = None,
    text: shared.KnownText = None,
    text_pair: shared.Pair = None,
    options: shared.Options = None,
    id: Annotated[str, shared.in_columns(help="Column of the id; rows without one are called file:line.")] = "id",
    keep: Annotated[
        list[str] | None, shared.in_columns(help="Columns to copy, as in id,date; may be repeated.")
    ] = None,
    keep_text: Annotated[
        bool | None, shared.in_columns(help="Copy the text too, or leave it out; by default CSV has it.")
    ] = None,
    format: shared.Format = None,
    engine: shared.Engine = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    gpus_per_worker: shared.Gpus = 0.0,
) -> None:
    """Score the rows of a file: label, calibrated probability, uncertainty, answer or abstain."""
    from uatlite.classifier.products import load_product, product_class
    from uatlite.classifier.saving import remembered_columns
    from uatlite.scoring.job import Job, Summary
    from uatlite.scoring.review import review_rows, write_review
    from uatlite.scoring.run import check_output, score_file
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout

    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    if review is not None and keep_text is False:
        raise ConfigurationError("--review shows the texts, and --no-keep-text leaves them out; choose one of them.")
    source = Source(input, format=format)
    asked = {"text": text, "pair": text_pair, "options": options}
    layout = source.layout(Layout(label=None, id=id, meta=shared.names(keep)), asked, remembered_columns(model))
    texts = True if review is not None else keep_text
    job = Job(input, output, layout, format, rejects, texts, strict=strict, resume=resume, overwrite=overwrite)
    check_output(job)
    job = source.fitted(job, lambda: product_class(model).kinds[0].name)
    changes = shared.given(max_length=max_length, windows=windows or None)
    console = shared.messages()
    load = partial(load_product, shared.absolute_model(model), method=method, **changes)
    total = source.estimate() if console.is_terminal else None
    if cluster is None:
        score: Callable[..., Summary] = partial(score_file, load(), job, source=source)
    else:
        from uatlite.scoring import on_ray

        score = partial(on_ray.score_file, load, job, cluster)
    stopped = "Stopped. Finished rows are kept; the same command with --resume continues."
    with shared.resumable(console, stopped), ScoringBar(console, total) as bar:
        summary = score(bar.show)
    if summary.promised is False:
        console.print(f"No row is answered. {summary.promise}", style=shared.WARNING)
    for line in summary.describe():
        console.print(line)
    if summary.shift is not None and summary.shift.shifted:
        console.print("Warning: what calibration promised need not hold for these data.", style=shared.WARNING)
    if not summary.calibrated:
        shared.not_calibrated(console, model)
    if review is not None:
        write_review(review_rows(output, review), job.review_path)
    more = "" if review is None else f", {job.review_path.name}"
    console.print(f"Wrote {output}{more} and {job.summary_path.name}")


def calibrate(
    model: shared.Model,
    data: Annotated[str, Argument(help=f"Labelled rows that the model was not trained on. {shared.INPUT_HELP}")],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Directory for the calibrated classifier; not needed with --menu.")
    ] = None,
    target_risk: Annotated[
        float | None, Option(help="Abstain so that at most this share of the answers is wrong, as in 0.05.")
    ] = None,
    target_coverage: Annotated[float | None, Option(help="Abstain, but answer at least this share.")] = None,
    target_precision: Annotated[
        float | None, Option(help="Of many labels: report those of which at least this share is right, as in 0.9.")
    ] = None,
    target_wrong: Annotated[
        float | None, Option(help="Of many labels: report at most so many wrong ones a text, as in 0.1.")
    ] = None,
    target_recall: Annotated[
        float | None, Option(help="Of entities: name the texts to look at, so that in the others this share is found.")
    ] = None,
    threshold: Annotated[float | None, Option(help="Answer only if the score is above this number.")] = None,
    confidence: Annotated[float, Option(help="Confidence with which the target holds.")] = 0.95,
    per_class: Annotated[
        bool, Option("--per-class", help="Keep --target-risk among the answers of each class, not only among all.")
    ] = False,
    menu: Annotated[
        bool, Option("--menu", help="Print which risks can be promised, with their coverage; needs no -o.")
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
            help="Score to abstain by: logit-margin by default; confidence (default with --threshold), margin, "
            "entropy, mutual-information, variance."
        ),
    ] = None,
    calibrator: Annotated[
        str | None,
        Option(help="input-temperature by default, or temperature where the method has no variance; none."),
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
    max_length: shared.MaxLength = None,
    windows: Annotated[
        bool, Option("--windows", help="Read long texts in overlapping windows, as a tagger always does.")
    ] = False,
    strict: shared.Strict = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Write into a directory that is not empty.")] = False,
    text: shared.Text = "text",
    text_pair: shared.Pair = None,
    options: shared.Options = None,
    label: shared.GoldColumn = None,
    label_order: shared.LabelOrder = None,
    format: shared.Format = None,
) -> None:
    """Learn calibrated probabilities, and when to abstain, from a few hundred labelled rows."""
    from uatlite.classifier.products import load_product
    from uatlite.classifier.saving import check_target
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout
    from uatlite.text.write import write_rejects

    if output is None and not menu:
        raise ConfigurationError("give a directory to write to: -o DIR. Or print what can be promised: --menu.")
    if output is not None:
        check_target(output, overwrite=overwrite)
    console = shared.messages()
    changes = shared.given(max_length=max_length, windows=windows or None)
    classifier = load_product(model, method=method, calibrated=False, seed=seed, **changes)
    if label_order is not None:
        classifier.rename_classes([name.strip() for name in label_order.split(",")])
    asked = _asked(
        classifier,
        menu=menu,
        target_risk=target_risk,
        target_coverage=target_coverage,
        target_precision=target_precision,
        target_wrong=target_wrong,
        target_recall=target_recall,
        threshold=threshold,
        per_class=per_class or None,
        label_sets=label_sets,
        calibrator=calibrator,
        second_look=second_look,
        score=score,
        confidence=confidence,
        false_alarm=false_alarm,
        seed=seed,
    )
    classes = classifier.class_names or tuple(ascii_uppercase)
    source = Source(data, format=format)
    layout = Layout(text=text, pair=text_pair, options=options, label=label, codes=classes)
    layout = source.gold_layout(layout, classifier.kind.name)
    rows = source.labelled(layout, classes, strict=strict)
    classifier.columns = layout.columns
    others = None if reference is None else Source(reference, format=format).texts(layout, strict=strict)
    more = "" if others is None else f" and {len(others):,} reference texts"
    with shared.said_by_the_command(), console.status(f"Scoring {len(rows.texts):,} rows{more} …") as status:
        read: list[int] = []

        def report(texts: int) -> None:
            read.append(texts)
            status.update(f"Scoring {len(rows.texts):,} rows{more}: {sum(read):,} texts read …")

        classifier.calibrate(rows.texts, rows.gold, reference=others, report=report, **asked)
    if menu:
        _print_menu(console, classifier)
    if output is None:
        return
    classifier.save_pretrained(output, overwrite=overwrite)
    write_rejects(output / "rejects.jsonl", rows.rejects)
    _print_calibration(console, classifier, len(rows.rejects), output)


def _asked(product: "Product[Any]", *, menu: bool, **options: Any) -> dict[str, Any]:
    """The options as arguments of `calibrate`; what the kind of the model does not take is refused by its name."""
    takes, words = signature(product.calibrate).parameters, product.kind.words  # type: ignore[attr-defined]
    others = {name: value for name, value in options.items() if name not in takes}
    shared.refuse(others, f"a model of {words.model}; use {words.options}")
    return shared.given(**options) | ({"menu": menu} if "menu" in takes else {})


def _print_menu(console: Console, classifier: "Product[Any]") -> None:
    calibration = classifier.calibration_
    assert calibration is not None
    if calibration.menu is None:
        console.print("No menu: it takes 50 rows, and answers in them.")
        return
    for line in calibration.menu.describe():
        console.print(line)


def _print_calibration(console: Console, classifier: "Product[Any]", rejected: int, output: Path) -> None:
    calibration = classifier.calibration_
    assert calibration is not None
    lines = calibration.describe()
    broken = [rule for rule in calibration.rules if not rule.promised]
    for rule in broken:
        lines.remove(rule.describe())
        console.print(f"No row will be answered. {rule.describe()}", style=shared.WARNING)
    words = classifier.kind.words
    if not calibration.rules:
        lines.append(f"No rule for {words.deciding}; {words.example} makes one, and --menu lists what can be promised.")
    elif broken and calibration.menu is not None:
        lines += calibration.menu.describe()
    if rejected:
        lines.append(f"{rejected:,} rows rejected; line numbers and reasons are in {output / 'rejects.jsonl'}")
    if calibration.figures is not None:
        lines.append(f"On {calibration.figures.basis}:")
        lines += ["  " + "  ".join(cell.ljust(24) for cell in row).rstrip() for row in calibration.figures.table()]
    for line in [*lines, f"Wrote {output}"]:
        console.print(line)


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
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.classifier.products import load_product
    from uatlite.errors import check_choice
    from uatlite.lab.report.explanation_files import check_target, terminal_view, write_explanation
    from uatlite.lab.report.words import SHADINGS
    from uatlite.text.examples import as_text

    check_choice("--shade", shade, SHADINGS)
    if output is not None:
        check_target(output)
    whole = as_text(text, pair, option or ())
    console = shared.messages()
    with console.status(f"Reading with {model} …"):
        classifier = load_product(
            model, method=method, calibrated=not uncalibrated, **shared.given(max_length=max_length)
        )
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
    from uatlite.classifier.labeler import UncertaintyLabeler
    from uatlite.lab.report.explanation_files import answer_view, check_answer_target, write_answer

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


def sites(model: shared.Model) -> None:
    """List the dropout sites of a model: where units can be dropped, and the rate used in training."""
    from uatlite.model.load import load_checkpoint
    from uatlite.model.view import dropout_sites

    found = dropout_sites(load_checkpoint(model).model)
    functional = sum(site.functional for site in found)
    added = sum(site.added for site in found)
    echo(str(found))
    echo(
        f"\n{len(found)} sites. {functional} are functional: switching Dropout modules to train mode misses them. "
        f"{added} are added where the model has no dropout of its own."
    )
