"""A classifier on disk: a plain transformers directory with its calibration and a model card beside the model.

config.json, model.safetensors, tokenizer...    as transformers writes them, and loads them without uatlite
uatlite-method.safetensors    the weights of a trained method, where it has some
uatlite.json           settings, calibrator, rules, label sets, figures, and the hash of the model they hold for
uatlite.safetensors    the summary of the calibration rows, the scope, the method's read-out
README.md              the model card: what it is, how to use it, what was measured, what is promised
versions/2/...         uatlite.json and what is beside it of a later version, which appears when it is complete
versions/2/version.json    when it was made, from which version, and why
versions/current       the number of the version in use

The model is the same in all versions. Nothing is overwritten, and one can go back.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from safetensors.numpy import load_file, save_file

from uatlite import __version__, codec
from uatlite.classifier.record import INTERVAL_CONFIDENCE, Calibration, Figures
from uatlite.classifier.runtime import Settings, TorchRuntime
from uatlite.codec import Arrays
from uatlite.errors import CalibrationError, DataError, ModelError, StoreError
from uatlite.model.tokens import prompt_of
from uatlite.text.files import file_beside
from uatlite.text.write import make_directory, read_record, write_record, write_text

if TYPE_CHECKING:
    from uatlite.classifier.product import Product

_FORMAT = 6
STATE, ARRAYS, CARD = "uatlite.json", "uatlite.safetensors", "README.md"
_VERSIONS, _CURRENT, _FACTS = "versions", "current", "version.json"


@dataclass(frozen=True)
class Stored:
    """What was saved beside a model: the classifier's arguments, and the calibration where there is one."""

    options: dict[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """what the columns of the calibration rows are called: those of the text, pair, options and label"""


def check_target(directory: Path, *, overwrite: bool) -> None:
    """Raise where something is there already that may not be written over."""
    if directory.is_file():
        raise ModelError(f"{directory} is a file; give a directory.")
    if (directory / _VERSIONS).exists():
        raise DataError(f"{directory} has versions, which are not overwritten; give another directory.")
    if directory.is_dir() and any(directory.iterdir()) and not overwrite:
        raise DataError(
            f"{directory} is not empty; give another directory, or write into it: overwrite=True, on the command line "
            "--overwrite."
        )


def write(
    product: "Product[Any]", directory: Path, evaluation: Figures | None = None, *, overwrite: bool = False
) -> None:
    """Write everything into a directory; a new one appears under its name when it is whole."""
    check_target(directory, overwrite=overwrite)
    settings, calibration = product.checked_settings(), product.calibration_
    if calibration is not None and product.runtime.hash != calibration.model_hash:
        raise CalibrationError("the model has changed since it was calibrated; calibrate it again before saving.")
    with nullcontext(directory) if directory.exists() else _appearing(directory) as files:
        product.runtime.save(files)
        _write_state(product, settings, files, evaluation)


@contextmanager
def _appearing(directory: Path) -> Iterator[Path]:
    """A directory to write into, which gets its name when the block ends."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as made:
        draft = Path(made) / "whole"
        draft.mkdir()
        yield draft
        draft.rename(directory)


def _write_state(
    product: "Product[Any]", settings: Settings, directory: Path, evaluation: Figures | None = None
) -> None:
    calibration, arrays = product.calibration_, Arrays()
    state = {
        "format": _FORMAT,
        "uatlite": __version__,
        "kind": product.kind.name,
        "settings": settings.to_dict(arrays),
        "options": {**product.options, "seed": settings.seed},
        "columns": {**product.columns, **product.runtime.columns_read},
        "calibration": codec.dump(calibration, arrays),
        "arrays": sorted(arrays),
    }
    (directory / STATE).write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / ARRAYS).unlink(missing_ok=True)
    if arrays:
        save_file(arrays, directory / ARRAYS)
    (directory / CARD).write_text(model_card(product, settings, evaluation), encoding="utf-8")


def read(name: str | Path) -> Stored:
    """What was saved beside the model in a directory or on the hub; nothing for a plain model."""
    name = home_in_use(name)
    path = file_beside(name, STATE)
    if path is None:
        import_module("uatlite.model.load").answering_of(name)  # raises where there is no model of that name
        return Stored()
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ModelError(
                f"{name}/{STATE} has the format {state['format']}, this version of uatlite reads {_FORMAT}; "
                f"it was written by uatlite {state.get('uatlite')}: install that, or calibrate again."
            )
        beside = file_beside(name, ARRAYS)
        if beside is None and state["arrays"]:
            raise ModelError(f"{name} has a {STATE} and no {ARRAYS}; copy the whole directory, or calibrate again.")
        arrays = {} if beside is None else load_file(beside)
        settings, calibration = Settings.from_dict(state["settings"], arrays), state["calibration"]
        if calibration is not None:
            calibration = codec.load(Calibration, calibration, arrays, advice="calibrate again.")
            calibration = replace(calibration, settings=settings)
        return Stored(
            options={**state["options"], "config": settings.method},
            calibration=calibration,
            columns=state["columns"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{name}/{STATE} is broken ({error!r}); calibrate again.") from error


def read_columns(name: str | Path) -> Mapping[str, str]:
    """What the columns of the calibration rows are called, whatever the format of all else; none of a plain model."""
    path = file_beside(home_in_use(name), STATE)
    columns = ((path and read_record(path)) or {}).get("columns")
    return columns if isinstance(columns, dict) else {}


def push(product: "Product[Any]", name: str, *, private: bool = False, evaluation: Figures | None = None) -> str:
    """Upload what `write` writes to a repository of the hub; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as directory:
        write(product, Path(directory), evaluation)
        address = api.create_repo(name, private=private, exist_ok=True)
        message = f"A classifier that knows when to abstain (uatlite {__version__})"
        api.upload_folder(repo_id=name, folder_path=directory, commit_message=message)
    return str(address)


@dataclass(frozen=True)
class Version:
    """One version of a classifier: when it was made, from which other one, and why."""

    number: int
    made: str
    parent: int | None = None
    note: str = ""

    def describe(self) -> str:
        """One line for a person."""
        how = "calibrate" if self.parent is None else f"update from version {self.parent}"
        return f"{self.made}  version {self.number}  {how}  {self.note}".rstrip()


def history(directory: str | Path) -> list[Version]:
    """All versions, oldest first."""
    first = Path(directory) / STATE
    if not first.is_file():
        raise DataError(f"{directory} is not a saved classifier; give a directory that uatlite calibrate wrote.")
    versions = [Version(1, _spelt(datetime.fromtimestamp(first.stat().st_mtime, UTC)))]
    for number in _numbers(directory):
        path = Path(directory) / _VERSIONS / str(number) / _FACTS
        try:
            versions.append(Version(**(read_record(path) or {})))
        except TypeError as error:
            raise StoreError(f"{path} is missing or broken; remove that version, or calibrate again.") from error
    return versions


def version_in_use(directory: str | Path) -> int:
    """The number of the version in use."""
    versions = Path(directory) / _VERSIONS
    if not versions.is_dir():
        return 1
    try:
        return int((versions / _CURRENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if not _numbers(directory):  # the first update was interrupted
            return 1
        raise StoreError(
            f"{versions / _CURRENT} does not name the version in use ({error}); calibrate again."
        ) from error


def home_in_use(name: str | Path) -> str | Path:
    """Where the files of the version in use are; the name itself where there is one version, as on the hub."""
    number = version_in_use(name)
    return name if number == 1 else Path(name) / _VERSIONS / str(number)


def use_version(directory: str | Path, number: int) -> None:
    """Use a version from now on; raises where there is none of that number."""
    numbers = [version.number for version in history(directory)]
    if number not in numbers:
        raise DataError(f"{directory} has no version {number}; there are {', '.join(map(str, numbers))}.")
    if number == version_in_use(directory):
        raise DataError(f"version {number} of {directory} is in use already.")
    _point(directory, number)


def write_version(product: "Product[Any]", directory: Path, note: str, *, use: bool = True) -> Version:
    """Write the calibration as a new version beside those of a directory, and `use` it from now on."""
    return add_version(directory, lambda to: _write_state(product, product.checked_settings(), to), note, use=use)


def add_version(directory: Path, write: Callable[[Path], None], note: str, *, use: bool = True) -> Version:
    """Make a version of the files that `write` puts into a directory, and `use` it from now on."""
    parent = version_in_use(directory)
    version = Version(history(directory)[-1].number + 1, _spelt(datetime.now(UTC)), parent, note)
    make_directory(directory / _VERSIONS)
    try:
        with _appearing(directory / _VERSIONS / str(version.number)) as files:
            write(files)
            write_record(files / _FACTS, asdict(version))
    except OSError as error:
        raise StoreError(
            f"version {version.number} of {directory} cannot be written ({error.strerror}); if another process made it "
            "meanwhile, run the command again."
        ) from error
    _point(directory, version.number if use else parent)
    return version


def _point(directory: str | Path, number: int) -> None:
    make_directory(Path(directory) / _VERSIONS)
    write_text(Path(directory) / _VERSIONS / _CURRENT, f"{number}\n")


def _numbers(directory: str | Path) -> list[int]:
    versions = Path(directory) / _VERSIONS
    names = [path.name for path in versions.iterdir()] if versions.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def _spelt(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def model_card(product: "Product[Any]", settings: Settings, evaluation: Figures | None) -> str:
    """The card in Markdown; `evaluation` are figures on rows that calibration has not seen."""
    architecture, calibration = product.runtime.architecture, product.calibration_
    rules = () if calibration is None else calibration.rules
    names, words = product.class_names, product.kind.predictions.words
    learned = ["The classifier is not calibrated."] if calibration is None else calibration.describe()
    if prompt := prompt_of(product.tokenizer):
        words_read = ", ".join(f"{label} by “{word}”" for label, word in prompt["labels"].items())
        asked = prompt["template"].replace("\n", "⏎")
        learned = [
            f"A language model is asked “{asked}”{' in a chat' * prompt['chat']}; it answers {words_read}.",
            *learned,
        ]
    promise = [] if not rules else ["What is promised holds for rows like the calibration rows, and for no others."]
    measured = [figures for figures in (evaluation, calibration.figures if calibration else None) if figures]
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    return template.format(
        product=type(product).__name__,
        words=words,
        settings=settings,
        what=f"A {words.task.replace('-classification', ' classifier')}",
        abstains=" and abstains where it should not answer" if rules else "",
        abstain_attribute=", pred.abstain" if rules else "",
        loads=product.runtime.usage,
        example=product.runtime.example,
        library="transformers" if isinstance(product.runtime, TorchRuntime) else "uatlite",
        model=architecture,
        classes=len(names),
        names=", ".join(names[:12]) + (", …" if len(names) > 12 else ""),
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
    return f"{basis}. In brackets: {INTERVAL_CONFIDENCE:.0%} bootstrap intervals.\n\n{table}"
