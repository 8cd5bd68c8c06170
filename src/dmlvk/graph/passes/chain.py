"""Pointwise operators in a row become one: what lies between them never reaches memory."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from dmlvk.graph.passes.match import Operand
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.kernels.elementwise.lowering import number_attributes
from dmlvk.kernels.lowering import newest
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.chain import (
    FIRST_NUMBER,
    FIRST_RESULT,
    MOST_INPUTS,
    MOST_OPERATIONS,
    NONE,
    PointwiseChain,
    rounds_to_bfloat16,
)
from dmlvk.spec.schema import FLOATS, OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_TRUTH: Final = (TensorDataType.UINT8, TensorDataType.UINT32)


def merge_chains(graph: StepGraph) -> None:
    """Pointwise operators that compute for one of them alone become a ``PointwiseChain``.

    They are of one type of floats, with truth values only between them; INT32 may be cast to FLOAT32, and FLOAT32 rounded to
    BFLOAT16, in the end to its bits. Their tensors lie in memory as the last one's output does or are broadcast. What is
    computed once for several elements is computed for each of them where that is cheap. FLOAT16 is not rounded in between,
    so what may jump with a result does not become part of its chain.
    """
    place = {step: index for index, step in enumerate(graph.steps)}
    operations = _Operations()
    merged: set[Step] = set()
    for root in reversed(graph.steps):
        chain = None if root in merged or not operations[root] else _grown(graph, root, place, operations)
        if chain is not None:
            merged.update(chain.members)
            graph.replace(sorted(chain.members, key=place.__getitem__), chain.step())


def as_chain(graph: StepGraph, step: Step) -> Step | None:
    """A pointwise operator as a chain of its own; None where it cannot be one, or reads nothing but numbers."""
    if isinstance(step.desc, PointwiseChain):
        return step
    operations = _Operations()
    if not operations[step]:
        return None
    chain = _Chain(graph, step, {step: 0}, operations, set())
    return chain.step() if chain.members and chain.inputs() and not chain.reading_truth() else None


class _Operations(dict[Step, tuple[OperatorDesc, ...]]):
    """The operations that each step computes as part of a chain, worked out once."""

    def __missing__(self, step: Step) -> tuple[OperatorDesc, ...]:
        found = self[step] = () if step.runs_once else operations_of(step.desc)
        return found


def _grown(graph: StepGraph, root: Step, place: Mapping[Step, int], operations: _Operations) -> _Chain | None:
    """The chain that ends with an operator; None where that would be alone."""
    refused: set[Step] = set()
    while root not in refused:
        chain = _Chain(graph, root, place, operations, refused)
        astray = chain.reading_truth()
        if not astray:
            return chain if len(chain.members) > 1 and chain.inputs() else None
        refused |= astray  # and try again: no tensor of truth values comes from outside
    return None


class _Chain:
    """Operators that become one.

    Args:
        graph: The steps.
        root: The last operator.
        place: The position of each step in the graph.
        operations: The operations of the steps.
        refused: The steps that must stay outside.

    Attributes:
        members: The operators, each with its operands seen under the sizes of the root's output.
    """

    def __init__(
        self, graph: StepGraph, root: Step, place: Mapping[Step, int], operations: _Operations, refused: set[Step]
    ) -> None:
        self._graph = graph
        self._root = root
        self._place = place
        self._operations = operations
        self.members: dict[Step, tuple[Operand, ...]] = {}
        self._output = _plain(_result(root))
        steps = self._output.effective_strides
        long = [axis for axis, size in enumerate(self._output.sizes) if size > 1]
        self._innermost = min(long, key=steps.__getitem__, default=None)
        operands = tuple(Operand(part.storage, _plain(part.tensor)) for part in _operands(root))
        makes_bits = self._output.data_type is TensorDataType.UINT16 and bool(operations[root])
        self._type = TensorDataType.FLOAT32 if makes_bits else self._output.data_type
        if self._type in FLOATS and self._lies_along(self._output) and self._takes(root, operands):
            self.members[root] = operands
            self._grow(set(refused))

    def _grow(self, known: set[Step]) -> None:
        """Takes in what computes for members alone, the latest first, so that whoever reads it has been asked before."""
        waiting = sorted(self._writers(self._root))
        while waiting:
            writer = heapq.heappop(waiting)[-1]
            if writer in known:
                continue
            known.add(writer)
            operands = self._operands_inside(writer)
            if operands is not None:
                self.members[writer] = operands
                for item in self._writers(writer):
                    heapq.heappush(waiting, item)

    def _writers(self, step: Step) -> list[tuple[int, Step]]:
        writers = dict.fromkeys(writer for storage in step.read() if (writer := self._graph.writer(storage)))
        return [(-self._place[writer], writer) for writer in writers if writer in self._place]

    def _operands_inside(self, step: Step) -> tuple[Operand, ...] | None:
        """The operands that a step has as a member; None where it cannot be one."""
        storage = step.outputs[0] if step.outputs else None
        if not self._operations[step] or storage is None or storage in self._graph.outputs:
            return None
        if storage.constant is not None or storage.part_of is not None:
            return None
        readers = self._graph.readers(storage)
        if any(reader not in self.members for reader in readers):
            return None
        view, *views = [part.tensor for reader in readers for part in self.members[reader] if part.storage is storage]
        written = _plain(_result(step))
        if any(other != view for other in views):
            return None
        if not (self._rounds_nothing(written) or not any(item.desc.traits.discontinuous for item in readers)):
            return None
        operands = []
        for part in _operands(step):
            inside = _inside(written, view, _plain(part.tensor))
            if inside is None:
                return None
            operands.append(Operand(part.storage, inside))
        repeats = math.prod(written.sizes) < math.prod(self._output.sizes)
        if repeats and (len(self._variable(operands)) > 1 or not self._is_cheap(step)):
            return None
        return tuple(operands) if self._takes(step, tuple(operands)) else None

    def _rounds_nothing(self, written: TensorDesc) -> bool:
        """Whether what is between two members is the same in memory and in a register."""
        return written.data_type in (TensorDataType.FLOAT32, *_TRUTH)

    def _takes(self, step: Step, operands: tuple[Operand, ...]) -> bool:
        """Whether one more operator fits."""
        types = (self._type, *_TRUTH)
        for part in operands:
            changes = part.storage is None or self._graph.outlives_a_run(part.storage)
            fits = part.tensor.data_type in types or isinstance(step.desc, ops.Cast)
            if changes or not fits or not self._lies_along(part.tensor):
                return False
        if _result(step).data_type not in types and step is not self._root:
            return False
        members = {**self.members, step: operands}
        count = sum(len(self._operations[member]) for member in members)
        return count <= MOST_OPERATIONS and len(self._inputs_of(members)) <= MOST_INPUTS

    def _lies_along(self, tensor: TensorDesc) -> bool:
        """Whether neighbours along the output's rows are neighbours, or one element."""
        return self._innermost is None or tensor.effective_strides[self._innermost] in (0, 1)

    def _variable(self, operands: Sequence[Operand]) -> list[Operand]:
        """The operands that are no numbers."""
        return [part for part in operands if len(operands) == 1 or self._number(part) is None]

    def _number(self, part: Operand) -> float | None:
        """The number that an operand is, if it is one: a constant of one element, or what fills a tensor; not NaN, nor -0,
        which as a number equals 0."""
        if part.storage is None:
            return None
        number = self._filled(part)
        if part.storage.constant is not None:
            steps = zip(part.tensor.sizes, part.tensor.effective_strides, strict=True)
            number = None if any(size > 1 and step for size, step in steps) else self._graph.number(*part)
        is_minus_zero = number == 0.0 and math.copysign(1.0, number) < 0.0
        return None if number is None or math.isnan(number) or is_minus_zero else number

    def _filled(self, part: Operand) -> float | None:
        """The number of which a step fills an operand; rounded to its type."""
        writer = self._graph.writer(part.storage)
        if part.storage is None or part.storage.part_of is not None or writer is None:
            return None
        dtype = {TensorDataType.FLOAT32: "float32", TensorDataType.FLOAT16: "float16"}.get(part.tensor.data_type)
        desc = writer.desc
        if (
            dtype is None
            or not isinstance(desc, ops.FillValueConstant)
            or _result(writer).data_type != part.tensor.data_type
        ):
            return None
        return float(np.asarray(desc.value).astype(dtype))

    def _is_cheap(self, step: Step) -> bool:
        return not any(operation.traits.costly for operation in self._operations[step])

    def _inputs_of(self, members: Mapping[Step, Sequence[Operand]]) -> list[Operand]:
        inputs: list[Operand] = []
        for operands in members.values():
            for part in self._variable(operands):
                if self._graph.writer(part.storage) not in members and part not in inputs:
                    inputs.append(part)
        return inputs

    # -- the result

    def inputs(self) -> list[Operand]:
        """The operands that the chain reads from outside, each once."""
        return self._inputs_of(self.members)

    def reading_truth(self) -> set[Step]:
        """The members that read truth values from outside; the root, too, where it is no member."""
        inputs = [part for part in self.inputs() if part.tensor.data_type in _TRUTH]
        found = {step for step, operands in self.members.items() if any(part in inputs for part in operands)}
        return found if self.members else {self._root}

    def step(self) -> Step:
        """The step of one PointwiseChain that stands for all members."""
        inputs = self.inputs()
        results: dict[Storage | None, int] = {}
        descs: list[OperatorDesc] = []
        operands: list[int] = []
        numbers: list[float] = []
        for member in sorted(self.members, key=self._place.__getitem__):
            own: list[float] = []
            names = []
            for part in self.members[member]:
                if part.storage in results:
                    names.append(results[part.storage])
                elif part in inputs:
                    names.append(inputs.index(part))
                else:
                    number = self._number(part)
                    assert number is not None, "an operand is an input, a result or a number"
                    names.append(FIRST_NUMBER + len(own))
                    own.append(number)
            for operation in self._operations[member]:
                operands += (*names, NONE, NONE)[:3]
                numbers += (*own, 0.0, 0.0)[:2]
                names, own = [FIRST_RESULT + len(descs)], []
                descs.append(operation)
            results[member.outputs[0]] = names[0]
        desc = PointwiseChain(
            input_tensors=tuple(part.tensor for part in inputs),
            output_tensor=self._output,
            operator_descs=tuple(descs),
            operands=tuple(operands),
            numbers=tuple(numbers),
        )
        return Step(self._root.origin, desc, tuple(part.storage for part in inputs), self._root.outputs)


def operations_of(desc: OperatorDesc) -> tuple[OperatorDesc, ...]:
    """The operations of a desc in order, without tensors; () for an operator that cannot be part of a chain."""
    desc = newest(desc)
    slots = [slot for slot in (*desc.input_slots(), *desc.output_slots()) if slot.tensor is not None]
    types = [slot.tensor.data_type for slot in slots if slot.tensor is not None]
    if isinstance(desc, ops.Cast):
        fits = types[0] in _TRUTH or types == [TensorDataType.INT32, TensorDataType.FLOAT32]
    elif rounds_to_bfloat16(desc):
        fits = types[0] is TensorDataType.FLOAT32 and types[1] in (TensorDataType.FLOAT32, TensorDataType.UINT16)
    elif isinstance(desc, ops.ElementWiseIf):
        fits = True  # it hands on numbers and truth values alike
    elif isinstance(desc, ops.ElementWisePow):
        fits = set(types) in ({TensorDataType.FLOAT32}, {TensorDataType.FLOAT16})
    elif desc.traits.pointwise:
        # What takes FLOAT64 sees only bits, and a row of two tensors and numbers has no place for numbers as operands.
        on_bits = TensorDataType.FLOAT64 in desc.fields[0].data_types and not isinstance(desc, ops.ElementWiseIdentity)
        crowded = len(desc.input_slots()) == 2 and bool(number_attributes(desc))
        numbers = [item for slot, item in zip(slots, types, strict=True) if not {*_TRUTH}.issuperset(slot.field.data_types)]
        fits = not on_bits and not crowded and all(item in FLOATS for item in numbers)
    else:
        fits = False
    return _in_order(desc) if fits else ()


def _in_order(desc: OperatorDesc) -> tuple[OperatorDesc, ...]:
    """An operator with what it does before, to its input, and what after it."""
    scale_bias, activation = getattr(desc, "scale_bias", None), getattr(desc, "fused_activation", None)
    bare = desc.replace(**{field.name: None for field in desc.fields if field.kind.is_tensor or field.optional})
    before = () if scale_bias is None else (ops.ActivationLinear(alpha=scale_bias.scale, beta=scale_bias.bias),)
    return (*before, bare, *(() if activation is None else _in_order(activation)))


def _operands(step: Step) -> Iterator[Operand]:
    for storage, slot in zip(step.inputs, step.desc.input_slots(), strict=True):
        assert slot.tensor is not None, "pointwise operators have all their tensors"
        yield Operand(storage, slot.tensor)


def _result(step: Step) -> TensorDesc:
    tensor = step.desc.output_slots()[0].tensor
    assert tensor is not None, "pointwise operators have all their tensors"
    return tensor


def _plain(tensor: TensorDesc) -> TensorDesc:
    """The tensor without flags, and without strides where it lies packed, so that equal ones are equal."""
    if tensor.strides is None:
        return TensorDesc(tensor.data_type, tensor.sizes)
    plain = seen_as(tensor, tensor.sizes)
    assert plain is not None, "under its own sizes"
    return plain


def _inside(written: TensorDesc, view: TensorDesc, own: TensorDesc) -> TensorDesc | None:
    """A tensor of the sizes of another, as that is seen by its reader: under other sizes or repeated; None where strides
    cannot say it.

    Args:
        written: The other, as it is written.
        view: The other, as its reader sees it.
        own: The tensor.
    """
    if view == written:
        return own
    steps = view.effective_strides
    kept = [axis for axis, size in enumerate(view.sizes) if size > 1 and steps[axis]]
    sizes = tuple(view.sizes[axis] for axis in kept) or (1,)
    once = TensorDesc(view.data_type, sizes, tuple(steps[axis] for axis in kept) or (1,))
    seen = seen_as(own, sizes)
    if seen is None or not same_elements(written, once):
        return None
    strides = dict(zip(kept, seen.effective_strides, strict=False))
    return _plain(TensorDesc(own.data_type, view.sizes, tuple(strides.get(axis, 0) for axis in range(len(steps)))))
