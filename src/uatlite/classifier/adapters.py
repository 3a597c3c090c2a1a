"""The classifier where other libraries expect one: scikit-learn's tools and transformers' pipeline."""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from uatlite.classifier.run import gather, run_batch
from uatlite.errors import ConfigurationError, ModelError, nearest
from uatlite.methods.method import Method
from uatlite.model.architectures import unwrap
from uatlite.model.tokens import Batch
from uatlite.text.labels import class_indices
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import probabilities

if TYPE_CHECKING:
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.classifier.predictions import Predictions


PARAMETERS = ("model", "tokenizer", "config", "seed", "max_length", "windows", "indices")
"""What `__init__` takes and stores as it is."""


class ScikitLearnMixin:
    """What scikit-learn's tools need besides `predict`, `predict_proba` and `classes_`, without importing it."""

    if TYPE_CHECKING:

        @property
        def class_names(self) -> tuple[str, ...]: ...
        def calibrate(self, texts: Iterable[Any], labels: Iterable[Any]) -> Self: ...
        def predict(self, texts: Iterable[Any], *, check_shift: bool = True) -> Predictions: ...

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
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **parameters: Any) -> Self:
        """Replace arguments of `__init__`. A calibration that no longer fits them is an error at the next `predict`."""
        for name, value in parameters.items():
            if name not in PARAMETERS:
                raise ConfigurationError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(PARAMETERS)}."
                    f"{nearest(name, PARAMETERS)}"
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


class CalibratedModel(PreTrainedModel):  # type: ignore[misc]
    """A model whose logits are the logarithms of calibrated probabilities, so that a softmax gives these back."""

    def __init__(self, model: PreTrainedModel, method: Method, calibrator: Calibrator | None) -> None:
        config = copy.deepcopy(model.config)  # what the base class writes into it stays out of the user's model
        config._attn_implementation = "eager"  # the outer model attends to nothing; the inner one keeps its own
        super().__init__(config)
        self.inner = model
        self.method = method
        self.calibrator = calibrator

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Tokens (batch, tokens) to logits (batch, classes)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        batch = Batch(tuple(range(len(input_ids))), {"input_ids": input_ids, "attention_mask": mask, **inputs})
        outputs = gather([run_batch(self.inner, self.method, batch.inputs)], [batch])
        calibrated = probabilities(outputs, self.calibrator)
        logits = np.log(np.maximum(calibrated, np.finfo(np.float32).tiny))
        return SequenceClassifierOutput(logits=torch.from_numpy(logits).float().to(input_ids.device))

    def save_pretrained(self, *args: Any, **options: Any) -> None:
        """Refused: the directory would hold neither the plain model nor the calibration."""
        raise ModelError(
            "this is a view of a classifier for a pipeline; save the classifier: clf.save_pretrained(directory)."
        )


def as_model(classifier: "UncertaintyClassifier") -> PreTrainedModel:
    """The classifier's model under its method and calibrator, for `pipeline("text-classification", model=...)`."""
    model = unwrap(classifier.model)
    predictor = classifier.predictor()
    # The pipeline looks up the *name* of the class in its table of sequence classifiers and warns where it is missing.
    kind = type(type(model).__name__, (CalibratedModel,), {})
    calibrated: PreTrainedModel = kind(model, predictor.settings.method, predictor.calibrator)
    calibrated.training = False  # eval() would reach into the user's model
    return calibrated
