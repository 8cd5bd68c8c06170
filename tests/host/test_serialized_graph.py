"""Graphs that ONNX Runtime's DirectML provider writes, read back; the device is not needed for what they say."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from serialized_graphs import Node, Writer, serialized, single

import dmlvk
from dmlvk import Gemm, TensorDataType, TensorDesc
from dmlvk.directml.serialized_graph import read_serialized_graph
from dmlvk.graph.desc import ConstantDataGraphNodeDesc, OperatorGraphNodeDesc
from dmlvk.graph.wiring import wire
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import build, variations

F32 = TensorDataType.FLOAT32


class Maker:
    """What the reader needs of a device."""

    def create_operator(self, desc: OperatorDesc) -> Any:
        return SimpleNamespace(device=self, desc=desc)


def read(data: bytes, **constants: bytes) -> dmlvk.SerializedGraph:
    return read_serialized_graph(Maker(), data, constants.__getitem__)  # type: ignore[arg-type]


def unflagged(desc: OperatorDesc) -> OperatorDesc:
    """Without OWNED_BY_DML, which files do not have, and with numbers of 32 bits, as files have them."""

    def plain(value: Any) -> Any:
        if isinstance(value, TensorDesc):
            return TensorDesc(value.data_type, value.sizes, value.strides, value.total_tensor_size_in_bytes)
        if isinstance(value, OperatorDesc):
            return unflagged(value)
        if isinstance(value, tuple):
            items = [plain(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def narrow(value: Any, kind: FieldKind) -> Any:
        return struct.unpack("<f", struct.pack("<f", value))[0] if kind is FieldKind.FLOAT else plain(value)

    return type(desc)(**{spec.name: narrow(getattr(desc, spec.name), spec.kind) for spec in desc.fields})


CASES = [(row, next(variations(entry))) for row, entry in all_cases().items() if row.type is not OperatorType.INVALID]


def test_an_operator_of_each_kind_is_read_as_it_was_written() -> None:
    assert len(CASES) == 177
    different = []
    for row, variation in CASES:
        desc = unflagged(build(row, variation).desc)
        lengths = [len(getattr(desc, spec.name) or ()) for spec in row.fields if spec.kind.name.endswith("ARRAY")]
        found = read(single(desc, {"DimensionCount": lengths[0]} if lengths else {})).desc
        (node,) = found.nodes
        assert isinstance(node, OperatorGraphNodeDesc)
        again = node.operator.desc
        if repr(again) != repr(desc):  # FLOAT16 scalars are rounded by the file
            scalars = [spec.name for spec in row.fields if spec.kind is FieldKind.SCALAR_UNION]
            kept = {name: getattr(desc, name) for name in scalars}
            assert all(np.isclose(getattr(again, name), kept[name], rtol=1e-3) for name in scalars), row
            if repr(again.replace(**kept)) != repr(desc):
                different.append((row.__name__, desc, again))
        wire(found)
    assert not different, different[0]


A, B, C = (TensorDesc(F32, sizes) for sizes in ((2, 3), (3, 5), (2, 5)))
ROW = TensorDesc(F32, (2, 5), (0, 1), 20)
PRODUCT = Gemm(a_tensor=A, b_tensor=B, output_tensor=C, alpha=0.5, fused_activation=dmlvk.ActivationElu(alpha=2.0))
SUM = dmlvk.ElementWiseAdd(a_tensor=C, b_tensor=ROW, output_tensor=C)
NODES = [
    Node("weights", (), ("w",), "w"),
    Node(np.arange(5, dtype=np.float32).tobytes(), (), ("row",), "row"),
    Node(PRODUCT, ("x", "w", ""), ("product",), "product"),
    Node(SUM, ("product", "row"), ("y",), "sum"),
]
WEIGHTS = {"weights": bytes(range(60))}


def test_edges_are_names() -> None:
    desc, inputs, outputs = read(serialized(NODES, ["x"], ["y", "product"]), **WEIGHTS)
    assert (inputs, outputs) == (("x",), ("y", "product"))
    data = [node.content().tobytes() for node in desc.nodes if isinstance(node, ConstantDataGraphNodeDesc)]
    assert data == [bytes(range(60)), np.arange(5, dtype=np.float32).tobytes()]
    wiring = wire(desc)
    assert [step.desc for step in wiring.steps] == [PRODUCT, SUM]
    assert wiring.input_tensors == (A,) and wiring.output_tensors == (C, C)


def test_a_constant_has_the_bytes_of_each_reader() -> None:
    """A half of two bytes is in a tensor of four; a longer constant may be read by a tensor of its beginning."""
    half, two = (TensorDesc(TensorDataType.FLOAT16, (count,)) for count in (1, 3))
    sums = [dmlvk.ElementWiseAdd(a_tensor=item, b_tensor=item, output_tensor=item) for item in (half, two)]
    nodes = [
        Node(b"\1\2", (), ("short",)),
        Node(b"\1\2\3\4\5\6", (), ("long",)),
        Node(sums[0], ("short", "long"), ("first",)),
        Node(sums[1], ("x", "long"), ("second",)),
    ]
    wiring = wire(read(serialized(nodes, ["x"], ["first", "second"])).desc)
    read_bytes = [
        None if item.constant is None else bytes(item.constant) for step in wiring.steps for item in step.inputs if item
    ]
    assert read_bytes == [b"\1\2\0\0", b"\1\2\3\4", None, b"\1\2\3\4\5\6\0\0"]


@pytest.mark.parametrize(
    ("nodes", "outputs", "said"),
    [
        (NODES[:3], ["y"], r"graph\.graphOutputNames\[0\]: must be made by a node"),
        (NODES[1:], ["y"], r"graph\.nodes\[1\]\.inputNames\[1\]: must be an input of the graph"),
        ([*NODES, NODES[2]], ["y"], r"graph\.nodes\[4\]\.outputNames: each name must be made once"),
        ([Node("", (), ("w",)), *NODES[1:]], ["y"], r"graph\.nodes\[0\]\.desc\.data: must have the name of a constant"),
        ([Node(b"123", (), ("w",)), *NODES[1:]], ["y"], r"graph\.nodes\[0\] 'node': must hold the 60 bytes"),
        (
            [*NODES[:2], Node(PRODUCT.replace(b_tensor=A), ("x", "w", ""), ("product",)), NODES[3]],
            ["y"],
            r"DML_OPERATOR_GEMM at graph\.nodes\[2\]\.desc\.\w+: ",
        ),
        (
            [*NODES[:2], Node(PRODUCT, ("x", "w", "", "more"), ("product",)), NODES[3]],
            ["y"],
            r"graph\.nodes\[2\]\.desc: must have the tensors of DML_OPERATOR_GEMM",
        ),
    ],
)
def test_broken_graphs_name_their_part(nodes: list[Node], outputs: list[str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        read(serialized(nodes, ["x"], outputs), **WEIGHTS)


@pytest.mark.parametrize("counts", [{"DimensionCount": 9}, {"Nonsense": 1}])
def test_attributes_that_an_operator_lacks_are_refused(counts: dict[str, int]) -> None:
    desc = dmlvk.Reduce(function=dmlvk.ReduceFunction.SUM, input_tensor=A, output_tensor=TensorDesc(F32, (2, 1)), axes=(1,))
    assert read(single(desc, {"AxisCount": 1})).desc.nodes
    with pytest.raises(InvalidArgumentError, match=next(iter(counts))):
        read(single(desc, counts))


def test_tables_that_share_parts_without_end_are_refused() -> None:
    """A file of some kilobytes whose nodes are one and the same, with names that are one and the same."""
    writer = Writer()
    names = writer.offsets([writer.builder.CreateString("x")] * 1000)
    raw = writer.table((0, "offset", writer.builder.CreateByteVector(b"1234"), 0))
    constant = writer.table((0, "Uint8", 2, 0), (1, "offset", raw, 0))
    node = writer.table((0, "Uint8", 2, 0), (1, "offset", constant, 0), (3, "offset", names, 0))
    writer.builder.Finish(writer.table((0, "offset", writer.offsets([node] * 1000), 0)))
    data = bytes(writer.builder.Output())
    assert len(data) < 10_000
    with pytest.raises(InvalidArgumentError, match="its tables share parts"):
        read(data)
