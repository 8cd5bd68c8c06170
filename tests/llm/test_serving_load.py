"""A server of a tiny model under many clients at once, as users start it: by its command, over sockets."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import load_endpoint
import numpy as np
import pytest
from counting_model import byte_tokens
from language_models import write_model

import dmlvk

pytestmark = pytest.mark.full  # two minutes of load, which DMLVK_LOAD_SECONDS makes shorter or longer

TOKENS = 258


def test_many_clients_at_once(device: dmlvk.Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((TOKENS, 64)).astype(np.float32) for name in ("token_embd", "output")}
    path = write_model(tmp_path / "tiny.gguf", "llama", tokenizer=byte_tokens(), context_length=512, **tables)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = [sys.executable, "-m", "dmlvk", "serve", str(path), "--port", str(port), "--sequences", "16", "--piece", "32"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = subprocess.Popen([*words, "--device", device.info.uuid], env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        while not is_ready(url):
            assert server.poll() is None, "the server has ended"
            time.sleep(0.2)
        seconds = os.environ.get("DMLVK_LOAD_SECONDS", "120")
        status = load_endpoint.main([url, "--clients", "64", "--seconds", seconds, "--rude", "0.1"])
        report = capsys.readouterr().out
        print(report)
        assert status == 0, report
        sizes = [float(size) for size in re.findall(r"\d+", report.partition("memory, MiB:")[2].partition("\n")[0])]
        assert max(sizes[5:]) < sizes[2] * 1.25, "memory that does not grow with requests"
    finally:
        server.terminate()
        assert server.wait(60) is not None


def is_ready(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/ready", timeout=10).status == 200)
    except (urllib.error.URLError, OSError):
        return False
