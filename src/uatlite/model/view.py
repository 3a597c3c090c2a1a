"""A view of a model: the same parameters and buffers under its own modules, hooks and configuration.

Hooks, evaluation mode and our attention function are set on the view, once. The user's model is never touched, so
there is nothing to restore: not after an exception or Ctrl-C, and not for another thread that uses the model meanwhile.
"""

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from uatlite.errors import ModelError
from uatlite.model.architectures import Architecture, architecture_of, check_classifier, head_of, unwrap
from uatlite.model.intervention import (
    ATTENTION,
    CLASSIFIER,
    EMBEDDING,
    EMBEDDINGS,
    FEED_FORWARD,
    HEAD,
    Site,
    Sites,
    attention_function,
    change_bias,
    enter_layer,
    narrow,
    output_hook,
    see_states,
)

ATTENTION_KEY = "uatlite"
WATCHED = "_uatlite_watched"
"""The attribute of a model whose hooks tell the intervention what its encoder says."""
_COMPONENTS = {
    "embedding": EMBEDDING, "position": ATTENTION, "output": ATTENTION, "feed_forward": FEED_FORWARD,
    "convolution": FEED_FORWARD, "head": CLASSIFIER,
}  # fmt: skip
_KNOWN = ("torch", "transformers", "uatlite")


@dataclass(frozen=True)
class View:
    """A model that can be run with interventions, and its sites in forward order."""

    model: PreTrainedModel
    architecture: Architecture
    sites: Sites
    layers: int
    """layers of one forward pass, counting shared ones each time"""
    narrows: bool
    """whether only the head reads the last layer's output, and only its first token"""

    def logit_shape(self, input_ids: Tensor) -> tuple[int, ...]:
        """The shape of a batch's logits: (batch, classes), (batch, choices), or (batch, tokens, classes)."""
        head = head_of(self.model)
        sizes = dict(zip(head.inputs, input_ids.shape, strict=True)) | {"classes": int(self.model.config.num_labels)}
        return tuple(sizes[axis] for axis in head.logits)

    @property
    def tags(self) -> bool:
        """Whether the model gives logits for each token."""
        return "tokens" in head_of(self.model).logits

    def narrow_layer(self, *, from_the_left: bool) -> int | None:
        """The layer that may run for the first token alone; it needs texts that start at the left. None otherwise."""
        return self.layers - 1 if self.narrows and from_the_left else None


_VIEWS: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], View]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def view_of(model: PreTrainedModel) -> View:
    """The view of a classifier, built on first use and again when the model's modules, rates or hooks change."""
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        check_classifier(model)
    fingerprint = _fingerprint(model)
    with _LOCK:
        cached = _VIEWS.get(model)
        if cached is None or cached[0] != fingerprint:
            cached = fingerprint, _build(model)
            _VIEWS[model] = cached
        return cached[1]


def _fingerprint(model: nn.Module) -> tuple[object, ...]:
    """Every module, rate and hook that a view is built from.

    It holds the modules themselves, as an id is reused once its module is gone, but not the model, which the cache
    must not keep alive. A stack is used because `modules()` is slow and this runs in every call.
    """
    seen: list[object] = []
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            attributes = module.__dict__
            seen += (None if module is model else module, attributes.get("p"), attributes.get("attention_dropout"))
            seen += attributes["_forward_hooks"]  # the keys, which torch never reuses
            seen += attributes["_forward_pre_hooks"]
            stack.extend(attributes["_modules"].values())
    return tuple(seen)


def dropout_sites(model: PreTrainedModel) -> Sites:
    """The dropout sites of a classifier with their component, layer and own rate; prints as a table."""
    return view_of(model).sites


def _build(model: PreTrainedModel) -> View:
    check_classifier(model)
    architecture = architecture_of(model)
    shadow: PreTrainedModel = _shadow(model, {})
    _configure(shadow)
    layers = list(layers_of(shadow, architecture))
    for _, layer in layers:
        layer.register_forward_pre_hook(enter_layer, with_kwargs=True)
        if architecture.narrow is not None:
            layer.get_submodule(architecture.narrow).register_forward_pre_hook(narrow)
    encoder = shadow._modules.get(shadow.base_model_prefix)
    if encoder is not None:
        encoder.register_forward_hook(see_states)
    shadow.__dict__[WATCHED] = True
    sites = Sites(_sites(shadow, architecture, layers))
    return View(shadow, architecture, sites, shadow.config.num_hidden_layers, _head_reads_first(model, architecture))


def _head_reads_first(model: PreTrainedModel, architecture: Architecture) -> bool:
    """Whether it is certain that the head reads the first token alone: only known modules, and no unknown hooks.

    transformers' own hooks stay on a model that once returned hidden states; they act only when it does so again.
    """
    ours = all(
        is_known(definition)
        for module in model.modules()
        for definition in (type(module), *module._forward_hooks.values(), *module._forward_pre_hooks.values())
    )
    in_chunks = getattr(model.config, "chunk_size_feed_forward", 0)
    first = not in_chunks and getattr(model.config, "summary_type", "first") == "first"
    return architecture.narrow is not None and ours and first and "tokens" not in head_of(model).logits


def is_known(definition: object) -> bool:
    """Whether a class or function is PyTorch's, transformers' or our own."""
    return str(getattr(definition, "__module__", "")).partition(".")[0] in _KNOWN


def _shadow(module: nn.Module, memo: dict[int, nn.Module]) -> nn.Module:
    """A copy of the module tree that shares every `_parameters` and `_buffers` dictionary with the original."""
    if id(module) in memo:
        return memo[id(module)]
    twin = module.__class__.__new__(module.__class__)
    memo[id(module)] = twin
    twin.__dict__.update(module.__dict__)
    if "_hf_hook" in twin.__dict__:
        raise ModelError(
            f"{type(module).__name__} carries an accelerate hook (offloaded or dispatched over devices), which "
            "bypasses a view of the model. Load it on one device, without device_map."
        )
    for wrapper in ("forward", "_original_forward"):  # mixed-precision wrappers, bound to the original
        twin.__dict__.pop(wrapper, None)
    own_hooks(twin)
    twin.__dict__["_compiled_call_impl"] = None
    twin.__dict__["training"] = False
    twin.__dict__["_modules"] = {
        name: child if child is None else _shadow(child, memo) for name, child in module._modules.items()
    }
    return twin


def own_hooks(module: nn.Module) -> None:
    """Give a copy of a module hooks of its own."""
    for name, value in module.__dict__.items():
        if "_hooks" in name:
            module.__dict__[name] = copy.copy(value)


def _configure(shadow: nn.Module) -> None:
    """Give the view its own configuration, with which transformers calls our attention function."""
    AttentionInterface.register(ATTENTION_KEY, attention_function)
    AttentionMaskInterface.register(ATTENTION_KEY, eager_mask)
    copies: dict[int, Any] = {}
    for module in shadow.modules():
        config = module.__dict__.get("config")
        if config is None:
            continue
        if id(config) not in copies:
            copies[id(config)] = copy.deepcopy(config)
            copies[id(config)]._attn_implementation = ATTENTION_KEY
            copies[id(config)].use_cache = False
        module.__dict__["config"] = copies[id(config)]


def layers_of(model: nn.Module, architecture: Architecture) -> Iterator[tuple[str, nn.Module]]:
    """The layers with their paths; a `*` in the table's path walks a list of layer groups."""
    outer, _, inner = f"{architecture.base}.{architecture.layers}".partition(".*.")
    if not inner:
        lists = [(outer, model.get_submodule(outer))]
    else:
        groups = model.get_submodule(outer)
        lists = [(f"{outer}.{i}.{inner}", group.get_submodule(inner)) for i, group in enumerate(groups.children())]
    for path, modules in lists:
        for i, layer in enumerate(modules.children()):
            yield f"{path}.{i}", layer


def _sites(shadow: PreTrainedModel, row: Architecture, layers: Sequence[tuple[str, nn.Module]]) -> Iterator[Site]:
    """All sites in forward order, each with the hook through which an intervention acts there."""
    modules = dict(shadow.named_modules(remove_duplicate=False))
    calls = shadow.config.num_hidden_layers // len(layers)
    yield _drop_output(modules, f"{row.base}.{row.embedding}", "embedding", EMBEDDINGS, row)
    for i, (path, layer) in enumerate(layers):
        if row.position is not None and f"{path}.{row.position}" in modules:
            yield _drop_output(modules, f"{path}.{row.position}", "position", i, row)
        yield _attention_site(layer, path, i, row, calls)
        if row.attention_output is not None:
            yield _drop_output(modules, f"{path}.{row.attention_output}", "output", i, row, calls)
        yield _drop_output(modules, f"{path}.{row.feed_forward}", "feed_forward", i, row, calls)
    if f"{row.base}.{row.convolution}" in modules:
        yield _drop_output(modules, f"{row.base}.{row.convolution}", "convolution", 0, row)
    for path in row.head:
        if path in modules:
            twice = path == "classifier.dropout"  # transformers' *ClassificationHead drops twice
            yield _drop_output(modules, path, "head", HEAD, row, 2 if twice else 1)


def _attention_site(layer: nn.Module, path: str, index: int, row: Architecture, calls: int) -> Site:
    attention = layer.get_submodule(row.attention)
    rate = getattr(attention, row.attention_rate)
    site = Site(
        name=f"{path}.{row.attention}" + ("" if row.interface else f".{row.attention_rate}"),
        role="probabilities",
        component=ATTENTION,
        layer=index,
        own_rate=_own_rate(rate),
        functional=row.interface,
        calls=calls,
    )
    if row.interface:
        attention.__dict__["_uatlite_site"] = site
    else:
        rate.register_forward_hook(output_hook(lambda running, x: running.at_probabilities(site, x)))
        values = layer.get_submodule(str(row.value))
        values.register_forward_hook(output_hook(lambda running, x: running.at_values(x)))
        if row.key is not None:
            layer.get_submodule(row.key).register_forward_hook(output_hook(lambda running, x: running.at_keys(x)))
            attention.register_forward_pre_hook(change_bias)
    return site


def _drop_output(
    modules: Mapping[str, nn.Module], path: str, role: str, layer: int, row: Architecture, calls: int = 1
) -> Site:
    """Make the output of the module at this path a site."""
    component = _COMPONENTS[role]
    added = component in row.added
    rate = 0.0 if added else _own_rate(modules[path])
    site = Site(path, role, component, layer, rate, added=added, calls=calls)
    modules[path].register_forward_hook(output_hook(lambda running, x: running.at_site(site, x)))
    return site


def _own_rate(holder: object) -> float:
    """The rate of a Dropout module, of a plain number, or 0 of an Identity."""
    return float(getattr(holder, "p", 0.0)) if isinstance(holder, nn.Module) else float(holder)  # type: ignore[arg-type]
