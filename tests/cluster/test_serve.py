"""Served models on a Ray cluster: over HTTP, with a replica that is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from counting_model import byte_tokens
from language_models import write_model
from onnx import helper
from onnx_models import make_model
from ray_cluster import run_on_cluster

pytestmark = pytest.mark.full  # starts Ray and its proxy

PROGRAM = """
import json, sys, time, urllib.error, urllib.request
from ray import serve
import ray
import dmlvk.ray.serve
from ray_cluster import cluster

URL = "http://127.0.0.1:8765"


def ask(path, body=None):
    request = urllib.request.Request(URL + path, None if body is None else json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


def wait_for(path):
    # Ray's proxy learns of a route some time after the application is ready; until then it says 404.
    while True:
        try:
            return ask(path)
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
            time.sleep(0.1)


def infer():
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return json.loads(ask("/onnx/v2/models/twice/infer", {"inputs": [tensor]}))["outputs"][0]["data"]


with cluster(nodes=2, copies=1, cpus=2):
    serve.start(http_options={"port": 8765})
    options = {"num_cpus": 0.1}
    text = dmlvk.ray.serve.text(
        sys.argv[1], sequences=2, capacity=64, piece=8, share=0.5, ray_actor_options=options, health_check_period_s=1
    )
    serve.run(text, name="text", route_prefix="/text")
    models = dmlvk.ray.serve.models(
        {"twice": sys.argv[2]}, most_rows=4, share=0.5, ray_actor_options=options, health_check_period_s=1
    )
    serve.run(models, name="models", route_prefix="/onnx")
    wait_for("/text/ready")
    wait_for("/onnx/ready")
    asked = {"prompt": "xy", "max_tokens": 5, "temperature": 1.0, "seed": 3}
    whole = json.loads(ask("/text/v1/completions", asked))
    events = ask("/text/v1/completions", {**asked, "stream": True}).split("\\n\\n")
    assert events[-2:] == ["data: [DONE]", ""], events
    parts = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-2]]
    assert "".join(parts) == whole["choices"][0]["text"], (parts, whole)
    first = infer()
    (replica,) = [
        actor for actor in ray.util.list_named_actors(all_namespaces=True) if "models#" in actor["name"]
    ]
    ray.kill(ray.get_actor(replica["name"], replica["namespace"]), no_restart=True)
    while True:
        try:
            assert infer() == first
            break
        except OSError:
            time.sleep(0.5)
    print(json.dumps({"usage": whole["usage"]["completion_tokens"], "twice": first}))
    serve.shutdown()
"""


def test_models_behind_ray_serve(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((258, 64)).astype(np.float32) for name in ("token_embd", "output")}
    text = write_model(tmp_path / "tiny.gguf", "llama", tokenizer=byte_tokens(), **tables)
    model = make_model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": (np.float32, ["n", 2])}, ["y"])
    path = tmp_path / "twice.onnx"
    path.write_bytes(model.SerializeToString())
    lines = run_on_cluster(PROGRAM, os.fspath(text), os.fspath(path)).splitlines()  # Ray's own are among them
    found = json.loads(next(line for line in lines if line.startswith('{"usage"')))
    assert found == {"usage": 5, "twice": [2.0, 4.0]}
