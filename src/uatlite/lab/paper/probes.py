"""Measures that run the model themselves, beyond its predictions on a set.

- attention weights with and without modulation, and with rescaled embeddings
- the share of the output's variance that comes from each group of layers
- correlations of token uncertainty U with other signals of a token
- single sentences
- number of parameters, and time
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import torch
from scipy.stats import rankdata

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.layers import attribute
from uatlite.classifier.runtime import run_tokens
from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.bench import seconds
from uatlite.lab.evaluate.cells import CellSpec, subset_ids
from uatlite.lab.evaluate.comparison import Measurement, Sampled
from uatlite.lab.evaluate.measures import Measure, mean_over_rows, measure_of, no_jobs, over_rows
from uatlite.lab.evaluate.plan import Contender, parse_contender
from uatlite.lab.evaluate.predict import rescaled_embeddings
from uatlite.lab.evaluate.runs import Job, Model, Runs
from uatlite.lab.paper.models import Arrays, FineTunedModels
from uatlite.methods.registry import method_to_dict
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Estimate
from uatlite.metrics.rows import Statistic
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.model.view import view_of
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.trust.calibrators import Temperature
from uatlite.values import Floats


def source_of(runs: Runs) -> FineTunedModels:
    """The fine-tuned models of a reproduction."""
    assert isinstance(runs.source, FineTunedModels)
    return runs.source


def _config_of(cell: CellSpec, fit: Model) -> UATConfig:
    """The dropout configuration of a cell's method, with the seed of its fine-tuning."""
    method = cell.contender.method.seeded(fit.seed)
    if method.config is None:
        raise ConfigurationError(f"{cell.measure} needs a method with dropout, such as uat; {method.name} has none.")
    return method.config


def text_tokens(cell: CellSpec, checkpoint: Checkpoint) -> Tokens:
    """The tokens of a cell's own text."""
    return tokenize(checkpoint.tokenizer, [cell.text or ""], longest(checkpoint.model, checkpoint.tokenizer))


# ── attention ──────────────────────────────────────────────────────────────────────────────────────────────────────

ATTENTION: dict[str, Callable[[Arrays], Floats]] = {
    "attention-plain": lambda maps: maps["plain"],
    "attention-modulated": lambda maps: maps["modulated"],
    "attention-change": lambda maps: maps["modulated"] - maps["plain"],
}
"""measure -> attention weights (tokens, tokens)"""


def word_attention(cell: CellSpec, runs: Runs) -> Measurement:
    """The attention that a word of a text receives: the mean of its column over query tokens, heads and layers."""
    values = []
    for fit in source_of(runs).fine_tunings(cell):
        maps = attention_maps(cell, fit, runs)
        columns = [place for place, token in enumerate(maps["tokens"]) if str(token) == cell.word]
        if not columns:
            raise ConfigurationError(f"{cell.word!r} is not a token of {cell.text!r}: {', '.join(maps['tokens'])}.")
        values.append(float(ATTENTION[cell.measure](maps)[:, columns].mean(axis=0).sum()))
    return Measurement(tuple(values))


def attention_maps(cell: CellSpec, fit: Model, runs: Runs) -> Arrays:
    """plain and modulated (tokens, tokens), averaged over passes, heads and layers, and the tokens (tokens,)."""
    config = _config_of(cell, fit)

    def compute() -> Arrays:
        checkpoint = runs.source.load(fit)
        inputs = text_tokens(cell, checkpoint).pad([0])
        shift = attention_shift(checkpoint.model, inputs, config).chosen()
        names = checkpoint.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return {
            "plain": shift.plain[0, 0, 0].double().cpu().numpy(),
            "modulated": shift.modulated[0, 0, 0].double().cpu().numpy(),
            "tokens": np.array(names),
        }

    return source_of(runs).kept("attention", fit, [fit, asdict(config), cell.text], compute)


def attention_cosine(cell: CellSpec, runs: Runs) -> Sampled:
    """The cosine of modulated attention with and without rescaled embeddings, mean over texts, layers and heads."""
    return mean_over_rows(cell, (_cosines(cell, job, runs)["cosine"] for job in runs.jobs(cell)))


def _cosines(cell: CellSpec, job: Job, runs: Runs) -> Arrays:
    job = replace(job, rows=cell.rows, scale=1.0)
    config = _config_of(cell, job.model)

    def compute() -> Arrays:
        model, prepared = runs.source.load(job.model).model, runs.prepared(job)
        found = np.zeros(len(prepared.dataset))
        for row in range(len(found)):
            inputs = prepared.tokens.pad([row])
            plain = attention_shift(model, inputs, config).modulated
            with rescaled_embeddings(model, cell.scale):
                scaled = attention_shift(model, inputs, config).modulated
            found[row] = torch.nn.functional.cosine_similarity(plain.flatten(-2), scaled.flatten(-2), dim=-1).mean()
        return {"cosine": found}

    identity = [job, cell.scale, asdict(config), runs.dataset(job).fingerprint]
    return source_of(runs).kept("cosine", job.model, identity, compute)


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_GROUPS = ("embeddings", "early", "middle", "late", "head")
SAMPLES = 200
"""Passes of each kind, for an estimator that samples."""


def layer_share(cell: CellSpec, runs: Runs) -> Measurement | Sampled:
    """The share of the variance that a group of layers contributes, mean over the texts of the cell."""
    check_choice("layers", cell.layers, _GROUPS)
    assert cell.layers is not None
    shares = [_layer_shares(cell, job, runs)["shares"] for job in runs.jobs(cell)]
    of_group = [one[:, layers_of(cell.layers, one.shape[1] - 2)].sum(axis=1) for one in shares]
    if len(of_group[0]) == 1:  # a single example, as in the paper: nothing to resample
        return Measurement(tuple(float(one[0]) for one in of_group), rows=1)
    return mean_over_rows(cell, of_group)


def layers_of(group: str, layers: int) -> list[int]:
    """The places of a group among embeddings, layers 1 .. L and head: thirds of the depth; the last layer is late."""
    if group in ("embeddings", "head"):
        return [0 if group == "embeddings" else layers + 1]
    third = _GROUPS.index(group) - 1
    return [1 + layer for layer in range(layers) if (2 if layer == layers - 1 else 3 * layer // layers) == third]


def _layer_shares(cell: CellSpec, job: Job, runs: Runs) -> Arrays:
    """Shares (texts, layers + 2) of the variance."""
    config = _config_of(cell, job.model)

    def compute() -> Arrays:
        model, prepared = runs.source.load(job.model).model, runs.prepared(job)
        ids = subset_ids(prepared.dataset, cell.subset, cell.rows)
        shares_of = partial(attribute, estimator=cell.estimator, samples=SAMPLES, components=False)
        found = [
            shares_of(model, prepared.tokens.pad([place]), config).shares.cpu().numpy()
            for place, name in enumerate(prepared.dataset.ids)
            if name in ids
        ]
        return {"shares": np.concatenate(found).astype(np.float64)}

    identity = [replace(job, rows=cell.rows), cell.subset, cell.estimator, asdict(config)]
    return source_of(runs).kept("layers", job.model, identity, compute)


# ── token uncertainty ──────────────────────────────────────────────────────────────────────────────────────────────
# Tokens of one text are not independent, so texts are resampled. A Spearman correlation is the Pearson correlation of
# ranks over all tokens; in a resample the ranks stay and a token is weighted by how often its text was drawn.


def correlation(cell: CellSpec, runs: Runs) -> Sampled:
    """'spearman:U,entropy', 'pearson:U,norm', or 'partial:U,entropy,norm': ranks with the last one held fixed."""
    kind, _, names = cell.measure.partition(":")
    signals = [token_signals(cell, job, runs) for job in runs.jobs(cell)]
    values = [[one[name] if kind == "pearson" else rankdata(one[name]) for name in names.split(",")] for one in signals]
    return _over_texts(cell, values, [one["text"] for one in signals])


def rank_stability(cell: CellSpec, runs: Runs) -> Sampled:
    """Spearman's ρ of U without and with rescaled token embeddings."""
    jobs = runs.jobs(cell)
    scaled = [token_signals(cell, job, runs) for job in jobs]
    plain = [token_signals(cell, replace(job, scale=1.0), runs) for job in jobs]
    ranks = [[rankdata(one["U"]), rankdata(two["U"])] for one, two in zip(plain, scaled, strict=True)]
    return _over_texts(cell, ranks, [one["text"] for one in plain])


def token_signals(cell: CellSpec, job: Job, runs: Runs) -> Arrays:
    """For every token but padding, (tokens,) each: U, entropy and MI of its text, two norms, the number of its text.

    `norm` is that of the token's embedding, before position, segment and LayerNorm are added; `block` that of the
    embedding block's output, which dropout acts on.
    """
    method, config = cell.contender.method, _config_of(cell, job.model)
    job = replace(job, rows=cell.rows)
    identity = [job, method_to_dict(method), runs.dataset(job).fingerprint]
    return source_of(runs).kept("tokens", job.model, identity, lambda: _compute_signals(job, config, runs))


def _compute_signals(job: Job, config: UATConfig, runs: Runs) -> Arrays:
    checkpoint, prepared = runs.source.load(job.model), runs.prepared(job)
    found: dict[str, list[Floats]] = {name: [] for name in ("U", "entropy", "mi", "norm", "block", "text")}
    with rescaled_embeddings(checkpoint.model, job.scale):
        for batch in prepared.tokens.batches():
            samples = sample(checkpoint.model, batch.inputs, config)
            summary = predict(samples.logits.cpu().numpy())
            real = batch.inputs["attention_mask"].bool().numpy()
            of_text = {"entropy": summary.entropy, "mi": summary.mutual_information, "text": np.array(batch.rows)}
            values = {name: np.broadcast_to(one[:, None], real.shape) for name, one in of_text.items()}
            values |= {"U": samples.token_uncertainty.cpu().numpy(), **_norms(checkpoint, batch.inputs)}
            for name, one in values.items():
                found[name].append(one[real].astype(np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _norms(checkpoint: Checkpoint, inputs: dict[str, torch.Tensor]) -> dict[str, Floats]:
    """Norms (batch, tokens) of the token embeddings and of the embedding block's output."""
    model, row = checkpoint.model, view_of(checkpoint.model).architecture
    outputs: dict[str, torch.Tensor] = {}
    modules = {"norm": model.get_input_embeddings(), "block": model.get_submodule(f"{row.base}.{row.embedding}")}
    hooks = [
        module.register_forward_hook(lambda _, __, output, name=name: outputs.__setitem__(name, output))
        for name, module in modules.items()
    ]
    try:
        with torch.inference_mode():
            model(**{name: value.to(model.device) for name, value in inputs.items()})
    finally:
        for hook in hooks:
            hook.remove()
    return {name: output.float().norm(dim=-1).cpu().numpy() for name, output in outputs.items()}


def _over_texts(cell: CellSpec, signals: Sequence[Sequence[Floats]], texts: Sequence[Floats]) -> Sampled:
    """The correlation of each seed; `texts` (tokens,) are the numbers of the texts, which are resampled."""

    def statistic(values: Sequence[Floats], text: Floats) -> Statistic:
        rows = text.astype(np.intp)
        return lambda counts: _correlate(values, counts[:, rows])

    estimates = (Estimate(statistic(values, text)) for values, text in zip(signals, texts, strict=True))
    return over_rows(cell, estimates, int(texts[0].max()) + 1)


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
    x, y = x - x.mean(), y - y.mean()  # for precision only: the weighted means are subtracted below
    mean_x, mean_y = weights @ x / total, weights @ y / total
    covariance = weights @ (x * y) / total - mean_x * mean_y
    variances = (weights @ (x * x) / total - mean_x**2) * (weights @ (y * y) / total - mean_y**2)
    return np.asarray(covariance / np.sqrt(variances))


# ── single sentences ───────────────────────────────────────────────────────────────────────────────────────────────

PROBES: dict[str, Callable[[Arrays], Floats]] = {
    "probe-confidence": lambda found: found["confidence"],
    "probe-doubt": lambda found: 1 - found["confidence"],
    "probe-information": lambda found: found["information"],
}
"""measure -> its value from confidence and mutual information; the paper's "Unc" is 1 - confidence"""


def probe(cell: CellSpec, runs: Runs) -> Measurement:
    """Confidence, 1 - confidence, or mutual information of a sentence."""
    value = PROBES[cell.measure]
    return Measurement(tuple(float(value(_probe(cell, fit, runs))) for fit in source_of(runs).fine_tunings(cell)))


def _probe(cell: CellSpec, fit: Model, runs: Runs) -> Arrays:
    method = cell.contender.method.seeded(fit.seed)

    def compute() -> Arrays:
        checkpoint = runs.source.load(fit)
        summary = predict(run_tokens(checkpoint.model, method, text_tokens(cell, checkpoint)).logits)
        return {"confidence": summary.confidence[0], "information": summary.mutual_information[0]}

    return source_of(runs).kept("probe", fit, [fit, method_to_dict(method), fit.seed, cell.text], compute)


# ── cost ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TIMED = ("base", "base+ts", "uat", "uat+ts")
_BATCH, TOKENS = 32, 128
RUNS = {"cuda": (50, 200), "cpu": (1, 5)}
"""device -> warm-up runs and timed runs; the paper's on a GPU"""


def parameters(cell: CellSpec, runs: Runs) -> Measurement:
    """Millions of parameters."""
    model = runs.source.load(source_of(runs).fine_tunings(cell)[0]).model
    return Measurement((sum(one.numel() for one in model.parameters()) / 1e6,))


def latency(cell: CellSpec, runs: Runs) -> Measurement:
    """Milliseconds for 32 texts of 128 tokens, end to end; the deviation is over runs."""
    return Measurement(tuple(1000 * _latencies(cell, runs)[cell.contender.name]))


def latency_ratio(cell: CellSpec, runs: Runs) -> Measurement:
    """A contender's time over the base's, the median over turns in which both ran."""
    times = _latencies(cell, runs)
    return Measurement((float(np.median(times[cell.contender.name] / times["base"])),))


def _latencies(cell: CellSpec, runs: Runs) -> Arrays:
    """Seconds (runs,) of each timed contender."""
    fit = source_of(runs).fine_tunings(replace(cell, contender=Contender(BASE), seeds=1))[0]
    return source_of(runs).kept("seconds", fit, [fit], lambda: _time(runs.source.load(fit), fit.seed))


def _time(checkpoint: Checkpoint, seed: int) -> Arrays:
    """All contenders run in turn, so that other load on the machine affects all of them.

    The temperature is fitted on noise: its value does not change what it costs.
    """
    model = checkpoint.model
    generator = torch.Generator().manual_seed(seed)
    length = min(TOKENS, model.config.max_position_embeddings)
    ids = torch.randint(5, model.config.vocab_size, (_BATCH, length), generator=generator).to(model.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    contenders = {name: parse_contender(name) for name in TIMED}
    methods = {name: contender.method.seeded(seed) for name, contender in contenders.items()}
    noise, classes = np.random.default_rng(seed), model.config.num_labels
    temperature = Temperature.fit(noise.normal(size=(100, classes)), noise.integers(classes, size=100))

    def run(name: str) -> None:
        logits = methods[name].run(model, inputs).logits.mean(dim=0).cpu().numpy()
        if contenders[name].calibrated:
            temperature.probabilities(logits)

    warm_up, timed = RUNS["cuda" if model.device.type == "cuda" else "cpu"]
    turns = [[seconds(partial(run, name)) for name in TIMED] for _ in range(warm_up + timed)]
    return dict(zip(TIMED, np.array(turns[warm_up:]).T, strict=True))


# ── by name ────────────────────────────────────────────────────────────────────────────────────────────────────────

PROBED: dict[str, Measure] = {
    "rank-stability": Measure(rank_stability, no_jobs),
    "attention-cosine": Measure(attention_cosine, no_jobs),
    **{name: Measure(word_attention, no_jobs, decimals=4) for name in ATTENTION},
    "layer-share": Measure(layer_share, no_jobs),
    **{name: Measure(probe, no_jobs) for name in PROBES},
    "parameters": Measure(parameters, no_jobs, decimals=1, of_learning=False),
    "latency": Measure(latency, no_jobs, decimals=1, of_learning=False),
    "latency-ratio": Measure(latency_ratio, no_jobs, decimals=2, of_learning=False),
}
CORRELATIONS = ("pearson", "spearman", "partial")
"""Measures that name their signals after a colon, as in 'spearman:U,entropy'."""


def paper_measure(name: str) -> Measure:
    """The measure of this name: one of these, or one of those that are computed from stored predictions."""
    if name.partition(":")[0] in CORRELATIONS:
        return Measure(correlation, no_jobs)
    return PROBED[name] if name in PROBED else measure_of(name)
