"""Chunks within a memory budget change no result."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from uatlite import UATConfig, sample
from uatlite.errors import ConfigurationError
from uatlite.model.view import view_of
from uatlite.passes import engine
from uatlite.passes.dropout import CACHE
from uatlite.passes.engine import CACHED_BYTES, MOST_PADDING, chunks_of, text_bytes

CHUNKS = {"passes": st.integers(1, 12), "texts": st.none() | st.integers(1, 30), "budget": st.integers(1, 10**7)}


def plan(model, lengths, passes, texts, budget):
    """Chunks of texts with these numbers of tokens."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return list(chunks_of({"attention_mask": mask}, view_of(model), UATConfig(), range(passes), texts, budget))


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=20), folds=st.booleans(), **CHUNKS)
def test_plans(shared, lengths, passes, texts, budget, folds):
    """Every text and pass once; within the budget, or one pass of one text; all tokens of each text."""
    model = shared("bert" if folds else "deberta-v2")
    chunks = plan(model, lengths, passes, texts, budget)
    assert sorted(row for chunk in chunks for row in chunk.rows.tolist()) == list(range(len(lengths)))
    for chunk in chunks:
        assert [number for block in chunk.blocks for number in block] == list(range(passes))
        assert chunk.tokens == max(lengths[row] for row in chunk.rows.tolist())
        assert texts is None or len(chunk.rows) <= texts
        for block in chunk.blocks:
            rows = len(chunk.rows) * len(block)
            assert folds or len(block) == 1
            size = rows * text_bytes(view_of(model), chunk.tokens)
            assert size <= budget or rows == 1
            assert size <= CACHED_BYTES or texts is not None or len(chunk.rows) == 1
        padding = sum(chunk.tokens - lengths[row] for row in chunk.rows.tolist()) * (passes if folds else 1)
        assert padding <= MOST_PADDING or texts is not None


def test_short_texts_do_not_wait_for_a_long_one(shared):
    """Nine texts of 4 tokens and one of 40: padding them would be 324 tokens a pass."""
    chunks = plan(shared("bert"), [4] * 5 + [40] + [4] * 4, 2, None, 10**9)
    assert [(len(chunk.rows), chunk.tokens) for chunk in chunks] == [(9, 4), (1, 40)]


def test_choices_of_a_question_count(chooser, choices):
    view, config = view_of(chooser), UATConfig(samples=3)
    one_question = 4 * text_bytes(view, 9)
    chunks = list(chunks_of(choices, view, config, range(3), None, 3 * one_question))
    assert [len(chunk.rows) for chunk in chunks] == [1, 1]
    chunks = list(chunks_of(choices, view, config, range(3), None, one_question))
    assert all(len(chunk.blocks) == 3 for chunk in chunks)


class PeakMemory(TorchDispatchMode):
    """The most bytes that tensors made inside the block held at once; `known` were there before."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage()._cdata for tensor in known}
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return out


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "mpnet", "gpt2", "llama"], indirect=True)
def test_the_budget_is_about_what_is_used(architecture, tiny, texts, monkeypatch):
    """Activations at the peak of a run, masks in the cache aside, stay within a tenth above the budget."""
    wide = {"gpt2": {"n_embd": 64, "n_inner": 256}}.get(architecture, {"hidden_size": 64, "intermediate_size": 172})
    model, batch = tiny(architecture, **wide), texts((38,) * 6)
    monkeypatch.setattr(engine, "keep_freed_memory", lambda: None)
    one_pass = text_bytes(view_of(model), 38)
    for budget in (4 * one_pass, 20 * one_pass):
        sample(model, batch, memory_budget=budget)  # fills the cache of masks
        known = [*model.parameters(), *model.buffers(), *CACHE._entries.values()]
        with PeakMemory(known) as used:
            sample(model, batch, memory_budget=budget)
        assert 0.3 * budget < used.peak < 1.1 * budget
    with PeakMemory(known) as unbounded:
        sample(model, batch)
    assert unbounded.peak > 1.4 * budget


def test_layerwise_raises_where_the_passes_do_not_fit(shared, mixed):
    config = UATConfig(samples=5, estimate="layerwise")
    with pytest.raises(ConfigurationError, match=r"all 5 passes.*memory budget of 1000\. Raise memory_budget"):
        sample(shared("bert"), mixed, config, memory_budget=1000)
    one_text = 5 * text_bytes(view_of(shared("bert")), 9)
    out = sample(shared("bert"), mixed, config, memory_budget=one_text)
    torch.testing.assert_close(out.logits, sample(shared("bert"), mixed, config).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_has_texts(shared, mixed, chunk):
    with pytest.raises(ConfigurationError, match=f"chunk={chunk}"):
        sample(shared("bert"), mixed, chunk=chunk)
