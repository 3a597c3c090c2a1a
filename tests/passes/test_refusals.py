"""What the engine refuses, and what it says then."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, BatchEncoding

from uatlite import DropoutRates, UATConfig, UATLiteError, dropout_sites, sample
from uatlite.errors import ConfigurationError, InputError, ModelError, NotAClassifier, UnknownArchitecture

OWN, NO_EMBEDDING = DropoutRates.own(), DropoutRates(embedding=None, attention=0.2, feed_forward=0.2)
HEAD_ALONE = DropoutRates(0.0, 0.0, 0.0, 0.3)
SILENT = r"nothing samples: this \w+ checkpoint has rate 0.*DropoutRates.uniform"
UNFIT = "its row in the architecture table does not fit"


@pytest.mark.parametrize(
    ("name", "changes", "settings", "message"),
    [
        *((name, {"rate": 0.0}, {"rates": OWN}, SILENT) for name in ("modernbert", "llama", "qwen2", "qwen3")),
        *((name, {"rate": 0.0}, {"rates": OWN, "gate": "none"}, SILENT) for name in ("modernbert", "llama")),
        *((name, {}, {"rates": HEAD_ALONE, "gate": "none"}, "nothing samples") for name in ("gpt2", "qwen2", "qwen3")),
        ("bert", {"rate": 0.0}, {"rates": NO_EMBEDDING}, "own embedding rate is 0"),
        ("deberta-v2", {}, {"estimate": "layerwise"}, "drops relative positions by one mask a forward"),
        # Sites are reached more or less often than the table says: raise rather than draw masks that are not meant.
        ("albert", {"inner_group_num": 2}, {}, UNFIT),
        ("albert", {"num_hidden_layers": 3, "num_hidden_groups": 2}, {}, UNFIT),
        ("bert", {"chunk_size_feed_forward": 3}, {}, UNFIT),
    ],
)
def test_what_a_checkpoint_cannot_do(tiny, texts, name, changes, settings, message):
    with pytest.raises(ModelError if message == UNFIT else ConfigurationError, match=message):
        sample(tiny(name, **changes), texts((9,)), UATConfig(**settings))


def test_an_own_embedding_rate_above_zero_gives_token_uncertainty(tiny, texts):
    found = sample(tiny("bert", rate=0.1), texts((5,)), UATConfig(rates=NO_EMBEDDING))
    assert found.token_uncertainty.max() > 0


def unknown(tiny):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return AutoModelForSequenceClassification.from_config(AutoConfig.for_model("deberta", vocab_size=60, **sizes))


NO_CLASSIFIERS = {
    "no head": (
        lambda tiny: AutoModel.from_config(tiny("bert").config),
        r"BertModel is not a classifier.*AutoModelForSequenceClassification",
    ),
    "a layer": (lambda tiny: nn.Linear(2, 3), "Linear"),
    "a name": (lambda tiny: "bert-base-uncased", "str"),
    "nothing": (lambda tiny: None, "NoneType"),
    "one label": (lambda tiny: tiny("bert", num_labels=1), r"1 label\(s\)"),
    "regression": (
        lambda tiny: tiny("bert", problem_type="regression"),
        r"problem_type='regression'.*'multi_label_classification'",
    ),
    "unknown": (unknown, r"'deberta' is not in the.*Did you mean 'deberta-v2'.*architectures.toml"),
}


@pytest.mark.parametrize("run", [sample, lambda model, batch: dropout_sites(model)], ids=["sample", "dropout_sites"])
@pytest.mark.parametrize(("made", "message"), NO_CLASSIFIERS.values(), ids=NO_CLASSIFIERS)
def test_what_is_no_classifier(tiny, texts, run, made, message):
    with pytest.raises(UnknownArchitecture if made is unknown else NotAClassifier, match=message):
        run(made(tiny), texts((5,)))


def test_an_offloaded_model(tiny, texts):
    model = tiny("bert")
    model.bert._hf_hook = object()
    with pytest.raises(ModelError, match="accelerate hook"):
        sample(model, texts((5,)))


@pytest.mark.parametrize(
    ("name", "limit"),
    [("bert", 40), ("roberta", 38), ("xlm-roberta", 38), ("mpnet", 38), ("gpt2", 40), ("distilbert", 40)],
)
def test_sequences_longer_than_the_model_takes(shared, texts, name, limit):
    with pytest.raises(InputError, match=rf"have {limit + 1} tokens.*at most {limit};.*max_length={limit}"):
        sample(shared(name), texts((limit + 1,)))
    assert sample(shared(name), texts((limit,)), UATConfig(samples=1)).logits.shape == (1, 1, 3)


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ("some text", "no input_ids (it is str)"),
        ({}, "no input_ids"),
        ({"attention_mask": torch.ones(1, 3)}, "no input_ids (it is ['attention_mask'])"),
        (
            {"input_ids": [[5, 6, 7]]},
            "encoded['input_ids'] is a list, not a tensor; call the tokenizer with return_tensors",
        ),
        ({"input_ids": torch.ones(3, dtype=torch.long)}, "input_ids has shape (3,); this model takes (batch, tokens)"),
        ({"input_ids": torch.ones(1, 2, 3, dtype=torch.long)}, "input_ids has shape (1, 2, 3)"),
        ({"input_ids": torch.ones(2, 0, dtype=torch.long)}, "(2, 0)"),
        (
            {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.ones(1, 3)},
            "attention_mask has shape (1, 3); it must be that of input_ids, (2, 3)",
        ),
        (
            {"input_ids": torch.ones(2, 3, dtype=torch.long), "token_type_ids": torch.ones(2, 4, dtype=torch.long)},
            "token_type_ids has shape (2, 4)",
        ),
    ],
    ids=["text", "nothing", "no ids", "lists", "one text", "choices", "no tokens", "mask", "types"],
)
def test_inputs(shared, encoded, message):
    with pytest.raises(InputError) as raised:
        sample(shared("bert"), encoded)
    assert message in str(raised.value)
    assert isinstance(raised.value, UATLiteError)
    assert isinstance(raised.value, ValueError)


def test_a_text_without_tokens(shared, texts):
    """All padding: nothing that an answer could be about."""
    batch = texts((9, 5))
    batch["attention_mask"][1] = 0
    with pytest.raises(InputError, match=r"text 1 .*no tokens"):
        sample(shared("bert"), batch)


def test_multiple_choice_takes_choices(chooser, texts):
    with pytest.raises(InputError, match=r"takes \(batch, choices, tokens\)"):
        sample(chooser, texts((5,)))


THE_SAME = {
    "labels, and no mask": lambda batch: {"input_ids": batch["input_ids"], "labels": torch.tensor([0, 1])},
    "what a tokenizer returns": BatchEncoding,
    "positions that all texts share": lambda batch: {**batch, "position_ids": torch.arange(9)[None]},
    "positions of each text": lambda batch: {**batch, "position_ids": torch.arange(9).repeat(2, 1)},
    **{
        f"a mask of {dtype}": lambda batch, dtype=dtype: {**batch, "attention_mask": batch["attention_mask"].to(dtype)}
        for dtype in (torch.bool, torch.float32, torch.int32)
    },
}


@pytest.mark.parametrize("change", THE_SAME.values(), ids=THE_SAME)
def test_inputs_that_mean_the_same(shared, texts, change):
    batch = texts((9, 9))
    assert torch.equal(sample(shared("bert"), change(batch)).logits, sample(shared("bert"), batch).logits)
