"""First-order variance from one forward and one backward pass: the delta method on dropout's multipliers.

Dropout multiplies the values x at a site by independent m with mean 1 and variance p/(1-p). To first order
y(m) = y(1) + Σ g·(m - 1) with g = ∂y/∂m = x·∂y/∂x at m = 1, so

    Var(y) ≈ Σ over sites Σ g² · p/(1-p)

and each term belongs to a layer, a component and a token. A term of the attention probabilities belongs to the query
token. Terms of the head, after pooling, and of DeBERTa's table of relative positions belong to no token.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uatlite.attribution.case import Case, NoDropout, Output, output_weights, part_index
from uatlite.model.intervention import intervene
from uatlite.model.plain import forward_and_read
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import (
    MEMORY_BUDGET,
    Chunk,
    check_fired,
    chunks_of,
    in_order,
    keep_freed_memory,
    position_rate,
)
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.masks import SiteCall, Texts


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
    representation: Tensor | None
    """what the head reads: (batch, units); None where it cannot be seen"""


class Recorder(NoDropout):
    """No dropout; it records the values at each call, to differentiate y by their multipliers."""

    def __init__(self, config: UATConfig) -> None:
        super().__init__(config)
        self.calls: list[SiteCall] = []
        self.values: list[Tensor] = []

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.rate == 0:
            return x
        # A separate tensor: the site's input may also be read elsewhere, past the dropout. If no parameter requires a
        # gradient, the graph begins at the first site.
        values = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
        self.calls.append(call)
        self.values.append(values)
        return values


def first_order(case: Case, output: Output) -> FirstOrder:
    """The first-order variance of y for each text, by part and by token."""
    keep_freed_memory()
    mask, layers = case.inputs["attention_mask"], case.view.layers
    # The graph keeps the activations of all layers, and the backward pass needs about as much again.
    budget = MEMORY_BUDGET // (2 * layers)
    read: list[tuple[Tensor, Tensor | None]] = []
    whole = FirstOrder(
        logits=torch.zeros((len(mask), case.classes), device=mask.device),
        parts=torch.zeros((len(mask), 2 * layers + 2), device=mask.device),
        tokens=torch.zeros(mask.shape, device=mask.device),
        token_uncertainty=torch.zeros(mask.shape, device=mask.device),
        representation=None,
    )
    texts = 1 if position_rate(case.view, case.config) > 0 else None  # a table that a forward shares must be one text's
    for chunk in chunks_of(case.inputs, case.view, case.config, range(1), texts, budget):
        found = _chunk(case, chunk, output)
        read.append((chunk.rows, found.representation))
        whole.logits[chunk.rows] = found.logits
        whole.parts[chunk.rows] = found.parts
        whole.tokens[chunk.rows, ..., : chunk.tokens] = found.tokens
        whole.token_uncertainty[chunk.rows, ..., : chunk.tokens] = found.token_uncertainty
    return replace(whole, representation=in_order(read))


def _chunk(case: Case, chunk: Chunk, output: Output) -> FirstOrder:
    recorder = Recorder(case.config)
    # The graph is built even in a caller's inference mode. Only gradients with respect to the recorded values are
    # computed, so none is left on the parameters.
    with torch.inference_mode(False), torch.enable_grad():
        inputs = chunk.inputs(case.inputs)
        texts = Texts.of(inputs, per_input=False)
        narrow = case.view.narrow_layer(from_the_left=texts.positions is None)
        folded = FoldedPasses(case.config, texts, range(1), noise=recorder, narrow_layer=narrow)
        with intervene(folded):
            logits, read = forward_and_read(case.view.model, inputs, return_dict=True)
            logits = logits.float()
        y = (output_weights(output, logits.detach()) * logits).sum()
        gradients = torch.autograd.grad(y, recorder.values, allow_unused=True)
    check_fired(case.view, case.config, folded)
    assert folded.estimates is not None
    shape = inputs["input_ids"].shape
    parts, tokens = _terms(recorder, gradients, shape, case.view.layers)
    uncertainty = folded.estimates[-1].detach().view(shape)
    return FirstOrder(logits.detach(), parts, tokens, uncertainty, None if read is None else read.detach())


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
