"""A classifier on disk: a plain transformers directory with its calibration and a model card beside the model.

config.json, model.safetensors, tokenizer...    as transformers writes them, and loads them without uatlite
uatlite-method.safetensors    the weights of a trained method, where it has some
uatlite.json           settings, calibrator, rules, label sets, figures, and the hash of the model they hold for
uatlite.safetensors    the summary of the calibration rows, the scope, the method's read-out
README.md              the model card: what it is, how to use it, what was measured, what is promised
versions/              later versions that recheck made (versions.py)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from safetensors.numpy import load_file, save_file

from uatlite import __version__
from uatlite.classifier.evidence import CONFIDENCE, Figures
from uatlite.classifier.record import Calibration
from uatlite.classifier.runtime import TorchRuntime
from uatlite.classifier.settings import Settings
from uatlite.classifier.versions import VERSIONS, Version, add, current_home
from uatlite.codec import Arrays
from uatlite.errors import CalibrationError, DataError, ModelError
from uatlite.text.files import file_beside
from uatlite.values import Kind

if TYPE_CHECKING:
    from uatlite.classifier.product import Product

_FORMAT = 4
STATE, ARRAYS, CARD = "uatlite.json", "uatlite.safetensors", "README.md"


@dataclass(frozen=True)
class Stored:
    """What was saved beside a model: the classifier's arguments, and the calibration where there is one."""

    options: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    kind: Kind = "one"
    columns: Mapping[str, str] = field(default_factory=dict)
    """what the columns of the calibration rows are called: those of the text, pair, options and label"""

    def check_model(self, found: str, name: str) -> None:
        """Raise unless the model is the one that was calibrated."""
        if self.calibration is not None and found != self.calibration.model_hash:
            raise ModelError(
                f"the model in {name} is not the one that was calibrated (hash {found[:12]}, calibrated "
                f"{self.calibration.model_hash[:12]}): its weights, configuration or labels have changed. Calibrate it "
                "again: load it with calibrated=False, or run uatlite calibrate."
            )


def check_target(directory: Path, *, overwrite: bool) -> None:
    """Raise where something is there already that may not be written over."""
    if directory.is_file():
        raise ModelError(f"{directory} is a file; give a directory.")
    if (directory / VERSIONS).exists():
        raise DataError(f"{directory} has versions, which are not overwritten; give another directory.")
    if directory.is_dir() and any(directory.iterdir()) and not overwrite:
        raise DataError(
            f"{directory} is not empty; give another directory, or write into it: overwrite=True, on the command line "
            "--overwrite."
        )


def write(
    classifier: "Product[Any]",
    directory: Path,
    evaluation: Figures | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write everything into a directory; a new one appears under its name when it is whole."""
    check_target(directory, overwrite=overwrite)
    classifier.checked_settings()
    calibration = classifier.calibration_
    if calibration is not None and classifier.runtime.hash != calibration.model_hash:
        raise CalibrationError("the model has changed since it was calibrated; calibrate it again before saving.")
    if directory.exists():
        _write_files(classifier, directory, evaluation)
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as made:
        whole = Path(made) / "whole"
        whole.mkdir()
        _write_files(classifier, whole, evaluation)
        whole.rename(directory)


def _write_files(classifier: "Product[Any]", directory: Path, evaluation: Figures | None) -> None:
    classifier.runtime.save(directory)
    _write_state(classifier, directory, evaluation)


def _write_state(classifier: "Product[Any]", directory: Path, evaluation: Figures | None) -> None:
    calibration, arrays = classifier.calibration_, Arrays()
    settings = classifier.settings if calibration is None else calibration.settings
    state = {
        "format": _FORMAT,
        "uatlite": __version__,
        "kind": classifier.kind.name,
        "settings": settings.to_dict(arrays),
        "options": {**classifier.options, "seed": settings.seed},
        "columns": classifier.columns,
        "calibration": None if calibration is None else calibration.to_dict(arrays),
        "arrays": sorted(arrays),
    }
    (directory / STATE).write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / ARRAYS).unlink(missing_ok=True)
    if arrays:
        save_file(arrays, directory / ARRAYS)
    (directory / CARD).write_text(model_card(classifier, evaluation), encoding="utf-8")


def write_version(classifier: "Product[Any]", directory: Path, note: str) -> Version:
    """Write the calibration as a new version beside those of a directory, and use it from now on."""
    return add(directory, lambda files: _write_state(classifier, files, None), note)


def read(name: str | Path) -> Stored:
    """What was saved beside the model in a directory or on the hub; nothing for a plain model."""
    name = current_home(name)
    path = file_beside(name, STATE)
    if path is None:
        return Stored()
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ModelError(
                f"{name}/{STATE} has the format {state['format']}, this version of uatlite reads {_FORMAT}; "
                f"it was written by uatlite {state.get('uatlite')}: install that, or calibrate again."
            )
        arrays = _arrays(name, state["arrays"])
        settings = Settings.from_dict(state["settings"], arrays)
        stored = state["calibration"]
        return Stored(
            options={**state["options"], "config": settings.method},
            calibration=None if stored is None else Calibration.from_dict(stored, arrays, settings),
            kind=state["kind"],
            columns=columns_in(state),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{name}/{STATE} is broken ({error!r}); calibrate again.") from error


def remembered_columns(name: str | Path) -> dict[str, str]:
    """What the columns of the rows that calibrated a local classifier are called; empty where that is not known."""
    path = Path(current_home(name)) / STATE
    try:
        return columns_in(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, AttributeError):  # loading the classifier says what is wrong
        return {}


def columns_in(state: Mapping[str, Any]) -> dict[str, str]:
    """The columns that a state names; one of an older version names none."""
    return {str(role): str(column) for role, column in state.get("columns", {}).items()}


def _arrays(name: str | Path, names: Sequence[str]) -> dict[str, Any]:
    """The arrays beside a state, which names them."""
    path = file_beside(name, ARRAYS)
    if path is None and names:
        raise ModelError(f"{name} has a {STATE} and no {ARRAYS}; copy the whole directory, or calibrate again.")
    return {} if path is None else load_file(path)


def push(classifier: "Product[Any]", name: str, *, private: bool = False, evaluation: Figures | None = None) -> str:
    """Upload what `write` writes to a repository of the hub; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as directory:
        write(classifier, Path(directory), evaluation)
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            folder_path=directory,
            commit_message=f"A classifier that knows when to abstain (uatlite {__version__})",
        )
    return str(address)


_CARD = """\
---
library_name: {library}
pipeline_tag: {task}
tags:
- uatlite
- uncertainty
- calibration
---

# {title}

{what} that says how sure it is{abstains}. The weights are those of the model it was made from;
`uatlite.json` beside them holds what was learned from labelled rows.

```python
from uatlite import {product}

clf = {product}.from_pretrained("path-or-hub-id-of-this-model")
pred = clf.predict(["a text"])
{usage}{abstain_attribute}
```

{loads}

- Model: {model}, {classes} {noun}: {names}
- Method: `{method}` ({summary}), seed {seed}
- Texts over {max_length} tokens are {long_texts}
- Written by uatlite {version}

## Calibration

{calibration}

## Figures

{figures}
"""


def model_card(classifier: "Product[Any]", evaluation: Figures | None) -> str:
    """The card in Markdown; `evaluation` are figures on rows that calibration has not seen."""
    architecture, settings, calibration = classifier.runtime.architecture, classifier.settings, classifier.calibration_
    rules = () if calibration is None else calibration.rules
    names, words = classifier.class_names, classifier.kind.words
    learned = ["The classifier is not calibrated."] if calibration is None else calibration.describe()
    promise = [] if not rules else ["What is promised holds for rows like the calibration rows, and for no others."]
    measured = [figures for figures in (evaluation, calibration.figures if calibration else None) if figures]
    plain = isinstance(classifier.runtime, TorchRuntime)
    loads = (
        "transformers alone loads it too, as the plain model without calibration"
        if plain
        else "These are ONNX graphs; pip install 'uatlite[onnx]' runs them without PyTorch."
    )
    return _CARD.format(
        title=f"{architecture} with uncertainty",
        product=type(classifier).__name__,
        usage=words.usage,
        task=words.task,
        noun=words.classes,
        what=f"A {words.task.replace('-classification', ' classifier')}",
        abstains=" and abstains where it should not answer" if rules else "",
        abstain_attribute=", pred.abstain" if rules else "",
        loads=loads + (" and abstention." if rules else ".") if plain else loads,
        library="transformers" if plain else "uatlite",
        model=architecture,
        classes=len(names),
        names=", ".join(names[:12]) + (", …" if len(names) > 12 else ""),
        method=settings.method.name,
        summary=settings.method.summary,
        seed=settings.seed,
        max_length=settings.max_length,
        long_texts="read in overlapping windows" if settings.windows else "cut",
        version=__version__,
        calibration="\n".join(f"- {line}" for line in [*learned, *promise]),
        figures="\n\n".join(_table(figures) for figures in measured) or "None were measured.",
    )


def _table(figures: Figures) -> str:
    header, *lines = figures.table()
    rows = [header, ("---",) * 3, *lines]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    basis = figures.basis[0].upper() + figures.basis[1:]
    return f"{basis}. In brackets: {CONFIDENCE:.0%} bootstrap intervals.\n\n{table}"
