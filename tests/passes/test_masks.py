"""Mask bits, and the multipliers that are cached from them."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import InputError
from uatlite.passes import dropout as noise
from uatlite.passes import forward
from uatlite.passes.masks import MASKS, WIDEST, Draw, independent, stratified, text_hash

DRAW = Draw(seed=0, site="0.output.0", rate=0.5)
SHAPE = (2, 16, 64)
TWO_SIDED = 4.5
"""|z| that one of a few hundred standard normals passes with a chance of about 1 in 1000."""


def z_of_rate(keep, rate):
    """How many standard errors the share of dropped units lies from its rate."""
    return float(((~keep).mean() - rate) / math.sqrt(rate * (1 - rate) / keep.size))


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_independent_rate(rate):
    keep = independent(Draw(3, "site", rate), range(40), 40, SHAPE)
    assert keep.shape == (40, *SHAPE)
    assert abs(z_of_rate(keep, rate)) < TWO_SIDED
    per_pass = np.array([z_of_rate(mask, rate) for mask in keep])
    assert abs(per_pass).max() < TWO_SIDED
    assert stats.kstest(per_pass, "norm").pvalue > 1e-3


@pytest.mark.parametrize("rate", [1e-12, 1 - 1e-12])
@pytest.mark.parametrize("kind", MASKS)
def test_extreme_rates(kind, rate):
    keep = MASKS[kind](Draw(0, "site", rate), range(4), 4, SHAPE)
    assert keep.mean() == round(1 - rate)


@pytest.mark.parametrize(
    ("total", "shape"), [*((total, (4, 32, 128)) for total in (1, 2, 3, 5, 6, 10, 16, 33)), (40_000, (1, 1, 4))]
)
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.3, 0.5, 0.75])
def test_strata(rate, total, shape):
    """Units are dropped floor(pM) or ceil(pM) times, in the right shares, and each pass alone drops with the rate.

    40,000 passes are more than 16 bits of phase and order can add without wrapping.
    """
    keep = stratified(Draw(2, "site", rate), range(total), total, shape)
    drops, expected = (~keep).sum(axis=0), round(rate * total, 9)  # 0.1·10 is 1, whatever the floating point makes
    least = math.floor(expected)
    assert drops.min() >= least
    assert drops.max() <= math.ceil(expected)
    error = math.sqrt((expected - least) * (1 - expected + least) / keep[0].size)
    assert abs((drops > least).mean() - (expected - least)) <= TWO_SIDED * error
    assert total > 100 or max(abs(z_of_rate(mask, rate)) for mask in keep) < TWO_SIDED


def test_strata_of_two_sites_are_not_in_step():
    """In how many passes two units of different sites are dropped together is as for passes picked at random.

    Were the order of the strata common to all sites, each unit's passes would be neighbours there, and two units would
    more often share all or none.
    """
    total, drops = 10, 3
    masks = [stratified(Draw(0, f"{i}.output.0", drops / total), range(total), total, (1, 1, 1)) for i in range(1600)]
    dropped = ~np.array(masks).reshape(800, 2, total)
    together = np.bincount((dropped[:, 0] & dropped[:, 1]).sum(axis=1), minlength=drops + 1)
    expected = stats.hypergeom(total, drops, drops).pmf(np.arange(drops + 1)) * len(dropped)
    assert stats.chisquare(together, expected).pvalue > 1e-3


@pytest.mark.parametrize("kind", MASKS)
def test_blocks_of_passes_and_prefixes_of_shapes_agree(kind):
    """A mask bit does not depend on what else is asked for: passes, tokens, units or heads."""
    draw = Draw(9, "site", 0.3, b"text")
    whole = MASKS[kind](draw, range(8), 8, (4, 16, 32))
    part = MASKS[kind](draw, range(3, 6), 8, (2, 5, 7))
    assert np.array_equal(part, whole[3:6, :2, :5, :7])


def streams(kind):
    """Pairs of masks that differ in one thing only, as dropped (+) and kept (-) numbers of mean 0."""

    def bits(seed=0, site="0.output.0", text=b"", passes=range(1), shape=(1, 64, 64), rate=0.5):
        return MASKS[kind](Draw(seed, site, rate, text), passes, 8, shape).astype(float) * 2 - 1

    base = bits()
    heads = bits(shape=(2, 64, 64))
    passes = bits(passes=range(2))
    wide = bits(shape=(1, 65, 65))
    pairs = {
        "seed": (base, bits(seed=1)),
        "seed bit 32": (base, bits(seed=2**32)),
        "site": (base, bits(site="1.output.0")),
        "call": (base, bits(site="0.output.1")),
        "text": (base, bits(text=b"a")),
        "head": (heads[:, 0], heads[:, 1]),
        "position": (wide[:, :, :-1], wide[:, :, 1:]),
        "unit": (wide[..., :-1], wide[..., 1:]),
        "transposed": (base, base.swapaxes(-1, -2) * (1 - np.eye(64))),
    }
    if kind == "independent":  # strata are meant to be correlated over passes
        pairs["pass"] = (passes[0], passes[1])
    return pairs


@pytest.mark.parametrize("kind", MASKS)
def test_no_correlation(kind):
    for name, (left, right) in streams(kind).items():
        terms = (left * right).ravel()
        z = terms.sum() / math.sqrt(np.count_nonzero(terms))
        assert abs(z) < TWO_SIDED, name


def test_bits_in_blocks_are_uniform():
    """Chi-square of the patterns of 8 neighbouring units, of 8 neighbouring positions and of 8 passes."""
    keep = independent(DRAW, range(8), 8, (4, 64, 64))
    for axis in (-1, -2, 0):
        moved = np.moveaxis(keep, axis, -1)
        words = np.packbits(moved.reshape(-1, 8), axis=1).ravel()
        assert stats.chisquare(np.bincount(words, minlength=256)).pvalue > 1e-3


def test_hash_is_uniform_beyond_its_first_bit():
    """The same uniform serves every rate: its distribution function, read off at many rates, is straight."""
    kept = [independent(Draw(5, "site", rate), range(1), 1, (1, 128, 128)) for rate in np.linspace(0.02, 0.98, 49)]
    shares = np.array([1 - keep.mean() for keep in kept])
    assert abs(shares - np.linspace(0.02, 0.98, 49)).max() < 1.95 / 128  # Kolmogorov's bound at about 1e-3
    assert all((later <= earlier).all() for earlier, later in pairwise(kept))


def test_masks_reach_only_so_far():
    with pytest.raises(InputError, match=f"{WIDEST}"):
        independent(DRAW, range(1), 1, (1, 1, WIDEST + 1))


def test_text_hash():
    """A text is its tokens: order, ids and length count, the integer type does not."""
    ids = np.array([5, 6, 7])
    assert text_hash(ids) == text_hash(ids.astype(np.int32))
    assert len({text_hash(np.array(x)) for x in ([5, 6, 7], [7, 6, 5], [5, 6], [5, 6, 7, 7], [])}) == 5


RATES = DropoutRates(0.15, 0.2, 0.3, 0.25)
CONFIGS = {
    "lagged": UATConfig(samples=3, penalty=2.0, rates=RATES),
    "normalised": UATConfig(samples=3, penalty=2.0, rates=RATES, uncertainty="mean-std+ln"),
    "stratified": UATConfig(samples=3, penalty=2.0, rates=RATES, masks="stratified", estimate="layerwise"),
}


def multiplier(size):
    return torch.tensor([0.0, 1.25]).repeat(size // 2)


def test_the_largest_becomes_bits_before_anything_is_dropped():
    cache = noise.MultiplierCache(4 * 60)
    small, large = multiplier(20), multiplier(36)
    cache.put("small", small, shrinks=True)
    cache.put("large", large, shrinks=True)
    assert cache.get("small") is small
    assert cache.get("large") is large
    cache.put("more", multiplier(20), shrinks=True)
    bits = cache.get("large")
    assert bits is not None
    assert bits.dtype == torch.bool
    assert torch.equal(bits, large != 0)
    assert cache.get("small") is small
    assert cache._bytes == sum(entry.nbytes for entry in cache._entries.values()) <= 4 * 60


def test_what_does_not_shrink_is_dropped_when_it_was_used_least_recently():
    cache = noise.MultiplierCache(4 * 50)
    for name in ("a", "b"):
        cache.put(name, multiplier(20))
    cache.get("a")
    cache.put("c", multiplier(20))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    cache.put("too large", multiplier(60))
    assert cache.get("too large") is None
    cache.clear()
    assert cache._bytes == 0
    assert cache.get("a") is None


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("blocks", [False, True], ids=["at once", "in blocks"])
def test_the_answer_is_the_same_from_the_cache_bits_and_nothing(shared, texts, monkeypatch, config, side, blocks):
    """Bits spare finding the masks again; attention in blocks keeps its masks as bits from the first."""
    model, batch, drawn, expected, limit = shared("bert"), texts((9, 5, 7), side=side), [], None, 2**30
    monkeypatch.setattr(forward, "CACHED", 0 if blocks else forward.CACHED)
    draw = noise.MASKS[config.masks]
    monkeypatch.setitem(noise.MASKS, config.masks, lambda *given: drawn.append(given) or draw(*given))
    for kept in ("all", "bits", "nothing"):
        cache = noise.MultiplierCache(limit)
        monkeypatch.setattr(noise, "CACHE", cache)
        first = sample(model, batch, config)
        found = len(drawn)
        again = sample(model, batch, config)
        expected = first if expected is None else expected
        for other in (first, again):
            assert torch.equal(other.logits, expected.logits)
            assert torch.equal(other.token_uncertainty, expected.token_uncertainty)
        entries = list(cache._entries.values())
        attention = [entry for entry in entries if entry.ndim == 5 and entry.shape[2] > 1]
        assert not blocks or kept == "nothing" or all(entry.dtype == torch.bool for entry in attention)
        assert any(entry.dtype == torch.bool for entry in entries) == (kept == "bits" or (blocks and kept == "all"))
        if config is CONFIGS["lagged"] and not blocks:
            assert (len(drawn) > found) == (kept == "nothing")
        limit = cache._bytes // 2 if kept == "all" else 1
