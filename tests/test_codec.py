"""What is stored comes back equal, and a fault in it is named by its path."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest

from uatlite.codec import NOT_STORED, dump, load
from uatlite.errors import ConfigurationError, StoreError
from uatlite.values import Floats, Integers


@dataclass(frozen=True)
class Circle:
    radius: float

    def __post_init__(self):
        if self.radius < 0:
            raise ConfigurationError(f"radius={self.radius} is below 0.")


@dataclass(frozen=True)
class Square:
    side: float = 1.0


@dataclass(frozen=True, eq=False)
class Drawing:
    name: str
    limits: tuple[float, float]
    shapes: tuple[Circle | Square, ...]
    frame: Square
    points: Floats
    colour: Literal["red", "blue"] = "red"
    counts: Integers | None = None
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    background: Circle | Square | None = None
    visible: bool = True
    layer: int = 0
    cache: Any = field(default=None, metadata=NOT_STORED)


DRAWING = Drawing(
    name="a",
    limits=(-math.inf, 2.0),
    shapes=(Circle(1.0), Square()),
    frame=Square(2.0),
    points=np.array([[1.0, math.nan], [3.0, 4.0]]),
    counts=np.array([1, 2]),
    notes={"x": ("y", "z")},
    background=Square(3.0),
    cache="not stored",
)


def stored():
    arrays = {}
    return json.loads(json.dumps(dump(DRAWING, arrays), allow_nan=False)), arrays


def test_what_is_stored_comes_back_equal():
    state, arrays = stored()
    again = load(Drawing, state, arrays, advice="draw again.")
    for name in ("name", "limits", "shapes", "frame", "colour", "notes", "background", "visible", "layer"):
        assert getattr(again, name) == getattr(DRAWING, name), name
    np.testing.assert_array_equal(again.points, DRAWING.points)
    np.testing.assert_array_equal(again.counts, DRAWING.counts)
    assert again.cache is None


def test_only_a_union_names_its_class_and_arrays_stand_beside_the_json():
    state, arrays = stored()
    assert state["shapes"] == [{"is": "Circle", "radius": 1.0}, {"is": "Square", "side": 1.0}]
    assert state["frame"] == {"side": 2.0}
    assert state["limits"] == ["-inf", 2.0]
    assert state["points"] == "points"
    assert sorted(arrays) == ["counts", "points"]


def test_without_a_place_for_them_arrays_are_lists_and_nan_is_null():
    state = dump(DRAWING)
    assert state["points"] == [[1.0, None], [3.0, 4.0]]
    again = load(Drawing, {**state, "points": [[1.0, 2.0]]}, advice="draw again.")
    np.testing.assert_array_equal(again.points, [[1.0, 2.0]])


def test_a_missing_field_takes_its_default():
    assert load(Square, {}, advice="draw again.") == Square()
    assert math.isnan(load(Square, {"side": None}, advice="draw again.").side)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name: 3 is not a string"),
        ({"limits": [1.0]}, "limits: [1.0] is not a list of 2"),
        ({"limits": [1.0, "x"]}, "limits.1: 'x' is not a number"),
        ({"shapes": [{"is": "Line"}]}, "shapes.0.is: 'Line' is not one of Circle, Square"),
        ({"shapes": [{"is": "Circle"}]}, "shapes.0.radius: it is missing"),
        ({"shapes": [{"is": "Circle", "radius": -1.0}]}, "shapes.0: radius=-1.0 is below 0."),
        ({"frame": {"sides": 4}}, "frame.sides: Square has no such field"),
        ({"frame": 1}, "frame: 1 is not the fields of Square"),
        ({"colour": "green"}, "colour: 'green' is not one of 'red', 'blue'"),
        ({"points": "elsewhere"}, "points: there is no array 'elsewhere'"),
        ({"points": 1}, "points: 1 is not the name of an array"),
        ({"notes": []}, "notes: [] is not an object"),
        ({"visible": 1}, "visible: 1 is not true or false"),
        ({"layer": True}, "layer: True is not a whole number"),
        ({"layer": 1.5}, "layer: 1.5 is not a whole number"),
    ],
)
def test_a_fault_is_named_by_its_path(change, message):
    state, arrays = stored()
    with pytest.raises(StoreError) as error:
        load(Drawing, {**state, **change}, arrays, advice="draw again.")
    assert str(error.value) == f"the stored Drawing is broken ({message}); draw again."


def test_what_cannot_be_stored_is_an_error_at_once():
    with pytest.raises(TypeError, match="is a set, which is not stored"):
        dump(replace(DRAWING, name={1}))
