"""Lowering of ``ops.fill``: each operator is its own bits of an element's place; the walk and the launch are common."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import coalesce, divisors, linear_grid
from dmlvk.kernels.fill.manifest import SequenceArithmetic
from dmlvk.kernels.fill.rules import FILL, FillProblem
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.fill import DiagonalMatrix1, FillValueConstant, FillValueSequence, OneHot
from dmlvk.spec.schema import FLOATS, OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

_INDEX_BITS = 32
_FLOAT_CODES = {TensorDataType.FLOAT64: "<d", TensorDataType.FLOAT32: "<f", TensorDataType.FLOAT16: "<e"}


@dataclasses.dataclass(frozen=True)
class _Kernel:
    """The part of a launch that differs between the operators.

    Attributes:
        name: The kernel.
        inputs: The ranges of its buffers but for the output.
        constants, params: The constants and parameters that the fills do not share.
        position: The position of the first element.
        source_unit: Elements of the source buffer's type in an element of the source tensor.
    """

    name: str
    inputs: tuple[Range, ...]
    constants: dict[str, int]
    params: dict[str, int | tuple[int, int]]
    position: int = 0
    source_unit: int = 0


def scalar_bits(value: float, data_type: TensorDataType) -> tuple[int, int]:
    """The low and the high 32 bits of a number in the type; a float is rounded, beyond the type to an infinity."""
    if data_type in _FLOAT_CODES:
        try:
            data = struct.pack(_FLOAT_CODES[data_type], float(value))
        except OverflowError:
            data = struct.pack(_FLOAT_CODES[data_type], math.copysign(math.inf, value))
        bits = int.from_bytes(data, "little")
    else:
        bits = math.trunc(value) % 2 ** element_bits(data_type)
    return bits % 2**32, bits >> 32


def _fill_problem(output: TensorDesc, position: tuple[int, ...], source: tuple[int, ...]) -> FillProblem:
    """The problem of an output and, over its sizes, the strides of the position and of the source."""
    steps = (position, source, output.effective_strides)
    order = sorted(range(output.dimension_count), key=lambda axis: -output.effective_strides[axis])
    walk = coalesce([output.sizes[axis] for axis in order], [[own[axis] for axis in order] for own in steps])
    bits = element_bits(output.data_type)
    return FillProblem(TensorDataType[f"UINT{min(bits, 32)}"], max(bits // 32, 1), walk)


def _constant_problem(desc: FillValueConstant) -> FillProblem:
    output = desc.tensor("output_tensor")
    nothing = (0,) * output.dimension_count
    return _fill_problem(output, nothing, nothing)


def _constant(desc: FillValueConstant, problem: FillProblem) -> _Kernel:
    return _Kernel("fill_value_constant", (), {}, {"value": scalar_bits(desc.value, desc.value_data_type)})


def _sequence_problem(desc: FillValueSequence) -> FillProblem:
    output = desc.tensor("output_tensor")
    return _fill_problem(output, packed_strides(output.sizes), (0,) * output.dimension_count)


def _sequence(desc: FillValueSequence, problem: FillProblem) -> _Kernel:
    data_type = desc.value_data_type
    arithmetic = SequenceArithmetic[data_type.name] if data_type in FLOATS else SequenceArithmetic.INTEGERS
    start, delta = (scalar_bits(value, data_type) for value in (desc.value_start, desc.value_delta))
    return _Kernel("fill_value_sequence", (), {"ARITHMETIC": arithmetic}, {"start": start, "delta": delta})


def _diagonal_problem(desc: DiagonalMatrix1) -> FillProblem:
    output = desc.tensor("output_tensor")
    diagonal = (*(0,) * (output.dimension_count - 2), -1, 1)
    source = (0,) * output.dimension_count if desc.input_tensor is None else desc.input_tensor.effective_strides
    return _fill_problem(output, diagonal, source)


def _diagonal(desc: DiagonalMatrix1, problem: FillProblem) -> _Kernel:
    *_, rows, columns = desc.tensor("output_tensor").sizes
    diagonals = rows + columns - 1
    ends = (desc.diagonal_fill_begin, desc.diagonal_fill_end)
    # From the bottom left corner on, cut to the matrix: what lies outside touches no element.
    low, high = (min(max(end + rows - 1, 0), diagonals) for end in sorted(ends))
    return _Kernel(
        "diagonal_matrix",
        (output_range() if desc.input_tensor is None else input_range(0),),
        {"HAS_INPUT": int(desc.input_tensor is not None), "OUTSIDE": int(ends[0] > ends[1])},
        {"value": scalar_bits(desc.value, desc.value_data_type), "begin": low, "end": high},
        position=rows - 1,
        source_unit=problem.halves,
    )


def _one_hot_problem(desc: OneHot) -> FillProblem:
    indices = desc.tensor("indices_tensor").effective_strides
    along = tuple(int(axis == desc.axis) for axis in range(len(indices)))
    across = tuple(0 if axis == desc.axis else step for axis, step in enumerate(indices))
    return _fill_problem(desc.tensor("output_tensor"), along, across)


def _one_hot(desc: OneHot, problem: FillProblem) -> _Kernel:
    values, index_type = desc.tensor("values_tensor"), desc.tensor("indices_tensor").data_type
    second = next(
        step for size, step in zip(reversed(values.sizes), reversed(values.effective_strides), strict=True) if size > 1
    )
    words = element_bits(index_type) // _INDEX_BITS
    return _Kernel(
        "one_hot",
        (input_range(0), input_range(1)),
        {"INDEX_WORDS": words, "INDEX_SIGNED": int(not index_type.name.startswith("UINT"))},
        {"axis_size": desc.tensor("output_tensor").sizes[desc.axis], "on": second * problem.halves},
        source_unit=words,
    )


def _plan(kernel: _Kernel, problem: FillProblem, caps: Capabilities, elements: int) -> Plan:
    """The launch whose invocations write so many elements each."""
    walk = problem.walk
    units = (1, kernel.source_unit, problem.halves)
    position, source, output = (
        tuple(step * unit % 2**32 for step in own) for own, unit in zip(walk.strides, units, strict=True)
    )
    sizes = (*walk.sizes[:-1], -(-walk.sizes[-1] // elements))
    count = math.prod(sizes)

    def of_items(steps: tuple[int, ...]) -> tuple[int, ...]:
        return (*steps[:-1], steps[-1] * elements % 2**32)

    workgroup = min(256, caps.workgroup_invocations)
    constants = {"LOCAL_SIZE_X": workgroup, "RANK": len(sizes), "HALVES": problem.halves, **kernel.constants}
    return Plan(
        (
            make_dispatch(
                kernel.name,
                (*kernel.inputs, output_range()),
                linear_grid(-(-count // workgroup), caps),
                variant={"WORDS": elements > 1, "T": problem.data_type.name},
                constants=constants,
                count=count,
                sizes=sizes,
                divisors=divisors(sizes),
                inner_size=walk.sizes[-1],
                position=kernel.position,
                position_strides=of_items(position),
                source_strides=of_items(source),
                output_strides=of_items(output),
                position_step=position[-1],
                source_step=source[-1],
                **kernel.params,
            ),
        )
    )


def _register(
    row: type[OperatorDesc], problem: Callable[[Any], FillProblem], kernel: Callable[[Any, FillProblem], _Kernel]
) -> None:
    def words(desc: Any, problem: FillProblem, caps: Capabilities) -> Plan:
        return _plan(kernel(desc, problem), problem, caps, problem.word_elements)

    def elements(desc: Any, problem: FillProblem, caps: Capabilities) -> Plan:
        return _plan(kernel(desc, problem), problem, caps, 1)

    register(row, problem=problem, rules=FILL, schedules={"words": words, "elements": elements})


_register(FillValueConstant, _constant_problem, _constant)
_register(FillValueSequence, _sequence_problem, _sequence)
_register(DiagonalMatrix1, _diagonal_problem, _diagonal)
_register(OneHot, _one_hot_problem, _one_hot)
