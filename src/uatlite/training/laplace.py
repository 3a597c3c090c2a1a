"""The last layer's Laplace approximation, fitted after training by `laplace-torch`; the one importer of it."""

import copy
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from transformers import PreTrainedModel

from uatlite.backbone.copies import features, last_layer, without_last_layer
from uatlite.backbone.method_weights import MethodWeights, attach
from uatlite.errors import ConfigurationError, MissingDependency
from uatlite.training.fitting import Batches, Fitting

BATCH = 256


@dataclass(frozen=True)
class LaplaceFitting(Fitting):
    """The plain fine-tuning, then the curvature of its loss in the last layer.

    The prior's precision is the one of the highest marginal likelihood on the training rows, so no others are needed.
    """

    key: ClassVar[str] = "laplace"
    after_training: ClassVar[bool] = True

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        laplace_torch()  # if it is missing, then before the training and not after it
        if type(model).__name__.endswith("ForMultipleChoice"):
            raise ConfigurationError(
                "laplace: laplace-torch has no likelihood for multiple choice; use ensemble, swag, sngp or "
                "vi-last-layer there."
            )

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        body = without_last_layer(model)
        read, labels = [], []
        with torch.inference_mode():
            for batch in batches():
                read.append(features(body, batch).cpu())
                labels.append(batch["labels"])
        tensors = last_layer_posterior(last_layer(model)[1], torch.cat(read).clone(), torch.cat(labels))
        attach(model, MethodWeights(self.key, tensors))


def last_layer_posterior(layer: torch.nn.Linear, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What `uatlite.methods.laplace` reads: the eigenbases of the Kronecker factors, and the prior's precision."""
    fitted = fit_laplace(layer, features, labels)
    precision = fitted.posterior_precision
    (classes, units), *bias = precision.eigenvectors
    (class_values, unit_values), *bias_values = precision.eigenvalues
    tensors = {
        "class_vectors": classes,
        "feature_vectors": units,
        "class_values": class_values,
        "feature_values": unit_values,
        "prior_precision": precision.deltas.expand(1 + len(bias)),
    }
    if bias:
        tensors |= {"bias_vectors": bias[0][0], "bias_values": bias_values[0][0]}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def fit_laplace(layer: torch.nn.Linear, features: Tensor, labels: Tensor) -> Any:
    """laplace-torch's own object for the last layer as a model of features (rows, units)."""
    rows = DataLoader(TensorDataset(features, labels), batch_size=BATCH)
    alone = copy.deepcopy(layer).cpu().requires_grad_(True)
    fitted = laplace_torch().Laplace(alone, "classification", subset_of_weights="all", hessian_structure="kron")
    fitted.fit(rows)
    with warnings.catch_warnings():  # about a link that marginal likelihood does not use
        warnings.filterwarnings("ignore", message="By default `link_approx`", category=UserWarning)
        fitted.optimize_prior_precision(method="marglik")
    return fitted


def laplace_torch() -> Any:
    try:
        import laplace
    except ImportError as error:
        raise MissingDependency("laplace-torch", "laplace") from error
    return laplace
