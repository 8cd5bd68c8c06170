"""The functions of ``dmlvk.eager`` and ``DeviceArray``: arguments, layouts, caching, errors."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import DeviceArray, TensorDataType, eager
from dmlvk.engine import single_operators
from dmlvk.spec.schema import REGISTRY

Array = NDArray[Any]


def ramp(*shape: int, dtype: Any = np.float32) -> Array:
    return (np.arange(np.prod(shape)) % 97 + 1).astype(dtype).reshape(shape)


HALVES = ramp(3, dtype=np.float16)


# -- the functions


def test_there_is_a_function_for_every_operator() -> None:
    names = set(dir(eager))
    assert names == {row.type.name.lower() for row in REGISTRY.values()}
    for name in names:
        function = getattr(eager, name)
        row = next(row for row in REGISTRY.values() if row.type.name.lower() == name)
        parameters = inspect.signature(function).parameters
        assert [spec.name for spec in row.fields if not spec.kind.is_output] == sorted(
            [name for name in parameters if name in {spec.name for spec in row.fields}],
            key=[spec.name for spec in row.fields].index,
        )
        assert function.__doc__ and function.__name__ == name
    with pytest.raises(AttributeError, match="eager has no operator 'frobnicate'"):
        eager.frobnicate  # noqa: B018


def test_signatures_say_what_is_required() -> None:
    parameters = inspect.signature(eager.gemm).parameters
    assert parameters["a_tensor"].default is inspect.Parameter.empty
    assert parameters["c_tensor"].default is None
    assert parameters["alpha"].default == 1.0 and parameters["alpha"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8, np.int64])
def test_a_sum(device: dmlvk.Device, dtype: Any) -> None:
    a, b = ramp(3, 5, dtype=dtype), ramp(3, 5, dtype=dtype)[::-1].copy()
    got = eager.element_wise_add(a, b, device=device)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, a + b)


def test_operands_broadcast_and_numbers_take_the_arrays_type(device: dmlvk.Device) -> None:
    x = ramp(2, 3)
    on_device = DeviceArray.from_numpy(x, device)
    for other in (x[0], x[:, :1], np.float32(2), 2, 2.0, [1, 2, 3], [[1.5], [2]]):
        expected = x * np.asarray(other, np.float32)
        np.testing.assert_array_equal(eager.element_wise_multiply(x, other, device=device), expected)
        np.testing.assert_array_equal(eager.element_wise_multiply(other, on_device).numpy(), expected)
    np.testing.assert_array_equal(eager.element_wise_if([[1], [0]], 0.0, x, device=device), [[0, 0, 0], x[1]])
    np.testing.assert_array_equal(eager.element_wise_add(x.astype(np.int8), 2, device=device), x.astype(np.int8) + 2)
    assert eager.element_wise_add([1.5], [2.5], device=device).dtype == np.float32
    assert eager.gather(x, [[1, 0]], axis=0, index_dimensions=1, device=device).dtype == np.float32
    for other, rule in ((x[:, :2], "same sizes"), ([1, 2, 3, 4], "same")):
        with pytest.raises(dmlvk.InvalidArgumentError, match=rule):
            eager.element_wise_add(x, other, device=device)
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"element_wise_add\.b_tensor: a Python number must fit"):
        eager.element_wise_add(x.astype(np.int32), 1.5, device=device)


def test_axes_count_from_the_end(device: dmlvk.Device) -> None:
    x = ramp(2, 3, 4)
    total = dmlvk.ReduceFunction.SUM
    for axes in (-1, (-1,), [2], np.int64(-1)):
        np.testing.assert_array_equal(eager.reduce(x, function=total, axes=axes, device=device), x.sum(-1, keepdims=True))
    np.testing.assert_array_equal(eager.join([x, x], axis=-2, device=device), np.concatenate([x, x], -2))
    for axes in (-4, 3, (-1, 2), 1.5, True):
        with pytest.raises(dmlvk.InvalidArgumentError, match=r"DML_OPERATOR_REDUCE\.Axes"):
            eager.reduce(x, function=total, axes=axes, device=device)  # type: ignore[arg-type]
    graph = dmlvk.Graph()
    assert graph.reduce(graph.input((2, 3)), function=total, axes=-1).shape == (2, 1)


def test_a_near_name_is_suggested() -> None:
    for name, meant in (("softmax", "activation_softmax1"), ("relu", "activation_relu"), ("conv", "convolution")):
        with pytest.raises(AttributeError, match=f"did you mean {meant}"):
            getattr(eager, name)


def test_operands_by_name_and_absent_ones(device: dmlvk.Device) -> None:
    a, b, c = ramp(1, 1, 3, 4), ramp(1, 1, 4, 5), ramp(1, 1, 3, 5)
    np.testing.assert_array_equal(eager.gemm(b_tensor=b, a_tensor=a, device=device), a @ b)
    np.testing.assert_array_equal(eager.gemm(a, b, None, device=device), a @ b)
    row, column = a[..., :1, :], b[..., :, :1]  # which would broadcast with each other
    np.testing.assert_array_equal(eager.gemm(row, column, device=device), row @ column)
    np.testing.assert_array_equal(eager.gemm(a, b, c, device=device), a @ b + c)


def test_attributes_that_compare_equal_are_not_confused(device: dmlvk.Device) -> None:
    x = np.float32([-2.0])
    for bound in (0.0, -0.0, 0.0):
        got = eager.element_wise_clip(x, min=bound, max=1.0, device=device)
        assert np.signbit(got[0]) == np.signbit(bound)
    with pytest.raises(dmlvk.InvalidArgumentError):
        eager.mean_variance_normalization1(ramp(2, 3), axes=(True,), device=device)


def test_optional_outputs_come_on_request(device: dmlvk.Device) -> None:
    x = np.float32([[[[1, 5, 2, 4]]]])
    settings: dict[str, Any] = {
        "strides": (1, 2),
        "window_size": (1, 2),
        "start_padding": (0, 0),
        "end_padding": (0, 0),
        "device": device,
    }
    np.testing.assert_array_equal(eager.max_pooling1(x, **settings), [[[[5, 4]]]])
    types = [TensorDataType.FLOAT32, TensorDataType.UINT32]
    wanted = {"outputs": ("output_indices_tensor",), "output_data_types": types}
    values, indices = eager.max_pooling1(x, **settings, **wanted)
    np.testing.assert_array_equal(values, [[[[5, 4]]]])
    np.testing.assert_array_equal(indices, [[[[1, 3]]]])


def test_output_sizes_may_be_stated(device: dmlvk.Device) -> None:
    a = ramp(2, 3)
    np.testing.assert_array_equal(eager.element_wise_add(a, a, output_sizes=(2, 3), device=device), a + a)
    with pytest.raises(dmlvk.InvalidArgumentError):
        eager.element_wise_add(a, a, output_sizes=(3, 2), device=device)
    with pytest.raises(dmlvk.InvalidArgumentError, match="one entry for each output; expected 1, got 2"):
        eager.element_wise_add(a, a, output_sizes=[(2, 3), (2, 3)], device=device)


# -- layouts

LAYOUTS = {
    "packed": lambda: ramp(4, 6),
    "transposed": lambda: ramp(6, 4).T,
    "sliced": lambda: ramp(9, 14)[1::2, 2::2],
    "broadcast row": lambda: np.broadcast_to(ramp(6), (4, 6)),
    "broadcast scalar": lambda: np.broadcast_to(np.float32(3), (4, 6)),
    "reversed": lambda: ramp(4, 6)[::-1, ::-1],
    "unaligned": lambda: np.frombuffer(b"\0" + ramp(4, 6).tobytes(), np.float32, offset=1).reshape(4, 6),
    "field": lambda: np.array([(1, 2.0)] * 24, [("i", np.int8), ("f", np.float32)])["f"].reshape(4, 6),
    "read only": lambda: np.asarray(memoryview(ramp(4, 6)).toreadonly()),
}


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("on_device", [False, True], ids=["numpy", "DeviceArray"])
def test_arrays_of_any_layout(device: dmlvk.Device, left: str, on_device: bool) -> None:
    a, b = LAYOUTS[left](), LAYOUTS["transposed"]()
    if on_device:
        result = eager.element_wise_add(DeviceArray.from_numpy(a, device), DeviceArray.from_numpy(b, device))
        assert isinstance(result, DeviceArray)
        result = result.numpy()
    else:
        result = eager.element_wise_add(a, b, device=device)
    np.testing.assert_array_equal(result, a + b)


def test_a_broadcast_array_stays_small(device: dmlvk.Device) -> None:
    huge = np.broadcast_to(np.float32(1), (2**20, 2**4))
    assert DeviceArray.from_numpy(huge, device).buffer.size_in_bytes == 4


def test_single_elements(device: dmlvk.Device) -> None:
    got = eager.element_wise_add(np.float32(2), np.float32(3), device=device)
    assert got.shape == (1,) and got[0] == 5
    assert DeviceArray.from_numpy(np.float32(2), device).numpy().shape == ()


# -- caching


def test_a_second_call_compiles_nothing(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    a = ramp(7, 3)
    eager.element_wise_add(a, a, device=device)
    before = device.native.pipelines_created
    monkeypatch.setattr(single_operators, "SingleOperator", None)
    np.testing.assert_array_equal(eager.element_wise_add(a + 1, a, device=device), 2 * a + 1)
    assert device.native.pipelines_created == before


def test_the_least_recently_used_call_is_forgotten(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_operators, "_KEPT", 2)
    own = dmlvk.Device(device.info)
    compiled: list[int] = []
    compile_operator = single_operators.SingleOperator

    def counting(device: dmlvk.Device, desc: dmlvk.OperatorDesc) -> single_operators.SingleOperator:
        compiled.append(desc.tensor("a_tensor").sizes[0])
        return compile_operator(device, desc)

    monkeypatch.setattr(single_operators, "SingleOperator", counting)
    for count in (1, 2, 1, 3, 1, 2):
        eager.element_wise_add(ramp(count), ramp(count), device=own)
    assert compiled == [1, 2, 3, 2]


# -- errors: typed, and the next call works


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (dmlvk.InvalidArgumentError, "same data type", lambda: eager.element_wise_add(ramp(3), HALVES)),
        (dmlvk.InvalidArgumentError, "same sizes", lambda: eager.element_wise_add(ramp(3), ramp(4))),
        (dmlvk.InvalidArgumentError, "must be given", lambda: eager.element_wise_add(ramp(3))),
        (dmlvk.InvalidArgumentError, "data types", lambda: eager.element_wise_exp(ramp(3, dtype=np.int32))),
        (dmlvk.InvalidArgumentError, "dtype", lambda: eager.element_wise_add(np.complex64([1]), np.complex64([1]))),
        (dmlvk.InvalidArgumentError, "dtype", lambda: eager.element_wise_add(ramp(3).astype(">f4"), ramp(3))),
        (dmlvk.InvalidArgumentError, "dimensions", lambda: eager.element_wise_abs(ramp(*[1] * 9))),
        (dmlvk.InvalidArgumentError, "as many rows", lambda: eager.gemm(ramp(1, 1, 3, 4), ramp(1, 1, 5, 6))),
        (dmlvk.InvalidArgumentError, "must name outputs", lambda: eager.element_wise_abs(ramp(3), outputs=("y",))),
        (TypeError, "no argument 'alpha'", lambda: eager.element_wise_add(ramp(3), ramp(3), alpha=1)),
        (TypeError, "takes at most 2 positional", lambda: eager.element_wise_add(ramp(3), ramp(3), ramp(3))),
        (TypeError, "twice", lambda: eager.element_wise_add(ramp(3), a_tensor=ramp(3))),
    ],
)
def test_a_broken_call_is_refused(device: dmlvk.Device, error: type[Exception], text: str, call: Any) -> None:
    with pytest.raises(error, match=text):
        call()
    np.testing.assert_array_equal(eager.element_wise_add(ramp(3), ramp(3), device=device), 2 * ramp(3))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (r"InputTensors: must be a tuple of at least one", lambda: eager.join([], axis=0)),
        (r"join\.input_tensors: must be a sequence of tensors; got int", lambda: eager.join(3, axis=0)),
        (r"^device: must be a Device, .* got 0$", lambda: eager.element_wise_abs(ramp(3), device=0)),
        (r"^device: must be a Device, .* got 'llvm'$", lambda: eager.element_wise_abs(ramp(3), device="llvm")),
        (r"^device: must be a Device, .* got 0$", lambda: DeviceArray.from_numpy(ramp(3), 0)),  # type: ignore[arg-type]
        (r"^device: must be a Device, .* got 0$", lambda: dmlvk.Graph(0)),  # type: ignore[arg-type]
        (r"^choice: must be an index, .* got 3.5$", lambda: dmlvk.Device(3.5)),  # type: ignore[arg-type]
        (r"^element_wise_add\.b_tensor: must be an array, ", lambda: eager.element_wise_add(ramp(3), [[1, 2], [3]])),
        (r"^join\.input_tensors: must be an array, ", lambda: eager.join([ramp(3), [[1, 2], [3]]], axis=0)),
        (r"^array: must be an array, ", lambda: DeviceArray.from_numpy([[1, 2], [3]])),
        (r"^array: must be an array, ", lambda: dmlvk.Graph().constant([[1, 2], [3]])),
        (r"^flags: must be a CreateDeviceFlags: 0 \(NONE\)", lambda: dmlvk.Device(flags="x")),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_array_or_device_is_refused(text: str, call: Any) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match=text):
        call()


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int64])
def test_sizes_may_be_numbers_of_numpy(device: dmlvk.Device, kind: Any) -> None:
    def numbers(*values: int) -> tuple[Any, ...]:
        return tuple(map(kind, values))

    x = ramp(100, 3)
    tiled = eager.tile(x, repeats=numbers(2, 100), device=device)
    np.testing.assert_array_equal(tiled, np.tile(x, (2, 100)))
    ends = {"start_padding": numbers(100, 0), "end_padding": numbers(100, 1)}
    padded = eager.padding(x, padding_mode=0, padding_value=0.0, **ends, device=device)
    np.testing.assert_array_equal(padded, np.pad(x, ((100, 100), (0, 1))))
    array = DeviceArray.from_numpy(ramp(100, 100), device).reshape(*numbers(100, 10), -1)
    assert array.shape == (100, 10, 10)
    assert {type(size) for size in array.shape} == {int}


def test_a_shape_does_not_wrap_around(device: dmlvk.Device) -> None:
    array, graph = DeviceArray.from_numpy(ramp(4, 4), device), dmlvk.Graph(device)
    shapes: list[tuple[Any, ...]] = [(2**60 + 1, 16), (2**32, 2**32, 16), (-1, 2**64), (4.0, 4.0), ((2, 9),), (-1, -1)]
    for owner in (array, graph.input((4, 4))):
        for shape in shapes:
            with pytest.raises(dmlvk.InvalidArgumentError, match="must have the 16 elements"):
                owner.reshape(*shape)
        with pytest.raises(dmlvk.InvalidArgumentError, match="must name each of the 2 dimensions once"):
            owner.transpose([1, 0])  # type: ignore[arg-type]


def test_two_devices_of_one_gpu_have_two_names(device: dmlvk.Device) -> None:
    other = dmlvk.Device(device.info)
    assert str(other) != str(device)
    with pytest.raises(dmlvk.StateError) as found:
        eager.element_wise_abs(DeviceArray.from_numpy(ramp(3), device), device=other)
    assert str(other) in str(found.value)
    assert str(device) in str(found.value)


def test_arrays_of_two_devices_do_not_mix(device: dmlvk.Device) -> None:
    other = dmlvk.Device(device.info)
    a, b = DeviceArray.from_numpy(ramp(3), device), DeviceArray.from_numpy(ramp(3), other)
    for call in (lambda: eager.element_wise_add(a, b), lambda: eager.element_wise_add(a, a, device=other)):
        with pytest.raises(dmlvk.StateError, match="must belong to the same Device"):
            call()
    np.testing.assert_array_equal(eager.element_wise_add(b, b).numpy(), 2 * ramp(3))


def test_threads_call_the_same_function(device: dmlvk.Device) -> None:
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for step in range(1, 20):
                a = np.full((step, 3), thread, np.float32)
                np.testing.assert_array_equal(eager.element_wise_add(a, a, device=device), a + a)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# -- DeviceArray


def test_a_chain_stays_on_the_device(device: dmlvk.Device) -> None:
    x = DeviceArray.from_numpy(ramp(5, 5), device)
    submissions = device.native.submissions
    y = eager.element_wise_add(eager.element_wise_multiply(x, x), ramp(5, 5))
    assert isinstance(y, DeviceArray) and (y.shape, y.dtype, y.size, y.ndim) == ((5, 5), np.float32, 25, 2)
    assert device.native.submissions - submissions <= 4
    np.testing.assert_array_equal(y.numpy(), ramp(5, 5) ** 2 + ramp(5, 5))


def index_of(size: int) -> st.SearchStrategy[Any]:
    slices = st.builds(slice, st.integers(0, size - 1) | st.none(), st.none(), st.integers(1, 3) | st.none())
    return st.integers(-size, size - 1) | slices | st.just(slice(None))


@settings(deadline=None, max_examples=60)
@given(st.tuples(index_of(4), index_of(5), index_of(6)), st.sampled_from([None, 0, 1, 2, 3]), st.booleans(), st.booleans())
def test_indexing_is_numpys(index: tuple[Any, ...], new_axis: int | None, dots: bool, transposed: bool) -> None:
    values = ramp(4, 5, 6, dtype=np.int16)
    array = DeviceArray.from_numpy(values)
    if new_axis is not None:
        index = (*index[:new_axis], None, *index[new_axis:])
    if dots:
        index = (*index[:-1], ...)
    expected, got = values[index], array[index]
    if transposed:
        expected, got = expected.T, got.T
    assert got.shape == expected.shape and got.buffer is array.buffer
    np.testing.assert_array_equal(got.numpy(), expected)
    doubled = eager.element_wise_add(got, got).numpy()
    np.testing.assert_array_equal(doubled.reshape(expected.shape), expected + expected)


def test_bad_indices(device: dmlvk.Device) -> None:
    array = DeviceArray.from_numpy(ramp(4, 5), device)
    for index in (4, -5, (0, 0, 0), (..., ...), [4], (0, [-6]), ([0, 1], [0, 1, 2]), np.array([True])):
        with pytest.raises(IndexError):
            array[index]
    assert len(array) == 4 and len(list(array)) == 4


def test_a_view_that_cannot_be_bound_is_copied_on_the_device(device: dmlvk.Device) -> None:
    array = DeviceArray.from_numpy(ramp(4, 5), device)
    assert array.is_bindable and not array[:, 1:].is_bindable
    assert array.binding().buffer is array.buffer and array[:, 1:].binding().buffer is not array.buffer
    halves = DeviceArray.from_numpy(ramp(8 + 3, dtype=np.float16), device)
    doubled = eager.element_wise_add(halves[8:], halves[8:]).numpy()
    np.testing.assert_array_equal(doubled, 2 * ramp(11, dtype=np.float16)[8:])


def test_reshape_and_transpose(device: dmlvk.Device) -> None:
    values = ramp(4, 6)
    array = DeviceArray.from_numpy(values, device)
    np.testing.assert_array_equal(array.reshape(2, -1, 3).numpy(), values.reshape(2, -1, 3))
    np.testing.assert_array_equal(array.reshape(1, 4, 6).transpose(2, 0, 1).numpy(), values[None].transpose(2, 0, 1))
    with pytest.raises(dmlvk.StateError, match="packed"):
        array.T.reshape(24)
    for shape in ((5, 5), (-1, -1), (0, -1)):
        with pytest.raises(dmlvk.InvalidArgumentError, match="24 elements"):
            array.reshape(*shape)
    with pytest.raises(dmlvk.InvalidArgumentError, match="each of the 2 dimensions once"):
        array.transpose(0, 0)


def test_protocols(device: dmlvk.Device) -> None:
    values = ramp(3, 4)
    array = DeviceArray.from_numpy(values, device)
    np.testing.assert_array_equal(np.asarray(array), values)
    assert np.asarray(array, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.from_dlpack(array), values)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only get a copy"):
        array.__array__(copy=False)
    with pytest.raises(BufferError, match="only get a copy"):
        array.__dlpack__(copy=False)
    assert "DeviceArray(array([[" in repr(array)


def test_options_are_plain_numbers_or_numpys(device: dmlvk.Device) -> None:
    x = np.ones((2, 3), np.float32)
    for sizes in ((2, 3), [(2, 3)], np.array([2, 3]), list(np.array([2, 3]))):
        assert eager.element_wise_add(x, x, output_sizes=sizes, device=device).shape == (2, 3)
    for option in ({"output_sizes": 5}, {"output_sizes": "ab"}, {"output_sizes": (2.0, 3.0)}):
        with pytest.raises(dmlvk.InvalidArgumentError, match="output_sizes"):
            eager.element_wise_add(x, x, device=device, **option)
    for types in (99, "float32", np.float32, [None]):
        with pytest.raises(dmlvk.InvalidArgumentError, match="output_data_types"):
            eager.element_wise_add(x, x, output_data_types=types, device=device)


def test_an_index_is_an_integer(device: dmlvk.Device) -> None:
    array = DeviceArray.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    assert array[np.int64(1), np.array(2)].numpy() == 5
    for index in (1.5, "1", ["0"], np.array([0.5, 1])):
        with pytest.raises(TypeError):
            array[index]


def test_buffers_hold_no_python_objects(device: dmlvk.Device) -> None:
    buffer = device.create_buffer(64)
    for call in (
        lambda: buffer.write(np.array([object()])),
        lambda: buffer.read_into(np.empty(8, object)),
        lambda: buffer.write(memoryview(b"abcdef")[::2]),
        lambda: buffer.write([1, 2]),  # type: ignore[arg-type]
        lambda: device.create_buffer(1.5),  # type: ignore[arg-type]
        lambda: device.create_buffer(2**64),
    ):
        with pytest.raises(dmlvk.InvalidArgumentError):
            call()
