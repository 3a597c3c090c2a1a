"""Methods with weights of their own: ensembles, SWAG, Laplace, SNGP and a variational last layer.

Their settings are fields; their weights come with the model that `uatlite train --method` made.

Deep ensembles (Lakshminarayanan et al., 2017) and snapshot ensembles (Huang et al., 2017) run one pass for each member.
The first member is the model itself. The others are its method weights `members` (members - 1, parameters), each all
parameters of a model in one vector.

SWA-Gaussian (Maddox et al., 2019) draws weights from a Gaussian around the average θ of the last training steps, which
the model itself holds. Its method weights are the variances s² (parameters,) and the last K deviations d_k
(K, parameters) from the running average. A draw is

    θ + sqrt(scale)·(s·z / √2 + Σ_k d_k·y_k / sqrt(2(K - 1))),   z, y ~ N(0, I).

The others change the last layer only, and run one pass of the encoder: Laplace (Daxberger et al., 2021), a
Gaussian-process head on features whose distances are preserved (SNGP, Liu et al., 2020), and a variational last layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from uatlite.codec import NOT_STORED
from uatlite.errors import ConfigurationError, ModelError
from uatlite.methods.method import Method, Passes
from uatlite.methods.sampling import BASE
from uatlite.model.architectures import check_one_answer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates

REFUSED = "Methods of the last layer are for one class a text; use 'distilled', 'uat' or 'ensemble'."


@dataclass(frozen=True)
class TrainedMethod(Method):
    """A method that runs on models which `uatlite train --method KEY` made; every field but the seed is a setting."""

    trained: ClassVar[bool] = True
    lowest: ClassVar[Mapping[str, float]] = {}
    """what settings are at least"""

    seed: int = field(default=0, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        for name, low in self.lowest.items():
            if getattr(self, name) < low:
                raise ConfigurationError(f"{self.key}: {name}={getattr(self, name)} is not {low} or more.")

    def seeded(self, seed: int) -> Self:
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Ensemble(TrainedMethod):
    """Models of one architecture that were fine-tuned independently."""

    key: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "models fine-tuned independently of each other, one pass of each"

    lowest: ClassVar[Mapping[str, float]] = {"members": 1}

    members: int = 5

    @property
    def passes(self) -> int:
        return self.members

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """Logits (members, batch, classes) of the first `members` members."""
        import torch

        from uatlite.model.weights import weights_for, with_parameters

        weights = weights_for(model, self.key)
        vectors = weights.tensors["members"]
        if self.members > 1 + len(vectors):
            raise ModelError(
                f"{self.name} asks for {self.members} members and this model has {1 + len(vectors)}: "
                f"ask for {self.key}:members={1 + len(vectors)}, or train more of them."
            )
        others = weights.made(model, self.key, lambda: [with_parameters(model, vector) for vector in vectors])
        members = [model, *others[: self.members - 1]]
        passes = [BASE.run(member, encoded) for member in members]
        return Passes(torch.cat([member.logits for member in passes]), representation=passes[0].representation)


@dataclass(frozen=True)
class Snapshot(Ensemble):
    """The weights at the ends of the cycles of one training."""

    key: ClassVar[str] = "snapshot"
    summary: ClassVar[str] = "an ensemble from one training with a cyclic learning rate, one pass for each cycle"


@dataclass(frozen=True)
class Swag(TrainedMethod):
    """`samples` draws of all weights, the same for every text; they are kept until another seed is asked for."""

    key: ClassVar[str] = "swag"
    summary: ClassVar[str] = "weights drawn from a Gaussian around the average of the last training steps"

    lowest: ClassVar[Mapping[str, float]] = {"samples": 1, "scale": 0.0}

    samples: int = 10
    scale: float = 1.0

    @property
    def stochastic(self) -> bool:
        return self.scale > 0

    @property
    def passes(self) -> int:
        return self.samples

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """Logits (samples, batch, classes)."""
        import torch

        from uatlite.model.heads import draw_weights
        from uatlite.model.weights import flat_parameters, weights_for, with_parameters

        weights = weights_for(model, self.key)

        def draw() -> list[PreTrainedModel]:
            mean, spread = flat_parameters(model), weights.tensors
            drawn = (draw_weights(mean, spread, self.seed, number, self.scale) for number in range(self.samples))
            return [with_parameters(model, vector) for vector in drawn]

        passes = [BASE.run(drawn, encoded) for drawn in weights.made(model, self, draw)]
        read = [drawn.representation for drawn in passes if drawn.representation is not None]
        mean = torch.stack(read).mean(dim=0) if len(read) == len(passes) else None
        return Passes(torch.cat([drawn.logits for drawn in passes]), representation=mean)


@dataclass(frozen=True)
class LastLayer(TrainedMethod):
    """A method that changes the last layer only: one pass of the encoder."""

    @abstractmethod
    def layer(self, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> Any:
        """What takes the place of the last layer, by the weights of the method; it is kept as long as these."""

    @abstractmethod
    def read(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (passes, batch, classes) and the margin's variance (batch,) of features (batch, units), or of those
        of choices (batch, choices, units)."""

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """The logits, the variance of the margin where it is known, and what the last layer reads."""
        import torch

        from uatlite.model.weights import features, weights_for, without_last_layer

        check_one_answer(model, REFUSED)
        weights = weights_for(model, self.key)
        body, layer = weights.made(
            model, self.key, lambda: (without_last_layer(model), self.layer(model, weights.tensors))
        )
        with torch.inference_mode():
            x = features(body, encoded)
            logits, variance = self.read(layer, x)
            of_text = x if x.ndim == 2 else x.mean(dim=1)  # averaged over the choices of a question
            return Passes(logits, None if variance is None else variance[:, None], representation=of_text)


@dataclass(frozen=True)
class Laplace(LastLayer):
    """One pass; the variance of the logits widens them and is known without sampling."""

    key: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "a Gaussian around the last layer's weights, by laplace-torch; one pass"
    knows_variance: ClassVar[bool] = True

    def layer(self, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> Any:
        from uatlite.model.weights import last_layer

        return last_layer(model)[1], tensors

    def read(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits of the probit approximation, and the margin's variance Σ_11 + Σ_22 - 2Σ_12."""
        from uatlite.model.heads import mean_field_logits

        mean, covariance = layer[0](x), logit_covariance(layer[1], x)
        logits = mean_field_logits(mean, covariance.diagonal(dim1=-2, dim2=-1))
        top = mean.topk(2, dim=-1).indices
        pair = covariance.gather(1, top[:, :, None].expand(-1, -1, covariance.shape[-1]))
        return logits[None], _variance_between(pair.gather(2, top[:, None].expand(-1, 2, -1)))


def _variance_between(pair: Tensor) -> Tensor:
    """The variance (batch,) of the difference of two numbers, by their covariance (batch, 2, 2)."""
    variance: Tensor = pair[:, 0, 0] + pair[:, 1, 1] - 2 * pair[:, 0, 1]
    return variance.clamp_min(0)


def logit_covariance(tensors: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The covariance of the logits of features x (batch, units): (batch, classes, classes).

    The weights are Gaussian with the precision B ⊗ A + δI: B of the classes, A of the features, δ that of the prior. In
    the eigenbases of the two it is Q_B diag_i(Σ_j (Q_Aᵀx)_j² / (b_i·a_j + δ)) Q_Bᵀ + that of the bias.
    """
    classes, prior = tensors["class_vectors"], tensors["prior_precision"]
    squares = (features @ tensors["feature_vectors"]).square()
    precision = tensors["class_values"][:, None] * tensors["feature_values"] + prior[0]
    spread = squares @ (1 / precision).T
    covariance = (classes * spread[:, None, :]) @ classes.T
    if "bias_vectors" in tensors:
        bias = tensors["bias_vectors"]
        covariance = covariance + (bias / (tensors["bias_values"] + prior[1])) @ bias.T
    return covariance


@dataclass(frozen=True)
class Sngp(LastLayer):
    """Mean-field logits f/sqrt(1 + π/8·var), and the posterior variance of the margin of f.

    The variance grows with the distance from the training texts. The logits have shrunk by it already; the calibrator
    `input-temperature` learns whether they should shrink by more.
    """

    key: ClassVar[str] = "sngp"
    summary: ClassVar[str] = "spectral-normalised pooler, Gaussian-process head, mean-field logits; one pass"
    knows_variance: ClassVar[bool] = True

    def layer(self, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> Any:
        from uatlite.model.heads import GaussianProcessHead

        return GaussianProcessHead.of(tensors)

    def read(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits and the margin's variance; of choices that of the best one's f minus the next one's."""
        logits = layer(x)
        if x.ndim == 2:
            return logits[None], layer.variance(x)
        logits = logits.squeeze(-1)  # one logit for each choice
        best = logits.topk(2, dim=-1).indices
        pair = x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))
        return logits[None], _variance_between(layer.covariances(pair))


@dataclass(frozen=True)
class VariationalLastLayer(LastLayer):
    """`samples` draws of the last layer from its Gaussian posterior; each serves all texts.

    A draw is a matrix product with one layer, so many cost little more than one.
    """

    key: ClassVar[str] = "vi-last-layer"
    summary: ClassVar[str] = "variational Gaussian last layer: one pass of the encoder, the layer sampled"
    stochastic: ClassVar[bool] = True
    lowest: ClassVar[Mapping[str, float]] = {"samples": 1}

    samples: int = 32

    @property
    def passes(self) -> int:
        return self.samples

    def layer(self, model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> Any:
        """The model's last layer, which has the means, with the scales beside them."""
        from uatlite.model.heads import VariationalLinear
        from uatlite.model.weights import last_layer

        layer = VariationalLinear.around(last_layer(model)[1])
        layer.load_state_dict(tensors, strict=False)
        return layer.eval()

    def read(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = layer.sample(x.flatten(0, -2), self.samples, self.seed)
        return logits.reshape(self.samples, len(x), -1), None
