"""The classifier as a model for transformers' pipeline."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from uatlite.classifier.runtime import TorchRuntime, outputs_of
from uatlite.errors import ModelError
from uatlite.methods.method import Method
from uatlite.model.architectures import unwrap
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import probabilities

if TYPE_CHECKING:
    from uatlite.classifier.classifiers import UncertaintyClassifier


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
        encoded = {"input_ids": input_ids, "attention_mask": mask, **inputs}
        outputs = outputs_of(self.method.run(self.inner, encoded))
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
    if not isinstance(classifier.runtime, TorchRuntime):
        raise ModelError("a pipeline takes a PyTorch model, and this one is exported; use the checkpoint.")
    model = unwrap(classifier.runtime.model)
    predictor = classifier.predictor()
    # The pipeline looks up the *name* of the class in its table of sequence classifiers and warns where it is missing.
    kind = type(type(model).__name__, (CalibratedModel,), {})
    calibrated: PreTrainedModel = kind(model, predictor.settings.method, predictor.calibrator)
    calibrated.training = False  # eval() would reach into the user's model
    return calibrated
