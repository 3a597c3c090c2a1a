"""Methods with weights of their own: where the weights are kept, and what happens without them."""

import copy

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification

from uatlite import UncertaintyClassifier
from uatlite.errors import ModelError
from uatlite.methods.registry import METHODS, parse_method
from uatlite.model.load import load_checkpoint, model_hash
from uatlite.model.weights import FILE, MethodWeights, attach, attached

TRAINED = tuple(key for key, method in METHODS.items() if method.trained)
EACH = pytest.mark.parametrize("key", TRAINED)


@EACH
def test_a_saved_model_gives_the_same_passes_and_has_no_pickle(key, trained, texts, tmp_path):
    classifier = UncertaintyClassifier.from_pretrained(trained(key), device="cpu")
    assert classifier.method.name == key
    classifier.save_pretrained(tmp_path / "again")
    again = load_checkpoint(tmp_path / "again", device="cpu")
    assert again.hash == model_hash(classifier.model)
    batch = texts((9, 5, 7))
    expected = METHODS[key].run(classifier.model, batch)
    assert torch.equal(METHODS[key].run(again.model, batch).logits, expected.logits)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]


def test_the_seed_of_a_method_is_kept(trained, tmp_path):
    seeded = METHODS["swag"].seeded(3)
    classifier = UncertaintyClassifier.from_pretrained(trained("swag"), seeded, device="cpu")
    classifier.save_pretrained(tmp_path / "again")
    assert UncertaintyClassifier.from_pretrained(tmp_path / "again", device="cpu").method == seeded


@EACH
def test_transformers_alone_loads_the_plain_part(key, trained, texts):
    model, report = AutoModelForSequenceClassification.from_pretrained(trained(key), output_loading_info=True)
    assert not report["unexpected_keys"]
    if key == "sngp":  # its head is a Gaussian process, and transformers says that there is none
        assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
        return
    assert not report["missing_keys"]
    loaded = load_checkpoint(trained(key), device="cpu").model
    batch = texts((9, 5, 7))
    assert torch.equal(METHODS["base"].run(loaded, batch).logits, METHODS["base"].run(model, batch).logits)


@EACH
def test_the_hash_covers_the_weights_of_the_method(key, model_for):
    model = copy.deepcopy(model_for(METHODS[key]))
    before, weights = model_hash(model), attached(model)
    next(weights.buffers()).view(-1)[0] += 1
    assert model_hash(model) != before


@EACH
def test_without_its_weights_the_command_to_train_them_is_named(key, shared, model_for, texts):
    with pytest.raises(ModelError, match=f"{key} needs weights of its own.*uatlite train --method {key}"):
        METHODS[key].run(shared("bert"), texts((5,)))
    other = "swag" if key != "swag" else "ensemble"
    with pytest.raises(ModelError, match=f"it has those of {other}"):
        METHODS[key].run(model_for(METHODS[other]), texts((5,)))


def test_a_model_without_a_linear_head_says_which_method_it_is_for(model_for, texts):
    with pytest.raises(ModelError, match="trained for sngp and has no other head"):
        METHODS["base"].run(model_for(METHODS["sngp"]), texts((5,)))


def test_an_ensemble_of_identical_members_is_the_member(tiny, texts):
    model, batch = tiny("bert"), texts((9, 5, 7))
    vector = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    attach(model, MethodWeights("ensemble", {"members": vector.repeat(2, 1)}))
    passes = parse_method("ensemble:members=3").run(model, batch).logits
    expected = METHODS["base"].run(model, batch).logits.expand(3, -1, -1)
    torch.testing.assert_close(passes, expected, rtol=0, atol=1e-5)


def test_members_are_models_of_their_own_and_fewer_may_be_asked_for(model_for, texts):
    model, batch = model_for(METHODS["ensemble"]), texts((9, 5, 7))
    passes = METHODS["ensemble"].run(model, batch).logits
    assert len({tuple(logits.flatten().tolist()) for logits in passes}) == 5
    assert torch.equal(passes[0], METHODS["base"].run(model, batch).logits[0])
    assert torch.equal(parse_method("ensemble:members=2").run(model, batch).logits, passes[:2])
    with pytest.raises(ModelError, match="asks for 6 members and this model has 5: ask for ensemble:members=5"):
        parse_method("ensemble:members=6").run(model, batch)


def test_swag_draws_anew_when_the_weights_change(model_for, texts):
    model, batch = copy.deepcopy(model_for(METHODS["swag"])), texts((5,))
    before = METHODS["swag"].run(model, batch).logits
    with torch.no_grad():
        model.classifier.bias.add_(1.0)
    torch.testing.assert_close(METHODS["swag"].run(model, batch).logits, before + 1)


def test_a_broken_or_foreign_file_is_named(trained, tmp_path):
    UncertaintyClassifier.from_pretrained(trained("laplace"), device="cpu").save_pretrained(tmp_path / "model")
    with safe_open(tmp_path / "model" / FILE, framework="pt") as file:
        assert file.metadata() == {"format": "1", "method": "laplace", "headless": "false"}
    (tmp_path / "model" / FILE).write_bytes(b"nothing")
    with pytest.raises(ModelError, match=f"{FILE} is broken"):
        load_checkpoint(tmp_path / "model")
