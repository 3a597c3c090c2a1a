"""What modulation, or rescaled embeddings, do to attention weights.

Which layers the variance of the output comes from, in the paper's five groups.

Token uncertainty U against what else is known of a token: its text's entropy and MI, its norm, U under rescaling.

Tokens of one text are not independent, so texts are resampled. A Spearman correlation is the Pearson correlation of
ranks over all tokens; in a resample the ranks are kept and the tokens weighted by how often their text was drawn.

What a classifier makes of a single sentence.

Size and time of a model: parameters, and milliseconds a batch, all contenders in turn so that a ratio is fair.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.layers import attribute
from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.evaluate.contenders import parse_contender
from uatlite.lab.paper.declaration import Ask
from uatlite.lab.paper.measurement import Measurement, resampled
from uatlite.lab.paper.models import Arrays, Fit, PaperJob, Workshop, scaling
from uatlite.lab.paper.scores import which_rows
from uatlite.lab.paper.settings import chosen
from uatlite.methods.sampling import Sampling
from uatlite.metrics.bootstrap import draw_counts
from uatlite.metrics.metric import mean_of
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import longest, tokenize
from uatlite.model.view import view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.trust.calibrators import Calibrator

WEIGHTS = {"attention-plain": "plain", "attention-modulated": "modulated", "attention-change": "change"}


def received(ask: Ask, workshop: Workshop) -> Measurement:
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
    return Measurement(tuple(values))


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


def cosine(ask: Ask, workshop: Workshop) -> Measurement:
    """The cosine of modulated attention with rescaled embeddings to that without, mean over texts, layers and heads."""
    values = [_cosines(ask, job, workshop)["cosine"] for job in workshop.jobs(ask)]
    return resampled(
        [mean_of(one) for one in values],
        [None] * len(values),
        len(values[0]),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
    )


def _cosines(ask: Ask, job: PaperJob, workshop: Workshop) -> Arrays:
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


GROUPS = ("embeddings", "early", "middle", "late", "head")
SAMPLES = 200
"""Passes of each kind, for an estimator that samples."""


def layer_share(ask: Ask, workshop: Workshop) -> Measurement:
    """The share of the variance that a group of layers contributes, mean over the texts of the cell."""
    check_choice("layers", ask.layers, GROUPS)
    assert ask.layers is not None
    shares = [_shares(ask, job, workshop)["shares"] for job in workshop.jobs(ask)]
    of_group = [one[:, group(ask.layers, one.shape[1] - 2)].sum(axis=1) for one in shares]
    if len(of_group[0]) == 1:  # an example of the paper's kind: there is nothing to resample
        return Measurement(tuple(float(one[0]) for one in of_group), rows=1)
    return resampled(
        [mean_of(one) for one in of_group],
        [None] * len(of_group),
        len(of_group[0]),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
    )


def group(name: str, layers: int) -> list[int]:
    """Its places among embeddings, layers 1 .. L and head: thirds of the depth, and the last layer is always late."""
    if name == "embeddings":
        return [0]
    if name == "head":
        return [layers + 1]
    third = GROUPS.index(name) - 1
    return [1 + layer for layer in range(layers) if (2 if layer == layers - 1 else 3 * layer // layers) == third]


def _shares(ask: Ask, job: PaperJob, workshop: Workshop) -> Arrays:
    """Shares (texts, layers + 2) of the variance, one row for each text of the cell."""
    config = config_of(ask, job.fit)
    ids = chosen(workshop.dataset(job), ask.subset, ask.rows)

    def compute() -> Arrays:
        checkpoint, prepared = workshop.checkpoint(job.fit), workshop.prepared(job)
        places = [place for place, name in enumerate(prepared.dataset.ids) if name in ids]
        found = [
            attribute(
                checkpoint.model,
                prepared.tokens.pad([place]),
                config,
                estimator=ask.estimator,
                samples=SAMPLES,
                components=False,
            ).shares
            for place in places
        ]
        return {"shares": np.concatenate([one.cpu().numpy() for one in found]).astype(np.float64)}

    about = [replace(job, rows=ask.rows), ask.subset, ask.estimator, config.to_dict(), workshop.about(job.fit)]
    return workshop.kept("layers", about, compute)


Floats = NDArray[np.float64]


def correlation(ask: Ask, workshop: Workshop) -> Measurement:
    """'spearman:U,entropy' or 'pearson:U,norm', and 'partial:U,entropy,norm' with the last one held fixed."""
    kind, _, names = ask.measure.partition(":")
    signals = [signals_of(ask, job, workshop) for job in workshop.jobs(ask)]
    chosen = [[_ranked(one[name], kind) for name in names.split(",")] for one in signals]
    return _over_texts(chosen, [one["text"] for one in signals], ask, workshop)


def rank_stability(ask: Ask, workshop: Workshop) -> Measurement:
    """Spearman's ρ of U with token embeddings as they are and with them rescaled."""
    chosen, texts = [], []
    for job in workshop.jobs(ask):
        scaled = signals_of(ask, job, workshop)
        plain = signals_of(replace(ask, scale=1.0), replace(job, scale=1.0), workshop)
        chosen.append([rankdata(plain["U"]), rankdata(scaled["U"])])
        texts.append(plain["text"])
    return _over_texts(chosen, texts, ask, workshop)


def signals_of(ask: Ask, job: PaperJob, workshop: Workshop) -> Arrays:
    """For every token but padding, (tokens,) each: U, its text's entropy and MI, two norms, and which text it is in.

    `norm` is that of the token's embedding, before position, segment and LayerNorm are added; `block` that of what
    dropout acts on, the embedding block's output.
    """
    method = parse_contender(ask.contender).method
    assert isinstance(method, Sampling)
    job = replace(job, rows=ask.rows)
    about = [job, method.to_dict(), workshop.dataset(job).fingerprint, workshop.about(job.fit)]
    return workshop.kept("tokens", about, lambda: _compute(job, method.seeded(job.fit.seed).config, workshop))


def _compute(job: PaperJob, config: UATConfig, workshop: Workshop) -> Arrays:
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


def _over_texts(
    signals: Sequence[Sequence[Floats]], texts: Sequence[Floats], ask: Ask, workshop: Workshop
) -> Measurement:
    """The correlation of each seed, and its mean over seeds on resampled texts."""
    count = int(texts[0].max()) + 1
    places = [one.astype(np.intp) for one in texts]
    values = [float(_correlate(one, np.ones((1, len(one[0]))))[0]) for one in signals]
    draws = [
        np.mean([_correlate(one, counts[:, at]) for one, at in zip(signals, places, strict=True)], axis=0)
        for counts in draw_counts((count,), workshop.settings.resamples, zlib.crc32(which_rows(ask).encode()))
    ]
    return Measurement(tuple(values), rows=count, drawn=np.concatenate(draws))


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


# measure -> from confidence and mutual information; the paper's "Unc" is 1 - confidence to the last digit
PROBES: dict[str, Callable[[float, float], float]] = {
    "probe-confidence": lambda confidence, information: confidence,
    "probe-doubt": lambda confidence, information: 1 - confidence,
    "probe-information": lambda confidence, information: information,
}


def probe(ask: Ask, workshop: Workshop) -> Measurement:
    """Confidence, one less it, or mutual information of a sentence."""
    found = [_probed(ask, fit, workshop) for fit in workshop.fits(ask)]
    value = PROBES[ask.measure]
    return Measurement(tuple(value(float(one["confidence"]), float(one["information"])) for one in found))


def _probed(ask: Ask, fit: Fit, workshop: Workshop) -> Arrays:
    method = parse_contender(ask.contender).method.seeded(fit.seed)

    def compute() -> Arrays:
        checkpoint = workshop.checkpoint(fit)
        tokens = tokenize(checkpoint.tokenizer, [ask.text or ""], longest(checkpoint.model, checkpoint.tokenizer))
        summary = predict(method.run(checkpoint.model, tokens.pad([0])).logits.cpu().numpy())
        return {"confidence": summary.confidence[0], "information": summary.mutual_information[0]}

    return workshop.kept("probe", [fit, method.to_dict(), fit.seed, ask.text, workshop.about(fit)], compute)


TIMED = ("base", "base+ts", "uat", "uat+ts")
BATCH, TOKENS = 32, 128
RUNS = {"cuda": (50, 200), "cpu": (1, 5)}
"""device -> warm-up runs and timed runs; the paper's on a GPU"""


def parameters(ask: Ask, workshop: Workshop) -> Measurement:
    """Millions of parameters."""
    model = workshop.checkpoint(workshop.fits(ask)[0]).model
    return Measurement((sum(one.numel() for one in model.parameters()) / 1e6,))


def latency(ask: Ask, workshop: Workshop) -> Measurement:
    """Milliseconds for 32 texts of 128 tokens, end to end; the deviation is over runs."""
    return Measurement(tuple(1000 * _seconds(ask, workshop)[ask.contender]))


def latency_ratio(ask: Ask, workshop: Workshop) -> Measurement:
    """A contender's time over the base's, the median over turns in which both ran."""
    seconds = _seconds(ask, workshop)
    return Measurement((float(np.median(seconds[ask.contender] / seconds["base"])),))


def latency_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
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
