"""A call leaves the model and the process as they were, also when it fails half way."""

import random

import numpy as np
import pytest
import torch
from torch.nn.modules import module as torch_module

from uatlite import UATConfig, dropout_sites, sample
from uatlite.model.intervention import current

CONFIG = UATConfig(samples=3)


def snapshot(model):
    """All that a call could leave a trace on, comparable by ==."""
    hooks = [name for name in vars(model) if "hook" in name]
    return {
        "parameters": {
            name: (id(p), p.data_ptr(), p.detach().numpy().tobytes(), p.requires_grad, p.grad, p._version)
            for name, p in model.named_parameters()
        },
        "buffers": {name: (id(b), b.numpy().tobytes(), b._version) for name, b in model.named_buffers()},
        "modules": [
            (
                path,
                id(m),
                m.training,
                sorted(vars(m)),
                [list(getattr(m, name).items()) for name in hooks if getattr(m, name)],
            )
            for path, m in model.named_modules()
        ],
        "configuration": [
            (id(m.config), m.config.to_json_string(use_diff=False), m.config._attn_implementation)
            for m in model.modules()
            if hasattr(m, "config")
        ],
        "random": (torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()), random.getstate()),  # noqa: NPY002
        "torch": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            {name: len(hooks) for name, hooks in vars(torch_module).items() if name.startswith("_global") and hooks},
        ),
        "seam": current(),
    }


def half_way(model):
    """A module that runs near the end of a forward: the last feed-forward site's."""
    return model.get_submodule(dropout_sites(model).of("feed_forward")[-1].name)


@pytest.mark.parametrize("mode", ["eval", "train", "partly"])
def test_after_a_call(architecture, tiny, mixed, mode):
    model = tiny(architecture).train(mode == "train")
    if mode == "partly":
        next(model.children()).train()
        next(model.parameters()).requires_grad_(False)
    before = snapshot(model)
    for config in (CONFIG, UATConfig(samples=2, gate="v", estimate="closed-form", masks="stratified", per_input=True)):
        sample(model, mixed, config)
        dropout_sites(model)
        assert snapshot(model) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_a_failure_inside_the_model(architecture, tiny, mixed, error):
    model = tiny(architecture).train()
    expected = sample(model, mixed, CONFIG).logits

    def fail(*_):
        raise error("half way")

    handle = half_way(model).register_forward_hook(fail)
    before = snapshot(model)
    with pytest.raises(error, match="half way"):
        sample(model, mixed, CONFIG)
    assert snapshot(model) == before
    handle.remove()
    assert torch.equal(sample(model, mixed, CONFIG).logits, expected)


def test_a_failure_in_a_later_chunk(tiny, mixed):
    model, calls = tiny("bert"), []

    def fail(*_):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    half_way(model).register_forward_hook(fail)
    before = snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        sample(model, mixed, CONFIG, chunk=1)
    assert len(calls) == 2
    assert snapshot(model) == before


def test_the_inputs_are_left_alone(shared, mixed):
    before = {name: value.clone() for name, value in mixed.items()}
    sample(shared("bert"), mixed, CONFIG)
    assert mixed.keys() == before.keys()
    assert all(torch.equal(mixed[name], before[name]) for name in before)


def test_results_are_ordinary_tensors(shared, mixed):
    """Not inference tensors: they can be changed in place and take part in a backward pass."""
    out = sample(shared("bert"), mixed, UATConfig(samples=2, estimate="layerwise"))
    for value in (out.logits, out.token_uncertainty, out.layer_uncertainty):
        assert not value.is_inference()
        assert not value.requires_grad
    weight = torch.ones(3, requires_grad=True)
    (out.logits * weight).sum().backward()
    assert weight.grad is not None


def test_in_the_callers_grad_modes(shared, mixed):
    expected = sample(shared("bert"), mixed, CONFIG).logits
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert torch.equal(sample(shared("bert"), mixed, CONFIG).logits, expected)
