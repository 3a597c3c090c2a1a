"""Frozen dataclasses to JSON and arrays, and back: the one way in which values are stored.

    {"threshold": "inf", "classes": ["no", "yes"], "scores": "shift.scores", "calibrator": {"is": "Temperature", …}}

An array is stored beside the JSON under its path, which stands in its place; infinities are strings, NaN is null; a
value whose type is a union of dataclasses names its class. A field with `metadata=NOT_STORED` is left out.
"""

import math
from collections.abc import Callable, Mapping
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
        return _read(kind, state, arrays or {}, "")
    except _Fault as fault:
        raise StoreError(f"the stored {_name(kind)} is broken ({fault}); {advice}") from fault


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
    """Something that is not as its type says, with its path."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}" if path else what)


def _read(kind: Any, state: Any, arrays: Mapping[str, NDArray[Any]], path: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return state
    if origin in (Union, UnionType):
        return _read_union(kind, state, arrays, path)
    if kind is np.ndarray or origin is np.ndarray:
        return _read_array(state, arrays, path)
    if origin is Literal:
        return _checked(state, state in inner, path, f"one of {', '.join(map(repr, inner))}")
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_dataclass(kind, state, arrays, path)
    if origin in (tuple, list):
        return _read_sequence(kind, state, arrays, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _checked(state, isinstance(state, Mapping), path, "an object")
        return {name: _read(inner[1], entry, arrays, _below(path, name)) for name, entry in state.items()}
    return _read_plain(kind, state, path)


def _read_union(union: Any, state: Any, arrays: Mapping[str, NDArray[Any]], path: str) -> Any:
    kinds, classes = get_args(union), _classes(union)
    if state is None and NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    if isinstance(state, Mapping) and len(classes) > 1:
        name = state.get(TAG)
        _checked(name, name in classes, _below(path, TAG), f"one of {', '.join(classes)}")
        return _read(classes[str(name)], {key: entry for key, entry in state.items() if key != TAG}, arrays, path)
    for kind in others[:-1]:
        try:
            return _read(kind, state, arrays, path)
        except _Fault:
            continue
    return _read(others[-1], state, arrays, path)


def _read_dataclass(kind: type, state: Any, arrays: Mapping[str, NDArray[Any]], path: str) -> Any:
    _checked(state, isinstance(state, Mapping), path, f"the fields of {kind.__name__}")
    hints, values = _hints(kind), {}
    names = {field.name for field in _stored(kind)}
    unknown = [name for name in state if name not in names]
    if unknown:
        raise _Fault(_below(path, unknown[0]), f"{kind.__name__} has no such field")
    for field in _stored(kind):
        if field.name in state:
            values[field.name] = _read(hints[field.name], state[field.name], arrays, _below(path, field.name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Fault(_below(path, field.name), "it is missing")
    try:
        return kind(**values)
    except UATLiteError as error:  # what the value itself does not allow
        raise _Fault(path, str(error)) from error


def _read_array(state: Any, arrays: Mapping[str, NDArray[Any]], path: str) -> NDArray[Any]:
    if isinstance(state, list):
        return np.asarray(state)
    _checked(state, isinstance(state, str), path, "the name of an array")
    if state not in arrays:
        raise _Fault(path, f"there is no array {state!r}")
    return np.asarray(arrays[state])


def _read_sequence(kind: Any, state: Any, arrays: Mapping[str, NDArray[Any]], path: str) -> Any:
    _checked(state, isinstance(state, list), path, "a list")
    origin, inner = cast(Callable[[list[Any]], Any], get_origin(kind)), get_args(kind)
    if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        _checked(state, len(state) == len(inner), path, f"a list of {len(inner)}")
    else:
        inner = (inner[0],) * len(state)
    return origin(
        [
            _read(hint, entry, arrays, _below(path, str(i)))
            for i, (hint, entry) in enumerate(zip(inner, state, strict=True))
        ]
    )


def _read_plain(kind: Any, state: Any, path: str) -> Any:
    if kind is NoneType:
        return _checked(state, state is None, path, "null")
    if kind is float:
        if state is None or state in ("inf", "-inf"):
            return float(state or "nan")
        _checked(state, isinstance(state, int | float) and not isinstance(state, bool), path, "a number")
        return float(state)
    if kind in (bool, str):
        return _checked(state, isinstance(state, kind), path, "true or false" if kind is bool else "a string")
    if kind is int:
        return _checked(state, isinstance(state, int) and not isinstance(state, bool), path, "a whole number")
    raise TypeError(f"{path}: no value of type {kind!r} is stored")


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


def _checked(state: Any, allowed: bool, path: str, what: str) -> Any:
    if not allowed:
        raise _Fault(path, f"{state!r:.60} is not {what}")
    return state


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else "value"


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@lru_cache(maxsize=256)
def _stored(kind: type) -> tuple[Field[Any], ...]:
    every = fields(cast(Any, kind))
    return tuple(field for field in every if field.init and field.metadata.get("stored", True))
