"""Token uncertainty U against what else is known of a token: its text's entropy and MI, its norm, U under rescaling.

Tokens of one text are not independent, so texts are resampled. A Spearman correlation is the Pearson correlation of
ranks over all tokens; in a resample the ranks are kept and the tokens weighted by how often their text was drawn.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from uatlite.backbone.loading import Checkpoint
from uatlite.backbone.view import view_of
from uatlite.experiments.contenders import parse_contender
from uatlite.methods.sampling import Sampling
from uatlite.metrics.intervals import draw_counts
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured
from uatlite.reproduce.measures.scores import which_rows
from uatlite.reproduce.workshop import Arrays, Job, Workshop, scaling

Floats = NDArray[np.float64]


def correlation(ask: Ask, workshop: Workshop) -> Measured:
    """'spearman:U,entropy' or 'pearson:U,norm', and 'partial:U,entropy,norm' with the last one held fixed."""
    kind, _, names = ask.measure.partition(":")
    signals = [signals_of(ask, job, workshop) for job in workshop.jobs(ask)]
    chosen = [[_ranked(one[name], kind) for name in names.split(",")] for one in signals]
    return _over_texts(chosen, [one["text"] for one in signals], ask, workshop)


def rank_stability(ask: Ask, workshop: Workshop) -> Measured:
    """Spearman's ρ of U with token embeddings as they are and with them rescaled."""
    chosen, texts = [], []
    for job in workshop.jobs(ask):
        scaled = signals_of(ask, job, workshop)
        plain = signals_of(replace(ask, scale=1.0), replace(job, scale=1.0), workshop)
        chosen.append([rankdata(plain["U"]), rankdata(scaled["U"])])
        texts.append(plain["text"])
    return _over_texts(chosen, texts, ask, workshop)


def signals_of(ask: Ask, job: Job, workshop: Workshop) -> Arrays:
    """For every token but padding, (tokens,) each: U, its text's entropy and MI, two norms, and which text it is in.

    `norm` is that of the token's embedding, before position, segment and LayerNorm are added; `block` that of what
    dropout acts on, the embedding block's output.
    """
    method = parse_contender(ask.contender).method
    assert isinstance(method, Sampling)
    job = replace(job, rows=ask.rows)
    about = [job, method.to_dict(), workshop.dataset(job).fingerprint, workshop.about(job.fit)]
    return workshop.kept("tokens", about, lambda: _compute(job, method.seeded(job.fit.seed).config, workshop))


def _compute(job: Job, config: UATConfig, workshop: Workshop) -> Arrays:
    checkpoint, prepared = workshop.checkpoint(job.fit), workshop.prepared(job)
    found: dict[str, list[Floats]] = {name: [] for name in ("U", "entropy", "mi", "norm", "block", "text")}
    with scaling(checkpoint, job.scale):
        for batch in prepared.tokens.batches(range(len(prepared.dataset))):
            samples = sample(checkpoint.model, batch.inputs, config)
            summary = predict(samples.logits.cpu().numpy())
            real = batch.inputs["attention_mask"].bool().numpy()
            text = np.broadcast_to(np.array(batch.rows)[:, None], real.shape)
            norm, block = _norms(checkpoint, batch.inputs)
            spread = {"entropy": summary.entropy, "mi": summary.mutual_information}
            values = {name: np.broadcast_to(one[:, None], real.shape) for name, one in spread.items()}
            values |= {"U": samples.token_uncertainty.cpu().numpy(), "norm": norm, "block": block, "text": text}
            for name, one in values.items():
                found[name].append(one[real].astype(np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _norms(checkpoint: Checkpoint, inputs: dict[str, torch.Tensor]) -> tuple[Floats, Floats]:
    """Norms (batch, tokens) of the token embeddings and of the embedding block's output."""
    model, row = checkpoint.model, view_of(checkpoint.model).architecture
    seen: dict[str, torch.Tensor] = {}
    places = {"norm": model.get_input_embeddings(), "block": model.get_submodule(f"{row.base}.{row.embedding}")}
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: seen.__setitem__(name, output))
        for name, module in places.items()
    ]
    try:
        with torch.inference_mode():
            model(**{name: value.to(model.device) for name, value in inputs.items()})
    finally:
        for hook in hooks:
            hook.remove()
    norms = {name: output.float().norm(dim=-1).cpu().numpy() for name, output in seen.items()}
    return norms["norm"], norms["block"]


def _ranked(values: Floats, kind: str) -> Floats:
    return values if kind == "pearson" else np.asarray(rankdata(values))


def _over_texts(signals: Sequence[Sequence[Floats]], texts: Sequence[Floats], ask: Ask, workshop: Workshop) -> Measured:
    """The correlation of each seed, and its mean over seeds on resampled texts."""
    count = int(texts[0].max()) + 1
    places = [one.astype(np.intp) for one in texts]
    values = [float(_correlate(one, np.ones((1, len(one[0]))))[0]) for one in signals]
    draws = [
        np.mean([_correlate(one, counts[:, at]) for one, at in zip(signals, places, strict=True)], axis=0)
        for counts in draw_counts((count,), workshop.settings.resamples, zlib.crc32(which_rows(ask).encode()))
    ]
    return Measured(tuple(values), rows=count, drawn=np.concatenate(draws))


def _correlate(signals: Sequence[Floats], weights: Floats) -> Floats:
    """Weighted correlation of two signals (tokens,), or the partial one given a third; (resamples,)."""
    if len(signals) == 2:
        return weighted_correlation(signals[0], signals[1], weights)
    first, second, given = signals
    r12, r13, r23 = (weighted_correlation(a, b, weights) for a, b in ((first, second), (first, given), (second, given)))
    return np.asarray((r12 - r13 * r23) / np.sqrt((1 - r13**2) * (1 - r23**2)))


def weighted_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of (tokens,) and (tokens,) under weights (resamples, tokens)."""
    total = weights.sum(axis=1)
    x, y = x - x.mean(), y - y.mean()  # for precision only: the weighted means are taken off below
    mean_x, mean_y = weights @ x / total, weights @ y / total
    covariance = weights @ (x * y) / total - mean_x * mean_y
    variances = (weights @ (x * x) / total - mean_x**2) * (weights @ (y * y) / total - mean_y**2)
    return np.asarray(covariance / np.sqrt(variances))
