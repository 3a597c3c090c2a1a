"""What is attributed: a model, texts and a configuration; its passes under any noise; its parts; and the output y.

Attribution asks how one pass's own masks move y. Gates must then not depend on other passes, so they are set by the
closed-form U of the embedding block, the limit of the lagged estimate. Masks are independent, as stratified ones tie
passes together.

A part is all site calls of one component in one layer, or of a whole layer. Parts are in forward order: "up to a part"
means everything that decides the hidden state which the next part receives.

The output is a contrast of logits, y = Σ_c w_c·logit_c. The weights w (batch, classes) come from the logits without
dropout, so that every estimator and every pass uses the same y for a text, also if a pass predicts another class.

    predicted    logit of the predicted class minus the mean of the rest (default)
    margin       logit of the predicted class minus that of the runner-up
    an integer   logit of that class minus the mean of the rest
    two integers logit of the first class minus that of the second
    LabelLogit   logit of one of many labels, alone

With two classes all but the last are the same up to sign.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, check_choice
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.intervention import ATTENTION, CLASSIFIER, EMBEDDING, EMBEDDINGS, FEED_FORWARD, HEAD, Site
from uatlite.model.view import View, view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import Noise, SiteCall, Texts
from uatlite.passes.engine import (
    MEMORY_BUDGET,
    Chunk,
    check_fired,
    check_samples,
    chunks_of,
    forward_folded,
    keep_freed_memory,
    place,
)
from uatlite.passes.forward import FoldedPasses


@dataclass(frozen=True)
class LabelLogit:
    """The output that is one label's logit, of a model of many labels."""

    label: int


Output = str | int | tuple[int, int] | LabelLogit
"""The name of an output, a class, two classes, or one of many labels."""
MakeNoise = Callable[[Texts, range], Noise]
"""From the texts of a chunk and the passes of a block to the noise at their sites."""


@dataclass(frozen=True)
class Case:
    """What is attributed: a view, its inputs (batch, [choices,] tokens) and a configuration."""

    view: View
    inputs: dict[str, Tensor]
    config: UATConfig

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        encoded: Mapping[str, Tensor],
        config: UATConfig | None,
        *,
        fixed_gates: bool = True,
    ) -> "Case":
        """Check everything before anything runs."""
        view = view_of(model)
        config = UATConfig() if config is None else config
        config = with_fixed_gates(config) if fixed_gates else config
        check_samples(view, config)
        if not any(config.rates.of(site.component, site.own_rate) for site in view.sites):
            raise ConfigurationError(
                "there is no variance to attribute: every dropout rate is 0, so the model is deterministic. Set rates, "
                "for instance UATConfig(rates=DropoutRates()) for the paper's or DropoutRates.uniform(0.1)."
            )
        return cls(view, check_encoded(encoded, unwrap(model)), config)

    @property
    def real(self) -> Tensor:
        """Which tokens are not padding: (batch, [choices,] tokens)."""
        return self.inputs["attention_mask"].bool()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the logits: (batch, classes), (batch, choices), or of tokens (batch, tokens, classes)."""
        return self.view.logit_shape(self.inputs["input_ids"])

    @property
    def padded(self) -> Tensor | None:
        """Which tokens are not padding where logits are of tokens (batch, tokens); None where they are of texts."""
        return self.inputs["attention_mask"] if self.view.tags else None


def with_fixed_gates(config: UATConfig) -> UATConfig:
    """The configuration with gates that depend on the text alone, and independent masks."""
    if config.modulates and (config.estimate == "layerwise" or config.uncertainty.endswith("+ln")):
        raise ConfigurationError(
            f"attribution needs gates that no pass can move, by the closed form of U; estimate={config.estimate!r} "
            f"with uncertainty={config.uncertainty!r} has none. Use estimate='lagged' or 'closed-form' and an "
            "uncertainty without '+ln', or gate='none'."
        )
    return replace(
        config, estimate="closed-form", masks="independent", uncertainty=config.uncertainty.removesuffix("+ln")
    )


class NoDropout:
    """Noise with the configuration's rates that changes nothing: the pass without dropout, with its calls recorded."""

    def __init__(self, config: UATConfig) -> None:
        self._config = config

    def rate(self, site: Site, layer: int) -> float:
        return self._config.rates.of(site.component, site.own_rate)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Forward:
    """One folded forward and its results."""

    chunk: Chunk
    passes: range
    folded: FoldedPasses
    noise: Noise
    logits: Tensor
    """(passes, texts, classes)"""


def forwards(case: Case, passes: range, make_noise: MakeNoise) -> Iterator[Forward]:
    """Run some passes over all texts: chunk by chunk of texts, and within it block by block of passes."""
    keep_freed_memory()
    for chunk in chunks_of(case.inputs, case.view, case.config, passes, None, MEMORY_BUDGET):
        inputs = chunk.inputs(case.inputs)
        texts = Texts.of(inputs, case.config.per_input)
        for block in chunk.blocks:
            noise = make_noise(texts, block)
            folded = FoldedPasses(case.config, texts, block, noise=noise)
            yield Forward(chunk, block, folded, noise, forward_folded(case.view, inputs, folded, len(block))[0])


def run(case: Case, passes: range, make_noise: MakeNoise) -> Tensor:
    """Logits (passes, batch, classes) of some passes under a noise."""
    logits = torch.zeros((len(passes), *case.shape), device=case.real.device)
    for forward in forwards(case, passes, make_noise):
        block = slice(forward.passes.start - passes.start, forward.passes.stop - passes.start)
        place(logits[block].transpose(0, 1), forward.chunk, forward.logits.transpose(0, 1), case.padded)
    return logits


@dataclass(frozen=True)
class DeterministicPass:
    """The pass without dropout."""

    logits: Tensor
    """(batch, classes)"""
    calls: tuple[SiteCall, ...]
    """the site calls that would drop units, in forward order"""


def without_noise(case: Case) -> DeterministicPass:
    """Run the pass without dropout, with the configuration's gates."""
    logits = torch.zeros(case.shape, device=case.real.device)
    calls: list[SiteCall] = []
    for forward in forwards(case, range(1), lambda texts, passes: NoDropout(case.config)):
        check_fired(case.view, case.config, forward.folded)
        place(logits, forward.chunk, forward.logits[0], case.padded)
        calls = forward.folded.fired
    return DeterministicPass(logits, tuple(calls))


LAYER_COMPONENTS = (ATTENTION, FEED_FORWARD)
"""The components of a layer, in forward order."""


@dataclass(frozen=True)
class LayerPart:
    """Some components of one layer; EMBEDDINGS and HEAD count as layers."""

    layer: int
    components: tuple[str, ...]

    def holds(self, component: str, layer: int) -> bool:
        """Whether a site of a component that `layer` calls belongs to this part."""
        return layer == self.layer and component in self.components

    def contains(self, other: "LayerPart") -> bool:
        """Whether all of another part belongs to this one."""
        return other.layer == self.layer and set(other.components) <= set(self.components)


def whole_layers(layers: int) -> tuple[LayerPart, ...]:
    """The embedding block, each layer as a whole, the head: layers + 2 parts in forward order."""
    return _between([LayerPart(layer, LAYER_COMPONENTS) for layer in range(layers)])


def split_layers(layers: int) -> tuple[LayerPart, ...]:
    """The embedding block, each layer's attention and feed-forward, the head: 2·layers + 2 parts in forward order."""
    return _between([LayerPart(layer, (component,)) for layer in range(layers) for component in LAYER_COMPONENTS])


def _between(middle: list[LayerPart]) -> tuple[LayerPart, ...]:
    return LayerPart(EMBEDDINGS, (EMBEDDING,)), *middle, LayerPart(HEAD, (CLASSIFIER,))


def part_index(layer: int, component: str, layers: int) -> int:
    """The index of a layer's component in `split_layers`."""
    if layer in (EMBEDDINGS, HEAD):
        return 0 if layer == EMBEDDINGS else 2 * layers + 1
    return 1 + 2 * layer + LAYER_COMPONENTS.index(component)


def pair_up(components: Tensor) -> Tensor:
    """From (batch, 2·layers), attention and feed-forward in turn, to (batch, layers, 2)."""
    return components.reshape(len(components), components.shape[1] // 2, 2)


def components_of(parts: Tensor) -> Tensor:
    """From values by split part (batch, 2·layers + 2), those of attention and feed-forward: (batch, layers, 2)."""
    return pair_up(parts[:, 1:-1])


def sum_by_layer(parts: Tensor) -> Tensor:
    """From values by split part (batch, 2·layers + 2), those by layer: (batch, layers + 2)."""
    return torch.cat([parts[:, :1], components_of(parts).sum(dim=-1), parts[:, -1:]], dim=1)


def layer_names(layers: int) -> tuple[str, ...]:
    """The names of the columns of (batch, layers + 2): embeddings, layer 1 .. layer L, head."""
    return "embeddings", *(f"layer {i}" for i in range(1, layers + 1)), "head"


def against_rest(chosen: Tensor, classes: int) -> Tensor:
    """w = 1 at the chosen class (batch,), -1/(classes - 1) elsewhere: (batch, classes)."""
    weights = torch.full((len(chosen), classes), -1.0 / (classes - 1), device=chosen.device)
    return weights.scatter_(1, chosen[:, None], 1.0)


def _predicted(logits: Tensor) -> Tensor:
    return against_rest(logits.argmax(dim=-1), logits.shape[-1])


def _margin(logits: Tensor) -> Tensor:
    best = logits.topk(2, dim=-1).indices
    signs = torch.tensor([1.0, -1.0], device=logits.device).expand(len(logits), 2)
    return torch.zeros_like(logits).scatter_(1, best, signs)


# name -> the weights (batch, classes) from logits without dropout (batch, classes)
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {"predicted": _predicted, "margin": _margin}


def output_weights(output: Output, logits: Tensor) -> Tensor:
    """The weights w (batch, classes) of y for logits without dropout (batch, classes)."""
    classes = logits.shape[-1]
    if isinstance(output, str):
        check_choice("output", output, OUTPUTS)
        return OUTPUTS[output](logits)
    named = output if isinstance(output, tuple) else (output.label if isinstance(output, LabelLogit) else output,)
    if len(set(named)) != len(named) or any(isinstance(one, bool) or not 0 <= one < classes for one in named):
        raise ConfigurationError(
            f"output={output!r} is no class of this model, and no two of them; it has classes 0 to {classes - 1}."
        )
    if isinstance(output, int):
        return against_rest(torch.full((len(logits),), output, device=logits.device), classes)
    weights = torch.zeros_like(logits)
    for column, sign in zip(named, (1.0, -1.0), strict=False):
        weights[:, column] = sign
    return weights
