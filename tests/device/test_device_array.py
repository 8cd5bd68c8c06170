"""``DeviceArray`` computes as numpy does, on the device."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import DeviceArray, InvalidArgumentError

Array = NDArray[Any]

INTEGERS = np.array([[-7, 3, 0, 8], [5, -2, 1, -9]], np.int32)
FLOATS = np.array([[-1.75, 0.5, 3.0, 2.25], [4.0, -0.5, np.nan, 100.0]], np.float32)
BLOCK = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
DIVISORS = np.array([2, -3, 1, 4])
BINARY = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)


def same(got: DeviceArray, expected: Any, device: dmlvk.Device) -> None:
    """Asserts that an array is on the device and has numpy's type, shape and values."""
    assert isinstance(got, DeviceArray) and got.device is device
    wanted = np.asarray(expected)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5 if wanted.dtype.kind == "f" else 0)


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
@pytest.mark.parametrize("values", [INTEGERS, FLOATS], ids=["int32", "float32"])
def test_two_arrays_and_a_number(device: dmlvk.Device, function: Callable[..., Any], values: Array) -> None:
    divisors = DIVISORS.astype(values.dtype)
    a, b = DeviceArray.from_numpy(values, device), DeviceArray.from_numpy(divisors, device)
    before = device.native.dispatches
    found = function(a, b)
    assert 1 <= device.native.dispatches - before <= 4, "conversions of two operands, and the operator, or three for //"
    pairs = (
        (found, (values, divisors)),
        (function(a, 2), (values, 2)),
        (function(2, a), (2, values)),
        (function(divisors, a), (divisors, values)),
    )
    for got, operands in pairs:
        with np.errstate(all="ignore"):
            expected = np.asarray(function(*operands))
        same(got, expected.astype(np.float32) if function is operator.truediv else expected, device)


def test_one_operator_is_one_dispatch(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(FLOATS, device)
    for function in (lambda: a + a, lambda: a * a.T.T, lambda: a < a, lambda: -a, lambda: a.sum(axis=0), lambda: a[::-1]):
        before = device.native.dispatches
        function()
        assert device.native.dispatches - before == 1
    before = device.native.dispatches
    a[1:, ::2], a.T, a[None], a[0]
    assert device.native.dispatches == before


def test_types_are_the_array_apis(device: dmlvk.Device) -> None:
    def ones(dtype: Any) -> DeviceArray:
        return DeviceArray.from_numpy(np.ones(2, dtype), device)

    pairs = ((np.int8, np.uint8, np.int16), (np.float16, np.float32, np.float32), (np.uint8, np.int32, np.int32))
    for a, b, result in pairs:
        assert (ones(a) + ones(b)).dtype == result and (ones(b) * np.ones(2, a)).dtype == result
    assert (ones(bool) * ones(np.float16)).dtype == np.float16
    assert (ones(np.float16) * 3).dtype == np.float16 and (ones(np.uint8) + 255).tolist() == [0, 0]
    assert (np.float32(2) * ones(np.float32)).dtype == np.float32
    for refused in (
        lambda: ones(np.int32) + ones(np.float32),
        lambda: ones(np.uint64) + ones(np.int64),
        lambda: ones(np.int32) * 1.5,
        lambda: ones(np.uint8) + 256,
        lambda: ones(np.uint8) - -1,
        lambda: ones(bool) - ones(bool),
        lambda: ~ones(np.float32),
        lambda: ones(np.float32) + np.ones(3, np.float32),
    ):
        with pytest.raises(InvalidArgumentError, match=r"^(add|subtract|multiply|invert)[.:]"):
            refused()
    with pytest.raises(TypeError, match="unsupported operand"):
        ones(np.float32) + "1"  # type: ignore[operator]


def test_truth(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(INTEGERS, device)
    positive = a > 0
    same(positive & (a < 5), (INTEGERS > 0) & (INTEGERS < 5), device)
    same(~positive | (a == 3) ^ positive, ~(INTEGERS > 0) | (INTEGERS == 3) ^ (INTEGERS > 0), device)
    assert a[0, 1] == 3 and bool(a[0, 1] != 4) and 8 in a and 4 not in a
    assert (a == None) is False and (a != "text") is True  # type: ignore[comparison-overlap]  # noqa: E711
    with pytest.raises(ValueError, match=r"any\(\) or all\(\)"):
        bool(positive)
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "any", "all"])
@pytest.mark.parametrize("values", [INTEGERS, BLOCK % 3 + 0.5, INTEGERS > 0], ids=["int32", "float32", "bool"])
def test_reductions(device: dmlvk.Device, name: str, values: Array) -> None:
    a = DeviceArray.from_numpy(values, device)
    for options in ({}, {"axis": -1}, {"axis": (0, 1), "keepdims": True}, {"axis": ()}):
        expected = np.asarray(getattr(values, name)(**options))
        if name == "mean":
            expected = expected.astype(np.float32)
        same(getattr(a, name)(**options), expected, device)
        same(getattr(np, name)(a, **options), expected, device)
    if name in ("sum", "prod"):
        same(getattr(a, name)(axis=0, dtype=np.float32), getattr(values, name)(axis=0, dtype=np.float32), device)
    for axis in (3, -4, (0, 0), 1.5):
        with pytest.raises(InvalidArgumentError, match=rf"^{name}\.axis: "):
            getattr(a, name)(axis=axis)


def test_products_of_matrices(device: dmlvk.Device) -> None:
    values = BLOCK / 7
    a = DeviceArray.from_numpy(values, device)
    same(a @ a.transpose(0, 2, 1), values @ values.transpose(0, 2, 1), device)
    same(values[0].T @ a, values[0].T @ values, device)
    same(a @ values[0, 0], values @ values[0, 0], device)
    same(a[0, 0] @ a[0, 1], values[0, 0] @ values[0, 1], device)
    same(a[None, :, None, None] @ values[0].T, values[None, :, None, None] @ values[0].T, device)
    for other in (a, a[0, 0, 0]):
        with pytest.raises(InvalidArgumentError, match=r"^matmul[.:]"):
            a @ other


MASK = BLOCK % 3 > 1


@pytest.mark.parametrize(
    "index",
    [
        np.s_[::-1],
        np.s_[0, :1:-2, None, ::3],
        np.s_[2:2],
        np.s_[[2, 0, 2]],
        np.s_[:, [1, -1]],
        np.s_[0, [1, 3]],
        np.s_[1, :, [0, 4]],
        np.s_[[0, 1], ::2, [[2], [3]]],
        np.s_[..., np.array([[0, 1], [2, 3]]), None],
        np.s_[[]],
        np.s_[MASK],
        np.s_[MASK[:, 0, 0], 1],
        np.s_[:, MASK[0]],
    ],
    ids=str,
)
def test_indices(device: dmlvk.Device, index: Any) -> None:
    a = DeviceArray.from_numpy(BLOCK, device)
    same(a[index], BLOCK[index], device)


def test_indices_on_the_device(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(BLOCK, device)
    same(a[a > 20], BLOCK[BLOCK > 20], device)
    for dtype in (np.uint8, np.int64):
        same(a[:, DeviceArray.from_numpy(np.array([3, 1], dtype), device)], BLOCK[:, [3, 1]], device)


def test_functions_of_numpy(device: dmlvk.Device) -> None:
    values = np.linspace(-0.9, 0.9, 7, dtype=np.float32)
    a = DeviceArray.from_numpy(values, device)
    for function in (
        np.exp,
        np.arcsin,
        np.tanh,
        np.floor,
        np.rint,
        np.sign,
        np.isnan,
        np.square,
        np.absolute,
        np.logical_not,
    ):
        same(function(a), function(values), device)
    same(np.maximum(a, 0), np.maximum(values, 0), device)
    same(np.sqrt(DeviceArray.from_numpy(INTEGERS**2, device)), np.abs(INTEGERS).astype(np.float32), device)
    for name, call in (
        ("gcd", lambda: np.gcd(a, a)),
        ("add.reduce", lambda: np.add.reduce(a)),
        ("add with out", lambda: np.add(a, a, out=values)),
    ):
        with pytest.raises(TypeError, match=rf"^numpy\.{name} does not run on a device"):
            call()


def test_conversions(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(FLOATS[:, :2], device)
    for dtype in (np.int32, np.float16, np.float64, bool):
        same(a.astype(dtype), FLOATS[:, :2].astype(dtype), device)
    assert a.astype(np.float32, copy=False) is a and a.astype(np.float32).buffer is not a.buffer
    assert (a[0, 0].item(), int(a[1, 0]), float(a[0, 1]), [10, 20, 30][a.astype(np.int8)[0, 1]]) == (-1.75, 4, 0.5, 10)
    assert a.tolist() == FLOATS[:, :2].tolist() and (a.nbytes, a.itemsize) == (16, 4)
    for wrong in (lambda: a.item(), lambda: a.astype(np.complex64), lambda: DeviceArray.from_dlpack([1])):
        with pytest.raises(InvalidArgumentError):
            wrong()
    with pytest.raises(TypeError, match="only an integer array"):
        operator.index(a[0, 0])
    same(DeviceArray.from_dlpack(FLOATS, device), FLOATS, device)


def test_copies(device: dmlvk.Device) -> None:
    for values in (BLOCK, MASK):
        a = DeviceArray.from_numpy(values, device).T
        for twin in (a.copy(), copy.copy(a), copy.deepcopy([a])[0], a.astype(values.dtype)):
            assert twin.buffer is not a.buffer
            same(twin, values.T, device)
        restored = pickle.loads(pickle.dumps(a))
        same(restored, values.T, dmlvk.default_device())
    four_bits = DeviceArray.from_numpy(np.int8([1, -8, 7]), device, dmlvk.TensorDataType.INT4)
    again = pickle.loads(pickle.dumps(four_bits))
    assert again.data_type == four_bits.data_type and again.tolist() == [1, -8, 7]
    with pytest.raises(InvalidArgumentError, match="4-bit"):
        four_bits + 1


AUGMENTED = (
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod),
    operator.ipow,
)


@pytest.mark.parametrize("function", AUGMENTED, ids=lambda function: function.__name__)
@pytest.mark.parametrize("view", [np.s_[...], np.s_[1, ...], np.s_[:, 1::2], np.s_[1, 3, ...]], ids=str)
def test_augmented_assignment_is_seen_by_views(device: dmlvk.Device, function: Callable[..., Any], view: Any) -> None:
    values = np.abs(FLOATS) + 1
    a = DeviceArray.from_numpy(values, device)
    whole, expected = a, values.copy()
    part, wanted = a[view], expected[view]
    result = function(part, np.float32(1.5))
    assert result is part
    np.copyto(wanted, function(wanted.copy(), np.float32(1.5)))
    same(part, wanted, device)
    same(whole, expected, device)


def test_augmented_assignment_is_one_dispatch_and_keeps_type_and_shape(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(INTEGERS, device)
    flags = a > 0
    before = device.native.dispatches
    a += a
    a *= a
    assert device.native.dispatches - before == 2
    same(a, (INTEGERS * 2) ** 2, device)
    flags |= ~flags
    same(flags, np.ones_like(INTEGERS, bool), device)
    square = DeviceArray.from_numpy(BLOCK[:2, :2, :2].reshape(2, 4)[:, :2], device)
    expected = square.numpy() @ square.numpy()
    square @= square
    same(square, expected, device)
    assert np.add(INTEGERS, INTEGERS, out=a) is a and a.tolist() == (INTEGERS * 2).tolist()
    for refused, rule in (
        (lambda: operator.itruediv(a, 2), "the result must have the type"),
        (lambda: operator.iadd(a[0], a), "the result must have the shape"),
        (lambda: operator.iadd(DeviceArray.from_numpy(np.broadcast_to(np.float32(1), (3,)), device), 1), "broadcast"),
    ):
        with pytest.raises(InvalidArgumentError, match=rule):
            refused()


def test_a_read_that_is_given_up_lets_its_buffer_go(device: dmlvk.Device) -> None:
    """As soon as its copy is over, not when another read needs its place."""
    before = device.memory()["live"]
    begun = device.create_buffer(1 << 20).begin_read(8)
    del begun
    device.wait_idle()
    assert device.memory()["live"] < before + (1 << 20)  # what other tests have left may go meanwhile


def test_a_read_that_was_begun(device: dmlvk.Device) -> None:
    buffer = device.create_buffer(64)
    buffer.write(np.arange(64, dtype=np.uint8))
    begun = buffer.begin_read(8, 4)
    buffer.write(np.zeros(64, np.uint8))
    assert begun.result().tolist() == begun.result().tolist() == [*range(4, 12)]
    for size, offset in ((0, 0), (8, 60), (-1, 0)):
        with pytest.raises(dmlvk.InvalidArgumentError):
            buffer.begin_read(size, offset)
    with pytest.raises(dmlvk.InvalidArgumentError, match="8388608"):
        device.create_buffer(9 << 20).begin_read(9 << 20)


def test_what_is_read_is_what_was_there_before(device: dmlvk.Device) -> None:
    values = np.arange(40, dtype=np.float32)
    for target, source in (
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[4:24], np.s_[8:28]),
        (np.s_[::2], np.s_[20:]),
    ):
        for change in (lambda x, y: x.__setitem__(..., y), operator.iadd):
            a, expected = DeviceArray.from_numpy(values, device), values.copy()
            change(a[target], a[source])
            change(expected[target], expected[source])
            same(a, expected, device)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, bool], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(
    "index",
    [
        np.s_[...],
        np.s_[2],
        np.s_[1, 2, 3],
        np.s_[-1, 1:3],
        np.s_[1:, ::2, 1:4],
        np.s_[::-1, None, 3:0:-2],
        np.s_[2:2],
        np.s_[[2, 0]],
        np.s_[:, [1, -1]],
        np.s_[0, [1, 3]],
        np.s_[1, ::-1, [0, 4]],
        np.s_[[0, 1], ::-2, [[2], [3]]],
        np.s_[[]],
        np.s_[MASK],
        np.s_[MASK[:, 0, 0], 1],
        np.s_[:, MASK[0]],
        np.s_[::2, MASK[0]],
    ],
    ids=str,
)
def test_assignment(device: dmlvk.Device, index: Any, dtype: Any) -> None:
    values = (BLOCK % 7).astype(dtype)
    taken = values[index]
    for value in (True, np.arange(taken.size).reshape(taken.shape).astype(dtype), [[False]], values[0, 0, :1]):
        a, expected = DeviceArray.from_numpy(values, device), values.copy()
        a[index] = value if isinstance(value, (bool, list)) else DeviceArray.from_numpy(value, device)
        expected[index] = np.ravel(value)[0] if np.size(value) == 1 else value
        same(a, expected, device)


def test_assignment_by_arrays_on_the_device(device: dmlvk.Device) -> None:
    a, expected = DeviceArray.from_numpy(BLOCK, device), BLOCK.copy()
    before = device.native.dispatches
    a[a > 20] = 0
    assert device.native.dispatches - before <= 4, "comparison, choice and copy, without a look at the mask"
    expected[expected > 20] = 0
    same(a, expected, device)
    a[:, DeviceArray.from_numpy(np.array([3, 99, 3]), device)] = np.array([[1], [2], [3]], np.float32)
    expected[:, 3] = 3
    same(a, expected, device)
    transposed = a.T
    transposed[1] = 7
    expected.T[1] = 7
    same(a, expected, device)


def test_assignment_refuses(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(INTEGERS, device)
    four_bits = DeviceArray.from_numpy(np.int8([1, -8]), device, dmlvk.TensorDataType.INT4)
    same(a, INTEGERS, device)
    for array, index, value, rule in (
        (a, 0, 1.5, "a Python number must fit"),
        (a, 0, FLOATS[0], "must be of the array's kind"),
        (a, 0, [1, 2**31, 0, 0], "a Python number must fit"),
        (a, 0, [[1, "x"]], "a Python number must fit"),
        (a, 0, [1, 2], "must broadcast"),
        (a, 0, [[1], [2]], "must broadcast"),
        (four_bits, 0, 1, "4-bit"),
        (DeviceArray.from_numpy(np.broadcast_to(np.float32(1), (3,)), device), 0, 1, "no broadcast array"),
    ):
        with pytest.raises(InvalidArgumentError, match=rule):
            array[index] = value
    for index in (2, (0, 0, 0), [[5]], INTEGERS[:, :1] > 0):
        with pytest.raises(IndexError):
            a[index] = 1
    with pytest.raises(TypeError):
        a["x"] = 1
    same(a, INTEGERS, device)


def test_without_elements(device: dmlvk.Device) -> None:
    values = np.ones((2, 0, 3), np.float32)
    a = DeviceArray.from_numpy(values, device)
    before = device.native.dispatches
    for got, expected in (
        (a + 1, values + 1),
        (a == a, values == values),
        (a.astype(np.int32), values.astype(np.int32)),
        (a.sum(axis=1), values.sum(axis=1)),
        (a.all(), values.all()),
        (a.max(axis=2), values.max(axis=2)),
        (a[:, ::-1], values),
        (a.copy(), values),
        (a[..., :0] @ np.ones((0, 4), np.float32), np.zeros((2, 0, 4), np.float32)),
        (a.transpose(0, 2, 1) @ a, np.zeros((2, 3, 3), np.float32)),
    ):
        same(got, expected, device)
    assert device.native.dispatches == before
    with pytest.raises(InvalidArgumentError, match=r"^max\.shape: must have elements"):
        a.max()
