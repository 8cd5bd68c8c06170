"""Small models, and the comparison with onnxruntime's CPU and onnx.reference: what the fixtures of ``tests/onnx`` give, and
the fuzzer of graphs takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnxruntime
from onnx import helper

Arrays = Mapping[str, np.ndarray]


def make_model(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str | None] | None]],
    outputs: Sequence[str] = ("y",),
    constants: Arrays | None = None,
    opset: int = 17,
    output_types: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of nodes. inputs: name -> (numpy type, shape); outputs are float32 tensors unless output_types says more."""
    graph = helper.make_graph(
        [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes),
        "test",
        [_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [_info(name, (output_types or {}).get(name, np.float32), None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _info(name: str, dtype: Any, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def reference(model: onnx.ModelProto, feeds: Arrays, runtime: str) -> list[np.ndarray]:
    """Outputs of a model by another runtime: "onnxruntime" on the CPU, or "onnx", the reference implementation."""
    if runtime == "onnx":
        return [np.asarray(output) for output in onnx.reference.ReferenceEvaluator(model).run(None, dict(feeds))]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def close(found: np.ndarray, wanted: np.ndarray, relative: float = 1e-5, absolute: float = 1e-6) -> None:
    """Asserts same type and shape, and no difference beyond ``relative`` of the largest finite magnitude."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if not wanted.size:
        return
    if wanted.dtype.kind not in "f":
        np.testing.assert_array_equal(found, wanted)
        return
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    limit = relative * float(finite.max(initial=0.0)) + absolute
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=limit)
