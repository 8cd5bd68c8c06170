"""What the runner's cases cannot show of the pointwise operators: second oracles, dense accuracy, large grids, fusion."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import eager
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc, ScaleBias
from dmlvk.spec.tensor import TensorDesc, TensorLayout, calculate_strides
from dmlvk.verify.cases.elementwise import FUSABLE
from dmlvk.verify.cases.model import generator
from dmlvk.verify.check import ReadyOperator, ulp_errors
from dmlvk.verify.oracle import snake_case
from dmlvk.verify.oracle.activation import activated, error_function

Array = NDArray[Any]
COUNT = 1 << 16


def run(operator: type[OperatorDesc], *arrays: Array, **attributes: object) -> Array:
    return np.asarray(getattr(eager, snake_case(operator.__name__))(*arrays, **attributes))


def any_bits(*key: object) -> Array:
    """float32 values of every size, with infinities, NaN and subnormals among them."""
    bits = generator(*key).integers(0, 2**32, COUNT, dtype=np.uint32)
    bits[:64] &= np.uint32(0x807FFFFF)
    return bits.view(np.float32)


def same_bits(actual: Array, expected: Array) -> bool:
    """Whether all bits agree, the sign of 0 included; any NaN equals any NaN."""
    kind = f"u{actual.dtype.itemsize}"
    return bool(np.all((actual.view(kind) == expected.view(kind)) | (np.isnan(actual) & np.isnan(expected))))


def test_the_truncated_modulus_is_exact_for_any_two_floats(device: dmlvk.Device) -> None:
    a, b = any_bits("a"), any_bits("b")
    with np.errstate(all="ignore"):
        assert same_bits(run(ops.ElementWiseModulusTruncate, a, b), np.fmod(a, b))


def test_the_floored_modulus_is_numpys_to_the_last_bit(device: dmlvk.Device) -> None:
    a, b = any_bits("a"), any_bits("b")
    normal = np.isnan(a) | np.isnan(b) | ((np.abs(a) >= 2.0**-100) & (np.abs(b) >= 2.0**-100))
    a, b = a[normal], b[normal]  # b - rest must not be subnormal: Vulkan lets a device flush that
    with np.errstate(all="ignore"):
        assert same_bits(run(ops.ElementWiseModulusFloor, a, b), np.mod(a, b))


@pytest.mark.parametrize(("a", "b"), [(5, 3), (-5, 3), (5, -3), (-5, -3), (6, 3), (-6, 3), (0, -3), (-(2**31), -1)])
def test_the_floored_modulus_is_pythons(device: dmlvk.Device, a: int, b: int) -> None:
    assert run(ops.ElementWiseModulusFloor, np.array([a], np.int32), np.array([b], np.int32))[0] == a % b
    result = float(run(ops.ElementWiseModulusFloor, np.array([a], np.float32), np.array([b], np.float32))[0])
    assert (result, math.copysign(1, result)) == (a % b, math.copysign(1, b))


def test_moduli_agree_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    rng = generator("torch")
    a, b = (rng.standard_normal(COUNT, np.float32) for _ in range(2))
    expected = torch.remainder(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert np.array_equal(run(ops.ElementWiseModulusFloor, a, b), expected)
    i, j = (rng.integers(-(2**63), 2**63 - 1, COUNT) >> rng.integers(0, 60, COUNT) for _ in range(2))
    j[j == 0] = 1
    expected = torch.remainder(torch.from_numpy(i), torch.from_numpy(j)).numpy()
    assert np.array_equal(run(ops.ElementWiseModulusFloor, i, j), expected)


SPREAD = np.concatenate([np.linspace(-60, 60, COUNT), np.geomspace(1e-30, 60, COUNT), -np.geomspace(1e-30, 60, COUNT)])


@pytest.mark.parametrize(
    ("operator", "function", "limit"),
    [
        (ops.ElementWiseExp, np.exp, 2),
        (ops.ElementWiseLog, np.log, 2),
        (ops.ElementWiseTanh, np.tanh, 5),
        (ops.ElementWiseErf, error_function, 5),
        (ops.ActivationGelu, None, 10),
        (ops.ActivationSigmoid, None, 5),
        (ops.ActivationSoftplus, None, 5),
        (ops.ActivationElu, None, 3),
    ],
)
def test_accuracy_over_the_whole_range(
    device: dmlvk.Device, operator: type[OperatorDesc], function: Callable[[Array], Array] | None, limit: float
) -> None:
    x = SPREAD.astype(np.float32)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        expected = function(wide) if function else activated(operator(), wide)
    errors = ulp_errors(run(operator, x), expected, 2.0**24 * float(np.finfo(np.float32).tiny))
    assert errors.max() <= limit, x[errors.argmax()]


@pytest.mark.parametrize("activation", FUSABLE, ids=lambda activation: type(activation).__name__)
def test_fused_is_unfused(device: dmlvk.Device, activation: OperatorDesc) -> None:
    rng = generator("fused")
    a, b = (rng.standard_normal((17, 61), np.float32) * 4 for _ in range(2))
    numbers = {field.name: getattr(activation, field.name) for field in activation.fields if not field.kind.is_tensor}
    unfused = run(type(activation), run(ops.ElementWiseAdd, a, b), **numbers)
    assert same_bits(run(ops.ElementWiseAdd1, a, b, fused_activation=activation), unfused)


def test_more_workgroups_than_one_grid_dimension_has(device: dmlvk.Device) -> None:
    count = 65535 * device.capabilities.workgroup_invocations + 77
    x = generator("large").integers(0, 255, 2 * count, np.uint8)[::2]  # strided, so one element an invocation
    assert np.array_equal(run(ops.ElementWiseIdentity, x), x)


def any_bytes(kind: str, sizes: tuple[int, ...]) -> Array:
    """Elements of any bits."""
    *outer, inner = sizes
    width = np.dtype(kind).itemsize
    return generator("bytes", kind).integers(0, 256, (*outer, inner * width), np.uint8).view(kind)


def forced(device: dmlvk.Device, rule: str, operator: type[OperatorDesc], x: Array, **attributes: object) -> Array:
    """A unary operator from an array of any strides to a packed one, by the given rule."""
    kind = data_type_of(x.dtype)
    source = TensorDesc(kind, x.shape, tuple(step // x.itemsize for step in x.strides))
    target = TensorDesc(kind, x.shape)
    desc = operator(input_tensor=source, output_tensor=target, **attributes)
    nbytes = [tensor.total_tensor_size_in_bytes for tensor in (source, target)]
    buffers = [device.create_buffer(count) for count in nbytes]
    data = np.zeros(nbytes[0], np.uint8)
    last = sum((size - 1) * step for size, step in zip(x.shape, x.strides, strict=True))
    span = np.lib.stride_tricks.as_strided(x, (last // x.itemsize + 1,), (x.itemsize,))
    data.view(x.dtype)[: span.size] = span
    buffers[0].write(data)
    commands = device.create_command_list()
    bindings = [BufferBinding(buffer, 0, count) for buffer, count in zip(buffers, nbytes, strict=True)]
    ReadyOperator(device, desc, rule).record(commands, bindings[:1], bindings[1:])
    device.execute(commands)
    result = buffers[1].read()
    return result.view(x.dtype)[: x.size].reshape(x.shape)


@pytest.mark.parametrize("rule", ["tiles", "units"])
@pytest.mark.parametrize("kind", ["u1", "f2", "f4", "i8", "f8"])
@pytest.mark.parametrize(
    ("sizes", "order"),
    [((67, 35), (1, 0)), ((2, 5, 7, 33), (0, 3, 1, 2)), ((3, 34, 2, 65), (2, 3, 0, 1)), ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0))],
)
def test_transposes(device: dmlvk.Device, rule: str, kind: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
    if kind in ("i8", "f8") and rule == "tiles":
        operator, attributes = ops.ElementWiseIdentity, {"scale_bias": ScaleBias(1.0, 0.0)}  # not a copy of 32-bit halves
    else:
        operator, attributes = ops.ElementWiseIdentity, {}
    x = generator("transpose").integers(0, 100, sizes).astype(kind).transpose(order)
    assert np.array_equal(forced(device, rule, operator, x, **attributes), x)


@pytest.mark.parametrize(
    ("kind", "channels", "pixels"),
    crossed(["u1", "f2", "f4", "i8"], [3, 4, 1, 2, 5, 16], [(7, 12), (6, 7), (5, 7), (33, 64)], each_value_once=True),
)
def test_channels_first_and_last(device: dmlvk.Device, kind: str, channels: int, pixels: tuple[int, int]) -> None:
    """Pixels of 3, 8, 4, 16, 5 and 32 bytes, and more of them than a workgroup has invocations."""
    height, width = pixels
    first = any_bytes(kind, (2, channels, height, width))
    last = np.ascontiguousarray(first.transpose(0, 2, 3, 1))
    for wanted, x in ((first, last.transpose(0, 3, 1, 2)), (last, first.transpose(0, 2, 3, 1))):
        kind_of_x = data_type_of(x.dtype)
        source = TensorDesc(kind_of_x, x.shape, tuple(step // x.itemsize for step in x.strides))
        desc = ops.ElementWiseIdentity(input_tensor=source, output_tensor=TensorDesc(kind_of_x, x.shape))
        rules = possible_rules(desc, device.capabilities)
        assert ({"strips", "strips_shared"} <= set(rules)) == (channels > 1)
        for rule in rules:
            assert np.array_equal(forced(device, rule, ops.ElementWiseIdentity, x).view("u1"), wanted.view("u1")), rule


@pytest.mark.parametrize("order", [(7, 6, 5, 4, 3, 2, 1, 0), (1, 0, 3, 2, 5, 4, 7, 6)])
def test_eight_dimensions_that_do_not_merge(device: dmlvk.Device, order: tuple[int, ...]) -> None:
    x = generator("eight").integers(-(2**60), 2**60, (2,) * 8, np.int64).transpose(order)
    assert np.array_equal(forced(device, "units", ops.ElementWiseIdentity, x), x)


@pytest.mark.parametrize(
    ("kind", "image", "odd"),
    crossed(
        *(["u1", "f2", "f4", "i8"], [(9, 15, 70), (8, 16, 64), (1, 33, 5), (13, 31, 130)], ["a", "b", "output"]),
        each_value_once=True,
    ),
)
def test_operands_of_two_layouts(device: dmlvk.Device, kind: str, image: tuple[int, int, int], odd: str) -> None:
    """One of the three tensors is NHWC, the others are NCHW, or the other way round; through tiles and by elements."""
    height, width, channels = image
    rng = generator("layouts", odd)
    sizes = (2, channels, height, width)
    a, b = (rng.integers(0, 100, sizes).astype(kind) for _ in range(2))
    data_type = data_type_of(a.dtype)
    results = []
    for most in (TensorLayout.NCHW, TensorLayout.NHWC):
        other = TensorLayout.NHWC if most is TensorLayout.NCHW else TensorLayout.NCHW
        layouts = {name: other if name == odd else most for name in ("a", "b", "output")}
        descs = {name: TensorDesc(data_type, sizes, calculate_strides(layout, sizes)) for name, layout in layouts.items()}
        desc = ops.ElementWiseSubtract(a_tensor=descs["a"], b_tensor=descs["b"], output_tensor=descs["output"])
        for rule in possible_rules(desc, device.capabilities):
            buffers = {name: device.create_buffer(tensor.total_tensor_size_in_bytes) for name, tensor in descs.items()}
            for name, values in (("a", a), ("b", b)):
                in_memory = values.transpose(0, 2, 3, 1) if layouts[name] is TensorLayout.NHWC else values
                data = np.zeros(descs[name].total_tensor_size_in_bytes, np.uint8)
                data[: values.nbytes] = np.ascontiguousarray(in_memory).view(np.uint8).ravel()
                buffers[name].write(data)
            commands = device.create_command_list()
            bound = {name: BufferBinding(buffer) for name, buffer in buffers.items()}
            ReadyOperator(device, desc, rule).record(commands, [bound["a"], bound["b"]], [bound["output"]])
            device.execute(commands)
            found = buffers["output"].read()[: a.nbytes].view(kind)
            if layouts["output"] is TensorLayout.NHWC:
                found = found.reshape(2, height, width, channels).transpose(0, 3, 1, 2)
            results.append(rule)
            assert np.array_equal(found.reshape(sizes), a - b), (most, rule)
    assert "tiles" in results


def test_tiles_compute_as_elements_do(device: dmlvk.Device) -> None:
    x = generator("tiles").standard_normal((40, 50), np.float32).T
    tiles, elements = (forced(device, rule, ops.ActivationLinear, x, alpha=1.5, beta=0.25) for rule in ("tiles", "elements"))
    assert np.array_equal(tiles, elements)


def test_rows_with_gaps_move_as_words(device: dmlvk.Device) -> None:
    a = generator("rows").standard_normal((5, 32), np.float32)[:, :27]
    b = np.broadcast_to(np.float32([[1], [2], [3], [4], [5]]), a.shape)
    assert np.array_equal(run(ops.ElementWiseMultiply, a, b), a * b)
