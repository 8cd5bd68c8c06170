"""Several pointwise operators as one: in float32 the bits of the operators one after the other, in float16 one rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawing import examples, scheduled
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import Graph, TensorDataType, TensorDesc
from dmlvk.graph.passes.chain import operations_of
from dmlvk.kernels.elementwise.lowering import ROWS
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.functions import function_name
from dmlvk.spec.ops.chain import (
    FIRST_NUMBER,
    FIRST_RESULT,
    MOST_INPUTS,
    MOST_OPERATIONS,
    NONE,
    MultiTensorChain,
    PointwiseChain,
    together,
)
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run, ulp_errors
from dmlvk.verify.oracle.number_format import format_cast

F32, F16, U8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
Array = NDArray[Any]
LINE = TensorDesc(F32, (4,))
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, 2, 3, -7.25, 1e-30, 1e-41, 3e38, -3e38, np.inf, -np.inf, np.nan, 65504], np.float32)


def _attributes(row: type[OperatorDesc]) -> dict[str, Any]:
    """Something for each attribute."""
    values: dict[str, Any] = {}
    for field in row.fields:
        if field.enumeration is TensorDataType:
            values[field.name] = F32
        elif field.enumeration is not None:
            values[field.name] = next(iter(field.enumeration))
        elif not field.kind.is_tensor and not field.optional:
            values[field.name] = 1.5 if "max" not in field.name else 2.5
    return values


def _tensors(row: type[OperatorDesc]) -> dict[str, TensorDesc]:
    fields = [field for field in row.fields if field.kind.is_tensor]
    return {field.name: LINE if F32 in field.data_types else dataclasses.replace(LINE, data_type=U8) for field in fields}


def _made(row: type[OperatorDesc]) -> tuple[TensorDataType, ...]:
    """The types of the output."""
    return next(field.data_types for field in row.fields if field.kind.is_output)


CHAINABLE = [row for row in ROWS if operations_of(row(**_tensors(row), **_attributes(row)))]
LOGIC = [row for row in CHAINABLE if F32 not in row.fields[0].data_types]


def bits(array: Array) -> Array:
    """The bits of numbers; NaN is NaN, whatever it carries."""
    found = np.where(np.isnan(array), array.dtype.type(np.nan), array).view(f"u{array.dtype.itemsize}")
    assert isinstance(found, np.ndarray)
    return found


def numbers(seed: int, *sizes: int) -> Array:
    """Some of them special."""
    random = np.random.default_rng(seed)
    values = (random.standard_normal(sizes) * 2).astype(np.float32)
    return np.where(random.random(sizes) < 0.3, random.choice(SPECIAL, sizes), values)


# -- the kernel


def _result(device: dmlvk.Device, operation: OperatorDesc, operands: Sequence[Array]) -> Array:
    """One operation by its own kernel."""
    if isinstance(operation, ops.Cast):
        return operands[0].astype(np.float32)
    fields = [field for field in operation.fields if not field.kind.is_tensor]
    attributes = {field.name: getattr(operation, field.name) for field in fields}
    types = {} if F32 in _made(type(operation)) else {"output_data_types": [U8]}
    call = getattr(dmlvk.eager, function_name(type(operation)))
    return np.asarray(call(*operands, **attributes, **types, device=device))


def _one_by_one(device: dmlvk.Device, desc: PointwiseChain, inputs: Sequence[Array]) -> Array:
    """The chain's operations, each by its own kernel."""
    results: list[Array] = []
    for index, operation in enumerate(desc.operator_descs):
        operands = []
        for name in desc.operands[3 * index : 3 * index + 3]:
            if name < FIRST_NUMBER:
                operands.append(np.ascontiguousarray(inputs[name]))
            elif name < FIRST_RESULT:
                number = np.float32(desc.numbers[2 * index + name - FIRST_NUMBER])
                operands.append(np.full(desc.tensor("output_tensor").sizes, number))
            elif name != NONE:
                operands.append(results[name - FIRST_RESULT])
        results.append(_result(device, operation, operands))
    return results[-1]


class Program:
    """A chain under construction, of inputs of some sizes."""

    def __init__(self, inputs: int, sizes: tuple[int, ...]) -> None:
        self.tensors = (TensorDesc(F32, sizes),) * inputs
        self.operations: list[OperatorDesc] = []
        self.operands: list[int] = []
        self.numbers: list[float] = []

    def add(self, operation: OperatorDesc, *operands: int, numbers: tuple[float, float] = (0.0, 0.0)) -> int:
        """One more operation; the number of its result."""
        self.operations.append(operation)
        self.operands += (*operands, NONE, NONE)[:3]
        self.numbers += numbers
        return FIRST_RESULT + len(self.operations) - 1

    def desc(self) -> PointwiseChain:
        """The chain."""
        return PointwiseChain(
            input_tensors=self.tensors,
            output_tensor=self.tensors[0],
            operator_descs=tuple(self.operations),
            operands=tuple(self.operands),
            numbers=tuple(self.numbers),
        )


def _applied(program: Program, row: type[OperatorDesc], *operands: int) -> int:
    """The result of an operator of the inputs, as a number."""
    count = sum(field.kind.is_input for field in row.fields)
    made = program.add(row(**_attributes(row)), *operands[:count])
    return made if F32 in _made(row) else program.add(ops.ElementWiseIf(), made, 1, 0)


def _checked(device: dmlvk.Device, desc: PointwiseChain) -> None:
    """Runs a chain of packed inputs beside its operations."""
    inputs = [numbers(seed, *tensor.sizes) for seed, tensor in enumerate(desc.input_tensors)]
    guarded = [GuardedTensor(tensor, 0) for tensor in desc.input_tensors]
    for tensor, values in zip(guarded, inputs, strict=True):
        tensor.view()[...] = values
    result = GuardedTensor(desc.tensor("output_tensor"), 0)
    found = result.view(run(device, Problem(desc, tuple(guarded), (result,))).buffers[0])
    np.testing.assert_array_equal(bits(found), bits(_one_by_one(device, desc, inputs)))


OF_NUMBERS = [row for row in CHAINABLE if row not in LOGIC]


def test_there_are_operators_for_chains() -> None:
    assert len(OF_NUMBERS) > 65 and len(LOGIC) == 4
    assert sum(F32 not in _made(row) for row in CHAINABLE) == 11


PAIRS = [OF_NUMBERS[index : index + 2] for index in range(0, len(OF_NUMBERS), 2)]


@pytest.mark.parametrize("rows", PAIRS, ids=lambda rows: "-".join(row.__name__ for row in rows))
def test_every_operator_in_a_chain(device: dmlvk.Device, rows: list[type[OperatorDesc]]) -> None:
    """Behind a choice between two, a product and a sum, which would be one operation if a compiler took them together."""
    program = Program(2, (3, 36))
    first, last = (_applied(program, row, 0, 1) for row in (rows[0], rows[-1]))
    choice = program.add(ops.ElementWiseLogicalGreaterThan(), 1, FIRST_NUMBER)
    chosen = program.add(ops.ElementWiseIf(), choice, first, last)
    product = program.add(ops.ElementWiseMultiply(), chosen, 0)
    program.add(ops.ElementWiseAdd(), product, 1)
    _checked(device, program.desc())


def test_a_power_in_a_chain(device: dmlvk.Device) -> None:
    """Of a number to tensors, as optimisers correct their averages, and of tensors to a number."""
    program = Program(2, (3, 36))
    share = program.add(ops.ElementWisePow(), FIRST_NUMBER, 0, numbers=(0.999, 0.0))
    left = program.add(ops.ElementWiseSubtract(), FIRST_NUMBER, share, numbers=(1.0, 0.0))
    program.add(ops.ElementWiseMultiply(), left, program.add(ops.ElementWisePow(), 1, FIRST_NUMBER, numbers=(3.0, 0.0)))
    _checked(device, program.desc())


def test_logic_in_a_chain(device: dmlvk.Device) -> None:
    program = Program(2, (3, 36))
    greater, less = (row() for row in (ops.ElementWiseLogicalGreaterThan, ops.ElementWiseLogicalLessThan))
    truth = [program.add(greater, 0, 1), program.add(less, 1, FIRST_NUMBER, numbers=(0.5, 0.0))]
    for row in LOGIC:
        count = sum(field.kind.is_input for field in row.fields)
        truth.append(program.add(row(), *truth[-2:][:count]))
    number = program.add(ops.Cast(), truth[-1])
    program.add(ops.ElementWiseIf(), truth[-2], number, 0)
    _checked(device, program.desc())


@pytest.mark.parametrize("sizes", [(3, 36), (5, 7)], ids=["groups", "elements"])
def test_integers_are_cast(device: dmlvk.Device, sizes: tuple[int, ...]) -> None:
    """Small ones, whose bits are those of subnormal numbers, and what float32 rounds."""
    random = np.random.default_rng(3)
    corners = np.array([0, 1, -1, 7, 16777217, -16777219, 2**31 - 1, -(2**31), 2**30 + 64, 0x7FC00001], np.int32)
    integers, scale = random.choice(corners, sizes), numbers(4, 1, sizes[1])
    tensors = TensorDesc(TensorDataType.INT32, sizes), TensorDesc(F32, sizes, (0, 1))
    program = Program(2, sizes)
    product = program.add(ops.ElementWiseMultiply(), program.add(ops.Cast(), 0), 1)
    program.add(ops.ElementWiseAdd(), product, FIRST_NUMBER, numbers=(0.5, 0.0))
    desc = program.desc().replace(input_tensors=tensors)
    guarded = [GuardedTensor(tensor, 0) for tensor in tensors]
    guarded[0].view()[...] = integers
    guarded[1].view()[...] = scale
    result = GuardedTensor(TensorDesc(F32, sizes), 0)
    found = result.view(run(device, Problem(desc, tuple(guarded), (result,))).buffers[0])
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(bits(found), bits(integers.astype(np.float32) * scale + np.float32(0.5)))


def test_rounding_to_bfloat16(device: dmlvk.Device) -> None:
    """Halves, what is next to them, and what rounds to infinity: the bits of the row by itself are held elsewhere."""
    sums = numbers(5, 3, 36)
    bits_ = sums.view(np.uint32) & 0xFFFF0000 | np.random.default_rng(6).choice([0, 0x7FFF, 0x8000, 0x8001], sums.shape)
    x = bits_.astype(np.uint32).view(np.float32)
    x[np.abs(x) < np.finfo(np.float32).tiny] = 0  # a device may flush subnormals when it negates
    x[0, :2] = np.array([0x7F7FFFFF, 0xFF7F8000], np.uint32).view(np.float32)
    tensor = TensorDesc(F32, x.shape)
    program = Program(1, x.shape)
    rounded = program.add(FormatCast(format=NumberFormat.BFLOAT16), 0)
    program.add(ops.ElementWiseNegate(), rounded)
    guarded, result = GuardedTensor(tensor, 0), GuardedTensor(tensor, 0)
    guarded.view()[...] = x
    found = result.view(run(device, Problem(program.desc(), (guarded,), (result,))).buffers[0])
    expected = format_cast(FormatCast(format=NumberFormat.BFLOAT16), x).astype(np.float32)
    np.testing.assert_array_equal(bits(found), bits(-expected))


def test_the_bits_of_bfloat16(device: dmlvk.Device) -> None:
    """Of NaN those of the row by itself."""
    x = numbers(5, 3, 36)
    x[0, :4] = np.array([0x7F7FFFFF, 0xFF7F8000, 0x7FC00001, 0x80000000], np.uint32).view(np.float32)
    program = Program(1, x.shape)
    program.add(FormatCast(format=NumberFormat.BFLOAT16), program.add(ops.ElementWiseNegate(), 0))
    halves = TensorDesc(TensorDataType.UINT16, x.shape)
    guarded, result = GuardedTensor(TensorDesc(F32, x.shape), 0), GuardedTensor(halves, 0)
    guarded.view()[...] = x
    desc = program.desc().replace(output_tensor=halves)
    found = result.view(run(device, Problem(desc, (guarded,), (result,))).buffers[0])
    np.testing.assert_array_equal(found, format_cast(FormatCast(output_tensor=halves, format=NumberFormat.BFLOAT16), -x))


# -- every layout


@pytest.mark.parametrize("items", [1, 3])
def test_rows_that_start_anywhere(device: dmlvk.Device, items: int) -> None:
    """A number a row, a number a column and a tensor with gaps, beside one that is packed as the output is."""
    sizes = (11, 7)
    strides = ((7, 1), (1, 0), (0, 1), (9, 1))
    tensors = [TensorDesc(F32, sizes, own) for own in strides]
    program = Program(4, sizes)
    product = program.add(ops.ElementWiseMultiply(), 0, 1)
    program.add(ops.ElementWiseSubtract(), program.add(ops.ElementWiseAdd(), product, 2), 3)
    chain = program.desc().replace(input_tensors=tuple(tensors))
    guarded = [GuardedTensor(tensor, 0) for tensor in tensors]
    random = np.random.default_rng(7)
    for tensor, own in zip(guarded, strides, strict=True):
        shown = tuple(size if step else 1 for size, step in zip(sizes, own, strict=True))
        tensor.view()[...] = random.standard_normal(shown).astype(np.float32)
    x, rows, columns, gaps = (np.array(tensor.view()) for tensor in guarded)
    whole = TensorDesc(F32, sizes)
    single = ops.ElementWiseMultiply(a_tensor=tensors[0], b_tensor=tensors[1], output_tensor=whole)
    for desc, inputs, wanted in ((chain, guarded, x * rows + columns - gaps), (single, guarded[:2], x * rows)):
        result = GuardedTensor(whole, 0)
        with scheduled(device, is_cpu=False, items=items):
            found = run(device, Problem(desc, tuple(inputs), (result,)), "runs").buffers[0]
        assert found is not None and not result.stray_bytes(found)
        np.testing.assert_array_equal(bits(result.view(found)), bits(wanted))


def _draw_program(draw: Any, inputs: int) -> PointwiseChain:
    """Any operations that are quickly made ready."""
    program = Program(inputs, (1,))
    binary = st.sampled_from([ops.ElementWiseAdd, ops.ElementWiseMultiply, ops.ElementWiseSubtract, ops.ElementWiseMax])
    unary = st.sampled_from([ops.ElementWiseNegate, ops.ElementWiseAbs, ops.ElementWiseTanh, ops.ActivationRelu])
    for index in range(draw(st.integers(1, MOST_OPERATIONS))):
        known = st.sampled_from(
            [*range(inputs), *range(FIRST_RESULT, FIRST_RESULT + index), *[FIRST_RESULT + index - 1] * 3 * (index > 0)]
        )
        row = draw(st.one_of(binary, unary))
        if row in (ops.ElementWiseAdd, ops.ElementWiseMultiply, ops.ElementWiseSubtract, ops.ElementWiseMax):
            other = draw(st.one_of(known, st.sampled_from([FIRST_NUMBER, FIRST_NUMBER + 1])))
            operands = draw(st.permutations([draw(known), other]))
            program.add(row(), *operands, numbers=(draw(st.sampled_from([2.0, -0.5])), 0.75))
        else:
            program.add(row(), draw(known))
    return program.desc()


def _draw_tensor(draw: Any, data_type: TensorDataType, sizes: tuple[int, ...]) -> TensorDesc:
    """Packed, with broadcast dimensions, or with gaps behind its rows."""
    if draw(st.booleans()):
        return TensorDesc(data_type, sizes)
    shown = [draw(st.booleans()) for _ in sizes]
    gap = draw(st.sampled_from([0, 0, 1, 8]))
    strides, step = [], 1
    for size, varies in zip(reversed(sizes), reversed(shown), strict=True):
        strides.append(step if varies else 0)
        step = (step * size + gap) if varies else step
    return TensorDesc(data_type, sizes, tuple(reversed(strides)))


@examples(25)
@given(data=st.data())
def test_random_chains_in_any_layout(device: dmlvk.Device, data: st.DataObject) -> None:
    """Between guard bytes, in place where that is possible, by every rule, twice: the operations' own bits."""
    draw = data.draw
    count = draw(st.integers(1, MOST_INPUTS))
    program = _draw_program(draw, count)
    sizes = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=4)))
    tensors = [_draw_tensor(draw, F32, sizes) for _ in range(count)]
    output = TensorDesc(F32, sizes)
    desc = program.replace(input_tensors=tuple(tensors), output_tensor=output)
    guarded = [GuardedTensor(tensor, draw(st.sampled_from([0, 16]))) for tensor in tensors]
    for seed, tensor in enumerate(guarded):
        tensor.view()[...] = numbers(seed, *sizes)[
            tuple(slice(None, None if step else 1) for step in tensor.desc.effective_strides)
        ]
    inputs = [np.array(tensor.view()) for tensor in guarded]
    result = guarded[0] if tensors[0] == output and draw(st.booleans()) else GuardedTensor(output, 0)
    with scheduled(device, is_cpu=draw(st.booleans()), items=draw(st.sampled_from([0, 0, 2, 4]))):
        rule = draw(st.sampled_from(possible_rules(desc, device.capabilities)))
        first, second = (run(device, Problem(desc, tuple(guarded), (result,)), rule) for _ in range(2))
    found = first.buffers[0]
    assert found is not None and first.dispatches == 1
    np.testing.assert_array_equal(found, second.buffers[0])
    assert result is guarded[0] or not result.stray_bytes(found)
    np.testing.assert_array_equal(bits(result.view(found)), bits(_one_by_one(device, desc, inputs)))


# -- several tensors


def _of_several(program: PointwiseChain, sizes: Sequence[int], broadcast: int) -> MultiTensorChain:
    """A chain for lines of some sizes, of which some inputs are one element for all."""
    lines = [TensorDesc(program.tensor("output_tensor").data_type, (size,)) for size in sizes]
    inputs = [
        dataclasses.replace(line, strides=(0,)) if broadcast >> index & 1 else line
        for line in lines
        for index in range(len(program.input_tensors))
    ]
    return MultiTensorChain(
        input_tensors=tuple(inputs),
        output_tensors=tuple(lines),
        operator_descs=program.operator_descs,
        operands=program.operands,
        numbers=program.numbers,
    )


@examples(2)
@given(data=st.data())
def test_the_same_chain_of_several_tensors(device: dmlvk.Device, data: st.DataObject) -> None:
    """Lines with and without a whole last group, some in place, by every rule: the bits of each tensor's own chain."""
    draw = data.draw
    data_type = draw(st.sampled_from([F32, F16]))
    count = draw(st.integers(1, MOST_INPUTS))
    broadcast = draw(st.integers(0, 2**count - 2))
    line = TensorDesc(data_type, (1,))
    program = _draw_program(draw, count).replace(input_tensors=(line,) * count, output_tensor=line)
    sizes = draw(st.lists(st.sampled_from([1, 3, 4, 8, 63, 64, 515, 1030]), min_size=1, max_size=together(count)))
    sizes = [size + 1 if size == 1 else size for size in sizes]
    desc = _of_several(program, sizes, broadcast)
    dtype = np.float32 if data_type is F32 else np.float16
    guarded = [GuardedTensor(tensor, draw(st.sampled_from([0, 16]))) for tensor in desc.input_tensors]
    for seed, tensor in enumerate(guarded):
        values = (
            numbers(seed, *tensor.desc.sizes) if data_type is F32 else np.random.default_rng(seed).random(tensor.desc.sizes)
        )
        tensor.view()[...] = values[slice(None, None if tensor.desc.effective_strides[0] else 1)].astype(dtype)
    inputs = [np.array(tensor.view()) for tensor in guarded]
    results = []
    for index, tensor in enumerate(desc.output_tensors):
        own = next(slot for slot in sorted(desc.overwritable(index)) if not broadcast >> (slot - index * count) & 1)
        results.append(guarded[own] if draw(st.booleans()) else GuardedTensor(tensor, 0))
    found = {}
    for rule in possible_rules(desc, device.capabilities):
        found[rule] = run(device, Problem(desc, tuple(guarded), tuple(results)), rule)
        assert found[rule].dispatches == (1 if rule == "together" else len(sizes))
    assert set(found) == {"together", "apart"}
    for index, (chain, result) in enumerate(zip(desc.chains(), results, strict=True)):
        single = [GuardedTensor(tensor, 0) for tensor in chain.input_tensors]
        for tensor, values in zip(single, inputs[index * count : (index + 1) * count], strict=True):
            tensor.view()[...] = values
        alone = GuardedTensor(chain.tensor("output_tensor"), 0)
        wanted = alone.view(run(device, Problem(chain, tuple(single), (alone,))).buffers[0])
        for rule, ran in found.items():
            own = ran.buffers[index]
            assert own is not None and (result in guarded or not result.stray_bytes(own)), rule
            np.testing.assert_array_equal(bits(result.view(own)), bits(wanted), rule)


# -- the pass


def _affine(x: Any, channels: Any) -> Any:
    return abs(x * channels + 1.5) * 0.25 - x


def _gelu(x: Any, channels: Any) -> Any:
    graph = x.graph
    return x * 0.5 * (graph.element_wise_tanh((x + x**3 * 0.03125) * 0.75) + 1.0)


def _selected(x: Any, channels: Any) -> Any:
    graph = x.graph
    beyond = graph.element_wise_logical_greater_than(x, (x * 0.0 + channels), output_data_types=[U8])
    return graph.element_wise_if(beyond, x * channels, -x) / 3.0


def _gated(x: Any, channels: Any) -> Any:
    gate = x.graph.activation_hard_sigmoid(channels, alpha=0.2, beta=0.5)
    return x * gate.broadcast_to(*x.shape) + x


def _reshaped(x: Any, channels: Any) -> Any:
    return (-(x * channels)).reshape(-1).reshape(*x.shape) * 2.0 + x


EXPRESSIONS = {"affine": _affine, "gelu": _gelu, "selected": _selected, "gated": _gated, "reshaped": _reshaped}


def _values(device: dmlvk.Device, name: str, arrays: Sequence[Array], without: tuple[str, ...]) -> tuple[Array, int]:
    """An expression's values, the same in two runs, and how many launches they take."""
    graph = Graph(device)
    data_type = F16 if arrays[0].dtype == np.float16 else F32
    function = graph.compile(EXPRESSIONS[name](*(graph.input(array.shape, data_type) for array in arrays)), without=without)
    first, second = (function(*arrays).numpy() for _ in range(2))
    np.testing.assert_array_equal(bits(first), bits(second))
    return first, len(function.operator.plan.dispatches)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_float32_is_what_it_is_without(device: dmlvk.Device, name: str) -> None:
    arrays = numbers(5, 2, 3, 7, 11), numbers(6, 1, 3, 1, 1)
    merged, launches = _values(device, name, arrays, ())
    alone, more = _values(device, name, arrays, ("chain",))
    assert launches == 1 < more
    np.testing.assert_array_equal(bits(merged), bits(alone))


@pytest.mark.parametrize(("name", "limit"), [("affine", 0.501), ("gated", 0.501), ("reshaped", 0.501), ("gelu", 0.6)])
def test_float16_is_rounded_once(device: dmlvk.Device, name: str, limit: float) -> None:
    """Nearer to the exact value than with every result rounded; functions are as good as float16 needs."""
    random = np.random.default_rng(8)
    arrays = [random.standard_normal(sizes).astype(np.float16) for sizes in ((2, 3, 7, 11), (1, 3, 1, 1))]
    merged, launches = _values(device, name, arrays, ())
    alone, _ = _values(device, name, arrays, ("chain",))
    exact, _ = _values(device, name, [array.astype(np.float32) for array in arrays], ("chain",))
    errors = [ulp_errors(found, exact.astype(np.float64), 2**-10).max() for found in (merged, alone)]
    assert launches == 1
    assert errors[0] <= limit < errors[1]


def test_weights_that_are_given_once(device: dmlvk.Device) -> None:
    """Inputs that are OWNED_BY_DML are read from where the initialisation has put them."""
    graph = Graph(device)
    x, scale, shift = (
        graph.input(sizes, owned_by_dml=owned) for sizes, owned in (((5, 8), False), ((8,), True), ((8,), True))
    )
    function = graph.compile(graph.activation_relu(x * scale + shift))
    arrays = [
        np.random.default_rng(seed).standard_normal(sizes).astype(np.float32) for seed, sizes in enumerate([(5, 8), 8, 8])
    ]
    function.initialize({scale: arrays[1], shift: arrays[2]})
    assert len(function.operator.plan.dispatches) == 1
    for _ in range(2):
        np.testing.assert_array_equal(function(arrays[0]).numpy(), np.maximum(arrays[0] * arrays[1] + arrays[2], 0))
