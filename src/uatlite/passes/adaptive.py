"""Adaptive sampling: passes come in blocks, and a text that is settled leaves the batch.

A mask is a function of pass, site and position, never of who else is in the batch, so the first k passes of a text are
the first k of `sample` under the same configuration, and what its neighbours do changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.backbone.checks import check_encoded, unwrap
from uatlite.backbone.view import View, view_of
from uatlite.errors import ConfigurationError
from uatlite.passes.chunks import MEMORY_BUDGET, keep_freed_memory, plan_chunks
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import check_samples, position_rate, run_chunk
from uatlite.passes.stopping import Stopping


@dataclass(frozen=True)
class AdaptiveSamples:
    """What as many passes as each text needed gave."""

    logits: Tensor
    """(passes of the configuration, batch, classes); NaN where a text did not run a pass"""
    counts: Tensor
    """(batch,): how many passes each text ran, the first so many"""


def sample_adaptively(
    model: PreTrainedModel,
    encoded: Mapping[str, Tensor],
    config: UATConfig,
    stopping: Stopping,
    *,
    chunk: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> AdaptiveSamples:
    """Run passes in blocks, each over the texts that are not settled yet, up to `config.samples`."""
    check_adaptive(config)
    view = view_of(model)
    check_samples(view, config)
    inputs = check_encoded(encoded, unwrap(model), view.architecture)
    keep_freed_memory()
    cap, batch = config.samples, len(inputs["input_ids"])
    ends = (*stopping.looks(cap), cap)
    active = torch.arange(batch, device=inputs["input_ids"].device)
    counts = torch.full_like(active, cap)
    logits: Tensor | None = None
    for start, end in zip((0, *ends), ends, strict=False):
        compact = {name: value[active] for name, value in inputs.items()}
        found = run_passes(view, compact, config, range(start, end), chunk, memory_budget)
        if logits is None:
            logits = found.new_full((cap, batch, found.shape[-1]), torch.nan)
        logits[start:end, active] = found
        if end == cap:
            break
        done = stopping.settled(logits[:end, active].double().cpu().numpy(), cap)
        stops = torch.from_numpy(done).to(active.device)
        counts[active[stops]] = end
        active = active[~stops]
        if len(active) == 0:
            break
    assert logits is not None
    return AdaptiveSamples(logits, counts)


def check_adaptive(config: UATConfig) -> None:
    """Raise where passes cannot come in blocks."""
    if config.estimate == "layerwise" and config.modulates:
        raise ConfigurationError(
            "estimate='layerwise' needs all passes of a text in one batch, and adaptive sampling runs them in blocks. "
            "Use estimate='lagged' or 'closed-form'."
        )


def run_passes(
    view: View, inputs: Mapping[str, Tensor], config: UATConfig, passes: range, chunk: int | None, memory_budget: int
) -> Tensor:
    """Logits (passes, batch, classes) of some of the configuration's passes."""
    one_pass = position_rate(view, config) > 0
    if one_pass and config.per_input:
        chunk = 1
    plan = replace(config, samples=len(passes))
    parts = []
    order = []
    for part in plan_chunks(inputs["attention_mask"], view, plan, chunk, memory_budget, one_pass):
        blocks = tuple(passes[block.start : block.stop] for block in part.blocks)
        parts.append(run_chunk(view, inputs, replace(part, blocks=blocks), config).logits)
        order.append(part.rows)
    return torch.cat(parts, dim=1)[:, torch.argsort(torch.cat(order))]
