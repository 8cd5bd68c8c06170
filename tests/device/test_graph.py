"""Compiled graphs on the device: the operators' own results, whatever the passes do, and every way of wiring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.directml.ready_operator import initialize
from dmlvk.graph.desc import (
    ConstantDataGraphNodeDesc,
    GraphDesc,
    InputGraphEdgeDesc,
    IntermediateGraphEdgeDesc,
    OperatorGraphNodeDesc,
    OutputGraphEdgeDesc,
)
from dmlvk.graph.passes import PASSES
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc

IN, OUT, BETWEEN = InputGraphEdgeDesc, OutputGraphEdgeDesc, IntermediateGraphEdgeDesc
F32 = dmlvk.TensorDataType.FLOAT32
rng = np.random.default_rng(11)
Floats = np.ndarray


def tensor(*sizes: int, **more: Any) -> dmlvk.TensorDesc:
    return dmlvk.TensorDesc(F32, sizes, **more)


def normal(*sizes: int) -> Floats:
    return rng.standard_normal(sizes).astype(np.float32)


class Compiled:
    """A graph with its resources, to be run over numpy arrays.

    Args:
        desc: The graph.
        without: Passes to leave out.
        owned: What is bound at initialisation, by input.
    """

    def __init__(
        self, device: dmlvk.Device, desc: GraphDesc, without: Sequence[str] = (), owned: dict[int, Floats] | None = None
    ) -> None:
        self.device = device
        self.operator = device.compile_graph(desc, without=without)
        weights = {index: self._buffer(array) for index, array in (owned or {}).items()}
        bindings = [
            dmlvk.BufferBinding(weights[index]) if index in weights else None
            for index in range(len(self.operator.signature.inputs))
        ]
        self.persistent = initialize(device, self.operator, bindings)

    def _buffer(self, array: Floats) -> dmlvk.Buffer:
        buffer = self.device.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.write(array)
        return buffer

    def run(self, *inputs: Floats | None, times: int = 1) -> list[Floats]:
        """Outputs as flat float32 arrays."""
        buffers = [None if array is None else self._buffer(array) for array in inputs]
        tensors = [slot.tensor for slot in self.operator.signature.outputs]
        results = [np.empty(item.total_tensor_size_in_bytes // 4, np.float32) for item in tensors if item is not None]
        outputs = [self.device.create_buffer(result.nbytes) for result in results]
        table = self.device.create_binding_table(self.operator)
        table.bind_inputs([buffer and dmlvk.BufferBinding(buffer) for buffer in buffers])
        table.bind_outputs([dmlvk.BufferBinding(buffer) for buffer in outputs])
        scratch = self.operator.get_binding_properties().temporary_resource_size
        table.bind_temporary_resource(dmlvk.BufferBinding(self.device.create_buffer(scratch)) if scratch else None)
        table.bind_persistent_resource(self.persistent)
        commands = self.device.create_command_list()
        self.device.create_command_recorder().record_dispatch(commands, self.operator, table)
        for _ in range(times):
            self.device.execute(commands)
        for buffer, result in zip(outputs, results, strict=True):
            buffer.read_into(result)
        return results


@pytest.fixture(scope="module")
def node(device: dmlvk.Device) -> Callable[..., OperatorGraphNodeDesc]:
    """A function from a desc to a node."""

    def make(desc: OperatorDesc, name: str = "") -> OperatorGraphNodeDesc:
        return OperatorGraphNodeDesc(device.create_operator(desc), name)

    return make


def unary(row: type[OperatorDesc], *sizes: int, **fields: Any) -> OperatorDesc:
    return row(input_tensor=tensor(*sizes), output_tensor=tensor(*sizes), **fields)


def binary(row: type[OperatorDesc], *sizes: int) -> OperatorDesc:
    return row(a_tensor=tensor(*sizes), b_tensor=tensor(*sizes), output_tensor=tensor(*sizes))


def convolution(filter_flags: dmlvk.TensorFlags = dmlvk.TensorFlags.NONE) -> OperatorDesc:
    return ops.Convolution(
        input_tensor=tensor(2, 5, 9, 8),
        filter_tensor=tensor(7, 5, 3, 3, flags=filter_flags),
        output_tensor=tensor(2, 7, 9, 8),
        mode=dmlvk.ConvolutionMode.CROSS_CORRELATION,
        direction=dmlvk.ConvolutionDirection.FORWARD,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        output_padding=(0, 0),
        group_count=1,
    )


def batch_normalization() -> OperatorDesc:
    statistics = {f"{name}_tensor": tensor(1, 7, 1, 1) for name in ("mean", "variance", "scale", "bias")}
    image = tensor(2, 7, 9, 8)
    return ops.BatchNormalization(input_tensor=image, output_tensor=image, **statistics, spatial=True, epsilon=1e-3)


IMAGE, FILTER = normal(2, 5, 9, 8), normal(7, 5, 3, 3)
STATISTICS = [normal(7), np.abs(normal(7)) + 0.1, normal(7), normal(7)]


def block(node: Callable[..., OperatorGraphNodeDesc], flags: dmlvk.TensorFlags = dmlvk.TensorFlags.NONE) -> GraphDesc:
    """Convolution, batch normalization and relu; everything but the image is a constant, or with flags the filter is the
    second input."""
    fed = bool(flags)
    constants = [ConstantDataGraphNodeDesc(array) for array in (FILTER, *STATISTICS)]
    nodes = [
        node(convolution(flags), "convolution"),
        node(batch_normalization(), "normalization"),
        node(unary(ops.ActivationRelu, 2, 7, 9, 8), "relu"),
        *(constants[1:] if fed else constants),
    ]
    first = 3 if fed else 4
    edges = [BETWEEN(0, 0, 1, 0), BETWEEN(1, 0, 2, 0)] + [BETWEEN(first + i, 0, 1, 1 + i) for i in range(4)]
    if not fed:
        edges.append(BETWEEN(3, 0, 0, 1))
    inputs = [IN(0, 0, 0)] + ([IN(1, 0, 1)] if fed else [])
    return GraphDesc(len(inputs), 1, nodes, inputs, [OUT(2, 0, 0)], edges)


def block_by_hand(device: dmlvk.Device) -> Floats:
    """The block, one operator after the other."""
    attributes = {
        field.name: getattr(convolution(), field.name)
        for field in ops.Convolution.fields
        if not field.kind.is_tensor and field.name != "fused_activation"
    }
    run = dmlvk.eager
    image = run.convolution(IMAGE, FILTER, **attributes, output_sizes=(2, 7, 9, 8), device=device)
    statistics = (array.reshape(1, 7, 1, 1) for array in STATISTICS)
    image = run.batch_normalization(image, *statistics, spatial=True, epsilon=1e-3, device=device)
    return np.asarray(run.activation_relu(image, device=device)).reshape(-1)


@pytest.mark.quick
def test_a_block(
    device: dmlvk.Device,
    node: Callable[..., OperatorGraphNodeDesc],
    count_dispatches: Callable[[], AbstractContextManager[Any]],
) -> None:
    """Three operators, or one: batch normalization goes into constant weights."""
    wanted = block_by_hand(device)
    plain, merged = (Compiled(device, block(node), without) for without in (("all",), ()))
    with count_dispatches() as counted:
        (result,) = plain.run(IMAGE)
    assert counted.dispatches == len(plain.operator.plan.dispatches) >= 3
    np.testing.assert_array_equal(result, wanted)
    with count_dispatches() as counted:
        (result,) = merged.run(IMAGE)
    assert counted.dispatches == len(merged.operator.plan.dispatches) == len(plain.operator.plan.dispatches) - 2
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_an_owned_filter(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc]) -> None:
    """An owned filter is bound at initialisation and kept: its buffer may go, and the graph runs any number of times."""
    graph = Compiled(device, block(node, dmlvk.TensorFlags.OWNED_BY_DML), owned={1: FILTER})
    assert graph.operator.get_binding_properties().persistent_resource_size > 0
    (result,) = graph.run(IMAGE, None, times=3)
    np.testing.assert_allclose(result, block_by_hand(device), rtol=1e-5, atol=1e-5)


def test_shared_and_repeated_results(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc]) -> None:
    """One result read by two nodes and shown as two outputs; a constant shown as an output; an input read twice."""
    values = normal(4, 6)
    graph = GraphDesc(
        2,
        4,
        [
            node(binary(ops.ElementWiseMultiply, 4, 6), "square"),
            node(unary(ops.ElementWiseNegate, 4, 6), "negate"),
            node(binary(ops.ElementWiseSubtract, 4, 6), "difference"),
            ConstantDataGraphNodeDesc(values),
        ],
        [IN(0, 0, 0), IN(0, 0, 1), IN(1, 2, 1)],
        [OUT(0, 0, 0), OUT(0, 0, 3), OUT(3, 0, 1), OUT(2, 0, 2)],
        [BETWEEN(0, 0, 1, 0), BETWEEN(1, 0, 2, 0), BETWEEN(3, 0, 2, 1)],
    )
    x = normal(4, 6)
    broken = [IN(0, 0, 0), IN(0, 0, 1), IN(1, 2, 1)]
    with pytest.raises(dmlvk.InvalidArgumentError, match="must have one edge"):
        device.compile_graph(graph)
    graph = GraphDesc(2, 4, graph.nodes, broken[:2], graph.output_edges, graph.intermediate_edges)
    for without in (("all",), ()):
        square, constant, difference, again = Compiled(device, graph, without).run(x, None)
        np.testing.assert_array_equal(square, (x * x).reshape(-1))
        np.testing.assert_array_equal(again, square)
        np.testing.assert_array_equal(constant, values.reshape(-1))
        np.testing.assert_array_equal(difference, (-(x * x) - values).reshape(-1))


def test_another_type_between_nodes(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc]) -> None:
    """Connected tensors agree in nothing but their size in bytes: the bits of a float go into an integer's node."""
    bits = dmlvk.TensorDesc(dmlvk.TensorDataType.UINT32, (24,))
    flip = ops.ElementWiseBitNot(input_tensor=bits, output_tensor=bits)
    nodes = [node(unary(ops.ElementWiseNegate, 4, 6)), node(flip)]
    graph = GraphDesc(1, 1, nodes, [IN(0, 0, 0)], [OUT(1, 0, 0)], [BETWEEN(0, 0, 1, 0)])
    x = normal(4, 6)
    (result,) = Compiled(device, graph).run(x)
    np.testing.assert_array_equal(result.view(np.uint32), ~(-x).reshape(-1).view(np.uint32))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc], seed: int) -> None:
    """Nodes in any order, any fan-out, several outputs: float32 arithmetic that numpy does with the same bits."""
    random = np.random.default_rng(seed)
    sizes, count, inputs = (3, 37), 14, 3
    x = [normal(*sizes) for _ in range(inputs)]
    rows: list[tuple[type[OperatorDesc], Callable[..., Floats]]] = [
        (ops.ElementWiseAdd, np.add),
        (ops.ElementWiseMultiply, np.multiply),
        (ops.ElementWiseMax, np.maximum),
        (ops.ElementWiseNegate, np.negative),
        (ops.ActivationRelu, lambda a: np.maximum(a, np.float32(0))),
    ]
    place = random.permutation(count)  # where each node stands among the nodes
    nodes: list[Any] = [None] * count
    values: list[Floats] = []
    fed: list[InputGraphEdgeDesc] = []
    between: list[IntermediateGraphEdgeDesc] = []
    read = set()
    for index in range(count):
        row, function = rows[random.integers(len(rows))]
        arity = sum(field.kind.is_input for field in row.fields)
        nodes[place[index]] = node((binary if arity == 2 else unary)(row, *sizes), f"n{index}")
        operands = []
        for slot in range(arity):
            source = int(random.integers(-inputs, index)) if index else -1
            if source < 0:
                fed.append(IN(-source - 1, int(place[index]), slot))
                operands.append(x[-source - 1])
            else:
                between.append(BETWEEN(int(place[source]), 0, int(place[index]), slot))
                operands.append(values[source])
                read.add(source)
        values.append(function(*operands))
    shown = [index for index in range(count) if index not in read or random.random() < 0.2]
    outs = [OUT(int(place[index]), 0, number) for number, index in enumerate(shown)]
    graph = GraphDesc(inputs, len(outs), nodes, fed, outs, between)
    given = [array if any(edge.graph_input_index == index for edge in fed) else None for index, array in enumerate(x)]
    for without in (("all",), (), *((item.name,) for item in PASSES)):
        for result, index in zip(Compiled(device, graph, without).run(*given, times=2), shown, strict=True):
            np.testing.assert_array_equal(result, values[index].reshape(-1))


def test_an_operator_of_another_device_is_refused(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc]) -> None:
    other = dmlvk.Device()
    graph = GraphDesc(1, 1, [node(unary(ops.ActivationRelu, 2, 3))], [IN(0, 0, 0)], [OUT(0, 0, 0)])
    with pytest.raises(dmlvk.StateError, match=r"Nodes\[0\]"):
        other.compile_graph(graph)


def test_what_the_device_cannot_do_names_the_node(device: dmlvk.Device, node: Callable[..., OperatorGraphNodeDesc]) -> None:
    huge = dmlvk.TensorDesc(F32, (2**31,))
    fill = ops.FillValueSequence(output_tensor=huge, value_data_type=F32, value_start=0.0, value_delta=1.0)
    graph = GraphDesc(0, 1, [node(fill, "too large")], [], [OUT(0, 0, 0)])
    with pytest.raises(dmlvk.UnsupportedError, match="node 0 'too large'"):
        device.compile_graph(graph)
