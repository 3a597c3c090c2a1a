"""First-order variance from one forward and one backward pass: the delta method on dropout's multipliers.

Dropout multiplies the values x at a site by independent m with mean 1 and variance p/(1-p). To first order
y(m) = y(1) + Σ g·(m - 1) with g = ∂y/∂m = x·∂y/∂x at m = 1, so

    Var(y) ≈ Σ over sites Σ g² · p/(1-p)

and each term belongs to a layer, a component and a token. A term of the attention probabilities belongs to the query
token. Terms of the head, after pooling, and of DeBERTa's table of relative positions belong to no token.

Several outputs y share the forward pass: k of them, for each text of a batch, cost one forward and k backward passes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.case import OUTPUTS, Case, NoDropout, Output, output_weights, part_index
from uatlite.model.intervention import intervene
from uatlite.model.plain import forward_and_read
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import SiteCall, Texts
from uatlite.passes.engine import (
    Chunk,
    check_fired,
    chunks_of,
    in_order,
    keep_freed_memory,
    place,
    position_rate,
)
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.graph import MEMORY_BUDGET

Choose = Callable[[Tensor, Tensor], Tensor]
"""From indices of texts (texts,) and their logits (texts, ...) to the weights of k outputs (k, texts, ...).

The weights of an output are 0 for a text that has fewer of them.
"""
Candidates = Callable[[Tensor, Tensor], Tensor]
"""From indices of texts (texts,) and logits (texts, tokens, classes) to which tokens are asked for (texts, tokens)."""


@dataclass(frozen=True)
class FirstOrder:
    """The pass without dropout and the first-order variance of y around it; of k outputs with their axis in front."""

    logits: Tensor
    """(batch, classes), of a token classifier (batch, tokens, classes)"""
    parts: Tensor
    """variance by part in forward order: ([k,] batch, 2·layers + 2)"""
    tokens: Tensor
    """variance by token: ([k,] batch, [choices,] tokens)"""
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
    found = first_orders(case, lambda rows, logits: output_weights(output, logits)[None])
    if not len(found.parts):  # no texts
        return replace(found, parts=found.parts.sum(dim=0), tokens=found.tokens.sum(dim=0))
    return replace(found, parts=found.parts[0], tokens=found.tokens[0])


def first_orders(case: Case, choose: Choose) -> FirstOrder:
    """The first-order variances of several outputs of each text, by part and by token."""
    keep_freed_memory()
    mask, layers = case.inputs["attention_mask"], case.view.layers
    # The graph keeps the activations of all layers, and the backward pass needs about as much again.
    budget = MEMORY_BUDGET // (2 * layers)
    texts = 1 if position_rate(case.view, case.config) > 0 else None  # a table that a forward shares must be one text's
    chunks = chunks_of(case.inputs, case.view, case.config, range(1), texts, budget)
    found = [(chunk, _chunk(case, chunk, choose)) for chunk in chunks]
    most = max((len(one.parts) for _, one in found), default=0)
    whole = FirstOrder(
        logits=torch.zeros(case.shape, device=mask.device),
        parts=torch.zeros((most, len(mask), 2 * layers + 2), device=mask.device),
        tokens=torch.zeros((most, *mask.shape), device=mask.device),
        token_uncertainty=torch.zeros(mask.shape, device=mask.device),
        representation=in_order([(chunk, one.representation) for chunk, one in found], case.padded),
    )
    for chunk, one in found:
        place(whole.logits, chunk, one.logits, case.padded)
        whole.parts[: len(one.parts), chunk.rows] = one.parts
        whole.tokens[: len(one.parts), chunk.rows, ..., : chunk.tokens] = one.tokens
        whole.token_uncertainty[chunk.rows, ..., : chunk.tokens] = one.token_uncertainty
    return whole


def _chunk(case: Case, chunk: Chunk, choose: Choose) -> FirstOrder:
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
        weights = choose(chunk.rows, logits.detach())
        shape, layers = inputs["input_ids"].shape, case.view.layers
        parts = torch.zeros((len(weights), shape[0], 2 * layers + 2), device=logits.device)
        tokens = torch.zeros((len(weights), *shape), device=logits.device)
        for number, output in enumerate(weights):
            y, last = (output * logits).sum(), number == len(weights) - 1
            gradients = torch.autograd.grad(y, recorder.values, allow_unused=True, retain_graph=not last)
            parts[number], tokens[number] = _terms(recorder, gradients, shape, layers)
    check_fired(case.view, case.config, folded)
    assert folded.estimates is not None
    uncertainty = folded.estimates[-1].detach().view(shape)
    return FirstOrder(logits.detach(), parts, tokens, uncertainty, None if read is None else read.detach())


def every_logit(rows: Tensor, logits: Tensor) -> Tensor:
    """The weights of outputs that are the logits themselves, as of many labels: (labels, texts, labels)."""
    return torch.eye(logits.shape[-1], device=logits.device)[:, None].expand(-1, len(logits), -1)


def token_margins(
    model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig, candidates: Candidates
) -> tuple[FirstOrder, Tensor]:
    """The first-order variance of the margin (top-1 minus top-2 logit) of chosen tokens of each text.

    It is (batch, tokens), NaN for tokens that were not chosen. A text with k chosen tokens costs one forward and k
    backward passes, which the texts of a batch share.
    """
    case = Case.of(model, encoded, config)
    number = torch.full(case.real.shape, -1, device=case.real.device)  # of each chosen token among its text's

    def choose(rows: Tensor, logits: Tensor) -> Tensor:
        chosen = candidates(rows, logits).to(logits.device)
        numbers = torch.where(chosen, chosen.long().cumsum(dim=1) - 1, -1)
        number[rows, : logits.shape[1]] = numbers
        margins = OUTPUTS["margin"](logits.flatten(0, 1)).view_as(logits)
        outputs = torch.arange(int(numbers.max()) + 1, device=logits.device)
        return margins * (numbers == outputs[:, None, None])[..., None]

    found = first_orders(case, choose)
    variances = found.parts.sum(dim=-1)  # (outputs, batch)
    known = number >= 0
    rows = torch.arange(len(number), device=number.device)[:, None].expand_as(number)
    result = torch.full(number.shape, torch.nan, device=number.device)
    result[known] = variances[number[known], rows[known]]
    return found, result


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
