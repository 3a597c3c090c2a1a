"""The cache of multipliers: bounded, and no answer depends on what is in it."""

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.passes import masks as noise
from uatlite.passes.masks import MultiplierCache

RATES = DropoutRates(0.15, 0.2, 0.3, 0.25)
CONFIGS = {
    "lagged": UATConfig(samples=3, penalty=2.0, rates=RATES),
    "normalised": UATConfig(samples=3, penalty=2.0, rates=RATES, uncertainty="mean-std+ln"),
    "stratified": UATConfig(samples=3, penalty=2.0, rates=RATES, masks="stratified", estimate="layerwise"),
}


def multiplier(size: int) -> torch.Tensor:
    return torch.tensor([0.0, 1.25]).repeat(size // 2)


def test_the_largest_becomes_bits_before_anything_is_dropped() -> None:
    cache = MultiplierCache(4 * 60)
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


def test_what_does_not_shrink_is_dropped_when_it_was_used_least_recently() -> None:
    cache = MultiplierCache(4 * 50)
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
@pytest.mark.parametrize("kept", ["bits", "nothing"])
def test_the_answer_is_the_same_from_bits_and_from_nothing(shared, texts, monkeypatch, config, side, kept) -> None:
    model, batch = shared("bert"), texts((9, 5, 7), side=side)
    monkeypatch.setattr(noise, "CACHE", MultiplierCache(2**30))
    expected = sample(model, batch, config)
    whole = noise.CACHE._bytes
    monkeypatch.setattr(noise, "CACHE", MultiplierCache(whole // 2 if kept == "bits" else 1))
    for _ in range(2):
        found = sample(model, batch, config)
        assert torch.equal(found.logits, expected.logits)
        assert torch.equal(found.token_uncertainty, expected.token_uncertainty)
    some = [entry.dtype == torch.bool for entry in noise.CACHE._entries.values()]
    assert any(some) == (kept == "bits")


def test_bits_spare_finding_the_masks_again(shared, texts, monkeypatch) -> None:
    model, batch, config = shared("bert"), texts((9, 5)), CONFIGS["lagged"]
    monkeypatch.setattr(noise, "CACHE", MultiplierCache(2**30))
    sample(model, batch, config)
    monkeypatch.setattr(noise, "CACHE", MultiplierCache(noise.CACHE._bytes // 2))
    drawn = []
    independent = noise.MASKS["independent"]
    monkeypatch.setitem(noise.MASKS, "independent", lambda *given: drawn.append(given) or independent(*given))
    sample(model, batch, config)
    first = len(drawn)
    sample(model, batch, config)
    assert first > 0
    assert len(drawn) == first
