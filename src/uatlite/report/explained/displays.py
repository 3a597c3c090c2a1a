"""The numbers behind what is drawn of an explanation: layers split by component, and three maps of attention."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier import Explanation
from uatlite.classifier.explanation import COMPONENT_NAMES, ExplainedLayer
from uatlite.report.displays import Record

Floats = NDArray[np.float64]

LABELS = dict(zip(COMPONENT_NAMES, ("embedding", "attention", "feed-forward", "head"), strict=True))
"""component -> what a reader calls it"""


@dataclass(frozen=True)
class LayerBars:
    """A bar for each layer, as long as its share of the variance, split by component."""

    layers: tuple[ExplainedLayer, ...]

    @classmethod
    def of(cls, explanation: Explanation) -> "LayerBars":
        return cls(explanation.layers)

    def parts(self, layer: ExplainedLayer) -> dict[str, float]:
        """The length of each component's part of a bar, in shares; 0 where sampling made a contribution negative.

        A layer's share is divided in proportion to its components, which for 'isolated' need not sum to it.
        """
        positive = {name: max(value, 0.0) for name, value in layer.components.items()}
        whole = sum(positive.values()) or 1.0
        return {name: max(layer.share, 0.0) * value / whole for name, value in positive.items()}

    @property
    def longest(self) -> float:
        """The largest share; above 0 also where there is none."""
        return max(*(layer.share for layer in self.layers), 1e-9)

    def records(self) -> Iterator[Record]:
        for layer in self.layers:
            errors = layer.component_errors or {}
            whole: Record = {"layer": layer.name, "component": "all", "contribution": layer.contribution}
            yield whole | {"standard_error": layer.error, "share": layer.share}
            for name, value in layer.components.items():
                part: Record = {"layer": layer.name, "component": name, "contribution": value}
                yield part | {"standard_error": errors.get(name), "share": None}


@dataclass(frozen=True, eq=False)
class Heatmaps:
    """Mean attention with modulation, without, and the difference: (tokens, tokens) each, a row is a query token."""

    tokens: tuple[str, ...]
    which: str
    """of which layer and head, in words"""
    modulated: Floats
    plain: Floats
    difference: Floats

    @classmethod
    def of(cls, explanation: Explanation, layer: int | None = None, head: int | None = None) -> "Heatmaps | None":
        """The maps of one layer and head, counted from 1, or their mean; of a question, those of the chosen option."""
        if explanation.attention is None:
            return None
        chosen = explanation.attention.chosen(layer, head)
        length, sequence = explanation.sequence_length, explanation.chosen_sequence
        begin = sequence * length
        tokens = [token for token in explanation.tokens if begin <= token.place < begin + length]
        real = [token.place - begin for token in tokens]

        def crop(maps: object) -> Floats:
            weights = np.asarray(maps, dtype=np.float64).reshape(-1, length, length)[sequence]
            return np.asarray(weights[np.ix_(real, real)])

        names = tuple(token.text for token in tokens)
        maps = (crop(values.cpu().numpy()) for values in (chosen.modulated, chosen.plain, chosen.difference))
        return cls(names, _which(layer, head), *maps)

    @property
    def panels(self) -> dict[str, Floats]:
        """The three maps by title, in the order in which they are drawn."""
        return {"with modulation": self.modulated, "without": self.plain, "difference": self.difference}

    def records(self) -> Iterator[Record]:
        for i, query in enumerate(self.tokens):
            for j, key in enumerate(self.tokens):
                place: Record = {"query": i, "query_token": query, "key": j, "key_token": key}
                values = {"modulated": self.modulated, "plain": self.plain, "difference": self.difference}
                yield place | {name: float(weights[i, j]) for name, weights in values.items()}


def _which(layer: int | None, head: int | None) -> str:
    layers = "all layers" if layer is None else f"layer {layer}"
    return f"{layers}, {'mean over heads' if head is None else f'head {head}'}"
