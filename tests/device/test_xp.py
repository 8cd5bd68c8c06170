"""``dmlvk.xp`` computes what numpy's functions of the same names do, on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import DeviceArray, InvalidArgumentError, xp

Array = NDArray[Any]
RNG = np.random.default_rng(7)
FLOATS = RNG.normal(size=(3, 4, 5)).astype(np.float32)
INTEGERS = RNG.integers(-9, 9, (3, 4, 5), np.int64)
BYTES = INTEGERS.astype(np.int8)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.25, 1e-6, -1e30], np.float32)
PLACES = np.array([[[2, 0, 1, 3, 3]]])


def same(got: Any, expected: Any, device: dmlvk.Device, rtol: float = 2e-6) -> None:
    """Asserts that arrays are on the device with numpy's shapes and values, and kinds of types."""
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
        for pair in zip(got, expected, strict=True):
            same(*pair, device, rtol)
        return
    wanted = np.asarray(expected)
    assert isinstance(got, DeviceArray) and got.device is device
    assert got.dtype.kind == wanted.dtype.kind and got.shape == wanted.shape
    np.testing.assert_allclose(got.numpy(), wanted, rtol=rtol if wanted.dtype.kind == "f" else 0, atol=1e-6)


def uploaded(value: Any, device: dmlvk.Device) -> Any:
    """Numpy's arrays as arrays on the device, in lists, too."""
    if isinstance(value, list):
        return [uploaded(item, device) for item in value]
    return DeviceArray.from_numpy(value, device) if isinstance(value, np.ndarray) else value


CALLS: tuple[tuple[str, str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("concat", "concatenate", ([FLOATS, FLOATS[:1]],), {"axis": 0}),
    ("concat", "concatenate", ([BYTES, INTEGERS],), {"axis": None}),
    ("concat", "concatenate", ([FLOATS > 0, FLOATS < 0],), {"axis": -1}),
    ("stack", "stack", ([FLOATS, FLOATS],), {"axis": 1}),
    ("expand_dims", "expand_dims", (FLOATS,), {"axis": (0, -1)}),
    ("squeeze", "squeeze", (FLOATS[:1, :, :1],), {"axis": (0, 2)}),
    ("permute_dims", "transpose", (FLOATS, (2, -3, 1)), {}),
    ("moveaxis", "moveaxis", (FLOATS, (0, 1), (2, 0)), {}),
    ("matrix_transpose", "matrix_transpose", (FLOATS,), {}),
    ("reshape", "reshape", (FLOATS.T, (4, -1)), {}),
    ("broadcast_to", "broadcast_to", (FLOATS[0], (2, 4, 5)), {}),
    ("flip", "flip", (FLOATS,), {"axis": (0, -1)}),
    ("flip", "flip", (FLOATS > 0,), {}),
    ("roll", "roll", (FLOATS, (2, -1)), {"axis": (0, 2)}),
    ("roll", "roll", (FLOATS, 7), {}),
    ("tile", "tile", (BYTES, (2, 1, 1, 3)), {}),
    ("repeat", "repeat", (FLOATS, np.array([2, 0, 1])), {"axis": 0}),
    ("tril", "tril", (FLOATS,), {"k": -1}),
    ("tril", "tril", (FLOATS,), {"k": 9}),
    ("triu", "triu", (INTEGERS,), {"k": 2}),
    ("triu", "triu", (FLOATS > 0,), {"k": -9}),
    ("zeros_like", "zeros_like", (FLOATS,), {}),
    ("full_like", "full_like", (BYTES, 3), {}),
    ("std", "std", (FLOATS,), {"axis": (0, 2), "correction": 1}),
    ("var", "var", (FLOATS,), {"keepdims": True}),
    ("sum", "sum", (BYTES,), {"axis": 1}),
    ("prod", "prod", (BYTES,), {"axis": 0, "dtype": np.int8}),
    ("mean", "mean", (FLOATS,), {"axis": -1}),
    ("any", "any", (FLOATS > 1.5,), {"axis": 0}),
    ("all", "all", (INTEGERS,), {}),
    ("argmax", "argmax", (FLOATS,), {"axis": 1}),
    ("argmax", "argmax", (SPECIAL,), {}),
    ("argmin", "argmin", (BYTES,), {}),
    ("cumulative_sum", "cumsum", (BYTES,), {"axis": 2}),
    ("cumulative_prod", "cumprod", (FLOATS,), {"axis": -2}),
    ("count_nonzero", "count_nonzero", (INTEGERS,), {"axis": 0}),
    ("diff", "diff", (FLOATS,), {"n": 2, "axis": 1}),
    ("sort", "sort", (FLOATS,), {"axis": 0}),
    ("sort", "sort", (SPECIAL,), {}),
    ("sort", "sort", (SPECIAL.astype(np.float64),), {}),
    ("sort", "sort", (FLOATS > 0,), {"axis": 1}),
    ("argsort", "argsort", (INTEGERS,), {"axis": 1, "stable": True}),
    ("take", "take", (FLOATS, np.array([3, 0])), {"axis": 1}),
    ("take_along_axis", "take_along_axis", (FLOATS, PLACES), {"axis": 1}),
    ("where", "where", (FLOATS > 0, FLOATS, 0), {}),
    ("where", "where", (FLOATS > 0, FLOATS[0], FLOATS), {}),
    ("clip", "clip", (FLOATS, -0.5, FLOATS[0]), {}),
    ("clip", "clip", (BYTES, None, 3), {}),
    ("nonzero", "nonzero", (FLOATS > 1,), {}),
    ("searchsorted", "searchsorted", (np.sort(FLOATS.ravel()), FLOATS[0]), {"side": "right"}),
    ("unique_values", "unique", (BYTES,), {}),
    ("isin", "isin", (BYTES, np.int8([1, 2])), {"invert": True}),
    ("tensordot", "tensordot", (FLOATS, FLOATS), {"axes": ((0, 2), (0, 2))}),
    ("tensordot", "tensordot", (BYTES, BYTES[:, 0]), {"axes": ((2, 0), (1, 0))}),
    ("vecdot", "vecdot", (INTEGERS, INTEGERS[0]), {"axis": -1}),
    ("matmul", "matmul", (INTEGERS, INTEGERS.transpose(0, 2, 1)), {}),
    ("pow", "power", (INTEGERS, np.abs(INTEGERS)), {}),
    ("bitwise_left_shift", "left_shift", (BYTES, np.abs(BYTES)), {}),
    ("bitwise_right_shift", "right_shift", (INTEGERS, np.abs(INTEGERS)), {}),
    ("logaddexp", "logaddexp", (SPECIAL, SPECIAL[::-1].copy()), {}),
    ("hypot", "hypot", (SPECIAL, SPECIAL[::-1].copy()), {}),
    ("copysign", "copysign", (SPECIAL, SPECIAL[::-1].copy()), {}),
    ("nextafter", "nextafter", (SPECIAL[2:6], -SPECIAL[2:6]), {}),
    *((name, name, (SPECIAL,), {}) for name in ("expm1", "log1p", "log2", "log10", "isfinite", "signbit", "sign", "trunc")),
    *((name, name, (BYTES,), {}) for name in ("floor", "ceil", "trunc", "isnan", "isfinite", "square")),
)


@pytest.mark.parametrize(
    ("name", "numpys", "args", "options"), CALLS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_as_numpy(device: dmlvk.Device, name: str, numpys: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    if not hasattr(np, numpys):
        pytest.skip(f"numpy {np.__version__} has no {numpys}")
    with np.errstate(all="ignore"):
        expected = getattr(np, numpys)(*args, **options)
    given = [uploaded(item, device) for item in args]
    before = [copy.copy(item) for item in given]
    same(getattr(xp, name)(*given, **options), expected, device)
    for item, kept in zip(given, before, strict=True):
        if isinstance(item, DeviceArray):
            np.testing.assert_array_equal(item.numpy(), kept.numpy())
    if name not in ("unique_values", "vecdot"):  # which numpy calls otherwise, and has as a ufunc
        same(getattr(np, numpys)(*given, **options), expected, device)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda d: xp.asarray([[1, 2], [3, 4]], device=d), np.array([[1, 2], [3, 4]], np.int64)),
        (lambda d: xp.asarray([1.5, 2], device=d), np.float32([1.5, 2])),
        (lambda d: xp.asarray([1, 2**64 - 1], dtype=xp.uint64, device=d), np.array([1, 2**64 - 1], np.uint64)),
        (lambda d: xp.zeros((2, 0), device=d), np.zeros((2, 0), np.float32)),
        (lambda d: xp.full(3, True, device=d), np.ones(3, bool)),
        (lambda d: xp.full((), 1e300, dtype=xp.float64, device=d), np.float64(1e300)),
        (lambda d: xp.arange(5, device=d), np.arange(5)),
        (lambda d: xp.arange(1, 2, 0.25, device=d), np.arange(1, 2, 0.25, np.float32)),
        (lambda d: xp.linspace(0, 1, 5, endpoint=False, device=d), np.linspace(0, 1, 5, False, dtype=np.float32)),
        (lambda d: xp.eye(3, 4, k=-1, dtype=xp.int8, device=d), np.eye(3, 4, -1, np.int8)),
        (lambda d: xp.unstack(xp.arange(3, device=d))[1], np.int64(1)),
        (lambda d: xp.cumulative_sum(xp.ones(2, device=d), include_initial=True), np.float32([0, 1, 2])),
    ],
)
def test_creation(device: dmlvk.Device, made: Callable[[dmlvk.Device], DeviceArray], expected: Any) -> None:
    array = made(device)
    same(array, expected, device)
    assert array.dtype == expected.dtype
    if array.size:
        array[...] = False
        assert not array.any()


def test_arrays_know_their_namespace(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(FLOATS, device)
    assert a.__array_namespace__() is xp and a.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(InvalidArgumentError, match="api_version"):
        a.__array_namespace__(api_version="1999.01")
    information = xp.__array_namespace_info__()
    assert information.default_dtypes()["integral"] == xp.int64
    assert xp.float32 in information.dtypes(kind="real floating").values()
    assert xp.result_type(a, xp.float16, 2) == xp.float32
    assert xp.can_cast(xp.uint32, xp.float64) and np.can_cast(xp.int8, xp.int16) and not xp.can_cast(a, xp.int32)
    assert xp.isdtype(xp.uint8, ("signed integer", "integral")) and xp.finfo(a).bits == 32 and xp.iinfo(xp.int8).min == -128
    same(xp.meshgrid(a[0, 0], a[0, :, 0])[0], np.meshgrid(FLOATS[0, 0], FLOATS[0, :, 0])[0], device)
    found = xp.unique_all(DeviceArray.from_numpy(BYTES, device))
    values, counts = np.unique(BYTES, return_counts=True)
    same((found.values, found.counts), (values, counts), device)
    np.testing.assert_array_equal(BYTES.ravel()[found.indices.numpy()], values)
    np.testing.assert_array_equal(values[found.inverse_indices.numpy()], BYTES)


def test_nothing_is_uploaded_or_copied_unasked(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(FLOATS, device)
    for call in (lambda: xp.sum(FLOATS), lambda: xp.add(FLOATS, FLOATS), lambda: xp.concat([FLOATS]), lambda: xp.sort([1])):
        with pytest.raises(InvalidArgumentError, match="must be a DeviceArray"):
            call()
    for name, refused in (
        ("fft", lambda: np.fft.fft(a)),
        ("vstack", lambda: np.vstack([a, a])),
        ("dot", lambda: np.dot(a, a)),
    ):
        with pytest.raises(TypeError, match=f"{name} does not run on a device"):
            refused()
    same(np.concatenate([a, FLOATS]), np.concatenate([FLOATS, FLOATS]), device)
    assert np.shape(a) == a.shape and np.array_equal(a, a) and isinstance(np.asarray(a), np.ndarray)


def test_a_mask_without_elements_takes_none(device: dmlvk.Device) -> None:
    a = DeviceArray.from_numpy(BYTES, device)
    for mask in (np.zeros(0, bool), np.zeros((0, 4), bool)):
        assert a[mask].shape == (0, *a.shape[mask.ndim :])
        a[mask] = 1
    same(a, BYTES, device)


def test_one_truth_value_is_an_index(device: dmlvk.Device) -> None:
    for flag in (True, False):
        a, expected = DeviceArray.from_numpy(BYTES, device), BYTES.copy()
        same(a[flag], expected[flag], device)
        same(a[a.any() == flag], expected[np.bool_(flag)], device)
        a[flag], expected[flag] = 0, 0
        same(a, expected, device)
