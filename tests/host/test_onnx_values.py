"""Views of device values, against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from dmlvk.onnx.values import Value, constant_value, packed_value
from dmlvk.spec.enums import TensorDataType


def _elements(value: Value, memory: np.ndarray) -> np.ndarray:
    """What the value shows of its storage."""
    steps = [step * memory.itemsize for step in value.strides]
    return np.lib.stride_tricks.as_strided(memory, value.sizes, steps)


MEMORY = np.arange(2 * 3 * 4 * 5, dtype=np.float32)


@pytest.mark.parametrize("permutation", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)])
@pytest.mark.parametrize(
    "sizes", [(120,), (6, 20), (2, 3, 4, 5), (1, 120, 1), (4, 5, 6), (5, 4, 3, 2), (2, 12, 5), (3, 2, 1, 20), (8, 15)]
)
def test_reshape_is_numpys(permutation: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Either strides say it, with numpy's elements, or neither can numpy reshape without a copy."""
    value = packed_value(MEMORY.dtype, (2, 3, 4, 5)).transpose(permutation)
    array = MEMORY.reshape(2, 3, 4, 5).transpose(permutation)
    view = value.reshape(sizes)
    numpys = array.reshape(sizes)
    assert (view is not None) == np.shares_memory(numpys, MEMORY)
    if view is not None:
        np.testing.assert_array_equal(_elements(view, MEMORY), numpys)


def test_reshape_of_a_broadcast() -> None:
    value = packed_value(MEMORY.dtype, (4, 1)).broadcast_to((3, 4, 5))
    assert value.strides == (0, 1, 0)
    assert value.reshape((3, 1, 4, 5)) is not None
    assert value.reshape((12, 5)) is None


def test_scalars_have_one_dimension_on_the_device() -> None:
    value = constant_value(np.array(3, np.int64))
    assert (value.sizes, value.desc().sizes, value.desc().data_type) == ((), (1,), TensorDataType.INT64)
    assert value.broadcast_to((2, 3)).desc().strides == (0, 0)


def test_bools_are_bytes() -> None:
    value = constant_value(np.ones(5, np.bool_))
    assert value.desc().data_type == TensorDataType.UINT8
    assert value.storage.nbytes == 8, "storage is whole 4-byte words"


def test_sizes_of_one_do_not_unpack() -> None:
    value = packed_value(MEMORY.dtype, (3, 1, 5)).transpose((1, 0, 2))
    assert value.is_packed
    assert value.desc().strides is None
