"""The monitor: evidence from ranks against slow references, exact for few calibration rows and quick after a change;
the bound over the whole life, the alarm, the reset, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, kstest

from by_hand import again
from uatlite.errors import CalibrationError, ConfigurationError, DataError, InputError, StoreError
from uatlite.trust.monitor import BETS, SLOWNESS, START, Monitor, RankCells, Reference, Wealth, log_factors, uniforms
from uatlite.trust.scope import Scope
from uatlite.trust.shift import Usual, summarise


def stream(seed, calibration, new):
    """Sorted calibration values, and the number of them below each new one; no change."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.normal(size=calibration))
    return values, np.searchsorted(values, rng.normal(size=new))


def slow_ranks(cells, found, numbers, *, fresh):
    """Each rank by a bag of cells: every place among the calibration rows, and every earlier row."""
    bag = [] if fresh else [cell for cell, weight in enumerate(cells.weights) for _ in range(int(weight))]
    ranks = []
    for own, number in zip(found, numbers, strict=True):
        among = [*bag, own] if fresh else bag
        below, level = sum(cell < own for cell in among), sum(cell == own for cell in among)
        ranks.append((below + number * level) / len(among))
        bag.append(own)
    return ranks


def slow_martingale(ranks):
    """The sum over bets and over the row at which they begin, as it is defined; nothing begins twice or is lost."""
    factors = np.array([[beta.pdf(rank, a, b) for a, b, *_ in BETS.values()] for rank in ranks])
    waiting, shares = 1.0 - START, [START]
    for row in range(1, len(ranks)):
        shares.append(waiting / (2 * (row + SLOWNESS)))
        waiting -= shares[-1]
    return [
        1.0 - sum(shares[:rows]) + sum(shares[start] * factors[start:rows].prod(axis=0).mean() for start in range(rows))
        for rows in range(1, len(ranks) + 1)
    ]


def watched(values, places, seed, *, fresh=False):
    """The cells of calibration values, those of new rows and their uniform numbers, and the wealth with log M."""
    cells = RankCells.of(values)
    found, numbers = cells.cell(places), uniforms((seed, 0), 0, len(places))
    return cells, found, numbers, Wealth.none(cells, fresh=fresh).after(cells, found, numbers)


@pytest.mark.parametrize("fresh", [False, True])
def test_it_is_the_mixture_over_bets_and_starts(fresh):
    cells, found, numbers, (after, logs) = watched(*stream(0, 30, 60), seed=1, fresh=fresh)
    expected = slow_martingale(slow_ranks(cells, found, numbers, fresh=fresh))
    np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-9)
    assert after.log_martingale == pytest.approx(logs[-1])


def test_a_factor_is_the_density_of_a_beta_distribution():
    grid = (np.arange(500) + 0.5) / 500
    expected = [beta.logpdf(grid, a, b) for a, b, *_ in BETS.values()]
    np.testing.assert_allclose(log_factors(grid).T, expected, atol=1e-12)
    assert np.isfinite(log_factors(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("fresh", [False, True])
def test_ranks_are_uniform_and_independent_also_by_few_calibration_rows(fresh):
    """Ranks against the calibration rows alone are not: with 50 of them, a long stream shares their luck."""
    late, alone, pairs = [], [], []
    for seed in range(400):
        values, places = stream(seed, 50, 300)
        cells = RankCells.of(values)
        evidence = Wealth.none(cells, fresh=fresh)
        ranks = evidence._ranks(cells, cells.cell(places), uniforms((seed, 0), 0, 300))
        late.append(ranks[100:].mean())
        alone.append((places[100:] / 50).mean())
        pairs.append((ranks[250], ranks[251:].mean()))
    spread = 1 / math.sqrt(12 * 200)
    assert np.std(late) == pytest.approx(spread, rel=0.12)
    assert np.std(alone) > 1.5 * spread
    first, rest = np.array(pairs).T
    assert kstest(first, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(first, rest)[0, 1]) < 0.13


def test_texts_that_come_again_and_again_raise_no_alarm():
    """A fifth of all rows are one text, a tenth another; between batches their values differ by a little."""
    rng = np.random.default_rng(0)

    def draw(rows, noise):
        kind = rng.random(rows)
        repeated = np.where(kind < 0.2, 0.3, -0.7) + noise
        return np.where(kind < 0.3, repeated, rng.normal(size=rows))

    found = []
    for seed in range(60):
        values = np.sort(draw(300, 0.0))
        new = np.searchsorted(values, draw(3000, rng.choice([0, 1e-6, -1e-6])))
        found.append(watched(values, new, seed)[-1][1].max())
    assert np.mean(np.array(found) >= math.log(10)) <= 0.2
    assert len(RankCells.of(values).edges) > 20
    assert not np.isin(values[RankCells.of(values).edges - 1], [0.3, -0.7]).any()


def test_rows_that_are_all_tied_are_never_an_alarm():
    cells, *_, (_, logs) = watched(np.ones(80), np.full(500, 80), 0)
    assert cells.weights.tolist() == [81.0]
    assert logs.max() < math.log(100)


@pytest.mark.parametrize("before", [0, 200, 5000])
def test_a_change_is_found_soon_also_a_late_one(before):
    delays, errors = [], []
    for seed in range(20):
        values, places = stream(seed, 500, before + 400)
        rng = np.random.default_rng(1000 + seed)
        places[before:] = np.searchsorted(values, rng.normal(-1, 1, size=400))
        cells, found, numbers, (_, logs) = watched(values, places, seed)
        row = int(np.argmax(logs >= math.log(100)))
        at, _ = Wealth.none(cells).after(cells, found[: row + 1], numbers[: row + 1])
        delays.append(row + 1 - before)
        errors.append(abs(int(at.since[at.capital.argmax()]) - before))
    assert min(delays) > 0
    assert np.median(delays) < 50
    assert np.median(errors) < 15


def test_uniform_numbers_do_not_depend_on_how_rows_are_grouped():
    whole = uniforms((3, 4), 0, 1000)
    parts = [uniforms((3, 4), first, 100) for first in range(0, 1000, 100)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert kstest(whole, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(whole, uniforms((3, 5), 0, 1000))[0, 1]) < 0.1


# --- the monitor

CALIBRATION = 300


class Rows:
    """Rows whose strangeness and score go together: pairs of a normal distribution with correlation -0.6."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        strange, scores = self.draw(CALIBRATION)
        self.scope = Scope(0.01, 0, np.sort(strange))
        self.reference = Reference.of(summarise(scores, score="logit-margin"), self.scope)

    def draw(self, rows, moved=0.0, unsure=0.0):
        pairs = self.rng.multivariate_normal([moved, -unsure], [[1, -0.6], [-0.6, 1]], size=rows)
        return pairs[:, 0], pairs[:, 1]

    def new(self, rows, moved=0.0, unsure=0.0):
        """Scores and p-values of scope."""
        strange, scores = self.draw(rows, moved, unsure)
        below = np.searchsorted(self.scope.nonconformities, strange, side="left")
        return scores, (1.0 + CALIBRATION - below) / (1.0 + CALIBRATION)


def test_without_a_change_it_hardly_ever_alarms_though_it_is_read_after_every_row():
    bound, repetitions = 0.05, 300
    alarms = 0
    for seed in range(repetitions):
        rows = Rows(seed)
        monitor, logs = Monitor.begin(rows.reference, bound=bound, seed=seed).after(rows.reference, *rows.new(1500))
        alarms += monitor.alarm is not None
        assert (monitor.alarm is not None) == bool((logs >= -math.log(bound)).any())
    assert alarms / repetitions <= bound + 2.5 * math.sqrt(bound * (1 - bound) / repetitions)


@pytest.mark.parametrize("stream", ["scope", "score"])
def test_a_change_is_found_named_and_dated(stream):
    rows = Rows(3)
    monitor, _ = Monitor.begin(rows.reference).after(rows.reference, *rows.new(800))
    assert monitor.alarm is None
    change = {"moved": 1.2} if stream == "scope" else {"unsure": 1.2}
    monitor, _ = monitor.after(rows.reference, *rows.new(200, **change))
    assert monitor.alarm.stream == stream
    assert 800 < monitor.alarm.row < 900
    assert abs(monitor.alarm.change - 800) < 30
    assert monitor.alarm.describe().endswith(getattr(BETS[monitor.alarm.bet], stream))
    assert monitor.alarm.describe().startswith("the classifier is ") == (stream == "score")
    assert "low" in monitor.alarm.bet
    # It stays, with the same date, whatever comes.
    later, _ = monitor.after(rows.reference, *rows.new(2000))
    assert later.alarm == monitor.alarm


def test_blocks_and_a_file_in_between_change_nothing():
    rows = Rows(4)
    scores, scope = (np.append(a, b) for a, b in zip(rows.new(300), rows.new(100, moved=1.0), strict=True))
    whole, logs = Monitor.begin(rows.reference).after(rows.reference, scores, scope)
    parts, seen = Monitor.begin(rows.reference), []
    for first in range(0, 400, 37):
        some = slice(first, first + 37)
        parts, own = parts.after(rows.reference, scores[some], scope[some])
        parts = again(parts)
        seen += own.tolist()
    np.testing.assert_allclose(seen, logs, rtol=1e-9)
    assert replace(parts.alarm, log_martingale=0.0) == replace(whole.alarm, log_martingale=0.0)
    assert parts.log_martingale == pytest.approx(whole.log_martingale)


def test_a_reset_begins_again_against_the_calibration_rows_or_a_new_normal():
    rows = Rows(5)
    changed, _ = Monitor.begin(rows.reference).after(rows.reference, *rows.new(300, moved=1.2))
    with pytest.raises(StoreError, match="no alarm to acknowledge"):
        Monitor.begin(rows.reference).acknowledged(rows.reference)
    over = changed.acknowledged(rows.reference)
    assert (over.alarm, over.rows, over.epoch, over.log_martingale) == (None, 0, 1, pytest.approx(0.0))
    assert over.after(rows.reference, *rows.new(300, moved=1.2))[0].alarm is not None
    normal = changed.acknowledged(rows.reference, fresh=True)
    settled, _ = normal.after(rows.reference, *rows.new(1500, moved=1.2))
    assert settled.fresh
    assert settled.alarm is None
    back, _ = settled.after(rows.reference, *rows.new(300))
    assert "high" in back.alarm.bet


def test_without_a_scope_the_score_is_watched_alone():
    rows = Rows(6)
    reference = Reference.of(summarise(rows.draw(100)[1]), None)
    monitor, _ = Monitor.begin(reference).after(reference, rows.new(200, unsure=1.5)[0], None)
    assert monitor.alarm.stream == "score"
    assert list(monitor.evidence) == ["score"]


def test_refusals():
    rows = Rows(7)
    monitor, reference = Monitor.begin(rows.reference), rows.reference
    for error, message, call in (
        (CalibrationError, "fewer than 50", lambda: Reference.of(None, rows.scope)),
        (ConfigurationError, "bound=2", lambda: Monitor.begin(reference, bound=2)),
        (InputError, "p-values of scope of the new rows too", lambda: monitor.after(reference, [0.5], None)),
        (InputError, "2 scores came with 1", lambda: monitor.after(reference, [0.5, 0.6], [0.5])),
        (DataError, "scored with another calibration", lambda: monitor.after(reference, [0.5], [0.5012345])),
    ):
        with pytest.raises(error, match=message):
            call()
    same, logs = monitor.after(reference, [], [])
    assert same is monitor
    assert len(logs) == 0


def test_what_is_usual_is_kept_with_the_calibration_rows():
    usual = Usual.of(np.array([0.5, 0.7]), np.array([1, 1]), np.array([True, False]), ("a", "b"))
    assert usual == Usual(pytest.approx(0.6), {"a": 0.0, "b": 1.0}, 0.5)
    kept = summarise(np.arange(60.0), usual=usual)
    assert again(kept).usual == kept.usual
