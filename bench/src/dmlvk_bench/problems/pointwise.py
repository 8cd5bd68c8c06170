"""Pointwise operators: contiguous, changing type, strided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides, element_bits
from dmlvk.verify.cases.model import Domain, constant, uniform
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, UINT8, Problem, tensors_problem
from dmlvk_bench.problems.scale import Scale


def _packed(scale: Scale, data_type: TensorDataType, count: int) -> TensorDesc:
    return TensorDesc(data_type, scale.fit((count,), 0))


def _power(tensor: TensorDesc) -> str:
    """The number of a tensor's elements as a power of two, such as "2^28"."""
    return f"2^{tensor.element_count.bit_length() - 1}"


def _floor_modulus(scale: Scale, data_type: TensorDataType) -> Problem:
    tensor = _packed(scale, data_type, 1 << 28)
    return Problem(
        f"floor modulus {data_type.name} {_power(tensor)}",
        dmlvk.ElementWiseModulusFloor(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor),
        lambda torch, a, b: torch.remainder(a, b),
        0.98,
        3 * tensor.total_tensor_size_in_bytes,
        tolerance=1e-5 if data_type is FLOAT32 else 1e-3,
    )


CONTIGUOUS = {"target": 0.98, "copy_target": 0.95}
STRIDED = {"target": 0.0, "copy_target": 0.6}
LAYOUT = {"target": 1.0, "copy_target": 0.8}
TRANSPOSE = {"target": 3.0, "copy_target": 0.8}
SCALE = 0.0234375
"""The scale of the quantized problems: exact in every type."""


def _gibibyte(scale: Scale, data_type: TensorDataType) -> TensorDesc:
    return _packed(scale, data_type, 2**33 // element_bits(data_type))


def _contiguous(scale: Scale, data_type: TensorDataType) -> list[Problem]:
    x = _gibibyte(scale, data_type)
    functions = {
        dmlvk.ActivationRelu: lambda torch, x: torch.relu(x),
        dmlvk.ActivationSigmoid: lambda torch, x: torch.sigmoid(x),
        dmlvk.ActivationGelu: lambda torch, x: torch.nn.functional.gelu(x),
        dmlvk.ElementWiseExp: lambda torch, x: torch.exp(x),
        dmlvk.ElementWiseSin: lambda torch, x: torch.sin(x),
    }
    found = [tensors_problem(row.__name__, row, (x, x), rival, CONTIGUOUS) for row, rival in functions.items()]
    found.append(tensors_problem("add", dmlvk.ElementWiseAdd, (x, x, x), lambda torch, a, b: a + b, CONTIGUOUS))
    fused = {"fused_activation": dmlvk.ActivationRelu()}
    return [
        *found,
        tensors_problem(
            "add and relu", dmlvk.ElementWiseAdd1, (x, x, x), lambda torch, a, b: torch.relu(a + b), CONTIGUOUS, **fused
        ),
    ]


def _type_changes(scale: Scale) -> list[Problem]:
    sizes = scale.fit((1 << 28,), 0)
    single, half, byte = (TensorDesc(kind, sizes) for kind in (FLOAT32, FLOAT16, UINT8))
    step, zero_point = TensorDesc(FLOAT32, sizes, (0,)), TensorDesc(UINT8, sizes, (0,))

    def quantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return torch.quantize_per_tensor(x, SCALE, 117, torch.quint8).int_repr()

    def dequantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return (x.float() - 117) * SCALE

    side: dict[str, Any] = {"domains": {"scale_tensor": constant(SCALE), "zero_point_tensor": constant(117)}}
    rounded = {"tolerance": 1 / 200}  # a number next to a half integer may be rounded otherwise
    quantized, restored = dmlvk.ElementWiseQuantizeLinear, dmlvk.ElementWiseDequantizeLinear
    to_byte: dict[str, Any] = {"domains": {"input_tensor": tiled(uniform(0, 100))}}
    return [
        tensors_problem("cast FLOAT32 to", dmlvk.Cast, (single, half), lambda torch, x: x.half(), CONTIGUOUS),
        tensors_problem("cast FLOAT16 to", dmlvk.Cast, (half, single), lambda torch, x: x.float(), CONTIGUOUS),
        tensors_problem("cast FLOAT32 to", dmlvk.Cast, (single, byte), lambda torch, x: x.byte(), CONTIGUOUS, **to_byte),
        tensors_problem("cast UINT8 to", dmlvk.Cast, (byte, single), lambda torch, x: x.float(), CONTIGUOUS),
        tensors_problem("quantize to", quantized, (single, step, zero_point, byte), quantize, CONTIGUOUS, **rounded, **side),
        tensors_problem(
            "dequantize to", restored, (byte, step, zero_point, single), dequantize, CONTIGUOUS, **rounded, **side
        ),
    ]


def _selected(scale: Scale, data_type: TensorDataType) -> list[Problem]:
    """Quotients, powers, gates, comparisons and what these choose."""
    x = _gibibyte(scale, data_type)
    truth = TensorDesc(UINT8, x.sizes)
    functions: dict[str, tuple[type[OperatorDesc], tuple[TensorDesc, ...], Callable[..., Any], dict[str, Domain]]] = {
        "divide": (dmlvk.ElementWiseDivide, (x, x, x), lambda torch, a, b: a / b, {"b_tensor": tiled(uniform(0.5, 2))}),
        "power": (
            dmlvk.ElementWisePow,
            (x, x, x),
            lambda torch, x, e: torch.pow(x, e),
            {"input_tensor": tiled(uniform(0.25, 4)), "exponent_tensor": tiled(uniform(-2, 2))},
        ),
        "ActivationSwish": (dmlvk.ActivationSwish, (x, x), lambda torch, x: torch.nn.functional.silu(x), {}),
        "choose": (
            dmlvk.ElementWiseIf,
            (truth, x, x, x),
            lambda torch, condition, a, b: torch.where(condition.bool(), a, b),
            {"condition_tensor": tiled(uniform(0, 1))},
        ),
        f"compare {data_type.name} to": (
            dmlvk.ElementWiseLogicalGreaterThan,
            (x, x, truth),
            lambda torch, a, b: torch.gt(a, b),
            {},
        ),
    }
    return [
        tensors_problem(name, row, tensors, rival, {"copy_target": 0.95}, domains=domains)
        for name, (row, tensors, rival, domains) in functions.items()
    ]


def _one_hot(scale: Scale) -> Problem:
    rows, columns = scale.fit((2**18, 1000), 0)
    indices = TensorDesc(TensorDataType.INT64, (rows, 1))
    tensors = (indices, TensorDesc(FLOAT32, (1, 2)), TensorDesc(FLOAT32, (rows, columns)))

    def rival(torch: Any, indices: Any, values: Any) -> Any:
        found = values[0, 0].expand(rows, columns).contiguous()
        return found.scatter_(1, indices, values[:, 1:].expand(rows, 1))

    domains = {"indices_tensor": uniform(0, columns - 1)}
    return tensors_problem("one hot", dmlvk.OneHot, tensors, rival, {}, axis=1, domains=domains)


def _fill(scale: Scale) -> Problem:
    tensor = _gibibyte(scale, FLOAT32)

    def rival(torch: Any) -> Any:
        return torch.full(tensor.sizes, 1.5, device="cuda" if torch.cuda.is_available() else "cpu")

    goal = {"target": 0.98}
    value = {"value_data_type": FLOAT32, "value": 1.5}
    return tensors_problem("fill", dmlvk.FillValueConstant, (tensor,), rival, goal, **value)


def _strided(scale: Scale, data_type: TensorDataType) -> list[Problem]:
    def tensor(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> TensorDesc:
        return TensorDesc(data_type, sizes, strides)

    matrix, image = scale.fit((16384, 8192), 0), scale.fit((32, 256, 56, 56), 0, 1)
    square = scale.fit((16384, 8192), 0, 1)
    cube = scale.fit((16, 24, 40, 33, 129), 0, 1, 2)
    nhwc = calculate_strides("NHWC", image)
    # Stored as dimensions 1, 0, 3, 2, 4, three elements of padding after each: no two merge, no row starts on a word.
    steps, reach = [0] * 5, 1
    for axis in (4, 2, 3, 0, 1):
        steps[axis] = reach
        reach = reach * cube[axis] + 3
    add, copy = dmlvk.ElementWiseAdd, dmlvk.ElementWiseIdentity

    def plus(torch: Any, a: Any, b: Any) -> Any:
        return a + b

    def contiguous(torch: Any, x: Any) -> Any:
        return x.clone(memory_format=torch.contiguous_format)

    return [
        tensors_problem("add a row", add, (tensor(matrix), tensor(matrix, (0, 1)), tensor(matrix)), plus, STRIDED),
        tensors_problem("add a column", add, (tensor(matrix), tensor(matrix, (1, 0)), tensor(matrix)), plus, STRIDED),
        tensors_problem("NHWC to NCHW", copy, (tensor(image, nhwc), tensor(image)), contiguous, LAYOUT),
        tensors_problem(
            "NCHW to NHWC",
            copy,
            (tensor(image), tensor(image, nhwc)),
            lambda torch, x: x.contiguous(memory_format=torch.channels_last),
            LAYOUT,
        ),
        tensors_problem("add NCHW and NHWC", add, (tensor(image), tensor(image, nhwc), tensor(image)), plus, STRIDED),
        tensors_problem("transpose", copy, (tensor(square, (1, square[0])), tensor(square)), contiguous, TRANSPOSE),
        tensors_problem("5-D strided copy", copy, (tensor(cube, tuple(steps)), tensor(cube)), contiguous, STRIDED),
        tensors_problem("5-D strided add", add, (tensor(cube, tuple(steps)), tensor(cube), tensor(cube)), plus, STRIDED),
    ]


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = [_floor_modulus(scale, data_type) for data_type in FLOATS]
    for data_type in FLOATS:
        found += _contiguous(scale, data_type)
    found += [*_type_changes(scale), _fill(scale)]
    for data_type in FLOATS:
        found += _strided(scale, data_type)
    for data_type in FLOATS:
        found += _selected(scale, data_type)
    found.append(_one_hot(scale))
    return found
