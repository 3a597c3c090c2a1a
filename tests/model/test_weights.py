"""Copies of a model that share its parameters or have others: right, and without a trace on the original."""

import torch

from uatlite.model.load import model_hash
from uatlite.model.weights import features, flat_parameters, last_layer, load_flat, with_parameters, without_last_layer


def test_features_times_the_last_layer_are_the_logits(architecture, model, encoded):
    with torch.no_grad():
        read = features(without_last_layer(model), encoded)
        torch.testing.assert_close(last_layer(model)[1](read), model(**encoded).logits, atol=1e-5, rtol=1e-5)


def test_of_a_multiple_choice_there_are_features_for_each_option(chooser, choices):
    with torch.no_grad():
        read = features(without_last_layer(chooser), choices)
        logits = last_layer(chooser)[1](read).squeeze(-1)
        torch.testing.assert_close(logits, chooser(**choices).logits, atol=1e-5, rtol=1e-5)


def test_other_parameters_make_the_other_model(architecture, tiny, texts):
    model, other, batch = tiny(architecture), tiny(architecture, seed=1), texts((9, 5, 7))
    before = model_hash(model)
    with torch.no_grad():
        expected = other(**batch).logits
        made = with_parameters(model, flat_parameters(other))
        torch.testing.assert_close(made(**batch).logits, expected)
        assert model_hash(model) == before
        load_flat(model, flat_parameters(other))
        assert torch.equal(model(**batch).logits, expected)
