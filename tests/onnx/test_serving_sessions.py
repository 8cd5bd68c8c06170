"""ONNX models behind HTTP on a device: requests that are joined get what they get alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from asgi_client import Client
from onnx import helper
from onnx_models import make_model

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.serving.models import ServedModel, model_application


def test_rows_that_run_together(device: dmlvk.Device) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    weights = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    model: onnx.ModelProto = make_model(nodes, {"x": (np.float32, ["n", 5])}, constants={"w": weights})
    served = ServedModel(InferenceSession(model.SerializeToString(), device), most_rows=8)
    x = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)

    def feeds(rows: Any) -> dict[str, Any]:
        return {"x": rows}

    together = [served.batches.submit(feeds(rows), ["y"]) for rows in np.split(x, [1, 3, 4])]
    found = np.concatenate([future.result(120)[0] for future in together])
    np.testing.assert_allclose(found, np.maximum(x @ weights, 0), atol=1e-5)
    with Client(model_application({"relu": served})) as client:
        tensor = {"name": "x", "datatype": "FP32", "shape": [2, 5], "data": x[:2].tolist()}
        (output,) = client.post("/v2/models/relu/infer", {"inputs": [tensor]}).json["outputs"]
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), found[:2], atol=1e-5)
    served.batches.close()
