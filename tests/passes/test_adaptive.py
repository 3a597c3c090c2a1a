"""Adaptive sampling against running all passes: the same passes for each text, whoever else is in the batch."""

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.errors import ConfigurationError
from uatlite.passes import engine as adaptive
from uatlite.passes.engine import sample_adaptively
from uatlite.passes.stopping import Stopping

RATES = DropoutRates(0.1, 0.1, 0.1, 0.1)
STOPPING = Stopping(confidence=0.6)
LENGTHS = (9, 4, 12, 6, 9, 17, 5, 8, 11, 3)


def config(**changes):
    return UATConfig(**{"samples": 8, "rates": RATES, "penalty": 2.0, **changes})


def own(found, row: int):
    return found.logits[: found.counts[row], row]


CONFIGS = {
    "lagged": config(),
    "stratified": config(estimate="closed-form", masks="stratified"),
    "per input": config(per_input=True),
    "normalised": config(uncertainty="mean-std+ln"),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "llama"], indirect=True)
def test_compaction_equals_running_all(architecture, model, texts, name):
    batch = texts(LENGTHS)
    whole = sample(model, batch, CONFIGS[name])
    found = sample_adaptively(model, batch, CONFIGS[name], STOPPING)
    expected = STOPPING.counts(whole.logits.double().numpy())
    assert found.counts.tolist() == expected.tolist()
    assert len(set(expected.tolist())) > 1
    for row in range(len(LENGTHS)):
        torch.testing.assert_close(own(found, row), whole.logits[: expected[row], row], rtol=0, atol=1e-5)
        assert found.logits[expected[row] :, row].isnan().all()


def test_a_text_gets_one_answer_whoever_leaves_early(shared, texts):
    batch = texts(LENGTHS)
    together = sample_adaptively(shared("bert"), batch, config(), STOPPING)
    order = torch.randperm(len(LENGTHS), generator=torch.Generator().manual_seed(0))
    shuffled = sample_adaptively(shared("bert"), {k: v[order] for k, v in batch.items()}, config(), STOPPING)
    assert shuffled.counts.tolist() == together.counts[order].tolist()
    for row in range(len(LENGTHS)):
        alone = sample_adaptively(
            shared("bert"), {k: v[row : row + 1] for k, v in batch.items()}, config(), STOPPING, memory_budget=1
        )
        assert alone.counts[0] == together.counts[row]
        torch.testing.assert_close(own(alone, 0), own(together, row), rtol=0, atol=1e-5)


def test_only_texts_that_are_open_run_on(shared, texts, monkeypatch):
    ran: list[tuple[int, int]] = []
    run_chunk = adaptive.run_chunk

    def counted(view, inputs, part, of):
        ran.append((len(part.rows), sum(len(block) for block in part.blocks)))
        return run_chunk(view, inputs, part, of)

    monkeypatch.setattr(adaptive, "run_chunk", counted)
    found = sample_adaptively(shared("bert"), texts(LENGTHS), config(), STOPPING)
    assert sum(rows * passes for rows, passes in ran) == found.counts.sum()


def test_multiple_choice(chooser, choices):
    whole = sample(chooser, choices, config())
    found = sample_adaptively(chooser, choices, config(), STOPPING)
    for row in range(2):
        torch.testing.assert_close(own(found, row), whole.logits[: found.counts[row], row], rtol=0, atol=1e-5)


def test_layerwise_estimates_are_refused(shared, texts):
    with pytest.raises(ConfigurationError, match="adaptive sampling runs them in blocks"):
        sample_adaptively(shared("bert"), texts((5,)), config(estimate="layerwise"), STOPPING)
