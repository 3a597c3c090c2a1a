"""What all products share: a model with its tokenizer and method, and what it learned from labelled rows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from uatlite.classifier import saving
from uatlite.classifier.evidence import CalibrationRecord, Figures
from uatlite.classifier.exported import OnnxRuntime, is_exported, load_exported
from uatlite.classifier.predictions import Predictions
from uatlite.classifier.runtime import Runtime, TorchRuntime
from uatlite.classifier.settings import DEFAULT_METHOD, Config, Settings, method_of, tokenizer_fingerprint
from uatlite.errors import CalibrationError, ConfigurationError, MissingDependency, ModelError
from uatlite.methods.method import Method
from uatlite.model.architectures import answering, check_classifier, check_one_answer, unwrap
from uatlite.model.tokens import most_tokens
from uatlite.values import Kind, Text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from uatlite.model.load import Checkpoint
    from uatlite.model.tokens import Tokenizer


Record = TypeVar("Record", bound=CalibrationRecord)
Said = TypeVar("Said", bound=Predictions)


class ProductPredictor(Protocol):
    """A product that is ready to run: settings and calibration at one moment, for texts that are already checked."""

    @property
    def settings(self) -> Settings: ...
    @property
    def calibration(self) -> CalibrationRecord | None: ...
    @property
    def model_hash(self) -> str: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    def predict(self, texts: list[Text]) -> Predictions:
        """What is said about each text."""
        ...


@dataclass(frozen=True, eq=False)
class CheckedPredictor(Generic[Record]):
    """Runtime, settings and calibration of a product at one moment; later changes of the product do not reach it."""

    runtime: Runtime
    settings: Settings
    calibration: Record | None

    @cached_property
    def model_hash(self) -> str:
        """The hash of the model; that of the calibration, which was checked when it was loaded, saves computing it."""
        return self.runtime.hash if self.calibration is None else self.calibration.model_hash

    def with_shift(self, predictions: Said) -> Said:
        """The same predictions, compared with the calibration rows; warns of a shift."""
        reference = None if self.calibration is None else self.calibration.shift
        if reference is None or not len(predictions):
            return predictions
        report = reference.check(predictions.text_scores(reference.score), predictions.scope)
        if report.shifted:
            warnings.warn(report.describe(), stacklevel=3)
        return replace(predictions, shift=report)


class Product(Generic[Record]):
    """A model that says how sure it is. Derived classes say what it answers, and calibrate, predict and explain."""

    answers: ClassVar[tuple[Kind, ...]] = ("one", "choice")
    """the kinds of models that it is for"""
    default_method: ClassVar[str] = DEFAULT_METHOD
    usage: ClassVar[str] = "pred.labels, pred.confidence, pred.mutual_information"
    """what its model card reads off predictions"""
    noun: ClassVar[str] = "classes"
    """what `class_names` are"""
    task: ClassVar[str] = "text-classification"
    """the name of its task on the hub"""

    def __init__(
        self,
        model: "PreTrainedModel | OnnxRuntime",
        tokenizer: "Tokenizer",
        config: Config = None,
        *,
        seed: int | None = None,
        max_length: int | None = None,
        windows: bool = False,
        indices: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.seed = seed
        self.max_length = max_length
        self.windows = windows
        self.indices = indices
        self.columns: dict[str, str] = {}  # of the file it was calibrated with: 'text', 'pair', 'options', 'label'
        self.calibration_: Record | None = None
        if not isinstance(model, OnnxRuntime):
            check_classifier(unwrap(model))
            self._check_answers(model)
        self._asked()  # a bad method is an error now and not at the first text

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        config: Config = None,
        *,
        method: str | None = None,
        device: str | None = None,
        calibrated: bool = True,
        **options: Any,
    ) -> Self:
        """The product from a directory or a hub id, with its calibration where one was saved with it.

        An exported classifier (`uatlite export`) runs without PyTorch.

        `config` (or `method`, its spelling) and `options`, the other arguments of the class, override what was saved.
        `calibrated=False` leaves aside what was saved, to calibrate anew.
        """
        if config is not None and method is not None:
            raise ConfigurationError("config and method were given together; both say how to predict, so give one.")
        found: Checkpoint | OnnxRuntime
        if is_exported(name):
            stored = saving.read(name)
            found = load_exported(name, stored.options.get("config"))
            stored = stored if calibrated else saving.Stored()
        else:
            found = _load_checkpoint(name, device)
            stored = saving.read(name) if calibrated else saving.Stored()
        given = {**options, **({} if config is None and method is None else {"config": config or method})}
        model = found if isinstance(found, OnnxRuntime) else found.model
        product = cls(model, found.tokenizer, **{**stored.options, **given})
        if stored.calibration is not None and stored.kind not in cls.answers:
            raise ModelError(f"{name} was calibrated for another kind of answers ({stored.kind}); calibrate it again.")
        stored.check_model(found.hash if stored.calibration else "", str(name))
        product.columns = dict(stored.columns)
        product.calibration_ = cast("Record | None", stored.calibration)
        return product

    @property
    def runtime(self) -> Runtime:
        """What computes the passes."""
        return self.model if isinstance(self.model, OnnxRuntime) else TorchRuntime(self.model, self.tokenizer)

    @property
    def method(self) -> Method:
        """How the passes are made: what `config` says, with the settings of it that calibrating learned."""
        asked = self._asked()
        learned = None if self.calibration_ is None else self.calibration_.settings.method
        return asked if learned is None or learned.untuned() != asked else learned

    @property
    def chooses(self) -> bool:
        """Whether the model is one for multiple choice."""
        return self.runtime.chooses

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, by column; of a multiple choice A, B, ..., once it is calibrated."""
        return self.runtime.class_names if self.calibration_ is None else self.calibration_.classes

    @property
    def settings(self) -> Settings:
        """All that decides the logits besides the model."""
        length = most_tokens(self.runtime.positions, self.tokenizer, self.max_length)
        method, probe = self.method, tokenizer_fingerprint(self.tokenizer)
        return Settings(method, method.seed if self.seed is None else self.seed, length, self.windows, probe)

    def checked_settings(self) -> Settings:
        """The settings; raises where the calibration was made under others."""
        settings = self.settings
        if self.calibration_ is not None and (difference := self.calibration_.settings.difference(settings)):
            raise CalibrationError(
                f"the classifier was calibrated with {difference}; calibrate it again, or set that back."
            )
        return settings

    def rename_classes(self, names: Sequence[str]) -> Self:
        """Name the model's classes by column, in its own configuration; what was calibrated before is dropped."""
        if isinstance(self.model, OnnxRuntime):
            raise ConfigurationError("the classes of an exported model are fixed; rename them before it is exported.")
        known = len(self.runtime.class_names)
        if self.chooses or len(names) != known or len(set(names)) != known:
            raise ConfigurationError(
                f"{', '.join(names)} are not {known} different names, one for each of the classes."
            )
        self.model.config.id2label = dict(enumerate(names))
        self.model.config.label2id = {name: column for column, name in enumerate(names)}
        self.calibration_ = None
        return self

    @property
    def further_options(self) -> dict[str, Any]:
        """Arguments of the class that other products do not have, as plain JSON values."""
        return {}

    def predictor(self) -> ProductPredictor:
        """The product as it is now, ready to run: settings and calibration are built and checked once."""
        raise NotImplementedError

    def save_pretrained(
        self, directory: str | Path, *, evaluation: Figures | None = None, overwrite: bool = False
    ) -> None:
        """Write model, tokenizer, uatlite.json and a model card; transformers alone still loads the directory.

        A directory that is not empty is an error unless `overwrite=True`.
        """
        saving.write(self, Path(directory), evaluation, overwrite=overwrite)

    def push_to_hub(self, name: str, *, private: bool = False, evaluation: Figures | None = None) -> str:
        """Upload what `save_pretrained` writes to the hub repository `name`, made if need be; returns its address."""
        return saving.push(self, name, private=private, evaluation=evaluation)

    def __repr__(self) -> str:
        state = "not calibrated"
        if self.calibration_ is not None:
            rule = "" if self.calibration_.rule is None else ", abstains"
            state = f"calibrated on {self.calibration_.rows} rows{rule}"
        what = f"{len(self.class_names)} {self.noun}"
        return f"{type(self).__name__}({self.runtime.architecture}, {self.method.name!r}, {what}, {state})"

    def _asked(self) -> Method:
        """The method before anything was learned."""
        return method_of(self.config, self.seed, self.runtime.method, self.default_method)

    def _check_answers(self, model: "PreTrainedModel") -> None:
        kind = answering(model)
        if kind in self.answers:
            return
        check_one_answer(model)
        raise ModelError(
            f"{type(unwrap(model)).__name__} gives one answer a text, and {type(self).__name__} is for models of "
            "several; use UncertaintyClassifier. A model of many labels has problem_type='multi_label_classification' "
            "in its configuration."
        )


def _load_checkpoint(name: str | Path, device: str | None) -> "Checkpoint":
    try:
        from uatlite.model.load import load_checkpoint
    except ModuleNotFoundError as error:
        raise MissingDependency(str(error.name), "torch") from error
    return load_checkpoint(name, device=device)
