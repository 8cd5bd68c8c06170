"""Loading, tracing, rewriting and placing a graph take time in proportion to its steps, whatever its shape."""

from __future__ import annotations

import cProfile
import gc
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper

from dmlvk.graph.collector import collector_waits
from dmlvk.graph.passes import optimized
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

pytestmark = pytest.mark.slow

FEW, TIMES = 80, 4
THRESHOLDS = gc.get_threshold()
MOST = 4.5
"""How many calls a graph of ``TIMES`` as many steps may take for one of a small one; by squares they were 16."""
F32, NBYTES = TensorDataType.FLOAT32, 128
TENSOR = TensorDesc(F32, (4, 8))
SCORES = ops.ActivationSoftmax1(input_tensor=TENSOR, output_tensor=TENSOR, axes=(1,))
SUM = ops.ElementWiseAdd(a_tensor=TENSOR, b_tensor=TENSOR, output_tensor=TENSOR)
COPY = ops.ElementWiseIdentity(input_tensor=TENSOR, output_tensor=TENSOR)
RELU = ops.ActivationRelu(input_tensor=TENSOR, output_tensor=TENSOR)


class Graph(NamedTuple):
    """Steps, the storage that they are fed, and those that are read after the last."""

    steps: list[Step]
    fed: Storage
    results: Sequence[Storage]


class Steps(list[Step]):
    """Steps that grow by one of a desc, whose output it returns."""

    def add(self, desc: OperatorDesc, *inputs: Storage, nbytes: int = NBYTES) -> Storage:
        written = Storage(nbytes)
        self.append(Step(len(self), desc, inputs, (written,)))  # type: ignore[arg-type]  # an origin that nobody names
        return written


def rows(count: int) -> TensorDesc:
    return TensorDesc(F32, (4 * count, 8))


def join(tensors: Sequence[TensorDesc]) -> OperatorDesc:
    length = sum(tensor.sizes[0] for tensor in tensors)
    return ops.Join(input_tensors=tuple(tensors), output_tensor=TensorDesc(F32, (length, 8)), axis=0)


def chain(length: int) -> Graph:
    """Steps one after the other, where every sum reads the same tensor as well."""
    steps, shared = Steps(), Storage(NBYTES)
    storage = steps.add(SCORES, shared)
    for index in range(length):
        desc = (SCORES, COPY, SUM, RELU, SUM)[index % 5]
        storage = steps.add(desc, *(storage, shared)[: len(desc.input_slots())])
    return Graph(steps, shared, [storage])


def branches(length: int) -> Graph:
    """Branches that are joined into one tensor."""
    steps, fed = Steps(), Storage(NBYTES)
    ends = [steps.add(RELU, steps.add(SCORES, fed)) for _ in range(length // 2)]
    whole = steps.add(join([TENSOR] * len(ends)), *ends, nbytes=NBYTES * len(ends))
    return Graph(steps, fed, [whole])


def pieces(length: int) -> Graph:
    """Pieces of a tensor, each computed with, and joined again."""
    steps, count, fed = Steps(), length, Storage(NBYTES * length)
    split = ops.Split(input_tensor=rows(count), output_tensors=(TENSOR,) * count, axis=0)
    outputs = tuple(Storage(NBYTES) for _ in range(count))
    steps.append(Step(None, split, (fed,), outputs))  # type: ignore[arg-type]
    ends = [steps.add(SCORES, piece) for piece in outputs]
    return Graph(steps, fed, [steps.add(join([TENSOR] * count), *ends, nbytes=NBYTES * count)])


def outputs(length: int) -> Graph:
    """A chain in which all that is computed is read afterwards."""
    steps, fed = Steps(), Storage(NBYTES)
    found = [fed]
    for _ in range(length):
        found.append(steps.add(SCORES, found[-1]))
    return Graph(steps, fed, found[1:])


def skips(length: int) -> Graph:
    """Sums of what a chain computes, the last first."""
    steps, fed = Steps(), Storage(NBYTES)
    down = [fed]
    for _ in range(length // 3):
        down.append(steps.add(SCORES, down[-1]))
    storage = down[-1]
    for skipped in reversed(down[:-1]):
        storage = steps.add(SCORES, steps.add(SUM, storage, skipped))
    return Graph(steps, fed, [storage])


def joins(length: int, *, read_between: bool = False) -> Graph:
    """Joins, each of the one before and one piece more, which other steps read in between or do not."""
    steps, fed, results = Steps(), Storage(NBYTES), []
    whole = steps.add(SCORES, fed)
    for count in range(1, length // 3):
        nbytes = NBYTES * (count + 1)
        whole = steps.add(join([rows(count), TENSOR]), whole, steps.add(SCORES, fed), nbytes=nbytes)
        if read_between:
            tensor = rows(count + 1)
            desc = ops.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(1,))
            results.append(steps.add(desc, whole, nbytes=nbytes))
    return Graph(steps, fed, [*results, whole])


def growing(length: int) -> Graph:
    return joins(length, read_between=True)


def gates(length: int) -> Graph:
    """Products with a gate, each of what the one before makes."""
    steps, fed = Steps(), Storage(NBYTES)
    storage = fed
    weights = TensorDesc(F32, (8, 8))
    product = ops.Gemm(a_tensor=TENSOR, b_tensor=weights, output_tensor=TENSOR)
    swish = ops.ActivationSwish(input_tensor=TENSOR, output_tensor=TENSOR, sigmoid_input_scale=1.0)
    multiply = ops.ElementWiseMultiply(a_tensor=TENSOR, b_tensor=TENSOR, output_tensor=TENSOR)
    for _ in range(length):  # four steps each: a search through all steps for a gate shows
        one, other = (
            steps.add(product, storage, Storage(256, np.ones((8, 8), np.float32)), None)  # type: ignore[arg-type]
            for _ in range(2)
        )
        storage = steps.add(multiply, steps.add(swish, one), other)
    return Graph(steps, fed, [storage])


def optimiser(length: int) -> Graph:
    """The same chain of many tensors."""
    steps, fed = Steps(), Storage(NBYTES)
    ends = [steps.add(RELU, steps.add(SUM, fed, Storage(NBYTES))) for _ in range(length // 2)]
    return Graph(steps, fed, ends)


def constants(length: int) -> Graph:
    """What is computed of constants, and so once."""
    steps, fed = Steps(), Storage(NBYTES)
    storage = fed
    for _ in range(length // 3):
        made = steps.add(SCORES, steps.add(SCORES, Storage(NBYTES, np.zeros(NBYTES // 4, np.float32))))
        storage = steps.add(SUM, storage, made)
    return Graph(steps, fed, [storage])


def rewrite(graph: Graph) -> None:
    made = optimized(graph.steps, graph.results)
    Placement(made, [graph.fed], graph.results, [0] * len(made))


def calls(work: Callable[[], object]) -> int:
    """The number of calls, of Python's functions and C's: the same each time."""
    with cProfile.Profile() as profile:
        work()
    return sum(entry.callcount for entry in profile.getstats())  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [chain, branches, pieces, outputs, skips, joins, growing, gates, optimiser, constants])
def test_a_step_takes_as_many_calls_in_a_longer_graph(make: Callable[[int], Graph]) -> None:
    few, many = make(FEW), make(FEW * TIMES)
    rewrite(make(FEW))  # fills caches
    assert calls(lambda: rewrite(many)) <= MOST * calls(lambda: rewrite(few))


def model(length: int) -> bytes:
    """A chain, an If and folded constants among it, with what is computed between joined in the end."""
    nodes, last, folded, found = [], "x", "c", []
    for index in range(length // 5):
        half = helper.make_graph(
            [helper.make_node("Sigmoid", [f"a{index}"], [f"h{index}"])],
            "half",
            [],
            [helper.make_tensor_value_info(f"h{index}", TensorProto.FLOAT, (4, 8))],
        )
        nodes += [
            helper.make_node("Softmax", [last], [f"a{index}"]),
            helper.make_node("If", ["always"], [f"b{index}"], then_branch=half, else_branch=half),
            helper.make_node("Add", [folded, "c"], [f"f{index}"]),
            helper.make_node("Add", [f"b{index}", f"f{index}"], [f"d{index}"]),
            helper.make_node("Exp", [f"d{index}"], [f"e{index}"]),
        ]
        last, folded = f"d{index}", f"f{index}"
        found.append(f"e{index}")
    nodes.append(helper.make_node("Concat", found, ["y"], axis=0))
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("c", TensorProto.FLOAT, (8,), range(8)),
            helper.make_tensor("always", TensorProto.BOOL, (), [True]),
        ],
    )
    found_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized: bytes = found_model.SerializeToString()
    return serialized


def trace(data: bytes) -> None:
    Network(load_model(data)).trace_whole({"x": (4, 8)}, {})


def test_a_node_takes_as_many_calls_in_a_longer_model() -> None:
    few, many = model(FEW), model(FEW * TIMES)
    trace(few)  # fills caches
    assert calls(lambda: trace(many)) <= MOST * calls(lambda: trace(few))


def test_the_collector_waits_while_a_model_is_traced_and_goes_on() -> None:
    data, full = model(FEW), []

    def collected(phase: str, info: dict[str, int]) -> None:
        full.append(info["generation"])

    try:
        gc.callbacks.append(collected)
        gc.set_threshold(1, 1, 1)  # otherwise a collection for every object
        loaded = load_model(data)
        network = Network(loaded)
        network.trace_whole({"x": (4, 8)}, {})
    finally:
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.remove(collected)
    assert len(full) < 100
    assert gc.isenabled()


def test_the_collector_goes_on_after_an_error_and_stays_off_where_it_was() -> None:
    found = []

    @collector_waits
    def fails() -> None:
        found.append(gc.isenabled())
        raise ValueError

    @collector_waits
    def inside() -> None:
        with pytest.raises(ValueError):
            fails()
        found.append(gc.isenabled())

    inside()
    assert gc.isenabled()
    gc.disable()
    try:
        inside()
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert found == [False] * 4


def test_a_node_takes_as_much_time_in_a_longer_model() -> None:
    few, many = model(400), model(400 * TIMES)

    def seconds(data: bytes) -> float:
        gc.collect()
        start = time.process_time()
        trace(data)
        return time.process_time() - start

    seconds(few)
    assert any(seconds(many) <= MOST * seconds(few) for _ in range(5))  # a busy machine slows memory, never all of five


def test_a_step_takes_as_much_time_in_a_longer_graph() -> None:
    """What calls do not show, such as a search through a list; a graph's length would be a factor of 16."""

    def seconds(length: int) -> float:
        found = []
        for _ in range(2):
            graph = chain(length)
            gc.collect()
            start = time.process_time()
            rewrite(graph)
            found.append(time.process_time() - start)
        return min(found)

    # a busy machine may lengthen one side, never all of five
    assert any(seconds(1600) < 2 * 16 * seconds(100) for _ in range(5))
