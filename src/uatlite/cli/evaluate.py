"""Comparing methods on labelled data, and the report of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument, Option

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar
from uatlite.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from uatlite.lab.evaluate.plan import Contender
    from uatlite.values import Kind

_METHODS = "base,ts,mc-component,uat,uat+ts,distilled+its"
"""The methods that are compared by default; mc-component has the rates of uat, so the two differ by the gate alone."""
_SEVERAL = {"entities": "entities", "labels": "several labels"}
"""Kinds of tasks with several answers a text -> what these are."""
EVALUATE_EXAMPLES = """
[bold]Examples[/bold]

  uatlite evaluate my-model --task sst2 -o out

  uatlite evaluate my-model --task mnli --shift hans --seeds 5 -o out

  uatlite evaluate my-model --task sst2 --methods base,uat:gate=k+ts -o out

  uatlite evaluate my-model my-ensemble my-swag --task sst2 --methods base,ts,ensemble,ensemble+ts,swag -o out

  uatlite evaluate my-model --data reviews.csv --text body -o out

  uatlite evaluate my-model --task clinc150 --out-of-scope clinc150 -o out

  uatlite evaluate my-tagger --task wnut17 -o out

Predictions are kept in DIR/store. After Ctrl-C the same command continues from there; with --resume other metrics, \
methods or seeds compute what is new. [bold]uatlite methods[/bold] and [bold]uatlite tasks[/bold] list what there is.
"""


def evaluate(
    model: Annotated[
        list[str], Argument(help="Directory of a fine-tuned classifier, or a hub id; then models trained for a method.")
    ],
    output: Annotated[Path, Option("--output", "-o", help="Directory for the results and the store.")],
    methods: Annotated[
        str | None,
        Option(
            help=f"Methods separated by commas, with or without a calibrator (+ts); by default {_METHODS}. Of entities "
            "and labels base,distilled+answers."
        ),
    ] = None,
    target_risk: Annotated[
        float, Option(help="Of entities and labels: the share of those reported that may be wrong.")
    ] = 0.1,
    seeds: shared.Seeds = 5,
    resume: Annotated[
        bool, Option("--resume", help="Go on in a finished directory: compute what is new, replace the results.")
    ] = False,
    task: Annotated[str | None, shared.in_data(help="A task, or one split of it, as in sst2/test-original.")] = None,
    data: Annotated[
        Path | None, shared.in_data(help="Your own labelled file instead; half of it calibrates, half tests.")
    ] = None,
    shift: Annotated[
        list[str] | None, shared.in_data(help="Also evaluate on this task or split; may be repeated.")
    ] = None,
    perturb: Annotated[
        list[str] | None, shared.in_data(help="Also evaluate on perturbed texts: swap or negation.")
    ] = None,
    out_of_scope: Annotated[
        str | None,
        shared.in_data(
            metavar="TASK|FILE",
            help="Also find these texts, which the model is not for: a task (only its rows labelled out of scope, if "
            "it has any), or a file with the column --text.",
        ),
    ] = None,
    limit: Annotated[int | None, shared.in_data(help="Evaluate on N rows of each split, drawn at random.")] = None,
    data_dir: shared.DataDir = None,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    label: shared.KnownLabel = None,
    label_order: shared.LabelOrder = None,
    max_length: shared.MaxLength = None,
    metrics: Annotated[str | None, shared.in_more(help="Metrics separated by commas, or all.")] = None,
    resamples: shared.Resamples = 1000,
    confidence: Annotated[float, shared.in_more(help="Confidence of the intervals.")] = 0.95,
    engine: shared.Engine = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    gpus_per_worker: shared.Gpus = 0.0,
) -> None:
    """Compare methods on labelled data: accuracy, calibration and selective risk, with confidence intervals."""
    from uatlite.classifier.saving import read_columns
    from uatlite.lab.evaluate import plan as plans
    from uatlite.metrics.intervals import Resampling

    if (output / "results.json").exists() and not resume:
        way = "give another directory, or --resume to compute only what is new and replace them"
        raise StoreError(f"{output} holds the results of an evaluation; {way}.")
    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    columns: dict[str, Any] = {"text": text, "text_pair": text_pair, "remembered": read_columns(model[0])}
    test = plans.choose_set(task, data, label=label, out_of_scope=out_of_scope, **columns)
    kind, console = test.task.kind, shared.messages()
    if kind in _SEVERAL:
        one_class = {"out_of_scope": out_of_scope, "label_order": label_order}
        shared.refuse(one_class, f"several answers a text, which {test.task.name} has")
        contenders = _several_contenders(methods, model, kind, test.task.name)
    else:
        contenders = plans.parse_contenders(methods or _METHODS)
    plan = plans.Plan(
        contenders=contenders,
        test=test,
        shifts=plans.as_sets(shift or ()),
        perturbations=tuple(perturb or ()),
        out_of_scope=plans.choose_out_of_scope(out_of_scope, **columns),
        seeds=seeds,
        limit=limit,
        max_length=max_length,
        data_dir=data_dir,
        label_order=plans.parse_names(label_order),
        metrics=plans.parse_metrics(metrics, kind),
        target=target_risk,
        resampling=Resampling(resamples, confidence),
    )
    if plan.suggested:
        console.print(plans.suggestion(plan.suggested))
    with console.status(f"Loading {', '.join(model)} …"):
        from uatlite.lab.evaluate.evaluate import evaluate as run
        from uatlite.lab.evaluate.store import Store
        from uatlite.lab.report.results import rendered_results, write_results
        from uatlite.model.load import load_checkpoint

        models = [load_checkpoint(name, kind=kind) for name in dict.fromkeys(model)]
    with shared.resumable(console, f"What is done is kept in {output / 'store'}"), StageBar(console) as bar:
        results = run(models, plan, Store(output / "store"), bar, cluster)
    Console().print(rendered_results(results))
    written = write_results(results, output)
    console.print(f"Wrote {', '.join(path.name for path in written)} and store/ to {output}")


def _several_contenders(methods: str | None, models: Sequence[str], kind: "Kind", task: str) -> tuple["Contender", ...]:
    """Those asked for, of one model for such answers.

    By default the usual confidence, and the product's own method, whose name is long.
    """
    from uatlite.classifier.classifiers import product_class
    from uatlite.lab.evaluate.plan import ANSWERS, parse_contenders

    if len(models) > 1:
        raise ConfigurationError(f"{', '.join(models)}: of several answers a text one model is evaluated; give one.")
    product, wanted = product_class(models[0]), _SEVERAL[kind]
    if kind not in [known.name for known in product.kinds]:
        raise ConfigurationError(
            f"{models[0]} is no model of {wanted}, and {task} has {wanted} for gold; evaluate it on rows of its own "
            "task."
        )
    if methods is not None:
        return parse_contenders(methods, several=True)
    usual, calibrated = parse_contenders(f"base,{product.default_method}+{ANSWERS}", several=True)
    return usual, replace(calibrated, label=f"distilled+{ANSWERS}")


def report(
    store: Annotated[Path, Argument(help="Directory that 'evaluate' wrote, or the store in it.")],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Directory for report.html and figures/; by default STORE.")
    ] = None,
    method: Annotated[
        str | None, Option(help="Method whose abstentions are shown, as in uat+ts; by default the verdict's.")
    ] = None,
    target_risk: Annotated[float, Option(help="Share of wrong answers that abstention aims at.")] = 0.1,
    data_dir: shared.DataDir = None,
    model: Annotated[str | None, Option(help="The evaluated model, to explain a few texts word by word.")] = None,
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = shared.messages()
    with console.status("Drawing …"):
        from uatlite.lab.report.evaluation_page import build_report

        page = build_report(store, output, contender=method, target_risk=target_risk, data_dir=data_dir, model=model)
    console.print(f"Wrote {page} and {page.parent / 'figures'}")
