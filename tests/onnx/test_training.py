"""The training preview's optimisers over several steps of one session, with every attribute; against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32
DOMAIN = "ai.onnx.preview.training"
CASES = [
    ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": 0.01}),
    ("Adam", 2, {"alpha": 0.8, "beta": 0.99, "epsilon": 1e-4, "norm_coefficient": 0.01, "norm_coefficient_post": 0.001}),
    ("Adam", 2, {"alpha": 0.0, "beta": 0.9, "epsilon": 1e-4}),
    ("Momentum", 1, {"alpha": 0.9, "beta": 0.3, "mode": "standard", "norm_coefficient": 0.0}),
    ("Momentum", 1, {"alpha": 0.9, "beta": 0.3, "mode": "nesterov", "norm_coefficient": 0.02}),
]


def _model(op_type: str, states: int, tensors: int, attributes: dict[str, Any]) -> Any:
    kinds = ["x", "g", *"vh"[2 - states :]][: 2 + states]
    inputs = ["r", "t", *(f"{kind}{index}" for kind in kinds for index in range(tensors))]
    outputs = [f"new_{name}" for name in inputs[2:] if name[0] != "g"]
    node = helper.make_node(op_type, inputs, outputs, domain=DOMAIN, **attributes)
    scalar = {"r": (1, []), "t": (7, [])}
    infos = [helper.make_tensor_value_info(name, *scalar.get(name, (1, None))) for name in inputs]
    wanted = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(helper.make_graph([node], "test", infos, wanted), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("op_type", "states", "attributes"), CASES, ids=[f"{row[0]}-{n}" for n, row in enumerate(CASES)])
def test_steps(
    op_type: str, states: int, attributes: dict[str, Any], make_session: Any, reference: Any, assert_close: Any
) -> None:
    model = _model(op_type, states, 2, attributes)
    session = make_session(model)
    rng = np.random.default_rng(states)
    sizes = ((3, 5), (7,))
    names = [info.name for info in model.graph.input]
    feeds = {name: rng.uniform(0.1, 1, sizes[int(name[1])]).astype(f32) for name in names[2:]}
    for step in range(3):
        feeds |= {"r": np.array(0.1, f32), "t": np.array(step * 40)}
        feeds |= {name: rng.standard_normal(feeds[name].shape).astype(f32) for name in names if name[0] == "g"}
        found, wanted = session.run(None, feeds), reference(model, feeds, "onnx")
        for info, mine, theirs in zip(model.graph.output, found, wanted, strict=True):
            assert_close(mine, theirs.astype(f32), 1e-5)
            feeds[info.name.removeprefix("new_")] = mine
    assert [record.op_type for record in session.report().gpu_nodes] == [op_type]


def test_refused(make_session: Any) -> None:
    feeds = {"r": np.array(0.1, f32), "t": np.array(0)} | {name: np.zeros(2, f32) for name in ("x0", "g0", "v0")}
    momentum = {"alpha": 0.9, "beta": 0.3, "norm_coefficient": 0.0}
    with pytest.raises(dmlvk.ModelError, match=r"mode must be .*; got 'fast'"):
        make_session(_model("Momentum", 1, 1, {"mode": "fast", **momentum})).run(None, _renamed(feeds))
    with pytest.raises(dmlvk.ModelError, match="must have its sizes"):
        wrong = feeds | {"g0": np.zeros(3, f32)}
        make_session(_model("Momentum", 1, 1, {"mode": "standard", **momentum})).run(None, _renamed(wrong))


def _renamed(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The only state of an optimiser with one is called h."""
    return {name.replace("v", "h"): array for name, array in feeds.items()}
