"""Methods that change the last layer only: Laplace, SNGP and a variational last layer. One pass of the encoder.

`laplace` (Daxberger et al., 2021): the posterior of the last layer's weights is a Gaussian around the trained ones,
with Kronecker factors from `laplace-torch` and the precision B ⊗ A + δI: B of the classes, A of the features, δ that
of the prior. In the eigenbases of the two, the logits of features x have the covariance

    Q_B diag_i(Σ_j (Q_Aᵀx)_j² / (b_i·a_j + δ)) Q_Bᵀ + that of the bias,   logits = mean / sqrt(1 + π/8·variance).

Only fitting needs that package; the result is stored as plain tensors.

`sngp` (Liu et al., 2020): a Gaussian-process head on features whose distances are preserved.

`vi-last-layer`: variational inference; the encoder runs once and the layer is drawn many times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod, at_least
from uatlite.model.architectures import check_one_answer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.model.heads import GaussianProcessHead, VariationalLinear

REFUSED = "Methods of the last layer are for one class a text; use 'distilled', 'uat' or 'ensemble'."


@dataclass(frozen=True)
class Laplace(TrainedMethod):
    """One pass; the variance of the logits widens them and is known without sampling."""

    key: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "a Gaussian around the last layer's weights, by laplace-torch; one pass"
    knows_variance: ClassVar[bool] = True

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes) of the probit approximation, and the margin's variance (batch,)."""
        import torch

        from uatlite.model.heads import mean_field_logits
        from uatlite.model.weights import features, last_layer, weights_for, without_last_layer

        check_one_answer(model, REFUSED)
        weights = weights_for(model, self.key)
        body = weights.made(model, self.key, lambda: without_last_layer(model))
        with torch.inference_mode():
            read = features(body, encoded)
            mean = last_layer(model)[1](read)
            covariance = logit_covariance(weights.tensors, read)
            logits = mean_field_logits(mean, covariance.diagonal(dim1=-2, dim2=-1))
            return Passes(logits[None], margin_variance(mean, covariance), representation=_by_text(read))


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


def _by_text(features: Tensor) -> Tensor:
    """What the last layer reads of each text, (batch, units), averaged over the choices of a question."""
    return features if features.ndim == 2 else features.mean(dim=1)


def margin_variance(mean: Tensor, covariance: Tensor) -> Tensor:
    """The variance (batch,) of the difference of the two highest logits: Σ_11 + Σ_22 - 2Σ_12."""
    import torch

    top = mean.topk(2, dim=-1).indices
    rows = torch.arange(len(mean), device=mean.device)
    first, second = top.unbind(dim=-1)
    own = covariance[rows, first, first] + covariance[rows, second, second]
    return (own - 2 * covariance[rows, first, second]).clamp_min(0)


LAPLACE = Laplace()


@dataclass(frozen=True)
class Sngp(TrainedMethod):
    """Mean-field logits f/sqrt(1 + π/8·var), and the posterior variance of the margin of f.

    The variance grows with the distance from the training texts. The logits have shrunk by it already; the calibrator
    `input-temperature` learns whether they should shrink by more.
    """

    key: ClassVar[str] = "sngp"
    summary: ClassVar[str] = "spectral-normalised pooler, Gaussian-process head, mean-field logits; one pass"
    knows_variance: ClassVar[bool] = True

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes) and the variance of the margin (batch,)."""
        import torch

        from uatlite.model.heads import GaussianProcessHead
        from uatlite.model.weights import features, weights_for, without_last_layer

        check_one_answer(model, REFUSED)
        weights = weights_for(model, self.key)
        body, head = weights.made(
            model, self.key, lambda: (without_last_layer(model), GaussianProcessHead.of(weights.tensors))
        )
        with torch.inference_mode():
            x = features(body, encoded)
            logits = head(x)
            if x.ndim == 3:  # one logit for each choice
                logits = logits.squeeze(-1)
                return Passes(logits[None], _between_choices(head, x, logits), representation=_by_text(x))
            return Passes(logits[None], head.variance(x), representation=x)


def _between_choices(head: GaussianProcessHead, x: Tensor, logits: Tensor) -> Tensor:
    """The variance of the best choice's f minus the next one's, (batch,): Σ_aa + Σ_bb − 2Σ_ab."""
    best = logits.topk(2, dim=-1).indices
    pair = x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))
    among = head.covariances(pair)
    variance: Tensor = among[:, 0, 0] + among[:, 1, 1] - 2 * among[:, 0, 1]
    return variance.clamp_min(0)


SNGP = Sngp()


@dataclass(frozen=True)
class VariationalLastLayer(TrainedMethod):
    """`samples` draws of the last layer from its Gaussian posterior; each serves all texts.

    A draw is a matrix product with one layer, so many cost little more than one.
    """

    key: ClassVar[str] = "vi-last-layer"
    summary: ClassVar[str] = "variational Gaussian last layer: one pass of the encoder, the layer sampled"
    stochastic: ClassVar[bool] = True

    samples: int = 32

    def __post_init__(self) -> None:
        at_least(self, samples=1)

    @property
    def passes(self) -> int:
        return self.samples

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes)."""
        import torch

        from uatlite.model.weights import features, weights_for, without_last_layer

        check_one_answer(model, REFUSED)
        weights = weights_for(model, self.key)
        body, layer = weights.made(
            model, self.key, lambda: (without_last_layer(model), _posterior(model, weights.tensors))
        )
        with torch.inference_mode():
            x = features(body, encoded)
            logits = layer.sample(x.flatten(0, -2), self.samples, self.seed)
            return Passes(logits.reshape(self.samples, len(x), -1), representation=_by_text(x))


def _posterior(model: PreTrainedModel, log_scales: Mapping[str, Tensor]) -> VariationalLinear:
    """The model's last layer, which has the means, with the scales beside them."""
    from uatlite.model.heads import VariationalLinear
    from uatlite.model.weights import last_layer

    layer = VariationalLinear.around(last_layer(model)[1])
    layer.load_state_dict(log_scales, strict=False)
    return layer.eval()


VI_LAST_LAYER = VariationalLastLayer()
