"""Pointwise operators: the rows of ``ops.elementwise`` and ``ops.activation`` whose elements do not mix.

A row is lowered by its shape alone (``_is_pointwise``), so a new one needs nothing here: its number is the shader's
``OPERATION`` and its attributes are the shader's parameters, in the struct's order.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmlvk.enums import OperatorType, TensorDataType
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.fused import fused
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, Range, input_range, output_range
from dmlvk.kernels.select import ELEMENTWISE, ElementwiseProblem, choose
from dmlvk.kernels.shapes import coalesce, linear_grid
from dmlvk.ops import activation, elementwise
from dmlvk.schema import FLOATS, FieldKind, FieldSpec, OperatorDesc, ScaleBias
from dmlvk.tensor import cast_scalar, element_bits

_TILE = 32
_COPIES = (OperatorType.ELEMENT_WISE_IDENTITY, OperatorType.ACTIVATION_IDENTITY)

Strides = Sequence[Sequence[int]]
"""Of several tensors of equal sizes, in elements: the inputs', then the output's. 0 broadcasts an input."""


def pointwise_problem(data_type: TensorDataType, sizes: Sequence[int], strides: Strides) -> ElementwiseProblem:
    """The problem of tensors of one type.

    The order of the elements does not matter, so dimensions are walked as the output lies in memory: operands that are
    all NHWC are as contiguous as operands that are all NCHW.
    """
    order = sorted(range(len(sizes)), key=lambda axis: -strides[-1][axis])
    walk = coalesce([sizes[axis] for axis in order], [[steps[axis] for axis in order] for steps in strides])
    return ElementwiseProblem(data_type, walk)


def copy_problem(data_type: TensorDataType, sizes: Sequence[int], strides: Strides) -> ElementwiseProblem:
    """The problem of copying elements bit for bit: as unsigned integers; 64 bits as twice 32, which every device has."""
    bits = element_bits(data_type)
    if bits == 64:
        halves = [(*(2 * step for step in steps), 1) for steps in strides]
        return copy_problem(TensorDataType.UINT32, (*sizes, 2), halves)
    return pointwise_problem(TensorDataType[f"UINT{bits}"], sizes, strides)


def copy(
    source: Range,
    destination: Range,
    data_type: TensorDataType,
    sizes: Sequence[int],
    strides: Strides,
    caps: Capabilities,
) -> Dispatch:
    """Copies a tensor's elements bit for bit; ``strides`` are the source's and the destination's."""
    problem = copy_problem(data_type, sizes, strides)
    rule = choose(ELEMENTWISE, problem, caps).name
    return _unary(OperatorType.ELEMENT_WISE_IDENTITY, problem, rule, caps, (source, destination))


def _unary(
    operation: OperatorType,
    problem: ElementwiseProblem,
    rule: str,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    scale_bias: ScaleBias | None = None,
    numbers: Sequence[float] = (),
) -> Dispatch:
    param0, param1 = (_scalar_words(number, problem.data_type) for number in (*numbers, 0, 0)[:2])
    scale, bias = scale_bias or (1.0, 0.0)
    constants = {"OPERATION": operation, "HAS_SCALE_BIAS": scale_bias is not None}
    params = {"scale": scale, "bias": bias, "param0": param0, "param1": param1}
    launch = _tiles if rule == "tiles" else functools.partial(_lanes, "elementwise_unary", rule)
    return launch(problem, caps, bindings, constants, params)


def _lanes(
    kernel: str,
    rule: str,
    problem: ElementwiseProblem,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of a kernel whose invocations take a word or an element each, by the rule; its buffers are the tensors of
    the problem's strides, in that order."""
    lanes = problem.word_elements if rule == "words" else 1
    walk = problem.walk
    sizes = (*walk.sizes[:-1], -(-walk.sizes[-1] // lanes))
    count = math.prod(sizes)
    steps = dict(zip(KERNELS[kernel].buffer_names, walk.strides, strict=True))
    params = {**params, **{f"{name}_strides": (*own[:-1], own[-1] * lanes) for name, own in steps.items()}}
    workgroup = _workgroup(caps)
    constants = {**constants, "LOCAL_SIZE_X": workgroup, "RANK": len(sizes)}
    if lanes > 1:
        constants |= {f"{name.upper()}_STEP": own[-1] for name, own in steps.items() if name != "output"}
    return Dispatch(
        KernelVariant(
            kernel,
            (("LANES", "T_PER_WORD" if lanes > 1 else "1"), ("T", problem.data_type.name)),
            tuple((name, int(value)) for name, value in constants.items()),
        ),
        bindings,
        KERNELS[kernel].pack(count=count, sizes=sizes, inner_size=walk.sizes[-1], **params),
        linear_grid(-(-count // workgroup), caps),
    )


def _tiles(
    problem: ElementwiseProblem,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of the unary kernel that moves tiles."""
    row = problem.row_dimension
    assert row is not None, "the rule has shown it to be there"
    tiled = {row, len(problem.walk.sizes) - 1}
    x, output = problem.walk.strides
    sizes = tuple(-(-size // _TILE) if axis in tiled else size for axis, size in enumerate(problem.walk.sizes))
    x_strides, output_strides = (
        tuple(step * _TILE if axis in tiled else step for axis, step in enumerate(steps)) for steps in (x, output)
    )
    count = math.prod(sizes)
    constants = {**constants, "LOCAL_SIZE_X": _workgroup(caps), "RANK": len(sizes), "ROW_DIMENSION": row}
    return Dispatch(
        KernelVariant(
            "elementwise_unary_tiles",
            (("TILE", str(_TILE)), ("T", problem.data_type.name)),
            tuple((name, int(value)) for name, value in constants.items()),
        ),
        bindings,
        KERNELS["elementwise_unary_tiles"].pack(
            count=count,
            sizes=sizes,
            rows=problem.walk.sizes[row],
            columns=problem.walk.sizes[-1],
            x_strides=x_strides,
            output_strides=output_strides,
            row_stride=output[row],
            column_stride=x[-1],
            **params,
        ),
        linear_grid(count, caps),
    )


def _workgroup(caps: Capabilities) -> int:
    return 256 if caps.workgroup_invocations >= 256 else 128


def _scalar_words(value: float, data_type: TensorDataType) -> tuple[int, int]:
    """Two 32-bit words with the bits of a number cast to the type's arithmetic type (``glsl/include/scalar.glsl``)."""
    if data_type is TensorDataType.FLOAT64:
        data = struct.pack("<d", value)
    elif data_type in FLOATS:
        data = struct.pack("<fI", value, 0)
    else:
        data = (int(cast_scalar(value, data_type)) % 2**64).to_bytes(8, "little")
    low, high = struct.unpack("<2I", data)
    return low, high


def _is_copy(desc: OperatorDesc) -> bool:
    return desc.type in _COPIES and getattr(desc, "scale_bias", None) is None


def _problem(desc: OperatorDesc) -> ElementwiseProblem:
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    make = copy_problem if _is_copy(desc) else pointwise_problem
    return make(tensors[-1].data_type, tensors[-1].sizes, [tensor.effective_strides for tensor in tensors])


def _schedule(rule: str) -> Callable[[OperatorDesc, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: OperatorDesc, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        inputs = tuple(input_range(slot) for slot in range(len(desc.input_slots())))
        bindings = (*inputs, output_range())
        if len(inputs) == 2:
            activation_id, param0, param1 = fused(getattr(desc, "fused_activation", None))
            constants = {"OPERATION": desc.type, "ACTIVATION": activation_id}
            params = {"param0": param0, "param1": param1}
            return Plan((_lanes("elementwise_binary", rule, problem, caps, bindings, constants, params),))
        operation = OperatorType.ELEMENT_WISE_IDENTITY if _is_copy(desc) else desc.type
        numbers = [getattr(desc, field.name) for field in desc.fields if _is_parameter(field)]
        return Plan((_unary(operation, problem, rule, caps, bindings, getattr(desc, "scale_bias", None), numbers),))

    return schedule


def _is_parameter(field: FieldSpec) -> bool:
    """Whether a field is a number for the shader (the type tag of a SCALAR_UNION is known from the tensors)."""
    is_mode = field.kind is FieldKind.ENUM and field.enumeration is not TensorDataType
    return field.kind in (FieldKind.FLOAT, FieldKind.SCALAR_UNION) or is_mode


def _is_pointwise(row: object) -> bool:
    """Whether a name of an operator file is a row for these kernels: the newest re-issue; tensors of one type; one input
    and up to two numbers, or two inputs. An operator with axes, which mixes elements, is not."""
    if not isinstance(row, type) or not issubclass(row, OperatorDesc) or row.upgrade is not OperatorDesc.upgrade:
        return False
    kinds = [field.kind for field in row.fields]
    allowed = {FieldKind.SCALE_BIAS, FieldKind.FUSED_ACTIVATION, FieldKind.ENUM, FieldKind.FLOAT, FieldKind.SCALAR_UNION}
    one_type = len({field.data_types for field in row.fields if field.kind.is_tensor}) == 1
    most_parameters = {1: 2, 2: 0}.get(kinds.count(FieldKind.INPUT_TENSOR), -1)
    parameters = sum(map(_is_parameter, row.fields))
    return one_type and parameters <= most_parameters and all(kind.is_tensor or kind in allowed for kind in kinds)


ROWS: tuple[type[OperatorDesc], ...] = tuple(
    row for file in (elementwise, activation) for row in vars(file).values() if _is_pointwise(row)
)
"""The rows that these kernels run."""

register(
    *ROWS,
    problem=_problem,
    rules=ELEMENTWISE,
    schedules={rule.name: _schedule(rule.name) for rule in ELEMENTWISE},
)
