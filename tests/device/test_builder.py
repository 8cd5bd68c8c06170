"""Graphs written as expressions, beside numpy."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import Graph, InvalidArgumentError, StateError
from dmlvk.runtime.prepared_run import prepared_run
from dmlvk.runtime.recorder import Command, Recording

rng = np.random.default_rng(17)
F32, U32 = dmlvk.TensorDataType.FLOAT32, dmlvk.TensorDataType.UINT32


def normal(*sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes).astype(np.float32)


EXPRESSIONS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    # name: shapes of the inputs, an expression of them that numpy knows as well
    "sum": (((3, 5), (3, 5)), lambda a, b: a + b),
    "broadcast": (((4, 1, 5), (3, 1)), lambda a, b: a * b - b),
    "numbers": (((3, 5),), lambda a: 2 - a * 3 + 0.5),
    "a number divided": (((7,),), lambda a: 1 / (a + 10)),
    "an array": (((3, 5),), lambda a: np.arange(5, dtype=np.float32) + a),
    "negative": (((3, 5),), lambda a: -abs(a)),
    "square": (((3, 5),), lambda a: a**2),
    "remainder": (((3, 5),), lambda a: a % 0.75),
    "comparisons": (((3, 5), (5,)), lambda a, b: (a < b) + (a <= 0.5) * 2 + (a > b) * 4 + (a >= 0.25) * 8),
    "transpose": (((2, 3, 4), (4, 2)), lambda a, b: a.transpose(1, 2, 0) + b),
    "T": (((2, 3), (3, 2)), lambda a, b: a.T * b),
    "reshape": (((2, 6), (4,)), lambda a, b: a.reshape(3, -1) + b),
    "reshape of a transpose": (((2, 6), (4,)), lambda a, b: a.T.reshape(3, 4) + b),
    "a view is an output": (((2, 6),), lambda a: a.T),
    "product": (((3, 5), (5, 4)), lambda a, b: a @ b),
    "product of a transpose": (((5, 3), (4, 5)), lambda a, b: a.T @ b.T),
    "product of a vector": (((5,), (5, 4)), lambda a, b: a @ b),
    "product with a vector": (((2, 3, 5), (5,)), lambda a, b: a @ b),
    "product with arrays": (((3, 5),), lambda a: np.ones((2, 3), np.float32) @ (a @ np.eye(5, 4, dtype=np.float32))),
    "product of two vectors": (((5,), (5,)), lambda a, b: (a @ b).reshape(1)),
    "products": (((2, 1, 3, 5), (4, 5, 6)), lambda a, b: a @ b),
    "products of six dimensions": (((2, 1, 2, 3, 5), (2, 2, 1, 5, 6)), lambda a, b: a @ b),
    "affine": (((3, 5), (5, 4), (4,)), lambda a, b, c: a @ b + c),
}


@pytest.mark.parametrize("without", [(), ("all",)], ids=["passes", "no passes"])
@pytest.mark.parametrize("case", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_expressions_are_numpys(
    device: dmlvk.Device, case: tuple[tuple[tuple[int, ...], ...], Callable[..., Any]], without: tuple[str, ...]
) -> None:
    shapes, expression = case
    arrays = [normal(*shape) for shape in shapes]
    graph = Graph(device)
    function = graph.compile(expression(*(graph.input(shape) for shape in shapes)), without=without)
    wanted = expression(*arrays)
    found = function(*arrays).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.quick
def test_a_network(device: dmlvk.Device, count_dispatches: Callable[[], AbstractContextManager[Any]]) -> None:
    """Weights given once, bias and relu in the products, several runs, arrays that stay on the device."""
    graph = Graph(device)
    x = graph.input((6, 20))
    first = graph.input((20, 16), owned_by_dml=True)
    second = graph.input((16, 5), owned_by_dml=True)
    bias = normal(16)
    hidden = graph.activation_relu(x @ first + bias)
    function = graph.compile(graph.activation_softmax1(hidden @ second, axes=(1,)), hidden)
    weights = normal(20, 16), normal(16, 5) / 8  # powers of large differences would lose digits, whatever computes them
    image = normal(6, 20)
    with pytest.raises(InvalidArgumentError, match=r"^initialize\.weights: .*expected \[1, 2\], got \[1\]$"):
        function.initialize({first: weights[0]})
    function.initialize({first: weights[0], second: dmlvk.DeviceArray.from_numpy(weights[1], device)})
    with pytest.raises(StateError, match="initialised only once"):
        function.initialize({first: weights[0], second: weights[1]})
    wanted = np.maximum(image @ weights[0] + bias, 0)
    for given in (image, dmlvk.DeviceArray.from_numpy(image, device)):
        with count_dispatches() as counted:
            probabilities, activations = function(given)
        assert counted.dispatches == len(function.operator.plan.dispatches) == 3
        np.testing.assert_allclose(activations.numpy(), wanted, rtol=1e-5, atol=1e-5)
        exponents = np.exp(wanted @ weights[1] - (wanted @ weights[1]).max(axis=1, keepdims=True))
        np.testing.assert_allclose(probabilities.numpy(), exponents / exponents.sum(axis=1, keepdims=True), rtol=1e-5)


def test_what_is_not_asked_for_is_not_computed(device: dmlvk.Device) -> None:
    """Nodes that no output needs, outputs of needed nodes that nothing reads, and inputs that nothing needs."""
    graph = Graph(device)
    x, unused = graph.input((4, 8)), graph.input((3,))
    values, _ = graph.top_k1(x, axis=1, k=3, axis_direction=dmlvk.AxisDirection.DECREASING, output_data_types=(F32, U32))
    graph.element_wise_exp(unused)
    function = graph.compile(values + 1)
    array = normal(4, 8)
    found = function(array, np.zeros(3, np.float32)).numpy()
    np.testing.assert_array_equal(found, np.sort(array, axis=1)[:, :-4:-1] + 1)


def test_errors_name_what_is_wrong(device: dmlvk.Device) -> None:
    graph, other = Graph(device), Graph(device)
    x = graph.input((4, 8))
    with pytest.raises(StateError, match="an expression of this graph"):
        graph.activation_relu(other.input((2,)))
    with pytest.raises(StateError, match="one of another graph"):
        other.compile(x)
    with pytest.raises(InvalidArgumentError, match=r"shapes must broadcast together: .*; got \(\(4, 8\), \(3,\)\)$"):
        x + graph.input((3,))
    with pytest.raises(
        InvalidArgumentError,
        match=r"^matmul: of shapes \(4, 8\) and \(4, 8\), .* must have as many rows.*; expected 8, got 4$",
    ):
        x @ x
    with pytest.raises(InvalidArgumentError, match=r"must have the 32 elements of shape \(4, 8\); got \(5, -1\)$"):
        x.reshape(5, -1)
    with pytest.raises(
        InvalidArgumentError, match=r"transpose\.axes: must name each of the 2 dimensions once; got \(0, 0\)$"
    ):
        x.transpose(0, 0)
    with pytest.raises(InvalidArgumentError, match="at least one expression"):
        graph.compile()
    with pytest.raises(AttributeError, match="no operator 'frobnicate'"):
        graph.frobnicate(x)
    with pytest.raises(TypeError, match="no argument 'alpha'"):
        graph.activation_relu(x, alpha=1)
    graph = Graph(device)
    function = graph.compile(graph.input((4, 8)) + 1)
    with pytest.raises(InvalidArgumentError, match=r"input 0: .*; expected FLOAT32 \(4, 8\), got FLOAT32"):
        function(np.zeros((8, 4), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"input 0: .*; expected FLOAT32 \(4, 8\), got FLOAT16"):
        function(np.zeros((4, 8), np.float16))
    with pytest.raises(InvalidArgumentError, match=r"one array for each input.*; expected 1, got 0$"):
        function()
    np.testing.assert_array_equal(function(np.zeros((4, 8), np.float32)).numpy(), 1)


def test_methods_are_documented(device: dmlvk.Device) -> None:
    graph = Graph(device)
    assert "convolution" in dir(graph)
    own, eager = (owner.convolution.__doc__ or "" for owner in (graph, dmlvk.eager))
    assert own.partition("Args:")[0] == eager.partition("Args:")[0] and "name: The node's name" in own


@pytest.mark.quick
@pytest.mark.parametrize("on_device", [False, True], ids=["numpy", "on the device"])
def test_a_call_records_only_what_touches_its_own_memory(
    device: dmlvk.Device,
    monkeypatch: pytest.MonkeyPatch,
    count_dispatches: Callable[[], AbstractContextManager[Any]],
    on_device: bool,
) -> None:
    """A call of 300 steps in a row replays all but the first, which reads the input, and the last, which writes the output.
    Results of earlier calls stay as they are."""
    graph = Graph(device)
    y = graph.input((5,))
    for index in range(300):
        y = y - 1 if index % 2 else y + 1
    function = graph.compile(y, without=("all",))
    recorded: list[str] = []
    add = Recording.add

    def adding(self: Recording, commands: Sequence[Command]) -> None:
        recorded.extend(kernel for command in commands for _, kernel in command.labels)
        add(self, commands)

    monkeypatch.setattr(Recording, "add", adding)
    results = []
    for call in range(6):
        array = np.full(5, call, np.float32)
        recorded.clear()
        with count_dispatches() as counted:
            results.append(function(dmlvk.DeviceArray.from_numpy(array, device) if on_device else array))
        assert counted.dispatches == 300
        if call > 2:  # as many recordings as may be in flight
            assert len(recorded) == (2 if on_device else 1)
        device.wait_idle()
    for call, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), call)


def test_an_output_takes_memory_that_nobody_has_any_more(device: dmlvk.Device) -> None:
    """What a caller still has, or a view of it, is never written again; what it has dropped is, without new memory."""
    graph = Graph(device)
    x = graph.input((2, 300))
    function = graph.compile(x * 2 + 1)
    values = [normal(2, 300) for _ in range(7)]
    kept, view = function(values[0]), function(values[1])[1:]
    held = [function(value) for value in values[2:5]]
    for found, value in zip([kept, *held], [values[0], *values[2:5]], strict=True):
        np.testing.assert_array_equal(found.numpy(), value * 2 + 1)
    np.testing.assert_array_equal(view.numpy(), values[1][1:] * 2 + 1)
    del found, held
    before = device.memory()["live"]
    for value in values[5:]:
        np.testing.assert_array_equal(function(value).numpy(), value * 2 + 1)
        assert device.memory()["live"] == before
    y, wanted = function(values[0]), values[0] * 2 + 1
    for _ in range(4):  # each call reads the result of the one before
        y, wanted = function(y), wanted * 2 + 1
    np.testing.assert_array_equal(y.numpy(), wanted)
    np.testing.assert_array_equal(kept.numpy(), values[0] * 2 + 1)


def repeated(function: Any, *inputs: Any) -> None:
    """Calls that are read, until what they have in common is known."""
    for _ in range(4):
        function(*inputs).numpy()


@pytest.mark.quick
@pytest.mark.parametrize("fed", ["numpy", "both", "on the device"])
def test_a_caller_that_reads_gets_the_result_with_the_call(
    device: dmlvk.Device,
    monkeypatch: pytest.MonkeyPatch,
    count_dispatches: Callable[[], AbstractContextManager[Any]],
    fed: str,
) -> None:
    """In one submission, which the reading adds none to. For one that does not read nothing is copied to the host."""
    starts = 0

    class Counted:
        def __init__(self, *arguments: Any) -> None:
            native = prepared_run(*arguments)
            self._start, self.take = native.start, native.take

        def start(self, inputs: Any) -> bool:
            nonlocal starts
            starts += 1
            return self._start(inputs)

    monkeypatch.setattr("dmlvk.engine.callable_graph.prepared_run", Counted)
    graph = Graph(device)
    function = graph.compile(graph.input((2, 5)) * 2 + graph.input((5,)))
    values, row = normal(2, 5), normal(5)
    first = dmlvk.DeviceArray.from_numpy(values, device) if fed == "on the device" else values
    second = row if fed == "numpy" else dmlvk.DeviceArray.from_numpy(row, device)
    repeated(function, first, second)
    for turn in range(3):
        if fed != "on the device":
            values[:] = turn  # the same array, of other elements
        with count_dispatches() as counted:
            found = function(first, second).numpy()
        assert (counted.submissions, counted.dispatches) == (1, 1)
        np.testing.assert_array_equal(found, values * 2 + row)
    assert starts == 5
    for _ in range(3):
        with count_dispatches() as counted:
            unread = function(first, second)
        assert (counted.submissions, counted.dispatches) == (1, 1)
        assert starts == 6  # The first, because the call before was read.
    with count_dispatches() as counted:
        np.testing.assert_array_equal(unread.numpy(), values * 2 + row)
    assert counted.submissions == 1


def test_results_that_come_with_a_call_stay(device: dmlvk.Device) -> None:
    """Whether they are read at once, late, or twice, and whether the function is still there."""
    graph = Graph(device)
    function = graph.compile(graph.input((300,)) * 2 + 1)
    repeated(function, normal(300))
    values = [normal(300) for _ in range(12)]
    results = []
    for turn, value in enumerate(values):
        results.append(function(value))
        if turn % 3:
            np.testing.assert_array_equal(results[-1].numpy(), value * 2 + 1)
        if turn % 4 == 0:
            dropped = function(normal(300))
            dropped.numpy()
            del dropped
    for _ in range(2):
        for found, value in zip(results, values, strict=True):
            np.testing.assert_array_equal(found.numpy(), value * 2 + 1)
    repeated(function, values[0])
    last = [function(values[1]), function(values[2])]
    del function, graph
    for found, value in zip(last, values[1:3], strict=True):
        np.testing.assert_array_equal(found.numpy(), value * 2 + 1)


def test_kept_results_keep_no_memory_of_the_host(device: dmlvk.Device) -> None:
    graph = Graph(device)
    function = graph.compile(graph.input((300,)) + 1)
    values = [normal(300) for _ in range(8)]
    results, staging = [], []
    for value in values:
        repeated(function, value)
        results.append(function(value))
        staging.append(device.memory()["staging"])
    assert len(set(staging[2:])) == 1
    for found, value in zip(results, values, strict=True):
        np.testing.assert_array_equal(found.numpy(), value + 1)


def test_arrays_of_the_device_are_told_apart(device: dmlvk.Device) -> None:
    graph = Graph(device)
    function = graph.compile(graph.input((4,)) + 1)
    values = [normal(8) for _ in range(3)]
    arrays = [dmlvk.DeviceArray.from_numpy(value, device) for value in values]
    for array, value in zip(arrays, values, strict=True):
        for part in (slice(0, 4), slice(4, 8), slice(0, 4)):
            for _ in range(5):
                np.testing.assert_array_equal(function(array[part]).numpy(), value[part] + 1)
            np.testing.assert_array_equal(function(value[part]).numpy(), value[part] + 1)


def write_buffer(y: dmlvk.DeviceArray) -> None:
    y.buffer.write(np.full(6, 7, np.float32))


def write_again(y: dmlvk.DeviceArray) -> None:
    y.buffer.again().write(np.full(6, 7, np.float32))


def write_elements(y: dmlvk.DeviceArray) -> None:
    y[...] = 7.0


def write_view(y: dmlvk.DeviceArray) -> None:
    y[1:].reshape(5)[...] = 7.0
    y[0] = 7.0


def write_in_place(y: dmlvk.DeviceArray) -> None:
    y -= y
    y += 7.0


@pytest.mark.quick
@pytest.mark.parametrize("is_read_before", [False, True], ids=["unread", "read before"])
@pytest.mark.parametrize("write", [write_buffer, write_again, write_elements, write_view, write_in_place])
def test_a_result_that_is_written_has_what_was_written(
    device: dmlvk.Device, write: Callable[[dmlvk.DeviceArray], None], is_read_before: bool
) -> None:
    """Although the call brought to the host what it computed."""
    graph = Graph(device)
    function = graph.compile(graph.input((6,)) + 1)
    other = Graph(device)
    double = other.compile(other.input((6,)) * 2)
    ones = np.ones(6, np.float32)
    repeated(function, ones)
    for _ in range(3):
        y = function(ones)
        if is_read_before:
            np.testing.assert_array_equal(y.numpy(), 2)
        write(y)
        np.testing.assert_array_equal(y.numpy(), 7)
        passed_on = double(y)
        np.testing.assert_array_equal(y.numpy(), 7)
        np.testing.assert_array_equal(y[2:4].numpy(), 7)
        np.testing.assert_array_equal(passed_on.numpy(), 14)
        del y, passed_on
        np.testing.assert_array_equal(function(ones).numpy(), 2)


def test_parts_of_a_result_are_read(device: dmlvk.Device) -> None:
    graph = Graph(device)
    function = graph.compile(graph.input((3, 4)) + 1)
    x = normal(3, 4)
    repeated(function, x)
    y = function(x)
    np.testing.assert_array_equal(y[1:, 2].numpy(), (x + 1)[1:, 2])
    np.testing.assert_array_equal(y.T.numpy(), (x + 1).T)
    np.testing.assert_array_equal(y.buffer.read(8, 4).view(np.float32), (x + 1).ravel()[1:3])
    np.testing.assert_array_equal(y.buffer.read(0, 48), [])
    with pytest.raises(InvalidArgumentError, match="inside the buffer's 48 bytes"):
        y.buffer.read(8, 44)


def test_calls_of_several_kinds_take_turns(device: dmlvk.Device) -> None:
    """Inputs here and there, several outputs of which one is read or another, an input that is an output, and inputs that
    are large."""
    graph = Graph(device)
    a, b = graph.input((600_000,)), graph.input((600_000,))
    small = (a + b).reinterpret(sizes=(10,), strides=(1,)) * 2
    function = graph.compile(small, small - 1, without=("all",))
    arrays = [normal(600_000) for _ in range(4)]
    fed = [dmlvk.DeviceArray.from_numpy(array, device) for array in arrays]
    swapped = Graph(device)
    p, q = swapped.input((5,)), swapped.input((5,))
    difference = swapped.compile(p - q, p)
    rows = [normal(5) for _ in range(3)]
    lent = [dmlvk.DeviceArray.from_numpy(row, device) for row in rows]
    for turn in range(24):
        first = turn // 8 % 4
        one, two = function(fed[first] if turn % 3 == 0 else arrays[first], arrays[0])
        if turn % 4 != 1:
            np.testing.assert_array_equal(one.numpy(), (arrays[first] + arrays[0])[:10] * 2)
        if turn > 12:
            np.testing.assert_array_equal(two.numpy(), (arrays[first] + arrays[0])[:10] * 2 - 1)
        for left, right in ((rows[0], lent[1]), (lent[0], rows[1]), (rows[2], rows[0]), (lent[2], lent[1])):
            found, same = difference(left, right)
            wanted = [item if isinstance(item, np.ndarray) else item.numpy() for item in (left, right)]
            np.testing.assert_array_equal(found.numpy(), wanted[0] - wanted[1])
            np.testing.assert_array_equal(same.numpy(), wanted[0])


def test_threads_that_call_and_read_take_turns(device: dmlvk.Device) -> None:
    graph = Graph(device)
    function = graph.compile(graph.input((64,)) * 3)
    wrong: list[float] = []

    def work(thread: int) -> None:
        for turn in range(40):
            number = np.float32(thread * 100 + turn)
            found = function(np.full(64, number)).numpy()
            if np.any(found != number * 3):
                wrong.append(float(number))

    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    assert not wrong


def test_the_memory_of_large_outputs_is_given_back(device: dmlvk.Device) -> None:
    graph = Graph(device)
    function = graph.compile(graph.input((600_000,)) + 1)
    fed = dmlvk.DeviceArray.from_numpy(np.ones(600_000, np.float32), device)
    function(fed).numpy()
    before = device.memory()["live"]
    found = function(fed)
    assert device.memory()["live"] > before
    found.numpy()
    del found
    assert device.memory()["live"] == before


@pytest.mark.parametrize("without", [(), ("all",)], ids=["passes", "no passes"])
def test_bits_are_what_another_type_sees(device: dmlvk.Device, without: tuple[str, ...]) -> None:
    """Between pointwise operators, of a constant, and of an output."""
    x, y = normal(4, 6), normal(4, 6)
    graph = Graph(device)
    mask = graph.constant(np.full((4, 6), 0x7FFFFFFF, np.uint32))
    doubled = graph.input((4, 6)) * 2
    magnitude = graph.element_wise_bit_and(doubled.reinterpret(U32), mask).reinterpret(F32) + 1
    number = graph.constant(y).reinterpret(U32) + graph.constant(np.ones((4, 6), np.uint32))
    halves = doubled.reinterpret(dmlvk.TensorDataType.FLOAT16, (12, 4))
    function = graph.compile(magnitude, number, halves, without=without)
    first, second, third = (made.numpy() for made in function(x))
    np.testing.assert_array_equal(first, abs(x * 2) + 1)
    np.testing.assert_array_equal(second, y.view(np.uint32) + 1)
    np.testing.assert_array_equal(third.view(np.uint16), (x * 2).view(np.uint16).reshape(12, 4))


def test_a_view_of_other_strides_stays_within_its_memory(device: dmlvk.Device) -> None:
    graph = Graph(device)
    row = graph.input((3,)) + 1
    repeated = row.reinterpret(sizes=(2, 3), strides=(0, 1))
    np.testing.assert_array_equal(graph.compile(repeated)(np.arange(3, dtype=np.float32)).numpy(), [[1, 2, 3]] * 2)
    with pytest.raises(InvalidArgumentError, match="TotalTensorSizeInBytes"):
        row.reinterpret(sizes=(2, 3))


def test_whole_numbers_have_bits(device: dmlvk.Device) -> None:
    a, b = rng.integers(0, 2**32, (2, 7), dtype=np.uint32)

    def expression(a: Any, b: Any) -> Any:
        return ((a & b) ^ (~a | 0x55)) + (b >> 3) + (b << 2) + (0xF0F0 & b)

    graph = Graph(device)
    function = graph.compile(expression(graph.input((7,), U32), +graph.input((7,), U32)))
    np.testing.assert_array_equal(function(a, b).numpy(), expression(a, b))


@pytest.mark.parametrize("without", [(), ("all",)], ids=["passes", "no passes"])
def test_outputs_lie_as_the_policy_says(device: dmlvk.Device, without: tuple[str, ...]) -> None:
    """Between operators, and in what the function returns, views among it."""
    image, other = normal(2, 3, 4, 5), normal(2, 3, 4, 5)
    graph = Graph(device, dmlvk.TensorPolicy.interleaved_channel())
    x, y = graph.input(image.shape), graph.input(image.shape)
    total = x + y
    halves = graph.split(total, axis=1, output_sizes=[(2, 1, 4, 5), (2, 2, 4, 5)])
    assert total.desc.strides == (60, 1, 15, 3) and halves[1].desc.strides == (40, 1, 10, 2)
    graph.tensor_policy = dmlvk.TensorPolicy.default()
    largest = graph.reduce(total, function=dmlvk.ReduceFunction.MAX, axes=(1,))
    graph.tensor_policy = dmlvk.TensorPolicy.interleaved_channel()
    results = graph.compile(total, halves[1], largest, x.transpose(0, 1, 3, 2), without=without)(image, other)
    wanted = image + other
    for made, numbers in zip(
        results, (wanted, wanted[:, 1:], wanted.max(1, keepdims=True), image.swapaxes(2, 3)), strict=True
    ):
        np.testing.assert_array_equal(made.numpy(), numbers)
    assert results[0].desc.strides == (60, 1, 15, 3)


def test_names_have_scopes(device: dmlvk.Device) -> None:
    graph = Graph(device)
    x = graph.input((3,))
    with graph.name_scope("encoder"), graph.name_scope("first"):
        x = graph.element_wise_abs(x, name="size") + 1
    x = graph.element_wise_exp(x, name="last")
    names = [node.name for node in graph._nodes if isinstance(node, dmlvk.OperatorGraphNodeDesc)]
    assert names == ["encoder_first_size", "encoder_first", "last"]
