"""First-order variance from one forward and one backward pass: the delta method on dropout's multipliers.

Dropout multiplies the values x at a site by independent m with mean 1 and variance p/(1-p). To first order
y(m) = y(1) + Σ g·(m - 1) with g = ∂y/∂m = x·∂y/∂x at m = 1, so

    Var(y) ≈ Σ over sites Σ g² · p/(1-p)

and each term belongs to a layer, a component and a token. A term of the attention probabilities belongs to the query
token. Terms of the head, after pooling, and of DeBERTa's table of relative positions belong to no token.

Several outputs y share the forward pass: k of them, for each text of a batch, cost one forward and k backward passes.
The backward passes of short texts run together, as one over k rows for each text, which is cheaper than k.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    MEMORY_BUDGET,
    Chunk,
    check_fired,
    chunks_of,
    in_order,
    keep_freed_memory,
    place,
    position_rate,
)
from uatlite.passes.forward import FoldedPasses

BACKWARD_TOKENS = 256
"""Most tokens of the backward passes that run together; with more of them, one after the other is as fast."""

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
        together = max(1, BACKWARD_TOKENS // shape.numel())
        for some, gradients in _gradients(logits, weights, recorder.values, together):
            parts[some], tokens[some] = _terms(recorder, gradients, shape, layers)
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


def _gradients(
    logits: Tensor, weights: Tensor, values: Sequence[Tensor], together: int
) -> Iterator[tuple[slice, Sequence[Tensor | None]]]:
    """The gradients of some outputs at a time by each of the values: (outputs, *its shape), None if all are 0.

    The graph is freed after the last.
    """
    for start in range(0, len(weights), together):
        some = slice(start, min(start + together, len(weights)))
        keep, outputs = some.stop < len(weights), weights[some]
        if len(outputs) > 1:
            found = torch.autograd.grad(
                logits, values, outputs, retain_graph=keep, allow_unused=True, is_grads_batched=True
            )
        else:
            alone = torch.autograd.grad(logits, values, outputs[0], retain_graph=keep, allow_unused=True)
            found = tuple(None if one is None else one[None] for one in alone)
        yield some, found


@torch.no_grad()
def _terms(
    recorder: Recorder, gradients: Sequence[Tensor | None], shape: torch.Size, layers: int
) -> tuple[Tensor, Tensor]:
    """Sum g²·p/(1-p) by part (outputs, texts, 2·layers + 2) and by token (outputs, texts, [choices,] tokens)."""
    texts, width, known = shape[0], shape[-1], [gradient for gradient in gradients if gradient is not None]
    device, outputs = known[0].device, len(known[0])
    # by call and token, and in the last column what belongs to no token
    terms = torch.zeros((len(gradients), outputs, shape[:-1].numel(), width + 1), device=device)
    for own, call, values, gradient in zip(terms, recorder.calls, recorder.values, gradients, strict=True):
        if gradient is None:  # no output depends on this call
            continue
        squares = (values * gradient).float().square_()
        if call.site.role == "position":
            own[..., width] = squares.sum(dim=(1, 2))[:, None]  # of a table; one text a forward
            continue
        if squares.ndim == 5:
            squares = squares.sum(dim=2)  # (outputs, rows, heads, query, key): over heads, and below over keys
        sums = squares.sum(dim=-1)  # (outputs, rows, tokens), the first alone in a narrow layer; (outputs, rows) pooled
        if sums.ndim == 3:
            own[..., : sums.shape[-1]] = sums
        else:
            own[..., width] = sums
    terms *= torch.tensor([call.rate / (1 - call.rate) for call in recorder.calls], device=device).view(-1, 1, 1, 1)
    places = [part_index(call.layer, call.site.component, layers) for call in recorder.calls]
    parts = torch.zeros((2 * layers + 2, outputs, texts), device=device)
    parts.index_add_(0, torch.tensor(places, device=device), terms.view(len(terms), outputs, texts, -1).sum(dim=-1))
    return parts.movedim(0, -1), terms.sum(dim=0)[..., :width].reshape(outputs, *shape)
