"""One folded forward: M passes over some texts run as one batch.

The attention probabilities of all passes are the largest values of a forward, and those of long texts do not fit in the
caches. There attention runs in blocks of some heads and queries of one row, each from the logits to the context.
"""

import math
from collections import Counter

import torch
from torch import Tensor

from uatlite.model.intervention import EMBEDDINGS, HEAD, AttentionInput, Intervention, Site
from uatlite.passes import gates as u
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import DropoutNoise, Noise, SiteCall, Texts
from uatlite.passes.gates import NO_GATES, Gates, gates, modulate_probabilities

CACHED = 2**23
"""Most attention probabilities of a forward that stay in the caches of a processor between two operations: 32 MiB."""
_BLOCK = 2**18
"""Most attention probabilities of a block: with their mask they take 2 MiB, the second-level caches of two cores."""


class FoldedPasses(Intervention):
    """The intervention of a forward over rows = passes × texts, pass by pass.

    `noise` acts at the sites; by default it is the configuration's dropout. Token uncertainty and gates are those of
    the configuration whatever the noise.
    """

    def __init__(
        self,
        config: UATConfig,
        texts: Texts,
        passes: range,
        estimates: Tensor | None = None,
        noise: Noise | None = None,
        narrow_layer: int | None = None,
    ) -> None:
        super().__init__(narrow_layer)
        self._config = config
        self._dropout = DropoutNoise(config, texts, passes)
        self.noise: Noise = self._dropout if noise is None else noise
        self._real = texts.real
        self._passes = passes
        self._count = len(passes)
        self._calls: Counter[tuple[int, str]] = Counter()
        self._gates: Gates = NO_GATES
        self.estimates = estimates
        """the embedding block's U: (passes + 1, texts, tokens) lagged, else (1, texts, tokens)"""
        self.layer_uncertainty: list[Tensor] = []
        """with estimate='layerwise', U (texts, tokens) at the entrance of each layer"""
        self.fired: list[SiteCall] = []
        self.reached = 0
        """calls of sites that have a rate, also in a layer that drops nothing"""
        self.attended = 0

    def enter_layer(self, hidden: Tensor) -> None:
        super().enter_layer(hidden)
        if self._config.estimate == "layerwise" and self._config.modulates:
            estimate = u.from_samples(self._unfold(hidden.float()), self._config.uncertainty) * self._real
            self.layer_uncertainty.append(estimate)
            self._set_gates(estimate[None], hidden.dtype)

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        if site.role == "embedding":
            self._estimate(self._unfold(x)[0], self._config.rates.at(site))
        return self._perturb(site, x)

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, Tensor | None]:
        self.attended += 1
        if not self.narrows():
            return self._attend(site, inputs, self._layer_gates)
        context, probabilities = self._attend(site, inputs.of_first_token(), self._layer_gates.of_first_token())
        return context.expand_as(inputs.query), probabilities

    def _attend(self, site: Site, inputs: AttentionInput, g: Gates) -> tuple[Tensor, Tensor | None]:
        if self.noise is self._dropout and _runs_in_blocks(inputs):
            call = self._call(site)
            like = inputs.query.new_empty(1, dtype=torch.bool).expand(*inputs.query.shape[:3], inputs.key.shape[2])
            keep = self._dropout.attention(call.name, call.rate, like) if call.rate > 0 else None
            return attend_in_blocks(inputs, g, keep, call.rate), None
        scale = inputs.scaling if g.row is None else inputs.scaling * g.row[:, None, :, None]
        logits = _contiguous_product(inputs.query, scale) @ _scaled(inputs.key, g.column).transpose(-1, -2)
        _modulate(logits, g, inputs.mask)
        space = None if torch.is_grad_enabled() else logits  # the largest tensor of a forward
        probabilities = self._perturb(site, torch.softmax(logits, dim=-1, out=space))
        return probabilities @ _scaled(inputs.value, g.value), probabilities

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        self.attended += 1
        return self._perturb(site, modulate_probabilities(probabilities, self._layer_gates))

    def at_values(self, values: Tensor) -> Tensor:
        factor = self._layer_gates.value
        return values if factor is None else values * factor[..., None]

    def at_keys(self, keys: Tensor) -> Tensor:
        factor = self._layer_gates.column
        return keys if factor is None else keys * factor[..., None]

    def at_bias(self, bias: Tensor) -> Tensor:
        factor = self._layer_gates.column
        return bias if factor is None else bias * factor[:, None, None, :]

    @property
    def _layer_gates(self) -> Gates:
        """Those of the running layer."""
        return self._gates if self._config.gates_in(self.layer) else NO_GATES

    def _perturb(self, site: Site, x: Tensor) -> Tensor:
        return self.noise.perturb(self._call(site), x)

    def _call(self, site: Site) -> SiteCall:
        """The next call of a site, which is recorded if it drops units."""
        layer = HEAD if site.layer == HEAD else self.layer
        call = SiteCall(site, layer, self._calls[layer, site.role], self.noise.rate(site, layer))
        self._calls[layer, site.role] += 1
        self.reached += self._config.rates.at(site) > 0
        if call.rate > 0:
            self.fired.append(call)
        return call

    def _estimate(self, embedding: Tensor, rate: float) -> None:
        """Token uncertainty at the embedding block and, unless it is layerwise, the gates of all layers."""
        config = self._config
        if self.estimates is None:
            if config.estimate == "closed-form" and not config.uncertainty.endswith("+ln"):
                estimates = u.closed_form(embedding, rate, config.uncertainty)[None]
            else:
                estimates = self._sampled_estimates(embedding, rate)
            self.estimates = estimates * self._real
        if not config.modulates or config.estimate == "layerwise":
            return
        lagged = config.estimate == "lagged"
        estimates = self.estimates[self._passes.start : self._passes.stop] if lagged else self.estimates
        self._set_gates(estimates, embedding.dtype)

    def _sampled_estimates(self, embedding: Tensor, rate: float) -> Tensor:
        if rate == 0:
            return embedding.new_zeros((self._config.samples + 1, *embedding.shape[:-1]), dtype=torch.float32)
        site, name = f"{EMBEDDINGS}.embedding.0", self._config.uncertainty
        if name.endswith("+ln"):  # taken after LayerNorm: it needs the samples themselves
            every = range(self._config.samples)
            return u.lagged_normalised(embedding, self._dropout.hidden(site, rate, embedding, every), name)
        return u.lagged(embedding, self._dropout.moments(site, rate, embedding), name)

    def _set_gates(self, estimates: Tensor, dtype: torch.dtype) -> None:
        """Gates from U (passes or 1, texts, tokens), for every row of the folded batch."""
        rows = estimates.expand(self._count, -1, -1).flatten(0, 1)
        self._gates = gates(rows, self._config.gate, self._config.form, self._config.penalty).to(dtype)

    def _unfold(self, x: Tensor) -> Tensor:
        """(passes · texts, ...) as (passes, texts, ...)."""
        return x.reshape(self._count, -1, *x.shape[1:])


def _runs_in_blocks(inputs: AttentionInput) -> bool:
    """Whether the probabilities are too many for the caches; on a GPU one product over all of them is faster."""
    probabilities = inputs.query[..., 0].numel() * inputs.key.shape[2]
    return probabilities > CACHED and inputs.query.device.type == "cpu" and not torch.is_grad_enabled()


def attend_in_blocks(inputs: AttentionInput, g: Gates, keep: Tensor | None, rate: float) -> Tensor:
    """The context (rows, heads, queries, width) of gated attention whose probabilities are dropped if not kept.

    `keep` (passes, texts or 1, heads, queries, tokens) are bits; None drops nothing.
    """
    scale = inputs.scaling if g.row is None else inputs.scaling * g.row[:, None, :, None]
    query, key, value = inputs.query * scale, _scaled(inputs.key, g.column), _scaled(inputs.value, g.value)
    rows, heads, queries, _ = query.shape
    tokens = key.shape[2]
    context = value.new_empty(rows, queries, heads, value.shape[-1]).transpose(1, 2)
    masks = [None] if keep is None else list(keep.flatten(0, 1).view(torch.uint8))  # converts faster than bool
    sharing = rows // len(masks)  # texts with the same mask also share its conversion
    space = query.new_empty(2, max(_BLOCK, tokens))
    for number, mask in enumerate(masks):
        for block in _blocks(heads, queries, tokens):
            shape = (block[0].stop - block[0].start, block[1].stop - block[1].start, tokens)
            logits, factors = space[:, : math.prod(shape)].view(2, *shape)
            if mask is not None:
                factors.copy_(mask[block])
            for row in range(number * sharing, (number + 1) * sharing):
                torch.bmm(query[row][block], key[row, block[0]].transpose(-1, -2), out=logits)
                _modulate(logits[None], g.of_row(row, block[1]), inputs.mask_of(row, block[1]))
                torch.softmax(logits, dim=-1, out=logits)
                if mask is not None:
                    logits *= factors
                context[row][block].baddbmm_(logits, value[row, block[0]], beta=0, alpha=1 / (1 - rate))
    return context


def _blocks(heads: int, queries: int, tokens: int) -> list[tuple[slice, slice]]:
    """Heads and queries of one row whose probabilities are at most BLOCK, or those of a single query."""
    some_heads = min(heads, max(1, _BLOCK // (queries * tokens)))
    some_queries = min(queries, max(1, _BLOCK // tokens))
    return [
        (slice(h, min(h + some_heads, heads)), slice(q, min(q + some_queries, queries)))
        for h in range(0, heads, some_heads)
        for q in range(0, queries, some_queries)
    ]


def _modulate(logits: Tensor, g: Gates, mask: Tensor | None) -> None:
    """Apply to logits (rows, heads, queries, tokens), in place, what does not scale the projections."""
    if g.pair is not None:
        logits *= g.pair[:, None]
    if g.bias is not None:
        logits += g.bias[:, None, None, :]
    if mask is not None:
        # in half precision the least number of fp32 would be -inf, and a row of nothing else NaN
        logits += mask if mask.dtype == logits.dtype else mask.clamp_min(torch.finfo(logits.dtype).min / 2)


def _scaled(projection: Tensor, factor: Tensor | None) -> Tensor:
    """A projection (rows, heads, tokens, width) times a factor by token (rows, tokens)."""
    return projection if factor is None else projection * factor[:, None, :, None]


def _contiguous_product(projection: Tensor, scale: float | Tensor) -> Tensor:
    """Scale and make contiguous for the matrix product in one step: projections are transposed views."""
    if torch.is_grad_enabled():
        return projection * scale
    factor = torch.as_tensor(scale, dtype=projection.dtype, device=projection.device)
    return torch.mul(projection, factor, out=projection.new_empty(projection.shape))
