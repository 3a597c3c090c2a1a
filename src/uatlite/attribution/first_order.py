"""A model, texts and a configuration, made ready for attribution, and its passes under any noise.

Attribution asks how one pass's own masks move y. Gates must then not depend on other passes: they are set by the
closed-form U of the embedding block, which is what the lagged estimate tends to. Masks are independent, as the
stratified ones tie passes together on purpose.

The parts of a network that noise is attributed to: the embedding block, each layer's components, the head.

A part is the set of all site calls of one component in one layer, or of one layer as a whole. Parts are in forward
order, so "up to a part" has a meaning: what was drawn until then decides the hidden state that the next receives.

The scalar whose variance is attributed: a contrast of logits, y = Σ_c w_c·logit_c, fixed for each text.

The weights w (batch, classes) come from the logits of the pass without dropout, so that every estimator and every
stochastic pass looks at the same y, also where a pass would predict another class.

    predicted    logit of the predicted class minus the mean of the rest (default)
    margin       logit of the predicted class minus that of the runner-up
    an integer   logit of that class minus the mean of the rest

With two classes all of them are the same up to sign.

First-order variance from one forward and one backward pass: the delta method on dropout's multipliers.

Dropout multiplies the values x at a site by independent m with mean 1 and variance p/(1-p). To first order
y(m) = y(1) + Σ g·(m - 1) with g = ∂y/∂m = x·∂y/∂x at m = 1, so

    Var(y) ≈ Σ over sites Σ g² · p/(1-p)

and each term says where its part of the variance comes from: which layer, which component, which token. A term of the
attention probabilities belongs to the query token, whose mixture it disturbs. Terms of the head, after pooling, and of
DeBERTa's table of relative positions belong to no token.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, check_choice
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.intervention import ATTENTION, CLASSIFIER, EMBEDDING, EMBEDDINGS, FEED_FORWARD, HEAD, Site, intervene
from uatlite.model.view import View, view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import (
    MEMORY_BUDGET,
    Chunk,
    check_fired,
    check_samples,
    forward_folded,
    keep_freed_memory,
    plan_chunks,
    position_rate,
)
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.masks import Fired, Noise, Texts

MakeNoise = Callable[[Texts, range], Noise]
"""Noise for the texts of a chunk and the passes of a block."""


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
    def classes(self) -> int:
        """How many logits a text has."""
        ids = self.inputs["input_ids"]
        return int(ids.shape[1] if ids.ndim == 3 else self.view.model.config.num_labels)

    @property
    def texts_at_once(self) -> int | None:
        """1 where a mask that a whole forward shares must be one text's; None for as many as fit."""
        return 1 if position_rate(self.view, self.config) > 0 else None


def with_fixed_gates(config: UATConfig) -> UATConfig:
    """The same configuration with gates that depend on the text alone, and independent masks."""
    if config.modulates and (config.estimate == "layerwise" or config.uncertainty.endswith("+ln")):
        raise ConfigurationError(
            f"attribution needs gates that no pass can move, by the closed form of U; estimate={config.estimate!r} "
            f"with uncertainty={config.uncertainty!r} has none. Use estimate='lagged' or 'closed-form' and an "
            "uncertainty without '+ln', or gate='none'."
        )
    return replace(
        config, estimate="closed-form", masks="independent", uncertainty=config.uncertainty.removesuffix("+ln")
    )


class Silent:
    """Noise at the configuration's rates that perturbs nothing: the pass without dropout, with every call on record."""

    def __init__(self, config: UATConfig) -> None:
        self._config = config

    def rate(self, site: Site, layer: int) -> float:
        return self._config.rates.of(site.component, site.own_rate)

    def perturb(self, call: Fired, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Forward:
    """One folded forward: the texts and passes that ran, and what came of them."""

    chunk: Chunk
    block: range
    """which of the passes that were asked for, counted from 0"""
    folded: FoldedPasses
    noise: Noise
    logits: Tensor
    """(passes, texts, classes)"""


def forwards(case: Case, passes: range, make_noise: MakeNoise) -> Iterator[Forward]:
    """Run some passes over all texts, chunk of texts by chunk, and within it block of passes by block."""
    keep_freed_memory()
    plan = replace(case.config, samples=len(passes))
    one_pass = position_rate(case.view, case.config) > 0
    texts_at_once = case.texts_at_once if case.config.per_input else None
    for chunk in plan_chunks(case.inputs["attention_mask"], case.view, plan, texts_at_once, MEMORY_BUDGET, one_pass):
        inputs = {name: chunk.take(value) for name, value in case.inputs.items()}
        ids, real = inputs["input_ids"].flatten(0, -2), inputs["attention_mask"].flatten(0, -2)
        texts = Texts.of(ids, real, case.config.per_input)
        for block in chunk.blocks:
            numbers = passes[block.start : block.stop]
            noise = make_noise(texts, numbers)
            folded = FoldedPasses(case.config, texts, real.bool(), numbers, noise=noise)
            logits = forward_folded(case.view, inputs, folded, len(numbers))
            yield Forward(chunk, block, folded, noise, logits)


def run(case: Case, passes: range, make_noise: MakeNoise) -> Tensor:
    """Logits (passes, batch, classes) of some passes under a noise."""
    logits = torch.zeros((len(passes), len(case.real), case.classes), device=case.real.device)
    for forward in forwards(case, passes, make_noise):
        logits[forward.block.start : forward.block.stop, forward.chunk.rows] = forward.logits
    return logits


@dataclass(frozen=True)
class Quiet:
    """The pass without dropout."""

    logits: Tensor
    """(batch, classes)"""
    calls: tuple[Fired, ...]
    """the site calls that would drop units, in forward order"""


def without_noise(case: Case) -> Quiet:
    """Run the pass without dropout, attention gated as the configuration says."""
    logits = torch.zeros((len(case.real), case.classes), device=case.real.device)
    calls: list[Fired] = []
    for forward in forwards(case, range(1), lambda texts, passes: Silent(case.config)):
        check_fired(case.view, case.config, forward.folded)
        logits[forward.chunk.rows] = forward.logits[0]
        calls = forward.folded.fired
    return Quiet(logits, tuple(calls))


COMPONENTS = (ATTENTION, FEED_FORWARD)
"""What a layer is made of, in forward order."""


@dataclass(frozen=True)
class Part:
    """Some components of one layer; EMBEDDINGS and HEAD count as layers."""

    layer: int
    components: tuple[str, ...]

    def holds(self, component: str, layer: int) -> bool:
        """Whether a site of a component that `layer` calls belongs to this part."""
        return layer == self.layer and component in self.components

    def contains(self, other: "Part") -> bool:
        """Whether all of another part belongs to this one."""
        return other.layer == self.layer and set(other.components) <= set(self.components)


def whole_layers(layers: int) -> tuple[Part, ...]:
    """The embedding block, each layer as a whole, the head: layers + 2 parts in forward order."""
    return _between([Part(layer, COMPONENTS) for layer in range(layers)])


def split_layers(layers: int) -> tuple[Part, ...]:
    """The embedding block, each layer's attention and feed-forward, the head: 2·layers + 2 parts in forward order."""
    return _between([Part(layer, (component,)) for layer in range(layers) for component in COMPONENTS])


def _between(middle: list[Part]) -> tuple[Part, ...]:
    return Part(EMBEDDINGS, (EMBEDDING,)), *middle, Part(HEAD, (CLASSIFIER,))


def part_index(layer: int, component: str, layers: int) -> int:
    """Where a component of a layer stands among `split_layers`."""
    if layer in (EMBEDDINGS, HEAD):
        return 0 if layer == EMBEDDINGS else 2 * layers + 1
    return 1 + 2 * layer + COMPONENTS.index(component)


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


def output_weights(output: str | int, logits: Tensor) -> Tensor:
    """The weights w (batch, classes) of y for logits without dropout (batch, classes)."""
    classes = logits.shape[-1]
    if isinstance(output, int):
        if isinstance(output, bool) or not 0 <= output < classes:
            raise ConfigurationError(f"output={output!r} is no class of this model; it has classes 0 to {classes - 1}.")
        return against_rest(torch.full((len(logits),), output, device=logits.device), classes)
    check_choice("output", output, OUTPUTS)
    return OUTPUTS[output](logits)


ONE_PASS = UATConfig(samples=1, gate="none")
"""What chunks of texts are planned for."""


@dataclass(frozen=True)
class FirstOrder:
    """The pass without dropout and the first-order variance of y around it."""

    logits: Tensor
    """(batch, classes)"""
    parts: Tensor
    """variance by part in forward order: (batch, 2·layers + 2)"""
    tokens: Tensor
    """variance by token: (batch, [choices,] tokens)"""
    token_uncertainty: Tensor
    """closed-form U: (batch, [choices,] tokens)"""


class Recorder(Silent):
    """Silent noise that keeps the values at each call, to differentiate y by what would multiply them."""

    def __init__(self, config: UATConfig) -> None:
        super().__init__(config)
        self.calls: list[Fired] = []
        self.values: list[Tensor] = []

    def perturb(self, call: Fired, x: Tensor) -> Tensor:
        if call.rate == 0:
            return x
        # A tensor of its own: the site's input may be read elsewhere too, past the dropout. Where no parameter
        # wants a gradient, the first site is where the graph begins.
        values = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
        self.calls.append(call)
        self.values.append(values)
        return values


def first_order(case: Case, output: str | int) -> FirstOrder:
    """The first-order variance of y for each text, by part and by token."""
    keep_freed_memory()
    mask, layers = case.inputs["attention_mask"], case.view.layers
    # The graph keeps the activations of all layers, and about as much again is alive in the backward pass.
    budget = MEMORY_BUDGET // (2 * layers)
    whole = FirstOrder(
        logits=torch.zeros((len(mask), case.classes), device=mask.device),
        parts=torch.zeros((len(mask), 2 * layers + 2), device=mask.device),
        tokens=torch.zeros(mask.shape, device=mask.device),
        token_uncertainty=torch.zeros(mask.shape, device=mask.device),
    )
    for chunk in plan_chunks(mask, case.view, ONE_PASS, case.texts_at_once, budget, one_pass=False):
        found = _chunk(case, chunk, output)
        whole.logits[chunk.rows] = found.logits
        whole.parts[chunk.rows] = found.parts
        whole.tokens[chunk.rows, ..., : chunk.tokens] = found.tokens
        whole.token_uncertainty[chunk.rows, ..., : chunk.tokens] = found.token_uncertainty
    return whole


def _chunk(case: Case, chunk: Chunk, output: str | int) -> FirstOrder:
    recorder = Recorder(case.config)
    # Not even a caller's inference mode may keep the graph from being built. Only gradients with respect to the
    # recorded values are asked for, so none is computed for the parameters and none is left on them.
    with torch.inference_mode(False), torch.enable_grad():
        inputs = {name: chunk.take(value) for name, value in case.inputs.items()}
        real = inputs["attention_mask"].flatten(0, -2)
        texts = Texts.of(inputs["input_ids"].flatten(0, -2), real, per_input=False)
        narrow = case.view.narrow_layer(from_the_left=texts.positions is None)
        folded = FoldedPasses(case.config, texts, real.bool(), range(1), noise=recorder, narrow_layer=narrow)
        with intervene(folded):
            logits = case.view.model(**inputs, return_dict=True).logits.float()
        y = (output_weights(output, logits.detach()) * logits).sum()
        gradients = torch.autograd.grad(y, recorder.values, allow_unused=True)
    check_fired(case.view, case.config, folded)
    assert folded.estimates is not None
    shape = inputs["input_ids"].shape
    parts, tokens = _terms(recorder, gradients, shape, case.view.layers)
    return FirstOrder(logits.detach(), parts, tokens, folded.estimates[-1].detach().view(shape))


@torch.no_grad()
def _terms(
    recorder: Recorder, gradients: tuple[Tensor | None, ...], shape: torch.Size, layers: int
) -> tuple[Tensor, Tensor]:
    """Sum g²·p/(1-p) by part (texts, 2·layers + 2) and by token (texts, [choices,] tokens)."""
    device = recorder.values[0].device
    parts = torch.zeros((shape[0], 2 * layers + 2), device=device)
    tokens = torch.zeros((shape[:-1].numel(), shape[-1]), device=device)
    for call, values, gradient in zip(recorder.calls, recorder.values, gradients, strict=True):
        if gradient is None:  # y does not depend on this call
            continue
        squares = (values * gradient).float().square() * (call.rate / (1 - call.rate))
        place = parts[:, part_index(call.layer, call.site.component, layers)]
        if call.site.role == "position":
            place += squares.sum()  # one text a forward
            continue
        if squares.ndim == 4:
            squares = squares.sum(dim=1)  # (rows, heads, query, key): over heads, and below over keys
        terms = squares.sum(dim=-1)  # (rows, tokens), the first alone in a narrow layer, or (rows,) after pooling
        if terms.ndim == 2:
            tokens[:, : terms.shape[1]] += terms
        place += terms.view(shape[0], -1).sum(dim=1)
    return parts, tokens.view(shape)
