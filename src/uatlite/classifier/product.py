"""What all products share: a model with its tokenizer and method, what it learned, and the predictor that runs it."""

import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier import saving
from uatlite.classifier.answer_kind import AnyKind, Reading, Said
from uatlite.classifier.calibrate import CalibrationTexts, calibrate
from uatlite.classifier.entities import ENTITIES
from uatlite.classifier.exported import load_exported
from uatlite.classifier.many_labels import LABELS
from uatlite.classifier.one_class import CHOICE, ONE
from uatlite.classifier.predictions import Predictions
from uatlite.classifier.record import AskedOfAll, Calibration, CalibrationOptions, Figures, SecondLook
from uatlite.classifier.runtime import (
    DEFAULT_METHOD,
    SCORES_MANIFEST,
    Config,
    Runtime,
    Settings,
    TorchRuntime,
    is_exported,
    method_of,
    tokenizer_fingerprint,
)
from uatlite.classifier.scores import load_scores
from uatlite.errors import CalibrationError, ConfigurationError, InputError, MissingDependency, ModelError
from uatlite.methods.method import Method
from uatlite.methods.registry import parse_method
from uatlite.model.architectures import HEADS, check_classifier, unwrap
from uatlite.model.prompt import LabelPrompt
from uatlite.model.tokens import most_tokens
from uatlite.text.files import model_place
from uatlite.trust.shift import these
from uatlite.values import FP32, Choices, Kind, ScoredText, Text, Words

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from uatlite.model.load import Checkpoint
    from uatlite.model.tokens import Tokenizer

KINDS: dict[Kind, AnyKind] = {kind.name: kind for kind in (ONE, CHOICE, LABELS, ENTITIES)}


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model, its settings and calibration at one moment; its texts are already checked (`AnswerKind.texts`)."""

    kind: AnyKind
    runtime: Runtime
    settings: Settings
    calibration: Calibration | None
    class_names: tuple[str, ...]
    """empty for an uncalibrated multiple choice, where each question has its own number of options"""
    indices: bool = False

    @cached_property
    def model_hash(self) -> str:
        """The hash of the model; that of the calibration, which was checked when it was loaded, saves computing it."""
        return self.runtime.hash if self.calibration is None else self.calibration.model_hash

    @property
    def calibrator(self) -> Any:
        """What calibrates probabilities, where there is a calibration."""
        return None if self.calibration is None else self.calibration.calibrator

    def predict(self, texts: Sequence[Text]) -> Any:
        """The `Predictions` of texts, without the comparison of all of them with the calibration rows."""
        return self.said(texts, self.kind.read(self.runtime, texts, self.settings))

    def said(self, texts: Sequence[Text], reading: Reading, *, second_look: bool = True) -> Any:
        """The same from what the method's passes say about them, a `Reading`; or by the first look alone."""
        predictions: Predictions = self.kind.predictions.of(
            texts, reading, self.calibrator if len(texts) else None, self.class_names
        )
        predictions = replace(predictions, indices=self.indices)
        if self.calibration is None:
            return predictions
        predictions, second = predictions.under(self.calibration, reading), self.calibration.second_look
        return predictions if second is None or not second_look else self._look_again(second, predictions)

    def explain(self, text: Text, which: str | int | None = None, **options: Any) -> Any:
        """The `AnswerExplanation` of one answer of a checked text, by default of the one that is least sure; of a class
        an `Explanation`."""
        from uatlite.classifier.explainer import explain  # imports torch
        from uatlite.model.device import computing_in

        with computing_in(self.settings.precision):
            return explain(self, text, which, **options)

    def tokens(self, texts: Sequence[Text]) -> list[list[dict[str, Any]]]:
        """The tokens of each text, each with its uncertainty U; raises for an exported model."""
        from uatlite.classifier.explainer import uncertain_tokens  # imports torch
        from uatlite.model.device import computing_in

        with computing_in(self.settings.precision):
            return uncertain_tokens(self, texts)

    def _look_again(self, second: SecondLook, predictions: Predictions) -> Predictions:
        """The same predictions, with what a further method says about the texts that are abstained on.

        The first look decides: its score is what a promise is about, what a shift is told by and what is watched. A
        second look stands beside it, for the person who reads the text, and never turns an abstention into an answer.
        """
        rows = np.flatnonzero(predictions.doubted)
        texts = [predictions.texts[row] for row in rows.tolist()]
        method = parse_method(second.method).seeded(self.settings.seed)
        reading = self.kind.read(self.runtime, texts, replace(self.settings, method=method))
        said = self.kind.predictions.of(texts, reading, second.calibrator if texts else None, predictions.classes)
        places, passes = np.full(len(predictions), -1), predictions.passes.copy()
        places[rows] = np.arange(len(rows))
        passes[rows] += reading.passes
        return replace(predictions, passes=passes, second=replace(said, indices=self.indices), looked=places)


class Product(Generic[Said]):
    """A model that says how sure it is. Derived classes say which kinds of answers it gives, and how to calibrate."""

    kinds: ClassVar[tuple[AnyKind, ...]] = (ONE, CHOICE)
    """what its models say about a text"""
    asks: ClassVar[type[AskedOfAll]]
    """what its `calibrate` may be asked for, by name"""
    default_method: ClassVar[str] = DEFAULT_METHOD
    aggregation_strategy: str | None = None
    """how entities are joined; other models have none"""

    def __init__(
        self,
        model: "PreTrainedModel | Runtime",
        tokenizer: "Tokenizer | None" = None,
        config: Config = None,
        *,
        seed: int | None = None,
        max_length: int | None = None,
        windows: bool = False,
        indices: bool = False,
        precision: str = FP32,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.seed = seed
        self.max_length = max_length
        self.windows = windows
        self.indices = indices
        self.precision = precision
        self.columns: dict[str, str] = {}  # of the file it was calibrated with: 'text', 'pair', 'options', 'label'
        self.calibration_: Calibration | None = None
        if not isinstance(model, Runtime):
            check_classifier(unwrap(model))
        if self.kind not in self.kinds:
            several = HEADS[self.kind.name].several
            gives = "one answer a text" if several is None else f"several answers a text ({self.kind.name})"
            raise ModelError(
                f"{self.runtime.architecture} gives {gives}, and {type(self).__name__} is for other models; use "
                f"{several or 'UncertaintyClassifier'}. A model of many labels has "
                "problem_type='multi_label_classification' in its configuration."
            )
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
        base: str | Path | None = None,
        prompt: LabelPrompt | None = None,
        **options: Any,
    ) -> Self:
        """The product from a directory or a hub id, with its calibration where one was saved with it.

        An exported classifier (`uatlite export`) runs without PyTorch, on the CPU; others on `device`: 'cpu', 'cuda',
        'cuda:1' or 'mps', by default a GPU where there is one. The adapter of a directory is merged into its `base`, by
        default the one that it names. With a `prompt` a causal language model is a classifier.

        `config` (or `method`, its spelling) and `options`, the other arguments of the class, override what was saved.
        `calibrated=False` leaves aside what was saved, to calibrate anew.
        """
        files = open_files(name, device=device, calibrated=calibrated, base=base, prompt=prompt)
        return cls.of_files(files, config, method=method, **options)

    @classmethod
    def of_files(cls, files: "Files", config: Config = None, *, method: str | None = None, **options: Any) -> Self:
        """The product of files that are open; `from_pretrained` describes the options."""
        if config is not None and method is not None:
            raise ConfigurationError("config and method were given together; both say how to predict, so give one.")
        name, runtime, stored = files
        given = {**options, **({} if config is None and method is None else {"config": config or method})}
        model = runtime.model if isinstance(runtime, TorchRuntime) else runtime
        product = cls(model, runtime.tokenizer, **{**stored.options, **given})
        if stored.calibration is not None and runtime.hash != stored.calibration.model_hash:
            raise ModelError(
                f"the model in {name} is not the one that was calibrated (hash {runtime.hash[:12]}, calibrated "
                f"{stored.calibration.model_hash[:12]}): its weights, configuration or labels have changed. Calibrate "
                "it again: load it with calibrated=False, or run uatlite calibrate."
            )
        product.columns = dict(stored.columns)
        product.calibration_ = stored.calibration
        return product

    @property
    def runtime(self) -> Runtime:
        """What computes the passes."""
        if isinstance(self.model, Runtime):
            return self.model
        return TorchRuntime(self.model, self.tokenizer, self.precision)

    @property
    def method(self) -> Method:
        """How the passes are made: what `config` says, with the settings of it that calibrating learned."""
        asked = self._asked()
        learned = None if self.calibration_ is None else self.calibration_.settings.method
        return asked if learned is None or (learned.name, learned.seed) != (asked.name, asked.seed) else learned

    @property
    def kind(self) -> AnyKind:
        """What the model says about a text."""
        return KINDS[self.runtime.kind]

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes, labels or types of entities are called, by column; of options, once it is calibrated."""
        names: tuple[str, ...] = () if self.calibration_ is None else self.calibration_.classes
        return names or self.kind.classes(self.runtime)

    @property
    def settings(self) -> Settings:
        """All that decides the logits besides the model."""
        method, length, probe = self.method, 0, ""
        if self.tokenizer is not None:
            length = most_tokens(self.runtime.positions, self.tokenizer, self.max_length)
            probe = tokenizer_fingerprint(self.tokenizer)
        seed = method.seed if self.seed is None else self.seed
        return Settings(method, seed, length, self.windows, probe, self.aggregation_strategy, self.precision)

    def checked_settings(self) -> Settings:
        """The settings; raises where the calibration was made under others."""
        settings = self.settings
        if self.calibration_ is not None and (difference := self.calibration_.settings.difference(settings)):
            raise CalibrationError(
                f"the classifier was calibrated with {difference}; calibrate it again, or set that back."
            )
        return settings

    def gold_of(self, texts: Sequence[Text], given: Iterable[Any], classes: Sequence[str]) -> NDArray[Any]:
        """What the gold says about checked texts, as `AnswerKind.gold`; an error where there is not one for each."""
        given = given if isinstance(given, Sized) else list(given)
        if len(given) != len(texts):
            wording = self.kind.predictions.words
            raise InputError(f"{len(texts)} texts came with {len(given)} {wording.gold}; give one for each text.")
        return self.kind.gold(given, texts, classes)

    def rename_classes(self, names: Sequence[str]) -> Self:
        """Name the model's classes by column, in its own configuration; what was calibrated before is dropped."""
        if isinstance(self.model, Runtime):
            raise ConfigurationError("the classes of this model are fixed; rename them where it is made or exported.")
        count = len(self.runtime.class_names)
        if len(names) != count or len(set(names)) != count:
            raise ConfigurationError(
                f"{', '.join(names)} are not {count} different names, one for each of the classes."
            )
        self.model.config.id2label = dict(enumerate(names))
        self.model.config.label2id = {name: column for column, name in enumerate(names)}
        self.calibration_ = None
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the class besides model, tokenizer and method."""
        given = {name: getattr(self, name) for name in ("seed", "max_length", "windows", "indices", "precision")}
        strategy = self.aggregation_strategy
        return given if strategy is None else given | {"aggregation_strategy": strategy}

    def predictor(self, *, here: bool = True) -> Predictor:
        """The product as it is now, ready to run: settings and calibration are built and checked once.

        With `here=False` it is other machines that run it, so this one need not have the precision.
        """
        if here:
            self.check_precision()
        of = self.kind, self.runtime, self.checked_settings(), self.calibration_, self.class_names, self.indices
        return Predictor(*of)

    def check_precision(self) -> None:
        """Raise where the device of the model has not the precision."""
        if self.precision == FP32:
            return
        if isinstance(self.model, Runtime):
            raise ConfigurationError(f"precision={self.precision!r} is for PyTorch models only; leave it out.")
        from uatlite.model.device import check_precision

        check_precision(self.precision, next(self.model.parameters()).device)

    def _calibrate(self, texts: Iterable[Any], gold: Iterable[Any], asked: Mapping[str, Any]) -> Self:
        """Learn from labelled texts; warns of what cannot be promised."""
        if unknown := asked.keys() - self.asks.__annotations__:
            raise TypeError(f"{type(self).__name__}.calibrate takes no {', '.join(sorted(unknown))}; see its help.")
        self.check_precision()
        given = dict(asked)
        reference, report = given.pop("reference", None), given.pop("report", None)
        options = CalibrationOptions(**given)
        kind = self.kind
        checked = kind.texts(self.runtime.taken(texts, learn=True), ())
        if not checked:
            raise CalibrationError(
                "there are no calibration rows; give labelled texts that the model was not trained on."
            )
        classes = kind.classes(self.runtime, checked)
        wanted = self.gold_of(checked, gold, classes)
        labelled = set(checked)  # a text that fits the scope cannot also say how strange such texts are
        others = [
            text
            for text in kind.texts(self.runtime.taken([] if reference is None else reference), classes)
            if text not in labelled
        ]
        settings = replace(self.settings, method=self._asked())
        data = CalibrationTexts(kind, self.runtime, settings, checked, others, report)
        self.calibration_ = calibration = replace(calibrate(data, wanted, options, classes), asked=given)
        if calibration.settings.method.name != settings.method.name:
            self.config = calibration.settings.method  # with rates that the model stands
        doubts = [rule.describe() for rule in calibration.rules if not rule.promised]
        if calibration.comparison is not None and calibration.comparison.verdict == "worse":
            doubts.append(calibration.comparison.describe())
        doubts += [calibration.ties] if calibration.ties else []
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=3)
        return self

    def predict(self, texts: Iterable[Any] | Text, *, check_shift: bool = True) -> Said:
        """What the model says about texts: strings, pairs, Choices or lists of words, as it takes them.

        One string is a list of one. Where it is calibrated, the texts are compared with the calibration rows and a
        shift is warned of; a caller who gives a stream in parts sets `check_shift=False` and compares the whole
        (`Predictions.scope` is kept).
        """
        predictor = self.predictor()
        given: Iterable[Any] = [texts] if isinstance(texts, str | Choices | Words | ScoredText) else texts
        predictions: Said = predictor.predict(self.kind.texts(self.runtime.taken(given), self.class_names))
        calibration, count = self.calibration_, len(predictions)
        if calibration is None or calibration.shift is None or not check_shift or not count:
            return predictions
        report = calibration.shift.check(predictions.text_scores(calibration.shift.score), predictions.scope)
        wrong = 1.0 - predictions.sure[predictions.reports]
        report = calibration.judged(report, these(count, "texts"), count, len(wrong), float(wrong.sum()))
        if report.shifted:
            warnings.warn(report.describe(), stacklevel=2)
        return replace(predictions, shift=report)

    def _explain(self, text: Any, which: str | int | None = None, **options: Any) -> Any:
        """One answer of a text explained."""
        (checked,) = self.kind.texts(self.runtime.taken([text]), self.class_names)
        return self.predictor().explain(checked, which, **options)

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
            rule = ", abstains" if self.calibration_.rules else ""
            state = f"calibrated on {self.calibration_.rows} rows{rule}"
        what = f"{len(self.class_names)} {self.kind.predictions.words.classes}"
        return f"{type(self).__name__}({self.runtime.architecture}, {self.method.name!r}, {what}, {state})"

    def _asked(self) -> Method:
        """The method before anything was learned."""
        return method_of(self.config, self.seed, self.runtime.method, self.default_method)


class Files(NamedTuple):
    """What stands in a directory or under a hub id."""

    name: str | Path
    runtime: Runtime
    stored: saving.Stored


def open_files(
    name: str | Path,
    *,
    device: str | None = None,
    calibrated: bool = True,
    stored: saving.Stored | None = None,
    base: str | Path | None = None,
    prompt: LabelPrompt | None = None,
) -> Files:
    """The model of that name, and what was saved beside it; a method that learned stays with an exported one.

    `base` and `prompt` make a classifier of what is none by itself, so nothing was saved beside it.
    """
    runtime: Runtime
    if is_exported(name, SCORES_MANIFEST):
        runtime = load_scores(name)
    elif is_exported(name):
        if device not in (None, "auto", "cpu"):
            raise ConfigurationError(f"device={device!r}: {name} is an exported classifier, which runs on the CPU.")
        stored = stored or saving.read(name)
        runtime = load_exported(name, stored.options.get("config"))
    else:
        model_place(name)  # a name that is no model is an error also without PyTorch
        checkpoint: Checkpoint = model_files().load_checkpoint(name, device=device, base=base, prompt=prompt)
        runtime = TorchRuntime(checkpoint.model, checkpoint.tokenizer)
    if base is not None or prompt is not None:
        return Files(name, runtime, saving.Stored())
    if calibrated:
        return Files(name, runtime, stored or saving.read(name))
    return Files(name, runtime, saving.Stored(columns=saving.read_columns(name)))


def model_files() -> Any:
    """The module that reads PyTorch models, `uatlite.model.load`."""
    try:
        return import_module("uatlite.model.load")
    except ModuleNotFoundError as error:
        raise MissingDependency(str(error.name), "torch") from error
