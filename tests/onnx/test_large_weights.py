"""A language model's weights that no storage binding holds: an embedding, a table by rows, and the embedding transposed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime

import dmlvk
from dmlvk.onnx import InferenceSession


def test_a_model_whose_weights_exceed_a_binding(make_model: Callable[..., onnx.ModelProto]) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 24), dtype=np.float32)
    head = rng.standard_normal((24, 300), dtype=np.float32)
    node = onnx.helper.make_node
    model = make_model(
        [
            node("Gather", ["table", "tokens"], ["x"], axis=0),
            node("MatMul", ["x", "head"], ["one"]),
            node("Transpose", ["table"], ["columns"], perm=[1, 0]),
            node("MatMul", ["x", "columns"], ["other"]),
            node("Add", ["one", "other"], ["scores"]),
            node("Softmax", ["scores"], ["y"], axis=-1),
        ],
        {"tokens": (np.dtype(np.int64), ("batch", "length"))},
        constants={"table": table, "head": head},
    ).SerializeToString()
    small = dmlvk.Device(mask=dmlvk.Mask(limits=(("storage_buffer_bytes", 16384),)))
    session = InferenceSession(model, small)
    rival = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for sizes in ((1, 5), (1, 7), (2, 9), (1, 8)):  # the last ones by a recipe
        tokens = rng.integers(-300, 300, sizes)
        found, wanted = (each.run(None, {"tokens": tokens})[0] for each in (session, rival))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
