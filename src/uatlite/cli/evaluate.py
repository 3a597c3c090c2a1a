"""Comparing methods on labelled data, and the report of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar
from uatlite.errors import ConfigurationError

if TYPE_CHECKING:
    from uatlite.lab.evaluate.answer_runs import SeveralProduct
    from uatlite.lab.evaluate.plan import Contender, SetChoice


COMPARED = "base,ts,mc,uat,uat+ts,distilled+its"
"""The methods that are compared by default."""


_SEVERAL = {"entities": "entities", "labels": "several labels"}
"""Kinds of tasks with several answers a text -> what these are."""


def evaluate(
    model: list[str],
    output: Path,
    methods: str | None = None,
    target_risk: float = 0.1,
    seeds: int = 5,
    task: str | None = None,
    data: Path | None = None,
    shift: list[str] | None = None,
    perturb: list[str] | None = None,
    out_of_scope: str | None = None,
    limit: int | None = None,
    data_dir: Path | None = None,
    text: str = "text",
    text_pair: str | None = None,
    label: str = "label",
    label_order: str | None = None,
    max_length: int | None = None,
    metrics: str | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
) -> None:
    """Compare methods on labelled data: accuracy, calibration and selective risk, with confidence intervals."""
    from uatlite.lab.evaluate import plan as plans
    from uatlite.metrics.intervals import Resampling

    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    test = plans.choose_set(task, data, text=text, text_pair=text_pair, label=label, out_of_scope=out_of_scope)
    kind, console = test.task.kind, shared.messages()
    several = kind in _SEVERAL
    if several:
        one_class = {"out_of_scope": out_of_scope, "label_order": label_order}
        shared.refuse(one_class, f"several answers a text, which {test.task.name} has")
        with console.status(f"Loading {', '.join(model)} …"):
            product = _load_several(model, test)
    plan = plans.Plan(
        contenders=_several_contenders(methods, product) if several else plans.parse_contenders(methods or COMPARED),
        test=test,
        shifts=plans.as_sets(shift or ()),
        perturbations=tuple(perturb or ()),
        out_of_scope=plans.choose_out_of_scope(out_of_scope, text=text, text_pair=text_pair),
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
        from uatlite.lab.evaluate.answer_runs import GivenProduct, answers_of
        from uatlite.lab.evaluate.evaluate import evaluate as run
        from uatlite.lab.evaluate.store import Store
        from uatlite.lab.report.evaluation import write_answers
        from uatlite.lab.report.results import rendered_results, write_results
        from uatlite.model.load import load_checkpoint

        store, models = Store(output / "store"), dict.fromkeys(model)
        source = GivenProduct(product, model[0], plan) if several else None
        given = source or [load_checkpoint(name, kind=kind) for name in models]
    with shared.resumable(console, f"What is done is kept in {output / 'store'}"), StageBar(console) as bar:
        results = run(given, plan, store, bar, cluster)
    Console().print(rendered_results(results))
    written = write_results(results, output)
    if source is not None:
        written = [*written, write_answers(answers_of(source, store), output)]
    console.print(f"Wrote {', '.join(path.name for path in written)} and store/ to {output}")


def _load_several(models: Sequence[str], test: "SetChoice") -> "SeveralProduct":
    """The model of entities or labels that rows with such gold are to be evaluated with."""
    from uatlite.classifier.classifiers import load

    if len(models) > 1:
        raise ConfigurationError(f"{', '.join(models)}: of several answers a text one model is evaluated; give one.")
    product: Any = load(models[0], method="base", calibrated=False)
    if product.kind.name != test.task.kind:
        wanted = _SEVERAL[test.task.kind]
        raise ConfigurationError(
            f"{models[0]} is no model of {wanted}, and {test.task.name} has {wanted} for gold; evaluate it on "
            "rows of its own task."
        )
    return product  # type: ignore[no-any-return]


def _several_contenders(methods: str | None, product: "SeveralProduct") -> tuple["Contender", ...]:
    """Those asked for; by default the usual confidence, and the product's own method, whose name is long."""
    from uatlite.lab.evaluate.plan import ANSWERS, parse_contenders

    if methods is not None:
        return parse_contenders(methods, several=True)
    usual, calibrated = parse_contenders(f"base,{type(product).default_method}+{ANSWERS}", several=True)
    return usual, replace(calibrated, label=f"distilled+{ANSWERS}")


def report(
    store: Path,
    output: Path | None = None,
    method: str | None = None,
    target_risk: float = 0.1,
    data_dir: Path | None = None,
    model: str | None = None,
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = shared.messages()
    with console.status("Drawing …"):
        from uatlite.lab.report.evaluation import home_of
        from uatlite.lab.report.evaluation_page import build_report

        page = build_report(
            store, output or home_of(store), contender=method, target_risk=target_risk, data_dir=data_dir, model=model
        )
    console.print(f"Wrote {page} and {page.parent / 'figures'}")
