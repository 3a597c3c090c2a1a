"""Every measure by name."""

from uatlite.errors import ConfigurationError, nearest
from uatlite.metrics import METRICS
from uatlite.metrics.shift import SHIFT
from uatlite.reproduce.measures import attention, cost, layers, pairs, probes, scores, thresholds, tokens
from uatlite.reproduce.measures.measure import Measure, no_jobs

MEASURES: dict[str, Measure] = {
    **{name: Measure(scores.score) for name in METRICS},
    **{name: Measure(scores.score, decimals=0) for name in METRICS if name.startswith("count@")},
    **{name: Measure(scores.shift_score, scores.shift_jobs) for name in SHIFT},
    **{name: Measure(pairs.change, pairs.change_jobs) for name in pairs.CHANGES},
    **{
        f"{kind}@{target}": Measure(thresholds.at_selected, thresholds.selected_jobs)
        for kind in thresholds.KINDS
        for target in thresholds.TARGETS
    },
    "rank-stability": Measure(tokens.rank_stability, no_jobs),
    "attention-cosine": Measure(attention.cosine, no_jobs),
    **{name: Measure(attention.received, no_jobs, decimals=4) for name in attention.WEIGHTS},
    "layer-share": Measure(layers.layer_share, no_jobs),
    **{name: Measure(probes.probe, no_jobs) for name in probes.PROBES},
    "parameters": Measure(cost.parameters, no_jobs, decimals=1),
    "latency": Measure(cost.latency, cost.latency_jobs, decimals=1),
    "latency-ratio": Measure(cost.latency_ratio, cost.latency_jobs, decimals=2),
}
CORRELATIONS = Measure(tokens.correlation, no_jobs)
"""'pearson:', 'spearman:' and 'partial:' take the names of signals after the colon."""


def measure_of(name: str) -> Measure:
    """The measure of that name."""
    if name.partition(":")[0] in ("pearson", "spearman", "partial"):
        return CORRELATIONS
    if name not in MEASURES:
        raise ConfigurationError(f"measure={name!r} is not one of: {', '.join(MEASURES)}.{nearest(name, MEASURES)}")
    return MEASURES[name]
