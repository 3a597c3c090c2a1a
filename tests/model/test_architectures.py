"""The architecture table against transformers: every dropout that a model really applies is a site, and no other."""

from collections import Counter

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from uatlite import UncertaintyClassifier, dropout_sites
from uatlite.errors import ModelError
from uatlite.model.architectures import answering, architectures, check_classifier, check_one_answer
from uatlite.model.intervention import EMBEDDINGS, HEAD, Sites

RATE = 0.125
ADDED = {
    "albert": {"feed_forward"},
    "llama": {"embedding", "feed_forward"},
    "qwen2": {"embedding", "feed_forward"},
    "qwen3": {"embedding", "feed_forward"},
}


def test_every_row_has_a_tiny_model(table, shared):
    """So that all engine tests run on it."""
    assert {shared(name).config.model_type for name in table} == set(architectures())


def applied_dropout(model, batch):
    """What a forward in train mode really drops: (module path, rate) -> calls, functional attention included."""
    calls: Counter[tuple[str, float]] = Counter()
    paths = {module: path for path, module in model.named_modules()}

    def attention(module, query, key, value, attention_mask, dropout=0.0, **_):
        calls[paths[module], dropout] += 1
        value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        return value.transpose(1, 2).contiguous(), None

    AttentionInterface.register("count_dropout", attention)
    AttentionMaskInterface.register("count_dropout", eager_mask)
    if model.config.model_type not in ("deberta-v2", "mpnet"):
        model.set_attn_implementation("count_dropout")
    for path, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda module, args, output, path=path: calls.update([(path, module.p)]))
    with torch.no_grad():
        model.train()(**batch)
    return calls


def test_sites_are_what_train_mode_drops(architecture, tiny, texts, choices):
    """Of a text classifier, a token classifier and, where there is one here, a chooser."""
    tagger = {"tokens": True, "classifier_dropout": RATE}  # the rate of decoders, and of ModernBERT
    kinds = [({}, texts((7, 5))), (tagger, texts((7, 5))), ({"choices": True}, choices)]
    for changes, batch in kinds if architecture in ("bert", "roberta") else kinds[:2]:
        sites = dropout_sites(tiny(architecture, rate=RATE, **changes))
        expected = applied_dropout(tiny(architecture, rate=RATE, **changes), batch)
        assert {(site.name, site.own_rate): site.calls for site in sites if not site.added} == expected
        assert {rate for _, rate in expected} == {RATE}
        assert changes != tagger or len(sites.of("classifier")) == 1


def test_every_component_has_sites(architecture, model):
    """Where the model has none, the engine adds one; only a head without dropout stays without."""
    sites = dropout_sites(model)
    layers = model.config.num_hidden_layers
    assert [site.layer for site in sites.of("embedding")] == [EMBEDDINGS]
    assert sum(site.calls for site in sites if site.role == "probabilities") == layers
    assert sum(site.calls for site in sites if site.role == "feed_forward") == layers
    assert bool(sites.of("classifier")) == (architecture not in ("gpt2", "llama", "qwen2", "qwen3"))
    assert all(site.layer == HEAD for site in sites.of("classifier"))
    added = {site.component for site in sites if site.added}
    assert added == ADDED.get(architecture, set())


def test_own_rates_of_identities_and_floats(tiny):
    """ModernBERT at rate 0 has Identities and a float; its sites are there all the same."""
    without, with_dropout = dropout_sites(tiny("modernbert", rate=0.0)), dropout_sites(tiny("modernbert", rate=0.3))
    assert [site.name for site in without] == [site.name for site in with_dropout]
    assert {site.own_rate for site in without} == {0.0}
    assert {site.own_rate for site in with_dropout} == {0.3}


def test_a_table_for_people(tiny):
    sites = dropout_sites(tiny("albert", rate=0.25))
    lines = str(sites).splitlines()
    assert len(lines) == 1 + len(sites)
    assert lines[0].split() == ["site", "component", "layer", "own", "rate", "calls", "kind"]
    assert lines[1].split() == ["albert.embeddings.dropout", "embedding", "embeddings", "0.25", "1", "module"]
    assert lines[2].split()[1:] == ["attention", "0", "0.25", "3", "functional"]
    assert lines[4].split()[1:] == ["feed_forward", "0", "0", "3", "added"]
    assert isinstance(sites.of("attention"), Sites)
    assert repr(sites) == str(sites)


KINDS = {
    "one": {},
    "choice": {"choices": True},
    "labels": {"problem_type": "multi_label_classification"},
    "entities": {"tokens": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_answers(kind, tiny):
    model = tiny("bert", **KINDS[kind])
    check_classifier(model)
    assert answering(model) == kind
    assert answering(type("Mine", (type(model),), {})(model.config)) == kind
    assert answering(torch.compile(model)) == kind


@pytest.mark.parametrize(
    "kind, message", [("labels", r"\(labels\).*UncertaintyLabeler"), ("entities", r"\(entities\).*UncertaintyTagger")]
)
def test_where_one_answer_is_needed_a_model_of_several_is_refused(kind, message, tiny, tokenizer):
    model = tiny("bert", **KINDS[kind])
    for needs_one in (check_one_answer, lambda model: UncertaintyClassifier(model, tokenizer)):
        with pytest.raises(ModelError, match=rf"{type(model).__name__} gives several answers a text {message}"):
            needs_one(model)
    check_one_answer(tiny("bert"))
    check_one_answer(tiny("bert", choices=True))
