"""Attention maps: the mean attention weights with and without modulation, on the same masks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.first_order import Case, forwards
from uatlite.errors import ConfigurationError
from uatlite.passes.config import UATConfig
from uatlite.passes.dropout import DropoutNoise, Noise, SiteCall, Texts


@dataclass(frozen=True)
class AttentionShift:
    """Attention weights, before their dropout, averaged over passes; 0 to and from padding.

    Maps are (layers, batch, [choices,] heads, tokens, tokens): a row is a query token, a column a key token.
    """

    plain: Tensor
    """without modulation"""
    modulated: Tensor
    """with the configuration's modulation"""

    @property
    def difference(self) -> Tensor:
        """Modulated minus plain; each row sums to 0."""
        return self.modulated - self.plain

    def chosen(self, layer: int | None = None, head: int | None = None) -> "AttentionShift":
        """One layer and head, counted from 1, or the mean over all; both dimensions stay, with size 1."""
        layers = _place("layer", layer, self.plain.shape[0])
        heads = _place("head", head, self.plain.shape[-3])

        def mean(weights: Tensor) -> Tensor:
            return weights[layers][..., heads, :, :].mean(dim=(0, -3)).unsqueeze(0).unsqueeze(-3)

        return AttentionShift(mean(self.plain), mean(self.modulated))

    def between(self, tokens: Sequence[int], choice: int = 0) -> "AttentionShift":
        """Maps between some tokens of one text, or of one of its choices: (layers, heads, tokens, tokens)."""

        def cut(weights: Tensor) -> Tensor:
            chosen = weights[:, 0] if weights.ndim == 5 else weights[:, 0, choice]
            return chosen[..., tokens, :][..., tokens]

        return AttentionShift(cut(self.plain), cut(self.modulated))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: getattr(self, name).tolist() for name in ("plain", "modulated", "difference")}


def _place(name: str, number: int | None, count: int) -> slice:
    if number is None:
        return slice(None)
    if isinstance(number, bool) or not 1 <= number <= count:
        raise ConfigurationError(f"{name}={number!r} is not one of this model's, which has {name}s 1 to {count}.")
    return slice(number - 1, number)


class AttentionRecorder(Noise):
    """A noise that records the attention weights which another gets."""

    def __init__(self, config: UATConfig, noise: Noise, passes: int) -> None:
        super().__init__(config)
        self._noise = noise
        self._passes = passes
        self.weights: list[Tensor] = []
        """per layer, the sum over passes: (rows, heads, tokens, tokens)"""

    def perturb(self, call: SiteCall, x: Tensor) -> Tensor:
        if call.site.role == "probabilities":
            self.weights.append(x.reshape(self._passes, -1, *x.shape[1:]).sum(dim=0).float())
        return self._noise.perturb(call, x)


def attention_shift(
    model: PreTrainedModel, encoded: Mapping[str, Tensor], config: UATConfig | None = None, *, sampled: bool = True
) -> AttentionShift:
    """Mean attention over the passes of a configuration, and over the same passes without modulation.

    Both use the same masks, so their difference is due to modulation alone. With the lagged estimate the first two
    passes are unmodulated in both. With `sampled=False` both are single passes without dropout, gated by the
    closed-form U, as in the analytic method.
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
        noise = DropoutNoise(config, texts, passes) if sampled else Noise(config)
        return AttentionRecorder(config, noise, len(passes))

    heads = int(case.view.model.config.num_attention_heads)
    tokens = real.shape[-1]
    mean = torch.zeros((case.view.layers, *real.shape[:-1], heads, tokens, tokens), device=real.device)
    for forward in forwards(case, range(config.samples), recorded):
        noise, rows, length = forward.folded.noise, forward.chunk.rows, forward.chunk.tokens
        assert isinstance(noise, AttentionRecorder)
        weights = torch.stack(noise.weights) / config.samples
        shape = (len(weights), len(rows), *real.shape[1:-1], *weights.shape[2:])
        mean[:, rows, ..., :length, :length] += weights.view(shape)
    return mean * real[..., None, :, None] * real[..., None, None, :]
