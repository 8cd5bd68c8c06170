"""Sizes that a session has not met: from the third on they are filled into a recipe, with the bits of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.engine.recipe import Recipes
from dmlvk.onnx.network import Network

rng = np.random.default_rng(0)
Model = Any


def normal(*sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes).astype(np.float32)


def model(nodes: list[tuple[Any, ...]], constants: dict[str, Any], *sizes: int | str) -> Model:
    made = [
        helper.make_node(op_type, inputs.split(), outputs.split(), name=outputs, **(rest[0] if rest else {}))
        for op_type, inputs, outputs, *rest in nodes
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(made, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


CACHE = model(
    [
        ("Concat", "x row", "all", {"axis": 1}),
        ("Shape", "all", "sizes"),
        ("Gather", "sizes one", "count", {"axis": 0}),
        ("Unsqueeze", "count zero", "listed"),
        ("Concat", "batch listed rest", "heads", {"axis": 0}),
        ("Reshape", "all heads", "split"),
        ("Transpose", "split", "keys", {"perm": [0, 2, 3, 1]}),
        ("MatMul", "query keys", "scores"),
        ("Softmax", "scores", "y", {"axis": -1}),
    ],
    {
        "row": normal(1, 1, 16),
        "one": np.array(1),
        "zero": np.array([0]),
        "batch": np.array([1]),
        "rest": np.array([4, 4]),
        "query": normal(1, 4, 1, 4),
    },
    1,
    "past",
    16,
)
IMAGE = model(
    [
        ("Conv", "x w b", "c", {"pads": [1, 1, 1, 1]}),
        ("Relu", "c", "r"),
        ("Conv", "r v", "d", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Add", "d bias", "s"),
        ("GlobalAveragePool", "s", "y"),
    ],
    {"w": normal(8, 3, 3, 3), "b": normal(8), "v": normal(8, 8, 3, 3), "bias": normal(1, 8, 1, 1)},
    1,
    3,
    16,
    "width",
)
SEQUENCE = model(
    [
        ("LSTM", "x wl rl", "l", {"hidden_size": 8, "direction": "bidirectional"}),
        ("Transpose", "l", "turned", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "turned flat", "joined"),
        ("GRU", "joined wg rg", "g", {"hidden_size": 4}),
        ("Squeeze", "g one", "y"),
    ],
    {
        "wl": normal(2, 32, 6),
        "rl": normal(2, 32, 8),
        "flat": np.array([0, 0, 16]),
        "wg": normal(1, 12, 16),
        "rg": normal(1, 12, 4),
        "one": np.array([1]),
    },
    "steps",
    2,
    6,
)
ANCHORS = model(
    [
        ("Conv", "x w", "c", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Shape", "c", "sizes"),
        ("Gather", "sizes three", "count", {"axis": 0}),
        ("Cast", "count", "limit", {"to": TensorProto.FLOAT}),
        ("Range", "zero limit one", "places"),
        ("Add", "places half", "centres"),
        ("Mul", "centres stride", "scaled"),
        ("Unsqueeze", "limit axis", "listed"),
        ("Mul", "c listed", "product"),
        ("Sub", "product scaled", "y"),
    ],
    {
        "w": normal(4, 3, 3, 3),
        "three": np.array(3),
        "axis": np.array([0]),
        "zero": np.float32(0),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "stride": np.float32(0.3),
    },
    1,
    3,
    8,
    "width",
)
CASES = {
    "places in a map of any width": (ANCHORS, lambda size: (1, 3, 8, size), (32, 48, 64, 80, 96, 52, 128)),
    "sequences of any length": (SEQUENCE, lambda size: (size, 2, 6), (9, 10, 11, 12, 21, 16, 30)),
    "a growing cache": (CACHE, lambda size: (1, size, 16), (9, 10, 11, 12, 13, 25, 40, 41, 100)),
    "images of any width": (IMAGE, lambda size: (1, 3, 16, size), (32, 48, 64, 80, 96, 112, 128, 160, 192)),
}


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """An entry for each trace of a region."""
    made: list[None] = []
    trace = Network.trace

    def counted(self: Network, *args: Any, **named: Any) -> Any:
        made.append(None)
        return trace(self, *args, **named)

    monkeypatch.setattr(Network, "trace", counted)
    yield made


@pytest.mark.parametrize("name", CASES)
def test_new_sizes_have_the_bits_of_a_session_of_their_own(
    name: str, make_session: Callable[..., Any], traces: list[None], count_dispatches: Callable[..., Any]
) -> None:
    proto, sizes_of, sizes = CASES[name]
    session = make_session(proto)
    results, feeds, launched = [], [], []
    traces.clear()
    for size in sizes:
        feeds.append({"x": normal(*sizes_of(size))})
        with count_dispatches() as count:
            results.append(session.run(None, feeds[-1])[0])
        launched.append(count.dispatches)
    assert len(traces) == 3, "two of plain sizes and one of symbols: other kernels take no trace"
    assert launched[-1] == session.report().dispatches > 0
    for feed, result in zip(feeds, results, strict=True):
        (own,) = make_session(proto).run(None, feed)
        assert result.shape == own.shape
        assert result.tobytes() == own.tobytes()


def test_a_longer_sequence_lowers_nothing(make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with a launch a step has the same recipe for any number of steps."""
    proto, sizes_of, _ = CASES["sequences of any length"]
    session = make_session(proto)
    learned = []
    learn = Recipes._learned
    monkeypatch.setattr(Recipes, "_learned", lambda self, values: (learned.append(values), learn(self, values))[1])
    counts = []
    for size in (10, 11, 12, 13, 14, 15, 16):
        session.run(None, {"x": normal(*sizes_of(size))})
        counts.append(len(learned))
    assert counts[:2] == [0, 0] and counts[2] > 0, "the first of them with symbols is the third"
    assert counts[2:] == [counts[2]] * 5


def test_further_sizes_upload_and_repack_no_weights(make_session: Callable[..., Any]) -> None:
    proto, sizes_of, sizes = CASES["images of any width"]
    session = make_session(proto)
    kept = []
    for size in sizes:
        session.run(None, {"x": normal(*sizes_of(size))})
        kept.append(session.report().weights_bytes)
    assert len(set(kept)) == 1


def test_filled_sizes_that_grow_and_shrink_in_turn_keep_their_commands(make_session: Callable[..., Any]) -> None:
    proto, sizes_of, _ = CASES["a growing cache"]
    session = make_session(proto)
    feeds = {size: {"x": normal(*sizes_of(size))} for size in (9, 10, 11, 200, 12, 3000, 13)}
    first = {size: session.run(None, feed)[0] for size, feed in feeds.items()}
    for size in (13, 200, 9, 3000, 11):
        assert session.run(None, feeds[size])[0].tobytes() == first[size].tobytes()


def test_growing_sizes_seldom_make_the_arena_anew(make_session: Callable[..., Any]) -> None:
    """The arena has room for half as much again: seen sizes keep their commands meanwhile."""
    proto, sizes_of, _ = CASES["images of any width"]
    session = make_session(proto)
    arenas = []
    for size in range(64, 64 + 24 * 16, 16):
        session.run(None, {"x": normal(*sizes_of(size))})
        arenas.append(session.report().activation_bytes)
    assert arenas == sorted(arenas) and 3 <= len(set(arenas[2:])) <= 6, (
        "of 22 sizes, the last six times as wide as the first"
    )
    assert arenas[-1] <= 1.5 * session.report().largest_live_bytes * 1.25


def test_a_profile_and_an_explanation_of_filled_sizes_say_these_sizes(make_session: Callable[..., Any]) -> None:
    proto, sizes_of, _ = CASES["a growing cache"]
    session = make_session(proto)
    for size in (9, 10, 11, 12):
        session.run(None, {"x": normal(*sizes_of(size))})
    profiled = session.profile({"x": normal(*sizes_of(14))})
    own = make_session(proto).profile({"x": normal(*sizes_of(14))})
    assert [step.bytes for step in profiled.steps] == [step.bytes for step in own.steps]


def test_sizes_that_do_not_fit_are_named_after_others_were_filled(make_session: Callable[..., Any]) -> None:
    proto, sizes_of, _ = CASES["images of any width"]
    session = make_session(proto)
    for size in (32, 48, 64, 80):
        session.run(None, {"x": normal(*sizes_of(size))})
    with pytest.raises(dmlvk.DmlvkError):
        session.run(None, {"x": normal(1, 4, 16, 96)})
    assert session.run(None, {"x": normal(*sizes_of(96))})[0].shape == (1, 8, 1, 1)


def boxes(mode: str) -> Model:
    """A loop over boxes, as exporters write detectors: each has its map brought to its size, and what lies above it."""
    body = [
        ("Gather", "corners round", "box"),
        ("Gather", "box ends", "last"),
        ("Gather", "box starts", "first"),
        ("Sub", "last first", "sizes"),
        ("Max", "sizes least", "extent"),
        ("Gather", "maps round", "map"),
        ("Unsqueeze", "map zero", "image"),
        ("Shape", "image", "all"),
        ("Slice", "all zero two", "front"),
        ("Concat", "front extent", "wanted", {"axis": 0}),
        ("Resize", "image none none wanted", "resized", {"mode": mode}),
        ("Gather", "box row", "above"),
        ("Gather", "extent row", "width"),
        ("Concat", "front above width", "block", {"axis": 0}),
        ("ConstantOfShape", "block", "zeros"),
        ("Concat", "zeros resized", "pasted", {"axis": 2}),
        ("GlobalMaxPool", "pasted", "made"),
        ("Identity", "goes_on", "goes_on_"),
    ]
    graph = helper.make_graph(
        [
            helper.make_node(op_type, inputs.split(), outputs.split(), **(rest[0] if rest else {}))
            for op_type, inputs, outputs, *rest in body
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, ()),
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, ()),
        ],
        [
            helper.make_tensor_value_info("goes_on_", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("made", TensorProto.FLOAT, None),
        ],
    )
    return model(
        [
            ("Relu", "x", "positive"),
            ("Cast", "positive", "corners", {"to": TensorProto.INT64}),
            ("Shape", "x", "shape"),
            ("Gather", "shape nought", "count"),
            ("MatMul", "x patterns", "flat"),
            ("Reshape", "flat maps_of", "maps"),
            ("Loop", "count always", "y", {"body": graph}),
        ],
        {
            "patterns": normal(4, 3 * 8 * 9),
            "maps_of": np.array([-1, 3, 8, 9]),
            "none": np.zeros(0, np.float32),
            "always": np.array(True),
            "nought": np.array(0),
            **{name: np.array([value]) for name, value in (("zero", 0), ("two", 2), ("row", 1))},
            "ends": np.array([3, 2]),
            "starts": np.array([1, 0]),
            "least": np.array([1, 1]),
        },
        "count",
        4,
    )


@pytest.mark.parametrize(
    ("mode", "choices"), [("linear", 1), ("nearest", 1), ("cubic", 2)], ids=["linear", "nearest", "cubic: either side first"]
)
def test_a_loop_over_boxes_reads_once_and_makes_no_trace_for_another_box(
    mode: str,
    choices: int,
    make_session: Callable[..., Any],
    traces: list[None],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    proto = boxes(mode)
    session = make_session(proto)
    made_traces = 0
    drawn = np.random.default_rng(5)
    for count in (12, 11, 9, 8):
        corners = drawn.integers(2, 40, (count, 2))
        feed = {"x": np.concatenate([corners, corners + drawn.integers(10, 40, (count, 2))], 1).astype(np.float32)}
        traces.clear()
        (made,) = session.run(None, feed)
        made_traces += len(traces)
        assert session.report().host_reads == 1
        assert_close(made, *reference(proto, feed, "onnxruntime"))
    before, rounds = 3, 2 + 2 * choices
    assert made_traces == before + rounds, "two of plain sizes and one of symbols; of rounds another for other counts"
