"""Writes DirectML graphs as ONNX Runtime's DirectML provider does, with FlatBuffers' builder: the reader's counterpart."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
from dispatch_files import constant

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.spec.tensor import TensorDesc

UNION = {"Activation": 1, "ActivationArray": 2, "UInt32": 3, "Int32": 5, "Float32": 6, "UIntArray": 7, "IntArray": 8}
UNION |= {"FloatArray": 9, "ScaleBias": 10, "Size2D": 11, "ScalarUnionData": 12, "Bool": 13}
ARRAYS = {FieldKind.UINT_ARRAY: ("UIntArray", "I"), FieldKind.INT_ARRAY: ("IntArray", "i")}
ARRAYS |= {FieldKind.FLOAT_ARRAY: ("FloatArray", "f")}
SCALARS = {"FLOAT64": "d", "FLOAT32": "f", "FLOAT16": "e", "UINT64": "Q", "INT64": "q", "UINT32": "I", "INT32": "i"}
SCALARS |= {"UINT16": "H", "INT16": "h", "UINT8": "B", "INT8": "b"}


@dataclass
class Node:
    """A node of a graph: an operator, or the name or the bytes of a constant."""

    content: OperatorDesc | str | bytes
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = "node"


class Writer:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def table(self, *fields: tuple[int, str, Any, Any]) -> int:
        """A table of (place, kind, value, default): kinds are ``offset`` and those of the builder's ``Prepend...Slot``."""
        self.builder.StartObject(1 + max(place for place, *_ in fields))
        for place, kind, value, default in fields:
            if kind == "offset":
                if value:
                    self.builder.PrependUOffsetTRelativeSlot(place, value, 0)
            else:
                getattr(self.builder, f"Prepend{kind}Slot")(place, value, default)
        return int(self.builder.EndObject())

    def offsets(self, items: Sequence[int]) -> int:
        self.builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.builder.PrependUOffsetTRelative(item)
        return int(self.builder.EndVector())

    def numbers(self, values: Sequence[float], kind: str) -> int:
        self.builder.StartVector(4, len(values), 4)
        prepend = {"I": self.builder.PrependUint32, "i": self.builder.PrependInt32, "f": self.builder.PrependFloat32}[kind]
        for value in reversed(values):
            prepend(value)
        return int(self.builder.EndVector())

    def texts(self, names: Sequence[str]) -> int:
        return self.offsets([self.builder.CreateString(name) for name in names])

    def struct(self, *words: bytes) -> int:
        """A struct of 4-byte words, or of one byte."""
        size = sum(map(len, words))
        self.builder.Prep(min(size, 4), size)
        for word in reversed(words):
            for byte in reversed(word):
                self.builder.PrependByte(byte)
        return int(self.builder.Offset())

    # -- parts of graphs

    def tensor(self, desc: TensorDesc) -> int:
        name = self.builder.CreateString(constant(desc.data_type))
        sizes = self.numbers(desc.sizes, "I")
        strides = self.numbers(desc.strides, "I") if desc.strides is not None else 0
        total = desc.total_tensor_size_in_bytes
        return self.table(
            (0, "offset", name, 0), (1, "offset", sizes, 0), (2, "offset", strides, 0), (3, "Uint64", total, 0)
        )

    def attributes(self, desc: OperatorDesc, counts: dict[str, int]) -> int:
        made = [self.attribute(desc, spec.name, spec.dml_name, spec.kind) for spec in desc.fields if not spec.kind.is_tensor]
        for name, count in counts.items():
            made.append(self.named(name, "UInt32", self.struct(struct.pack("<I", count))))
        return self.offsets(made)

    def named(self, name: str, kind: str, value: int) -> int:
        text = self.builder.CreateString(name) if name else 0
        return self.table((0, "offset", text, 0), (1, "Uint8", UNION[kind], 0), (2, "offset", value, 0))

    def attribute(self, desc: OperatorDesc, name: str, dml_name: str, kind: FieldKind) -> int:
        value = getattr(desc, name)
        if kind in ARRAYS:
            union, letter = ARRAYS[kind]
            numbers = self.numbers(value or (), letter)
            return self.named(dml_name, union, self.table((0, "offset", numbers, 0)))
        if value is None:  # an optional one that is absent has neither name nor value
            return self.named("", "ScaleBias" if kind is FieldKind.SCALE_BIAS else "Activation", 0)
        match kind:
            case FieldKind.FUSED_ACTIVATION:
                return self.named(dml_name, "Activation", self.activation(value))
            case FieldKind.OPERATOR_DESC_ARRAY:
                activations = self.offsets([self.activation(item) for item in value])
                return self.named(dml_name, "ActivationArray", self.table((0, "offset", activations, 0)))
            case FieldKind.SCALAR_UNION:
                data_type = next(
                    item for item in (getattr(desc, spec.name) for spec in desc.fields) if type(item) is TensorDataType
                )
                letter = SCALARS[data_type.name]
                if letter.isupper() and value < 0:
                    value += 1 << 8 * struct.calcsize(letter)
                packed = struct.pack(f"<{letter}", value).ljust(8, b"\0")
                data = self.struct(packed)
                return self.named(dml_name, "ScalarUnionData", self.table((0, "Uint8", 1, 0), (1, "offset", data, 0)))
            case FieldKind.SCALE_BIAS:
                words = (struct.pack("<f", value.scale), struct.pack("<f", value.bias))
                return self.named(dml_name, "ScaleBias", self.struct(*words))
            case FieldKind.SIZE_2D:
                words = (struct.pack("<I", value.width), struct.pack("<I", value.height))
                return self.named(dml_name, "Size2D", self.struct(*words))
            case FieldKind.FLOAT:
                return self.named(dml_name, "Float32", self.struct(struct.pack("<f", value)))
            case FieldKind.INT:
                return self.named(dml_name, "Int32", self.struct(struct.pack("<i", value)))
        return self.named(dml_name, "UInt32", self.struct(struct.pack("<I", value)))

    def activation(self, desc: OperatorDesc) -> int:
        name = self.builder.CreateString(desc.dml_name)
        return self.table((0, "offset", name, 0), (1, "offset", self.attributes(desc, {}), 0))

    def node(self, node: Node, counts: dict[str, int]) -> int:
        if isinstance(node.content, OperatorDesc):
            desc = node.content
            name = self.builder.CreateString(desc.dml_name)
            inputs, outputs = (
                self.offsets([self.tensor(slot.tensor) for slot in slots if slot.tensor is not None])
                for slots in (desc.input_slots(), desc.output_slots())
            )
            attributes = self.attributes(desc, counts)
            kind = 1
            content = self.table(
                (0, "offset", name, 0), (1, "offset", inputs, 0), (2, "offset", outputs, 0), (3, "offset", attributes, 0)
            )
        else:
            kind = 2
            if isinstance(node.content, str):
                inner = self.table((0, "offset", self.builder.CreateString(node.content), 0))
            else:
                inner = self.table((0, "offset", self.builder.CreateByteVector(node.content), 0))
            content = self.table((0, "Uint8", 1 if isinstance(node.content, str) else 2, 0), (1, "offset", inner, 0))
        name, inputs, outputs = self.builder.CreateString(node.name), self.texts(node.inputs), self.texts(node.outputs)
        fields = ((2, "offset", name, 0), (3, "offset", inputs, 0), (4, "offset", outputs, 0))
        return self.table((0, "Uint8", kind, 0), (1, "offset", content, 0), *fields)


def serialized(
    nodes: Sequence[Node],
    inputs: Sequence[str],
    outputs: Sequence[str],
    counts: Callable[[OperatorDesc], dict[str, int]] = lambda _: {},
) -> bytes:
    """A graph as the file has it; ``counts`` are further attributes of an operator: the lengths of its arrays."""
    writer = Writer()
    made = [writer.node(node, counts(node.content) if isinstance(node.content, OperatorDesc) else {}) for node in nodes]
    root = writer.table(
        (0, "offset", writer.offsets(made), 0),
        (1, "offset", writer.texts(inputs), 0),
        (2, "offset", writer.texts(outputs), 0),
    )
    writer.builder.Finish(root)
    return bytes(writer.builder.Output())


def single(desc: OperatorDesc, counts: dict[str, int]) -> bytes:
    """A graph of one operator, whose slots are the graph's."""
    names = [
        [f"{prefix}{index}" if slot.tensor is not None else "" for index, slot in enumerate(slots)]
        for prefix, slots in (("in", desc.input_slots()), ("out", desc.output_slots()))
    ]
    given = [[name for name in group if name] for group in names]
    return serialized([Node(desc, *names)], *given, lambda _: counts)
