"""Which layers and components the variance of a classifier's output comes from.

`propagate` and the estimator `delta` are first order, from one forward and one backward pass. Two estimators are
sampled, over the parts of the network in forward order:

`total-variance` is the law of total variance and the paper's V^(l): the mean of Var(E[y | h^(l)] | h^(l-1)). With S_k =
Var(E[y | masks of parts 0..k]) part k contributes S_k - S_(k-1), which is that mean, and the contributions sum to
Var(y). Take two independent sets of masks A and B, and let y_k be the output under A's masks in parts 0..k and B's
above. y = y_last and y_k share the masks up to part k and no others, so
Cov(y, y_k) = S_k, and

    S_k - S_(k-1) = Cov(y, y_k - y_(k-1)).

Both terms of the difference have B's masks above, which cancels most of the sampling error. y_(-1) is B alone:
S_(-1) = 0, and its term is kept because it cancels the same error of the first part.

`isolated` is each layer alone: the variance of y when only one part drops anything, so that its input has no noise. The
estimator `delta` is that to first order.

A part is all site calls of one component in one layer, or of a whole layer. Parts are in forward order: "up to a part"
means everything that decides the hidden state which the next part receives.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.first_order import (
    Case,
    FirstOrder,
    Output,
    first_orders,
    output_weights,
    part_index,
    run,
    without_noise,
)
from uatlite.errors import ConfigurationError, check_choice
from uatlite.model.architectures import check_one_answer
from uatlite.model.intervention import Site
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import DropoutNoise, Noise, SiteCall, Texts
from uatlite.passes.engine import MakeNoise

_BLOCK = 10
"""Passes of one folded batch. The masks of a block are drawn once for all parts and chunks of texts."""


def parts_of(layers: int, *, split: bool) -> list[range]:
    """The embedding block, each layer and the head, as `part_index` numbers their components.

    With `split` these are followed by the attention and the feed-forward of each layer in turn.
    """
    head = 2 * layers + 1
    middle = [range(i, i + 2) for i in range(1, head, 2)]
    return [range(1), *middle, range(head, head + 1), *(range(i, i + 1) for i in range(1, head) if split)]


def pair_up(components: Tensor) -> Tensor:
    """From (..., 2·layers), attention and feed-forward in turn, to (..., layers, 2)."""
    return torch.stack([components[..., ::2], components[..., 1::2]], dim=-1)


class DropoutInParts(Noise):
    """Dropout with the masks of some passes in a range of parts; elsewhere with those of others, or none at all."""

    def __init__(self, case: Case, texts: Texts, parts: range, passes: range, others: range | None = None) -> None:
        super().__init__(case.config)
        self._layers, self._parts = case.view.layers, parts
        self._inside = DropoutNoise(case.config, texts, passes)
        self._outside = None if others is None else DropoutNoise(case.config, texts, others)

    def _noise(self, site: Site, layer: int) -> DropoutNoise | None:
        return self._inside if part_index(layer, site.component, self._layers) in self._parts else self._outside

    def rate(self, site: Site, layer: int) -> float:
        return 0.0 if self._noise(site, layer) is None else super().rate(site, layer)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        noise = self._noise(call.site, call.layer)
        return x if noise is None else noise.perturb(call, x)


Estimator = Callable[[Case, Tensor, int, Sequence[range], Collection[int]], tuple[Tensor, Tensor]]
"""From the weights of y, the number of samples, ranges of parts, and the parts that drop anything, to values and their
standard errors: of each range (2, ranges, batch), and of Var(y) with all noise on (2, batch)."""


def total_variance(
    case: Case, weights: Tensor, samples: int, parts: Sequence[range], live: Collection[int]
) -> tuple[Tensor, Tensor]:
    """Contributions that sum to Var(y), from `samples` pairs of passes for each live part."""

    def sharing(shared: range) -> MakeNoise:
        return lambda texts, a: DropoutInParts(case, texts, shared, a, range(a.start + samples, a.stop + samples))

    ends = sorted({0, *(indices.stop for indices in parts)})
    lives = [any(start <= i < end for i in live) for start, end in pairwise(ends)]
    prefixes = [range(end) for end, alive in zip(ends[1:], lives, strict=True) if alive]
    y = _sample(case, weights, samples, [sharing(prefix) for prefix in (range(0), *prefixes)])
    # A part without noise has the y_k of the part before it: its contribution is exactly 0, and it needs no passes.
    up_to = dict(zip(ends, y[list(accumulate(lives, initial=0))], strict=True))  # each (samples, batch)
    steps = torch.stack([up_to[indices.stop] - up_to[indices.start] for indices in parts])
    both = torch.cat([y[0], y[-1]])
    return covariance(y[-1], steps), covariance(both, both)


def _isolated(
    case: Case, weights: Tensor, samples: int, parts: Sequence[range], live: Collection[int]
) -> tuple[Tensor, Tensor]:
    """The variance of y with only one layer, or one of its components, stochastic; `samples` passes for each."""

    def alone(indices: range) -> MakeNoise:
        return lambda texts, passes: DropoutInParts(case, texts, indices, passes)

    lives = [any(i in indices for i in live) for indices in parts]
    makers = [alone(indices) for indices, alive in zip(parts, lives, strict=True) if alive]
    y = _sample(case, weights, samples, [*makers, lambda texts, passes: DropoutNoise(case.config, texts, passes)])
    every = y.new_zeros((2, len(parts), y.shape[-1]))
    every[:, torch.tensor(lives, device=y.device)] = covariance(y[:-1], y[:-1])
    return every, covariance(y[-1], y[-1])


SAMPLED: dict[str, Estimator] = {"total-variance": total_variance, "isolated": _isolated}


def covariance(a: Tensor, b: Tensor) -> Tensor:
    """The unbiased covariance over samples (..., samples, batch), and its standard error: (2, ..., batch)."""
    samples = a.shape[-2]
    products = (a - a.mean(dim=-2, keepdim=True)) * (b - b.mean(dim=-2, keepdim=True))
    return torch.stack([products.sum(dim=-2) / (samples - 1), products.std(dim=-2) / samples**0.5])


def _sample(case: Case, weights: Tensor, samples: int, makers: Sequence[MakeNoise]) -> Tensor:
    """y = Σ_c w_c·logit_c (noises, samples, batch) under every noise, block of passes by block, in double precision."""
    blocks = [range(start, min(start + _BLOCK, samples)) for start in range(0, samples, _BLOCK)]
    logits = [[run(case, block, maker) for maker in makers] for block in blocks]
    every = torch.stack([torch.cat(rows) for rows in zip(*logits, strict=True)])
    return (every.cpu().double() * weights.cpu()).sum(dim=-1)  # not every device has double precision


ESTIMATORS = (*SAMPLED, "delta")
_SEVERAL = "Its variance is that of each answer: uatlite.attribution.first_order.first_orders gives it."


@dataclass(frozen=True)
class Attribution:
    """Var(y) of each text by layer: embeddings, layers 1 .. L, head; within a layer by component; and by token."""

    estimator: str
    logits: Tensor
    """without dropout: (batch, classes)"""
    contributions: Tensor
    """(batch, layers + 2), in the squared unit of y"""
    total: Tensor
    """Var(y) with all noise on, sampled; for delta its first-order value, the sum of the contributions: (batch,)"""
    samples: int = 0
    """sampled passes of each kind; 0 for the delta method"""
    components: Tensor | None = None
    """of attention and of feed-forward within each layer: (batch, layers, 2); None if not asked for"""
    tokens: Tensor | None = None
    """for delta: of each token; the head's part, after pooling, belongs to none: (batch, [choices,] tokens)"""
    token_uncertainty: Tensor | None = None
    """for delta: closed-form U of each token: (batch, [choices,] tokens)"""
    representation: Tensor | None = None
    """for delta: what the head reads: (batch, units); None where it cannot be seen"""
    contribution_errors: Tensor | None = None
    """standard errors of sampled values, in the same shapes; None for delta"""
    component_errors: Tensor | None = None
    total_error: Tensor | None = None

    @classmethod
    def of(cls, variances: FirstOrder) -> "Attribution":
        """The first-order variance of an output, the first of `variances`."""
        parts = variances.parts[0]
        components = pair_up(parts[:, 1:-1])
        return cls(
            estimator="delta",
            logits=variances.logits,
            contributions=torch.cat([parts[:, :1], components.sum(dim=-1), parts[:, -1:]], dim=1),
            total=parts.sum(dim=-1),
            components=components,
            tokens=variances.tokens[0],
            token_uncertainty=variances.token_uncertainty,
            representation=variances.representation,
        )

    @property
    def predicted(self) -> Tensor:
        """The class that the pass without dropout predicts: (batch,)."""
        return self.logits.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        """Var(y), as `total`: (batch,)."""
        return self.total

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the columns of `contributions`."""
        return "embeddings", *(f"layer {i}" for i in range(1, self.contributions.shape[1] - 1)), "head"

    @property
    def shares(self) -> Tensor:
        """Contributions normalised to sum to 1 in each text: (batch, layers + 2); 0 where there is no variance."""
        total = self.contributions.sum(dim=-1, keepdim=True)
        return (self.contributions / total.where(total != 0, 1.0)).where(total != 0, 0.0)


def attribute(
    model: PreTrainedModel,
    encoded: Mapping[str, Tensor],
    config: UATConfig | None = None,
    *,
    estimator: str = "delta",
    output: Output = "predicted",
    samples: int = 200,
    components: bool = True,
) -> Attribution:
    """Attribute the variance of a classifier's output under dropout to its layers; the model is left untouched.

    `estimator` is 'delta' (first order, one forward and one backward pass), 'total-variance' (the paper's V^(l),
    which sums to Var(y); 2·layers + 3 times `samples` passes) or 'isolated' (each layer and component alone;
    3·layers + 3 times `samples` passes). Without `components` both take layers + 3 times `samples` passes.

    `output` names y: 'predicted', 'margin', a class, or two classes. Of the configuration, `samples` and `masks` are
    not used, and gates are set by the closed-form U; see `uatlite.attribution.first_order`.
    """
    check_choice("estimator", estimator, ESTIMATORS)
    check_one_answer(model, _SEVERAL)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise ConfigurationError(f"samples={samples!r} is not a whole number of passes, 2 or more.")
    case = Case.of(model, encoded, config)
    if estimator == "delta":
        return Attribution.of(first_orders(case, output))
    return _sampled(case, estimator, output, samples, components)


def _sampled(case: Case, estimator: str, output: Output, samples: int, split: bool) -> Attribution:
    logits, calls, _ = without_noise(case)
    layers, weights = case.view.layers, output_weights(output, logits)
    live = {part_index(call.layer, call.site.component, layers) for call in calls}
    estimates, total = SAMPLED[estimator](case, weights, samples, parts_of(layers, split=split), live)
    estimates, total = estimates.float().to(logits.device), total.float().to(logits.device)
    contributions, errors = estimates[:, : layers + 2].mT
    components, component_errors = pair_up(estimates[:, layers + 2 :].mT) if split else (None, None)
    return Attribution(
        estimator=estimator,
        logits=logits,
        contributions=contributions,
        total=total[0],
        samples=samples,
        components=components,
        contribution_errors=errors,
        component_errors=component_errors,
        total_error=total[1],
    )


def propagate(model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig | None = None) -> Attribution:
    """One forward pass without dropout, attention gated by closed-form U, and one backward pass from the margin.

    With y the top-1 minus the top-2 logit and g its gradient with respect to the multipliers of each dropout site,

        σ² = Σ over sites Σ g²·p/(1-p)

    is the first-order variance of the margin under the configuration's dropout: `attribute` of it by 'delta'. The model
    is left untouched, and no gradient is left on it. `samples`, `masks` and `seed` of the configuration have no effect.
    """
    return attribute(model, encoded, config, output="margin")
