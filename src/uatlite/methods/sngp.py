"""SNGP (Liu et al., 2020): a Gaussian-process head on features whose distances mean something; one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.heads import GaussianProcessHead


@dataclass(frozen=True)
class Sngp(TrainedMethod):
    """Mean-field logits f/sqrt(1 + π/8·var), and the posterior variance of the margin of f.

    The variance grows with the distance from the training texts. The logits have shrunk by it already; the calibrator
    `input-temperature` learns whether they should shrink by more.
    """

    key: ClassVar[str] = "sngp"
    summary: ClassVar[str] = "spectral-normalised pooler, Gaussian-process head, mean-field logits; one pass"
    stochastic: ClassVar[bool] = False
    passes: ClassVar[int] = 1
    knows_variance: ClassVar[bool] = True

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (1, batch, classes) and the variance of the margin (batch,)."""
        import torch

        from uatlite.backbone.copies import features, without_last_layer
        from uatlite.backbone.method_weights import weights_for
        from uatlite.heads import GaussianProcessHead

        weights = weights_for(model, self.key)
        body, head = weights.made(
            model, self.key, lambda: (without_last_layer(model), GaussianProcessHead.of(weights.tensors))
        )
        with torch.inference_mode():
            x = features(body, encoded)
            logits = head(x)
            if x.ndim == 3:  # one logit for each choice
                logits = logits.squeeze(-1)
                return Passes(logits[None], _between_choices(head, x, logits))
            return Passes(logits[None], head.variance(x))


def _between_choices(head: GaussianProcessHead, x: Tensor, logits: Tensor) -> Tensor:
    """The variance of the best choice's f minus the next one's, (batch,): Σ_aa + Σ_bb − 2Σ_ab."""
    best = logits.topk(2, dim=-1).indices
    pair = x.gather(1, best[..., None].expand(-1, -1, x.shape[-1]))
    among = head.covariances(pair)
    variance: Tensor = among[:, 0, 0] + among[:, 1, 1] - 2 * among[:, 0, 1]
    return variance.clamp_min(0)


SNGP = Sngp()
