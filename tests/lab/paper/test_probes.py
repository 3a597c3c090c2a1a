"""Arithmetic of the measures that run a model: groups of layers, weighted correlations."""

import numpy as np
import pytest
from scipy.stats import pearsonr

from uatlite.lab.paper.probes import layers_of, weighted_correlation


@pytest.mark.parametrize(("layers", "sizes"), [(12, (4, 4, 4)), (3, (1, 1, 1)), (2, (1, 0, 1)), (6, (2, 2, 2))])
def test_layers_fall_into_thirds(layers: int, sizes: tuple[int, ...]) -> None:
    groups = [layers_of(name, layers) for name in ("embeddings", "early", "middle", "late", "head")]
    assert tuple(map(len, groups[1:4])) == sizes
    assert sorted(place for one in groups for place in one) == list(range(layers + 2))


def test_a_weighted_correlation_is_that_of_repeated_tokens() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40))
    counts = rng.integers(0, 4, size=(5, 40)).astype(float)
    expected = [pearsonr(np.repeat(x, row.astype(int)), np.repeat(y, row.astype(int))).statistic for row in counts]
    assert weighted_correlation(x, y, counts) == pytest.approx(expected)
