"""The dropout sites of a model: where they are, what they belong to, and their own rates.

The seams: where a view of a model asks whoever runs it what to do.

A view (see `view.py`) calls these functions at each dropout site, at the entrance of each layer and in each
attention. They look for the `Intervention` of the running call in a context variable, so that calls from
several threads over one view never meet; without one the view behaves as the plain model does.

A view of a model: the same parameters and buffers under modules, hooks and a configuration of its own.

Hooks, evaluation mode and our attention implementation are set on the view, once. The user's model is never
touched, not even while a call runs, so there is nothing to put back: not after an exception, not after
Ctrl-C, and not for another thread that uses the model meanwhile.
"""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from uatlite.errors import ModelError
from uatlite.model.architectures import Architecture, architecture_of, check_classifier, unwrap

EMBEDDING, ATTENTION, FEED_FORWARD, CLASSIFIER = "embedding", "attention", "feed_forward", "classifier"

HEAD = -2
"""The layer of the classification head, as a site states it."""
EMBEDDINGS = -1
"""The layer of the embedding block, as a site states it."""


@dataclass(frozen=True)
class Site:
    """One place where units are dropped.

    `calls` is how often one forward pass goes through it: ALBERT's layers share theirs, RoBERTa's head calls its
    own twice. Each call draws a mask of its own.
    """

    name: str
    """Its path in the model, or for functional attention dropout the attention module's."""
    role: str
    """What it is inside its layer: `probabilities`, `output`, `feed_forward`, ..."""
    component: str
    """embedding, attention, feed_forward or classifier"""
    layer: int
    """0 .. layers-1, EMBEDDINGS or HEAD; for shared layers the first that it serves"""
    own_rate: float
    """The checkpoint's own rate; 0 where the engine added the site"""
    functional: bool = False
    """Whether transformers applies it as a function, so that switching modules to train mode misses it"""
    added: bool = False
    """Whether the model has no dropout here and the engine adds it"""
    calls: int = 1


class Sites(tuple[Site, ...]):
    """All sites of a model in forward order; prints as a table."""

    def __new__(cls, sites: Iterable[Site]) -> "Sites":
        return super().__new__(cls, tuple(sites))

    def of(self, component: str) -> "Sites":
        """The sites of one component."""
        return Sites(site for site in self if site.component == component)

    def __str__(self) -> str:
        header = ("site", "component", "layer", "own rate", "calls", "kind")
        rows = [header, *(_row(site) for site in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__


def _row(site: Site) -> tuple[str, ...]:
    layer = {EMBEDDINGS: "embeddings", HEAD: "head"}.get(site.layer, str(site.layer))
    kind = "added" if site.added else "functional" if site.functional else "module"
    return site.name, site.component, layer, f"{site.own_rate:g}", str(site.calls), kind


@dataclass(frozen=True)
class AttentionInput:
    """What an attention function receives: the projections and the additive mask."""

    query: Tensor
    """(rows, heads, tokens, head width)"""
    key: Tensor
    value: Tensor
    mask: Tensor | None
    """(rows or 1, 1, tokens, tokens), added to the logits; None without padding"""
    scaling: float

    def of_first_token(self) -> "AttentionInput":
        """What the first token alone asks."""
        mask = None if self.mask is None else self.mask[..., :1, :]
        return replace(self, query=self.query[..., :1, :], mask=mask)


class Intervention(Protocol):
    """What happens at the seams during one forward call."""

    def enter_layer(self, hidden: Tensor) -> None:
        """A layer begins; `hidden` (rows, tokens, width) is its input."""

    def at_site(self, site: Site, x: Tensor) -> Tensor:
        """The values at a dropout site, to be replaced by what is returned."""

    def attend(self, site: Site, inputs: AttentionInput) -> tuple[Tensor, Tensor | None]:
        """Attention through the interface: context (rows, heads, tokens, width), and probabilities where there are."""

    def at_probabilities(self, site: Site, probabilities: Tensor) -> Tensor:
        """Attention outside the interface: probabilities (rows, heads, tokens, tokens) after the softmax."""

    def narrows(self) -> bool:
        """Whether the running layer is the last and goes on with the first token alone."""

    def at_values(self, values: Tensor) -> Tensor:
        """Attention outside the interface: the projected values (rows, tokens, width)."""


_CURRENT: ContextVar[Intervention | None] = ContextVar("uatlite_intervention", default=None)


@contextmanager
def intervene(intervention: Intervention) -> Iterator[None]:
    """Let `intervention` answer at the seams of any view that this thread runs inside the block."""
    token = _CURRENT.set(intervention)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Intervention | None:
    """The intervention of the running call, if there is one."""
    return _CURRENT.get()


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers' AttentionInterface calls in a view's layers."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # grouped-query attention: each key and value head serves several query heads
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    inputs = AttentionInput(query, key, value, attention_mask, scaling)
    running = current()
    context, probabilities = (
        plain_attention(inputs) if running is None else running.attend(module._uatlite_site, inputs)  # type: ignore[arg-type]
    )
    if attention_mask is not None and getattr(module, "sliding_window", None) is not None:
        # Padding beyond the window of any token has nothing to attend to. Its context is 0, as in SDPA; the softmax
        # of equal logits would give it the mean of all values, and a model that pools it would see that.
        nothing = attention_mask.amax(dim=-1, keepdim=True) == torch.finfo(attention_mask.dtype).min
        context = context.masked_fill(nothing, 0.0)
    return context.transpose(1, 2).contiguous(), probabilities


def plain_attention(inputs: AttentionInput) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ·scaling + mask)·V, and the softmax."""
    logits = (inputs.query * inputs.scaling) @ inputs.key.transpose(-1, -2)
    if inputs.mask is not None:
        logits = logits + inputs.mask
    probabilities = torch.softmax(logits, dim=-1)
    return probabilities @ inputs.value, probabilities


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
    yield _drop_output(shadow, path, path, "embedding", EMBEDDING, EMBEDDINGS, row)


def _layer_sites(layer: nn.Module, path: str, index: int, row: Architecture, calls: int) -> Iterator[Site]:
    if row.position is not None and _has(layer, row.position):
        yield _drop_output(layer, row.position, f"{path}.{row.position}", "position", ATTENTION, index, row)
    yield _attention_site(layer, path, index, row, calls)
    if row.attention_output is not None:
        name = f"{path}.{row.attention_output}"
        yield _drop_output(layer, row.attention_output, name, "output", ATTENTION, index, row, calls)
    name = f"{path}.{row.feed_forward}"
    yield _drop_output(layer, row.feed_forward, name, "feed_forward", FEED_FORWARD, index, row, calls)


def _outer_sites(shadow: nn.Module, row: Architecture) -> Iterator[Site]:
    convolution = f"{row.base}.{row.convolution}"
    if row.convolution is not None and _has(shadow, convolution):
        yield _drop_output(shadow, convolution, convolution, "convolution", FEED_FORWARD, 0, row)
    for path in row.head:
        if _has(shadow, path):
            calls = 2 if path == "classifier.dropout" else 1  # transformers' *ClassificationHead drops twice
            yield _drop_output(shadow, path, path, "head", CLASSIFIER, HEAD, row, calls)


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
