"""Weights that were published as a .bin: read as tensors alone, and kept as safetensors."""

import os
import warnings

import pytest
import torch

from uatlite.errors import ModelError
from uatlite.lab.train.fine_tune import with_new_head
from uatlite.model import load
from uatlite.model.load import backbone_directory, load_checkpoint, model_hash


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "HF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def published(tiny, tokenizer, tmp_path, cache):
    """`published(state=None, model=...)`: a directory with the weights of a tiny BERT, or a state, as .bin alone."""

    def publish(state=None, model=None):
        directory, model = tmp_path / "published", model or tiny("bert")
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        (directory / "model.safetensors").unlink()
        torch.save(model.state_dict() if state is None else state, directory / "pytorch_model.bin")
        return directory

    return publish


def test_they_are_converted_once_and_said_in_a_line(published, tiny, cache):
    directory = published()
    with pytest.warns(UserWarning, match=r"published has no safetensors; its pytorch_model.bin was converted to .*\.$"):
        checkpoint = load_checkpoint(directory, device="cpu")
    assert model_hash(checkpoint.model) == model_hash(tiny("bert"))
    assert [file.name for file in cache.rglob("*") if file.is_file()] == ["model.safetensors"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert load_checkpoint(directory, device="cpu").hash == checkpoint.hash
    assert sorted(file.suffix for file in directory.iterdir() if "model" in file.name) == [".bin"]  # left as it was


def test_a_backbone_is_trained_from_them(published, tiny):
    directory = published(model=tiny("bert").base_model)
    with pytest.warns(UserWarning, match="converted"):
        model, _ = with_new_head(backbone_directory(directory), ("a", "b"))
    for name, tensor in tiny("bert").base_model.named_parameters():
        assert torch.equal(model.base_model.get_parameter(name), tensor)


class Code:
    """What runs code where it is unpickled."""

    def __reduce__(self):
        return os.system, ("exit 1",)


@pytest.mark.parametrize("state", [Code(), {"weight": Code()}, {"weight": 1.0}, 3])
def test_what_is_not_tensors_alone_is_refused(published, state, cache):
    with pytest.raises(ModelError, match=r"pytorch_model.bin holds more than tensors, or is broken, and is not loaded"):
        load_checkpoint(published(state), device="cpu")
    assert not cache.exists()


def test_a_broken_one_is_refused(published):
    directory = published()
    (directory / "pytorch_model.bin").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(ModelError, match="or is broken"):
        load_checkpoint(directory, device="cpu")
