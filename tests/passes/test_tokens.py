"""Token classifiers: logits for every token, from the same masks, with the same promise of one answer a text."""

import pytest
import torch

from uatlite import DropoutRates, UATConfig, sample
from uatlite.model.plain import plain_pass
from uatlite.model.view import view_of

RATES = DropoutRates(embedding=0.15, attention=0.2, feed_forward=0.3, classifier=0.25)


@pytest.fixture
def tagger(architecture, shared):
    """The session's token classifier of an architecture; no test may change it."""
    return shared(architecture, tokens=True)


def test_one_text_one_answer(tagger, texts):
    """In another order, alone, with more padding, in other chunks and budgets."""
    batch = texts((9, 4, 12, 6, 9, 17, 5, 8))
    config = UATConfig(samples=3, penalty=2.0, rates=RATES)
    usual = sample(tagger, batch, config)
    reverse = {name: value.flip(0) for name, value in batch.items()}
    alone = {name: torch.nn.functional.pad(value[3:4], (0, 13)) for name, value in batch.items()}
    alone["input_ids"][alone["attention_mask"] == 0] = 1
    variants = [(reverse, 4, {}), (alone, 0, {}), (batch, 3, {"chunk": 1}), (batch, 3, {"memory_budget": 1})]
    for other, row, how in variants:
        out = sample(tagger, other, config, **how)
        torch.testing.assert_close(out.logits[:, row, :6], usual.logits[:, 3, :6], rtol=0, atol=1e-5)
        torch.testing.assert_close(out.representation[row, :6], usual.representation[3, :6], rtol=0, atol=1e-5)
        assert not out.logits[:, row, 6:].any()


def test_the_plain_pass_gives_every_token_its_logits_and_what_the_encoder_says(tagger, encoded):
    logits, read = plain_pass(tagger, encoded)
    with torch.no_grad():
        torch.testing.assert_close(logits, tagger(**encoded).logits)
        states = tagger.base_model(**encoded).last_hidden_state
    torch.testing.assert_close(read, states)
    assert not view_of(tagger).narrows
