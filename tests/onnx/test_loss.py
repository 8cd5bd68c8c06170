"""The losses of classifiers beyond ONNX's node cases: every combination of reduction, weights and ``ignore_index``, many
classes, half precision, and an ignored target whose probability is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32, f16 = np.float32, np.float16
OPERATORS = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


@pytest.fixture
def agrees(make_model: Any, make_session: Any, reference: Any, assert_close: Any) -> Callable[..., None]:
    def check(
        op_type: str,
        x: np.ndarray,
        target: np.ndarray,
        weights: np.ndarray | None = None,
        runtime: str = "onnxruntime",
        relative: float = 1e-5,
        **attributes: Any,
    ) -> None:
        feeds = {"x": x, "t": target} | ({} if weights is None else {"w": weights})
        outputs = ["y", "p"] if op_type == "SoftmaxCrossEntropyLoss" else ["y"]
        node = helper.make_node(op_type, list(feeds), outputs, **attributes)
        model = make_model(
            node,
            {name: (array.dtype, array.shape) for name, array in feeds.items()},
            outputs,
            opset=13,
            output_types=dict.fromkeys(outputs, x.dtype),
        )
        session = make_session(model)
        for found, wanted in zip(session.run(None, feeds), reference(model, feeds, runtime), strict=True):
            assert_close(found, wanted, relative)
        assert len(session.report().gpu_nodes) == 1

    return check


@pytest.mark.parametrize("ignored", [None, 3, -100])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("op_type", OPERATORS)
def test_loss(op_type: str, reduction: str, weighted: bool, ignored: int | None, agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 11, 3, 2)).astype(f32)
    target = rng.integers(0, 11, (5, 3, 2))
    target.reshape(-1)[::4] = ignored or 0
    weights = rng.uniform(0.1, 2, 11).astype(f32) if weighted else None
    attributes = {} if ignored is None else {"ignore_index": ignored}
    agrees(op_type, x, target, weights, reduction=reduction, **attributes)


@pytest.mark.parametrize("op_type", OPERATORS)
def test_many_classes_and_int32_targets(op_type: str, agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(2)
    agrees(op_type, rng.standard_normal((37, 5003)).astype(f32), rng.integers(0, 5003, 37).astype(np.int32))


@pytest.mark.parametrize("op_type", OPERATORS)
def test_half_precision(op_type: str, agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    x, target = rng.standard_normal((7, 5, 9)).astype(f16), rng.integers(0, 5, (7, 9))
    agrees(op_type, x, target, rng.uniform(0.1, 2, 5).astype(f16), "onnx", 2**-9, reduction="none")


def test_an_ignored_infinity_costs_nothing(agrees: Callable[..., None]) -> None:
    x = np.log(
        np.array([[0.0, 1.0], [0.25, 0.75]], f32),
        where=np.array([[False, True], [True, True]]),
        out=np.full((2, 2), -np.inf, f32),
    )
    agrees("NegativeLogLikelihoodLoss", x, np.array([0, 1]), ignore_index=0)


def test_refused(agrees: Callable[..., None]) -> None:
    x, target = np.zeros((2, 3), f32), np.zeros(2, np.int64)
    with pytest.raises(dmlvk.ModelError, match=r"reduction must be .*; got 'max'"):
        agrees("NegativeLogLikelihoodLoss", x, target, reduction="max")
    with pytest.raises(dmlvk.ModelError, match="weights must have one element for each class"):
        agrees("NegativeLogLikelihoodLoss", x, target, np.ones(4, f32))
    with pytest.raises(dmlvk.ModelError, match="targets must have the sizes of the input"):
        agrees("SoftmaxCrossEntropyLoss", x, np.zeros(3, np.int64))
