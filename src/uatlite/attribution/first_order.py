"""What is attributed, and its first-order variance: the delta method on dropout's multipliers.

Attribution asks how one pass's own masks move an output y. Gates must then not depend on other passes, so they are set
by the closed-form U of the embedding block, the limit of the lagged estimate. Masks are independent, as stratified ones
tie passes together.

The output is a contrast of logits, y = Σ_c w_c·logit_c. The weights w (batch, classes) come from the logits without
dropout, so that every estimator and every pass uses the same y for a text, also if a pass predicts another class.

    predicted    logit of the predicted class minus the mean of the rest (default)
    margin       logit of the predicted class minus that of the runner-up
    an integer   logit of that class minus the mean of the rest
    two integers logit of the first class minus that of the second
    a function   k outputs of each text, by their weights, as the logits of many labels or the margins of tokens

With two classes all but the last are the same up to sign.

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
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, check_choice
from uatlite.model.architectures import check_encoded, unwrap
from uatlite.model.intervention import ATTENTION, EMBEDDINGS, FEED_FORWARD, HEAD, intervene
from uatlite.model.plain import forward_and_read
from uatlite.model.view import View, view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import Noise, SiteCall, Texts
from uatlite.passes.engine import (
    Chunk,
    Forward,
    MakeNoise,
    check_fired,
    check_samples,
    in_order,
    keep_freed_memory,
    over_chunks,
    place,
    position_rate,
    room_on,
    run_chunk,
)
from uatlite.passes.forward import FoldedPasses

BACKWARD_TOKENS = 256
"""Most tokens of the backward passes that run together; with more of them, one after the other is as fast."""

Weigh = Callable[[Tensor, Tensor], Tensor]
"""From indices of texts (texts,) and their logits (texts, ...) to the weights of k outputs (k, texts, ...).

The weights of an output are 0 for a text that has fewer of them.
"""
Candidates = Callable[[Tensor, Tensor], Tensor]
"""From indices of texts (texts,) and logits (texts, tokens, classes) to which tokens are asked for (texts, tokens)."""


Output = str | int | tuple[int, int]
"""The name of an output, a class, or two classes."""
LAYER_COMPONENTS = (ATTENTION, FEED_FORWARD)
"""The components of a layer, in forward order."""


def part_index(layer: int, component: str, layers: int) -> int:
    """The index of a layer's component among the embedding block, the components of each layer in turn, the head."""
    if layer in (EMBEDDINGS, HEAD):
        return 0 if layer == EMBEDDINGS else 2 * layers + 1
    return 1 + 2 * layer + LAYER_COMPONENTS.index(component)


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
        if not any(config.rates.at(site) for site in view.sites):
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


def forwards(case: Case, passes: range, make_noise: MakeNoise) -> Iterator[Forward]:
    """Run some passes over all texts: chunk by chunk of texts, and within it block by block of passes."""
    keep_freed_memory()

    def run_all(chunk: Chunk) -> list[Forward]:
        return list(run_chunk(case.view, case.inputs, chunk, case.config, make_noise))

    for _, blocks in over_chunks(case.inputs, case.view, case.config, passes, run_all):
        yield from blocks


def run(case: Case, passes: range, make_noise: MakeNoise) -> Tensor:
    """Logits (passes, batch, classes) of some passes under a noise."""
    logits = torch.zeros((len(passes), *case.shape), device=case.real.device)
    for forward in forwards(case, passes, make_noise):
        block = slice(forward.passes.start - passes.start, forward.passes.stop - passes.start)
        place(logits[block].transpose(0, 1), forward.chunk, forward.logits.transpose(0, 1), case.padded)
    return logits


def without_noise(case: Case) -> tuple[Tensor, tuple[SiteCall, ...], Tensor]:
    """Logits (batch, classes) of the pass without dropout; the calls that would drop units, in forward order; and U
    (batch, [choices,] tokens) as `sample` finds it, which embeddings and masks alone decide."""
    logits, u = torch.zeros(case.shape, device=case.real.device), torch.zeros_like(case.real, dtype=torch.float)
    calls: list[SiteCall] = []
    for forward in forwards(case, range(1), lambda texts, passes: Noise(case.config)):
        check_fired(case.view, case.config, forward.folded)
        place(logits, forward.chunk, forward.logits[0], case.padded)
        calls, rows, width = forward.folded.fired, forward.chunk.rows, forward.chunk.tokens
        assert forward.folded.estimates is not None
        u[rows, ..., :width] = forward.folded.estimates[-1].view(len(rows), *u.shape[1:-1], width)
    return logits, tuple(calls), u


def against_rest(chosen: Tensor, classes: int) -> Tensor:
    """w = 1 at the chosen class (batch,), -1/(classes - 1) elsewhere: (batch, classes)."""
    weights = torch.full((len(chosen), classes), -1.0 / (classes - 1), device=chosen.device)
    return weights.scatter_(1, chosen[:, None], 1.0)


def _margin(logits: Tensor) -> Tensor:
    best = logits.topk(2, dim=-1).indices
    signs = torch.tensor([1.0, -1.0], device=logits.device).expand(len(logits), 2)
    return torch.zeros_like(logits).scatter_(1, best, signs)


# name -> the weights (batch, classes) from logits without dropout (batch, classes)
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "predicted": lambda logits: against_rest(logits.argmax(dim=-1), logits.shape[-1]),
    "margin": _margin,
}


def output_weights(output: Output, logits: Tensor) -> Tensor:
    """The weights w (batch, classes) of y for logits without dropout (batch, classes)."""
    classes = logits.shape[-1]
    if isinstance(output, str):
        check_choice("output", output, OUTPUTS)
        return OUTPUTS[output](logits)
    named = output if isinstance(output, tuple) else (output,)
    if len(set(named)) != len(named) or any(isinstance(column, bool) or not 0 <= column < classes for column in named):
        raise ConfigurationError(
            f"output={output!r} is no class of this model, and no two of them; it has classes 0 to {classes - 1}."
        )
    if isinstance(output, int):
        return against_rest(torch.full((len(logits),), output, device=logits.device), classes)
    weights = torch.zeros_like(logits)
    for column, sign in zip(named, (1.0, -1.0), strict=False):
        weights[:, column] = sign
    return weights


@dataclass(frozen=True)
class FirstOrder:
    """The pass without dropout and the first-order variances of k outputs around it."""

    logits: Tensor
    """(batch, classes), of a token classifier (batch, tokens, classes)"""
    parts: Tensor
    """variance by part in forward order, see `part_index`: (k, batch, 2·layers + 2)"""
    tokens: Tensor
    """variance by token: (k, batch, [choices,] tokens)"""
    token_uncertainty: Tensor
    """closed-form U: (batch, [choices,] tokens)"""
    representation: Tensor | None
    """what the head reads: (batch, units); None where it cannot be seen"""


class Recorder(Noise):
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


def first_orders(case: Case, output: Output | Weigh) -> FirstOrder:
    """The first-order variances of an output, or of several, of each text, by part and by token."""
    choose = output if callable(output) else lambda rows, logits: output_weights(output, logits)[None]
    keep_freed_memory()
    mask, layers = case.inputs["attention_mask"], case.view.layers
    # The graph keeps the activations of all layers, and the backward pass needs about as much again.
    budget = room_on(mask.device) // (2 * layers)
    texts = 1 if position_rate(case.view, case.config) > 0 else None  # a table that a forward shares must be one text's
    differentiate = partial(_chunk, case, choose)
    parts = list(over_chunks(case.inputs, case.view, case.config, range(1), differentiate, texts=texts, budget=budget))
    most = max((len(values.parts) for _, values in parts), default=1)
    joined = FirstOrder(
        logits=torch.zeros(case.shape, device=mask.device),
        parts=torch.zeros((most, len(mask), 2 * layers + 2), device=mask.device),
        tokens=torch.zeros((most, *mask.shape), device=mask.device),
        token_uncertainty=torch.zeros(mask.shape, device=mask.device),
        representation=in_order([(chunk, values.representation) for chunk, values in parts], mask, case.padded),
    )
    for chunk, values in parts:
        place(joined.logits, chunk, values.logits, case.padded)
        joined.parts[: len(values.parts), chunk.rows] = values.parts
        joined.tokens[: len(values.parts), chunk.rows, ..., : chunk.tokens] = values.tokens
        joined.token_uncertainty[chunk.rows, ..., : chunk.tokens] = values.token_uncertainty
    return joined


def _chunk(case: Case, choose: Weigh, chunk: Chunk) -> FirstOrder:
    recorder = Recorder(case.config)
    # The graph is built even in a caller's inference mode. Only gradients with respect to the recorded values are
    # computed, so none is left on the parameters.
    with torch.inference_mode(False), torch.enable_grad():
        inputs = chunk.inputs(case.inputs)
        texts = Texts.of(inputs, per_input=False, shifted=chunk.shifted)
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

    margins = first_orders(case, choose)
    variances = margins.parts.sum(dim=-1).T  # (batch, outputs)
    unknown = variances.new_full((len(variances), 1), torch.nan)
    return margins, torch.cat([unknown, variances], dim=1).gather(1, number + 1)


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
            gradients = torch.autograd.grad(
                logits, values, outputs, retain_graph=keep, allow_unused=True, is_grads_batched=True
            )
        else:
            alone = torch.autograd.grad(logits, values, outputs[0], retain_graph=keep, allow_unused=True)
            gradients = tuple(None if gradient is None else gradient[None] for gradient in alone)
        yield some, gradients


@torch.no_grad()
def _terms(
    recorder: Recorder, gradients: Sequence[Tensor | None], shape: torch.Size, layers: int
) -> tuple[Tensor, Tensor]:
    """Sum g²·p/(1-p) by part (outputs, texts, 2·layers + 2) and by token (outputs, texts, [choices,] tokens)."""
    texts, width, some = shape[0], shape[-1], next(gradient for gradient in gradients if gradient is not None)
    device, outputs = some.device, len(some)
    # by call and token, and in the last column what belongs to no token
    terms = torch.zeros((len(gradients), outputs, shape[:-1].numel(), width + 1), device=device)
    for term, call, values, gradient in zip(terms, recorder.calls, recorder.values, gradients, strict=True):
        if gradient is None:  # no output depends on this call
            continue
        squares = (values * gradient).float().square_()
        if call.site.role == "position":
            term[..., width] = squares.sum(dim=(1, 2))[:, None]  # of a table; one text a forward
            continue
        if squares.ndim == 5:
            squares = squares.sum(dim=2)  # (outputs, rows, heads, query, key): over heads, and below over keys
        sums = squares.sum(dim=-1)  # (outputs, rows, tokens), the first alone in a narrow layer; (outputs, rows) pooled
        if sums.ndim == 3:
            term[..., : sums.shape[-1]] = sums
        else:
            term[..., width] = sums
    terms *= torch.tensor([call.rate / (1 - call.rate) for call in recorder.calls], device=device).view(-1, 1, 1, 1)
    places = [part_index(call.layer, call.site.component, layers) for call in recorder.calls]
    parts = torch.zeros((2 * layers + 2, outputs, texts), device=device)
    parts.index_add_(0, torch.tensor(places, device=device), terms.view(len(terms), outputs, texts, -1).sum(dim=-1))
    return parts.movedim(0, -1), terms.sum(dim=0)[..., :width].reshape(outputs, *shape)
