"""Lowering of ``ops.quantization``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import MOST_ITEMS, WAVES_OF_ITEMS, coalesce, divisors, linear_grid, most_invocations
from dmlvk.kernels.elementwise.lowering import launch, pointwise_problem
from dmlvk.kernels.elementwise.rules import ELEMENTWISE_ITEMS, ElementwiseProblem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.quantization.manifest import BlockRows
from dmlvk.kernels.quantization.rules import QUANTIZATION, QuantizationProblem
from dmlvk.kernels.reduction.lowering import range_reading
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.quantization import (
    Dequantize,
    DynamicQuantizeLinear,
    ElementWiseDequantizeLinear,
    ElementWiseQuantizedLinearAdd,
    ElementWiseQuantizeLinear,
    Quantize,
)
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_WORKGROUP = 128


def _tensors(desc: OperatorDesc) -> tuple[TensorDesc, TensorDesc, TensorDesc | None, TensorDesc]:
    """Input, scale, zero point and output."""
    if isinstance(desc, DynamicQuantizeLinear):
        result = desc.tensor("output_tensor")
        own_scale, own_zero_point = (
            TensorDesc(data_type, (1,) * result.dimension_count) for data_type in (TensorDataType.FLOAT32, result.data_type)
        )
        return desc.tensor("input_tensor"), own_scale, own_zero_point, result
    source, scale, *zero_point = (slot.tensor for slot in desc.input_slots())
    (output,) = (slot.tensor for slot in desc.output_slots())
    assert source is not None and scale is not None and output is not None, "shown by validation"
    return source, scale, zero_point[0] if zero_point else None, output


def _problem(desc: OperatorDesc) -> QuantizationProblem:
    source, scale, zero_point, output = _tensors(desc)
    order = sorted(range(len(output.sizes)), key=lambda axis: -output.effective_strides[axis])
    sizes: list[int] = []
    steps: tuple[list[int], ...] = ([], [], [], [])
    for axis in order:
        # A dimension is its blocks and, in each, the elements that share a scale.
        blocks = scale.sizes[axis]
        block = source.sizes[axis] // blocks
        sizes += [blocks, block]
        for own, tensor in zip(steps, (source, scale, zero_point, output), strict=True):
            step = 0 if tensor is None else tensor.effective_strides[axis]
            own += [step, 0] if tensor is None or tensor.sizes[axis] != source.sizes[axis] else [step * block, step]
    return QuantizationProblem((element_bits(source.data_type), element_bits(output.data_type)), coalesce(sizes, steps))


def _nested(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each stride is larger than the reach of the dimensions after it, so that dividing a position in memory by
    the strides gives the element there."""
    reach = 0
    for size, step in zip(reversed(sizes), reversed(strides), strict=True):
        if step <= reach:
            return False
        reach += (size - 1) * step
    return True


def _access(steps: Sequence[int], lanes: int) -> Access | None:
    """The access to a scale or zero point from rows whose size the lanes divide; None where a group is no word of it."""
    if steps[-1] == 0:
        return Access.BROADCAST
    return Access.GROUPS if steps[-1] == 1 and all(step % lanes == 0 for step in steps[:-1]) else None


def _rows(problem: QuantizationProblem, lanes: int) -> tuple[int, Access, Access]:
    """The way in which groups of packed tensors meet scales and zero points (``glsl/include/blocks.glsl``): ROWS, modes."""
    row = problem.walk.sizes[-1]
    scale, zero_point = (_access(problem.walk.strides[tensor], lanes) for tensor in (1, 2))
    if len(problem.walk.sizes) > 1 and row % lanes:
        shared = scale is zero_point is Access.BROADCAST and row > lanes
        return BlockRows.TWO if shared else BlockRows.ANY, Access.BROADCAST, Access.BROADCAST
    if scale is None or zero_point is None:
        return BlockRows.ANY, Access.ELEMENTS, Access.ELEMENTS
    return BlockRows.ONE, scale, zero_point


def _plan(desc: OperatorDesc, problem: QuantizationProblem, packed: bool, caps: Capabilities) -> Plan:
    source, scale, zero_point, output = _tensors(desc)
    quantizes = isinstance(desc, Quantize | ElementWiseQuantizeLinear | DynamicQuantizeLinear)
    quantized = output if quantizes else source
    four_bits = element_bits(quantized.data_type) == 4
    walk = problem.walk
    words = quantizes and four_bits and not packed and _nested(walk.sizes, walk.strides[-1])
    lanes = problem.lanes if packed or words else 1
    elements = output.element_count
    constants = {
        "SIGNED": int(quantized.data_type.name.startswith("INT")),
        "HAS_ZERO_POINT": int(zero_point is not None),
        "RANK": len(walk.sizes),
    }
    if packed:
        constants["ROWS"], constants["SCALE_MODE"], constants["ZERO_POINT_MODE"] = _rows(problem, lanes)
    elif words:
        constants["PACKED"] = 0
        elements = 1 + sum((size - 1) * step for size, step in zip(walk.sizes, walk.strides[-1], strict=True))
    count = -(-elements // lanes)
    constants["LOCAL_SIZE_X"] = _WORKGROUP
    constants["ITEMS"] = items = _item_count(lanes, count, caps)
    kernel = "quantize" if quantizes else "dequantize"
    variant = {"LANES": str(lanes), "T": (source if quantizes else output).data_type.name, "S": scale.data_type.name}
    if four_bits:
        kernel += "_to_4_bits" if quantizes else "_from_4_bits"
    else:
        variant["U"] = f"UINT{element_bits(quantized.data_type)}"
    strides = dict(zip(KERNELS[kernel].buffer_names, walk.strides, strict=True))
    if isinstance(desc, DynamicQuantizeLinear):
        bindings = (input_range(0), output_range(1), output_range(2), output_range(0))
    else:
        bindings = (input_range(0), input_range(1), input_range(0 if zero_point is None else 2), output_range())
    dispatch = make_dispatch(
        kernel,
        bindings,
        linear_grid(-(-count // (_WORKGROUP * items)), caps),
        variant=variant,
        constants=constants,
        count=count,
        inner_size=elements,
        sizes=walk.sizes,
        divisors=divisors(walk.sizes),
        **{f"{name}_strides": own for name, own in strides.items()},
    )
    return Plan((dispatch,))


def _item_count(lanes: int, count: int, caps: Capabilities) -> int:
    """Items an invocation: several, for the accesses of one are too small to keep the memory busy, where there are enough to
    fill the device."""
    if caps.is_cpu or count * lanes < caps.model.invocations(WAVES_OF_ITEMS):
        return 1
    return {1: MOST_ITEMS, 16: 1}.get(lanes, 2)


def _groups(desc: OperatorDesc, problem: QuantizationProblem, caps: Capabilities) -> Plan:
    return _plan(desc, problem, True, caps)


def _elements(desc: OperatorDesc, problem: QuantizationProblem, caps: Capabilities) -> Plan:
    return _plan(desc, problem, False, caps)


def _dynamic(
    quantize: Callable[[OperatorDesc, QuantizationProblem, Capabilities], Plan],
) -> Callable[[DynamicQuantizeLinear, QuantizationProblem, Capabilities], Plan]:
    """Three steps: the range of each chunk of the input, what follows from the range of all, and the quantization."""

    def schedule(desc: DynamicQuantizeLinear, problem: QuantizationProblem, caps: Capabilities) -> Plan:
        reading = range_reading(desc.tensor("input_tensor"), caps)
        assert reading.partials is not None, "rows are split"
        team = min(most_invocations(caps), _WORKGROUP)
        signed = int(desc.tensor("output_tensor").data_type is TensorDataType.INT8)
        merging = make_dispatch(
            "quantization_range",
            (output_range(1), output_range(2), reading.partials),
            (1, 1, 1),
            variant={"LANES": 1, "T": "FLOAT32", "U": "UINT8"},
            constants={"LOCAL_SIZE_X": team, "TEAM": team, "SIGNED": signed},
            decreasing=0,
            index_words=0,
            divisor=1,
            chunks=reading.chunks,
        )
        dispatches = (reading.dispatch, merging, *quantize(desc, problem, caps).dispatches)
        return Plan(dispatches, temporary_bytes=reading.partials.nbytes)

    return schedule


def _add_problem(desc: ElementWiseQuantizedLinearAdd) -> ElementwiseProblem:
    tensors = [desc.tensor(name) for name in ("a_tensor", "b_tensor", "output_tensor")]
    strides = [tensor.effective_strides for tensor in tensors]
    return pointwise_problem(TensorDataType.UINT8, TensorDataType.UINT8, tensors[0].sizes, strides)


def _add(rule: str) -> Callable[[ElementWiseQuantizedLinearAdd, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: ElementWiseQuantizedLinearAdd, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        slots = {slot.field.name: (index, slot.tensor) for index, slot in enumerate(desc.input_slots())}
        constants: dict[str, int] = {}
        parameters: list[Range] = []
        for name in ("a", "b", "output"):
            constants[f"{name.upper()}_SIGNED"] = desc.tensor(f"{name}_tensor").data_type is TensorDataType.INT8
            scale, _ = slots[f"{name}_scale_tensor"]
            zero_point, present = slots[f"{name}_zero_point_tensor"]
            constants[f"HAS_{name.upper()}_ZERO_POINT"] = present is not None
            parameters += [input_range(scale), input_range(scale if present is None else zero_point)]
        bindings = (input_range(0), input_range(slots["b_tensor"][0]), output_range(), *parameters)
        return Plan((launch("elementwise_quantized_add", rule, problem, caps, bindings, constants, {}),))

    return schedule


register(
    ElementWiseQuantizeLinear,
    ElementWiseDequantizeLinear,
    Quantize,
    Dequantize,
    problem=_problem,
    rules=QUANTIZATION,
    schedules={"groups": _groups, "elements": _elements},
)


def _dynamic_features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    return frozenset({"subgroup_shuffle"})  # the range of the elements is a reduction


register(
    DynamicQuantizeLinear,
    problem=_problem,
    rules=QUANTIZATION,
    schedules={"groups": _dynamic(_groups), "elements": _dynamic(_elements)},
    features=_dynamic_features,
)
register(
    ElementWiseQuantizedLinearAdd,
    problem=_add_problem,
    rules=ELEMENTWISE_ITEMS,
    schedules={rule.name: _add(rule.name) for rule in ELEMENTWISE_ITEMS},
)
