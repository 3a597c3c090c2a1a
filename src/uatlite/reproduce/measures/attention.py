"""What modulation, or rescaled embeddings, do to attention weights."""

from dataclasses import replace

import numpy as np
import torch

from uatlite.attribution import attention_shift
from uatlite.backbone.tokens import longest, tokenize
from uatlite.errors import ConfigurationError
from uatlite.experiments.contenders import parse_contender
from uatlite.methods.sampling import Sampling
from uatlite.metrics.metric import mean_of
from uatlite.passes.config import UATConfig
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured, resampled
from uatlite.reproduce.measures.scores import which_rows
from uatlite.reproduce.models import Fit
from uatlite.reproduce.workshop import Arrays, Job, Workshop, scaling

WEIGHTS = {"attention-plain": "plain", "attention-modulated": "modulated", "attention-change": "change"}


def received(ask: Ask, workshop: Workshop) -> Measured:
    """The attention that a word of a text receives: its column's mean over query tokens, heads and layers."""
    name = WEIGHTS[ask.measure]
    values = []
    for fit in workshop.fits(ask):
        maps = attention_maps(ask, fit, workshop)
        columns = [place for place, token in enumerate(maps["tokens"]) if str(token) == ask.word]
        if not columns:
            raise ConfigurationError(f"{ask.word!r} is no token of {ask.text!r}: {', '.join(maps['tokens'])}.")
        whole = {"plain": maps["plain"], "modulated": maps["modulated"], "change": maps["modulated"] - maps["plain"]}
        values.append(float(whole[name][:, columns].mean(axis=0).sum()))
    return Measured(tuple(values))


def attention_maps(ask: Ask, fit: Fit, workshop: Workshop) -> Arrays:
    """plain and modulated (tokens, tokens), averaged over passes, heads and layers, and the tokens (tokens,)."""
    text = ask.text or ""
    config = config_of(ask, fit)

    def compute() -> Arrays:
        checkpoint = workshop.checkpoint(fit)
        inputs = tokenize(checkpoint.tokenizer, [text], longest(checkpoint.model, checkpoint.tokenizer)).pad([0])
        shift = attention_shift(checkpoint.model, inputs, config).over_heads()
        names = checkpoint.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return {
            "plain": shift.plain[0, 0, 0].double().cpu().numpy(),
            "modulated": shift.modulated[0, 0, 0].double().cpu().numpy(),
            "tokens": np.array(names),
        }

    return workshop.kept("attention", [fit, config.to_dict(), ask.text, workshop.about(fit)], compute)


def cosine(ask: Ask, workshop: Workshop) -> Measured:
    """The cosine of modulated attention with rescaled embeddings to that without, mean over texts, layers and heads."""
    values = [_cosines(ask, job, workshop)["cosine"] for job in workshop.jobs(ask)]
    return resampled(
        [mean_of(one) for one in values],
        [None] * len(values),
        len(values[0]),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
    )


def _cosines(ask: Ask, job: Job, workshop: Workshop) -> Arrays:
    job = replace(job, rows=ask.rows, scale=1.0)
    config = config_of(ask, job.fit)

    def compute() -> Arrays:
        checkpoint, prepared = workshop.checkpoint(job.fit), workshop.prepared(job)
        found = np.zeros(len(prepared.dataset))
        for row in range(len(prepared.dataset)):
            inputs = prepared.tokens.pad([row])
            plain = attention_shift(checkpoint.model, inputs, config).modulated
            with scaling(checkpoint, ask.scale):
                scaled = attention_shift(checkpoint.model, inputs, config).modulated
            found[row] = torch.nn.functional.cosine_similarity(plain.flatten(-2), scaled.flatten(-2), dim=-1).mean()
        return {"cosine": found}

    about = [job, ask.scale, config.to_dict(), workshop.dataset(job).fingerprint, workshop.about(job.fit)]
    return workshop.kept("cosine", about, compute)


def config_of(ask: Ask, fit: Fit) -> UATConfig:
    """The engine's configuration of a cell's method under the fit's seed."""
    method = parse_contender(ask.contender).method
    if not isinstance(method, Sampling):
        raise ConfigurationError(f"{ask.measure} needs a method that samples, not {method.name}.")
    return method.seeded(fit.seed).config
