"""The suite llm of the benchmark: its models, its rows in files, and what a server is asked."""

from __future__ import annotations

import json
import pathlib
import sys
import textwrap

import numpy as np
import pytest

from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.network import Network
from dmlvk.llm.tensors import check_tensors
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.machine import Machine
from dmlvk_bench import language
from dmlvk_bench.results import LanguageRow, Results, read
from dmlvk_bench.rivals import llama_server

(SMALL,) = language.SMALL
MACHINE = Machine("gpu", "", "driver 1", "cpu", "1.3", "", "Linux", "3.11", "0.1", "abc", "2026-01-01")


@pytest.mark.parametrize("kind", language.TYPES)
def test_the_file_of_a_server_is_the_model_that_is_measured(tmp_path: pathlib.Path, kind: str) -> None:
    own = language.weights_of(SMALL, kind)
    check_tensors(own)
    llama_server.write_model(tmp_path / "model.gguf", SMALL, kind)
    written = load_gguf(tmp_path / "model.gguf")
    assert written.tensors.keys() == own.tensors.keys()
    for name, tensor in own.tensors.items():
        assert (written.tensors[name].type, written.tensors[name].sizes) == (tensor.type, tensor.sizes)
        np.testing.assert_array_equal(written.tensors[name].data, tensor.data)
    assert (written.config.layers, written.config.heads, written.config.context) == (2, 4, 4096)


def test_rows_are_kept(tmp_path: pathlib.Path) -> None:
    row = LanguageRow(
        "Llama 1B Q4_0", 16, 10**9, 2 * 10**9, 512, 128, 1e4, 800.0, {"llama.cpp": {"prompt_per_s": 5e3, "new_per_s": 400.0}}
    )
    results = Results(MACHINE, "full", language=[row])
    results.write(tmp_path / "r.json")
    assert read(tmp_path / "r.json").language == [row]
    assert "weights read at    50.0 GB/s; llama.cpp: prompt x2.00, new x2.00" in str(row)


def test_files_of_before_the_suite_have_no_rows(tmp_path: pathlib.Path) -> None:
    Results(MACHINE, "full").write(tmp_path / "r.json")
    found = json.loads((tmp_path / "r.json").read_text())
    del found["language"]
    (tmp_path / "r.json").write_text(json.dumps(found))
    assert read(tmp_path / "r.json").language == []


SERVER = """
    import http.server, json, sys
    port = int(sys.argv[sys.argv.index("--port") + 1])
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"status": "ok"})
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert len(asked["prompt"]) == 512 and asked["n_predict"] == 128 and asked["ignore_eos"]
            self.answer({"timings": {"prompt_ms": 100.0, "predicted_ms": 400.0}})
        def answer(self, value):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())
        def log_message(self, *words):
            pass
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.skipif(
    sys.platform == "win32", reason="the server that stands in is a script with a first line that says what runs it"
)
def test_sequences_of_a_batch_share_the_server(tmp_path: pathlib.Path) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text(f"#!{sys.executable}\n{textwrap.dedent(SERVER)}")
    binary.chmod(0o755)
    server = llama_server.LlamaServer(tmp_path)
    assert server.speeds(SMALL, "Q4_0", 2) == {"prompt_per_s": 2 * 512 / 0.1, "new_per_s": 2 * 128 / 0.4}


def test_a_folder_without_the_server(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="llama-server"):
        llama_server.LlamaServer(tmp_path)


@pytest.mark.parametrize("kind", language.TYPES)
def test_a_layer_is_five_operators(kind: str) -> None:
    """Queries, keys and values are one product, and so are a gate and what it gates, and both normalize what they read: of
    blocks and of FLOAT16."""
    (shape,) = language.SMALL
    network = Network(language.weights_of(shape, kind), TensorDataType.FLOAT16, 16, 1, {})
    trace = network.trace(network.step, {}, {})
    layer = [type(step.desc).__name__ for step in trace.steps if step.origin.name == "blk.1"]
    of_blocks = ["NormalizedBlockGemm", "CachedAttention", "BlockQuantizedGemm", "NormalizedBlockGemm", "BlockQuantizedGemm"]
    of_halves = ["NormalizedGemm", "CachedAttention", "Gemm", "NormalizedGemm", "Gemm"]
    assert layer == (of_halves if kind == "F16" else of_blocks)
