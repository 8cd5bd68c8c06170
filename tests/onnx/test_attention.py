"""ONNX's Attention, drawn at random, against onnxruntime's CPU and ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.defs
import pytest
from onnx import helper

f16, f32, i64 = np.float16, np.float32, np.int64
pytestmark = pytest.mark.skipif(onnx.defs.onnx_opset_version() < 24, reason="the installed onnx does not know Attention")
NAMES = ("query", "key", "value", "mask", "past_key", "past_value", "valid")
OUTPUTS = ("y", "present_key", "present_value", "scores")


def draw(seed: int) -> tuple[onnx.NodeProto, dict[str, np.ndarray], int]:
    """A node, its inputs and its opset."""
    rng = np.random.default_rng(seed)
    opset = int(rng.integers(23, min(onnx.defs.onnx_opset_version(), 25) + 1))
    dtype = f16 if rng.random() < 0.2 else f32
    batch, heads, group = (int(rng.integers(1, 4)) for _ in range(3))
    queries, new, past = int(rng.integers(1, 6)), int(rng.integers(1, 8)), int(rng.choice((0, 1, 5)))
    size, value_size = (int(rng.choice((1, 4, 7))) for _ in range(2))
    is_cached = opset >= 24 and rng.random() < 0.3
    has_past = not is_cached and rng.random() < 0.5
    new = queries if has_past and rng.random() < 0.7 else max(new, queries) if is_cached else new
    total = new + past * has_past
    shapes = {"query": (heads * group, queries, size), "key": (heads, new, size), "value": (heads, new, value_size)}
    if has_past:
        shapes |= {"past_key": (heads, past, size), "past_value": (heads, past, value_size)}
    feeds = {name: rng.standard_normal((batch, *shape)).astype(dtype) for name, shape in shapes.items()}
    attributes: dict[str, Any] = {}
    if rng.random() < 0.5:
        attributes |= {"q_num_heads": heads * group, "kv_num_heads": heads}
        for name in ("query", "key", "value"):
            rows = feeds[name].transpose(0, 2, 1, 3)
            feeds[name] = np.ascontiguousarray(rows.reshape(*rows.shape[:2], -1))
    if is_cached:
        feeds["valid"] = rng.integers(1, new + 1, batch).astype(i64)
    if rng.random() < 0.5:
        full = (batch, heads * group, queries, total)
        least = 2 if rng.random() < 0.5 else 4
        shape = [size if rng.random() < 0.6 else 1 for size in full[:-2]] + [queries, total]
        mask = rng.random(shape[4 - least :])
        feeds["mask"] = mask < 0.7 if rng.random() < 0.5 else np.where(mask < 0.8, mask, -np.inf).astype(dtype)
    attributes |= {"is_causal": int(rng.random() < 0.5)}
    attributes |= {"scale": 0.3} if rng.random() < 0.3 else {}
    attributes |= {"softcap": 0.7} if rng.random() < 0.2 else {}
    if opset >= 25:
        sides = ("left_window_size", "right_window_size")
        attributes |= {side: int(rng.integers(0, 4)) for side in sides if rng.random() < 0.4}
    count = 3 if has_past else 1
    if rng.random() < 0.25:
        # Of mode 0 the reference gives what the soft cap made of it, against its text.
        count, attributes["qk_matmul_output_mode"] = 4, int(rng.integers("softcap" in attributes, 4))
    outputs = [name if has_past or name in ("y", "scores") else "" for name in OUTPUTS[:count]]
    names = [name if name in feeds else "" for name in NAMES[: 7 if is_cached else 6]]
    return helper.make_node("Attention", names, outputs, **attributes), feeds, opset


@pytest.mark.parametrize("seed", range(16))
def test_attention(
    seed: int,
    make_model: Callable[..., Any],
    make_session: Callable[..., Any],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    node, feeds, opset = draw(seed)
    outputs, dtype = [name for name in node.output if name], feeds["query"].dtype
    types = dict.fromkeys(outputs, dtype)
    model = make_model(node, {n: (a.dtype, a.shape) for n, a in feeds.items()}, outputs, opset=opset, output_types=types)
    found = make_session(model).run(None, feeds)
    for mine, theirs in zip(found, reference(model, feeds, "onnx"), strict=True):
        assert_close(mine, theirs, 2e-3 if dtype == f16 else 1e-5)


STEP = {"query": (2, 4, 1, 8), "key": (2, 2, 1, 8), "value": (2, 2, 1, 8)}


@pytest.mark.parametrize(
    ("shapes", "attributes", "dispatches"),
    [
        (STEP | {"past_key": (2, 2, 9, 8), "past_value": (2, 2, 9, 8)}, {"is_causal": 1}, 3),
        (STEP | {"past_key": (2, 2, 9, 8), "past_value": (2, 2, 9, 8), "mask": (2, 1, 1, 10)}, {}, 3),
        (STEP | {"key": (2, 2, 9, 8), "value": (2, 2, 9, 8), "valid": (2,)}, {"is_causal": 1}, 2),
        (
            {"query": (2, 5, 32), "key": (2, 5, 16), "value": (2, 5, 16)},
            {"is_causal": 1, "q_num_heads": 4, "kv_num_heads": 2},
            1,
        ),
    ],
    ids=["past", "past and mask", "cache", "prompt"],
)
def test_a_step_of_a_decoder_is_few_dispatches(
    shapes: dict[str, tuple[int, ...]],
    attributes: dict[str, int],
    dispatches: int,
    make_model: Callable[..., Any],
    make_session: Callable[..., Any],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """A row for each new key and value, and the attention; of a cache the lengths are made int32."""
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(shape).astype(f32) for name, shape in shapes.items()}
    if "valid" in feeds:
        feeds["valid"] = np.array([9, 4], i64)
    outputs = list(OUTPUTS[: 3 if "past_key" in feeds else 1])
    names = [name if name in feeds else "" for name in NAMES[: 7 if "valid" in feeds else 6]]
    model = make_model(
        helper.make_node("Attention", names, outputs, **attributes),
        {name: (array.dtype, array.shape) for name, array in feeds.items()},
        outputs,
        opset=24,
    )
    session = make_session(model)
    for mine, theirs in zip(session.run(None, feeds), reference(model, feeds, "onnxruntime"), strict=True):
        assert_close(mine, theirs)
    assert session.report().dispatches == dispatches


@pytest.mark.parametrize(("queries", "rows"), [(2, 0), (0, 3)])
def test_without_keys_or_queries(
    queries: int, rows: int, make_model: Callable[..., Any], make_session: Callable[..., Any]
) -> None:
    shapes = {"query": (1, 4, queries, 8), "key": (1, 2, rows, 8), "value": (1, 2, rows, 5)}
    node = helper.make_node("Attention", list(shapes), ["y"])
    session = make_session(make_model(node, {name: (f32, shape) for name, shape in shapes.items()}, opset=24))
    (y,) = session.run(None, {name: np.ones(shape, f32) for name, shape in shapes.items()})
    np.testing.assert_array_equal(y, np.zeros((1, 4, queries, 5), f32))
