"""UAT-Lite without sampling: logits, their margin's variance and its sources from one forward and backward pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.case import Case
from uatlite.attribution.first_order import first_order
from uatlite.attribution.layers import Attribution, shares_of
from uatlite.attribution.parts import COMPONENTS, components_of, layer_names, sum_by_layer
from uatlite.passes.config import UATConfig


@dataclass(frozen=True)
class Propagation:
    """A prediction without dropout and the first-order variance that dropout would give its margin."""

    logits: Tensor
    """(batch, classes)"""
    variance: Tensor
    """σ² of the margin, the top-1 minus the top-2 logit: (batch,)"""
    contributions: Tensor
    """σ² by layer, embeddings, layers 1 .. L, head: (batch, layers + 2)"""
    components: Tensor
    """of attention and of feed-forward within each layer: (batch, layers, 2)"""
    tokens: Tensor
    """σ² by token; the head's part, after pooling, belongs to none: (batch, [choices,] tokens)"""
    token_uncertainty: Tensor
    """closed-form U of each token: (batch, [choices,] tokens)"""

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the columns of `contributions`."""
        return layer_names(self.components.shape[1])

    @property
    def shares(self) -> Tensor:
        """Contributions normalised to sum to 1 in each text: (batch, layers + 2); 0 where there is no variance."""
        return shares_of(self.contributions)

    def attribution(self) -> Attribution:
        """The same as `attribute(..., estimator="delta", output="margin")`, without another pass."""
        return Attribution(
            estimator="delta",
            output="margin",
            samples=0,
            predicted=self.logits.argmax(dim=-1),
            contributions=self.contributions,
            components=self.components,
            total=self.variance,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: value.tolist() for name, value in self.__dict__.items()}
        return {**plain, "layers": list(self.layers), "component_names": list(COMPONENTS)}


def propagate(model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig | None = None) -> Propagation:
    """One forward pass without dropout, attention gated by closed-form U, and one backward pass from the margin.

    With y the top-1 minus the top-2 logit and g its gradient with respect to the multipliers of each dropout site,

        σ² = Σ over sites Σ g²·p/(1-p)

    is the first-order variance of the margin under the configuration's dropout. The model is left untouched, and no
    gradient is left on it. `samples`, `masks` and `seed` of the configuration do nothing here.
    """
    found = first_order(Case.of(model, encoded, config), "margin")
    return Propagation(
        logits=found.logits,
        variance=found.parts.sum(dim=-1),
        contributions=sum_by_layer(found.parts),
        components=components_of(found.parts),
        tokens=found.tokens,
        token_uncertainty=found.token_uncertainty,
    )
