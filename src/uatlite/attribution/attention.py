"""What modulation does to attention: the mean attention weights with and without it, on the same masks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.case import Case, NoDropout, forwards
from uatlite.errors import ConfigurationError
from uatlite.model.intervention import Site
from uatlite.passes.config import UATConfig
from uatlite.passes.masks import DropoutNoise, Noise, SiteCall, Texts


@dataclass(frozen=True)
class AttentionShift:
    """Attention weights, before their dropout, averaged over passes; 0 to and from padding.

    All are (layers, batch, [choices,] heads, tokens, tokens): a row is a query token, a column a key token.
    """

    plain: Tensor
    """without modulation"""
    modulated: Tensor
    """with the configuration's"""

    @property
    def difference(self) -> Tensor:
        """Modulated minus plain; each row sums to 0."""
        return self.modulated - self.plain

    def over_heads(self) -> "AttentionShift":
        """Averaged over layers and heads: (1, batch, [choices,] 1, tokens, tokens)."""
        return self.chosen()

    def chosen(self, layer: int | None = None, head: int | None = None) -> "AttentionShift":
        """One layer and head, counted from 1, or the mean over all: (1, batch, [choices,] 1, tokens, tokens)."""
        layers = _place("layer", layer, self.plain.shape[0])
        heads = _place("head", head, self.plain.shape[-3])

        def mean(weights: Tensor) -> Tensor:
            return weights[layers][..., heads, :, :].mean(dim=(0, -3)).unsqueeze(0).unsqueeze(-3)

        return AttentionShift(mean(self.plain), mean(self.modulated))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "plain": self.plain.tolist(),
            "modulated": self.modulated.tolist(),
            "difference": self.difference.tolist(),
        }


def _place(name: str, number: int | None, count: int) -> slice:
    if number is None:
        return slice(None)
    if isinstance(number, bool) or not 1 <= number <= count:
        raise ConfigurationError(f"{name}={number!r} is not one of this model's, which has {name}s 1 to {count}.")
    return slice(number - 1, number)


class AttentionRecorder:
    """A noise, with the attention weights that reach it on record."""

    def __init__(self, noise: Noise, passes: int) -> None:
        self._noise = noise
        self._passes = passes
        self.weights: list[Tensor] = []
        """sums over passes, a layer each: (rows, heads, tokens, tokens)"""

    def rate(self, site: Site, layer: int) -> float:
        return self._noise.rate(site, layer)

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.site.role == "probabilities":
            self.weights.append(x.reshape(self._passes, -1, *x.shape[1:]).sum(dim=0).float())
        return self._noise.perturb(call, x)


def attention_shift(
    model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig | None = None, *, sampled: bool = True
) -> AttentionShift:
    """Mean attention over the passes of a configuration, and over the same passes with modulation switched off.

    Both use the same masks, so their difference is the modulation's alone; for the lagged estimate that is the mean
    over passes of which the first two are unmodulated. Where it is not `sampled`, both are single passes without
    dropout, gated by the closed-form U: what the analytic method sees.
    """
    config = UATConfig() if config is None else config
    if not config.modulates:
        raise ConfigurationError(
            f"gate={config.gate!r} with penalty={config.penalty:g} modulates nothing, so attention does not shift. "
            "Choose a gate other than 'none' and a penalty above 0."
        )
    case = Case.of(model, encoded, config, fixed_gates=not sampled)
    if not sampled:
        case = replace(case, config=replace(case.config, samples=1))
    plain = replace(case, config=replace(case.config, gate="none"))
    return AttentionShift(_mean_attention(plain, sampled), _mean_attention(case, sampled))


def _mean_attention(case: Case, sampled: bool) -> Tensor:
    """(layers, batch, [choices,] heads, tokens, tokens) over all passes of the configuration."""
    config, real = case.config, case.real

    def recorded(texts: Texts, passes: range) -> AttentionRecorder:
        return AttentionRecorder(DropoutNoise(config, texts, passes) if sampled else NoDropout(config), len(passes))

    heads = int(case.view.model.config.num_attention_heads)
    tokens = real.shape[-1]
    mean = torch.zeros((case.view.layers, *real.shape[:-1], heads, tokens, tokens), device=real.device)
    for forward in forwards(case, range(config.samples), recorded):
        assert isinstance(forward.noise, AttentionRecorder)
        rows, length = forward.chunk.rows, forward.chunk.tokens
        weights = torch.stack(forward.noise.weights) / config.samples
        shape = (len(weights), len(rows), *real.shape[1:-1], *weights.shape[2:])
        mean[:, rows, ..., :length, :length] += weights.view(shape)
    return mean * real[..., None, :, None] * real[..., None, None, :]
