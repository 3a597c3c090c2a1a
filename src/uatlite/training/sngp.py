"""Training SNGP: a Gaussian-process head, a bound on the map before it, and at the end the posterior covariance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.backbone.checks import architecture_of
from uatlite.backbone.copies import AbsentHead, features, last_layer, replace_module, without_last_layer
from uatlite.backbone.method_weights import MethodWeights, attach
from uatlite.backbone.view import layers_of
from uatlite.errors import ConfigurationError
from uatlite.heads import GaussianProcessHead, bound_spectral_norm
from uatlite.training.fitting import Batches, Fitting

# Where the families keep the dense layer between the encoder and the last layer; decoders have none.
POOLERS = (
    "classifier.dense",
    "pre_classifier",
    "sequence_summary.summary",
    "head.dense",
    "pooler.dense",
    "{base}.pooler.dense",
    "{base}.pooler",
)


@dataclass(frozen=True)
class SngpFitting(Fitting):
    """The settings of the head, and the `bound` on spectral norms: the pooler's, with `encoder` those of all layers.

    The prior has to allow the margins that trained classifiers have, about 5, and its variance is their square. A bound
    below about 1 keeps a residual layer from folding distances, but a pretrained encoder was not made for one.
    """

    key: ClassVar[str] = "sngp"

    features: int = 1024
    length_scale: float = 1.0
    prior_variance: float = 30.0
    bound: float = 0.95
    encoder: bool = False
    head_rate: float = 0.005
    """learning rate of the head: its coefficients begin at 0, and at the rate of pretrained weights hardly move"""

    def __post_init__(self) -> None:
        for name in ("features", "length_scale", "prior_variance", "bound", "head_rate"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"sngp: {name}={getattr(self, name)} is not above 0.")

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        name, layer = last_layer(model)
        head = GaussianProcessHead(
            layer.in_features,
            layer.out_features,
            features=self.features,
            length_scale=self.length_scale,
            prior_variance=self.prior_variance,
        )
        head.draw(seed)
        replace_module(model, name, head.to(layer.weight))

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        head = next(module for module in model.modules() if isinstance(module, GaussianProcessHead))
        return [{"params": list(head.parameters()), "lr": self.head_rate, "weight_decay": 0.0}]

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        bound_spectral_norm(bounded_weights(model, encoder=self.encoder), self.bound)

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        name, head = next((n, m) for n, m in model.named_modules() if isinstance(m, GaussianProcessHead))
        replace_module(model, name, AbsentHead(self.key))
        condition(head, without_last_layer(model), batches)
        attach(model, MethodWeights(self.key, head.state_dict(), headless=True))


def bounded_weights(model: PreTrainedModel, *, encoder: bool = False) -> Iterator[Tensor]:
    """The matrix before the last layer, and with `encoder` those of all layers."""
    row = architecture_of(model)
    modules = dict(model.named_modules())
    paths = (path.format(base=row.base) for path in POOLERS)
    pooler = next((modules[path] for path in paths if isinstance(modules.get(path), nn.Linear)), None)
    if pooler is not None:
        yield pooler.weight
    if encoder:
        for _, layer in layers_of(model, row):
            yield from (parameter for parameter in layer.parameters() if parameter.ndim == 2)


@torch.no_grad()
def condition(head: GaussianProcessHead, body: PreTrainedModel, batches: Batches) -> None:
    """Give a head its posterior covariance, by one pass over the training rows with the weights as they now are.

    Liu et al. (2020) sum over the batches of the last epoch while the weights still move; this is the sum that theirs
    stands for, and the same after a resumed training.
    """
    head.eval()
    information = torch.zeros(head.covariance.shape, dtype=torch.float64, device=head.covariance.device)
    for batch in batches():
        x = features(body, batch)
        information += head.information(x.flatten(0, -2), x.shape[1] if x.ndim == 3 else None)
    head.condition(information)
