"""DirectML graphs as ONNX Runtime's DirectML provider writes them (``ep.dml.enable_graph_serialization``): a ``GraphDesc``.

A file names operators, fields and data types as DirectML does, so that the rows say how to read it. Edges are names: of the
graph's inputs and outputs, and of what nodes make. Constants lie in the file, or in files beside it that it names.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device
from dmlvk.directml.flatbuffer import Table
from dmlvk.graph.desc import (
    ConstantDataGraphNodeDesc,
    GraphDesc,
    GraphNodeDesc,
    InputGraphEdgeDesc,
    IntermediateGraphEdgeDesc,
    OperatorGraphNodeDesc,
    OutputGraphEdgeDesc,
)
from dmlvk.spec.dml_names import counted, is_count, member_named, row_named, scalar_type_field
from dmlvk.spec.enums import TensorDataType, member
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc, ScaleBias, Size2D, Slot
from dmlvk.spec.tensor import TensorDesc

Constant = npt.NDArray[np.uint8]

_OPERATOR_NODE, _CONSTANT_NODE = 1, 2
"""What a node is: the file's union ``NodeDesc``."""
_NAMED, _RAW = 1, 2
"""Where a constant's data are: the file's union ``ConstantNodeDescDetail``."""
_ACTIVATION, _ACTIVATIONS, _UINT, _INT, _FLOAT = 1, 2, 3, 5, 6
_UINTS, _INTS, _FLOATS, _SCALE_BIAS, _SIZE_2D, _SCALAR, _BOOL = 7, 8, 9, 10, 11, 12, 13
"""The kinds of attributes: the file's union ``AttributeFieldVariant``."""
_SCALAR_BYTES: Final = 1
_SCALARS: Final = {2: "b", 3: "B", 4: "h", 5: "H", 6: "i", 7: "I", 8: "q", 9: "Q", 10: "f", 11: "d"}
"""What a scalar is written as (the file's union ``ScalarVariant``): 8 bytes, or a number of a kind of ``struct``'s."""
_STRUCT_KINDS: Final = {
    TensorDataType.FLOAT64: "d",
    TensorDataType.FLOAT32: "f",
    TensorDataType.FLOAT16: "e",
    TensorDataType.UINT64: "Q",
    TensorDataType.INT64: "q",
    TensorDataType.UINT32: "I",
    TensorDataType.INT32: "i",
    TensorDataType.UINT16: "H",
    TensorDataType.INT16: "h",
    TensorDataType.UINT8: "B",
    TensorDataType.INT8: "b",
}
_FORBIDDEN: Final = str.maketrans(dict.fromkeys('\\/"|<>:?*', "_"))
"""What ONNX Runtime writes for characters that no file name may have."""


class SerializedGraph(NamedTuple):
    """A graph read from a file.

    Attributes:
        desc: The graph, for ``Device.compile_graph``; its constants are nodes.
        input_names, output_names: The names of the graph's inputs and outputs, in the order of their slots.
    """

    desc: GraphDesc
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


def load_serialized_graph(device: Device, path: str | pathlib.Path) -> SerializedGraph:
    """Reads a file that ONNX Runtime's DirectML provider has written, with the constants in the files beside it.

    Args:
        device: The device that is to compile the graph.
        path: The file, such as ``Partition_0.bin``.

    Raises:
        InvalidArgumentError: the file is broken, or breaks a rule of its operators; names the part of the graph.
        UnsupportedError: the device lacks a data type.
        OSError: a file cannot be read.
    """
    path = pathlib.Path(path)

    def beside(name: str) -> bytes:
        return (path.parent / f"{name.translate(_FORBIDDEN)}.bin").read_bytes()

    return read_serialized_graph(device, path.read_bytes(), beside)


def read_serialized_graph(device: Device, data: bytes, constant: Callable[[str], bytes]) -> SerializedGraph:
    """Reads a graph from bytes.

    Args:
        device: The device that is to compile the graph.
        data: The file's bytes.
        constant: Gives the bytes of a constant by its name.

    Raises:
        InvalidArgumentError, UnsupportedError: as ``load_serialized_graph``.
    """
    root = Table.root(data, "graph")
    nodes = [_node(table, constant) for table in root.tables(0, "nodes")]
    return _Wires(device, nodes, root.texts(1), root.texts(2)).graph()


# -- nodes


@dataclass(frozen=True)
class _Node:
    """A node of the file.

    Attributes:
        path: The way to it, for messages.
        name: Its name.
        inputs, outputs: The names at its slots, "" for a tensor that is absent.
        content: Its operator, or its data.
    """

    path: str
    name: str
    inputs: list[str]
    outputs: list[str]
    content: OperatorDesc | Constant


def _node(table: Table, constant: Callable[[str], bytes]) -> _Node:
    kind, inner = table.scalar(0, "B"), table.table(1, "desc")
    inputs, outputs = table.texts(3), table.texts(4)
    if inner is None or kind not in (_OPERATOR_NODE, _CONSTANT_NODE):
        table.refuse("must be an operator or a constant", kind)
    content = _operator(inner, inputs, outputs) if kind == _OPERATOR_NODE else _data(inner, constant)
    return _Node(table.path, table.text(2), inputs, outputs, content)


def _data(table: Table, constant: Callable[[str], bytes]) -> Constant:
    kind, inner = table.scalar(0, "B"), table.table(1, "data")
    if inner is None or kind not in (_NAMED, _RAW):
        table.refuse("must have data or the name of a constant", kind)
    if kind == _RAW:
        found = inner.array(0, np.uint8)
        return np.zeros(0, np.uint8) if found is None else found
    name = inner.text(0)
    if not name:
        inner.refuse("must have the name of a constant", name)
    return np.frombuffer(constant(name), np.uint8)


def _row(table: Table) -> type[OperatorDesc]:
    row = row_named(table.text(0))
    return table.refuse("must be the type of a DirectML operator", table.text(0)) if row is None else row


def _operator(table: Table, inputs: Sequence[str], outputs: Sequence[str]) -> OperatorDesc:
    row = _row(table)
    tensors = _tensors(table, row, inputs, table.tables(1, "inputs"), outputs=False)
    tensors |= _tensors(table, row, outputs, table.tables(2, "outputs"), outputs=True)
    values = _attributes(table, row, table.tables(3, "attributes"), tensors)
    desc = row(**values)
    try:
        desc.validate()
    except InvalidArgumentError as error:
        raise _located(error, table) from None
    return desc


def _located(error: InvalidArgumentError, table: Table) -> InvalidArgumentError:
    where = f"{error.operator} at {table.path}" if error.operator else table.path
    return InvalidArgumentError(error.rule, operator=where, field=error.field, value=error.value, expected=error.expected)


def _tensors(
    table: Table, row: type[OperatorDesc], names: Sequence[str], tables: list[Table], *, outputs: bool
) -> dict[str, Any]:
    """The tensors of a row: the file has those that are there, and a name, empty or not, for each slot."""
    left, values, slot = iter(tables), dict[str, Any](), 0
    for spec in row.fields:
        if not spec.kind.is_tensor or spec.kind.is_output is not outputs:
            continue
        if spec.kind in (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY):
            values[spec.name] = tuple(map(_tensor, left))
            slot += len(values[spec.name])
            continue
        if slot < len(names) and names[slot]:
            found = next(left, None)
            if found is None:
                table.refuse(f"must have a tensor {spec.dml_name} for the name {names[slot]!r}", len(tables))
            values[spec.name] = _tensor(found)
        slot += 1
    if len(names) > slot or next(left, None) is not None:
        table.refuse(f"must have the tensors of {row.dml_name}, with a name each", (len(names), len(tables)))
    return values


def _tensor(table: Table) -> TensorDesc:
    data_type = member_named(TensorDataType, table.text(0))
    if data_type is None:
        table.refuse("must have a DML_TENSOR_DATA_TYPE", table.text(0))
    sizes, strides = table.array(1, "<u4"), table.array(2, "<u4")
    if sizes is None or not sizes.all():
        table.refuse("must have sizes of at least 1", sizes)
    try:
        return TensorDesc(
            data_type,
            tuple(sizes.tolist()),
            None if strides is None or not len(strides) else tuple(strides.tolist()),
            table.scalar(3, "Q"),
        )
    except InvalidArgumentError as error:
        raise _located(error, table) from None


# -- attributes


def _attributes(table: Table, row: type[OperatorDesc], tables: list[Table], tensors: dict[str, Any]) -> dict[str, Any]:
    """All values of a row: its tensors, and the attributes by their names. One without a name and a value is an optional one
    that is absent."""
    specs = {spec.dml_name: spec for spec in row.fields if not spec.kind.is_tensor}
    found = {name: item for item in tables if (name := item.text(0))}
    values = dict(tensors)
    for name, spec in specs.items():
        if name in found and found[name].has(2):
            values[spec.name] = _attribute(found[name], spec, row, found)
        elif not spec.optional:
            table.refuse(f"must have the attribute {name!r} of {row.dml_name}", sorted(found))
    for name in found.keys() - specs.keys():
        if not is_count(row, name):
            found[name].refuse(f"must be an attribute of {row.dml_name}", name)
        count = found[name].struct(2, "I")[0]
        if count not in (counted(row, values) or {0}):
            found[name].refuse(f"{name} must be the length of an array of {row.dml_name}", count)
    return values


def _attribute(item: Table, spec: FieldSpec, row: type[OperatorDesc], found: dict[str, Table]) -> Any:
    kind = item.scalar(1, "B")
    if kind not in _KINDS[spec.kind]:
        item.refuse(f"must be of another kind: {spec.dml_name} of {row.dml_name} is {spec.kind.name}", kind)
    match spec.kind:
        case FieldKind.UINT:
            return item.struct(2, "I")[0]
        case FieldKind.INT:
            return item.struct(2, "i")[0]
        case FieldKind.FLOAT:
            return item.struct(2, "f")[0]
        case FieldKind.BOOL:
            return bool(item.struct(2, "?" if kind == _BOOL else "I")[0])
        case FieldKind.ENUM:
            assert spec.enumeration is not None, "an enum field names its class"
            return member(spec.enumeration, item.struct(2, "I")[0], f"{item.path}.{spec.dml_name}")
        case FieldKind.SCALE_BIAS:
            return ScaleBias(*item.struct(2, "ff"))
        case FieldKind.SIZE_2D:
            return Size2D(*item.struct(2, "II"))
        case FieldKind.SCALAR_UNION:
            return _scalar(_inner(item), row, found)
        case FieldKind.FUSED_ACTIVATION:
            return _activation(_inner(item))
        case FieldKind.OPERATOR_DESC_ARRAY:
            return tuple(map(_activation, _inner(item).tables(0, "data")))
    values = _inner(item).array(0, _ARRAYS[spec.kind])
    numbers = () if values is None else tuple(values.tolist())
    return None if spec.optional and not numbers else numbers


_ARRAYS: Final = {FieldKind.UINT_ARRAY: "<u4", FieldKind.INT_ARRAY: "<i4", FieldKind.FLOAT_ARRAY: "<f4"}
_KINDS: Final = {
    FieldKind.UINT: (_UINT,),
    FieldKind.INT: (_INT,),
    FieldKind.FLOAT: (_FLOAT,),
    FieldKind.BOOL: (_UINT, _BOOL),
    FieldKind.ENUM: (_UINT,),
    FieldKind.UINT_ARRAY: (_UINTS,),
    FieldKind.INT_ARRAY: (_INTS,),
    FieldKind.FLOAT_ARRAY: (_FLOATS,),
    FieldKind.SCALE_BIAS: (_SCALE_BIAS,),
    FieldKind.SCALAR_UNION: (_SCALAR,),
    FieldKind.SIZE_2D: (_SIZE_2D,),
    FieldKind.FUSED_ACTIVATION: (_ACTIVATION,),
    FieldKind.OPERATOR_DESC_ARRAY: (_ACTIVATIONS,),
}


def _inner(item: Table) -> Table:
    found = item.table(2, "val")
    assert found is not None, "the caller has looked"
    return found


def _activation(table: Table) -> OperatorDesc:
    row = _row(table)
    if any(spec.kind in (FieldKind.FUSED_ACTIVATION, FieldKind.OPERATOR_DESC_ARRAY) for spec in row.fields):
        table.refuse("must be an activation", row.dml_name)
    return row(**_attributes(table, row, table.tables(1, "attributes"), {}))


def _scalar(table: Table, row: type[OperatorDesc], found: dict[str, Table]) -> int | float:
    kind = table.scalar(0, "B")
    if kind in _SCALARS:
        return table.struct(1, _SCALARS[kind])[0]  # type: ignore[no-any-return]
    named = found.get(scalar_type_field(row).dml_name)
    data_type = TensorDataType.UNKNOWN if named is None else member(TensorDataType, named.struct(2, "I")[0], named.path)
    if kind != _SCALAR_BYTES or data_type not in _STRUCT_KINDS:
        table.refuse("must be a number of a type that a union holds", (kind, data_type))
    return struct.unpack_from(f"<{_STRUCT_KINDS[data_type]}", bytes(table.struct(1, "8B")))[0]  # type: ignore[no-any-return]


# -- edges


class _Wires:
    """Makes edges of names."""

    def __init__(self, device: Device, nodes: Sequence[_Node], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.device, self.nodes, self.input_names, self.output_names = device, nodes, tuple(inputs), tuple(outputs)
        self.made: list[GraphNodeDesc] = []
        self.index: dict[int, int] = {}
        """The place of each operator's node among those of the graph."""
        self.constants: dict[tuple[int, int], int] = {}
        """The place of each constant, by the file's node and the bytes that its reader takes."""
        self.sources: dict[str, tuple[int, int]] = {}
        """The node and slot that make each name."""
        for number, node in enumerate(nodes):
            if not isinstance(node.content, np.ndarray):
                self.index[number] = len(self.made)
                self.made.append(OperatorGraphNodeDesc(device.create_operator(node.content), node.name))
            for slot, name in enumerate(node.outputs):
                if not name:
                    continue
                if name in self.sources or name in inputs:
                    raise InvalidArgumentError("each name must be made once", field=f"{node.path}.outputNames", value=name)
                self.sources[name] = (number, slot)

    def graph(self) -> SerializedGraph:
        """The graph."""
        numbers = {name: number for number, name in enumerate(self.input_names)}
        fed: list[InputGraphEdgeDesc] = []
        between: list[IntermediateGraphEdgeDesc] = []
        for number, node in enumerate(self.nodes):
            if isinstance(node.content, np.ndarray):
                continue
            for slot, name in enumerate(node.inputs):
                if not name:
                    continue
                if name in numbers:
                    fed.append(InputGraphEdgeDesc(numbers[name], self.index[number], slot, name))
                    continue
                if name not in self.sources:
                    rule = "must be an input of the graph, or made by a node"
                    raise InvalidArgumentError(rule, field=f"{node.path}.inputNames[{slot}]", value=name)
                source, output = self._source(name, node.content.input_slots()[slot])
                between.append(IntermediateGraphEdgeDesc(source, output, self.index[number], slot, name))
        left = []
        for number, name in enumerate(self.output_names):
            if name not in self.sources:
                raise InvalidArgumentError("must be made by a node", field=f"graph.graphOutputNames[{number}]", value=name)
            left.append(OutputGraphEdgeDesc(*self._source(name, None), number, name))
        desc = GraphDesc(len(self.input_names), len(self.output_names), self.made, fed, left, between)
        return SerializedGraph(desc, self.input_names, self.output_names)

    def _source(self, name: str, slot: Slot | None) -> tuple[int, int]:
        number, output = self.sources[name]
        node = self.nodes[number]
        if not isinstance(node.content, np.ndarray):
            return self.index[number], output
        tensor = None if slot is None else slot.tensor
        nbytes = len(node.content) if tensor is None else tensor.total_tensor_size_in_bytes
        if not 0 < nbytes < len(node.content) + 4:  # a file of few small numbers ends before the next multiple of 4
            rule = f"must hold the {nbytes} bytes of its reader"
            raise InvalidArgumentError(rule, field=f"{node.path} {node.name!r}", value=len(node.content))
        if (number, nbytes) not in self.constants:
            self.constants[number, nbytes] = len(self.made)
            content = np.pad(node.content, (0, max(nbytes - len(node.content), 0)))[:nbytes]
            self.made.append(ConstantDataGraphNodeDesc(content, node.name))
        return self.constants[number, nbytes], 0
