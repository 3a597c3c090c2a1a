"""`uatlite.evaluate`: what the command of this name does, in Python; its options are those of the command line."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, StoreError, check_choice
from uatlite.lab.evaluate import COMPARED
from uatlite.lab.evaluate import plan as plans
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.runs import Progress, Remote
from uatlite.metrics.intervals import RESAMPLES, Resampling

OPTIONS: dict[str, Any] = {
    "task": None, "data": None, "text": None, "text_pair": None, "label": None, "label_order": None,
    "methods": None, "metrics": None, "seeds": 5, "target_risk": 0.1, "resamples": RESAMPLES, "confidence": 0.95,
    "shift": None, "perturb": None, "out_of_scope": None, "limit": None, "max_length": None, "data_dir": None,
}  # fmt: skip
"""Option of `uatlite evaluate` that says what is evaluated -> its default."""
_SEVERAL = {"entities": "entities", "labels": "several labels"}
"""Kinds of tasks with several answers a text -> what these are."""


def evaluate(
    model: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    remote: Remote | None = None,
    device: str = "auto",
    **options: Any,
) -> Results:
    """Compare methods on labelled data, write the results into a directory, and return them.

    `model` is a directory or a hub id, or several: those trained for a method follow the plain one. `options` are those
    of `uatlite evaluate`, as in `data="reviews.csv", label="stars", shift=["imdb"]`. What the directory has already is
    not computed again; into a finished one it writes only with `resume`, or with `overwrite`, which computes everything
    anew. `uatlite.report(output)` makes a page of it.
    """
    output = Path(output)
    if (output / "results.json").exists() and not (resume or overwrite):
        way = "give another directory, --resume to compute only what is new, or --overwrite to begin again"
        raise StoreError(f"{output} holds the results of an evaluation; {way}.")
    for name in options:
        check_choice("option", name, OPTIONS)
    models = list(dict.fromkeys(map(str, [model] if isinstance(model, str | Path) else model)))
    plan = replace(_plan(models, {**OPTIONS, **options}), device=device)
    from uatlite.lab.evaluate.evaluate import evaluate as run  # imports torch, which no wrong option has to wait for
    from uatlite.lab.evaluate.store import Store
    from uatlite.lab.report.results import write_results
    from uatlite.model.load import load_checkpoint

    loaded = [load_checkpoint(name, kind=plan.test.task.kind, device=device) for name in models]
    store = Store(output / "store")
    if overwrite and not resume:
        store.clear()
    results = run(loaded, plan, store, progress, remote)
    results = replace(results, command=_command(models, output, options))
    write_results(results, output)
    return results


def _command(models: Sequence[str], output: str | Path, options: Mapping[str, Any]) -> str:
    """The command line that asks for the same."""
    words = ["uatlite", "evaluate", *models]
    for name, value in options.items():
        for given in (value if isinstance(value, list | tuple) else [value]) if value != OPTIONS[name] else ():
            words += [f"--{name.replace('_', '-')}", str(given)]
    return shlex.join([*words, "-o", str(output)])


def _plan(models: Sequence[str], asked: Mapping[str, Any]) -> plans.Plan:
    """What is evaluated, checked before any model is loaded."""
    from uatlite.classifier.saving import read_columns

    outside, columns = asked["out_of_scope"], {"text": asked["text"], "text_pair": asked["text_pair"]}
    columns["remembered"] = read_columns(models[0])
    data, data_dir = (None if asked[name] is None else Path(asked[name]) for name in ("data", "data_dir"))
    test = plans.choose_set(asked["task"], data, **columns, label=asked["label"], out_of_scope=outside)
    return plans.Plan(
        contenders=_contenders(models, test, asked),
        test=test,
        shifts=plans.as_sets(asked["shift"] or ()),
        perturbations=tuple(asked["perturb"] or ()),
        out_of_scope=plans.choose_out_of_scope(outside, **columns),
        data_dir=data_dir,
        label_order=plans.parse_names(asked["label_order"]),
        metrics=plans.parse_metrics(asked["metrics"], test.task.kind) if asked["metrics"] else None,
        target=asked["target_risk"],
        resampling=Resampling(asked["resamples"], asked["confidence"]),
        **{name: asked[name] for name in ("seeds", "limit", "max_length")},
    )


def _contenders(models: Sequence[str], test: plans.SetChoice, asked: Mapping[str, Any]) -> tuple[plans.Contender, ...]:
    """Those asked for. By default, of entities and labels: the usual confidence, and the product's own method."""
    kind, task, methods = test.task.kind, test.task.name, asked["methods"]
    if kind not in _SEVERAL:
        return plans.parse_contenders(methods or COMPARED)
    for option in ("out-of-scope", "label-order"):
        if asked[option.replace("-", "_")] is not None:
            raise ConfigurationError(f"--{option} is not for several answers a text, which {task} has.")
    if len(models) > 1:
        raise ConfigurationError(f"{', '.join(models)}: of several answers a text one model is evaluated; give one.")
    from uatlite.classifier.classifiers import product_class

    product, wanted = product_class(models[0]), _SEVERAL[kind]
    if kind not in [answer_kind.name for answer_kind in product.kinds]:
        why = f"{models[0]} is no model of {wanted}, and {task} has {wanted} for gold"
        raise ConfigurationError(f"{why}; evaluate it on rows of its own task.")
    if methods is not None:
        return plans.parse_contenders(methods, several=True)
    usual, calibrated = plans.parse_contenders(f"base,{product.default_method}+{plans.ANSWERS}", several=True)
    return usual, replace(calibrated, label=f"distilled+{plans.ANSWERS}")
