"""DynamicQuantizeLSTM of ONNX Runtime's domain: an LSTM whose weights are kept in 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk

f32 = np.float32
STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 6, 8


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("by_gate", [False, True])
@pytest.mark.parametrize("directions", [1, 2])
def test_lstm_of_8_bit_weights(
    directions: int,
    by_gate: bool,
    kind: Any,
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
    reference: Callable[..., list[np.ndarray]],
    assert_close: Callable[..., None],
) -> None:
    """The same as an LSTM of the weights that the 8 bits mean, and near what ONNX Runtime makes of it, which gives up bits
    of X and H at each step: half a step of 1/255 of their range in each of 14 products of at most 0.5. Signed weights are
    of 7 bits: on a processor without VNNI its products of unsigned and signed bytes end at 16 bits."""
    rng = np.random.default_rng(directions)
    limits = np.iinfo(kind)
    least, most = (-64, 64) if kind is np.int8 else (limits.min, limits.max)
    scale_sizes = (directions, 4 * HIDDEN) if by_gate else (directions,)
    weights, meant = {}, {}
    for name, size in (("w", INPUTS), ("r", HIDDEN)):
        bits = rng.integers(least, most, (directions, size, 4 * HIDDEN), endpoint=True).astype(kind)
        scale = rng.uniform(0.001, 0.003, scale_sizes).astype(f32)
        middle = np.full(scale_sizes, (limits.max + limits.min + 1) // 2, kind)
        weights |= {name: bits, f"{name}_scale": scale, f"{name}_zero": middle}
        own = (*scale_sizes, *(1,) * (2 - len(scale_sizes)))
        numbers = (bits.astype(f32) - middle.reshape(own)[:, None]) * scale.reshape(own)[:, None]
        meant[name] = np.ascontiguousarray(numbers.transpose(0, 2, 1))
    bias = rng.uniform(-0.5, 0.5, (directions, 8 * HIDDEN)).astype(f32)
    settings = {"hidden_size": HIDDEN, "direction": "bidirectional" if directions == 2 else "forward"}
    outputs = ["y", "h", "c"]
    names = ["x", "w", "r", "b", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    fed = {"x": (f32, (STEPS, BATCH, INPUTS))}
    node = helper.make_node("DynamicQuantizeLSTM", names, outputs, domain="com.microsoft", **settings)
    model = make_model(node, fed, outputs, {**weights, "b": bias})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    plain = make_model(
        helper.make_node("LSTM", ["x", "w", "r", "b"], outputs, **settings), fed, outputs, {**meant, "b": bias}
    )
    feeds = {"x": rng.uniform(-1, 1, (STEPS, BATCH, INPUTS)).astype(f32)}
    session = make_session(model)
    found = session.run(None, feeds)
    assert [record.op_type for record in session.report().gpu_nodes] == ["DynamicQuantizeLSTM"]
    for mine, theirs in zip(found, reference(plain, feeds, "onnxruntime"), strict=True):
        assert_close(mine, theirs, 1e-6, 1e-6)
    for mine, theirs in zip(found, reference(model, feeds, "onnxruntime"), strict=True):
        assert_close(mine, theirs, 0, 14 * 0.5 / 255)


def test_weights_that_do_not_fit_are_refused(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    constants = {"w": np.zeros((1, 3, 16), np.int8), "r": np.zeros((1, 4, 16), np.int8)}
    constants |= {name: np.ones((1, 1, 1), f32) for name in ("ws", "rs")}
    names = ["x", "w", "r", "", "", "", "", "", "ws", "", "rs"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=4)
    model = make_model(node, {"x": (f32, (2, 1, 3))}, constants=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(dmlvk.ModelError, match=r"the scale at most 2.*; got \(\(1, 3, 16\), \(1, 1, 1\)"):
        make_session(model)
