"""A model, texts and a configuration, made ready for attribution, and its passes under any noise.

Attribution asks how one pass's own masks move y. Gates must then not depend on other passes: they are set by the
closed-form U of the embedding block, which is what the lagged estimate tends to. Masks are independent, as the
stratified ones tie passes together on purpose.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.backbone.checks import check_encoded, unwrap
from uatlite.backbone.sites import Site
from uatlite.backbone.view import View, view_of
from uatlite.errors import ConfigurationError
from uatlite.passes.chunks import MEMORY_BUDGET, Chunk, keep_freed_memory, plan_chunks
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import check_fired, check_samples, forward_folded, position_rate
from uatlite.passes.forward import FoldedPasses
from uatlite.passes.noise import Fired, Noise, Texts

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
        return cls(view, check_encoded(encoded, unwrap(model), view.architecture), config)

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
