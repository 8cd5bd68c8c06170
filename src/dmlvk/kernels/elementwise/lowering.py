"""Pointwise operators of one or two inputs: the rows whose elements do not mix.

A row is lowered by its trait ``pointwise``, so a new one needs nothing here: its number is the shader's
``OPERATION`` and its attributes are the shader's parameters, in the struct's order.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import integer_features, no_features, register
from dmlvk.kernels.common.shapes import MOST_ITEMS, WAVES_OF_ITEMS, coalesce, divisors, linear_grid, tile_edge, tile_lanes
from dmlvk.kernels.elementwise.manifest import WORKGROUP
from dmlvk.kernels.elementwise.rules import ELEMENTWISE, ElementwiseProblem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.schema import FLOATS, REGISTRY, FieldKind, FieldSpec, OperatorDesc, ScaleBias
from dmlvk.spec.tensor import cast_scalar, element_bits

Strides = Sequence[Sequence[int]]
"""The strides in elements of several tensors of equal sizes: the inputs', then the output's. 0 broadcasts an input."""


class _Form(NamedTuple):
    """A desc in the terms of the kernels.

    Attributes:
        operation: The shader's operator: a copy where nothing is computed.
        on_bits: Whether only the elements' bits matter and not their type.
        input_type, output_type: The types to compute from and to; the tensors' own where ``on_bits``.
    """

    operation: OperatorType
    on_bits: bool
    input_type: TensorDataType
    output_type: TensorDataType


def pointwise_problem(
    input_type: TensorDataType, output_type: TensorDataType, sizes: Sequence[int], strides: Strides
) -> ElementwiseProblem:
    """The problem of inputs of one type and an output.

    The order of the elements does not matter, so dimensions are walked as the output lies in memory: operands that are
    all NHWC are as contiguous as operands that are all NCHW.
    """
    order = sorted(range(len(sizes)), key=lambda axis: -strides[-1][axis])
    walk = coalesce([sizes[axis] for axis in order], [[steps[axis] for axis in order] for steps in strides])
    return ElementwiseProblem(input_type, output_type, walk)


def _bits_problem(data_type: TensorDataType, sizes: Sequence[int], strides: Strides) -> ElementwiseProblem:
    """The problem of tensors whose bits alone matter: as unsigned integers; 64 bits as twice 32, which every device has."""
    bits = element_bits(data_type)
    if bits == 64:
        halves = [(*(2 * step for step in steps), 1) for steps in strides]
        return _bits_problem(TensorDataType.UINT32, (*sizes, 2), halves)
    unsigned = TensorDataType[f"UINT{bits}"]
    return pointwise_problem(unsigned, unsigned, sizes, strides)


def unary(
    operation: OperatorType,
    problem: ElementwiseProblem,
    rule: str,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    scale_bias: ScaleBias | None = None,
    numbers: Sequence[float] = (),
) -> Dispatch:
    """The launch of a unary operator, with its number attributes."""
    constants = {"OPERATION": operation, "HAS_SCALE_BIAS": scale_bias is not None}
    params = {**scale_bias_words(scale_bias, problem.input_type), **_numbers(numbers, problem.input_type)}
    return launch("elementwise_unary", rule, problem, caps, bindings, constants, params)


def _binary(
    desc: OperatorDesc,
    operation: OperatorType,
    problem: ElementwiseProblem,
    rule: str,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    numbers: Sequence[float],
) -> Dispatch:
    activation = fused(getattr(desc, "fused_activation", None))
    constants = {"OPERATION": operation, "ACTIVATION": activation.id}
    params = {
        "activation_param0": activation.param0,
        "activation_param1": activation.param1,
        **_numbers(numbers, problem.input_type),
    }
    return launch("elementwise_binary", rule, problem, caps, bindings, constants, params)


def launch(
    kernel: str,
    rule: str,
    problem: ElementwiseProblem,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of a pointwise kernel by a rule; its first buffers are the tensors of the problem's strides, in that
    order."""
    if rule == "tiles":
        return _tiles(kernel, problem, caps, bindings, constants, params)
    if rule == "runs":
        return _runs(kernel, problem, caps, bindings, constants, params)
    lanes = problem.group_lanes if rule == "groups" else 1
    return _items(kernel, problem, lanes, problem.access(lanes), caps, bindings, constants, params)


def _runs(
    kernel: str,
    problem: ElementwiseProblem,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of a kernel that walks its packed output as one line: a tensor that is packed like it moves in groups, and
    two elements of one that repeats them along rows serve an item."""
    packed = problem.walk.strides[-1]
    others = [Access.ELEMENTS if steps[-1] else Access.BROADCAST for steps in problem.walk.strides]
    access = [Access.GROUPS if steps == packed else own for steps, own in zip(problem.walk.strides, others, strict=True)]
    return _items(kernel, problem, problem.group_lanes, access, caps, bindings, {**constants, "RUNS": 1}, params)


def _items(
    kernel: str,
    problem: ElementwiseProblem,
    lanes: int,
    access: Sequence[Access],
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of a kernel whose invocations take items of some lanes (``glsl/include/items.glsl``). The type of its
    output is its U, or where it computes in one type its R."""
    walk, spec = problem.walk, KERNELS[kernel]
    names = spec.buffer_names[: len(walk.strides)]
    elements = math.prod(walk.sizes)
    in_line = bool(constants.get("RUNS"))
    of_item = 1 if in_line else lanes
    sizes = (*walk.sizes[:-1], -(-walk.sizes[-1] // of_item))
    count = -(-elements // lanes) if in_line else math.prod(sizes)
    items = _item_count(problem, lanes, count, caps)
    result = "R" if "R" in spec.macros else "U"
    steps: dict[str, Any] = {}
    for name, own in zip(names, walk.strides, strict=True):
        steps |= {f"{name}_strides": (*own[:-1], _step(own[-1], of_item)), f"{name}_step": own[-1]}
    constants = {**constants, **_modes(names, access), "LOCAL_SIZE_X": WORKGROUP, "RANK": len(sizes), "ITEMS": items}
    shape: dict[str, Any] = {"elements": elements, "inner_size": walk.sizes[-1]}
    return make_dispatch(
        kernel,
        bindings,
        linear_grid(-(-count // (WORKGROUP * items)), caps),
        variant={"LANES": lanes, "T": problem.input_type.name, result: problem.output_type.name},
        constants=constants,
        count=count,
        sizes=sizes,
        divisors=divisors(sizes),
        **shape,
        **steps,
        **params,
    )


def _tiles(
    kernel: str,
    problem: ElementwiseProblem,
    caps: Capabilities,
    bindings: tuple[Range, ...],
    constants: Mapping[str, int],
    params: Mapping[str, Any],
) -> Dispatch:
    """The launch of the kernel's form that moves tiles, ``<kernel>_tiles``."""
    turned = problem.turned
    assert turned is not None, "the rule has shown it to be there"
    spec, walk = KERNELS[f"{kernel}_tiles"], problem.walk
    bits = element_bits(problem.input_type)
    edge, lanes = tile_edge(bits), tile_lanes(bits)
    tiled = {turned.row, len(walk.sizes) - 1}
    sizes = tuple(-(-size // edge) if axis in tiled else size for axis, size in enumerate(walk.sizes))
    count = math.prod(sizes)
    steps: dict[str, Any] = {}
    for name, own in zip(spec.buffer_names, walk.strides, strict=True):
        steps[f"{name}_strides"] = tuple(_step(step, edge if axis in tiled else 1) for axis, step in enumerate(own))
    ends = {name: (own[turned.row], own[-1]) for name, own in zip(spec.buffer_names, walk.strides, strict=True)}
    row_stride, _ = ends.pop("output")
    params = {**params, "row_stride": row_stride, "rows": walk.sizes[turned.row], "columns": walk.sizes[-1]}
    if len(ends) == 1:
        params = {"x_start": 0, "output_start": 0, **params, "column_stride": ends["x"][1]}
    else:
        params |= {f"{name}_steps": pair for name, pair in ends.items()}
        constants = {**constants, "ODD": turned.tensor}
    constants = {**constants, **_modes(spec.buffer_names, problem.access(lanes, turned))}
    constants |= {"LOCAL_SIZE_X": WORKGROUP, "RANK": len(sizes), "ROW_DIMENSION": turned.row}
    return make_dispatch(
        spec.name,
        bindings,
        linear_grid(count, caps),
        variant={"TILE": edge, "LANES": lanes, "T": problem.input_type.name, "U": problem.output_type.name},
        constants=constants,
        count=count,
        sizes=sizes,
        divisors=divisors(sizes),
        **steps,
        **params,
    )


def _step(stride: int, elements: int) -> int:
    """A step over several elements, in 32 bits: one that needs more is of a dimension with one item, and never taken."""
    return stride * elements % 2**32


def _modes(names: Sequence[str], access: Sequence[Access]) -> dict[str, int]:
    return {f"{name.upper()}_MODE": mode for name, mode in zip(names, access, strict=True)}


def _item_count(problem: ElementwiseProblem, lanes: int, count: int, caps: Capabilities) -> int:
    """Items an invocation: several where the accesses of one are too small to keep the memory busy, and there are enough to
    fill the device."""
    if caps.is_cpu or count < caps.model.invocations(WAVES_OF_ITEMS):
        return 1
    if lanes < problem.group_lanes:
        return MOST_ITEMS
    # H200, float32: sigmoid at 4124 GB/s against 3958 with one item, erf 4092 against 3901, log 4045 against 3808; but relu
    # at 4003 against 4189.
    return 2 if problem.costly or problem.input_type != problem.output_type else 1


def _numbers(numbers: Sequence[float], data_type: TensorDataType) -> dict[str, tuple[int, int]]:
    param0, param1 = (scalar_words(number, data_type) for number in (*numbers, 0, 0)[:2])
    return {"param0": param0, "param1": param1}


def scale_bias_words(scale_bias: ScaleBias | None, data_type: TensorDataType) -> dict[str, tuple[int, int]]:
    """The parameters ``scale`` and ``bias`` of a kernel of a data type: their bits as the type REAL of its shader."""
    real = data_type if data_type is TensorDataType.FLOAT64 else TensorDataType.FLOAT32
    scale, bias = (scalar_words(number, real) for number in scale_bias or (1.0, 0.0))
    return {"scale": scale, "bias": bias}


def scalar_words(value: float, data_type: TensorDataType) -> tuple[int, int]:
    """Two 32-bit words with the bits of a number cast to the type's arithmetic type (``glsl/include/scalar.glsl``)."""
    if data_type is TensorDataType.FLOAT64:
        data = struct.pack("<d", value)
    elif data_type in FLOATS:
        data = struct.pack("<fI", value, 0)
    else:
        data = (int(cast_scalar(value, data_type)) % 2**64).to_bytes(8, "little")
    low, high = struct.unpack("<2I", data)
    return low, high


def _form(desc: OperatorDesc) -> _Form:
    """The kernel's operation for a desc, and the types that it reads and writes."""
    first, last = desc.input_slots()[0].tensor, desc.output_slots()[0].tensor
    assert first is not None and last is not None, "shown by validation"
    source, target, operation = first.data_type, last.data_type, desc.type
    if getattr(desc, "scale_bias", None) is not None:
        return _Form(operation, False, source, target)
    if operation is OperatorType.CAST:
        # A cast between integers keeps low bits: it depends on the source's sign alone, and not even on that if sizes agree.
        integers = not (source.name.startswith("FLOAT") or target.name.startswith("FLOAT"))
        return _Form(operation, False, source, _unsigned(target) if integers else target)
    # What takes FLOAT64 has no arithmetic in it: it works on bits.
    inputs, *_, output = (field.data_types for field in desc.fields if field.kind.is_tensor)
    if TensorDataType.FLOAT64 in inputs:
        on_bits = TensorDataType.FLOAT64 in output
        return _Form(operation, on_bits, target if on_bits else _unsigned(source), target)
    return _Form(operation, False, source, target)


def _unsigned(data_type: TensorDataType) -> TensorDataType:
    return TensorDataType[f"UINT{element_bits(data_type)}"]


def _problem(desc: OperatorDesc) -> ElementwiseProblem:
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    sizes, strides = tensors[-1].sizes, [tensor.effective_strides for tensor in tensors]
    form = _form(desc)
    if form.on_bits:
        return _bits_problem(form.output_type, sizes, strides)
    problem = pointwise_problem(form.input_type, form.output_type, sizes, strides)
    return dataclasses.replace(problem, costly=desc.traits.costly)


def _schedule(rule: str) -> Callable[[OperatorDesc, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: OperatorDesc, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        inputs = tuple(input_range(slot) for slot in range(len(desc.input_slots())))
        bindings = (*inputs, output_range())
        operation = _form(desc).operation
        numbers = number_attributes(desc)
        if len(inputs) == 2:
            return Plan((_binary(desc, operation, problem, rule, caps, bindings, numbers),))
        return Plan((unary(operation, problem, rule, caps, bindings, getattr(desc, "scale_bias", None), numbers),))

    return schedule


def number_attributes(desc: OperatorDesc) -> tuple[float, ...]:
    """The operator's numbers for the shader, in the struct's order."""
    return tuple(getattr(desc, field.name) for field in desc.fields if _is_parameter(field))


def _is_parameter(field: FieldSpec) -> bool:
    """Whether a field is a number for the shader (the type tag of a SCALAR_UNION is known from the tensors)."""
    is_mode = field.kind is FieldKind.ENUM and field.enumeration is not TensorDataType
    return field.kind in (FieldKind.FLOAT, FieldKind.SCALAR_UNION) or is_mode


def _fits(row: type[OperatorDesc]) -> bool:
    """Whether these kernels run a pointwise row: it is the newest re-issue and has one or two inputs, one output and at most
    two numbers, a scale and bias with one input only."""
    kinds = [field.kind for field in row.fields]
    inputs = kinds.count(FieldKind.INPUT_TENSOR)
    allowed = {FieldKind.ENUM, FieldKind.FLOAT, FieldKind.SCALAR_UNION, FieldKind.INPUT_TENSOR, FieldKind.OUTPUT_TENSOR}
    allowed.add(FieldKind.SCALE_BIAS if inputs == 1 else FieldKind.FUSED_ACTIVATION)
    numbers = sum(map(_is_parameter, row.fields))
    return row.upgrade is OperatorDesc.upgrade and inputs in (1, 2) and numbers <= 2 and set(kinds) <= allowed


ROWS: tuple[type[OperatorDesc], ...] = tuple(row for row in REGISTRY.values() if row.traits.pointwise and _fits(row))
"""The rows that these kernels run."""


def _features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    first, *_, last = (field.data_types for field in row.fields if field.kind.is_tensor)
    moves_bits = TensorDataType.FLOAT64 in first and TensorDataType.FLOAT64 in last  # as _form has it
    return no_features(row, data_type) if moves_bits or row.type is OperatorType.CAST else integer_features(row, data_type)


register(
    *ROWS,
    problem=_problem,
    rules=ELEMENTWISE,
    schedules={rule.name: _schedule(rule.name) for rule in ELEMENTWISE},
    features=_features,
)
