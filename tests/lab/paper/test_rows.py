"""Which rows are trained, calibrated and tested on, and which of them a cell is about."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr

from uatlite.errors import ConfigurationError
from uatlite.lab.paper.probes import group, weighted_correlation
from uatlite.lab.paper.settings import ReproductionSettings as Settings
from uatlite.lab.paper.settings import Supplies, chosen
from uatlite.text.tasks import load


@pytest.fixture
def supplies(data_dir: Path) -> Supplies:
    return Supplies(Settings(data_dir=data_dir))


def test_without_training_rows_the_calibration_rows_are_divided_between_articles(supplies: Supplies) -> None:
    supply = supplies.of("squad2")
    parts = [supply.train, supply.calibration, supply.test()]
    titles = [{str(example.meta["title"]) for example in part.examples} for part in parts]
    assert all(titles)
    assert not titles[0] & titles[1]
    assert not (titles[0] | titles[1]) & titles[2]
    assert sum(map(len, parts)) == 200
    assert "no training rows here" in supply.note


def test_training_rows_are_used_where_there_are_some(supplies: Supplies, data_dir: Path) -> None:
    supply = supplies.of("sst2")
    assert supply.train.fingerprint == load("sst2", "train", data_dir).fingerprint
    assert supply.calibration.fingerprint == load("sst2", "calibration", data_dir).fingerprint
    assert "no training rows" not in supply.note


def test_limits(data_dir: Path) -> None:
    limited = Supplies(Settings.of(data_dir=data_dir, limit=3)).of("sst2")
    assert (len(limited.train), len(limited.calibration), len(limited.test())) == (30, 3, 3)
    assert Settings.of(limit=3).recipe != Settings.of().recipe
    assert Settings.of(limit=3, recipe="paper").recipe == Settings.of().recipe


def test_a_subset_meets_every_condition(supplies: Supplies) -> None:
    hans = supplies.at("hans")
    ids = chosen(hans, "heuristic=subsequence&label=non-entailment", None)
    found = [example for example in hans.examples if example.id in ids]
    assert {(one.meta["heuristic"], hans.labels[one.label or 0]) for one in found} == {
        ("subsequence", "non-entailment")
    }
    assert len(chosen(hans, None, 7)) == 7
    with pytest.raises(ConfigurationError, match="heuristic"):
        chosen(hans, "heuristics=subsequence", None)


@pytest.mark.parametrize(("layers", "sizes"), [(12, (4, 4, 4)), (3, (1, 1, 1)), (2, (1, 0, 1)), (6, (2, 2, 2))])
def test_layers_fall_into_thirds(layers: int, sizes: tuple[int, ...]) -> None:
    groups = [group(name, layers) for name in ("embeddings", "early", "middle", "late", "head")]
    assert tuple(map(len, groups[1:4])) == sizes
    assert sorted(place for one in groups for place in one) == list(range(layers + 2))


def test_a_weighted_correlation_is_that_of_repeated_tokens() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40))
    counts = rng.integers(0, 4, size=(5, 40)).astype(float)
    expected = [pearsonr(np.repeat(x, row.astype(int)), np.repeat(y, row.astype(int))).statistic for row in counts]
    assert weighted_correlation(x, y, counts) == pytest.approx(expected)
