"""Reduce, Argmax and Argmin against the ONNX reference and PyTorch, over long rows by every rule, and where elements are
equal, special or not in the order of memory.

DirectML's printed examples run in ``test_examples.py``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import AxisDirection, ReduceFunction, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.engine.numpy_types import data_type_of, dtype_of
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding

Array = NDArray[Any]
Reduction = dmlvk.Reduce | dmlvk.Argmax | dmlvk.Argmin
INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
UINT32, INT64 = TensorDataType.UINT32, TensorDataType.INT64
F = ReduceFunction
ARGUMENTS = (F.ARGMAX, F.ARGMIN)
FLOAT_FUNCTIONS = [function for function in F if function not in ARGUMENTS]
NAN, INF = np.nan, np.inf

ONNX_NAMES = {
    F.AVERAGE: "ReduceMean",
    F.L1: "ReduceL1",
    F.L2: "ReduceL2",
    F.LOG_SUM: "ReduceLogSum",
    F.LOG_SUM_EXP: "ReduceLogSumExp",
    F.MAX: "ReduceMax",
    F.MIN: "ReduceMin",
    F.MULTIPLY: "ReduceProd",
    F.SUM: "ReduceSum",
    F.SUM_SQUARE: "ReduceSumSquare",
}
CLOSE = {np.dtype(np.float32): 5e-7, np.dtype(np.float16): 5e-4}
"""Relative: a few roundings of float32, one of float16."""


def random(*sizes: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(dtype)


def described(x: Array, function: ReduceFunction, axes: tuple[int, ...], index: TensorDataType = UINT32) -> dmlvk.Reduce:
    """The reduction of an array whose elements lie without gaps, in any order of its dimensions."""
    strides = tuple(step // x.itemsize for step in x.strides)
    data_type = index if function in ARGUMENTS else data_type_of(x.dtype)
    return dmlvk.Reduce(
        function=function,
        input_tensor=TensorDesc(data_type_of(x.dtype), x.shape, strides),
        output_tensor=TensorDesc(data_type, tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))),
        axes=axes,
    )


def place(x: Array, axes: tuple[int, ...], direction: AxisDirection, *, least: bool = False) -> Reduction:
    desc = described(x, F.ARGMAX, axes)
    row = dmlvk.Argmin if least else dmlvk.Argmax
    return row(input_tensor=desc.input_tensor, output_tensor=desc.output_tensor, axes=axes, axis_direction=direction)


def run(device: dmlvk.Device, desc: Reduction, x: Array, rule: str = "") -> Array:
    """The reduction by the given rule, into an output full of ones before."""
    order = sorted(range(x.ndim), key=lambda axis: x.strides[axis], reverse=True)
    memory = x.transpose(order)
    assert memory.flags.c_contiguous
    output = desc.tensor("output_tensor")
    source = device.create_buffer(-(-x.nbytes // 4) * 4)
    source.write(np.pad(memory.reshape(-1).view(np.uint8), (0, -x.nbytes % 4)))
    target = device.create_buffer(output.total_tensor_size_in_bytes)
    target.write(np.full(output.total_tensor_size_in_bytes, 0xFF, np.uint8))
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, [BufferBinding(source)], [BufferBinding(target)])
    device.execute(commands)
    count = math.prod(output.sizes)
    return target.read().view(dtype_of(output.data_type))[:count].reshape(output.sizes)


def by_every_rule(device: dmlvk.Device, desc: Reduction, x: Array, *least: str) -> list[Array]:
    """The results of all rules that may be forced; those named must be among them."""
    rules = possible_rules(desc, device.capabilities)
    assert set(least) <= set(rules)
    return [run(device, desc, x, rule) for rule in rules]


# -- second oracles


@pytest.mark.parametrize(("function", "axes"), crossed(ONNX_NAMES, [(3,), (1, 2), (0, 1, 2, 3)]))
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, function: ReduceFunction, axes: tuple[int, ...]) -> None:
    x = random(3, 5, 4, 8)
    if function in (F.LOG_SUM, F.MULTIPLY):
        x = np.abs(x) + np.float32(0.5)
    node = helper.make_node(ONNX_NAMES[function], ["x", "axes"], ["y"])
    reference: Any = onnx.reference.ReferenceEvaluator(node)
    (expected,) = reference.run(None, {"x": x.astype(np.float64), "axes": np.array(axes)})
    found = eager.reduce(x, function=function, axes=axes, device=device)
    # Terms cancel, and a logarithm of nearly 1 has the error of the sum. A product of 480 factors is rounded as often.
    of_terms = 2.0**-25 * np.abs(x).sum(axes).max()
    absolute = {F.SUM: of_terms, F.AVERAGE: of_terms * found.size / x.size, F.LOG_SUM: 1e-7, F.LOG_SUM_EXP: 1e-7}
    relative = CLOSE[x.dtype] * (10 if function is F.MULTIPLY else 1)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=absolute.get(function, 0.0))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_places_agree_with_the_onnx_reference(device: dmlvk.Device, operator: str, last: int, axis: int) -> None:
    x = np.random.default_rng(axis).integers(-2, 3, (7, 9, 8)).astype(np.int32)
    node = helper.make_node(operator, ["x"], ["y"], axis=axis, select_last_index=last)
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})
    function = eager.argmax if operator == "ArgMax" else eager.argmin
    found = function(x, axes=(axis,), axis_direction=AxisDirection(last), output_data_types=INT64, device=device)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, results[0])


@pytest.mark.parametrize(
    ("sizes", "axis", "dtype"),
    [((40, 1001), 1, np.float16), ((1000, 40), 0, np.float32), ((4, 70, 33), 1, np.float16)],
    ids=lambda item: getattr(item, "__name__", str(item)),
)
def test_agrees_with_torch(
    device: dmlvk.Device, torch: ModuleType, sizes: tuple[int, ...], axis: int, dtype: type[np.floating[Any]]
) -> None:
    x = random(*sizes, dtype=dtype)
    t = torch.from_numpy(x)
    wide, close = t.double(), CLOSE[x.dtype]
    functions: dict[ReduceFunction, Callable[..., Any]] = {
        F.AVERAGE: torch.mean,
        F.L2: lambda values, dim, keepdim: torch.linalg.vector_norm(values, 2, dim, keepdim),
        F.LOG_SUM_EXP: torch.logsumexp,
        F.MIN: torch.amin,
    }
    for function, other in functions.items():
        found = eager.reduce(x, function=function, axes=(axis,), device=device)
        cancels = 2.0**-25 if function is F.AVERAGE else 0.0
        np.testing.assert_allclose(found, other(wide, dim=axis, keepdim=True).numpy(), rtol=close, atol=cancels)
    for mine, theirs in ((eager.argmax, torch.argmax), (eager.argmin, torch.argmin)):
        found = mine(x, axes=(axis,), output_data_types=UINT32, device=device)
        values = np.take_along_axis(x, theirs(t, axis, keepdim=True).numpy(), axis)
        np.testing.assert_array_equal(np.take_along_axis(x, found.astype(np.int64), axis), values)


def test_the_place_of_nan_and_infinities_is_torchs(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.array([[1, NAN, 3], [INF, 2, NAN], [-INF, INF, 0], [NAN, -INF, INF], [5, -INF, 7]], np.float32)
    for mine, theirs in ((eager.argmax, torch.argmax), (eager.argmin, torch.argmin)):
        found = mine(x, axes=(1,), output_data_types=UINT32, device=device)
        np.testing.assert_array_equal(found[:, 0], theirs(torch.from_numpy(x), 1).numpy())


# -- long rows


SUMS = [
    # (name, elements, errors allowed in units of the last place of float32: of the sum, and of the terms' magnitude)
    ("positive", lambda rng, sizes: rng.random(sizes, np.float32), 1.0, 0.0),
    ("far from 0", lambda rng, sizes: rng.random(sizes, np.float32) + np.float32(30000), 1.0, 0.0),
    ("of both signs", lambda rng, sizes: rng.standard_normal(sizes, np.float32), 1.0, 2.0**-9),
    ("of a wide range", lambda rng, sizes: np.exp2(rng.uniform(-60, 60, sizes)).astype(np.float32), 1.0, 0.0),
]


@pytest.mark.parametrize(("elements", "of_sum", "of_terms"), [case[1:] for case in SUMS], ids=[case[0] for case in SUMS])
@pytest.mark.parametrize(
    ("sizes", "rules"),
    [
        ((10**7,), ("split", "workgroup", "")),
        pytest.param((10**6, 10), ("columns_split", "columns", "split", ""), marks=pytest.mark.full),
    ],
    ids=["a row", "columns"],
)
def test_sums_of_ten_million(
    device: dmlvk.Device,
    sizes: tuple[int, ...],
    rules: tuple[str, ...],
    elements: Callable[..., Array],
    of_sum: float,
    of_terms: float,
) -> None:
    """By every rule but subgroups, which a CPU's driver would end after 65535 rounds and which are not chosen there."""
    x = elements(np.random.default_rng(7), sizes)
    exact = np.array([[math.fsum(column) for column in x.reshape(sizes[0], -1).T]])
    magnitude = np.abs(x.astype(np.float64)).sum(0)
    limit = of_sum * np.spacing(np.abs(exact).astype(np.float32)) + of_terms * np.spacing(magnitude.astype(np.float32))
    for rule in rules:
        found = run(device, described(x, F.SUM, (0,)), x, rule)
        assert (np.abs(found - exact) <= limit).all(), (rule, found, exact)


def test_a_sum_of_a_hundred_million(device: dmlvk.Device) -> None:
    """Ten million, ten times over by a stride of 0, for the largest binding of some devices holds no more."""
    x = np.random.default_rng(8).random(10**7, np.float32)
    exact = 10 * math.fsum(x)
    found = eager.reduce(np.broadcast_to(x, (10, 10**7)), function=F.SUM, axes=(0, 1), device=device)
    assert abs(found[0, 0] - exact) <= np.spacing(np.float32(exact))


def test_a_place_among_a_hundred_million(device: dmlvk.Device) -> None:
    x = np.zeros(10**8, np.uint8)
    x[[99_999_997, 12_345_678]] = 1
    for direction, expected in ((INCREASING, 12_345_678), (DECREASING, 99_999_997)):
        assert run(device, place(x, (0,), direction), x) == [expected]


@pytest.mark.parametrize("function", [F.AVERAGE, F.L2])
def test_float16_is_accumulated_in_float32(device: dmlvk.Device, function: ReduceFunction) -> None:
    """The sum is 500 times the largest float16, and the mean is as precise as a float16 can be."""
    x = np.random.default_rng(9).uniform(0, 64, 10**6).astype(np.float16)
    wide = x.astype(np.float64)
    exact = wide.mean() if function is F.AVERAGE else math.sqrt((wide * wide).sum())
    for found in by_every_rule(device, described(x, function, (0,)), x, "split"):
        assert found[0] == np.float16(exact)


@pytest.mark.parametrize(("shape", "dtype"), crossed([((2, 40009), 1), ((9973, 6), 0)], [np.int64, np.uint32]))
def test_integer_sums_are_exact_and_wrap(device: dmlvk.Device, shape: tuple[tuple[int, ...], int], dtype: Any) -> None:
    sizes, axis = shape
    info = np.iinfo(dtype)
    x = np.random.default_rng(10).integers(info.min, info.max, sizes, dtype, endpoint=True)
    for found in by_every_rule(device, described(x, F.SUM, (axis,)), x):
        np.testing.assert_array_equal(found, x.sum(axis, dtype, keepdims=True))


@pytest.mark.parametrize(("sizes", "axis"), [((3, 8209), 1), ((4133, 20), 0)], ids=str)
def test_the_same_bits_twice(device: dmlvk.Device, sizes: tuple[int, ...], axis: int) -> None:
    x = random(*sizes)
    first, again = (by_every_rule(device, described(x, F.SUM, (axis,)), x) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


# -- special values


def special_result(function: ReduceFunction, row: list[float]) -> float:
    with np.errstate(all="ignore"):
        x = np.array(row)
        return float(
            {
                F.AVERAGE: np.mean,
                F.L1: lambda v: np.abs(v).sum(),
                F.L2: lambda v: np.sqrt((v * v).sum()),
                F.LOG_SUM: lambda v: np.log(v.sum()),
                F.LOG_SUM_EXP: np.logaddexp.reduce,
                F.MAX: np.max,
                F.MIN: np.min,
                F.MULTIPLY: np.prod,
                F.SUM: np.sum,
                F.SUM_SQUARE: lambda v: (v * v).sum(),
            }[function](x)
        )


SPECIAL_ROWS = [
    [INF, 1.0, 2.0],
    [-INF, 1.0, 2.0],
    [INF, -INF, 1.0],
    [INF, INF, 3.0],
    [-INF, -INF, -INF],
    [NAN, 1.0, 2.0],
    [1.0, 2.0, NAN],
    [NAN, INF, -INF],
    [0.0, INF, 1.0],
    [0.0, 0.0, 0.0],
    [-1.0, 0.5, 0.25],
]


@pytest.mark.quick
@pytest.mark.parametrize(("function", "dtype"), crossed(FLOAT_FUNCTIONS, [np.float32, np.float16]))
def test_infinities_and_nan(device: dmlvk.Device, function: ReduceFunction, dtype: Any) -> None:
    x = np.array(SPECIAL_ROWS, dtype)
    expected = np.array([[special_result(function, row)] for row in SPECIAL_ROWS])
    found = eager.reduce(x, function=function, axes=(1,), device=device)
    np.testing.assert_allclose(found, expected, rtol=CLOSE[x.dtype])


PLACES = (0, 1, 3, 4, 7, 8, 31, 32, 127, 128, 2047, 2048, 4095, 4096, 4999, 5000)


@pytest.mark.parametrize("across", [False, True], ids=["rows", "columns"])
def test_one_nan_anywhere_makes_the_result_nan(device: dmlvk.Device, across: bool) -> None:
    x = np.ones((len(PLACES), 5001), np.float32)
    x[range(len(PLACES)), PLACES] = NAN
    x, axes = (np.ascontiguousarray(x.T), (0,)) if across else (x, (1,))
    for found in by_every_rule(device, described(x, F.SUM, axes), x, "columns_split" if across else "split"):
        assert np.isnan(found).all()
    for function in () if across else (F.MIN, F.LOG_SUM_EXP, F.MULTIPLY):
        assert np.isnan(run(device, described(x, function, axes), x)).all(), function
    for found in by_every_rule(device, place(x, axes, INCREASING, least=across), x):
        np.testing.assert_array_equal(found.reshape(-1), PLACES)


def test_zeros_of_both_signs(device: dmlvk.Device) -> None:
    """0 is the larger one of MAX and MIN, and equal to -0 where places count."""
    x = np.array([[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0]], np.float32)
    for function, expected in ((F.MAX, [0.0, 0.0, -0.0]), (F.MIN, [-0.0, -0.0, -0.0])):
        found = eager.reduce(x, function=function, axes=(1,), device=device)
        np.testing.assert_array_equal(np.signbit(found[:, 0]), np.signbit(expected))
        assert (found == 0).all()
    for row in (eager.argmax, eager.argmin):
        for direction, index in ((INCREASING, 0), (DECREASING, 1)):
            found = row(x, axes=(1,), axis_direction=direction, output_data_types=UINT32, device=device)
            assert (found == index).all()


def test_subnormal_numbers_are_told_apart(device: dmlvk.Device) -> None:
    """Whether the device flushes them in arithmetic or not."""
    tiny = np.float32(1e-45)
    x = np.array([[0.0, tiny, -tiny], [2 * tiny, tiny, 3 * tiny]], np.float32)
    np.testing.assert_array_equal(eager.reduce(x, function=F.MAX, axes=(1,), device=device)[:, 0], [tiny, 3 * tiny])
    np.testing.assert_array_equal(eager.reduce(x, function=F.MIN, axes=(1,), device=device)[:, 0], [-tiny, tiny])
    assert eager.argmin(x, axes=(1,), output_data_types=UINT32, device=device)[:, 0].tolist() == [2, 1]


# -- equal elements, and orders of memory


PAIRS = [(0, 5000), (0, 1), (3, 4), (5, 6), (31, 32), (100, 101), (127, 2048), (2047, 2048), (4998, 4999), (4999, 5000)]


@pytest.mark.parametrize(
    ("extreme", "across"), crossed([(np.float32, False), (np.uint8, True), (np.int64, False)], [False, True])
)
def test_of_two_equal_elements_the_direction_decides(device: dmlvk.Device, extreme: tuple[Any, bool], across: bool) -> None:
    """The equal elements are in the same access, in others, in other invocations and in other chunks."""
    dtype, least = extreme
    x = np.full((len(PAIRS), 5001), 3, dtype)
    for row, pair in enumerate(PAIRS):
        x[row, pair] = 1 if least else 7
    x, axes = (np.ascontiguousarray(x.T), (0,)) if across else (x, (1,))
    for direction, expected in ((INCREASING, [a for a, _ in PAIRS]), (DECREASING, [b for _, b in PAIRS])):
        for found in by_every_rule(device, place(x, axes, direction, least=least), x):
            np.testing.assert_array_equal(found.reshape(-1), expected)


@pytest.mark.parametrize(("dtype", "least"), [(np.float32, -INF), (np.uint8, 0), (np.int32, -(2**31))])
def test_rows_of_the_least_number_have_a_place(device: dmlvk.Device, dtype: Any, least: float) -> None:
    """Whatever of an access lies outside of a row counts as this number: it must not win. Rows start anywhere."""
    for length in (63, 64, 65, 66, 67, 131):
        x = np.full((33, length), least, dtype)
        for direction, expected in ((INCREASING, 0), (DECREASING, length - 1)):
            found = eager.argmax(x, axes=(1,), axis_direction=direction, output_data_types=UINT32, device=device)
            np.testing.assert_array_equal(found, expected)


NHWC = (0, 3, 1, 2)  # of NHWC in memory, the dimensions as N, C, H, W


@pytest.mark.parametrize(("direction", "axes"), crossed(AxisDirection, [(1,), (1, 2, 3), (3, 1), (0, 1, 2, 3)]))
def test_places_count_in_the_order_of_dimensions(
    device: dmlvk.Device, direction: AxisDirection, axes: tuple[int, ...]
) -> None:
    """Whatever the order of memory is."""
    x = np.random.default_rng(11).integers(0, 5, (3, 8, 4, 16)).astype(np.float32).transpose(NHWC)
    kept = [axis for axis in range(4) if axis not in axes]
    rows = x.transpose([*kept, *sorted(axes)]).reshape(*(x.shape[axis] for axis in kept), -1)
    last = rows.shape[-1] - 1
    expected = last - rows[..., ::-1].argmax(-1) if direction is DECREASING else rows.argmax(-1)
    for found in by_every_rule(device, place(x, axes, direction), x):
        np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("axes", [(1,), (0, 2, 3), (0, 3)], ids=str)
def test_channels_last_are_summed_over_any_axes(device: dmlvk.Device, axes: tuple[int, ...]) -> None:
    x = random(2, 9, 37, 24).transpose(NHWC)
    expected = x.astype(np.float64).sum(axes, keepdims=True)
    for found in by_every_rule(device, described(x, F.SUM, axes), x):
        np.testing.assert_allclose(found, expected, rtol=CLOSE[x.dtype], atol=2e-6)


# -- indices


@pytest.mark.parametrize(
    ("shape", "index"),
    crossed([((5, 70), 1), ((70, 5), 0), ((2, 9001), 1)], [INT64, TensorDataType.UINT64, TensorDataType.INT32, UINT32]),
)
def test_indices_of_every_type(device: dmlvk.Device, shape: tuple[tuple[int, ...], int], index: TensorDataType) -> None:
    """All bytes of them are written: those of ``run`` are ones before."""
    sizes, axis = shape
    x = random(*sizes)
    for function in ARGUMENTS:
        expected = (x.argmax if function is F.ARGMAX else x.argmin)(axis, keepdims=True)
        for found in by_every_rule(device, described(x, function, (axis,), index), x):
            np.testing.assert_array_equal(found, expected.astype(dtype_of(index)))


def test_the_type_of_an_index_is_given(device: dmlvk.Device) -> None:
    """An index has the type that is given; other results have the input's."""
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert eager.reduce(x, function=F.SUM, axes=(0, 1), device=device).dtype == np.int64
    for call in (eager.argmax, functools.partial(eager.reduce, function=F.ARGMIN)):
        with pytest.raises(
            dmlvk.InvalidArgumentError, match="must be given, because OutputTensor may be INT64, INT32, UINT64, UINT32"
        ):
            call(x, axes=(1,), device=device)
        with pytest.raises(dmlvk.InvalidArgumentError, match="Axes"):
            call(x, axes=(2,), device=device)


def test_a_device_without_64_bit_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device finds places as 64-bit indices, of elements of other types, but cannot add 64-bit numbers."""
    monkeypatch.setenv("DMLVK_DISABLE", "int64")
    device = dmlvk.Device()
    x = random(5, 70)
    for row, expected in ((eager.argmax, x.argmax(1)), (eager.argmin, x.argmin(1))):
        found = row(x, axes=(1,), output_data_types=INT64, device=device)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found[:, 0], expected)
    wide = x.astype(np.int64)
    for function in (F.SUM, F.MAX):
        with pytest.raises(dmlvk.UnsupportedError, match="int64"):
            eager.reduce(wide, function=function, axes=(1,), device=device)
