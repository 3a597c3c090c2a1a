"""The training of each method by name: several sets of weights, or a distribution over the last layer."""

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, MissingDependency
from uatlite.lab.train.recipe import PLAIN, Batches, MethodTraining, TrainingJob
from uatlite.methods.registry import split_spelling
from uatlite.model.architectures import architecture_of
from uatlite.model.heads import (
    GaussianProcessHead,
    VariationalLinear,
    add_to_moments,
    bound_spectral_norm,
    empty_moments,
    weight_posterior,
)
from uatlite.model.view import layers_of
from uatlite.model.weights import (
    AbsentHead,
    MethodWeights,
    attach,
    features,
    flat_parameters,
    last_layer,
    load_flat,
    weights_for,
    without_last_layer,
)
from uatlite.values import Kind

# ── several sets of weights ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _MemberTraining(MethodTraining):
    members: int = 5

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ConfigurationError(f"{self.name} is not allowed: 2 members or more.")


@dataclass(frozen=True)
class EnsembleTraining(_MemberTraining):
    """Several fine-tunings with the same rows and recipe; the seed of each decides head, order of rows and dropout."""

    key: ClassVar[str] = "ensemble"
    from_plain: ClassVar[bool] = True

    @property
    def fine_tunings(self) -> int:
        return self.members

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        attach(model, MethodWeights(self.key, {"members": torch.stack(list(map(flat_parameters, others)))}))


@dataclass(frozen=True)
class SnapshotTraining(_MemberTraining):
    """One run in which the learning rate falls and restarts `members` times; the end of each cycle is a member.

    All cycles are within the recipe's epochs. The model itself is the last member.
    """

    key: ClassVar[str] = "snapshot"

    @property
    def copies(self) -> int:
        return self.members

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        members = torch.zeros(self.members - 1, model.num_parameters())
        attach(model, MethodWeights(self.key, {"members": members}, persistent=True))

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """½(1 + cos πt), t from 0 to 1 in each cycle; the warm-up is the beginning of the first one."""
        if step < warmup:
            return step / warmup
        ends = self.ends(total)
        cycle = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
        begin = ends[cycle - 1] if cycle else min(warmup, ends[0] - 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - begin) / (ends[cycle] - begin))))

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        if step == 0 and total < 2 * self.members:
            raise ConfigurationError(
                f"{self.name}: {total} steps are too few for {self.members} cycles. Train longer, or use fewer members."
            )
        ends = self.ends(total)[:-1]
        if step in ends:
            weights_for(model, self.key).tensors["members"][ends.index(step)] = flat_parameters(model)

    def ends(self, total: int) -> list[int]:
        """The step at which each cycle ends."""
        return [round(number * total / self.members) for number in range(1, self.members + 1)]

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        attach(model, MethodWeights(self.key, {"members": weights_for(model, self.key).tensors["members"]}))


@dataclass(frozen=True)
class SwagTraining(MethodTraining):
    """Collects the mean and the spread of the weights while they move at a constant learning rate.

    Weights are collected `collections` times, evenly over the steps after the share `start` of the run. By then the
    learning rate has come down to the share `rate` of the recipe's, and stays there. `rank` deviations are kept.
    """

    key: ClassVar[str] = "swag"
    kinds: ClassVar[tuple[Kind, ...]] = ("one", "choice")

    rank: int = 10
    collections: int = 20
    start: float = 0.5
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not (2 <= self.rank <= self.collections and 0 <= self.start < 1 and 0 < self.rate <= 1):
            raise ConfigurationError(
                f"{self.name} is not allowed: 2 <= rank <= collections, 0 <= start < 1, 0 < rate <= 1."
            )

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        moments = empty_moments(model.num_parameters(), self.rank)
        attach(model, MethodWeights(self.key, moments, persistent=True))

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """Up over the warm-up, down to `rate` at the share `start` of all steps, and then constant."""
        first = max(warmup, math.ceil(self.start * total))
        if step < warmup:
            return step / warmup
        return self.rate if step >= first else 1 - (1 - self.rate) * (step - warmup) / (first - warmup)

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        wanted = self.steps(total)
        if step == 0 and len(wanted) < 2:
            raise ConfigurationError(
                f"{self.name}: a run of {total} steps leaves {len(wanted)} to collect weights from; it takes two or "
                "more. Train longer, or lower start."
            )
        if step in wanted:
            add_to_moments(weights_for(model, self.key).tensors, flat_parameters(model))

    @property
    def copies(self) -> int:
        return 2 + self.rank

    def steps(self, total: int) -> set[int]:
        """The steps of a run after which weights are collected: evenly spaced, up to the last one."""
        first = math.ceil(self.start * total)
        return {first + round(number * (total - first) / self.collections) for number in range(1, self.collections + 1)}

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        moments = weights_for(model, self.key).tensors
        load_flat(model, moments["mean"])
        attach(model, MethodWeights(self.key, weight_posterior(moments)))


# ── a distribution over the last layer ─────────────────────────────────────────────────────────────────────────────

_BATCH = 256

_Head = TypeVar("_Head", bound=nn.Module)


@dataclass(frozen=True)
class LaplaceTraining(MethodTraining):
    """The plain fine-tuning, then a Laplace approximation of the last layer, by `laplace-torch`.

    The prior precision is the one with the highest marginal likelihood on the training rows; no other rows are needed.
    """

    key: ClassVar[str] = "laplace"
    kinds: ClassVar[tuple[Kind, ...]] = ("one",)  # laplace-torch has no likelihood for multiple choice
    from_plain: ClassVar[bool] = True

    def check(self, job: TrainingJob) -> None:
        super().check(job)
        laplace_torch()  # a missing package is reported before the training

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        body = without_last_layer(model)
        with torch.inference_mode():
            rows = [(features(body, batch).cpu(), batch["labels"]) for batch in batches()]
        x, labels = map(torch.cat, zip(*rows, strict=True))
        attach(model, MethodWeights(self.key, last_layer_posterior(last_layer(model)[1], x.clone(), labels)))


def last_layer_posterior(layer: torch.nn.Linear, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What the method 'laplace' reads: the eigenbases of the Kronecker factors, and the prior precision.

    The layer is fitted as a model of the features (rows, units).
    """
    alone = copy.deepcopy(layer).cpu().requires_grad_(True)
    fitted = laplace_torch().Laplace(alone, "classification", subset_of_weights="all", hessian_structure="kron")
    fitted.fit(DataLoader(TensorDataset(features, labels), batch_size=_BATCH))
    with warnings.catch_warnings():  # about a link that marginal likelihood does not use
        warnings.filterwarnings("ignore", message="By default `link_approx`", category=UserWarning)
        fitted.optimize_prior_precision(method="marglik")
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


def laplace_torch() -> Any:
    """The package; the only place that imports it."""
    try:
        import laplace
    except ImportError as error:
        raise MissingDependency("laplace-torch", "laplace") from error
    return laplace


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
class SngpTraining(MethodTraining):
    """A Gaussian-process head, and a `bound` on the spectral norm of the pooler; with `encoder`, of all layers.

    Trained classifiers have margins of about 5, so the prior variance has to be about their square. A bound below
    about 1 keeps a residual layer from folding distances, but pretrained encoders were not trained with one.
    """

    key: ClassVar[str] = "sngp"
    kinds: ClassVar[tuple[Kind, ...]] = ("one", "choice")

    features: int = 1024
    length_scale: float = 1.0
    prior_variance: float = 30.0
    bound: float = 0.95
    encoder: bool = False
    head_rate: float = 0.005
    """learning rate of the head: its coefficients begin at 0 and would hardly move at the rate of pretrained weights"""

    def __post_init__(self) -> None:
        self.check_positive("features", "length_scale", "prior_variance", "bound", "head_rate")

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
        model.set_submodule(name, head.to(layer.weight))

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        _, head = _find(model, GaussianProcessHead)
        return [{"params": list(head.parameters()), "lr": self.head_rate, "weight_decay": 0.0}]

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        bound_spectral_norm(bounded_weights(model, encoder=self.encoder), self.bound)

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        """Give the head its posterior covariance, by one pass over the training rows with the final weights.

        Liu et al. (2020) sum over the batches of the last epoch, while the weights still move. One pass at the end
        gives the sum that theirs approximates, and the same result after a resumed training.
        """
        name, head = _find(model, GaussianProcessHead)
        model.set_submodule(name, AbsentHead(self.key))
        head, body = head.eval(), without_last_layer(model)
        information = torch.zeros(head.covariance.shape, dtype=torch.float64)
        with torch.no_grad():
            for batch in batches():
                x = features(body, batch)
                information += head.information(x.flatten(0, -2), x.shape[1] if x.ndim == 3 else None)
            head.condition(information)
        attach(model, MethodWeights(self.key, head.state_dict(), headless=True))


def bounded_weights(model: PreTrainedModel, *, encoder: bool = False) -> Iterator[Tensor]:
    """The weights of the layer before the last; with `encoder`, of all layers."""
    row = architecture_of(model)
    modules = dict(model.named_modules())
    paths = (path.format(base=row.base) for path in POOLERS)
    pooler = next((modules[path] for path in paths if isinstance(modules.get(path), nn.Linear)), None)
    if pooler is not None:
        yield pooler.weight
    if encoder:
        for _, layer in layers_of(model, row):
            yield from (parameter for parameter in layer.parameters() if parameter.ndim == 2)


LOG_SCALES = ("weight_log_scale", "bias_log_scale")


@dataclass(frozen=True)
class VariationalTraining(MethodTraining):
    """A Gaussian over the last layer, trained by the ELBO with its KL spread over the training rows.

    `prior_scale` is the prior's standard deviation, `initial_scale` the posterior's at the first step. The logarithms
    of the scales have their own learning rate, `scale_rate`: AdamW moves a number by about its learning rate a step,
    and at the rate of pretrained weights they would hardly move.
    """

    key: ClassVar[str] = "vi-last-layer"
    kinds: ClassVar[tuple[Kind, ...]] = ("one", "choice")

    prior_scale: float = 1.0
    initial_scale: float = 0.05
    scale_rate: float = 0.01

    def __post_init__(self) -> None:
        self.check_positive("prior_scale", "initial_scale", "scale_rate")

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        name, layer = last_layer(model)
        posterior = VariationalLinear.around(layer, prior_scale=self.prior_scale, initial_scale=self.initial_scale)
        model.set_submodule(name, posterior)

    def penalty(self, model: PreTrainedModel, rows: int) -> Tensor:
        return _find(model, VariationalLinear)[1].kl() / rows

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """The scales at their own rate, and the means without weight decay: the prior is in the loss."""
        named = dict(_find(model, VariationalLinear)[1].named_parameters())
        scales = [named.pop(name) for name in LOG_SCALES if name in named]
        return [
            {"params": scales, "lr": self.scale_rate, "weight_decay": 0.0},
            {"params": list(named.values()), "weight_decay": 0.0},
        ]

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        name, posterior = _find(model, VariationalLinear)
        state = posterior.state_dict()
        scales = {key: state.pop(key) for key in LOG_SCALES if key in state}
        with torch.device("meta"):
            means = nn.Linear(posterior.in_features, posterior.out_features, bias=posterior.bias is not None)
        means.load_state_dict(state, assign=True)
        model.set_submodule(name, means.eval())
        attach(model, MethodWeights(self.key, scales))


def _find(model: PreTrainedModel, head: type[_Head]) -> tuple[str, _Head]:
    """The name and module of a model's head of this class."""
    return next((name, module) for name, module in model.named_modules() if isinstance(module, head))


# ── by name ────────────────────────────────────────────────────────────────────────────────────────────────────────

METHOD_TRAININGS: dict[str, MethodTraining] = {
    "ensemble": EnsembleTraining(),
    "snapshot": SnapshotTraining(),
    "swag": SwagTraining(),
    "laplace": LaplaceTraining(),
    "sngp": SngpTraining(),
    "vi-last-layer": VariationalTraining(),
}
"""The methods with a training of their own. All others run on the plain fine-tuning, `PLAIN`."""


def parse_training(text: str) -> MethodTraining:
    """The training of a method, from 'swag' or 'swag:rank=20'; the settings are those of the training."""
    key, settings = split_spelling(text)
    training = METHOD_TRAININGS.get(key, PLAIN)
    if training is PLAIN and settings:
        raise ConfigurationError(f"{key} has no training of its own to set; drop {', '.join(settings)}.")
    return training.changed(**settings)
