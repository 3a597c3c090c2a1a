"""The classifier as a model that transformers' text-classification pipeline takes."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from uatlite.backbone.checks import unwrap
from uatlite.calibration import Calibrator
from uatlite.classifier.calibration import predictive_of
from uatlite.classifier.outputs import Outputs
from uatlite.errors import ModelError
from uatlite.methods import Method

if TYPE_CHECKING:
    from uatlite.classifier.classifier import UncertaintyClassifier


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
        passes = self.method.run(self.inner, {"input_ids": input_ids, "attention_mask": mask, **inputs})
        variance, counts = (
            None if v is None else v.detach().cpu().numpy() for v in (passes.margin_variance, passes.counts)
        )
        outputs = Outputs(
            logits=passes.logits.cpu().numpy().astype(np.float64),
            given_variance=None if variance is None else variance.astype(np.float64),
            representations=None,
            windows=np.ones(len(input_ids), dtype=np.int64),
            truncated_texts=0,
            truncated_tokens=0,
            counts=counts,
        )
        probabilities = predictive_of(outputs, self.calibrator).probabilities
        logits = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
        return SequenceClassifierOutput(logits=torch.from_numpy(logits).float().to(input_ids.device))

    def save_pretrained(self, *args: Any, **options: Any) -> None:
        """Refused: the directory would hold neither the plain model nor the calibration."""
        raise ModelError(
            "this is a view of a classifier for a pipeline; save the classifier: clf.save_pretrained(directory)."
        )


def as_model(classifier: "UncertaintyClassifier") -> PreTrainedModel:
    """The classifier's model under its method and calibrator, for `pipeline("text-classification", model=...)`."""
    model = unwrap(classifier.model)
    calibration = classifier.checked_calibration()
    # The pipeline looks the class's *name* up in its table of sequence classifiers and complains where it is not there.
    kind = type(type(model).__name__, (CalibratedModel,), {})
    calibrated: PreTrainedModel = kind(
        model, classifier.method, None if calibration is None else calibration.calibrator
    )
    calibrated.training = False  # eval() would reach into the user's model
    return calibrated
