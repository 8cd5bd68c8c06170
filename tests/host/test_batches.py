"""Items are cut, filled up and put together as a model takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dmlvk.onnx.batches import Batches
from dmlvk.onnx.model import ValueInfo
from dmlvk.spec.errors import InvalidArgumentError, OutOfDeviceMemoryError, UnsupportedError

F32 = np.dtype(np.float32)


def value(name: str, *shape: int | str | None) -> ValueInfo:
    return ValueInfo(name, list(shape), "tensor(float)", F32)


class Doubling:
    """A model, and the sizes of the batches that it was given."""

    def __init__(self, room: int = 1_000) -> None:
        self.sizes: list[int] = []
        self.room = room

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        (x,) = feeds.values()
        self.sizes.append(len(x))
        if len(x) > self.room:
            raise OutOfDeviceMemoryError("no room")
        return [x * 2]


@pytest.mark.parametrize(
    ("shape", "most", "count", "sizes"),
    [
        ((4, 3), None, 10, [4, 4, 4]),
        ((4, 3), 2, 4, [4]),
        (("N", 3), None, 10, [10]),
        (("N", 3), 4, 10, [4, 4, 2]),
        ((None, 3), 4, 3, [3]),
        ((1, 3), None, 2, [1, 1]),
    ],
)
def test_items_are_cut_and_filled_up(shape: tuple[Any, ...], most: int | None, count: int, sizes: list[int]) -> None:
    x, model = np.arange(count * 3, dtype=np.float32).reshape(count, 3), Doubling()
    (y,) = Batches([value("x", *shape)], [value("y", *shape)], most).run(model, {"x": x})
    np.testing.assert_array_equal(y, x * 2)
    assert model.sizes == sizes


def test_batches_that_do_not_fit_become_smaller_and_stay_so() -> None:
    x, model = np.arange(10, dtype=np.float32)[:, None], Doubling(room=3)
    batches = Batches([value("x", "N", 1)], [value("y", "N", 1)])
    (y,) = batches.run(model, {"x": x})
    np.testing.assert_array_equal(y, x * 2)
    assert model.sizes == [10, 5, 2, 2, 2, 2, 2]
    batches.run(model, {"x": x[:4]})
    assert model.sizes[7:] == [2, 2]
    with pytest.raises(OutOfDeviceMemoryError):
        batches.run(Doubling(room=0), {"x": x})


def test_what_has_no_axis_of_items_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="as many items each"):
        Batches([value("x", "N", 3), value("sizes", 2)], [])
    with pytest.raises(UnsupportedError, match="no axis of items"):
        Batches([value("x")], [])
    with pytest.raises(UnsupportedError, match=r"output 'y' is of shape .* for 2 items"):
        Batches([value("x", "N")], [value("y")]).run(lambda feeds: [np.float32(1)], {"x": np.ones(2, np.float32)})
    with pytest.raises(InvalidArgumentError, match="same number of items"):
        Batches([value("x", "N"), value("z", "N")], []).run(lambda feeds: [], {"x": np.ones(2), "z": np.ones(3)})
    with pytest.raises(InvalidArgumentError, match="most: must be at least 1"):
        Batches([value("x", "N")], [], 0)
