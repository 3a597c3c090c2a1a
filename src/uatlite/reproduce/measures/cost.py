"""Size and time of a model: parameters, and milliseconds a batch, all contenders in turn so that a ratio is fair."""

import time
from dataclasses import replace

import numpy as np
import torch

from uatlite.backbone.loading import Checkpoint
from uatlite.calibration import Calibrator
from uatlite.experiments.contenders import parse_contender
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured
from uatlite.reproduce.models import Fit
from uatlite.reproduce.workshop import Arrays, Job, Workshop

TIMED = ("base", "base+ts", "uat", "uat+ts")
BATCH, TOKENS = 32, 128
RUNS = {"cuda": (50, 200), "cpu": (1, 5)}
"""device -> warm-up runs and timed runs; the paper's on a GPU"""


def parameters(ask: Ask, workshop: Workshop) -> Measured:
    """Millions of parameters."""
    model = workshop.checkpoint(workshop.fits(ask)[0]).model
    return Measured((sum(one.numel() for one in model.parameters()) / 1e6,))


def latency(ask: Ask, workshop: Workshop) -> Measured:
    """Milliseconds for 32 texts of 128 tokens, end to end; the deviation is over runs."""
    return Measured(tuple(1000 * _seconds(ask, workshop)[ask.contender]))


def latency_ratio(ask: Ask, workshop: Workshop) -> Measured:
    """A contender's time over the base's, the median over turns in which both ran."""
    seconds = _seconds(ask, workshop)
    return Measured((float(np.median(seconds[ask.contender] / seconds["base"])),))


def latency_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
    """Calibration rows, for the temperatures."""
    return [job for name in TIMED for job in workshop.calibration_jobs(_contender(ask, name))]


def _contender(ask: Ask, name: str) -> Ask:
    return replace(ask, contender=name, seeds=1)


def _seconds(ask: Ask, workshop: Workshop) -> Arrays:
    fit = workshop.fits(_contender(ask, "base"))[0]
    calibrators = {name: workshop.calibrators(_contender(ask, name))[0] for name in TIMED}
    about = [fit, workshop.about(fit)]
    return workshop.kept("seconds", about, lambda: _time(workshop.checkpoint(fit), fit, calibrators))


def _time(checkpoint: Checkpoint, fit: Fit, calibrators: dict[str, Calibrator | None]) -> Arrays:
    """Seconds (runs,) of each contender; every turn runs all of them, one after the other."""
    model = checkpoint.model
    generator = torch.Generator().manual_seed(fit.seed)
    longest = min(TOKENS, model.config.max_position_embeddings)
    ids = torch.randint(5, model.config.vocab_size, (BATCH, longest), generator=generator)
    inputs = {"input_ids": ids.to(model.device), "attention_mask": torch.ones_like(ids).to(model.device)}
    methods = {name: parse_contender(name).method.seeded(fit.seed) for name in TIMED}
    warm, timed = RUNS["cuda" if model.device.type == "cuda" else "cpu"]
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    for turn in range(warm + timed):
        for name, method in methods.items():
            begun = time.perf_counter()
            logits = method.run(model, inputs).logits.mean(dim=0).cpu().numpy()
            calibrator = calibrators[name]
            if calibrator is not None:
                calibrator.probabilities(logits)
            if turn >= warm:
                seconds[name].append(time.perf_counter() - begun)
    return {name: np.array(values) for name, values in seconds.items()}
