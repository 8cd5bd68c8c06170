"""Random nodes: distributions, seeds, and what a session keeps from run to run. Their numbers are nobody else's, so that
onnxruntime and the reference have nothing to be compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.onnx.network import IN_PLACE
from dmlvk.verify.oracle.random import random_generator

f32, f16, f64, i64, i32 = np.float32, np.float16, np.float64, np.int64, np.int32
Make = Callable[..., Any]
COUNT = 20000


def words(seed: float, count: int, skipped_blocks: int = 0) -> np.ndarray:
    """What the generator makes of a seed."""
    state = np.array([skipped_blocks, 0, 0, 0, f32(seed).view(np.uint32), 0], np.uint32)
    tensor, own = (dmlvk.TensorDesc(dmlvk.TensorDataType.UINT32, (size,)) for size in (count, 6))
    return random_generator(dmlvk.RandomGenerator(input_state_tensor=own, output_tensor=tensor), state)[0]


def uniform_model(make_model: Make, **attributes: Any) -> Any:
    return make_model(helper.make_node("RandomUniform", [], ["y"], shape=[3, 5], **attributes), {})


@pytest.mark.quick
def test_uniform_numbers_are_the_generators(make_model: Make, make_session: Make) -> None:
    session = make_session(uniform_model(make_model, seed=7.5))
    for blocks in (0, 4, 8):  # 15 numbers take 4 blocks
        (y,) = session.run(None, {})
        np.testing.assert_array_equal(y.ravel(), (words(7.5, 15, blocks) >> 8) * f32(2.0**-24))


def test_each_run_gives_new_numbers_and_a_seed_the_same_ones(make_model: Make, make_session: Make) -> None:
    seeded, unseeded = uniform_model(make_model, seed=3.0), uniform_model(make_model)
    runs = {}
    for name, model in (("a", seeded), ("b", seeded), ("c", unseeded), ("d", unseeded)):
        session = make_session(model)
        runs[name] = np.concatenate([session.run(None, {})[0].ravel() for _ in range(3)])
        assert len(set(runs[name].tolist())) > 40
    np.testing.assert_array_equal(runs["a"], runs["b"])
    assert not np.isin(runs["c"], runs["d"]).any()


def test_nodes_of_a_model_differ_and_an_unused_one_is_not_run(make_model: Make, make_session: Make) -> None:
    nodes = [helper.make_node("RandomUniform", [], [name], shape=[40]) for name in ("a", "b", "c")]
    session = make_session(make_model([*nodes, helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], {}))
    (y,) = session.run(None, {})
    assert len(set(y.tolist())) > 75
    removed = {(record.op_type, record.reason) for record in session.report().removed_nodes}
    assert removed == {("RandomUniform", "nothing reads its outputs"), ("Concat", IN_PLACE)}


def test_shapes_share_a_state(make_model: Make, make_session: Make) -> None:
    """And states outlive plans: only one is kept here."""
    node = helper.make_node("RandomUniformLike", ["x"], ["y"], seed=2.0)
    session = make_session(make_model(node, {"x": (f32, ("N",))}), options=dmlvk.onnx.SessionOptions(plan_cache_size=1))
    found = np.concatenate([session.run(None, {"x": np.zeros(size, f32)})[0] for size in (8, 100, 4, 8)])
    np.testing.assert_array_equal(found, (words(2.0, 120) >> 8) * f32(2.0**-24))


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [(f32, 0.0, 1.0), (f32, -3.0, 5.0), (f32, 1.0, 1.0000002), (f16, -1.0, 1.0), (f64, 2.0, 3.0)]
)
def test_uniform(make_model: Make, make_session: Make, dtype: Any, low: float, high: float) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("RandomUniform", [], ["y"], shape=[COUNT], low=low, high=high, dtype=code, seed=1.0)
    (y,) = make_session(make_model(node, {}, output_types={"y": dtype})).run(None, {})
    assert y.dtype == dtype
    assert y.min() >= f32(low) and y.max() < f32(high)
    # The variance of the mean is (high - low)^2 / 12 n.
    assert abs(y.astype(f64).mean() - (f64(f32(low)) + f64(f32(high))) / 2) < 5 * (high - low) / np.sqrt(12 * COUNT) + 1e-7


@pytest.mark.parametrize(("dtype", "mean", "scale"), [(f32, 0.0, 1.0), (f32, -2.0, 0.25), (f16, 1.0, 3.0)])
def test_normal(make_model: Make, make_session: Make, dtype: Any, mean: float, scale: float) -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["y"], mean=mean, scale=scale, seed=4.0)
    model = make_model(node, {"x": (dtype, (2, COUNT // 2))}, output_types={"y": dtype})
    (y,) = make_session(model).run(None, {"x": np.zeros((2, COUNT // 2), dtype)})
    assert (y.dtype, y.shape) == (dtype, (2, COUNT // 2))
    z = np.sort((y.ravel().astype(f64) - mean) / scale)
    # Kolmogorov and Smirnov: the distance from the normal distribution exceeds 1.95 / sqrt(n) once in a thousand times.
    normal = np.array([0.5 + 0.5 * math.erf(x / math.sqrt(2)) for x in z])
    assert np.abs(normal - (np.arange(COUNT) + 0.5) / COUNT).max() < 1.95 / np.sqrt(COUNT)
    assert 3.2 < np.abs(z).max() < 5.8


@pytest.mark.parametrize(("dtype", "code"), [(f32, None), (f16, TensorProto.INT64), (f64, TensorProto.BOOL)])
def test_bernoulli(make_model: Make, make_session: Make, dtype: Any, code: int | None) -> None:
    wanted = np.dtype(dtype) if code is None else helper.tensor_dtype_to_np_dtype(code)
    attributes = {} if code is None else {"dtype": code}
    node = helper.make_node("Bernoulli", ["p"], ["y"], seed=5.0, **attributes)
    p = np.repeat(np.array([0.0, 0.3, 0.5, 1.0], dtype), COUNT // 4)
    model = make_model(node, {"p": (dtype, p.shape)}, output_types={"y": wanted})
    (y,) = make_session(model).run(None, {"p": p})
    assert y.dtype == wanted
    expected = ((words(5.0, COUNT) >> 8) * 2.0**-24) < p.astype(f32)
    np.testing.assert_array_equal(y, expected.astype(wanted))
    assert not y[: COUNT // 4].any() and y[-COUNT // 4 :].all()


@pytest.mark.parametrize(("dtype", "code"), [(f32, TensorProto.INT32), (f16, TensorProto.INT64)])
def test_multinomial(make_model: Make, make_session: Make, dtype: Any, code: int) -> None:
    wanted = helper.tensor_dtype_to_np_dtype(code)
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=COUNT // 4, dtype=code, seed=6.0)
    p = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0], [0.7, 0.0, 0.0, 0.3]])
    with np.errstate(divide="ignore"):
        logits = (np.log(p) + 2).astype(dtype)
    model = make_model(node, {"x": (dtype, (3, 4))}, output_types={"y": wanted})
    (y,) = make_session(model).run(None, {"x": logits})
    assert (y.dtype, y.shape) == (wanted, (3, COUNT // 4))
    for row, probabilities in zip(y, p, strict=True):
        shares = np.bincount(row, minlength=4) / row.size
        assert np.abs(shares - probabilities).max() < 5 * 0.5 / np.sqrt(row.size)
        assert not shares[probabilities == 0].any()


@pytest.mark.parametrize(("ratio", "dtype"), [(0.25, f32), (0.5, f16), (1.0, f32), (0.3, f64)])
def test_dropout(make_model: Make, make_session: Make, ratio: float, dtype: Any) -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=9)
    constants = {"ratio": np.array(ratio), "training": np.array(True)}
    types = {"y": dtype, "mask": np.bool_}
    model = make_model(node, {"x": (dtype, (COUNT,))}, ("y", "mask"), constants, output_types=types)
    x = np.linspace(-4, 4, COUNT).astype(dtype)
    x[:4] = np.inf, -np.inf, np.nan, 0
    session = make_session(model)
    (y, mask), (_, other_mask) = (session.run(None, {"x": x}) for _ in range(2))
    assert abs(mask.mean() - (1 - ratio)) < 5 * 0.5 / np.sqrt(COUNT)
    assert ratio == 1.0 or (mask != other_mask).any()
    wanted = x[mask] * dtype(1 / (1 - ratio)) if ratio < 1 else x[mask]
    np.testing.assert_allclose(y[mask], wanted, rtol=1e-3 if dtype is f16 else 4 * np.finfo(dtype).eps)
    assert not y[~mask].any()


def test_one_class_and_an_empty_batch(make_model: Make, make_session: Make) -> None:
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=3)
    session = make_session(make_model(node, {"x": (f32, ("N", "C"))}, output_types={"y": i32}))
    assert session.run(None, {"x": np.zeros((2, 1), f32)})[0].tolist() == [[0] * 3] * 2
    assert session.run(None, {"x": np.zeros((0, 5), f32)})[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        (
            helper.make_node("RandomUniform", [], ["y"], shape=[2], low=1.0, high=1.0),
            dmlvk.ModelError,
            r"low below high; got \(1\.0, 1\.0\)",
        ),
        (
            helper.make_node("RandomUniformLike", ["x"], ["y"], high=float("inf")),
            dmlvk.ModelError,
            r"must be finite.*got \(0\.0, inf\)",
        ),
        (helper.make_node("RandomNormalLike", ["x"], ["y"], dtype=6), dmlvk.UnsupportedNodeError, "int32"),
        (helper.make_node("Multinomial", ["x"], ["y"]), dmlvk.ModelError, r"sizes \(batch, classes\).*got \(\(4,\), 1\)"),
    ],
)
def test_refused(make_model: Make, make_session: Make, node: Any, error: type[Exception], message: str) -> None:
    model = make_model(node, {"x": (f32, (4,))}, output_types={"y": i32 if node.op_type == "Multinomial" else f32})
    with pytest.raises(error, match=message):
        make_session(model).run(None, {"x": np.zeros(4, f32)})


def test_coordinates_that_follow_from_shapes(make_model: Make, make_session: Make) -> None:
    """NonZero where only shapes decide: known before the run, so the host has it, as older exporters rely on."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["ones"], value=helper.make_tensor("v", TensorProto.INT64, [1], [1])),
        helper.make_node("NonZero", ["ones"], ["places"]),
        helper.make_node("Transpose", ["places"], ["pairs"]),
        helper.make_node("GatherND", ["x", "pairs"], ["y"]),
    ]
    session = make_session(make_model(nodes, {"x": (f32, ("H", "W"))}))
    x = np.arange(12, dtype=f32).reshape(3, 4)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.ravel())
