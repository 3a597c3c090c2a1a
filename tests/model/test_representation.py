"""The pooled representation: what each head reads, whatever the padding and the company."""

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from uatlite.model.plain import plain_pass, representation


def read_by_head(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """What goes into the first Linear of the classification head, as a hook sees it."""
    head = model.score if hasattr(model, "score") else model.classifier
    first = next(module for module in head.modules() if isinstance(module, torch.nn.Linear))
    seen: list[torch.Tensor] = []
    handle = first.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model(**inputs)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("architecture", ["bert", "albert", "roberta", "electra", "mpnet"], indirect=True)
def test_it_is_what_the_head_reads(model: PreTrainedModel, encoded: dict[str, torch.Tensor]) -> None:
    if not encoded["attention_mask"][:, 0].all():
        pytest.skip("these heads read the first place, which is padding here")
    torch.testing.assert_close(representation(model, encoded), read_by_head(model, encoded))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "qwen2", "qwen3"], indirect=True)
def test_of_a_decoder_it_is_the_last_real_token(model: PreTrainedModel, encoded: dict[str, torch.Tensor]) -> None:
    every = read_by_head(model, encoded)
    last = [int(row.nonzero().max()) for row in encoded["attention_mask"]]
    torch.testing.assert_close(representation(model, encoded), every[torch.arange(len(last)), last])


def test_every_architecture_has_one_for_each_text(model: PreTrainedModel, encoded: dict[str, torch.Tensor]) -> None:
    pooled = representation(model, encoded)
    assert pooled is not None
    assert pooled.shape[0] == 3
    alone = representation(model, {name: value[:1] for name, value in encoded.items()})
    torch.testing.assert_close(alone, pooled[:1])


def test_options_are_averaged(chooser: PreTrainedModel, choices: dict[str, torch.Tensor]) -> None:
    pooled = representation(chooser, choices)
    flat = representation(chooser, {name: value.flatten(0, 1) for name, value in choices.items()})
    assert pooled is not None
    assert flat is not None
    torch.testing.assert_close(pooled, flat.view(2, 4, -1).mean(dim=1))


def test_what_is_no_encoder_with_a_head_has_none(shared: Callable[..., PreTrainedModel]) -> None:
    class Members(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.member = shared("bert")
            self.base_model = self.member  # as PreTrainedModel has it: the model itself where there is no encoder

        def forward(self, **inputs: torch.Tensor) -> object:
            return self.member(**inputs)

    inputs = {"input_ids": torch.tensor([[2, 5, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    assert representation(Members(), inputs) is None  # type: ignore[arg-type]


def test_the_plain_pass_gives_what_the_head_reads(model: PreTrainedModel, encoded: dict[str, torch.Tensor]) -> None:
    """Its logits are the model's own, what the head reads is that of the encoder alone, the model has not changed."""
    before = dict(model._modules)
    logits, read = plain_pass(model, encoded)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(**encoded).logits, rtol=0, atol=1e-5)
    assert read is not None
    torch.testing.assert_close(read, representation(model, encoded))
    assert dict(model._modules) == before


def test_options_are_read_too(chooser: PreTrainedModel, choices: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(plain_pass(chooser, choices)[1], representation(chooser, choices))


def test_a_forward_that_hides_its_encoder_has_none(tiny: Callable[..., PreTrainedModel], texts) -> None:  # type: ignore[no-untyped-def]
    """Mixed-precision and dispatching wrappers replace the forward of an instance."""
    model, inputs = tiny("bert"), texts((9, 5))
    model.forward = model.forward
    logits, read = plain_pass(model, inputs)
    assert read is None
    torch.testing.assert_close(logits, model(**inputs).logits, rtol=0, atol=1e-5)
