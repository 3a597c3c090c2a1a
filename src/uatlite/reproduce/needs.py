"""What a declaration needs, and whether it is there: data, methods, packages."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from uatlite.errors import ConfigurationError
from uatlite.experiments.contenders import parse_contender
from uatlite.experiments.inventory import inventory
from uatlite.experiments.plan import parse_set
from uatlite.reproduce.declaration import Ask, Declaration
from uatlite.reproduce.grid import CANNOT
from uatlite.reproduce.workshop import Workshop

PACKAGES = {"matplotlib": "report", "jinja2": "report", "accelerate": "train", "pyarrow": "data"}
"""package -> the extra that brings it"""


def needs_of(declaration: Declaration, data_dir: Path | None) -> str:
    """What it needs, in words, and where that would come from; what is not there is said so."""
    where = places(data_dir)
    lines = [f"{task}: {where[task]}" for task in tasks_of(declaration)]
    backbones = backbones_of(declaration)
    if backbones:
        lines.append(f"backbones: {', '.join(backbones)}, or --backbone and --other")
    missing = [f"{package}: pip install 'uatlite[{extra}]'" for package, extra in PACKAGES.items() if not _has(package)]
    return "\n".join([*lines, *(f"not installed, {one}" for one in missing)])


def _has(package: str) -> bool:
    return find_spec(package) is not None


def tasks_of(declaration: Declaration) -> list[str]:
    """The tasks that a declaration trains and tests on, in its order."""
    asks = [ask for _, _, _, ask in declaration.asks()]
    sets = [parse_set(ask.on).task.name for ask in asks if ask.on is not None]
    return list(dict.fromkeys([*(ask.task for ask in asks), *sets]))


def backbones_of(declaration: Declaration) -> list[str]:
    """The backbones that it names beside that of every table."""
    return list(dict.fromkeys(ask.backbone for _, _, _, ask in declaration.asks() if ask.backbone is not None))


def contender_reason(ask: Ask) -> str | None:
    try:
        parse_contender(ask.contender)
    except ConfigurationError as error:
        return f"needs the method {ask.contender}: {error}"
    return None


def places(data_dir: Path | None) -> dict[str, str]:
    """task -> where its test rows would come from, in words; nothing is read."""
    return {task.name: splits.get("test", "–") for task, splits in inventory(data_dir)}


def reason_against(ask: Ask, workshop: Workshop) -> str | None:
    """Why a cell cannot be had, found out by reading its rows; None where it can."""
    reason = contender_reason(ask)
    if reason is not None:
        return reason
    supplies = workshop.supplies
    try:
        supplies.at(ask.on or ask.task)
        _ = supplies.of(ask.task).train
        if parse_contender(ask.contender).calibrated:
            _ = supplies.of(ask.task).calibration
    except CANNOT as error:
        return f"needs {ask.on or ask.task}: {error}"
    return None


def notes_on_rows(asks: Iterable[Ask], workshop: Workshop) -> list[str]:
    """Where the rows of some cells came from, of training and of test."""
    trained: dict[str, str] = {}
    tested: dict[str, str] = {}
    for ask in asks:
        trained[ask.task] = workshop.supplies.of(ask.task).note
        name = ask.on or ask.task
        dataset = workshop.supplies.at(name)
        tested[name] = f"{name}: tested on {len(dataset):,} rows of {dataset.source}"
    return [*trained.values(), *tested.values()]
