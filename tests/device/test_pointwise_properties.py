"""Properties of every pointwise operator over random types, ranks, sizes, strides, offsets, aliasing and schedules, and over
random mistakes: what is valid equals the oracle and touches nothing else, what is not is refused before the GPU sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from drawing import BROKEN_VALUES, Draw, broken_tensors, draw_pointwise, draw_sizes, examples, scheduled
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import BindingError, BufferBinding, InvalidArgumentError, TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.runtime.memory import Buffer
from dmlvk.spec import ops
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import FLOATS, FieldKind, FieldSpec, OperatorDesc
from dmlvk.spec.tensor import element_bits
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import integer_limits
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import Outcome, check_problem

T = TensorDataType


def assert_passed(outcome: Outcome, desc: OperatorDesc) -> None:
    assert outcome.passed, f"{outcome.operator}, {outcome.variation}: {outcome.detail}\n{desc}"
    assert not outcome.unsupported, "the CI's device can do everything"


@examples(70)
@given(data=st.data())
def test_what_is_valid_equals_the_oracle(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    entry, variation, problem = draw_pointwise(draw)
    with scheduled(device, is_cpu=draw(st.booleans()), items=draw(st.sampled_from([0, 0, 2, 3, 4]))):
        rule = draw(st.sampled_from(["", *possible_rules(problem.desc, device.capabilities)]))
        outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
    assert_passed(outcome, problem.desc)


# -- problems as large as those that a GPU's schedules are for

SQUARE = (1031, 1031)
"""More than 2^20 elements: primes, just above a multiple of every tile."""
PACKED, PADDED, TURNED = None, (1032, 1), (1, 1031)


class Large(NamedTuple):
    """A large problem and how it must be scheduled.

    Attributes:
        operator, data_type, in_place: The operator, its first input's type, and the input that the output shares.
        strides: Of the inputs and the output, as far as those are tensors of their own.
        rule: The rule that is chosen; of "elements", which may come after others, the rule that is forced.
        constants: Some of those that the kernel then has.
    """

    operator: type[OperatorDesc]
    data_type: TensorDataType
    in_place: str
    strides: tuple[tuple[int, int] | None, ...]
    rule: str
    constants: dict[str, int]


LARGE = (
    Large(ops.ActivationRelu, T.FLOAT16, "", (TURNED, PADDED), "elements", {"ITEMS": 4}),
    Large(ops.ElementWiseAbs, T.INT8, "input_tensor", (PADDED,), "elements", {"ITEMS": 4}),
    Large(ops.ElementWiseAdd, T.INT64, "", (PACKED, PADDED, PADDED), "elements", {"ITEMS": 4}),
    Large(ops.ElementWiseIsNan, T.FLOAT32, "", (PACKED, PACKED), "groups", {"ITEMS": 2}),
    Large(ops.ActivationRelu, T.FLOAT32, "", (TURNED, PACKED), "tiles", {}),
    Large(ops.ElementWiseIdentity, T.UINT8, "", (PACKED, TURNED), "tiles", {}),
    Large(ops.ElementWiseAdd, T.UINT8, "b_tensor", (TURNED, PACKED), "tiles", {"ODD": 0}),
    Large(ops.ElementWiseAdd, T.FLOAT32, "a_tensor", (PACKED, TURNED), "tiles", {"ODD": 1}),
    Large(ops.ElementWiseSubtract, T.INT16, "", (TURNED, TURNED, PACKED), "tiles", {"ODD": 2}),
)


@pytest.mark.parametrize("large", LARGE, ids=lambda large: f"{large.operator.__name__}-{large.data_type.name}-{large.rule}")
def test_large_problems_scheduled_as_on_a_gpu(device: dmlvk.Device, large: Large) -> None:
    entry = all_cases()[large.operator]
    # Groups are fewer than elements.
    sizes = (SQUARE[0], SQUARE[1] * 8) if large.rule == "groups" else SQUARE
    case = dataclasses.replace(entry.cases[0], name="large", inputs=dict.fromkeys(entry.cases[0].inputs, sizes))
    strides = iter(large.strides)

    def place(kind: TensorDataType, own: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return GuardedTensor(TensorDesc(kind, own, next(strides)), 16)

    variation = Variation(case, large.data_type, "large", large.in_place, large.rule)
    problem = build(large.operator, variation, place)
    with scheduled(device, is_cpu=False):
        (dispatch,) = lower(problem.desc, device.capabilities, force=large.rule).dispatches
        assert large.constants.items() <= dict(dispatch.kernel.constants).items()
        chosen = next(rule.name for rule, holds in explain(problem.desc, device.capabilities) if holds)
        assert large.rule in (chosen, "elements")
        assert_passed(check_problem(device, entry, variation, problem), problem.desc)


# -- descs that are not valid


class Mistake(NamedTuple):
    """A value that breaks a valid desc, and the fields that the error may blame."""

    field: str
    value: object
    blamed: frozenset[str]


def mistakes(desc: OperatorDesc) -> Iterator[Mistake]:
    """Changes of a desc, each of which makes one field wrong."""
    for spec in desc.fields:
        broken = broken_tensors(desc, spec) if spec.kind.is_tensor else _broken_attributes(desc, spec)
        yield from (Mistake(spec.name, value, frozenset({spec.dml_name})) for value in broken)
    # What joins all tensors: whichever differs, another may be blamed.
    tensors = [spec for spec in desc.fields if isinstance(getattr(desc, spec.name), TensorDesc)]
    joined = {constraint.label for constraint in desc.constraints if constraint.rule.startswith("all tensors")}
    blamed = frozenset(spec.dml_name for spec in desc.fields if spec.kind.is_tensor)
    for spec in tensors if len(tensors) > 1 else ():
        tensor = desc.tensor(spec.name)
        *outer, inner = tensor.sizes
        others: list[tuple[TensorDataType, tuple[int, ...]]] = []
        if "same_sizes" in joined:
            others.append((tensor.data_type, (*outer, inner + 1)))
        if "same_dimension_count" in joined:
            others.append((tensor.data_type, (1, 1)))
        if "same_data_type" in joined:
            others += [(data_type, tensor.sizes) for data_type in spec.data_types]
        unchanged = {(tensor.data_type, tensor.sizes), (tensor.data_type, (1,) * (len(outer) == 1) + (1,))}
        yield from (Mistake(spec.name, TensorDesc(*other), blamed) for other in others if other not in unchanged)


def _broken_attributes(desc: OperatorDesc, spec: FieldSpec) -> Iterator[object]:
    yield from BROKEN_VALUES[spec.kind]
    if spec.kind is FieldKind.UINT:
        yield 2**32 - 1  # no axis, and these operators have no other whole number
    (output,) = (slot.tensor for slot in desc.output_slots())
    assert output is not None
    if spec.enumeration is TensorDataType:
        yield from (data_type for data_type in TensorDataType if data_type != output.data_type)
    elif spec.kind is FieldKind.SCALAR_UNION and output.data_type.name.startswith("FLOAT"):
        yield from (1e39, -1e39) if output.data_type in FLOATS else ()
    elif spec.kind is FieldKind.SCALAR_UNION:
        least, most = integer_limits(output.data_type)
        yield from (most + 1, least - most - 1, 0.5, math.nan, math.inf)


def work(device: dmlvk.Device) -> tuple[int, ...]:
    """Counts of all that the GPU or its driver were ever asked for."""
    return (device.dispatches, device.native.submissions, device.pipelines_created, device.memory()["live"])


@examples(100)
@given(data=st.data())
def test_every_mistake_in_a_desc_is_refused(device: dmlvk.Device, data: st.DataObject) -> None:
    desc = draw_pointwise(data.draw).problem.desc
    before = work(device)
    for field, value, blamed in mistakes(desc):
        with pytest.raises(InvalidArgumentError) as caught:
            device.create_operator(desc.replace(**{field: value}))
            pytest.fail(f"{field} = {value!r} is accepted in {desc}")
        error = caught.value
        assert error.operator == desc.type.dml_name
        assert error.field in blamed, f"{field} = {value!r}: {error}"
        assert error.rule and error.rule in str(error)
    assert work(device) == before
    device.create_operator(desc)


# -- bindings that are not valid


class Bound:
    """A drawn problem's operator, a table, and a binding for every slot in a buffer for each tensor."""

    def __init__(self, device: dmlvk.Device, problem: Problem) -> None:
        self.device = device
        self.problem = problem
        self.operator = ReadyOperator(device, problem.desc).compiled
        self.table = device.create_binding_table(self.operator)
        self.buffers: dict[GuardedTensor, Buffer] = {}
        self.slots = [*self.operator.signature.inputs, *self.operator.signature.outputs]
        self.tensors = [*problem.inputs, *problem.outputs]
        self.bindings: list[BufferBinding | None] = []
        for tensor in self.tensors:
            if tensor is not None and tensor not in self.buffers:
                self.buffers[tensor] = device.create_buffer(tensor.data.nbytes)
                self.buffers[tensor].write(tensor.data)
            self.bindings.append(tensor and BufferBinding(self.buffers[tensor], tensor.offset))

    def bind(self, bindings: Sequence[object], *, inputs: bool = True, outputs: bool = True) -> None:
        """Binds the slots, inputs and outputs together, or one of the two."""
        count = len(self.problem.inputs)
        if inputs:
            self.table.bind_inputs(list(bindings[:count]))  # type: ignore[arg-type]  # some are no bindings
        if outputs:
            self.table.bind_outputs(list(bindings[count:]))  # type: ignore[arg-type]

    def execute(self) -> None:
        commands = self.device.create_command_list()
        self.device.create_command_recorder().record_dispatch(commands, self.operator, self.table)
        self.device.execute(commands)

    @property
    def output(self) -> GuardedTensor:
        (output,) = self.problem.outputs
        assert output is not None
        return output

    def result(self) -> NDArray[np.uint8]:
        """The output's bytes after an execution with the bindings that the table has."""
        for tensor, buffer in self.buffers.items():
            buffer.write(tensor.data)
        self.execute()
        return own_bytes(self.output, self.buffers[self.output].read())

    def broken(self, index: int) -> Iterator[object]:
        """Everything that is wrong about the binding of a slot after one change."""
        binding, tensor = self.bindings[index], self.tensors[index]
        if binding is None or tensor is None:  # an absent optional tensor
            yield BufferBinding(self.buffers[self.output])
            return
        buffer, offset, _ = binding
        assert buffer is not None
        needed = tensor.desc.total_tensor_size_in_bytes
        yield from (None, BufferBinding(None), 5, "buffer", np.zeros(4, np.float32), buffer)
        yield from (binding._replace(offset=offset + change) for change in (1, 2, 4, 8, 15, -1))
        yield from (binding._replace(offset=wrong) for wrong in (-16, 2**32, 2**64, 1.5, "0", None))
        yield binding._replace(offset=-(-(buffer.size_in_bytes - needed + 1) // 16) * 16)
        yield from (binding._replace(size_in_bytes=size) for size in (needed - 1, 0, -4, buffer.size_in_bytes - offset + 1))
        yield from (binding._replace(size_in_bytes=size) for size in (2**70, 1.5, "60"))


def own_bytes(tensor: GuardedTensor, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A tensor's bytes without what guards them."""
    return data[tensor.offset : tensor.offset + tensor.desc.total_tensor_size_in_bytes]


@examples(30)
@given(data=st.data())
def test_every_mistake_in_a_binding_is_refused_and_changes_nothing(device: dmlvk.Device, data: st.DataObject) -> None:
    bound = Bound(device, draw_pointwise(data.draw).problem)
    bound.bind(bound.bindings)
    expected = bound.result()
    before = device.dispatches, device.native.submissions
    for index, slot in enumerate(bound.slots):
        is_input = index < len(bound.problem.inputs)
        for broken in bound.broken(index):
            with pytest.raises(BindingError) as caught:
                bound.bind(
                    [*bound.bindings[:index], broken, *bound.bindings[index + 1 :]], inputs=is_input, outputs=not is_input
                )
                pytest.fail(f"{slot.name} bound to {broken} is accepted")
            assert (caught.value.operator, caught.value.field) == (bound.operator.signature.operator, slot.name)
    for name, own in (("Inputs", bound.bindings[: len(bound.problem.inputs)]), ("Outputs", bound.bindings[-1:])):
        for broken in (own[1:], [*own, bound.bindings[-1]]):
            if broken:
                with pytest.raises(BindingError) as caught:
                    (bound.table.bind_inputs if name == "Inputs" else bound.table.bind_outputs)(broken)
                assert caught.value.field == name
    assert (device.dispatches, device.native.submissions) == before
    assert np.array_equal(bound.result(), expected), "the table has kept what it had"


@examples(50)
@given(data=st.data())
def test_ranges_of_one_buffer(device: dmlvk.Device, data: st.DataObject) -> None:
    """All tensors in one buffer: refused exactly when the output meets an input other than in place."""
    bound = Bound(device, draw_pointwise(data.draw).problem)
    bound.bind(bound.bindings)
    expected = bound.result()
    starts, room = draw_starts(data.draw, bound)
    memory = np.full(room, 0x5A, np.uint8)
    for tensor, start in reversed(starts.items()):  # the output first: what lies in place is the input
        memory[start : start + tensor.desc.total_tensor_size_in_bytes] = own_bytes(tensor, tensor.data)
    arena = device.create_buffer(room)
    arena.write(memory)
    bindings = [tensor and BufferBinding(arena, starts[tensor]) for tensor in bound.tensors]
    bound.bind(bindings)
    conflicts = conflicting_inputs(bound, starts)
    if not conflicts:
        bound.execute()
        at = starts[bound.output]
        memory[at : at + expected.size] = expected
        assert np.array_equal(arena.read(), memory)
        return
    before = device.dispatches, device.native.submissions
    with pytest.raises(BindingError) as caught:
        bound.execute()
    assert caught.value.operator == bound.operator.signature.operator
    assert caught.value.field in conflicts
    assert (device.dispatches, device.native.submissions) == before
    assert np.array_equal(arena.read(), memory)
    bound.bind(bound.bindings)
    assert np.array_equal(bound.result(), expected)


def draw_starts(draw: Draw, bound: Bound) -> tuple[dict[GuardedTensor, int], int]:
    """Where in a buffer the tensors lie, and its size: inputs apart, the output apart, on an input, or across one."""
    starts: dict[GuardedTensor, int] = {}
    end = 0
    for tensor in bound.tensors:
        if tensor is not None and tensor not in starts:
            starts[tensor] = end + 16 * draw(st.integers(0, 3))
            end = -(-(starts[tensor] + tensor.desc.total_tensor_size_in_bytes) // 16) * 16
    inputs = [tensor for tensor in bound.problem.inputs if tensor not in (None, bound.output)]
    if inputs and bound.output not in bound.problem.inputs and draw(st.integers(0, 3)):
        across = draw(st.sampled_from([0, 0, 16, 48, -16, -48]))
        starts[bound.output] = max(starts[draw(st.sampled_from(inputs))] + across, 0)
    end = max(start + tensor.desc.total_tensor_size_in_bytes for tensor, start in starts.items())
    return starts, end + 64


def conflicting_inputs(bound: Bound, starts: dict[GuardedTensor, int]) -> set[str]:
    """The inputs that meet the output other than as the specification allows, by its words."""
    found = set()
    output, nbytes = bound.output.desc, bound.output.desc.total_tensor_size_in_bytes
    at = starts[bound.output]
    for slot, tensor in zip(bound.problem.desc.input_slots(), bound.problem.inputs, strict=True):
        if tensor is None:
            continue
        start, desc = starts[tensor], tensor.desc
        meets = start < at + nbytes and at < start + desc.total_tensor_size_in_bytes
        same = (start, desc.total_tensor_size_in_bytes, desc.data_type, desc.sizes, desc.effective_strides) == (
            *(at, nbytes, output.data_type, output.sizes, output.effective_strides),
        )
        if meets and not (same and slot.field.name in bound.problem.desc.in_place):
            is_array = slot.field.kind is FieldKind.INPUT_TENSOR_ARRAY
            found.add(f"{slot.field.dml_name}[{slot.element}]" if is_array else slot.field.dml_name)
    return found


# -- tensors as large as a binding may be, of which only plans are made

HUGE = Capabilities(
    features=frozenset({"storage8", "storage16", "int8", "int16", "int64", "float16", "float64"}),
    storage_buffer_bytes=2**32 - 1,
)


def draw_far_strides(draw: Draw, data_type: TensorDataType, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Small strides but for one, which is as large as fits the largest binding, or larger."""
    strides = [draw(st.integers(0, 40)) for _ in sizes]
    axis = draw(st.integers(0, len(sizes) - 1))
    reach = 8 * 2**32 // element_bits(data_type) // max(sizes[axis] - 1, 1)
    strides[axis] = min(draw(st.sampled_from([1, reach // 2, reach - 40, reach, 2 * reach, 2**32])), 2**32 - 1)
    return tuple(strides)


@examples(150)
@given(data=st.data())
def test_every_layout_has_a_plan_or_a_reason(data: st.DataObject) -> None:
    """Whatever the sizes and strides, 32-bit parameters hold what the plan needs, or the desc is unsupported."""
    draw = data.draw
    row = draw(
        st.sampled_from([ops.ElementWiseIdentity, ops.ElementWiseAdd, ops.ElementWiseIf, ops.Cast, ops.ElementWiseIsNan])
    )
    data_type = draw(st.sampled_from([T.FLOAT64, T.INT64, T.FLOAT32, T.FLOAT16, T.UINT8]))
    sizes = draw_sizes(draw, elements=2**14, each=st.sampled_from([1, 2, 3, 7, 16, 17, 64, 129]))
    tensors = {}
    for spec in row.fields:
        if spec.kind.is_tensor:
            own = data_type if data_type in spec.data_types else spec.data_types[0]
            strides = draw_far_strides(draw, own, sizes) if draw(st.booleans()) else None
            tensors[spec.name] = TensorDesc(own, sizes, strides)
    desc = row(**tensors)
    assume(not any(slot.tensor.has_overlapping_elements for slot in desc.output_slots() if slot.tensor))
    fits = all(tensor.total_tensor_size_in_bytes <= HUGE.storage_buffer_bytes for tensor in tensors.values())
    if not fits:  # in parts, where it can be cut
        try:
            plan = lower(desc, HUGE)
        except UnsupportedError as error:
            assert "larger" in str(error)
        else:
            ranges = [binding for dispatch in plan.dispatches for binding in dispatch.bindings]
            assert len(plan.dispatches) > 1
            assert all(0 < binding.nbytes <= HUGE.storage_buffer_bytes for binding in ranges)
        return
    for rule in ("", *possible_rules(desc, HUGE)):
        assert lower(desc, HUGE, force=rule).dispatches
