"""Which layers and components the variance of a classifier's output comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.case import Case, without_noise
from uatlite.attribution.first_order import first_order
from uatlite.attribution.output import output_weights
from uatlite.attribution.parts import COMPONENTS, Part, components_of, layer_names, sum_by_layer
from uatlite.attribution.sampled import SAMPLED
from uatlite.errors import ConfigurationError, check_choice
from uatlite.passes.config import UATConfig

ESTIMATORS = (*SAMPLED, "delta")


@dataclass(frozen=True)
class Attribution:
    """Var(y) of each text by layer: embeddings, layers 1 .. L, head; and within a layer by component."""

    estimator: str
    output: str | int
    samples: int
    """passes of each kind that were sampled; 0 for the delta method"""
    predicted: Tensor
    """the class that the pass without dropout predicts: (batch,)"""
    contributions: Tensor
    """(batch, layers + 2), in the squared unit of y"""
    total: Tensor
    """Var(y) with all noise on, sampled; for delta its first-order value, the sum of the contributions: (batch,)"""
    components: Tensor | None = None
    """of attention and of feed-forward within each layer: (batch, layers, 2); None where not asked for"""
    contribution_errors: Tensor | None = None
    """standard errors of what was sampled, in the shapes of the values; None for delta"""
    component_errors: Tensor | None = None
    total_error: Tensor | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the columns of `contributions`."""
        return layer_names(self.contributions.shape[1] - 2)

    @property
    def shares(self) -> Tensor:
        """Contributions normalised to sum to 1 in each text: (batch, layers + 2); 0 where there is no variance."""
        return shares_of(self.contributions)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in self.__dict__.items()}
        return {
            **plain,
            "layers": list(self.layers),
            "component_names": list(COMPONENTS),
            "shares": self.shares.tolist(),
        }


def attribute(
    model: PreTrainedModel,
    encoded: Mapping[str, Tensor],
    config: UATConfig | None = None,
    *,
    estimator: str = "delta",
    output: str | int = "predicted",
    samples: int = 200,
    components: bool = True,
) -> Attribution:
    """Attribute the variance of a classifier's output under dropout to its layers; the model is left untouched.

    `estimator` is 'delta' (first order, one forward and one backward pass), 'total-variance' (sampled; sums to Var(y);
    2·layers + 3 times `samples` passes) or 'isolated' (the paper's V^(l), each layer and component alone;
    3·layers + 3 times `samples` passes). Without `components` both take layers + 3 times `samples` passes.

    `output` names y: 'predicted', 'margin' or a class, see `uatlite.attribution.output`. Of the configuration,
    `samples` and `masks` are not used, and gates are set by the closed-form U, see `uatlite.attribution.case`.
    """
    check_choice("estimator", estimator, ESTIMATORS)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise ConfigurationError(f"samples={samples!r} is not a whole number of passes, 2 or more.")
    case = Case.of(model, encoded, config)
    if estimator == "delta":
        return _delta(case, output)
    return _sampled(case, estimator, output, samples, components)


def shares_of(contributions: Tensor) -> Tensor:
    """Contributions (batch, n) over their sum; 0 where that is 0."""
    whole = contributions.sum(dim=-1, keepdim=True)
    return (contributions / whole.where(whole != 0, 1.0)).where(whole != 0, 0.0)


def _delta(case: Case, output: str | int) -> Attribution:
    found = first_order(case, output)
    return Attribution(
        estimator="delta",
        output=output,
        samples=0,
        predicted=found.logits.argmax(dim=-1),
        contributions=sum_by_layer(found.parts),
        components=components_of(found.parts),
        total=found.parts.sum(dim=-1),
    )


def _sampled(case: Case, estimator: str, output: str | int, samples: int, split: bool) -> Attribution:
    quiet = without_noise(case)
    live = {Part(call.layer, (call.site.component,)) for call in quiet.calls}
    found = SAMPLED[estimator](case, output_weights(output, quiet.logits), samples, live, split)
    return Attribution(
        estimator=estimator,
        output=output,
        samples=samples,
        predicted=quiet.logits.argmax(dim=-1),
        contributions=found.layers.value.float(),
        components=None if found.components is None else found.components.value.float(),
        total=found.total.value.float(),
        contribution_errors=found.layers.error.float(),
        component_errors=None if found.components is None else found.components.error.float(),
        total_error=found.total.error.float(),
    )
