"""Algorithm 1 of the paper, as a plain Python loop over passes: the reference of the engine.

Nothing here comes from the engine but the mask bits (`uatlite.passes.masks`) and the name of each draw. The
reference has a table of sites, hooks, an attention function and running statistics of its own, and works on a copy
of the model, one pass after the other.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from uatlite.passes import engine
from uatlite.passes.dropout import DropoutNoise
from uatlite.passes.masks import MASKS, Draw

KEY = "plain_reference"
# role -> the modules that have it, as model/path
ROLES = {
    "embedding": r".*/\w+\.embeddings\.dropout|.*/model\.embeddings\.drop|.*/transformer\.drop|.*/model\.embed_tokens",
    "position": r".*\.pos_dropout",
    "probabilities": r"deberta.*\.attention\.self\.dropout|mpnet.*\.attn\.dropout",
    "values": r".*\.attention\.self\.value_proj|.*\.attn\.v",
    "output": r".*\.attention\.output[._]dropout|mpnet.*\.attention\.dropout|.*\.out_drop|.*\.resid_dropout",
    "feed_forward": r".*\.layer\.\d+\.output\.dropout|.*\.ffn(\.dropout|_output)|.*\.mlp\.drop\w*|(llama|qwen).*\.mlp",
    "convolution": r".*\.conv\.dropout",
    "head": r".*/(classifier\.dropout|pooler\.dropout|dropout|drop)",
}
COMPONENT = {
    "embedding": "embedding", "position": "attention", "probabilities": "attention", "output": "attention",
    "feed_forward": "feed_forward", "convolution": "feed_forward", "head": "classifier",
}  # fmt: skip
LAYER = r"\w+\.(encoder\.layer|transformer\.layer|layers|h|encoder\.albert_layer_groups\.\d+\.albert_layers)\.\d+"

SHRINK: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda x: torch.exp(-x),
    "linear": lambda x: torch.maximum(torch.zeros(()), 1 - x),
    "reciprocal": lambda x: 1 / (1 + x),
    "additive": lambda x: torch.exp(-x),
}


def statistic(std, mean, name):
    """U(x_j) as docs/reference/method.md defines it, in NumPy, from s_k and the mean of each unit (..., width)."""
    s, m = std.numpy().astype(np.float64), mean.numpy().astype(np.float64)
    value = {
        "mean-std": lambda: s.mean(-1),
        "rms-std": lambda: np.sqrt((s**2).mean(-1)),
        "median-std": lambda: np.median(s, axis=-1),
        "cov-trace": lambda: (s**2).mean(-1),
        "cv": lambda: (s / (np.abs(m) + 1e-6)).mean(-1),
        "norm-cv": lambda: np.sqrt((s**2).sum(-1)) / np.sqrt((m**2).sum(-1)),
    }[name.removesuffix("+ln")]()
    return torch.from_numpy(np.asarray(value, dtype=np.float32))


def u_of_samples(samples, name):
    """U by its definition from samples (passes, texts, tokens, width): (texts, tokens)."""
    z = samples.double()
    if name.endswith("+ln"):
        z = (z - z.mean(-1, keepdim=True)) / (z.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    return statistic(z.std(dim=0) if len(z) > 1 else torch.zeros_like(z[0]), z.mean(dim=0), name)


def layers_in(spelt):
    """The layers of '2&5&9-11', counted from 0; every layer for 'all'."""
    if spelt == "all":
        return range(100)
    ends = [(part.split("-")[0], part.split("-")[-1]) for part in spelt.split("&")]
    return [number - 1 for first, last in ends for number in range(int(first), int(last) + 1)]


class Algorithm1:
    """M passes over a copy of a model, one by one."""

    def __init__(self, model, name, config):
        AttentionInterface.register(KEY, _attention)
        AttentionMaskInterface.register(KEY, eager_mask)
        self.config = config
        self.outside = name.startswith("deberta") or name == "mpnet"
        self.model = copy.deepcopy(model).eval()
        if not self.outside:
            self.model.set_attn_implementation(KEY)
        for path, module in self.model.named_modules():
            object.__setattr__(module, "reference", self)
            role = next((role for role, pattern in ROLES.items() if re.fullmatch(pattern, f"{name}/{path}")), None)
            if role is not None:
                module.register_forward_hook(self._site(role))
            if re.fullmatch(LAYER, path):
                module.register_forward_pre_hook(self._layer, with_kwargs=True)
        self.uncertainty: dict[int, Tensor] = {}
        """layer -> U (rows, tokens) that gates its attention; none at layers that are not in it"""

    def run(self, encoded):
        """Logits (passes, batch, classes), U from all passes (batch, tokens), and layerwise that of each layer."""
        self.real = encoded["attention_mask"].bool()
        self.starts = self.real.int().argmax(dim=1)
        self.encoded = encoded
        estimate = {"lagged": self._lagged, "closed-form": self._closed_form, "layerwise": self._layerwise}
        with torch.no_grad(), patch("torch.nn.functional.softmax", self._softmax) if self.outside else nullcontext():
            logits, u = estimate[self.config.estimate]()
        layerwise = self.config.estimate == "layerwise"
        return logits, u, torch.stack(list(self.uncertainty.values())) if layerwise else None

    def _lagged(self):
        logits, seen = [], []
        for number in range(self.config.samples):
            logits.append(self._pass(number))
            seen.append(self.embedding_sample)
            self.uncertainty = dict.fromkeys(range(100), self._uncertainty(seen))
        return torch.stack(logits), self.uncertainty[0]

    def _closed_form(self):
        self._pass(0)  # to see the embedding block's output without dropout
        p, e = self._rate("embedding", None), self.embedding
        u = statistic(e.abs() * (p / (1 - p)) ** 0.5, e, self.config.uncertainty) * self.real
        self.uncertainty = dict.fromkeys(range(100), u)
        return torch.stack([self._pass(number) for number in range(self.config.samples)]), u

    def _layerwise(self):
        """U of layer l needs all passes' inputs of it, which need U of the layers below: one layer a round."""
        for layer in range(self.model.config.num_hidden_layers):
            seen = []
            for number in range(self.config.samples):
                self._pass(number)
                seen.append(self.layer_inputs[layer])
            self.uncertainty[layer] = self._uncertainty(seen)
        logits, seen = [], []
        for number in range(self.config.samples):
            logits.append(self._pass(number))
            seen.append(self.embedding_sample)
        return torch.stack(logits), self._uncertainty(seen)

    def _uncertainty(self, samples):
        return u_of_samples(torch.stack(samples), self.config.uncertainty) * self.real

    def _pass(self, number):
        self.number, self.attended, self.calls, self.layer_inputs = number, 0, Counter(), []
        return self.model(**self.encoded).logits.float()

    def _layer(self, module, args, kwargs):
        self.layer_inputs.append((args[0] if args else kwargs["hidden_states"]).clone())

    def _rate(self, role, own):
        rate = getattr(self.config.rates, COMPONENT[role])
        return float(own) if rate is None else rate

    def _site(self, role):
        def hook(module, args, output):
            if role == "values":
                return self.gate_values(output, self.attended, dims=1)
            if role == "embedding":
                self.embedding = output.clone()
            dropped = self.drop(role, output, getattr(module, "p", 0.0))
            if role == "embedding":
                self.embedding_sample = dropped.clone()
            self.attended += role == "probabilities"
            return dropped

        return hook

    def drop(self, role, x, own):
        """Inverted dropout on the bits of this pass; a text's positions count from its first real token."""
        layer = {"embedding": -1, "head": -2, "position": self.attended, "probabilities": self.attended}.get(
            role, self.attended - 1
        )
        name = f"{layer}.{role}.{self.calls[layer, role]}"
        self.calls[layer, role] += 1
        rate = self._rate(role, own)
        if rate == 0 or (layer >= 0 and layer not in layers_in(self.config.layers.rate_layers)):
            return x
        shape = {2: (1, *x.shape), 3: (1, *x.shape[1:]), 4: tuple(x.shape[1:])}[x.ndim]
        pooled = role == "head" and x.ndim == 2
        if pooled:
            shape = (1, 1, x.shape[-1])
        draw = Draw(self.config.seed, name, rate)
        draws = MASKS[self.config.masks](draw, range(self.number, self.number + 1), self.config.samples, shape)
        keep = torch.from_numpy(draws[0]).float() / (1 - rate)
        if pooled or role == "position":
            return x * keep[0]
        at = (torch.arange(x.shape[-2]) - self.starts[:, None]).clamp_min(0)
        if role == "probabilities":
            return x * torch.stack([keep[:, p][:, :, p] for p in at])
        return x * torch.stack([keep[0, p] for p in at])

    def gated(self, layer):
        return layer in self.uncertainty and layer in layers_in(self.config.layers.gate_layers)

    def gate_logits(self, logits, layer):
        """a_ij·g(λu_ij), or a_ij - λU_j; logits (rows, heads, query tokens, key tokens)."""
        if not self.gated(layer) or self.config.gate in ("none", "v"):
            return logits
        u, penalty, gate = self.uncertainty[layer], self.config.penalty, self.config.gate
        u_i, u_j = u[:, None, :, None], u[:, None, None, :]
        if self.config.form == "additive":
            return logits - penalty * u_j
        pair = {"q": u_i, "k": u_j, "qk": u_i + u_j, "qkv": u_i + u_j}[gate]
        return logits * SHRINK[self.config.form](penalty * pair)

    def gate_values(self, values, layer, dims):
        """V_j·g(λU_j), for values with `dims` axes after the tokens' (and heads before them if more than one)."""
        if not self.gated(layer) or self.config.gate not in ("v", "qkv"):
            return values
        factor = SHRINK[self.config.form](self.config.penalty * self.uncertainty[layer])
        return values * (factor[:, :, None] if dims == 1 else factor[:, None, :, None])

    def _softmax(self, logits, dim=-1, **_):
        """Stands in for the softmax of DeBERTa and MPNet, where their full logits, position terms and all, are seen."""
        gated = torch.where(logits < -1e30, logits, self.gate_logits(logits, self.attended))
        return torch.softmax(gated, dim=dim)


def _attention(module, query, key, value, attention_mask, **kwargs):
    """Eager attention with gates and dropout, straight from the equations."""
    run: Algorithm1 = module.reference
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    layer = run.attended
    logits = query @ key.transpose(2, 3) * kwargs.get("scaling", query.shape[-1] ** -0.5)
    logits = run.gate_logits(logits, layer)
    if attention_mask is not None:
        logits = logits + attention_mask
    own = next(
        rate if isinstance(rate, float | int) else rate.p
        for rate in (getattr(module, name, None) for name in ("attn_dropout", "attention_dropout", "dropout"))
        if rate is not None
    )
    probabilities = run.drop("probabilities", torch.softmax(logits, dim=-1), own)
    run.attended += 1
    context = probabilities @ run.gate_values(value, layer, dims=2)
    if attention_mask is not None:  # as in SDPA, who may attend to nothing sees nothing
        context = context * (attention_mask > torch.finfo(torch.float32).min).any(dim=-1, keepdim=True)
    return context.transpose(1, 2).contiguous(), None


@pytest.fixture(scope="session")
def reference():
    """`reference(model, architecture, encoded, config)`: Algorithm 1's logits, token and layer uncertainty."""
    return lambda model, name, encoded, config: Algorithm1(model, name, config).run(encoded)


@pytest.fixture(scope="session")
def by_definition():
    """`by_definition(samples, name)`: U of samples (passes, texts, tokens, width)."""
    return u_of_samples


Masks = dict[tuple[int, int, str], Tensor]
"""(text, pass, call of a site) -> multipliers at the text's real tokens, 0 where a unit is dropped"""


@pytest.fixture
def masks(monkeypatch):
    """What every call of every site multiplies by, while the test runs the engine in one thread."""
    seen: Masks = {}
    chunk: dict[str, Any] = {}
    run_chunk = engine.run_chunk

    def recorded_chunk(view, inputs, part, config):
        chunk.update(texts=part.rows.tolist(), real=part.take(inputs["attention_mask"]).bool())
        return run_chunk(view, inputs, part, config)

    class Recorded(DropoutNoise):
        def perturb(self, call, x):
            ones = super().perturb(call, torch.ones_like(x))
            for at, number in enumerate(self._passes):
                for row, text in enumerate(chunk["texts"]):
                    real = chunk["real"][row]
                    if call.site.role == "position":
                        bits = ones
                    else:
                        bits = ones.view(len(self._passes), len(chunk["texts"]), *x.shape[1:])[at, row]
                        bits = bits if x.ndim == 2 else bits[..., real[: x.shape[-2]], :]
                        bits = bits[..., real] if call.site.role == "probabilities" else bits
                    seen[text, number, call.name] = bits.clone()
            return super().perturb(call, x)

    monkeypatch.setattr(engine, "run_chunk", recorded_chunk)
    monkeypatch.setattr("uatlite.passes.forward.DropoutNoise", Recorded)
    return seen


@pytest.fixture
def mixed(texts):
    """One batch with an unpadded text, one padded on the right and one padded on the left."""
    right, left = texts((9, 5, 7)), texts((9, 5, 7), side="left")
    return {name: torch.stack([right[name][0], right[name][1], left[name][2]]) for name in right}
