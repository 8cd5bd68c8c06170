"""Graphs written as expressions, after DirectMLX: sizes are inferred, and arithmetic reads like numpy's.

    graph = dmlvk.Graph()
    x = graph.input((32, 784))
    w = graph.input((784, 10), owned_by_dml=True)
    b = graph.constant(np.zeros(10, np.float32))
    y = graph.activation_softmax1(x @ w + b, axes=(1,))
    predict = graph.compile(y)
    predict.initialize({w: weights})
    probabilities = predict(images)

A graph has a method for each operator, with the arguments of the function of that name in
``dmlvk.eager``, but that its operands are expressions. Expressions have numpy's operators, broadcasting included, but for
``==`` and ``!=``, which say whether they are the same one;
``transpose``, ``broadcast_to`` and most of ``reshape`` are other strides of the same memory and cost nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import Arguments
from dmlvk.directml.device import Device, default_device
from dmlvk.directml.operator import CompiledOperator
from dmlvk.empty_calls import has_no_elements, outputs_of_nothing
from dmlvk.engine.callable_graph import CallableGraph
from dmlvk.engine.default_device import check_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import HALF_BYTES, array_of, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.engine.profile import step_report
from dmlvk.engine.report_html import NodeRow, first_nodes, memory_figure
from dmlvk.engine.single_operators import bound
from dmlvk.engine.trace import PackedTensor, Trace
from dmlvk.engine.transfer import empty_on_device
from dmlvk.graph.assemble import refusal
from dmlvk.graph.desc import (
    ConstantDataGraphNodeDesc,
    GraphDesc,
    GraphNodeDesc,
    InputGraphEdgeDesc,
    IntermediateGraphEdgeDesc,
    OperatorGraphNodeDesc,
    OutputGraphEdgeDesc,
)
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Storage
from dmlvk.graph.views import View, is_order, sizes_of, view_of
from dmlvk.graph.wiring import Wiring, wire
from dmlvk.graph_methods import GraphMethods
from dmlvk.html.elements import facts, notebook
from dmlvk.html.words import size
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec.enums import ExecutionFlags, TensorDataType, TensorFlags
from dmlvk.spec.errors import InvalidArgumentError, StateError, other_device
from dmlvk.spec.schema import FLOATS, FieldKind, OperatorDesc
from dmlvk.spec.tensor import EmptyTensorDesc, TensorDesc, packed_strides, tensor_desc
from dmlvk.spec.tensor_policy import TensorPolicy

_GEMM_DIMENSIONS: Final = 4

Number = bool | int | float

Results_co = TypeVar("Results_co", covariant=True)
"""What a call of a function returns."""


class _Source(NamedTuple):
    """The source of an expression's memory: an output of a node, or with node -1 an input of the graph."""

    node: int
    slot: int


_NOWHERE: Final = _Source(-2, 0)
"""The source of what has no elements."""


class Expression:
    """A tensor of a graph: what a node computes, or an input, seen under some sizes and strides.

    Attributes:
        graph: Its graph.
        desc: Its data type, sizes and strides.
    """

    __array_ufunc__ = None  # numpy leaves array + expression to the expression

    def __init__(self, graph: Graph, source: _Source, desc: TensorDesc) -> None:
        self.graph = graph
        self.desc = desc
        self._source = source

    @property
    def _has_elements(self) -> bool:
        return 0 not in self.desc.sizes

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements a dimension."""
        return self.desc.sizes

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.desc.dimension_count

    @property
    def data_type(self) -> TensorDataType:
        """Type of an element."""
        return self.desc.data_type

    def __repr__(self) -> str:
        return f"Expression({self.data_type.name}, {self.shape})"

    # -- views

    def _seen(self, view: View) -> Expression:
        if 0 in view.sizes:
            return self.graph._without_elements(self.data_type, view.sizes)
        return Expression(self.graph, self._source, self.graph._view(self._source, self.data_type, view))

    def transpose(self, *axes: int) -> Expression:
        """The dimensions in another order, reversed where none is given: a view.

        Raises:
            InvalidArgumentError: not every dimension once.
        """
        order = axes or tuple(reversed(range(self.ndim)))
        if not is_order(order, self.ndim):
            rule = f"must name each of the {self.ndim} dimensions once"
            raise InvalidArgumentError(rule, operator="transpose", field="axes", value=axes)
        return self._seen(view_of(self.desc).transposed(order))

    @property
    def T(self) -> Expression:
        """``transpose()``."""
        return self.transpose()

    def broadcast_to(self, *sizes: int) -> Expression:
        """Larger sizes by numpy's rule: a view, with strides of 0.

        Raises:
            InvalidArgumentError: sizes that do not match from the last dimension on.
        """
        view = view_of(self.desc).broadcast(sizes)
        if view is None:
            rule = f"shape {self.shape} must broadcast to them: each size equal or 1, from the last dimension on"
            raise InvalidArgumentError(rule, operator="broadcast_to", field="sizes", value=sizes)
        return self._seen(view)

    def reshape(self, *sizes: int) -> Expression:
        """The same elements in the same order under other sizes, one of which may be -1: a view, or one of a copy where
        strides cannot say it.

        Raises:
            InvalidArgumentError: sizes of another number of elements.
        """
        count = self.desc.element_count
        wanted = sizes_of(count, sizes)
        if wanted is None:
            rule = f"must have the {count} elements of shape {self.shape}"
            raise InvalidArgumentError(rule, operator="reshape", field="sizes", value=sizes)
        if count == 0:
            return self.graph._without_elements(self.data_type, wanted)
        view = view_of(self.desc).reshaped(wanted)
        if view is not None:
            return self._seen(view)
        copied: Expression = self.graph.element_wise_identity(self)
        return copied._seen(View.packed(wanted))

    def reinterpret(
        self,
        data_type: TensorDataType | None = None,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Expression:
        """The memory of the tensor from its first element on, read otherwise: other types see the same bits.

        Args:
            data_type: Another type of an element; the same one where None.
            sizes, strides: Other sizes, packed where strides are None; both stay where sizes are None.

        Raises:
            InvalidArgumentError: a tensor that does not lie within the memory.
        """
        if sizes is None:
            sizes, strides = self.desc.sizes, self.desc.strides if strides is None else strides
        kept = None if strides is None else tuple(strides)
        wanted = self.data_type if data_type is None else data_type
        nbytes = self.desc.total_tensor_size_in_bytes
        desc = TensorDesc(wanted, tuple(sizes), kept, nbytes, self.desc.flags)
        return Expression(self.graph, self._source, desc)

    # -- arithmetic

    def _operand(self, other: Operand) -> Expression:
        """An expression as it is, and anything else as a constant of this one's type."""
        if isinstance(other, Expression):
            return other
        return self.graph.constant(np.asarray(other, dtype_of(self.data_type)))

    def _elementwise(self, name: str, other: Operand, *, reversed_: bool = False) -> Expression:
        other = self._operand(other)
        sizes = _broadcast(self.shape, other.shape)
        a, b = self.broadcast_to(*sizes), other.broadcast_to(*sizes)
        result: Expression = getattr(self.graph, name)(*((b, a) if reversed_ else (a, b)))
        return result

    def __add__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_subtract", other)

    def __rsub__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_subtract", other, reversed_=True)

    def __mul__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_multiply", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_divide", other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_divide", other, reversed_=True)

    def __mod__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_modulus_floor", other)

    def __pow__(self, exponent: Operand) -> Expression:
        if not isinstance(exponent, Expression) and self.data_type in FLOATS:
            result: Expression = self.graph.element_wise_constant_pow(self, exponent=float(exponent))
            return result
        return self._elementwise("element_wise_pow", exponent)

    def __and__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_and", other)

    __rand__ = __and__

    def __or__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_or", other)

    __ror__ = __or__

    def __xor__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_xor", other)

    __rxor__ = __xor__

    def __lshift__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_shift_left", other)

    def __rlshift__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_shift_left", other, reversed_=True)

    def __rshift__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_shift_right", other)

    def __rrshift__(self, other: Operand) -> Expression:
        return self._elementwise("element_wise_bit_shift_right", other, reversed_=True)

    def __lt__(self, other: Any) -> Expression:
        return self._elementwise("element_wise_logical_less_than", other)

    def __le__(self, other: Any) -> Expression:
        return self._elementwise("element_wise_logical_less_than_or_equal", other)

    def __gt__(self, other: Any) -> Expression:
        return self._elementwise("element_wise_logical_greater_than", other)

    def __ge__(self, other: Any) -> Expression:
        return self._elementwise("element_wise_logical_greater_than_or_equal", other)

    def __invert__(self) -> Expression:
        result: Expression = self.graph.element_wise_bit_not(self)
        return result

    def __pos__(self) -> Expression:
        return self

    def __neg__(self) -> Expression:
        result: Expression = self.graph.element_wise_negate(self)
        return result

    def __abs__(self) -> Expression:
        result: Expression = self.graph.element_wise_abs(self)
        return result

    def __matmul__(self, other: Operand) -> Expression:
        """numpy's matmul of two floating-point tensors: a vector counts as one row or one column, leading dimensions
        broadcast. An array is a constant.

        Raises:
            InvalidArgumentError: sizes that do not multiply.
        """
        other = self._operand(other)
        left = self.reshape(1, *self.shape) if self.ndim == 1 else self
        right = other.reshape(*other.shape, 1) if other.ndim == 1 else other
        if left.shape[-1] != right.shape[-2]:
            rule = f"of shapes {self.shape} and {other.shape}, the second must have as many rows as the first has columns"
            raise InvalidArgumentError(rule, operator="matmul", value=right.shape[-2], expected=left.shape[-1])
        batch = _broadcast(left.shape[:-2], right.shape[:-2])
        left = left.broadcast_to(*batch, *left.shape[-2:])
        right = right.broadcast_to(*batch, *right.shape[-2:])
        if len(batch) > _GEMM_DIMENSIONS - 2:
            count = math.prod(batch)
            left, right = (item.reshape(count, *item.shape[-2:]) for item in (left, right))
        product: Expression = self.graph.gemm(left, right)
        sizes = batch + left.shape[-2:-1] * (self.ndim > 1) + right.shape[-1:] * (other.ndim > 1)
        return product.reshape(*(sizes or (1,)))

    def __rmatmul__(self, other: npt.NDArray[Any]) -> Expression:
        return self._operand(other) @ self


Operand = Expression | Number | npt.NDArray[Any]
"""The other operand of an expression's arithmetic: numbers and arrays become constants of the expression's type."""


class Graph(GraphMethods):
    """A graph under construction; see the module's text.

    Args:
        device: The device that will run it, ``default_device()`` where None.
        tensor_policy: How the outputs of the graph's operators lie; packed where None.

    Attributes:
        device: The device that will run it.
        tensor_policy: As above; may be set for what follows.
    """

    def __init__(self, device: Device | None = None, tensor_policy: TensorPolicy | None = None) -> None:
        if device is not None:
            check_device(device)
        self.device = default_device() if device is None else device
        self.tensor_policy = TensorPolicy.default() if tensor_policy is None else tensor_policy
        self._scope: tuple[str, ...] = ()
        self._inputs: list[TensorDesc] = []
        self._nodes: list[GraphNodeDesc] = []
        self._fed: list[InputGraphEdgeDesc] = []
        self._between: list[IntermediateGraphEdgeDesc] = []
        self._bytes: dict[_Source, int] = {}

    def input(
        self,
        sizes: Sequence[int],
        data_type: TensorDataType = TensorDataType.FLOAT32,
        *,
        strides: Sequence[int] | None = None,
        owned_by_dml: bool = False,
    ) -> Expression:
        """The graph's next input.

        Args:
            sizes, data_type, strides: The sizes, type and strides of its tensor.
            owned_by_dml: Whether it is given once, to ``Function.initialize``, and kept: as weights are.

        Raises:
            InvalidArgumentError: sizes, a type or strides that no tensor can have.
        """
        flags = TensorFlags.OWNED_BY_DML if owned_by_dml else TensorFlags.NONE
        if 0 in sizes:
            desc: TensorDesc = EmptyTensorDesc(data_type, tuple(sizes), flags=flags)
        else:
            desc = TensorDesc(data_type, tuple(sizes), None if strides is None else tuple(strides), flags=flags)
        return self.input_tensor(desc)

    def input_tensor(self, desc: TensorDesc) -> Expression:
        """The graph's next input, of a tensor that is described already. It has the bytes that sizes and strides imply."""
        desc = dataclasses.replace(desc, total_tensor_size_in_bytes=0)
        source = _Source(-1, len(self._inputs))
        self._inputs.append(desc)
        self._bytes[source] = desc.total_tensor_size_in_bytes
        return Expression(self, source, desc)

    @contextlib.contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Names nodes: those added within are called by the scope's name, then ``_``, then their own. Scopes nest."""
        outer = self._scope
        self._scope = (*outer, name)
        try:
            yield
        finally:
            self._scope = outer

    def constant(self, array: npt.ArrayLike) -> Expression:
        """A constant from an array; copied, and uploaded when the graph is compiled. A number has the sizes {1}.

        Raises:
            InvalidArgumentError: an array of a type that no tensor has, or of more than 8 dimensions.
        """
        values = np.ascontiguousarray(array_of(array, lambda: "array"))
        if values.size == 0:
            return self._without_elements(data_type_of(values.dtype), values.shape)
        desc = TensorDesc(data_type_of(values.dtype), values.shape or (1,))
        data = values.tobytes().ljust(desc.total_tensor_size_in_bytes, b"\0")
        self._nodes.append(ConstantDataGraphNodeDesc(data))
        source = _Source(len(self._nodes) - 1, 0)
        self._bytes[source] = desc.total_tensor_size_in_bytes
        return Expression(self, source, desc)

    def _node(self, call: Arguments) -> Any:
        """Adds a node; returns its outputs as ``dmlvk.eager`` does."""
        for operand in call.operands:
            if operand is not None and (not isinstance(operand, Expression) or operand.graph is not self):
                rule = "every operand must be an expression of this graph, as graph.constant makes of an array"
                found = "one of another graph" if isinstance(operand, Expression) else type(operand).__name__
                raise StateError(f"{call.row.type.dml_name}: {rule}; got {found}")
        results = self._results(call)
        return results[0] if len(results) == 1 else tuple(results)

    def _results(self, call: Arguments) -> list[Expression]:
        """Adds a node; returns its outputs. None is added for what has no elements."""
        tensors = [None if operand is None else operand.desc for operand in call.operands]
        if has_no_elements(call, [tensor.sizes for tensor in tensors if tensor is not None]):
            return outputs_of_nothing(call, tensors, _Door(self))
        desc = self._laid_out(call.describe(tensors))
        index = len(self._nodes)
        name = "_".join(filter(None, (*self._scope, call.options["name"])))
        self._nodes.append(OperatorGraphNodeDesc(self.device.create_operator(desc), name))
        for slot, operand in enumerate(call.operands):
            if operand is not None and operand._source.node < 0:
                self._fed.append(InputGraphEdgeDesc(operand._source.slot, index, slot))
            elif operand is not None:
                self._between.append(IntermediateGraphEdgeDesc(operand._source.node, operand._source.slot, index, slot))
        results = []
        for slot, item in enumerate(desc.output_slots()):
            if item.tensor is not None:
                source = _Source(index, slot)
                self._bytes[source] = item.tensor.total_tensor_size_in_bytes
                results.append(Expression(self, source, item.tensor))
        return results

    def _laid_out(self, desc: OperatorDesc) -> OperatorDesc:
        """An operator whose outputs lie as the policy says."""

        def lies(tensor: TensorDesc) -> TensorDesc:
            return self.tensor_policy.desc(tensor.data_type, tensor.flags, tensor.sizes)

        outputs: dict[str, Any] = {}
        for spec in desc.fields:
            made = getattr(desc, spec.name) if spec.kind.is_output else None
            if made is not None:
                outputs[spec.name] = tuple(map(lies, made)) if spec.kind is FieldKind.OUTPUT_TENSOR_ARRAY else lies(made)
        return desc.replace(**outputs)

    def _without_elements(self, data_type: TensorDataType, sizes: Sequence[int]) -> Expression:
        return Expression(self, _NOWHERE, EmptyTensorDesc(data_type, tuple(sizes)))

    def _view(self, source: _Source, data_type: TensorDataType, view: View) -> TensorDesc:
        """A view as edges want it: it has as many bytes as what it is a view of, and an input's flags."""
        flags = self._inputs[source.slot].flags if source.node < 0 else TensorFlags.NONE
        strides = None if view == View.packed(view.sizes) else view.strides
        return TensorDesc(data_type, view.sizes, strides, self._bytes[source], flags)

    @overload
    def compile(
        self, output: Expression, /, *, flags: ExecutionFlags = ..., without: Collection[str] = ...
    ) -> Function[DeviceArray]: ...

    @overload
    def compile(
        self, first: Expression, second: Expression, /, *, flags: ExecutionFlags = ..., without: Collection[str] = ...
    ) -> Function[tuple[DeviceArray, DeviceArray]]: ...

    @overload
    def compile(
        self, *outputs: Expression, flags: ExecutionFlags = ..., without: Collection[str] = ...
    ) -> Function[DeviceArray | tuple[DeviceArray, ...]]: ...

    def compile(
        self, *outputs: Expression, flags: ExecutionFlags = ExecutionFlags.NONE, without: Collection[str] = ()
    ) -> Function[DeviceArray | tuple[DeviceArray, ...]]:
        """The function from the graph's inputs to some of its expressions.

        Args:
            outputs: The expressions that it returns; a view, or an input, is copied, to lie as the graph's policy says.
            flags: The flags of ``Device.compile_operator``.
            without: The passes to leave out, as for ``Device.compile_graph``.

        Raises:
            InvalidArgumentError: no output, or ``without`` names no pass.
            StateError: an expression of another graph.
            UnsupportedError: as ``Device.compile_graph``.
        """
        if not outputs:
            raise InvalidArgumentError("must be at least one expression", operator="compile", field="outputs", value=outputs)
        shown: list[Expression] = []
        made: list[TensorDesc] = []
        for expression in outputs:
            if expression.graph is not self:
                raise StateError("compile: every output must be an expression of this graph; got one of another graph")
            if not expression._has_elements:
                made.append(expression.desc)
                continue
            node = self._nodes[expression._source.node] if expression._source.node >= 0 else None
            is_whole = isinstance(node, OperatorGraphNodeDesc) and (
                node.operator.desc.output_slots()[expression._source.slot].tensor == expression.desc
            )
            shown.append(expression if is_whole else self.element_wise_identity(expression))
            made.append(shown[-1].desc)
        if not shown:
            return Function(self.device, None, tuple(self._inputs), tuple(made), flags, tuple(without))
        needed = self._needed({expression._source.node for expression in shown})
        place = {node: index for index, node in enumerate(sorted(needed))}
        fed = [
            InputGraphEdgeDesc(edge.graph_input_index, place[edge.to_node_index], edge.to_node_input_index)
            for edge in self._fed
            if edge.to_node_index in place
        ]
        between = [
            IntermediateGraphEdgeDesc(
                place[edge.from_node_index], edge.from_node_output_index, place[edge.to_node_index], edge.to_node_input_index
            )
            for edge in self._between
            if edge.to_node_index in place
        ]
        sources = [expression._source for expression in shown] + self._unread(needed, {item._source for item in shown})
        shown_edges = [OutputGraphEdgeDesc(place[node], slot, index) for index, (node, slot) in enumerate(sources)]
        nodes = [self._nodes[node] for node in place]
        graph = GraphDesc(len(self._inputs), len(sources), nodes, fed, shown_edges, between)
        return Function(self.device, graph, tuple(self._inputs), tuple(made), flags, tuple(without))

    def _unread(self, needed: set[int], shown: set[_Source]) -> list[_Source]:
        """Required outputs of nodes that nothing reads: DirectML wants an edge from each, so they are outputs of the graph
        that the function keeps to itself."""
        between = [edge for edge in self._between if edge.to_node_index in needed]
        read = {_Source(edge.from_node_index, edge.from_node_output_index) for edge in between} | shown
        return [
            _Source(index, slot)
            for index in sorted(needed)
            if isinstance(node := self._nodes[index], OperatorGraphNodeDesc)
            for slot, item in enumerate(node.operator.desc.output_slots())
            if not item.field.optional and _Source(index, slot) not in read
        ]

    def _needed(self, roots: set[int]) -> set[int]:
        """Nodes, and those that they need."""
        before: dict[int, list[int]] = {}
        for edge in self._between:
            before.setdefault(edge.to_node_index, []).append(edge.from_node_index)
        needed: set[int] = set()
        rest = list(roots)
        while rest:
            node = rest.pop()
            if node not in needed:
                needed.add(node)
                rest += before.get(node, ())
        return needed


class Function(Generic[Results_co]):
    """A compiled graph as a function of arrays. May be called from several threads. Its type says what a call returns.

    Args:
        device: The device that runs it.
        desc: The graph; None if nothing that is returned has elements.
        inputs: Its inputs.
        returned: What a call returns; its first outputs are those of them that have elements.
        flags, without: The arguments of ``Device.compile_graph``.
    """

    def __init__(
        self,
        device: Device,
        desc: GraphDesc | None,
        inputs: tuple[TensorDesc, ...],
        returned: tuple[TensorDesc, ...],
        flags: ExecutionFlags,
        without: tuple[str, ...],
    ) -> None:
        self._device = device
        self._desc = desc
        self._flags = flags
        self._without = without
        self._inputs = inputs
        self._returned = returned
        results = [tensor for tensor in returned if 0 not in tensor.sizes]
        wiring = Wiring((), (None,) * len(inputs), (), (), ()) if desc is None else wire(desc)
        self._storages = wiring.inputs
        self._free = [slot for slot, tensor in enumerate(inputs) if not tensor.owned_by_dml]
        numbers = itertools.count()
        self._made = [
            (
                tensor.data_type,
                tensor.sizes,
                packed_strides(tensor.sizes) if tensor.strides is None else tensor.strides,
                None if 0 in tensor.sizes else str(next(numbers)),
            )
            for tensor in returned
        ]
        self._packed = [_packed_array(tensor) for tensor in inputs]
        shown = wiring.outputs[: len(results)]
        outputs = {
            str(index): PackedTensor(storage, tensor.data_type, dtype_of(tensor.data_type), tensor.sizes)
            for index, (storage, tensor) in enumerate(zip(shown, results, strict=True))
        }
        fed = {slot: storage for slot, storage in enumerate(self._storages) if storage is not None}
        given = frozenset(storage for slot, storage in fed.items() if inputs[slot].owned_by_dml)
        steps = optimized(wiring.steps, shown, without=without)
        made_once = {storage for step in steps if step.runs_once for storage in step.written()}
        written = {storage for storage in shown if storage.constant is None and storage not in made_once}
        trace = Trace(steps, {}, outputs, given=given, outside=frozenset({*fed.values(), *written} - given))
        self._graph = CallableGraph(device, trace, refusal, device.capabilities_under(flags))

    @functools.cached_property
    def operator(self) -> CompiledOperator:
        """The graph as one compiled operator, to be initialised and bound by hand; its slots are the graph's inputs, and its
        outputs, behind which there may be some that the function does not return.

        Raises:
            StateError: nothing that the function returns has elements.
        """
        if self._desc is None:
            raise StateError("a function that returns nothing but tensors without elements has no operator")
        return self._device.compile_graph(self._desc, self._flags, without=self._without)

    def _repr_html_(self) -> str:
        graph = self._graph.graph
        steps = [step_report(run) for run in graph.runs()]
        known = facts(
            (
                ("device", self._device.info.name),
                ("inputs", ", ".join(map(str, self._inputs))),
                ("outputs", ", ".join(map(str, self._returned))),
                ("operators", f"{len(steps):,}, {graph.dispatches:,} launches a call"),
                ("memory", f"{size(graph.placement.nbytes)} for what lies between inputs and outputs"),
            )
        )
        rows = [NodeRow(str(number), step.op_type, steps=[step]) for number, step in enumerate(steps)]
        return notebook(type(self).__name__, "", known, memory_figure(steps), first_nodes(rows))

    def reads(self, expression: Expression) -> bool:
        """Whether an input of the graph has to do with what the function returns."""
        source = expression._source
        return source.node == -1 and self._storages[source.slot] is not None

    def initialize(self, weights: Mapping[Expression, DeviceArray | npt.ArrayLike]) -> None:
        """Gives the inputs that are OWNED_BY_DML, once; their arrays are not needed afterwards.

        Raises:
            InvalidArgumentError: one is missing, or another tensor than its input.
            StateError: the function is initialised already.
        """
        given = {expression._source.slot: array for expression, array in weights.items()}
        slots = [slot for slot, desc in enumerate(self._inputs) if desc.owned_by_dml and self._storages[slot] is not None]
        if set(given) != set(slots):
            rule = "must have an array for each input that is OWNED_BY_DML and read; inputs are named by number here"
            raise InvalidArgumentError(rule, operator="initialize", field="weights", value=sorted(given), expected=slots)
        ranges = {}
        for slot in slots:
            storage = self._storages[slot]
            assert storage is not None, "only what is read is given"
            array = given[slot]
            own = array if isinstance(array, DeviceArray) else DeviceArray.from_numpy(array, self._device)
            ranges[storage] = bound(self._on_device(slot, own))
        self._graph.give(ranges)

    def __call__(self, *inputs: DeviceArray | npt.ArrayLike) -> Results_co:
        """Runs the graph, without waiting for it.

        Args:
            inputs: The inputs that are not OWNED_BY_DML, in order; arrays on the device are bound as they are.

        Returns:
            A ``DeviceArray``, or a tuple of them where the graph was compiled for several expressions.

        Raises:
            InvalidArgumentError: an input of other sizes, strides or data type.
            StateError: the function is not initialised.
        """
        if len(inputs) != len(self._free):
            rule = "must be one array for each input of the graph that is not OWNED_BY_DML"
            raise InvalidArgumentError(rule, field="inputs", value=len(inputs), expected=len(self._free))
        given: dict[Storage, BoundRange | npt.NDArray[Any]] = {}
        for slot, array in zip(self._free, inputs, strict=True):
            storage = self._storages[slot]
            if storage is None:
                continue
            given[storage] = (
                bound(self._on_device(slot, array)) if isinstance(array, DeviceArray) else self._bytes(slot, array)
            )
        buffers = self._graph.call(given)
        results = []
        for data_type, sizes, strides, output in self._made:
            if output is None:
                results.append(empty_on_device(self._device, sizes, data_type))
            else:
                results.append(DeviceArray(self._device, buffers[output], data_type, sizes, strides))
        return cast(Results_co, results[0] if len(results) == 1 else tuple(results))

    def _on_device(self, slot: int, array: DeviceArray) -> DeviceArray:
        """An input, checked.

        Raises:
            InvalidArgumentError: it is another tensor than the graph's input.
            StateError: it is on another device.
        """
        if array.device is not self._device:
            raise other_device(f"input {slot}", array.device, "the graph", self._device)
        self._check(slot, array.data_type, array.shape, array.strides)
        return array

    def _bytes(self, slot: int, array: npt.ArrayLike) -> npt.NDArray[Any]:
        """The bytes of an input, checked as one on the device is."""
        if type(array) is np.ndarray and array.flags.c_contiguous and (array.dtype, array.shape) == self._packed[slot]:
            return array
        values = array_of(array, lambda: f"input {slot}")
        strides = element_strides(values)
        if strides is None:
            values = np.ascontiguousarray(values)
            strides = element_strides(values) or ()
        self._check(slot, data_type_of(values.dtype), values.shape, strides)
        return memory_span(values, strides)

    def _check(self, slot: int, data_type: TensorDataType, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """Sees that an input is the tensor that the graph has there. A desc of it, which is checked itself, is made for an
        error alone: at each call it would take a fifth of the host's time."""
        wanted = self._inputs[slot]
        sizes, strides = sizes or (1,), strides or (1,)
        same = (data_type, sizes) == (wanted.data_type, wanted.sizes)
        steps = zip(sizes, strides, wanted.effective_strides, strict=True)
        if not same or any(size > 1 and step != own for size, step, own in steps):
            rule = "must have the data type, sizes and strides of the graph's input"
            given = tensor_desc(data_type, sizes, strides)
            raise InvalidArgumentError(rule, field=f"input {slot}", value=given, expected=wanted)


def _packed_array(tensor: TensorDesc) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """The type and the shape of a contiguous array with just a tensor's bytes; None where there is no such array."""
    is_packed = tensor.effective_strides == packed_strides(tensor.sizes)
    return (dtype_of(tensor.data_type), tensor.sizes) if is_packed and tensor.data_type not in HALF_BYTES else None


class _Door:
    """What a graph makes of the parts of a call without elements."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def made(self, call: Arguments) -> list[Expression]:
        """The outputs of a call."""
        return self._graph._results(call)

    def nothing(self, desc: TensorDesc) -> Expression:
        """A tensor without elements."""
        return self._graph._without_elements(desc.data_type, desc.sizes)

    def given(self, array: npt.NDArray[Any]) -> Expression:
        """An array as an operand or an output."""
        return self._graph.constant(array)

    def copied(self, operand: Expression) -> Expression:
        """A copy of an operand."""
        return operand


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        rule = "two shapes must broadcast together: each size equal or 1, from the last dimension on"
        raise InvalidArgumentError(rule, value=shapes) from None
