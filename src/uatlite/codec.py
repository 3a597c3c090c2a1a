"""Frozen dataclasses to JSON and arrays, and back: the one way in which values are stored.

    {"threshold": "inf", "classes": ["no", "yes"], "scores": "shift.scores", "calibrator": {"is": "Temperature", …}}

An array is stored beside the JSON under its path, which stands in its place; infinities are strings, NaN is null; a
value whose type is a union of dataclasses names its class. A field with `metadata=NOT_STORED` is left out.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import StoreError, UATLiteError

_T = TypeVar("_T")
Arrays = dict[str, NDArray[Any]]
TAG = "is"
"""The key that names the class of a value, where its type alone does not."""
NOT_STORED: Mapping[str, bool] = {"stored": False}
"""Metadata of a dataclass field that is not stored; such a field has a default."""


def dump(value: Any, arrays: Arrays | None = None, *, kind: Any = Any) -> Any:
    """A value as plain JSON values. Its arrays go into `arrays` under their paths; without it they are lists.

    A value that is read as one of several classes names its own: `kind` is their union.
    """
    return _plain(value, kind, arrays, "")


@overload
def load(kind: type[_T], state: Any, arrays: Mapping[str, NDArray[Any]] | None = None, *, advice: str) -> _T: ...
@overload
def load(kind: UnionType, state: Any, arrays: Mapping[str, NDArray[Any]] | None = None, *, advice: str) -> Any: ...
def load(kind: Any, state: Any, arrays: Mapping[str, NDArray[Any]] | None = None, *, advice: str) -> Any:
    """The value of type `kind` that `dump` described; an error names the first fault, and ends in `advice`."""
    try:
        return _read(kind, state, arrays or {})
    except _Fault as fault:
        name = kind.__name__ if isinstance(kind, type) else "value"
        raise StoreError(f"the stored {name} is broken ({fault}); {advice}") from fault


def _plain(value: Any, kind: Any, arrays: Arrays | None, path: str) -> Any:
    """The value of a field whose type is declared as `kind`, in plain JSON values."""
    if isinstance(value, np.ndarray):
        if arrays is None:
            return _plain(value.tolist(), Any, None, path)
        arrays[path] = np.ascontiguousarray(value)
        return path
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value):
        written: type = type(value)
        hints, tag = _hints(written), {TAG: written.__name__} if len(_classes(kind)) > 1 else {}
        stored = {field.name: (getattr(value, field.name), hints[field.name]) for field in _stored(written)}
        return tag | {name: _plain(*pair, arrays, _below(path, name)) for name, pair in stored.items()}
    if isinstance(value, Mapping):
        inner = (_arguments(kind) or (Any,))[-1]
        return {str(name): _plain(entry, inner, arrays, _below(path, str(name))) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        inner = (_arguments(kind) or (Any,))[0]
        return [_plain(entry, inner, arrays, _below(path, str(i))) for i, entry in enumerate(value)]
    raise TypeError(f"{path or 'the value'} is a {type(value).__name__}, which is not stored")


class _Fault(Exception):
    """Something that is not as its type says; what holds it puts its own name before the path."""

    def __init__(self, what: str, *path: str) -> None:
        super().__init__(f"{'.'.join(path)}: {what}" if path else what)
        self.what, self.path = what, path


def _read(kind: Any, state: Any, arrays: Mapping[str, NDArray[Any]], name: str | None = None) -> Any:
    """The value of that type; a fault in it is said to be in the field or the entry of that name."""
    try:
        return _value(kind, state, arrays)
    except _Fault as fault:
        raise _Fault(fault.what, *([] if name is None else [name]), *fault.path) from fault


def _value(kind: Any, state: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return state
    if origin in (Union, UnionType):
        return _read_union(kind, state, arrays)
    if kind is np.ndarray or origin is np.ndarray:
        if isinstance(state, list):
            return np.asarray(state)
        _check(isinstance(state, str), state, "the name of an array")
        if state not in arrays:
            raise _Fault(f"there is no array {state!r}")
        return np.asarray(arrays[state])
    if origin is Literal:
        return _check(state in inner, state, f"one of {', '.join(map(repr, inner))}")
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_dataclass(kind, state, arrays)
    if origin in (tuple, list):
        return _read_sequence(origin, inner, state, arrays)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _check(isinstance(state, Mapping), state, "an object")
        return {name: _read(inner[1], entry, arrays, name) for name, entry in state.items()}
    if kind not in _PLAIN:
        raise TypeError(f"no value of type {kind!r} is stored")
    allowed, what = _PLAIN[kind]
    _check(allowed(state), state, what)
    return state if kind is not float else math.nan if state is None else float(state)


def _is_number(state: Any) -> bool:
    return isinstance(state, int | float) and not isinstance(state, bool)


_PLAIN: dict[type, tuple[Callable[[Any], bool], str]] = {
    NoneType: (lambda state: state is None, "null"),
    bool: (lambda state: isinstance(state, bool), "true or false"),
    str: (lambda state: isinstance(state, str), "a string"),
    int: (lambda state: isinstance(state, int) and _is_number(state), "a whole number"),
    float: (lambda state: state in (None, "inf", "-inf") or _is_number(state), "a number"),
}
"""Type of a plain value -> whether a state is one, and what it is called."""


def _read_union(union: Any, state: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    kinds, classes = get_args(union), _classes(union)
    if state is None and NoneType in kinds:
        return None
    if isinstance(state, Mapping) and len(classes) > 1:
        name = state.get(TAG)
        if name not in classes:
            raise _Fault(f"{name!r:.60} is not one of {', '.join(classes)}", TAG)
        return _read(classes[name], {key: entry for key, entry in state.items() if key != TAG}, arrays)
    *others, last = (kind for kind in kinds if kind is not NoneType)
    for kind in others:
        with suppress(_Fault):
            return _read(kind, state, arrays)
    return _read(last, state, arrays)


def _read_dataclass(kind: type, state: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    _check(isinstance(state, Mapping), state, f"the fields of {kind.__name__}")
    hints, values = _hints(kind), {}
    if unknown := [name for name in state if name not in {field.name for field in _stored(kind)}]:
        raise _Fault(f"{kind.__name__} has no such field", unknown[0])
    for field in _stored(kind):
        if field.name in state:
            values[field.name] = _read(hints[field.name], state[field.name], arrays, field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Fault("it is missing", field.name)
    try:
        return kind(**values)
    except UATLiteError as error:  # what the value itself does not allow
        raise _Fault(str(error)) from error


def _read_sequence(origin: Any, inner: tuple[Any, ...], state: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    _check(isinstance(state, list), state, "a list")
    if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        _check(len(state) == len(inner), state, f"a list of {len(inner)}")
    else:
        inner = (inner[0],) * len(state)
    pairs = zip(inner, state, strict=True)
    return origin([_read(hint, entry, arrays, str(i)) for i, (hint, entry) in enumerate(pairs)])


def _classes(kind: Any) -> dict[str, type]:
    """The dataclasses of a union, by name; of a dataclass itself that one."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return {entry.__name__: entry for entry in kinds if isinstance(entry, type) and is_dataclass(entry)}


def _arguments(kind: Any) -> tuple[Any, ...]:
    """The types inside a sequence or a mapping, which may be declared as optional."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [entry for entry in get_args(kind) if entry is not NoneType]
        return get_args(kinds[0]) if len(kinds) == 1 else ()
    return get_args(kind)


def _check(allowed: bool, state: Any, what: str) -> Any:
    if not allowed:
        raise _Fault(f"{state!r:.60} is not {what}")
    return state


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@lru_cache(maxsize=256)
def _stored(kind: type) -> tuple[Field[Any], ...]:
    every = fields(cast(Any, kind))
    return tuple(field for field in every if field.init and field.metadata.get("stored", True))
