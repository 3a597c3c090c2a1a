"""Which layers the variance of the output comes from, in the paper's five groups."""

from dataclasses import replace

import numpy as np

from uatlite.attribution import attribute
from uatlite.errors import check_choice
from uatlite.metrics.metric import mean_of
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured, resampled
from uatlite.reproduce.measures.attention import config_of
from uatlite.reproduce.measures.scores import which_rows
from uatlite.reproduce.subsets import chosen
from uatlite.reproduce.workshop import Arrays, Job, Workshop

GROUPS = ("embeddings", "early", "middle", "late", "head")
SAMPLES = 200
"""Passes of each kind, for an estimator that samples."""


def layer_share(ask: Ask, workshop: Workshop) -> Measured:
    """The share of the variance that a group of layers contributes, mean over the texts of the cell."""
    check_choice("layers", ask.layers, GROUPS)
    assert ask.layers is not None
    shares = [_shares(ask, job, workshop)["shares"] for job in workshop.jobs(ask)]
    of_group = [one[:, group(ask.layers, one.shape[1] - 2)].sum(axis=1) for one in shares]
    if len(of_group[0]) == 1:  # an example of the paper's kind: there is nothing to resample
        return Measured(tuple(float(one[0]) for one in of_group), rows=1)
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


def _shares(ask: Ask, job: Job, workshop: Workshop) -> Arrays:
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
