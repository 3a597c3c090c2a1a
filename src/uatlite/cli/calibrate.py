"""Learning calibrated probabilities, and when to abstain."""

from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from uatlite.cli import options as shared
from uatlite.errors import ConfigurationError

if TYPE_CHECKING:
    from uatlite.classifier.product import Product


def calibrate(
    model: str,
    data: str,
    output: Path | None = None,
    target_risk: float | None = None,
    target_coverage: float | None = None,
    target_precision: float | None = None,
    target_wrong: float | None = None,
    target_recall: float | None = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    per_class: bool = False,
    menu: bool = False,
    reference: str | None = None,
    false_alarm: float = 0.01,
    score: str | None = None,
    calibrator: str | None = None,
    label_sets: float | None = None,
    method: str | None = None,
    second_look: str | None = None,
    seed: int = 0,
    max_length: int | None = None,
    windows: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    text: str = "text",
    text_pair: str | None = None,
    options: str | None = None,
    label: str | None = None,
    label_order: str | None = None,
    format: str | None = None,
) -> None:
    """Learn calibrated probabilities, and when to abstain, from a few hundred labelled rows."""
    options_given = dict(locals())
    from uatlite.classifier.classifiers import load
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
    classifier = load(model, method=method, calibrated=False, seed=seed, **changes)
    if label_order is not None:
        classifier.rename_classes([name.strip() for name in label_order.split(",")])
    asked = _asked(classifier, options_given)
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
    calibration = classifier.calibration_
    assert calibration is not None
    if menu:
        promises = ["No menu: it takes 50 rows, and answers in them."]
        console.print(*(promises if calibration.menu is None else calibration.menu.describe()), sep="\n")
    if output is None:
        return
    classifier.save_pretrained(output, overwrite=overwrite)
    write_rejects(output / "rejects.jsonl", rows.rejects)
    broken = [rule for rule in calibration.rules if not rule.promised]
    for rule in broken:
        console.print(f"No row will be answered. {rule.describe()}", style=shared.WARNING)
    lines, words = calibration.describe(), classifier.kind.words
    lines = [line for line in lines if line not in [rule.describe() for rule in broken]]
    if not calibration.rules:
        lines.append(f"No rule for {words.deciding}; {words.example} makes one, and --menu lists what can be promised.")
    elif broken and calibration.menu is not None:
        lines += calibration.menu.describe()
    if rows.rejects:
        lines.append(f"{len(rows.rejects):,} rows rejected; line numbers and reasons are in {output / 'rejects.jsonl'}")
    if (figures := calibration.figures) is not None:
        table = ("  ".join(cell.ljust(24) for cell in row).rstrip() for row in figures.table())
        lines += [f"On {figures.basis}:", *(f"  {row}" for row in table)]
    console.print(*lines, f"Wrote {output}", sep="\n")


def _asked(product: "Product[Any]", given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that `calibrate` takes, by name; what the kind of the model does not take is refused."""
    from uatlite.classifier.settings import CalibrationOptions

    takes, words = signature(product.calibrate).parameters, product.kind.words  # type: ignore[attr-defined]
    asked = {of.name: given[of.name] for of in fields(CalibrationOptions) if given[of.name] != of.default}
    others = {name: value for name, value in asked.items() if name not in (*takes, "menu")}
    shared.refuse(others, f"a model of {words.model}; use {words.options}")
    return {name: value for name, value in asked.items() if name in takes}
