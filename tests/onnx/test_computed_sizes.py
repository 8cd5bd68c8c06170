"""Sizes that follow from computed values: the device counts, and the host reads the count; against numpy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk
from dmlvk.onnx import SessionOptions
from dmlvk.onnx.network import READ_BACK, Network

f16, f32, i32, i64 = np.float16, np.float32, np.int32, np.int64
NODE = helper.make_node


def _sparse(dtype: Any, *sizes: int) -> np.ndarray:
    """Numbers from -2 to 2."""
    numbers = np.random.default_rng(sum(sizes)).integers(-2, 3, sizes)
    return np.abs(numbers).astype(dtype) if np.dtype(dtype).kind in "ub" else numbers.astype(dtype)


# -- NonZero and Compress


@pytest.mark.parametrize("dtype", [f32, f16, np.float64, i64, i32, np.uint8, np.bool_])
@pytest.mark.parametrize("sizes", [(), (7,), (3, 5), (2, 1, 3, 4), (0, 3)], ids=str)
def test_nonzero(dtype: Any, sizes: tuple[int, ...], make_model: Any, make_session: Any) -> None:
    x = _sparse(dtype, *sizes)
    model = make_model(NODE("NonZero", ["x"], ["y"]), {"x": (dtype, [None] * len(sizes))}, output_types={"y": i64})
    session = make_session(model)
    for given in (x, np.zeros_like(x), np.ones_like(x)):
        (y,) = session.run(None, {"x": given})
        assert y.dtype == i64
        np.testing.assert_array_equal(y, np.nonzero(np.atleast_1d(given)))


def test_what_follows_a_count(make_model: Any, make_session: Any, reference: Any) -> None:
    """What is found is gathered; the report says what the host read, and a plan serves each count."""
    nodes = [
        NODE("Relu", ["x"], ["p"]),
        NODE("NonZero", ["p"], ["places"]),
        NODE("Transpose", ["places"], ["rows"], perm=[1, 0]),
        NODE("GatherND", ["x", "rows"], ["found"]),
        NODE("ReduceSum", ["found"], ["y"], keepdims=0),
        NODE("Shape", ["found"], ["count"]),
    ]
    model = make_model(nodes, {"x": (f32, ("N", 6))}, ["y", "count"], output_types={"count": i64})
    session = make_session(model)
    for rows in (4, 9, 4):
        x = _sparse(f32, rows, 6)
        for mine, theirs in zip(session.run(None, {"x": x}), reference(model, {"x": x}, "onnxruntime"), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    report = session.report()
    assert [(node.op_type, node.reason) for node in report.gpu_nodes if node.reason] == [("NonZero", READ_BACK)]
    assert [node.op_type for node in report.host_nodes] == ["Shape"]
    assert report.plans == 4
    assert report.dispatches == sum(len(step.kernels) for step in report.steps)
    profile = session.profile({"x": _sparse(f32, 4, 6)})
    assert (profile.dispatches, len(profile.steps)) == (report.dispatches, len(report.steps))


@pytest.mark.parametrize("dtype", [f32, i64, np.uint8])
@pytest.mark.parametrize(("axis", "length"), [(None, 24), (None, 9), (0, 2), (1, 3), (-1, 4), (1, 2)], ids=str)
@pytest.mark.parametrize("known", [False, True], ids=["computed", "constant"])
def test_compress(dtype: Any, axis: int | None, length: int, known: bool, make_model: Any, make_session: Any) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    chosen = np.arange(length) % 3 != 1
    nodes = [NODE("Not", ["c"], ["n"]), NODE("Compress", ["x", "n"], ["y"], **({} if axis is None else {"axis": axis}))]
    inputs = {"x": (dtype, (2, 3, 4))} if known else {"x": (dtype, (2, 3, 4)), "c": (np.bool_, (length,))}
    model = make_model(nodes, inputs, constants={"c": ~chosen} if known else {}, output_types={"y": dtype})
    session = make_session(model)
    for condition in (chosen,) if known else (chosen, np.zeros_like(chosen), np.ones_like(chosen)):
        (y,) = session.run(None, {"x": x} if known else {"x": x, "c": ~condition})
        np.testing.assert_array_equal(y, np.compress(condition, x, axis))


def test_compress_refuses(make_model: Any, make_session: Any) -> None:
    """More than there is."""
    node = NODE("Compress", ["x", "c"], ["y"], "n", axis=0)
    session = make_session(make_model(node, {"x": (f32, (2, 3)), "c": (np.bool_, (None,))}))
    with pytest.raises(dmlvk.ModelError, match=r"'n'.*at most the 2 elements there are; got 4"):
        session.run(None, {"x": np.ones((2, 3), f32), "c": np.ones(4, bool)})
    assert session.run(None, {"x": np.ones((2, 3), f32), "c": np.ones(1, bool)})[0].shape == (1, 3)


# -- Unique


def _unique(x: np.ndarray, axis: int | None, is_sorted: bool) -> list[np.ndarray]:
    """The outputs of Unique by numpy, whose order is the sorted one."""
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        values = np.take(values, order, axis or 0)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return [values, first, inverse.reshape(-1), counts]


@pytest.mark.parametrize("dtype", [f32, f16, i32, i64, np.uint8])
@pytest.mark.parametrize(
    ("sizes", "axis"),
    [((1,), None), ((40,), None), ((3, 5), None), ((9, 2), 0), ((2, 9), -1), ((2, 8, 2), 1), ((0,), None)],
    ids=str,
)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique(
    dtype: Any, sizes: tuple[int, ...], axis: int | None, is_sorted: bool, make_model: Any, make_session: Any
) -> None:
    x = _sparse(dtype, *sizes)
    fields = {"sorted": int(is_sorted), **({} if axis is None else {"axis": axis})}
    names = ["y", "first", "inverse", "counts"]
    types = {"y": dtype, **dict.fromkeys(names[1:], i64)}
    model = make_model(NODE("Unique", ["x"], names, **fields), {"x": (dtype, sizes)}, names, output_types=types)
    for mine, theirs in zip(make_session(model).run(None, {"x": x}), _unique(x, axis, is_sorted), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_unique_of_special_numbers(make_model: Any, make_session: Any) -> None:
    """NaN is one number, and -0 is 0: the first of each is taken."""
    x = np.array([np.nan, 0.0, -0.0, np.inf, np.nan, -np.inf, 0.0], f32)
    model = make_model(NODE("Unique", ["x"], ["y", "", "", "n"]), {"x": (f32, (7,))}, ["y", "n"], output_types={"n": i64})
    y, n = make_session(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.array([-np.inf, 0, np.inf, np.nan], f32))
    assert n.tolist() == [1, 3, 1, 2]


def test_unique_refuses(make_model: Any, make_session: Any) -> None:
    model = make_model(NODE("Unique", ["x"], ["y"], axis=0), {"x": (f32, (2, 257))})
    with pytest.raises(dmlvk.UnsupportedNodeError, match="subtensors of 257 elements"):
        make_session(model)


# -- NonMaxSuppression


@pytest.mark.parametrize(("opset", "center"), [(10, 0), (11, 1), (17, 0)])
@pytest.mark.parametrize("given", [3, 4, 5])
def test_suppression(opset: int, center: int, given: int, make_model: Any, make_session: Any, reference: Any) -> None:
    """Boxes of two batches and three classes, many of which overlap, and some of which have no area."""
    rng = np.random.default_rng(opset + given)
    corners = rng.integers(0, 12, (2, 40, 4)).astype(f32)
    feeds = {"boxes": np.abs(corners) if center else corners, "scores": rng.standard_normal((2, 3, 40)).astype(f32)}
    feeds |= {"most": np.array([7]), "overlap": np.array([0.3], f32), "score": np.array([0.2], f32)}
    names = ["boxes", "scores", "most", "overlap", "score"][:given]
    inputs = {name: (feeds[name].dtype, feeds[name].shape) for name in names}
    node = NODE("NonMaxSuppression", names, ["y"], "chooser", center_point_box=center)
    model = make_model(node, inputs, opset=opset, output_types={"y": i64})
    session = make_session(model)
    for most in (7, 0, 1, 1000):
        fed = {**{name: feeds[name] for name in names}, "most": np.array([most])}
        np.testing.assert_array_equal(session.run(None, fed)[0], reference(model, fed, "onnxruntime")[0])
    report = session.report()
    assert [(node.name, node.op_type) for node in report.gpu_nodes] == [("chooser", "NonMaxSuppression")]
    assert not report.host_nodes and report.dispatches == 4, "one sorts, one compares, one chooses, one writes rows"


@pytest.mark.parametrize(("batch", "classes", "boxes", "launches"), [(1, 1, 4500, 27), (2, 40, 700, 4)], ids=str)
@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_suppression_takes_a_few_launches(
    batch: int, classes: int, boxes: int, launches: int, overlap: float, make_model: Any, make_session: Any, reference: Any
) -> None:
    """More boxes than a chunk has, many with equal scores, and many classes."""
    rng = np.random.default_rng(boxes)
    corners = rng.integers(0, 400, (batch, boxes, 2))
    feeds = {
        "boxes": np.concatenate([corners, corners + rng.integers(0, 40, corners.shape)], -1).astype(f32),
        "scores": (rng.integers(0, 500, (batch, classes, boxes)) / 500).astype(f32),
    }
    node = NODE("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["y"])
    constants = {"most": np.array([2**63 - 1]), "overlap": np.array([overlap], f32), "least": np.array([0.1], f32)}
    inputs = {name: (f32, array.shape) for name, array in feeds.items()}
    model = make_model(node, inputs, constants=constants, output_types={"y": i64})
    session = make_session(model)
    np.testing.assert_array_equal(session.run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0])
    assert session.report().dispatches == launches


def test_suppression_of_all_and_of_nothing(make_model: Any, make_session: Any) -> None:
    """Without a number there are none; without boxes, or with scores too low, neither."""
    inputs = {"boxes": (f32, (1, None, 4)), "scores": (f32, (1, 1, None))}
    node = NODE("NonMaxSuppression", ["boxes", "scores"], ["y"])
    feeds = {"boxes": np.ones((1, 3, 4), f32), "scores": np.ones((1, 1, 3), f32)}
    (y,) = make_session(make_model(node, inputs, output_types={"y": i64})).run(None, feeds)
    assert y.shape == (0, 3)
    node = NODE("NonMaxSuppression", ["boxes", "scores", "most", "", "least"], ["y"])
    model = make_model(node, inputs, constants={"most": np.array(5), "least": np.array(1, f32)}, output_types={"y": i64})
    session = make_session(model)
    for fed in (feeds, {"boxes": np.ones((1, 0, 4), f32), "scores": np.ones((1, 1, 0), f32)}):
        assert session.run(None, fed)[0].shape == (0, 3)
    assert session.run(None, {**feeds, "scores": np.array([[[1, 3, 2]]], f32)})[0].tolist() == [[0, 0, 1], [0, 0, 2]]


def test_suppression_has_boxes_for_each_batch(make_model: Any, make_session: Any) -> None:
    inputs = {"boxes": (f32, (None, 3, 4)), "scores": (f32, (None, 1, 3))}
    session = make_session(
        make_model(NODE("NonMaxSuppression", ["boxes", "scores"], ["y"]), inputs, output_types={"y": i64})
    )
    for boxes, scores in ((1, 2), (2, 1)):
        with pytest.raises(dmlvk.ModelError, match=r"boxes must have the sizes \{batch, boxes, 4\}"):
            session.run(None, {"boxes": np.ones((boxes, 3, 4), f32), "scores": np.ones((scores, 1, 3), f32)})


# -- detection, as exporters write it


def test_classes_are_counted_together(make_model: Any, make_session: Any, reference: Any) -> None:
    """Of each class the best of those boxes whose score is high enough, then all through NonMaxSuppression: the host reads
    twice, however many classes there are."""
    nodes, classes = [], 12
    for c in range(classes):
        nodes += [
            NODE("Gather", ["scores", f"class{c}"], [f"own{c}"], axis=1),
            NODE("Greater", [f"own{c}", "least"], [f"good{c}"]),
            NODE("NonZero", [f"good{c}"], [f"at{c}"]),
            NODE("Squeeze", [f"at{c}", "zero"], [f"places{c}"]),
            NODE("Gather", [f"own{c}", f"places{c}"], [f"found{c}"]),
            NODE("Shape", [f"found{c}"], [f"count{c}"]),
            NODE("Concat", [f"count{c}", "five"], [f"both{c}"], axis=0),
            NODE("ReduceMin", [f"both{c}"], [f"least{c}"], keepdims=0),
            NODE("Reshape", [f"least{c}", "one"], [f"k{c}"]),
            NODE("TopK", [f"found{c}", f"k{c}"], [f"best{c}", f"of{c}"]),
            NODE("Gather", [f"places{c}", f"of{c}"], [f"chosen{c}"]),
        ]
    nodes += [
        NODE("Concat", [f"best{c}" for c in range(classes)], ["kept_scores"], axis=0),
        NODE("Concat", [f"chosen{c}" for c in range(classes)], ["kept"], axis=0),
        NODE("Gather", ["boxes", "kept"], ["kept_boxes"]),
        NODE("Unsqueeze", ["kept_boxes", "zero"], ["one_batch"]),
        NODE("Unsqueeze", ["kept_scores", "two"], ["one_class"]),
        NODE("NonMaxSuppression", ["one_batch", "one_class", "all", "overlap"], ["rows"]),
        NODE("Gather", ["rows", "last"], ["y"], axis=1),
    ]
    constants = {f"class{c}": np.array(c) for c in range(classes)}
    constants |= {"least": np.array(0.6, f32), "overlap": np.array([0.4], f32), "all": np.array([2**63 - 1])}
    constants |= {name: np.array(value) for name, value in (("zero", [0]), ("one", [1]), ("two", [0, 1]), ("five", [5]))}
    constants["last"] = np.array(2)
    inputs = {"boxes": (f32, (40, 4)), "scores": (f32, (40, classes))}
    model = make_model(nodes, inputs, ["kept_boxes", "y"], constants, output_types={"y": i64})
    session = make_session(model)
    rng = np.random.default_rng(12)
    for _ in range(2):
        corners = rng.random((40, 2)) * 20
        boxes = np.concatenate([corners, corners + 5], 1).astype(f32)
        feeds = {"boxes": boxes, "scores": rng.random((40, classes)).astype(f32)}
        for mine, theirs in zip(session.run(None, feeds), reference(model, feeds, "onnxruntime"), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert session.report().host_reads == 2, "the counts of all classes, and that of the boxes that are left"


def test_further_counts_need_no_trace(
    make_model: Any, make_session: Any, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count is a size, and from the third on a symbol: of images with other numbers of boxes nothing is traced."""
    nodes = [
        NODE("Greater", ["scores", "least"], ["good"]),
        NODE("NonZero", ["good"], ["at"]),
        NODE("Squeeze", ["at", "zero"], ["places"]),
        NODE("Gather", ["scores", "places"], ["found"]),
        NODE("Shape", ["found"], ["count"]),
        NODE("Concat", ["count", "hundred"], ["both"], axis=0),
        NODE("ReduceMin", ["both"], ["k"]),
        NODE("TopK", ["found", "k"], ["best", "of"]),
        NODE("Gather", ["places", "of"], ["chosen"]),
        NODE("Gather", ["boxes", "chosen"], ["rows"]),
        NODE("Unsqueeze", ["rows", "zero"], ["one_batch"]),
        NODE("Unsqueeze", ["best", "two"], ["one_class"]),
        NODE("NonMaxSuppression", ["one_batch", "one_class", "hundred", "overlap"], ["kept"]),
        NODE("Gather", ["kept", "last"], ["y"], axis=1),
    ]
    constants = {name: np.array(value) for name, value in (("zero", [0]), ("two", [0, 1]), ("hundred", [100]), ("last", 2))}
    constants |= {"least": np.array(0.5, f32), "overlap": np.array([0.4], f32)}
    inputs = {"boxes": (f32, (64, 4)), "scores": (f32, (64,))}
    model = make_model(nodes, inputs, ["rows", "y"], constants, output_types={"y": i64})
    session = make_session(model)
    traced = []
    trace = Network.trace
    monkeypatch.setattr(Network, "trace", lambda *given, **more: traced.append(1) or trace(*given, **more))
    rng = np.random.default_rng(64)
    corners = rng.random((64, 2)) * 20
    boxes = np.concatenate([corners, corners + 5], 1).astype(f32)
    for good in (21, 30, 9, 40, 12, 33, 11):
        scores = np.where(np.arange(64) < good, 0.5, 0) + rng.random(64) * 0.5
        feeds = {"boxes": boxes, "scores": rng.permutation(scores).astype(f32)}
        for mine, theirs in zip(session.run(None, feeds), reference(model, feeds, "onnxruntime"), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert len(traced) <= 3 * 2, "three of each region that has a count"


# -- inputs that a converter must know


def test_computed_shapes(make_model: Any, make_session: Any, reference: Any) -> None:
    """Shapes of Reshape, Expand, Range, Slice, Tile and TopK are computed: each is read back, and plans are kept by its
    value."""
    nodes = [
        NODE("ReduceMax", ["x"], ["most"], keepdims=0),
        NODE("Cast", ["most"], ["n"], to=7),
        NODE("Unsqueeze", ["n", "first"], ["sizes"]),
        NODE("Concat", ["sizes", "two"], ["shape"], axis=0),
        NODE("Expand", ["one", "shape"], ["e"]),
        NODE("Range", ["zero", "n", "step"], ["r"]),
        NODE("Cast", ["r"], ["rf"], to=1),
        NODE("Unsqueeze", ["rf", "last"], ["column"]),
        NODE("Mul", ["e", "column"], ["m"]),
        NODE("Slice", ["x", "zeros", "sizes"], ["head"]),
        NODE("TopK", ["head", "sizes"], ["top", "at"]),
        NODE("Concat", ["two", "sizes"], ["back"], axis=0),
        NODE("Reshape", ["m", "back"], ["y"]),
        NODE("Tile", ["top", "sizes"], ["t"]),
    ]
    constants = {name: np.array(value) for name, value in (("first", [0]), ("last", [1]), ("two", [2]), ("zeros", [0]))}
    constants |= {"one": np.ones((1, 1), f32), "zero": np.array(0), "step": np.array(1)}
    model = make_model(nodes, {"x": (f32, (8,))}, ["y", "t"], constants)
    session = make_session(model)
    raw = make_session(model, options=SessionOptions(without_passes=("all",)))
    for most in (3, 5, 3):
        feeds = {"x": np.linspace(0, most, 8, dtype=f32)}
        wanted = reference(model, feeds, "onnxruntime")
        for made in (session.run(None, feeds), raw.run(None, feeds)):
            for mine, theirs in zip(made, wanted, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    report = session.report()
    assert {"Expand", "Slice", "TopK", "Reshape", "Tile", "Range"} >= {
        node.op_type for node in report.gpu_nodes if node.reason == READ_BACK
    }
    plans = report.plans
    session.run(None, {"x": np.linspace(0, 5, 8, dtype=f32)})
    assert session.report().plans == plans


def test_a_shape_that_something_else_reads(make_model: Any, make_session: Any) -> None:
    """An input that says a shape and is computed with: the host has it, one plan a value."""
    nodes = [NODE("Reshape", ["x", "s"], ["y"]), NODE("Add", ["s", "s"], ["t"])]
    session = make_session(make_model(nodes, {"x": (f32, ("N",)), "s": (i64, (2,))}, ["y", "t"], output_types={"t": i64}))
    y, t = session.run(None, {"x": np.arange(6, dtype=f32), "s": np.array([3, 2])})
    assert (y.shape, t.tolist()) == ((3, 2), [6, 4])


def test_weights_are_uploaded_once(make_model: Any, make_session: Any) -> None:
    """A weight is uploaded once for all regions that read it."""
    nodes = [NODE("MatMul", ["x", "w"], ["a"]), NODE("NonZero", ["a"], ["p"]), NODE("Add", ["a", "w"], ["b"])]
    nodes += [NODE("Gather", ["b", "p"], ["y"])]
    w = np.eye(64, dtype=f32)
    session = make_session(make_model(nodes, {"x": (f32, (64, 64))}, constants={"w": w}))
    x = np.zeros((64, 64), f32)
    x[3, 4] = 1
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, (x + w)[np.stack(np.nonzero(x))])
    assert session.report().weights_bytes <= 2 * w.nbytes, "as it is, and as the product's kernel wants it"


def test_errors_leave_the_session_usable(make_model: Callable[..., Any], make_session: Callable[..., Any]) -> None:
    nodes = [NODE("Abs", ["x"], ["a"]), NODE("Cast", ["a"], ["to"], to=7), NODE("Reshape", ["x", "to"], ["y"], "fold")]
    session = make_session(make_model(nodes, {"x": (f32, (2,))}))
    with pytest.raises(dmlvk.ModelError, match="'fold'"):
        session.run(None, {"x": np.array([3, 4], f32)})
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 2], f32)})[0], np.array([[-1, 2]], f32))
