"""Pointwise operators: contiguous, changing type, strided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, FLOATS, UINT8, Problem, tensors_problem
from dmlvk import TensorDataType, TensorDesc, calculate_strides
from dmlvk.tensor import element_bits


def _floor_modulus(data_type: TensorDataType) -> Problem:
    tensor = TensorDesc(data_type, (1 << 28,))
    return Problem(
        f"floor modulus {data_type.name} 2^28",
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
"""Of the quantized problems: exact in every type."""


def _gibibyte(data_type: TensorDataType) -> TensorDesc:
    return TensorDesc(data_type, (2**33 // element_bits(data_type),))


def _contiguous(data_type: TensorDataType) -> list[Problem]:
    x = _gibibyte(data_type)
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


def _type_changes() -> list[Problem]:
    sizes = (1 << 28,)
    single, half, byte = (TensorDesc(kind, sizes) for kind in (FLOAT32, FLOAT16, UINT8))
    scale, zero_point = TensorDesc(FLOAT32, sizes, (0,)), TensorDesc(UINT8, sizes, (0,))

    def small(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
        return 100 * torch.rand(sizes, dtype=kind)

    def constant(value: float) -> Callable[..., Any]:
        return lambda torch, sizes, kind: torch.full(sizes, value, dtype=kind)

    def quantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return torch.quantize_per_tensor(x, SCALE, 117, torch.quint8).int_repr()

    def dequantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return (x.float() - 117) * SCALE

    side = {"fill": {"scale_tensor": constant(SCALE), "zero_point_tensor": constant(117)}}
    quantized, restored = dmlvk.ElementWiseQuantizeLinear, dmlvk.ElementWiseDequantizeLinear
    to_byte: dict[str, Any] = {"fill": {"input_tensor": small}}
    return [
        tensors_problem("cast FLOAT32 to", dmlvk.Cast, (single, half), lambda torch, x: x.half(), CONTIGUOUS),
        tensors_problem("cast FLOAT16 to", dmlvk.Cast, (half, single), lambda torch, x: x.float(), CONTIGUOUS),
        tensors_problem("cast FLOAT32 to", dmlvk.Cast, (single, byte), lambda torch, x: x.byte(), CONTIGUOUS, **to_byte),
        tensors_problem("cast UINT8 to", dmlvk.Cast, (byte, single), lambda torch, x: x.float(), CONTIGUOUS),
        tensors_problem("quantize to", quantized, (single, scale, zero_point, byte), quantize, CONTIGUOUS, **side),
        tensors_problem("dequantize to", restored, (byte, scale, zero_point, single), dequantize, CONTIGUOUS, **side),
    ]


def _fill() -> Problem:
    def rival(torch: Any) -> Any:
        return torch.full((1 << 28,), 1.5, device="cuda")

    goal = {"target": 0.98}
    value = {"value_data_type": FLOAT32, "value": 1.5}
    return tensors_problem("fill", dmlvk.FillValueConstant, (_gibibyte(FLOAT32),), rival, goal, **value)


def _strided(data_type: TensorDataType) -> list[Problem]:
    def tensor(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> TensorDesc:
        return TensorDesc(data_type, sizes, strides)

    matrix, image, cube = (16384, 8192), (32, 256, 56, 56), (16, 24, 40, 33, 129)
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
        tensors_problem("transpose", copy, (tensor(matrix, (1, matrix[0])), tensor(matrix)), contiguous, TRANSPOSE),
        tensors_problem("5-D strided copy", copy, (tensor(cube, tuple(steps)), tensor(cube)), contiguous, STRIDED),
        tensors_problem("5-D strided add", add, (tensor(cube, tuple(steps)), tensor(cube), tensor(cube)), plus, STRIDED),
    ]


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = [_floor_modulus(data_type) for data_type in FLOATS]
    for data_type in FLOATS:
        found += _contiguous(data_type)
    found += [*_type_changes(), _fill()]
    for data_type in FLOATS:
        found += _strided(data_type)
    return found
