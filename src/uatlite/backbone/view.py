"""A view of a model: the same parameters and buffers under modules, hooks and a configuration of its own.

Hooks, evaluation mode and our attention implementation are set on the view, once. The user's model is never
touched, not even while a call runs, so there is nothing to put back: not after an exception, not after
Ctrl-C, and not for another thread that uses the model meanwhile.
"""

import copy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from uatlite.backbone import sites as s
from uatlite.backbone.architectures import Architecture
from uatlite.backbone.checks import architecture_of, check_classifier, unwrap
from uatlite.backbone.seams import attention_function, current
from uatlite.backbone.sites import Site, Sites
from uatlite.errors import ModelError

ATTENTION_KEY = "uatlite"
_KNOWN = ("torch", "transformers", "uatlite")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOK_OPTIONS = (
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)


@dataclass(frozen=True)
class View:
    """A model that can be run with interventions, and its sites in forward order."""

    model: PreTrainedModel
    architecture: Architecture
    sites: Sites
    layers: int
    """how many layers one forward pass goes through"""
    narrows: bool
    """whether nobody reads the last layer's output but the head, and that its first token only"""

    def narrow_layer(self, *, from_the_left: bool) -> int | None:
        """The layer that may run for the first token alone, where every text begins at the left; None without one."""
        return self.layers - 1 if self.narrows and from_the_left else None


_VIEWS: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], View]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def view_of(model: PreTrainedModel) -> View:
    """The view of a classifier, built on first use and again when the model's modules, rates or hooks were changed."""
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        check_classifier(model)
    fingerprint = _fingerprint(model)
    with _LOCK:
        known = _VIEWS.get(model)
        if known is None or known[0] != fingerprint:
            known = fingerprint, _build(model)
            _VIEWS[model] = known
        return known[1]


def _fingerprint(model: nn.Module) -> tuple[object, ...]:
    """What a view was built from: every module, rate and hook. (By a stack: `modules()` is slow, and this is hot.)

    It holds the modules themselves, for an id may be that of a new module once the old one is gone; but not the model,
    which the cache must not keep alive.
    """
    seen: list[object] = []
    stack: list[nn.Module | None] = [model]
    while stack:
        module = stack.pop()
        if module is not None:
            attributes = module.__dict__
            seen += (None if module is model else module, attributes.get("p"), attributes.get("attention_dropout"))
            seen += attributes["_forward_hooks"]  # by their numbers, which torch never gives twice
            seen += attributes["_forward_pre_hooks"]
            stack.extend(attributes["_modules"].values())
    return tuple(seen)


def dropout_sites(model: PreTrainedModel) -> Sites:
    """Which dropout sites a classifier has, what each belongs to and its own rate; prints as a table."""
    return view_of(model).sites


def _build(model: PreTrainedModel) -> View:
    check_classifier(model)
    architecture = architecture_of(model)
    shadow: PreTrainedModel = _shadow(model, {})
    _configure(shadow)
    layers = list(layers_of(shadow, architecture))
    passes_through = shadow.config.num_hidden_layers
    found = [*_embedding_site(shadow, architecture)]
    for index, (path, layer) in enumerate(layers):
        layer.register_forward_pre_hook(_enter_layer, with_kwargs=True)
        if architecture.narrow is not None:
            layer.get_submodule(architecture.narrow).register_forward_pre_hook(_narrow)
        found += _layer_sites(layer, path, index, architecture, passes_through // len(layers))
    found += _outer_sites(shadow, architecture)
    return View(shadow, architecture, Sites(found), passes_through, _head_reads_first(model, architecture))


def _head_reads_first(model: PreTrainedModel, architecture: Architecture) -> bool:
    """Whether the head's reading of the first token alone is certain: only known modules, and no hook that may look.

    transformers' own hooks stay on a model that was once asked for hidden states; they look when it is asked again.
    """
    known = all(
        is_known(part)
        for module in model.modules()
        for part in (type(module), *module._forward_hooks.values(), *module._forward_pre_hooks.values())
    )
    in_chunks = getattr(model.config, "chunk_size_feed_forward", 0)
    first = not in_chunks and getattr(model.config, "summary_type", "first") == "first"
    return architecture.narrow is not None and known and first


def is_known(part: object) -> bool:
    """Whether a class or function is PyTorch's, transformers' or our own."""
    return str(getattr(part, "__module__", "")).partition(".")[0] in _KNOWN


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
    for wrapper in (
        "forward",
        "_original_forward",
    ):  # mixed-precision wrappers that are bound to the original
        twin.__dict__.pop(wrapper, None)
    for name in (*_HOOKS, *_HOOK_OPTIONS):
        if name in twin.__dict__:
            twin.__dict__[name] = copy.copy(twin.__dict__[name])
    twin.__dict__["_compiled_call_impl"] = None
    twin.__dict__["training"] = False
    twin.__dict__["_modules"] = {
        name: child if child is None else _shadow(child, memo) for name, child in module._modules.items()
    }
    return twin


def _configure(shadow: nn.Module) -> None:
    """Give the view a configuration of its own, under which transformers calls our attention function."""
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


def _embedding_site(shadow: nn.Module, row: Architecture) -> Iterator[Site]:
    path = f"{row.base}.{row.embedding}"
    yield _drop_output(shadow, path, path, "embedding", s.EMBEDDING, s.EMBEDDINGS, row)


def _layer_sites(layer: nn.Module, path: str, index: int, row: Architecture, calls: int) -> Iterator[Site]:
    if row.position is not None and _has(layer, row.position):
        yield _drop_output(layer, row.position, f"{path}.{row.position}", "position", s.ATTENTION, index, row)
    yield _attention_site(layer, path, index, row, calls)
    if row.attention_output is not None:
        name = f"{path}.{row.attention_output}"
        yield _drop_output(layer, row.attention_output, name, "output", s.ATTENTION, index, row, calls)
    name = f"{path}.{row.feed_forward}"
    yield _drop_output(layer, row.feed_forward, name, "feed_forward", s.FEED_FORWARD, index, row, calls)


def _outer_sites(shadow: nn.Module, row: Architecture) -> Iterator[Site]:
    convolution = f"{row.base}.{row.convolution}"
    if row.convolution is not None and _has(shadow, convolution):
        yield _drop_output(shadow, convolution, convolution, "convolution", s.FEED_FORWARD, 0, row)
    for path in row.head:
        if _has(shadow, path):
            calls = 2 if path == "classifier.dropout" else 1  # transformers' *ClassificationHead drops twice
            yield _drop_output(shadow, path, path, "head", s.CLASSIFIER, s.HEAD, row, calls)


def _attention_site(layer: nn.Module, path: str, index: int, row: Architecture, calls: int) -> Site:
    attention = layer.get_submodule(row.attention)
    rate = getattr(attention, row.attention_rate)
    site = Site(
        name=f"{path}.{row.attention}" + ("" if row.interface else f".{row.attention_rate}"),
        role="probabilities",
        component=s.ATTENTION,
        layer=index,
        own_rate=_own_rate(rate),
        functional=row.interface,
        calls=calls,
    )
    if row.interface:
        attention.__dict__["_uatlite_site"] = site
    else:
        rate.register_forward_hook(_at_probabilities(site))
        layer.get_submodule(str(row.value)).register_forward_hook(_at_values)
    return site


def _drop_output(
    root: nn.Module,
    path: str,
    name: str,
    role: str,
    component: str,
    layer: int,
    row: Architecture,
    calls: int = 1,
) -> Site:
    """Make the output of a module a site."""
    module = root.get_submodule(path)
    added = component in row.added
    own = 0.0 if added else _own_rate(module)
    site = Site(name, role, component, layer, own, added=added, calls=calls)
    module.register_forward_hook(_at_site(site))
    return site


def _has(root: nn.Module, path: str) -> bool:
    try:
        root.get_submodule(path)
    except AttributeError:
        return False
    return True


def _own_rate(holder: object) -> float:
    """The rate of a Dropout module, of a plain number, or 0 of an Identity."""
    return float(getattr(holder, "p", 0.0)) if isinstance(holder, nn.Module) else float(holder)  # type: ignore[arg-type]


def _enter_layer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    running = current()
    if running is not None:
        running.enter_layer(args[0] if args else kwargs["hidden_states"])


def _narrow(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    running = current()
    return tuple(x[:, :1] for x in args) if running is not None and running.narrows() else None


def _at_site(site: Site) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        running = current()
        return output if running is None else running.at_site(site, output)

    return hook


def _at_probabilities(site: Site) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        running = current()
        return output if running is None else running.at_probabilities(site, output)

    return hook


def _at_values(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    running = current()
    return output if running is None else running.at_values(output)
