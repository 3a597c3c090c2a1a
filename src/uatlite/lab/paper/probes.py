"""Measures that run the model themselves, beyond its predictions on a set.

- attention weights with and without modulation, and with rescaled embeddings
- the share of the output's variance that comes from each group of layers
- correlations of token uncertainty U with other signals of a token
- single sentences
- number of parameters, and time
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from transformers import PreTrainedModel

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.layers import attribute
from uatlite.classifier.runtime import run_tokens
from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.bench import seconds
from uatlite.lab.evaluate.cells import CellSpec, subset_ids
from uatlite.lab.evaluate.comparison import Measurement, Sampled
from uatlite.lab.evaluate.measures import Measure, mean_over_rows, measure_of, no_jobs, over_rows
from uatlite.lab.evaluate.models import Job, Model, rescaled_embeddings
from uatlite.lab.evaluate.plan import Contender, parse_contender
from uatlite.lab.evaluate.runs import Prepared, Runs
from uatlite.lab.evaluate.store import Arrays
from uatlite.lab.paper.source import FineTunedModels
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Estimate
from uatlite.metrics.rows import ratio
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


def models_of(cell: CellSpec, runs: Runs) -> list[Model]:
    """The models of a cell, one for each seed."""
    return [model for model, _ in runs.source.models(cell)]


def _config_of(cell: CellSpec, fit: Model) -> UATConfig:
    """The dropout configuration of a cell's method, with the seed of its fine-tuning."""
    method = cell.contender.method.seeded(fit.seed)
    if method.config is None:
        raise ConfigurationError(f"{cell.measure} needs a method with dropout, such as uat; {method.name} has none.")
    return method.config


def _of_rows(
    name: str, cell: CellSpec, job: Job, runs: Runs, compute: Callable[[Prepared, UATConfig], Arrays], *others: object
) -> Arrays:
    """What a model says of the rows of a cell; `others` decide it besides model, method and rows."""
    job, config = replace(job, rows=cell.rows), _config_of(cell, job.model)
    identity = [job, asdict(config), runs.dataset(job).fingerprint, *others]
    return source_of(runs).kept(name, job.model, identity, lambda: compute(runs.prepared(job), config))


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


def word_attention(cell: CellSpec, fit: Model, runs: Runs) -> float:
    """The attention that a word of a text receives: the mean of its column over query tokens, heads and layers."""
    maps = attention_maps(cell, fit, runs)
    columns = [i for i, token in enumerate(maps["tokens"]) if str(token) == cell.word]
    if not columns:
        raise ConfigurationError(f"{cell.word!r} is not a token of {cell.text!r}: {', '.join(maps['tokens'])}.")
    return float(ATTENTION[cell.measure](maps)[:, columns].mean(axis=0).sum())


def attention_maps(cell: CellSpec, fit: Model, runs: Runs) -> Arrays:
    """plain and modulated (tokens, tokens), averaged over passes, heads and layers, and the tokens (tokens,)."""
    config = _config_of(cell, fit)

    def compute() -> Arrays:
        checkpoint = runs.source.load(fit)
        inputs = text_tokens(cell, checkpoint).pad([0])
        shift = attention_shift(checkpoint.model, inputs, config).chosen()
        names = checkpoint.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        return {
            "plain": shift.plain[0, 0, 0].cpu().double().numpy(),
            "modulated": shift.modulated[0, 0, 0].cpu().double().numpy(),
            "tokens": np.array(names),
        }

    return source_of(runs).kept("attention", fit, [fit, asdict(config), cell.text], compute)


def attention_cosine(cell: CellSpec, runs: Runs) -> Sampled:
    """The cosine of modulated attention with and without rescaled embeddings, mean over texts, layers and heads."""

    def cosines(prepared: Prepared, config: UATConfig) -> Arrays:
        model, values = prepared.checkpoint.model, np.zeros(len(prepared.dataset))
        for i in range(len(values)):
            inputs = prepared.tokens.pad([i])
            plain = attention_shift(model, inputs, config).modulated.flatten(-2)
            with rescaled_embeddings(model, cell.scale):
                scaled = attention_shift(model, inputs, config).modulated.flatten(-2)
            values[i] = torch.nn.functional.cosine_similarity(plain, scaled, dim=-1).mean()
        return {"cosine": values}

    seeds = (_of_rows("cosine", cell, job, runs, cosines, cell.scale) for job in runs.jobs(replace(cell, scale=1.0)))
    return mean_over_rows(cell, (arrays["cosine"] for arrays in seeds))


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_GROUPS = ("embeddings", "early", "middle", "late", "output")
SAMPLES = 50
"""Passes of each kind for a text, or for a block of an example's, with an estimator that samples."""
BLOCKS = 20
"""Blocks of passes of a single example: with nothing else to resample, its interval is over them."""


def layer_share(cell: CellSpec, runs: Runs) -> Sampled:
    """The share of the variance that a group of layers contributes: of the sums over the texts of the cell.

    A single example, as the paper's, is sampled in many blocks of passes, which are resampled in place of texts.
    """
    check_choice("layers", cell.layers, _GROUPS)

    def contributions_of(prepared: Prepared, config: UATConfig) -> Arrays:
        """(texts or blocks, layers + 2), each with masks of its own"""
        ids = subset_ids(prepared.dataset, cell.subset, cell.rows)
        texts = [prepared.tokens.pad([i]) for i, name in enumerate(prepared.dataset.ids) if name in ids]
        attributed = partial(attribute, estimator=cell.estimator, samples=SAMPLES, components=False)
        every = [
            attributed(prepared.checkpoint.model, text, replace(config, seed=config.seed + _APART * i)).contributions
            for i, text in enumerate(texts * (BLOCKS if len(texts) == 1 else 1))
        ]
        return {"contributions": torch.cat(every).cpu().numpy().astype(np.float64)}

    every, others = replace(cell, rows=None), (cell.rows, cell.subset, cell.estimator)
    seeds = [
        _of_rows("layers", every, job, runs, contributions_of, *others)["contributions"] for job in runs.jobs(cell)
    ]
    columns = layers_of(str(cell.layers), seeds[0].shape[1] - 2)
    estimates = (Estimate(partial(_share, of_seed[:, columns].sum(axis=1), of_seed.sum(axis=1))) for of_seed in seeds)
    return over_rows(cell, estimates, len(seeds[0]))


_APART = 1009
"""Between the seeds of two texts."""


def _share(group: Floats, total: Floats, counts: Floats) -> Floats:
    return ratio(counts @ group, counts @ total)


def layers_of(group: str, layers: int) -> list[int]:
    """The places of a group among embeddings, layers 1 .. L and head.

    As in the paper's table, early, middle and late are thirds of the depth, and the last layer stands with the output.
    """
    if group in ("embeddings", "output"):
        return [0] if group == "embeddings" else [layers, layers + 1]
    third = _GROUPS.index(group) - 1
    return [1 + layer for layer in range(layers - 1) if 3 * layer // layers == third]


# ── token uncertainty ──────────────────────────────────────────────────────────────────────────────────────────────
# Tokens of one text are not independent, so texts are resampled. A Spearman correlation is the Pearson correlation of
# ranks over all tokens; in a resample the ranks stay and a token is weighted by how often its text was drawn.


def correlation(cell: CellSpec, runs: Runs) -> Sampled:
    """'pearson:U,norm', 'spearman:U,norm'; 'partial:U,entropy,norm' and 'partial-ranks:…' with the last held fixed."""
    kind, _, names = cell.measure.partition(":")
    signals, ranks = token_signals(cell, runs), kind in ("spearman", "partial-ranks")
    values = [[rankdata(seed[name]) if ranks else seed[name] for name in names.split(",")] for seed in signals]
    return _over_texts(cell, values, signals)


def rank_stability(cell: CellSpec, runs: Runs) -> Sampled:
    """Spearman's ρ of U without and with rescaled token embeddings."""
    plain, scaled = (token_signals(each, runs) for each in (replace(cell, scale=1.0), cell))
    ranks = [[rankdata(seed["U"]) for seed in pair] for pair in zip(plain, scaled, strict=True)]
    return _over_texts(cell, ranks, plain)


def token_signals(cell: CellSpec, runs: Runs) -> list[Arrays]:
    """For every token but padding, (tokens,) each: U, entropy and MI of its text, two norms, the number of its text.

    `norm` is that of the token's embedding, before position, segment and LayerNorm are added; `block` that of the
    embedding block's output, which dropout acts on. Of each seed.
    """

    def of_tokens(prepared: Prepared, config: UATConfig) -> Arrays:
        model, parts = prepared.checkpoint.model, defaultdict[str, list[Floats]](list)
        with rescaled_embeddings(model, cell.scale):
            for batch in prepared.tokens.batches():
                samples = sample(model, batch.inputs, config)
                summary = predict(samples.logits.cpu().numpy())
                real = batch.inputs["attention_mask"].bool().numpy()
                of_text = {"entropy": summary.entropy, "mi": summary.mutual_information, "text": np.array(batch.rows)}
                values = {name: np.broadcast_to(texts[:, None], real.shape) for name, texts in of_text.items()}
                values |= {"U": samples.token_uncertainty.cpu().numpy(), **_norms(model, batch.inputs)}
                for name, tokens in values.items():
                    parts[name].append(tokens[real].astype(np.float64))
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    return [_of_rows("tokens", cell, job, runs, of_tokens) for job in runs.jobs(cell)]


def _norms(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, Floats]:
    """Norms (batch, tokens) of the token embeddings and of the embedding block's output."""
    row, inputs = view_of(model).architecture, {name: value.to(model.device) for name, value in inputs.items()}
    block, outputs = model.get_submodule(f"{row.base}.{row.embedding}"), dict[str, torch.Tensor]()
    with torch.inference_mode(), ExitStack() as hooks:
        hooks.callback(block.register_forward_hook(lambda *seen: outputs.update(block=seen[-1])).remove)
        model(**inputs)
        outputs["norm"] = model.get_input_embeddings()(inputs["input_ids"])
    return {name: output.float().norm(dim=-1).cpu().numpy() for name, output in outputs.items()}


def _over_texts(cell: CellSpec, signals: Sequence[Sequence[Floats]], tokens: Sequence[Arrays]) -> Sampled:
    """The correlation of each seed; the texts of the tokens are resampled."""
    texts = [seed["text"].astype(np.intp) for seed in tokens]
    estimates = (Estimate(partial(_correlate, *of_seed)) for of_seed in zip(signals, texts, strict=True))
    return over_rows(cell, estimates, int(texts[0].max()) + 1)


def _correlate(signals: Sequence[Floats], texts: NDArray[np.intp], counts: Floats) -> Floats:
    """The correlation of two signals (tokens,), or the partial one given a third, from the counts of texts."""
    weights = counts[:, texts]
    correlations = [weighted_correlation(*pair, weights) for pair in combinations(signals, 2)]
    if len(correlations) == 1:
        return correlations[0]
    r12, r13, r23 = correlations
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
    "probe-confidence": lambda said: said["confidence"],
    "probe-doubt": lambda said: 1 - said["confidence"],
    "probe-information": lambda said: said["information"],
}
"""measure -> its value from confidence and mutual information; the paper's "Unc" is 1 - confidence"""


def probe(cell: CellSpec, fit: Model, runs: Runs) -> float:
    """Confidence, 1 - confidence, or mutual information of a sentence."""
    method = cell.contender.method.seeded(fit.seed)

    def compute() -> Arrays:
        checkpoint = runs.source.load(fit)
        summary = predict(run_tokens(checkpoint.model, method, text_tokens(cell, checkpoint)).logits)
        return {"confidence": summary.confidence[0], "information": summary.mutual_information[0]}

    identity = [fit, method_to_dict(method), fit.seed, cell.text]
    return float(PROBES[cell.measure](source_of(runs).kept("probe", fit, identity, compute)))


# ── cost ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TIMED = ("base", "base+ts", "uat", "uat+ts")
_BATCH, TOKENS = 32, 128
RUNS = {"cuda": (50, 200), "cpu": (1, 5)}
"""device -> warm-up runs and timed runs; the paper's on a GPU"""


def parameters(cell: CellSpec, runs: Runs) -> Measurement:
    """Millions of parameters."""
    return Measurement((runs.source.load(models_of(cell, runs)[0]).model.num_parameters() / 1e6,))


def row_count(cell: CellSpec, runs: Runs) -> Measurement:
    """How many rows a cell is about."""
    return Measurement((float(len(runs.outcomes(cell)[0].rows)),))


def pass_count(cell: CellSpec, runs: Runs) -> Measurement:
    """How many passes a text takes; 'passes:3' in units of three."""
    count = cell.passes or cell.contender.method.passes
    return Measurement((count / int(cell.measure.partition(":")[2] or 1),))


def latency(cell: CellSpec, runs: Runs) -> Measurement:
    """Milliseconds for 32 texts of 128 tokens, end to end; the deviation is over runs."""
    return Measurement(tuple(1000 * _latencies(cell, runs)[cell.contender.name]))


def latency_ratio(cell: CellSpec, runs: Runs) -> Measurement:
    """A contender's time over the base's, the median over turns in which both ran."""
    times = _latencies(cell, runs)
    return Measurement((float(np.median(times[cell.contender.name] / times["base"])),))


def _latencies(cell: CellSpec, runs: Runs) -> Arrays:
    """Seconds (runs,) of each timed contender; they run in turn, so that other load on the machine affects all.

    The temperature is fitted on noise: its value does not change what it costs.
    """
    fit = models_of(replace(cell, contender=Contender(BASE)), runs)[0]

    def compute() -> Arrays:
        model, generator = runs.source.load(fit).model, torch.Generator().manual_seed(fit.seed)
        length = min(TOKENS, model.config.max_position_embeddings)
        ids = torch.randint(5, model.config.vocab_size, (_BATCH, length), generator=generator).to(model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        noise, classes = np.random.default_rng(fit.seed), model.config.num_labels
        temperature = Temperature.fit(noise.normal(size=(100, classes)), noise.integers(classes, size=100))

        def run(method: Method, calibrated: bool) -> None:
            logits = method.run(model, inputs).logits.mean(dim=0).cpu().numpy()
            if calibrated:
                temperature.probabilities(logits)

        contenders = map(parse_contender, TIMED)
        timed = [partial(run, contender.method.seeded(fit.seed), contender.calibrated) for contender in contenders]
        warm_up, rounds = RUNS["cuda" if model.device.type == "cuda" else "cpu"]
        turns = [list(map(seconds, timed)) for _ in range(warm_up + rounds)]
        return dict(zip(TIMED, np.array(turns[warm_up:]).T, strict=True))

    return source_of(runs).kept("seconds", fit, [fit], compute)


# ── by name ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_models(value: Callable[[CellSpec, Model, Runs], float], decimals: int = 3) -> Measure:
    """A number of each model, of which nothing is resampled."""

    def compute(cell: CellSpec, runs: Runs) -> Measurement:
        return Measurement(tuple(value(cell, fit, runs) for fit in models_of(cell, runs)))

    return Measure(compute, no_jobs, decimals)


PROBED: dict[str, Measure] = {
    **dict.fromkeys(("pearson", "spearman", "partial", "partial-ranks"), Measure(correlation, no_jobs)),
    "rank-stability": Measure(rank_stability, no_jobs),
    "attention-cosine": Measure(attention_cosine, no_jobs),
    **{name: _of_models(word_attention, decimals=4) for name in ATTENTION},
    "layer-share": Measure(layer_share, no_jobs),
    **{name: _of_models(probe) for name in PROBES},
    "rows": Measure(row_count, decimals=0, of_learning=False),
    "passes": Measure(pass_count, no_jobs, decimals=2, of_learning=False),
    "parameters": Measure(parameters, no_jobs, decimals=1, of_learning=False),
    "latency": Measure(latency, no_jobs, decimals=1, of_learning=False),
    "latency-ratio": Measure(latency_ratio, no_jobs, decimals=2, of_learning=False),
}
"""name, before its colon -> the measure; correlations name their signals after it, as in 'spearman:U,entropy'"""


def paper_measure(name: str) -> Measure:
    """The measure of this name: one of these, or one of those that are computed from stored predictions."""
    return PROBED.get(name.partition(":")[0]) or measure_of(name)
