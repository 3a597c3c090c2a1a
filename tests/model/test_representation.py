"""The representation of a text: what is read off a pass that runs anyway, whatever the padding and the company."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from uatlite.attribution.layers import propagate
from uatlite.model.plain import plain_pass
from uatlite.model.view import view_of
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.engine import Chunk, run_chunk, sample

Encoded = dict[str, Tensor]
Tiny = Callable[..., PreTrainedModel]

QUIET = UATConfig(gate="none", rates=DropoutRates.uniform(0.0), samples=2)


def read(model: PreTrainedModel, inputs: Encoded) -> torch.Tensor:
    """What is expected, from transformers' own hidden states: a loop over texts."""
    with torch.no_grad():
        states = copy.deepcopy(model).eval()(**inputs, output_hidden_states=True).hidden_states
    last = model.config.model_type in ("gpt2", "llama", "qwen2", "qwen3")
    rows = []
    for row, mask in enumerate(inputs["attention_mask"].flatten(0, -2)):
        real = mask.nonzero().flatten()
        token = int(real[-1] if last else real[0])
        rows.append(torch.cat([states[-1][row, token], states[-2][row, real].mean(dim=0)]))
    return torch.stack(rows)


def test_it_is_the_token_that_the_head_reads_and_a_mean_whatever_pass_reads_it(
    model: PreTrainedModel, encoded: Encoded
) -> None:
    """Its logits are the model's own, the model has not changed, and each text has its own."""
    before = dict(model._modules)
    logits, found = plain_pass(model, encoded)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(**encoded).logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(found, read(model, encoded), rtol=1e-4, atol=1e-5)
    assert dict(model._modules) == before
    alone = plain_pass(model, {name: value[:1] for name, value in encoded.items()})[1]
    torch.testing.assert_close(alone, found[:1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sample(model, encoded, QUIET).representation, found)
    analytic = propagate(model, encoded, UATConfig(gate="none", rates=DropoutRates.uniform(0.1))).representation
    assert not analytic.requires_grad
    torch.testing.assert_close(analytic, found)


def test_of_a_token_classifier_it_is_what_the_encoder_says_of_each_token(
    architecture: str, shared: Tiny, encoded: Encoded
) -> None:
    tagger = shared(architecture, tokens=True)
    logits, found = plain_pass(tagger, encoded)
    with torch.no_grad():
        torch.testing.assert_close(logits, tagger(**encoded).logits)
        torch.testing.assert_close(found, tagger.base_model(**encoded).last_hidden_state)
    assert not view_of(tagger).narrows


def test_options_are_averaged(chooser: PreTrainedModel, choices: Encoded) -> None:
    found = plain_pass(chooser, choices)[1]
    assert found is not None
    torch.testing.assert_close(found, read(chooser, choices).view(2, 4, -1).mean(dim=1), rtol=1e-4, atol=1e-5)


def test_what_is_no_encoder_with_a_head_has_none(shared: Tiny) -> None:
    class Members(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.member = shared("bert")
            self.base_model = self.member  # as PreTrainedModel has it: the model itself where there is no encoder

        def forward(self, **inputs: torch.Tensor) -> object:
            return self.member(**inputs)

    inputs = {"input_ids": torch.tensor([[2, 5, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    assert plain_pass(Members(), inputs)[1] is None  # type: ignore[arg-type]


def test_it_is_the_mean_over_passes(model: PreTrainedModel, encoded: Encoded) -> None:
    config, view = UATConfig(gate="none", rates=DropoutRates.uniform(0.2), samples=3), view_of(model)
    texts, tokens = encoded["input_ids"].shape
    chunks = [Chunk(torch.arange(texts), tokens, (range(number, number + 1),)) for number in range(3)]
    each = [run_chunk(view, encoded, chunk, config).representation for chunk in chunks]
    mean = torch.stack([read for read in each if read is not None]).mean(dim=0)
    torch.testing.assert_close(sample(model, encoded, config).representation, mean)
    assert not torch.allclose(mean, plain_pass(model, encoded)[1])  # type: ignore[arg-type]
