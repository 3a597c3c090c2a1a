"""Everything that runs a model, on a device that is not there: no mix of devices, no float64, no wait among passes."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainingArguments

from fake_device import DEVICE, OnDevice, fake_device
from uatlite import DropoutRates, UATConfig, sample
from uatlite.attribution.attention import attention_shift
from uatlite.attribution.layers import ESTIMATORS, attribute
from uatlite.errors import ModelError
from uatlite.lab.train import fine_tune as tuning
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.methods import METHOD_TRAININGS
from uatlite.lab.train.recipe import PLAIN
from uatlite.methods.registry import METHODS
from uatlite.model import load as load_module
from uatlite.model.load import model_hash

ALLOWED = {
    "engine.py:chunks_of",  # once a batch: where its texts begin and end
    "plain.py:_narrow_view",  # once a batch: whether padding comes first
    "plain.py:forward_and_read",  # once a forward: transformers asks whether there is padding
    "weights.py:run",  # the same
    "layers.py:_sample",  # once, at the end: in double precision
    "method.py:array",  # the result
}
"""Where the device may be waited for."""
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def on_device(model):
    return copy.deepcopy(model).to(DEVICE)


def value(tensor):
    assert isinstance(tensor, OnDevice)
    return tensor.value


def test_the_fake_device_refuses_what_a_device_refuses():
    with fake_device() as device:
        here, there = torch.ones(2, 3), torch.ones(2, 3, device=DEVICE)
        assert torch.equal(value(there + 1), here + 1)
        with pytest.raises(RuntimeError, match="of the CPU among those"):
            there * here
        with pytest.raises(TypeError, match="float64"):
            there.double()
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert device.syncs == []
        waits = [there.cpu, lambda: float(there[0, 0]), lambda: bool(there.any()), there.tolist]
        for count, wait in enumerate([*waits, there.nonzero, lambda: there[there > 0]], start=1):
            wait()
            assert len(device.syncs) == count, count


CONFIGS = {
    "lagged": UATConfig(samples=3),
    "layerwise": UATConfig(samples=3, estimate="layerwise"),
    "fast": UATConfig.fast(),
    "k": UATConfig(samples=3, gate="k"),
    "qk linear": UATConfig(samples=3, gate="qk", form="linear"),
    "v": UATConfig(samples=3, gate="v"),
    "additive": UATConfig(samples=3, form="additive"),
    "normalised": UATConfig(samples=3, uncertainty="mean-std+ln"),
}


def same_and_waits_once(model, encoded, config):
    """The engine gives the numbers of the CPU, and the device is waited for once a batch and once a forward."""
    expected = sample(model, encoded, config)
    with fake_device() as device:
        out = sample(on_device(model), encoded, config)
    torch.testing.assert_close(value(out.logits), expected.logits, **CLOSE)
    torch.testing.assert_close(value(out.token_uncertainty), expected.token_uncertainty, **CLOSE)
    waited = Counter(where for where, _ in device.syncs)
    assert waited.pop("engine.py:chunks_of") == 1
    assert waited.pop("plain.py:forward_and_read", 0) <= 2 * config.samples  # transformers itself, in a forward
    assert not waited


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("architecture", ["bert"], indirect=True)
def test_every_configuration_gives_the_same_numbers(name, model, encoded):
    same_and_waits_once(model, encoded, CONFIGS[name])


def test_every_architecture_gives_the_same_numbers(model, encoded):
    same_and_waits_once(model, encoded, CONFIGS["lagged"])


def test_texts_with_draws_of_their_own_are_hashed_on_the_cpu(shared, encoded):
    config = UATConfig(samples=3, per_input=True)
    with fake_device() as device:
        out = sample(on_device(shared("bert")), encoded, config)
    torch.testing.assert_close(value(out.logits), sample(shared("bert"), encoded, config).logits, **CLOSE)
    assert "dropout.py:of" in dict(device.syncs)


@pytest.fixture(params=tuple(METHODS))
def method(request):
    return METHODS[request.param]


@pytest.mark.parametrize("several", [False, True])
def test_every_method_gives_the_same_numbers(method, several, model_for, texts, choices):
    if several and method.name == "laplace":
        pytest.skip("laplace has no likelihood for multiple choice")
    model, batch = model_for(method, choices=several), choices if several else texts((9, 5, 7))
    expected = method.run(model, batch)
    with fake_device() as device:
        there = on_device(model)
        passes = method.run(there, batch)
        arrays = passes.arrays()
        assert model_hash(there) == model_hash(model)
    torch.testing.assert_close(value(passes.logits), expected.logits, **CLOSE)
    for name in ("variance", "representation"):
        told, known = getattr(passes, name), getattr(expected, name)
        assert (told is None) == (known is None)
        if told is not None:
            torch.testing.assert_close(value(told), known, **CLOSE)
    np.testing.assert_allclose(arrays.logits, expected.arrays().logits, atol=1e-5)
    assert {where for where, _ in device.syncs} - ALLOWED <= {"load.py:model_hash"}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"], indirect=True)
def test_attribution_gives_the_same_numbers(estimator, model, encoded):
    config = UATConfig(rates=DropoutRates())
    expected = attribute(model, encoded, config, estimator=estimator, samples=4)
    with fake_device() as device:
        shares = attribute(on_device(model), encoded, config, estimator=estimator, samples=4)
        for name in ("contributions", "total", "components", "shares"):
            torch.testing.assert_close(value(getattr(shares, name)), getattr(expected, name), **CLOSE)
    assert {where for where, _ in device.syncs} <= ALLOWED


@pytest.mark.parametrize("architecture", ["bert", "mpnet", "llama"], indirect=True)
def test_maps_of_attention_are_the_same(model, encoded):
    expected = attention_shift(model, encoded, UATConfig(samples=2))
    with fake_device() as device:
        shift = attention_shift(on_device(model), encoded, UATConfig(samples=2))
        torch.testing.assert_close(value(shift.difference), expected.difference, **CLOSE)
    assert {where for where, _ in device.syncs} <= ALLOWED


MEMORY = 22_000
"""Elements of an activation: fewer than 32 texts in one pass take, enough for one text and the moments of ten masks."""


def test_less_memory_gives_the_same_answers_in_smaller_parts(method, model_for, texts):
    model, batch = model_for(method), texts(tuple(range(9, 17)) * 4)
    expected = method.run(model, batch)
    with fake_device() as device:
        there = on_device(model)
        device.most = MEMORY
        passes = method.run(there, batch)
        device.most = None
    assert device.refused >= (2 if method.key in ("uat", "fast") else 1)  # halves, and their halves
    torch.testing.assert_close(value(passes.logits), expected.logits, **CLOSE)
    if expected.variance is not None:
        torch.testing.assert_close(value(passes.variance), expected.variance, **CLOSE)


def test_one_text_runs_in_fewer_passes_where_memory_is_short_and_else_says_so(shared, texts):
    model, batch, config = shared("bert"), texts((16,)), UATConfig(samples=10, estimate="closed-form")
    expected = sample(model, batch, config)
    with fake_device() as device:
        there = on_device(model)
        device.most = 4 * 16 * 48
        out = sample(there, batch, config)
        assert device.refused > 1
        torch.testing.assert_close(value(out.logits), expected.logits, **CLOSE)
        device.most = 16 * 48 - 1
        with pytest.raises(ModelError, match="memory of the device does not suffice for one pass over one text"):
            sample(there, batch, config)
        device.most = 4 * 16 * 48
        with pytest.raises(ModelError, match="does not suffice"):  # U of each layer needs all passes at once
            sample(there, batch, UATConfig(samples=10, estimate="layerwise"))


@pytest.fixture
def backbone(tiny, tokenizer, tmp_path):
    tiny("bert", rate=0).base_model.save_pretrained(tmp_path / "backbone")  # dropout draws other masks on a device
    tokenizer.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def on_fake(name=None):
    return torch.device("cpu") if name == "cpu" else DEVICE


@pytest.mark.parametrize("key", ["base", *METHOD_TRAININGS])
def test_every_training_gives_the_same_weights(key, backbone, job_from, tmp_path, monkeypatch):
    training, job = METHOD_TRAININGS.get(key, PLAIN), job_from(backbone)
    make, new = tuning.with_new_head, {}

    def made(*arguments, seed, **options):  # the device has no random numbers, and a new head is drawn
        model, tokenizer = new.setdefault(seed, make(*arguments, seed=seed, **options))
        return copy.deepcopy(model), tokenizer

    monkeypatch.setattr(tuning, "with_new_head", made)
    fine_tune(job, tmp_path / "cpu", training)
    monkeypatch.setattr(tuning, "find_device", on_fake)
    monkeypatch.setattr(load_module, "find_device", on_fake)
    with fake_device() as device:
        fine_tune(job, tmp_path / "device", training)
    assert device.operations > 1000
    for file in ("model.safetensors", "uatlite-method.safetensors"):
        if (tmp_path / "cpu" / file).is_file():
            expected, weights = load_file(tmp_path / "cpu" / file), load_file(tmp_path / "device" / file)
            assert weights.keys() == expected.keys()
            for name, tensor in expected.items():  # an optimizer's step enlarges rounding where a gradient is 0
                if not name.endswith("vectors"):  # eigenvectors have no sign
                    torch.testing.assert_close(weights[name], tensor, atol=2e-3, rtol=2e-2)


def test_training_uses_one_gpu_however_many_there_are(backbone, job_from, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "find_device", lambda name: torch.device("cuda:1"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    chosen = []
    monkeypatch.setattr("torch.cuda.set_device", lambda device: chosen.append(str(device)))
    job = job_from(backbone, batch_size=16)
    usual = TrainingArguments(output_dir=str(tmp_path), per_device_train_batch_size=16)
    assert (usual.n_gpu, usual.train_batch_size) == (4, 64)  # what the Trainer does by itself
    arguments = tuning.training_arguments(job.recipe, job.seed, tmp_path, tuning.find_device("auto"))
    assert (arguments.n_gpu, arguments.train_batch_size, str(arguments.device)) == (1, 16, "cuda:1")
    assert chosen[-1] == "cuda:1"
