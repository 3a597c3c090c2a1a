"""One text gets one answer, whatever it runs with: masks bit for bit, logits to 1e-5."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.passes.dropout import CACHE

RATES = DropoutRates(0.15, 0.2, 0.3, 0.25)
CONFIG = UATConfig(samples=3, penalty=2.0, rates=RATES)
LENGTHS = tuple(3 + (7 * i) % 15 for i in range(64))
TEXT = 11
"""the text whose answer is compared, of LENGTHS[11] = 5 tokens"""


def alone(batch, row=TEXT, *, tokens=None, side="right"):
    """One text of a batch, padded on a side to so many tokens."""
    real = batch["attention_mask"][row].bool()
    padding = 0 if tokens is None else tokens - int(real.sum())
    sides = (0, padding) if side == "right" else (padding, 0)
    fill = {"input_ids": 1, "attention_mask": 0}
    return {name: torch.nn.functional.pad(batch[name][None, row, real], sides, value=fill[name]) for name in fill}


def of_text(masks, row):
    """A text's masks, and none left behind for the next comparison."""
    chosen = {(number, site): bits for (text, number, site), bits in masks.items() if text == row}
    masks.clear()
    return chosen


def assert_same_masks(one, other):
    assert one.keys() == other.keys()
    assert one
    for key, bits in one.items():
        assert torch.equal(bits, other[key]), key


def assert_same_answer(out, row, batch, other, other_row, other_batch):
    """Logits of the text or, of a token classifier, of its tokens with their states; and token uncertainty."""
    real, other_real = batch["attention_mask"][row].bool(), other_batch["attention_mask"][other_row].bool()
    mine, theirs = out.logits[:, row], other.logits[:, other_row]
    if mine.ndim == 3:
        assert not mine[:, ~real].any()
        mine, theirs = mine[:, real], theirs[:, other_real]
        states = out.representation[row, real], other.representation[other_row, other_real]
        torch.testing.assert_close(*states, rtol=0, atol=1e-5)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
    uncertainty = out.token_uncertainty[row, real], other.token_uncertainty[other_row, other_real]
    torch.testing.assert_close(*uncertainty, rtol=0, atol=1e-6)


@pytest.mark.parametrize("per_input", [False, True], ids=["shared", "per_input"])
def test_alone_and_in_a_batch_of_64(architecture, model, texts, masks, per_input):
    config = UATConfig(samples=2, penalty=2.0, rates=RATES, per_input=per_input, estimate="closed-form")
    batch = texts(LENGTHS)
    whole = sample(model, batch, config)
    in_batch = of_text(masks, TEXT)
    one = alone(batch)
    answer = sample(model, one, config)
    assert_same_masks(of_text(masks, 0), in_batch)
    assert_same_answer(answer, 0, one, whole, TEXT, batch)
    assert (whole.logits[:, TEXT] - whole.logits[:, TEXT + 1]).abs().max() > 1e-2


def variants(batch):
    """Name -> (batch, row, how it is run) of the same text."""
    reverse = {name: value.flip(0) for name, value in batch.items()}
    return {
        "other order": (reverse, 7 - 3, {}),
        "more padding": (alone(batch, 3, tokens=30), 0, {}),
        "texts one by one": (batch, 3, {"chunk": 1}),
        "three texts at once": (batch, 3, {"chunk": 3}),
        "all texts at once": (batch, 3, {"chunk": 8}),
        "a budget for one pass": (batch, 3, {"memory_budget": 1}),
        "a budget for a few passes": (batch, 3, {"memory_budget": 60_000}),
    }


@pytest.mark.parametrize(("kind", "tokens"), [("independent", False), ("stratified", False), ("independent", True)])
@pytest.mark.parametrize("architecture", ["bert", "albert", "deberta-v2", "modernbert", "mpnet", "qwen3"])
def test_other_padding_order_chunk_and_budget(architecture, shared, texts, masks, kind, tokens):
    model, batch = shared(architecture, tokens=tokens), texts((9, 4, 12, 6, 9, 17, 5, 8))
    config = UATConfig(samples=4, penalty=2.0, rates=RATES, masks=kind)
    usual = sample(model, batch, config)
    expected = of_text(masks, 3)
    for other, row, how in variants(batch).values():
        out = sample(model, other, config, **how)
        assert_same_masks(of_text(masks, row), expected)
        assert_same_answer(out, row, other, usual, 3, batch)
        assert out.fired == usual.fired


def test_masks_do_not_move_with_left_padding(architecture, model, texts, masks):
    """Also where the model itself gives another answer then, by absolute positions or by what it pools."""
    batch = texts((9, 4, 12))
    sample(model, batch, CONFIG)
    expected = of_text(masks, 1)
    sample(model, alone(batch, 1, tokens=15, side="left"), CONFIG)
    whole = of_text(masks, 0)
    # Where the last layer ran for the first token alone, compare its masks.
    narrow = {key: bits[..., : expected[key].shape[-2], :] if bits.ndim > 1 else bits for key, bits in whole.items()}
    assert_same_masks(narrow, expected)


RELATIVE = {"llama": {}, "qwen2": {}, "qwen3": {}, "modernbert": {"classifier_pooling": "mean"}}


@pytest.mark.parametrize("estimate", ["lagged", "layerwise"])
@pytest.mark.parametrize(("name", "changes"), RELATIVE.items(), ids=RELATIVE)
def test_left_padding(tiny, texts, name, changes, estimate):
    """Models with relative positions that pool a real token, or all of them."""
    model, batch = tiny(name, **changes), texts((9, 4, 12))
    left = alone(batch, 1, tokens=15, side="left")
    with torch.no_grad():
        torch.testing.assert_close(model(**left).logits[0], model(**batch).logits[1], rtol=0, atol=1e-5)
    config = UATConfig(samples=4, penalty=2.0, rates=RATES, estimate=estimate)
    assert_same_answer(sample(model, left, config), 0, left, sample(model, batch, config), 1, batch)


def test_layerwise_in_other_chunks(shared, texts):
    batch = texts((9, 4, 12, 6))
    config = UATConfig(samples=4, penalty=2.0, estimate="layerwise")
    usual, single = sample(shared("bert"), batch, config), sample(shared("bert"), batch, config, chunk=1)
    torch.testing.assert_close(single.logits, usual.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(single.layer_uncertainty, usual.layer_uncertainty, rtol=0, atol=1e-6)


def test_multiple_choice_in_other_chunks(chooser, choices):
    for per_input in (False, True):
        config = UATConfig(samples=4, penalty=2.0, rates=RATES, per_input=per_input)
        usual, single = sample(chooser, choices, config), sample(chooser, choices, config, chunk=1)
        torch.testing.assert_close(single.logits, usual.logits, rtol=0, atol=1e-5)
        one = sample(chooser, {name: value[1:] for name, value in choices.items()}, config)
        torch.testing.assert_close(one.logits[:, 0], usual.logits[:, 1], rtol=0, atol=1e-5)
        assert usual.logits.std(dim=0).min() > 1e-2


def test_shared_masks_are_common_to_texts_and_per_input_masks_are_not(shared, texts, masks):
    batch = texts((9, 9))
    for per_input in (False, True):
        sample(shared("bert"), batch, UATConfig(samples=2, per_input=per_input))
        bits = dict(masks)
        masks.clear()
        same = [torch.equal(bits[0, n, site], bits[1, n, site]) for text, n, site in bits if text == 0]
        assert all(same) if not per_input else not any(same)


def test_a_seed_is_an_answer(shared, texts):
    batch = texts((9, 5))
    first, again, other = (sample(shared("bert"), batch, UATConfig(samples=3, seed=seed)).logits for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert (first - other).abs().min() > 1e-4


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"], indirect=True)
def test_threads_do_not_meet(architecture, tiny, texts):
    """Two configurations and the plain model at once, on one model, from the first call on."""
    model = tiny(architecture)
    batches = texts((9, 5, 7)), texts((6, 11), seed=1)
    configs = CONFIG, UATConfig(samples=5, gate="v", estimate="closed-form", rates=RATES, masks="stratified", seed=4)
    pairs = zip(batches, configs, strict=True)
    expected = [sample(tiny(architecture), batch, config).logits for batch, config in pairs]
    with torch.no_grad():
        plain = model(**batches[0]).logits
    CACHE.clear()
    together = threading.Barrier(4)

    def stochastic(i):
        together.wait()
        return [sample(model, batches[i], configs[i]).logits for _ in range(6)]

    def deterministic(_):
        together.wait()
        with torch.no_grad():
            return [model(**batches[0]).logits for _ in range(12)]

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(stochastic, 0), pool.submit(stochastic, 1), pool.submit(stochastic, 0)]
        work.append(pool.submit(deterministic, 0))
        results = [task.result() for task in work]
    for got, want in zip(results, (expected[0], expected[1], expected[0], plain), strict=True):
        for logits in got:
            torch.testing.assert_close(logits, want, rtol=0, atol=1e-5)
