"""A classifier on disk: a plain transformers directory with uatlite.json, its arrays and a model card beside the model.

config.json, model.safetensors, tokenizer...    as transformers writes them, and loads them without us
uatlite-method.safetensors    the weights of a method that was trained to have some
uatlite.json           settings, calibrator, rule, label sets, figures, and the hash of the model they hold for
uatlite.safetensors    the summary of the calibration rows (scores, mean, covariance, distances)
README.md              the model card, with the measured figures
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from uatlite import __version__
from uatlite.backbone import method_weights
from uatlite.backbone.checks import unwrap
from uatlite.backbone.loading import model_hash
from uatlite.backbone.method_weights import file_beside
from uatlite.classifier.calibration import Calibration
from uatlite.classifier.card import model_card
from uatlite.classifier.figures import Figures
from uatlite.classifier.settings import Settings
from uatlite.errors import CalibrationError, ModelError

if TYPE_CHECKING:
    from uatlite.classifier.classifier import UncertaintyClassifier

FORMAT = 1
STATE, ARRAYS, CARD = "uatlite.json", "uatlite.safetensors", "README.md"


@dataclass(frozen=True)
class Stored:
    """What was saved beside a model: the classifier's arguments, and the calibration where there is one."""

    options: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None

    def check_model(self, found: str, name: str) -> None:
        """Raise unless the model is the one that was calibrated."""
        if self.calibration is not None and found != self.calibration.model_hash:
            raise ModelError(
                f"the model in {name} is not the one that was calibrated (hash {found[:12]}, calibrated "
                f"{self.calibration.model_hash[:12]}): its weights, configuration or labels have changed. Calibrate it "
                "again: load it with calibrated=False, or run uatlite calibrate."
            )


def write(classifier: "UncertaintyClassifier", directory: Path, evaluation: Figures | None = None) -> None:
    """Write everything into a directory; a new one appears under its name when it is whole."""
    calibration = classifier.checked_calibration()
    model = unwrap(classifier.model)
    if calibration is not None and model_hash(model) != calibration.model_hash:
        raise CalibrationError("the model has changed since it was calibrated; calibrate it again before saving.")
    if directory.is_file():
        raise ModelError(f"{directory} is a file; give a directory.")
    if directory.exists():
        _write_files(classifier, directory, evaluation)
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as made:
        whole = Path(made) / "whole"
        whole.mkdir()
        _write_files(classifier, whole, evaluation)
        whole.rename(directory)


def _write_files(classifier: "UncertaintyClassifier", directory: Path, evaluation: Figures | None) -> None:
    model, calibration = unwrap(classifier.model), classifier.calibration_
    model.save_pretrained(directory)
    method_weights.write(model, directory)
    classifier.tokenizer.save_pretrained(directory)
    state = {
        "format": FORMAT,
        "uatlite": __version__,
        "settings": classifier.settings.to_dict(),
        "limit": classifier.max_length,
        "indices": classifier.indices,
        "calibration": None if calibration is None else calibration.to_dict(),
    }
    (directory / STATE).write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    arrays = {} if calibration is None else calibration.to_arrays()
    (directory / ARRAYS).unlink(missing_ok=True)
    if arrays:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, directory / ARRAYS)
    (directory / CARD).write_text(model_card(classifier, evaluation), encoding="utf-8")


def read(name: str | Path) -> Stored:
    """What was saved beside the model in a directory or on the hub; nothing for a plain model."""
    path = file_beside(name, STATE)
    if path is None:
        return Stored()
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise ModelError(
                f"{name}/{STATE} has the format {state['format']}, this version of uatlite reads {FORMAT}; "
                f"it was written by uatlite {state.get('uatlite')}: install that, or calibrate again."
            )
        settings = Settings.from_dict(state["settings"])
        options = {
            "config": settings.method,
            "seed": settings.seed,
            "max_length": state["limit"],
            "windows": settings.windows,
            "indices": state["indices"],
        }
        calibration = state["calibration"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{name}/{STATE} is broken ({error!r}); calibrate again.") from error
    return Stored(
        options, None if calibration is None else Calibration.from_dict(calibration, _arrays(name, calibration))
    )


def _arrays(name: str | Path, calibration: Mapping[str, Any]) -> dict[str, Any]:
    if calibration.get("shift") is None:
        return {}
    path = file_beside(name, ARRAYS)
    if path is None:
        raise ModelError(f"{name} has a {STATE} and no {ARRAYS}; copy the whole directory, or calibrate again.")
    arrays: dict[str, Any] = load_file(path)
    return arrays


def push(
    classifier: "UncertaintyClassifier", name: str, *, private: bool = False, evaluation: Figures | None = None
) -> str:
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
