"""Operators at their versions before opset 7: how the second operand broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk

OPERATORS = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Pow": np.power, "Sub": np.subtract}
X = np.random.default_rng(3).uniform(0.5, 2, (2, 3, 4, 3)).astype(np.float32)


def _numbers(*sizes: int) -> np.ndarray:
    return np.random.default_rng(4).uniform(0.5, 2, sizes).astype(np.float32)


def _model(make_model: Callable[..., onnx.ModelProto], node: onnx.NodeProto, *operands: np.ndarray) -> onnx.ModelProto:
    inputs = {name: (array.dtype, array.shape) for name, array in zip(node.input, operands, strict=True)}
    opset = 1 if node.op_type == "Pow" else 6
    return make_model(node, inputs, opset=opset)


@pytest.mark.parametrize("op_type", sorted(OPERATORS))
@pytest.mark.parametrize(
    ("sizes", "axis", "aligned"),
    [
        ((3,), 1, (3, 1, 1)),
        ((3,), 3, (3,)),
        ((3,), None, (3,)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((4, 3), -2, (4, 3)),
        ((1, 1), None, ()),
        ((1,), 2, ()),
        ((), None, ()),
    ],
)
def test_broadcast_from_an_axis_on(
    op_type: str,
    sizes: tuple[int, ...],
    axis: int | None,
    aligned: tuple[int, ...],
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
    assert_close: Callable[..., None],
) -> None:
    b = _numbers(*sizes)
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    node = helper.make_node(op_type, ["x", "b"], ["y"], **attributes)
    session = make_session(_model(make_model, node, X, b))
    (y,) = session.run(None, {"x": X, "b": b})
    assert_close(y, OPERATORS[op_type](X, b.reshape(aligned)), relative=1e-6)
    assert session.report().dispatches == 1


@pytest.mark.parametrize("attributes", [{}, {"broadcast": 1, "axis": 0}, {"broadcast": 1, "axis": 4}])
def test_operands_that_do_not_broadcast(
    attributes: dict[str, int], make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    """The last dimension is of size 3 as the operand is, but that is not what the node says."""
    node = helper.make_node("Add", ["x", "b"], ["y"], **attributes)
    with pytest.raises(dmlvk.ModelError, match="Add"):
        make_session(_model(make_model, node, X, _numbers(3)))


def test_constants_broadcast_from_an_axis_on(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    """onnx.reference, which folds constants, knows numpy's broadcasting only: square sizes would hide that."""
    a, b = _numbers(3, 3), _numbers(3)
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"], broadcast=1, axis=0),
        helper.make_node("Mul", ["x", "sum"], ["y"]),
    ]
    model = make_model(nodes, {"x": (np.float32, (3, 3))}, constants={"a": a, "b": b}, opset=6)
    (y,) = make_session(model).run(None, {"x": np.ones((3, 3), np.float32)})
    np.testing.assert_array_equal(y, a + b[:, None])


@pytest.mark.parametrize("sizes", [(1,), (3,), X.shape])
def test_slopes(
    sizes: tuple[int, ...],
    make_model: Callable[..., onnx.ModelProto],
    make_session: Callable[..., Any],
    assert_close: Callable[..., None],
) -> None:
    """A slope for each channel, though the last dimension has as many elements."""
    x, slope = X - np.float32(1), _numbers(*sizes)
    session = make_session(_model(make_model, helper.make_node("PRelu", ["x", "slope"], ["y"]), x, slope))
    (y,) = session.run(None, {"x": x, "slope": slope})
    aligned = slope.reshape(3, 1, 1) if sizes == (3,) else slope
    assert_close(y, np.where(x < 0, x * aligned, x), relative=1e-6)


def test_slopes_of_other_sizes(make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]) -> None:
    with pytest.raises(dmlvk.ModelError, match="slope"):
        make_session(_model(make_model, helper.make_node("PRelu", ["x", "slope"], ["y"]), X, _numbers(4)))


def test_batch_normalization_trains_unless_told(
    make_model: Callable[..., onnx.ModelProto], make_session: Callable[..., Any]
) -> None:
    operands = [X, *(_numbers(3) for _ in range(4))]
    node = helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "variance"], ["y"])
    with pytest.raises(dmlvk.UnsupportedNodeError, match="is_test"):
        make_session(_model(make_model, node, *operands))
