"""The last layer's Laplace approximation (Daxberger et al., 2021) with Kronecker factors, from `laplace-torch`.

The posterior of the last layer's weights is a Gaussian around the trained ones, with the precision B ⊗ A + δI: B of the
classes, A of the features, δ the prior's precision. In the eigenbases of the two, the logits of features x have the
covariance

    Q_B diag_i(Σ_j (Q_Aᵀx)_j² / (b_i·a_j + δ)) Q_Bᵀ + that of the bias,   logits = mean / sqrt(1 + π/8·variance).

Only fitting needs the package. What it found is kept as plain tensors and read without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Laplace(TrainedMethod):
    """One pass; the variance of the logits widens them and is known without sampling."""

    key: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "a Gaussian around the last layer's weights, by laplace-torch; one pass"
    stochastic: ClassVar[bool] = False
    passes: ClassVar[int] = 1
    knows_variance: ClassVar[bool] = True

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes) of the probit approximation, and the margin's variance (batch,)."""
        import torch

        from uatlite.backbone.copies import features, last_layer, without_last_layer
        from uatlite.backbone.method_weights import weights_for
        from uatlite.heads.mean_field import mean_field_logits

        weights = weights_for(model, self.key)
        body = weights.made(model, self.key, lambda: without_last_layer(model))
        with torch.inference_mode():
            read = features(body, encoded)
            mean = last_layer(model)[1](read)
            covariance = logit_covariance(weights.tensors, read)
            logits = mean_field_logits(mean, covariance.diagonal(dim1=-2, dim2=-1))
            return Passes(logits[None], margin_variance(mean, covariance))


def logit_covariance(tensors: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The covariance of the logits of features (batch, units): (batch, classes, classes)."""
    classes, prior = tensors["class_vectors"], tensors["prior_precision"]
    squares = (features @ tensors["feature_vectors"]).square()
    precision = tensors["class_values"][:, None] * tensors["feature_values"] + prior[0]
    spread = squares @ (1 / precision).T
    covariance = (classes * spread[:, None, :]) @ classes.T
    if "bias_vectors" in tensors:
        bias = tensors["bias_vectors"]
        covariance = covariance + (bias / (tensors["bias_values"] + prior[1])) @ bias.T
    return covariance


def margin_variance(mean: Tensor, covariance: Tensor) -> Tensor:
    """The variance (batch,) of the difference of the two highest logits: Σ_11 + Σ_22 - 2Σ_12."""
    import torch

    top = mean.topk(2, dim=-1).indices
    rows = torch.arange(len(mean), device=mean.device)
    first, second = top.unbind(dim=-1)
    own = covariance[rows, first, first] + covariance[rows, second, second]
    return (own - 2 * covariance[rows, first, second]).clamp_min(0)


LAPLACE = Laplace()
