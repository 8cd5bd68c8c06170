"""What the runner's cases cannot show of quantization: exact roundings over many values, the bytes of 4-bit tensors, and
ONNX Runtime as a second oracle."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dmlvk
from dmlvk import QuantizationType, TensorDataType, TensorDesc, eager
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import generator
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run

Array = NDArray[Any]
COUNT = 1 << 16
TINY = np.finfo(np.float32).tiny
FLOAT32, INT4, UINT4, UINT8 = (TensorDataType[name] for name in ("FLOAT32", "INT4", "UINT4", "UINT8"))


def divided(x: Array, scale: Array, zero_point: Array | int, least: int, most: int) -> Array:
    with np.errstate(all="ignore"):
        rounded = np.rint(x / scale).astype(np.float64)
    return np.clip(np.where(np.isnan(rounded), 0, rounded) + zero_point, least, most)


@pytest.mark.parametrize("exponents", [(-3, 3), (-100, 100), (-125, 118)], ids=str)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_every_half_is_rounded_as_in_float32(device: dmlvk.Device, exponents: tuple[int, int], kind: type) -> None:
    """Quotients in the middle of two integers, and next to it: the float32 quotient decides, not the exact one."""
    rng = generator("halves", exponents)
    scale = np.ldexp(1 + rng.random(COUNT), rng.integers(*exponents, COUNT)).astype(np.float32)
    scale *= rng.choice(np.float32([-1, 1]), COUNT)
    zero_point = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, COUNT, endpoint=True).astype(kind)
    exact = (scale.astype(np.float64) * (rng.integers(-300, 300, COUNT) + 0.5)).astype(np.float32)
    x = (exact.view(np.int32) + rng.integers(-3, 4, COUNT, np.int32)).view(np.float32)
    x[~(np.isfinite(x) & (np.abs(x) >= TINY))] = 1
    assert np.count_nonzero(np.rint(x.astype(np.float64) / scale) != np.rint(x / scale)) > COUNT // 100, "a hard test"
    expected = divided(x, scale, zero_point.astype(np.float64), np.iinfo(kind).min, np.iinfo(kind).max)
    assert np.array_equal(eager.element_wise_quantize_linear(x, scale, zero_point), expected)


def test_any_bits_quantize(device: dmlvk.Device) -> None:
    rng = generator("any bits")
    x, scale = (rng.integers(0, 2**32, COUNT, dtype=np.uint32).view(np.float32) for _ in range(2))
    for values in (x, scale):
        values[np.abs(values) < TINY] = 0  # Vulkan lets a device flush subnormals
    zero_point = rng.integers(0, 256, COUNT).astype(np.uint8)
    expected = divided(x, scale, zero_point.astype(np.float64), 0, 255)
    assert np.array_equal(eager.element_wise_quantize_linear(x, scale, zero_point), expected)


def test_no_scale_is_a_crash(device: dmlvk.Device) -> None:
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    x = np.float32([nan, inf, -inf, 0, 5, -5, 5, 5, inf, 5])
    scale = np.float32([1, 1, 1, 0, 0, 0, nan, inf, inf, -0.0])
    zero_point = np.full(10, 3, np.int8)
    expected = [3, 127, -128, 3, 127, -128, 3, 3, 3, -128]
    assert eager.element_wise_quantize_linear(x, scale, zero_point).tolist() == expected


def test_differences_of_32_bits_are_exact(device: dmlvk.Device) -> None:
    x = np.int32([2**31 - 1, -(2**31), 2**31 - 1, 16777217, -5])
    zero_point = np.int32([-(2**31), 2**31 - 1, 2**31 - 3, 16777216, -5])
    ones = np.ones(5, np.float32)
    assert eager.element_wise_dequantize_linear(x, ones, zero_point).tolist() == [2.0**32, -(2.0**32), 2, 1, 0]
    x, zero_point = np.uint32([2**32 - 1, 0, 7]), np.uint32([0, 2**32 - 1, 9])
    assert eager.element_wise_dequantize_linear(x, ones[:3], zero_point).tolist() == [2.0**32, -(2.0**32), -2]


@pytest.mark.parametrize(("step", "integer"), crossed([1, 2], [INT4, UINT8]))
def test_several_items_an_invocation(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, step: int, integer: TensorDataType
) -> None:
    """An invocation takes two groups, or four elements, as on a GPU."""
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=False))
    sizes = (7, 149803)
    data = TensorDesc(FLOAT32, sizes), TensorDesc(integer, sizes, (step * sizes[1], step))
    blocks = TensorDesc(FLOAT32, (7, 1)), TensorDesc(integer, (7, 1))
    x = generator("items").uniform(-30, 30, sizes).astype(np.float32)
    scale = np.float32([[1], [0.5], [2], [4], [0.25], [3], [0.1]])
    zero_point = np.arange(7)[:, None]
    output, raw = computed(device, quantization(dmlvk.Quantize, *data, *blocks), x, scale, zero_point)
    expected = divided(x, scale, zero_point, -8 if integer == INT4 else 0, 7 if integer == INT4 else 255)
    assert np.array_equal(output.view(raw), expected)
    output, raw = computed(device, quantization(dmlvk.Dequantize, *reversed(data), *blocks), expected, scale, zero_point)
    assert np.array_equal(output.view(raw), np.float32(expected - zero_point) * scale)


# -- the scale from the elements


def dynamically(x: Array, integer: TensorDataType = UINT8) -> list[Array]:
    """The output, the scale and the zero point."""
    return list(eager.dynamic_quantize_linear(x, output_data_types=(integer, FLOAT32, integer)))


def ranges(count: int) -> list[Array]:
    """Elements of ranges of every size and on every side of 0, some of them halves of the scale apart."""
    rng = generator("ranges")
    found = []
    for number in range(count):
        size = np.ldexp(1 + rng.random(), rng.integers(-110, 120))
        middle = rng.choice([0, 0.5, 1, -0.5, -1, 3, 0.99, rng.uniform(-1, 1)])
        x = size * (middle + rng.uniform(-1, 1, 61))
        low, high = min(x.min(), 0), max(x.max(), 0)
        x[::3] = np.clip(low + (high - low) * (rng.integers(0, 255, 21) + 0.5) / 255, x.min(), x.max())
        if number % 5 == 0:  # from and to integers: a zero point that is exact, or half an integer
            x = np.r_[rng.integers(-255, 1, 40) / 2, rng.integers(0, 256, 21) / 2, (number % 16) / 2 - 127.5, 0]
        found.append(x.astype(np.float32)[:61])
    return found


@pytest.mark.parametrize("second", ["onnx", "onnxruntime"])
def test_ranges_agree_with_onnx(device: dmlvk.Device, second: str) -> None:
    """Bit for bit: the integers, the scale and the zero point."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero_point"])
    declared = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    types = {"y": TensorProto.UINT8, "scale": TensorProto.FLOAT, "zero_point": TensorProto.UINT8}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    graph = helper.make_graph([node], "dynamic", declared, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session: Any = (
        onnx.reference.ReferenceEvaluator(model)
        if second == "onnx"
        else onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    )
    zero_points = set()
    for x in ranges(200):
        expected = session.run(None, {"x": x})
        for mine, theirs in zip(dynamically(x), expected, strict=True):
            assert np.array_equal(mine.ravel(), np.ravel(theirs)), (x.min(), x.max())
        zero_points.add(int(expected[2]))
    assert len(zero_points) > 50 and {0, 255} <= zero_points


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_signed_integers_are_128_less(device: dmlvk.Device, kind: type) -> None:
    for x in ranges(20):
        x = (x / np.abs(x).max()).astype(kind)
        (unsigned, scale, zero_point), signed = dynamically(x), dynamically(x, TensorDataType.INT8)
        assert np.array_equal(signed[0].astype(int) + 128, unsigned)
        assert signed[1] == scale and signed[2].astype(int) + 128 == zero_point
        least, largest = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
        assert scale == (largest - least) / np.float32(255)


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ((1, np.nan, -2), np.nan),
        ((-np.inf, np.nan, np.inf), np.nan),
        ((1, np.inf, -2), np.inf),
        ((1, -np.inf, -2), np.inf),
        ((3e38, 0, -3e38), np.inf),
        ((0, -0.0, 0), 1),
        ((1e-40, -1e-40, 0), 1),
        ((2.0**-119, 0, -(2.0**-120)), 1),
        ((2.0**-118, 0, 0), 2.0**-118 / 255),
        ((2.0**-118, 0, -1e-39), 2.0**-118 / 255),
        ((3.4028235e38, 0, 0), 3.4028235e38 / 255),
    ],
    ids=str,
)
def test_ranges_without_a_usual_scale(device: dmlvk.Device, values: tuple[float, ...], scale: float) -> None:
    for integer, least in ((UINT8, 0), (TensorDataType.INT8, -128)):
        y, found, zero_point = dynamically(np.float32(values), integer)
        assert np.array_equal(found, np.float32([scale]), equal_nan=True)
        assert zero_point == least
        usual = np.isfinite(scale) and scale != 1
        assert y.tolist() == [least + 255 if usual and value > 0 else least for value in values]


@pytest.mark.parametrize("sizes", [(1,), (7,), (1031,), (40, 1031), (300007,)])
@pytest.mark.parametrize("step", [1, 2])
def test_the_range_is_that_of_every_element(device: dmlvk.Device, sizes: tuple[int, ...], step: int) -> None:
    """Wherever the ends are: in the first, the last and other elements, whatever the chunks."""
    memory = np.zeros((*sizes[:-1], sizes[-1] * step), np.float32)
    x = memory[..., ::step]
    for at in {0, x.size - 1, x.size // 2, x.size // 3}:
        x[...] = 0.25
        x[np.unravel_index(at, sizes)] = 510
        assert dynamically(x)[1] == 2
        x[np.unravel_index(at, sizes)] = -255
        assert dynamically(x)[1] == np.float32(255 + 0.25 * (x.size > 1)) / np.float32(255)


# -- 4 bits


def quantization(operator: type[OperatorDesc], source: TensorDesc, target: TensorDesc, *tensors: TensorDesc) -> OperatorDesc:
    kind = QuantizationType.SCALE if len(tensors) == 1 else QuantizationType.SCALE_ZERO_POINT
    return operator(input_tensor=source, quantization_type=kind, quantization_tensors=tensors, output_tensor=target)


def computed(device: dmlvk.Device, desc: OperatorDesc, *values: Array) -> tuple[GuardedTensor, NDArray[np.uint8]]:
    """The output's tensor and its buffer after running the desc on the values."""
    inputs = tuple(GuardedTensor(slot.tensor, 0) for slot in desc.input_slots() if slot.tensor is not None)
    for tensor, value in zip(inputs, values, strict=True):
        tensor.view()[...] = value
    (target,) = desc.output_slots()
    assert target.tensor is not None
    output = GuardedTensor(target.tensor, 0)
    (data,), dispatches, _ = run(device, Problem(desc, inputs, (output,)))
    assert data is not None and dispatches == 1
    assert output.stray_bytes(data) == 0
    return output, data


def test_the_low_half_of_a_byte_comes_first(device: dmlvk.Device) -> None:
    one = TensorDesc(FLOAT32, (1,))
    desc = quantization(dmlvk.Quantize, TensorDesc(FLOAT32, (5,)), TensorDesc(INT4, (5,)), one)
    output, data = computed(device, desc, np.float32([1, -1, 7, -8, 2]), np.float32([1]))
    assert data[output.offset : output.offset + 2].tolist() == [0xF1, 0x87]
    assert data[output.offset + 2] & 15 == 2

    desc = quantization(dmlvk.Dequantize, TensorDesc(UINT4, (4,)), TensorDesc(FLOAT32, (4,)), one)
    source = GuardedTensor(TensorDesc(UINT4, (4,)), 0)
    source.view()[...] = [1, 2, 3, 15]
    assert source.data[source.offset : source.offset + 2].tolist() == [0x21, 0xF3]
    output, data = computed(device, desc, np.uint8([1, 2, 3, 15]), np.float32([0.5]))
    assert output.view(data).tolist() == [0.5, 1, 1.5, 7.5]


@pytest.mark.parametrize("count", [*range(1, 19), 255, 256, 257])
def test_any_number_of_halves_of_bytes(device: dmlvk.Device, count: int) -> None:
    x = generator("halves of bytes", count).integers(-9, 9, count).astype(np.float32)
    desc = quantization(dmlvk.Quantize, TensorDesc(FLOAT32, (count,)), TensorDesc(INT4, (count,)), TensorDesc(FLOAT32, (1,)))
    output, data = computed(device, desc, x, np.float32([1]))
    assert np.array_equal(output.view(data), np.clip(x, -8, 7))


@pytest.mark.parametrize(
    ("sizes", "strides"), [((3, 5), (5, 1)), ((3, 5), (7, 1)), ((5, 3), (1, 6)), ((2, 3, 4), (1, 9, 2)), ((7,), (3,))]
)
def test_halves_of_bytes_with_gaps(device: dmlvk.Device, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) % 16
    one = TensorDesc(FLOAT32, (1,) * len(sizes))
    desc = quantization(dmlvk.Quantize, TensorDesc(FLOAT32, sizes), TensorDesc(UINT4, sizes, strides), one)
    output, data = computed(device, desc, x, np.float32(1))
    assert np.array_equal(output.view(data), x)
    desc = quantization(dmlvk.Dequantize, TensorDesc(UINT4, sizes, strides), TensorDesc(FLOAT32, sizes), one)
    output, data = computed(device, desc, x, np.float32(1))
    assert np.array_equal(output.view(data), x)


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((2, 3), (3, 2)), ((3, 2), (2, 3)), ((2, 2, 2), (5, 4, 7)), ((63, 64), (64, 63)), ((7, 64, 9), (3, 147, 16))],
)
def test_halves_of_bytes_that_interleave(device: dmlvk.Device, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Elements between each other's in memory: many invocations change one word, and gaps keep their bits."""
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) * 7 % 16
    target, one = TensorDesc(UINT4, sizes, strides), TensorDesc(FLOAT32, (1,) * len(sizes))
    assert not target.has_overlapping_elements
    output, data = computed(device, quantization(dmlvk.Quantize, TensorDesc(FLOAT32, sizes), target, one), x, np.float32(1))
    assert np.array_equal(output.view(data), x)


def test_halves_of_bytes_are_bytes_in_numpy(device: dmlvk.Device) -> None:
    x, scale = np.float32([[1, -1, 7], [-9, 2, 3]]), np.float32([[1]])
    expected = np.int8([[1, -1, 7], [-8, 2, 3]])
    to_4_bits: dict[str, Any] = {"quantization_type": QuantizationType.SCALE, "output_data_types": INT4}
    result = eager.quantize(x, (scale,), **to_4_bits)
    assert result.dtype == np.int8 and np.array_equal(result, expected)
    on_device = eager.quantize(dmlvk.DeviceArray.from_numpy(x), (scale,), **to_4_bits)
    assert on_device.data_type == INT4 and np.array_equal(on_device.numpy(), expected)
    back = eager.dequantize(on_device, (scale,), quantization_type=QuantizationType.SCALE)
    assert back.dtype == np.float32 and np.array_equal(back.numpy(), expected)
    with pytest.raises(dmlvk.InvalidArgumentError, match="whole byte"):
        on_device[:, 1:]


@pytest.mark.parametrize("data_type", [INT4, UINT4], ids=lambda data_type: data_type.name)
def test_numpy_becomes_halves_of_bytes(device: dmlvk.Device, data_type: TensorDataType) -> None:
    low = -8 if data_type == INT4 else 0
    values = np.arange(low, low + 16, dtype=np.int8 if low else np.uint8)[:15].reshape(3, 5)
    array = dmlvk.DeviceArray.from_numpy(values.T, data_type=data_type)
    assert np.array_equal(array.numpy(), values.T)
    assert np.array_equal(array[2:].numpy(), values.T[2:]), "a whole number of bytes further"
    result = eager.dequantize(array, (np.float32([[0.5]]),), quantization_type=QuantizationType.SCALE)
    assert np.array_equal(result.numpy(), values.T * 0.5)
    for wrong in (values + 2, values.astype(np.int16)):
        with pytest.raises(dmlvk.InvalidArgumentError, match="numbers from"):
            dmlvk.DeviceArray.from_numpy(wrong, data_type=data_type)
    with pytest.raises(dmlvk.InvalidArgumentError, match="the array's own"):
        dmlvk.DeviceArray.from_numpy(values, data_type=FLOAT32)


# -- a second oracle


def onnx_runtime(node: onnx.NodeProto, kind: int, inputs: dict[str, Array], integers: dict[str, Array]) -> Array:
    """What ONNX Runtime's CPU makes of a node whose output is y: ``integers`` are constants of the given kind."""
    operands = [helper.make_tensor(name, kind, array.shape, array.ravel().tolist()) for name, array in integers.items()]
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    declared = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in inputs.items()]
    # numpy has no 4-bit types, which onnxruntime returns as bytes if told to.
    cast = helper.make_node("Cast", ["y"], ["numbers"], to=TensorProto.FLOAT)
    output = helper.make_tensor_value_info("numbers", TensorProto.FLOAT, None)
    graph = helper.make_graph([node, cast], "quantization", declared, [output], operands)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, inputs)[0]
    return result


@pytest.mark.parametrize(("kind", "integer"), crossed([np.float32, np.float16], [INT4, UINT4, TensorDataType.INT8, UINT8]))
def test_blocks_agree_with_onnx_runtime(device: dmlvk.Device, kind: type, integer: TensorDataType) -> None:
    rng = generator("onnx runtime", kind, integer)
    x = (3 * rng.standard_normal((12, 7))).astype(kind)
    scale = rng.choice(np.array([0.1, 0.25, 0.3], kind), (3, 7))
    zero_point = rng.integers(0, 8, (3, 7))
    real = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    names, code = ["x", "scale", "zero_point"], TensorProto.DataType.Value(integer.name)
    blocks = [TensorDesc(dmlvk.engine.numpy_types.data_type_of(kind), (3, 7)), TensorDesc(integer, (3, 7))]
    data = TensorDesc(blocks[0].data_type, x.shape), TensorDesc(integer, x.shape)

    node = helper.make_node("QuantizeLinear", names, ["y"], axis=0, block_size=4)
    expected = onnx_runtime(node, code, {"x": x, "scale": scale}, {"zero_point": zero_point})
    output, raw = computed(device, quantization(dmlvk.Quantize, *data, *blocks), x, scale, zero_point)
    quantized = np.array(output.view(raw))
    assert np.array_equal(quantized, expected)

    node = helper.make_node("DequantizeLinear", names, ["y"], axis=0, block_size=4)
    expected = onnx_runtime(node, code, {"scale": scale}, {"x": quantized, "zero_point": zero_point})
    desc = quantization(dmlvk.Dequantize, *reversed(data), *blocks)
    output, raw = computed(device, desc, quantized, scale, zero_point)
    assert real and np.array_equal(output.view(raw).astype(np.float32), expected)


def test_quantized_sums_agree_with_onnx_runtime(device: dmlvk.Device) -> None:
    rng = generator("sums")
    a, b = (rng.integers(0, 256, 4096).astype(np.uint8) for _ in range(2))
    scales = [np.float32([value]) for value in (0.1, 0.07, 0.15)]
    zero_points = [np.uint8([value]) for value in (128, 3, 100)]
    operands = {"a": a, "as": scales[0], "az": zero_points[0], "b": b, "bs": scales[1], "bz": zero_points[1]}
    operands |= {"os": scales[2], "oz": zero_points[2]}
    scalars = {name: array if len(array) > 1 else array.reshape(()) for name, array in operands.items()}
    node = helper.make_node("QLinearAdd", list(operands), ["y"], domain="com.microsoft")
    expected = onnx_runtime(node, TensorProto.UINT8, scalars, {})
    result = eager.element_wise_quantized_linear_add(*operands.values())
    different = result != expected
    assert np.abs(result.astype(int) - expected).max() <= 1
    assert np.count_nonzero(different) <= 4, "it multiplies by a reciprocal, so a few halves fall otherwise"
