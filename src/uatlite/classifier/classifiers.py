"""The names that users know: classifiers of one class, of many labels and of entities; `load` gives the right one.

Each says what its models answer and what calibrating may be asked for; all else is `Product`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.entities import ENTITIES, EntityPredictions, texts_and_entities
from uatlite.classifier.exported import read_manifest
from uatlite.classifier.many_labels import LABELS, LabelPredictions
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.product import KINDS, Product, model_files, open_files
from uatlite.classifier.record import AskedOfAll, AskedOfClasses, AskedOfEntities, Figures, measured_figures
from uatlite.classifier.runtime import SCORES_MANIFEST, Config, is_exported
from uatlite.classifier.saving import Stored
from uatlite.classifier.scores import load_scores
from uatlite.classifier.tags import STRATEGIES
from uatlite.errors import ConfigurationError, check_choice, nearest
from uatlite.model.prompt import LabelPrompt
from uatlite.text.labels import class_indices
from uatlite.values import Choices, Floats, Kind, Text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from uatlite.classifier.explanation import AnswerExplanation, Explanation
    from uatlite.model.tokens import Tokenizer


class UncertaintyClassifier(Product[ClassPredictions]):
    """A text classifier with calibrated probabilities, uncertainties, and a rule for when to abstain.

    `config` is a UATConfig, or the spelling of any method ('uat:gate=k', 'base'); by default the one that the model was
    trained for, or 'distilled': UAT-Lite in one pass once it is calibrated, and the method 'analytic' before. Texts
    longer than `max_length` tokens (by default what the model takes) are cut, and counted; with `windows` they are read
    in overlapping windows and the logits averaged. With `indices` labels are the model's columns instead of names.
    """

    asks = AskedOfClasses

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, (classes,): their names, or with `indices` their columns."""
        return np.arange(len(self.class_names)) if self.indices else np.array(self.class_names, dtype=np.str_)

    def calibrate(self, texts: Iterable[Any], labels: Iterable[Any], **asked: Unpack[AskedOfClasses]) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        A rule to abstain by comes from one of `target_risk` (at most this share of the answers is wrong, with the
        stated `confidence`), `target_errors` (of all texts at most this share is answered wrongly), both with
        `per_class` also for each class; `review_share` (at most this share is left to a person) and `threshold`
        (answer above it). The `score` that ranks texts is by default the margin of the logits, which needs no fitting,
        so that all rows decide; with a threshold it is the confidence. `label_sets` is the coverage of label sets. What
        was learned is in `calibration_`. `calibrator` names one, by default 'input-temperature', or 'temperature' where
        the method has no variance. `confidence` is 0.95 by default.

        `reference` are unlabelled texts of the task, best those that the model was trained on: they tell which texts
        are in scope. Without them the calibration rows serve, less well. `false_alarm` (0.01) is the share of texts in
        scope that may be refused, and of runs without a shift that may be called shifted. `seed` (0) draws the rows
        that fit. `report` is called with the number of texts read after each step.

        `second_look` names a further method, 'uat' say, for the texts that will be abstained on. What it says stands
        beside the prediction (`Predictions.second_labels`); it turns no abstention into an answer.
        """
        return self._calibrate(texts, labels, {"menu": True, **asked})

    def predict_proba(self, texts: Iterable[Any] | Choices) -> Floats:
        """Probabilities (rows, classes), calibrated where the classifier is; columns as in `classes_`."""
        probabilities: Floats = self.predict(texts, check_shift=False).probabilities
        return probabilities

    def explain(
        self,
        text: Text,
        *,
        estimator: str = "delta",
        samples: int = 200,
        occlusion: bool = True,
        attention: bool = True,
    ) -> "Explanation":
        """The prediction of one text (a string, a pair or Choices) and where its uncertainty comes from.

        Words and layers take one forward and one backward pass, which with the method 'analytic' are the prediction's
        own; the estimators 'isolated' and 'total-variance' sample `samples` passes for each layer and component.
        `occlusion` masks each word in turn, which costs as much as predicting so many texts; `attention` compares it
        with and without modulation. Print the result, or see its `summary`, for the reason in plain sentences.
        """
        explanation: Explanation = self._explain(
            text, estimator=estimator, samples=samples, occlusion=occlusion, attention=attention
        )
        return explanation

    def evaluate(self, texts: Iterable[Any], labels: Iterable[Any], *, name: str = "evaluation data") -> Figures:
        """Accuracy, NLL, Brier, ECE and AURC on labelled texts, with intervals; the model card takes them."""
        checked, predictor = self.kind.texts(self.runtime.taken(texts), self.class_names), self.predictor()
        gold = self.gold_of(checked, labels, self.class_names)
        reading = self.kind.read(self.runtime, checked, predictor.settings)
        said = predictor.said(checked, reading, second_look=False)
        return measured_figures(reading.mean_logits, said.probabilities, gold, f"{name}: {len(gold)} rows")

    def as_model(self) -> "PreTrainedModel":
        """A model for `transformers.pipeline("text-classification", model=...)` that gives the calibrated scores."""
        from uatlite.classifier.export import as_model

        return as_model(self)

    # What scikit-learn's tools need besides `predict`, `predict_proba` and `classes_`, without importing it.

    def fit(self, texts: Iterable[Any], labels: Iterable[Any]) -> Self:
        """`calibrate` with its defaults; the model's weights stay as they are."""
        return self.calibrate(texts, labels)

    def score(self, texts: Iterable[Any], labels: Iterable[Any], sample_weight: Iterable[float] | None = None) -> float:
        """Accuracy on labelled texts."""
        predicted = self.predict(texts, check_shift=False).predicted
        right = predicted == class_indices(labels, self.class_names)
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of `__init__` by name."""
        return {"model": self.model, "tokenizer": self.tokenizer, "config": self.config, **self.options}

    def set_params(self, **parameters: Any) -> Self:
        """Replace arguments of `__init__`. A calibration that no longer fits them is an error at the next `predict`."""
        allowed = self.get_params()
        for name, value in parameters.items():
            if name not in allowed:
                raise ConfigurationError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(allowed)}."
                    f"{nearest(name, allowed)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """A new, uncalibrated classifier over the same model: its weights are never changed, so they are not copied."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        """The model was fine-tuned before; `calibrate` refines what can already be predicted."""
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )


class UncertaintyLabeler(Product[LabelPredictions]):
    """A classifier of many labels with calibrated probabilities, and a rule for which labels to report.

    It is for models with `problem_type="multi_label_classification"`. `config` is a UATConfig, or the spelling of any
    method; by default 'distilled' with a teacher of ten passes with masks of their own for each text, which give the
    variances of all labels at once: once it is calibrated they are read off one plain pass, or left out where they
    cannot be. Texts longer than `max_length` tokens are cut, and counted; with `windows` they are read in overlapping
    windows and the logits averaged.
    """

    kinds = (LABELS,)
    asks = AskedOfAll
    default_method = "distilled:of=fast,samples=10,per_input=true"

    def calibrate(self, texts: Iterable[Any], labels: Any, **asked: Unpack[AskedOfAll]) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        `labels` are for each text a list of names (or columns), which may be empty, or all of them a matrix of 0 and 1,
        (texts, labels). A rule to report labels by comes from `target_risk` (at most this share of the reported labels
        is wrong, with the stated `confidence`) or `target_errors` (on average at most so many wrong labels are reported
        a text). Texts are the unit: the promise holds whatever the labels of one text have to do with each
        other. The `score` that ranks labels is by default the log-odds of the model, so that all texts decide; with
        'confidence' a third of them fits the calibrator and the others decide.

        `reference` are unlabelled texts of the task: they tell which texts are in scope, and teach the method. With
        `menu`, `calibration_.menu` lists which shares of wrong labels can be promised. `false_alarm`, `second_look`,
        `seed` and `report` are those of `UncertaintyClassifier.calibrate`.
        """
        return self._calibrate(texts, labels, asked)

    def predict_proba(self, texts: Iterable[Any]) -> Floats:
        """Probabilities (texts, labels), calibrated where the labeler is; columns as in `class_names`."""
        probabilities: Floats = self.predict(texts, check_shift=False).probabilities
        return probabilities

    def explain(self, text: Text, label: str | int | None = None) -> "AnswerExplanation":
        """Where the uncertainty about one label of a text comes from: words and layers, to first order.

        By default the label that is least sure. It takes the prediction's passes, one forward and one backward pass.
        """
        explanation: AnswerExplanation = self._explain(text, label)
        return explanation


class UncertaintyTagger(Product[EntityPredictions]):
    """A token classifier with the confidence of each entity as a whole, and a rule for which entities to report.

    `config` is a UATConfig, or the spelling of any method; by default 'distilled': one plain pass, once it is
    calibrated with the variance of each entity read off it. Texts longer than `max_length` tokens (by default what the
    model takes) are read in overlapping windows, and each entity is found once; with `windows=False` they are cut.
    `aggregation_strategy` joins tokens to words and entities as transformers' pipeline does: 'simple', 'first',
    'average' or 'max'. By default it is 'first', and for texts that are given as words 'words', where the first token
    of each word decides.
    """

    kinds = (ENTITIES,)
    asks = AskedOfEntities

    def __init__(
        self,
        model: Any,
        tokenizer: "Tokenizer",
        config: Config = None,
        *,
        windows: bool = True,
        aggregation_strategy: str | None = None,
        **options: Any,
    ) -> None:
        if aggregation_strategy is not None:
            check_choice("aggregation_strategy", aggregation_strategy, STRATEGIES)
        self.aggregation_strategy = aggregation_strategy
        super().__init__(model, tokenizer, config, windows=windows, **options)

    def calibrate(
        self, texts: Iterable[Any], entities: Iterable[Iterable[Any]] | None = None, **asked: Unpack[AskedOfEntities]
    ) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        `entities` are for each text its gold entities, as (start, end, label) in characters; without them `texts` are
        rows: {"tokens": [...], "tags": [...]} in IOB2, or {"text": ..., "entities": [{"start", "end", "label"}, ...]}.
        A rule to report entities by comes from `target_risk`: at most this share of the reported entities is wrong,
        span or type, with the stated `confidence`; or from `target_errors`: at most so many wrong ones are reported a
        text, on average. With `target_recall` a person is asked to look at texts where
        entities may be missed, and in the others at least this share of the gold entities is found. Texts are the unit:
        the promises hold whatever the entities of one text have to do with each other. The `score` that ranks entities
        is by default the model's log-odds that it is right as a whole, so that all texts decide; with 'confidence' a
        third of them fits the calibrator and the others decide.

        `reference` are unlabelled texts of the task: they tell which texts are in scope. With `menu`,
        `calibration_.menu` lists which shares of wrong entities can be promised. `false_alarm`, `second_look`, `seed`
        and `report` are those of `UncertaintyClassifier.calibrate`.
        """
        if entities is None:
            texts, entities = texts_and_entities(texts, self.class_names)
        return self._calibrate(texts, entities, asked)

    def explain(self, text: Any, entity: int | None = None) -> "AnswerExplanation":
        """Where the uncertainty about one entity of a text comes from: words and layers, to first order.

        `entity` is its number among those found, from 0; by default the least sure one. It is about the weakest word of
        the entity, and takes the prediction's passes, one forward and one backward pass.
        """
        explanation: AnswerExplanation = self._explain(text, entity)
        return explanation


AnyProduct = UncertaintyClassifier | UncertaintyLabeler | UncertaintyTagger
"""Each of them is a `Product`; they differ in what calibrating is asked for and in what predictions hold."""

PRODUCTS: tuple[type[AnyProduct], ...] = (UncertaintyClassifier, UncertaintyLabeler, UncertaintyTagger)
"""Each says in `kinds` which models it is for."""


def load(
    name: str | Path,
    *,
    device: str | None = None,
    calibrated: bool = True,
    stored: Stored | None = None,
    base: str | Path | None = None,
    prompt: LabelPrompt | None = None,
    **options: Any,
) -> AnyProduct:
    """The classifier in a directory or under a hub id, as the class that its model is for.

    `options` are the others of `from_pretrained`: method, seed, max_length, windows, indices, precision. `stored` is
    what was saved beside the model, where that was read before. `base` is that of an adapter; with a `prompt` a causal
    language model is a classifier.
    """
    files = open_files(name, device=device, calibrated=calibrated, stored=stored, base=base, prompt=prompt)
    return _product_of(files.runtime.kind).of_files(files, **options)


def product_class(name: str | Path) -> type[AnyProduct]:
    """The class that a model is for, by its configuration alone."""
    if is_exported(name, SCORES_MANIFEST):
        return _product_of(load_scores(name).kind)
    return _product_of(read_manifest(name).kind if is_exported(name) else model_files().answering_of(name))


def _product_of(kind: Kind) -> type[AnyProduct]:
    return next(product for product in PRODUCTS if KINDS[kind] in product.kinds)
