"""A trace with sizes that record is, for every sizes that its guards let through, the trace of those sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.engine.trace import Trace
from dmlvk.graph.step import Storage
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.values import Sizes, Value
from dmlvk.spec.errors import ModelError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import Size, SizeTrace, value_of
from dmlvk.spec.size_function import function_of, guards_of
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.oracle import oracle
from dmlvk_bench.models.decoder import BLOCKS, HEADS, WIDTH, decoder

f32 = np.dtype(np.float32)
rng = np.random.default_rng(0)
Nodes = list[tuple[Any, ...]]


def described(trace: Trace) -> tuple[Any, ...]:
    """All that a trace says, as tuples, with a number for each storage."""
    numbers: dict[Storage, int] = {}

    def storage(item: Storage | None) -> Any:
        if item is None:
            return None
        number = numbers.setdefault(item, len(numbers))
        place = None if item.part_of is None else (storage(item.part_of.storage), item.part_of.offset)
        return number, item.nbytes, place, None if item.constant is None else item.constant.tobytes()

    def field(value: Any) -> Any:
        if isinstance(value, TensorDesc):
            return value.data_type.name, value.sizes, value.strides, value.total_tensor_size_in_bytes
        if isinstance(value, OperatorDesc):
            return type(value).__name__, *((spec.name, field(getattr(value, spec.name))) for spec in value.fields)
        return tuple(map(field, value)) if isinstance(value, tuple) else value

    steps = tuple(
        (field(step.desc), tuple(map(storage, step.inputs)), tuple(map(storage, step.outputs)), step.runs_once)
        for step in trace.steps
    )
    outputs = tuple(
        (name, value.sizes, value.strides, storage(value.storage)) if isinstance(value, Value) else (name, value.tobytes())
        for name, value in trace.outputs.items()
    )
    return steps, outputs


def network(nodes: Nodes, constants: dict[str, Any], *sizes: int | str) -> Network:
    protos = [
        helper.make_node(op_type, inputs.split(), outputs.split(), name=outputs, **(rest[0] if rest else {}))
        for op_type, inputs, outputs, *rest in nodes
    ]
    graph = helper.make_graph(
        protos,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return Network(load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)))


def normal(*sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes).astype(np.float32)


def images() -> tuple[Network, Callable[[Any], Sizes]]:
    """Convolutions, a residual, pooling, and the sizes of the image computed as exporters do."""
    nodes: Nodes = [
        ("Conv", "x w b", "c", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("BatchNormalization", "c scale shift mean variance", "n"),
        ("Sigmoid", "n", "s"),
        ("Mul", "n s", "h"),
        ("Conv", "h v", "r", {"pads": [1, 1, 1, 1]}),
        ("Add", "r h", "a"),
        ("MaxPool", "a", "p", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("Shape", "p", "sizes"),
        ("Cast", "sizes", "narrow", {"to": onnx.TensorProto.INT32}),
        ("Slice", "narrow third fourth", "tail"),
        ("Concat", "first tail", "joined", {"axis": 0}),
        ("Cast", "joined", "wanted", {"to": onnx.TensorProto.INT64}),
        ("Reshape", "p wanted", "flat"),
        ("Transpose", "flat", "rows", {"perm": [1, 0]}),
        ("MatMul", "rows m", "y"),
    ]
    constants = {
        "w": normal(8, 3, 3, 3),
        "b": normal(8),
        "v": normal(8, 8, 3, 3),
        **{name: np.abs(normal(8)) for name in ("scale", "shift", "mean", "variance")},
        "third": np.array([3], np.int64),
        "fourth": np.array([4], np.int64),
        "first": np.array([64], np.int32),
        "m": normal(64, 5),
    }
    return network(nodes, constants, 1, 3, 32, "width"), lambda width: (1, 3, 32, width)


def words() -> tuple[Network, Callable[[Any], Sizes]]:
    """Attention over so many rows, with a layer norm, heads by Reshape of computed sizes, and a GELU."""
    nodes: Nodes = [
        ("ReduceMean", "x last", "mean"),
        ("Sub", "x mean", "centred"),
        ("Pow", "centred two", "squares"),
        ("ReduceMean", "squares last", "variance"),
        ("Add", "variance epsilon", "raised"),
        ("Sqrt", "raised", "root"),
        ("Div", "centred root", "normalized"),
        ("Mul", "normalized gamma", "scaled"),
        ("MatMul", "scaled w", "all"),
        ("Split", "all parts", "q k v", {"axis": 2}),
        ("Shape", "x", "sizes"),
        ("Split", "sizes ones", "first listed third", {"axis": 0}),
        ("Concat", "batch listed rest", "heads", {"axis": 0}),
        *((("Reshape", f"{name} heads", f"{name}h")) for name in "qkv"),
        ("Transpose", "qh", "qt", {"perm": [0, 2, 1, 3]}),
        ("Transpose", "kh", "kt", {"perm": [0, 2, 3, 1]}),
        ("Transpose", "vh", "vt", {"perm": [0, 2, 1, 3]}),
        ("MatMul", "qt kt", "scores"),
        ("Div", "scores two", "smaller"),
        ("Softmax", "smaller", "shares", {"axis": -1}),
        ("MatMul", "shares vt", "mixed"),
        ("Transpose", "mixed", "turned", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "turned rows", "side"),
        ("Add", "side x", "y"),
    ]
    constants = {
        "last": np.array([-1], np.int64),
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "gamma": normal(16),
        "w": normal(16, 48),
        "parts": np.array([16, 16, 16], np.int64),
        "ones": np.array([1, 1, 1], np.int64),
        "batch": np.array([1], np.int64),
        "rest": np.array([4, 4], np.int64),
        "rows": np.array([1, -1, 16], np.int64),
    }
    return network(nodes, constants, 1, "rows", 16), lambda count: (1, count, 16)


def pyramid() -> tuple[Network, Callable[[Any], Sizes]]:
    """Images of any sizes, as many as one likes, pooled with rests, split, and resized by scales and to sizes."""
    nodes: Nodes = [
        ("AveragePool", "x", "p", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("Split", "p", "a b", {"axis": 1, "num_outputs": 2}),
        ("Mul", "a b", "ab"),
        ("Resize", "ab none doubled", "up", {"mode": "linear"}),
        ("Conv", "up w", "c", {"pads": [1, 1, 1, 1]}),
        ("Shape", "c", "sizes"),
        ("Slice", "sizes zero two", "front"),
        ("Slice", "sizes two four", "back"),
        ("Mul", "back factors", "raised"),
        ("Concat", "front raised", "wanted", {"axis": 0}),
        ("Resize", "c none nothing wanted", "y", {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}),
    ]
    constants = {
        "w": normal(2, 2, 3, 3),
        "none": np.zeros(0, np.float32),
        "nothing": np.zeros(0, np.float32),
        "doubled": np.array([1, 1, 2, 2], np.float32),
        **{name: np.array([value], np.int64) for name, value in (("zero", 0), ("two", 2), ("four", 4))},
        "factors": np.array([3, 1], np.int64),
    }
    return network(nodes, constants, "count", 4, "height", "width"), lambda size: (size, 4, size, 3 * size)


def growing() -> tuple[Network, Callable[[Any], Sizes]]:
    """A cache that one more row is put behind."""
    nodes: Nodes = [("Concat", "x row", "all", {"axis": 1}), ("Relu", "all", "y")]
    return network(nodes, {"row": normal(2, 1, 8)}, 2, "past", 8), lambda past: (2, past, 8)


@pytest.mark.parametrize(("make", "first"), [(images, 160), (words, 24), (growing, 9), (pyramid, 33)])
def test_a_filled_trace_is_the_trace_of_those_sizes(
    make: Callable[[], tuple[Network, Callable[[Any], Sizes]]], first: int
) -> None:
    network, sizes_of = make()
    recorder = SizeTrace()
    symbolic = network.trace_whole({"x": sizes_of(recorder.symbol("size", first))}, {})
    filled = function_of(recorder, described(symbolic))
    assert filled(first) is not None
    fits = 0
    for number in sorted(
        {*(first + step for step in (1, 2, 4, 8, 16, 32)), *random.Random(0).sample(range(first, 4 * first), 12)}
    ):
        found = filled(number)
        if found is not None:
            fits += 1
            assert found == described(network.trace_whole({"x": sizes_of(number)}, {})), number
    assert fits >= 3, guards_of(recorder)


def cached_words() -> Network:
    """Three words behind a cache of keys ``x``: embeddings and rotations of their positions, masks by Trilu and by Where."""
    nodes: Nodes = [
        ("Shape", "x", "sizes"),
        ("Gather", "sizes one", "before", {"axis": 0}),
        ("Add", "before three", "total"),
        ("Range", "before total step", "places"),
        ("Gather", "table places", "embedded", {"axis": 0}),
        ("Unsqueeze", "before zero", "from"),
        ("Unsqueeze", "total zero", "to"),
        ("Slice", "cosines from to zero", "turned"),
        ("Mul", "embedded turned", "rotated"),
        ("Sub", "total step", "last"),
        ("Sub", "before hundred", "negative"),
        ("Gather", "table last", "newest", {"axis": 0}),
        ("Gather", "table negative", "oldest", {"axis": 0}),
        ("Add", "newest oldest", "both"),
        ("Add", "rotated both", "words"),
        ("Unsqueeze", "words zero", "rows"),
        ("Concat", "x rows", "keys", {"axis": 1}),
        ("Concat", "to to", "square", {"axis": 0}),
        ("ConstantOfShape", "square", "ones", {"value": numpy_helper.from_array(np.ones(1, np.float32))}),
        ("Trilu", "ones", "lower", {"upper": 0}),
        ("Slice", "lower from to zero", "mask"),
        ("Range", "none total step", "seen"),
        ("Unsqueeze", "places one_", "column"),
        ("Equal", "seen column", "same"),
        ("Where", "same high low", "bonus"),
        ("Concat", "from to step_", "listed", {"axis": 0}),
        ("ReduceSum", "listed", "sum"),
        ("Cast", "sum", "all", {"to": onnx.TensorProto.FLOAT}),
        ("Transpose", "keys", "columns", {"perm": [0, 2, 1]}),
        ("MatMul", "rows columns", "scores"),
        ("Mul", "scores mask", "masked"),
        ("Add", "masked bonus", "raised"),
        ("Div", "raised all", "smaller"),
        ("Softmax", "smaller", "shares", {"axis": -1}),
        ("MatMul", "shares keys", "y"),
    ]
    constants = {
        **{name: np.array(value, np.int64) for name, value in (("one", 1), ("three", 3), ("step", 1), ("none", 0))},
        **{name: np.array([value], np.int64) for name, value in (("zero", 0), ("one_", 1), ("step_", 1))},
        "hundred": np.array(100, np.int64),
        "table": normal(200, 8),
        "cosines": normal(200, 8),
        "high": np.array(2, np.float32),
        "low": np.array(0, np.float32),
    }
    return network(nodes, constants, 1, "past", 8)


def plain(value: Any) -> Any:
    """A field's value with plain numbers."""
    if isinstance(value, OperatorDesc):
        return value.replace(**{spec.name: plain(getattr(value, spec.name)) for spec in value.fields})
    if isinstance(value, TensorDesc):
        return TensorDesc(value.data_type, plain(value.sizes), plain(value.strides))
    if type(value) is tuple:
        return tuple(map(plain, value))
    return value_of(value) if isinstance(value, Size) else value


def computed(trace: Trace, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a trace by the oracles of its operators."""
    memory: dict[Storage, np.ndarray] = {}

    def view(storage: Storage, desc: TensorDesc) -> np.ndarray:
        tensor = plain(desc)
        place, dtype = storage.place, dtype_of(tensor.data_type)
        if place.storage not in memory:
            buffer = memory[place.storage] = np.zeros(value_of(place.storage.nbytes), np.uint8)
            if place.storage.constant is not None:
                data = np.ascontiguousarray(place.storage.constant).reshape(-1).view(np.uint8)
                buffer[: data.size] = data
        strides = [stride * dtype.itemsize for stride in tensor.effective_strides]
        return np.ndarray(tensor.sizes, dtype, memory[place.storage].data, value_of(place.offset), strides)

    for name, value in trace.inputs.items():
        assert isinstance(value, Value)
        view(value.storage, value.desc())[...] = feeds[name]
    for step in trace.steps:
        slots = zip(step.desc.input_slots(), step.inputs, strict=True)
        arrays = [None if slot.tensor is None else view(storage, slot.tensor).copy() for slot, storage in slots]
        function = oracle(type(step.desc))
        assert function is not None
        results = function(plain(step.desc), *arrays)
        results = [getattr(result, "value", result) for result in (results if type(results) is tuple else (results,))]
        for slot, storage, result in zip(step.desc.output_slots(), step.outputs, results, strict=False):
            if slot.tensor is not None:
                view(storage, slot.tensor)[...] = result
    return {name: view(value.storage, value.desc()).copy() for name, value in trace.outputs.items()}


def decoders() -> dict[str, tuple[Network, Callable[[Any], dict[str, Sizes]]]]:
    """Networks with caches, and their inputs' sizes by the cache's length."""
    past = [f"past_{kind}_{block}" for block in range(BLOCKS) for kind in ("key", "value")]
    benchmark = Network(load_model(decoder()))

    def sizes(words: int) -> Callable[[Any], dict[str, Sizes]]:
        return lambda length: {"ids": (1, words), **dict.fromkeys(past, (1, HEADS, length, WIDTH // HEADS))}

    return {
        "one word": (benchmark, sizes(1)),
        "four words": (benchmark, sizes(4)),
        "many masks": (cached_words(), lambda length: {"x": (1, length, 8)}),
    }


@pytest.mark.parametrize("name", ["one word", "four words", "many masks"])
def test_a_trace_of_a_cache_is_that_of_any_length(name: str) -> None:
    network, sizes_of = decoders()[name]

    def traced(length: int) -> tuple[SizeTrace, Trace]:
        recorder = SizeTrace()
        return recorder, network.trace_whole(sizes_of(recorder.symbol("past", length)), {})

    recorder, trace = traced(7)
    assert len(guards_of(recorder)) <= 2, guards_of(recorder)
    filled = function_of(recorder, described(trace))
    fits = [length for length in range(5, 190) if filled(length) is not None]
    assert len(fits) > 90, guards_of(recorder)
    for length in (fits[0], *(8, 9, 57, 58), fits[-1]):
        fresh_recorder, fresh = traced(length)
        if filled(length) is not None:
            assert filled(length) == function_of(fresh_recorder, described(fresh))(length), length
        if length in (8, 57):
            feeds = {
                key: rng.integers(0, 9, sizes) if key == "ids" else normal(*sizes) for key, sizes in sizes_of(length).items()
            }
            plainly = computed(network.trace_whole(sizes_of(length), {}), feeds)
            for key, found in computed(fresh, feeds).items():
                np.testing.assert_allclose(found, plainly[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("start", "is_free"), [(0.0, True), (3.0, True), (0.5, False)])
def test_floats_are_counted_at_any_length_while_they_are_whole(start: float, is_free: bool) -> None:
    """As detectors make the places of a map. Sums of others round, which the host does."""
    length = 7
    nodes: Nodes = [
        ("Shape", "x", "sizes"),
        ("Gather", "sizes one", "count"),
        ("Cast", "count", "limit", {"to": onnx.TensorProto.FLOAT}),
        ("Range", "start limit step", "places"),
        ("Reshape", "x rest", "flat"),
        ("Gather", "places zero", "first"),
        ("Add", "first flat", "y"),
    ]
    constants = {
        "one": np.array(1, np.int64),
        "start": np.float32(start),
        "step": np.float32(1),
        "rest": np.array([-1], np.int64),
        "zero": np.array([2], np.int64),
    }
    small = network(nodes, constants, 1, "past")
    recorder = SizeTrace()
    trace = small.trace_whole({"x": (1, recorder.symbol("past", length))}, {})
    fits = function_of(recorder, ())
    assert fits(length) is not None
    assert (fits(2**24) is not None) == is_free, guards_of(recorder)
    assert fits(2**24 + 1) is None, "which no float32 is"
    feeds = {"x": normal(1, length)}
    (found,), (plainly,) = (computed(own, feeds).values() for own in (trace, small.trace_whole({"x": (1, length)}, {})))
    assert found.tobytes() == plainly.tobytes()


def test_an_index_beyond_a_table_is_refused_at_every_length() -> None:
    nodes: Nodes = [
        ("Shape", "x", "sizes"),
        ("Gather", "sizes one", "place"),
        ("Gather", "table place", "row"),
        ("Mul", "x row", "y"),
    ]
    small = network(nodes, {"one": np.array(1, np.int64), "table": normal(9, 1)}, 1, "past")
    recorder = SizeTrace()
    small.trace_whole({"x": (1, recorder.symbol("past", 8))}, {})
    fits = function_of(recorder, ())
    assert fits(5) is not None and fits(9) is None
    for length in (9, SizeTrace().symbol("past", 9)):
        with pytest.raises(ModelError):
            small.trace_whole({"x": (1, length)}, {})
