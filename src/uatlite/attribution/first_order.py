"""First-order variance from one forward and one backward pass: the delta method on dropout's multipliers.

Dropout multiplies the values x at a site by independent m with mean 1 and variance p/(1-p). To first order
y(m) = y(1) + Σ g·(m - 1) with g = ∂y/∂m = x·∂y/∂x at m = 1, so

    Var(y) ≈ Σ over sites Σ g² · p/(1-p)

and each term says where its part of the variance comes from: which layer, which component, which token. A term of the
attention probabilities belongs to the query token, whose mixture it disturbs. Terms of the head, after pooling, and of
DeBERTa's table of relative positions belong to no token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from uatlite.attribution.case import Case, Silent
from uatlite.attribution.output import output_weights
from uatlite.attribution.parts import part_index
from uatlite.backbone.seams import intervene
from uatlite.passes.chunks import MEMORY_BUDGET, Chunk, keep_freed_memory, plan_chunks
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import check_fired
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.noise import Fired, Texts

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
