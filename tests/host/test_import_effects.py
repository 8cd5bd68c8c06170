"""Importing dmlvk leaves the process as it was: no hooks, threads or files, and nothing imported that was not asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # each test starts Python

LISTED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.partition(".")[0] not in ("dmlvk", "__main__")]))
"""

WATCHED = """
import atexit, gc, importlib, json, locale, logging, os, signal, sys, threading, warnings

for name in json.loads(sys.argv[2]):  # what dmlvk imports of others has effects of its own
    importlib.import_module(name)


def state():
    found = {
        "atexit": atexit._ncallbacks(),
        "threads": threading.active_count(),
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "filters": [repr(item) for item in warnings.filters],
        "loggers": len(logging.root.manager.loggerDict) + len(logging.root.handlers),
        "level": logging.root.level,
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "finders": len(sys.meta_path) + len(sys.path_hooks),
        "hooks": [repr(hook) for hook in (sys.excepthook, sys.displayhook, threading.excepthook, sys.gettrace())],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
    }
    if "numpy" in sys.modules:
        found["numpy"] = [sys.modules["numpy"].geterr(), sys.modules["numpy"].get_printoptions()["threshold"]]
    return found


hooks, files, toggles = [], [], []
os.register_at_fork = lambda **given: hooks.append(sorted(given))
gc.disable = lambda: toggles.append("disabled")
before = state()
sys.addaudithook(lambda event, args: files.append(str(args[0])) if event == "open" else None)
importlib.import_module(sys.argv[1])
opened = [path for path in files if not path.endswith((".py", ".pyc", ".so", ".pyd"))]
after = state()
print(json.dumps({
    "changed": {name: [before[name], after[name]] for name in after if before[name] != after[name]},
    "fork": hooks, "opened": opened, "collector": toggles,
}))
"""


def python(code: str, *arguments: str) -> str:
    """What a new interpreter prints."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.mark.parametrize(
    "module", ["dmlvk", "dmlvk.eager", "dmlvk.builder", "dmlvk.onnx", "dmlvk.llm", "dmlvk.xp", "dmlvk.cli"]
)
def test_importing_has_no_effect_on_the_process(module: str) -> None:
    others = python(LISTED, module)
    assert json.loads(python(WATCHED, module, others)) == {"changed": {}, "fork": [], "opened": [], "collector": []}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("dmlvk", {"numpy", "onnx", "ctypes", "ray"}),
        ("dmlvk.eager", {"onnx", "google", "dmlvk.onnx", "dmlvk.verify"}),
        ("dmlvk.builder", {"onnx", "google", "dmlvk.onnx", "dmlvk.verify"}),
        ("dmlvk.cli", {"onnx", "google", "ray", "dmlvk.onnx", "dmlvk.verify"}),
        ("dmlvk.onnx", {"ray", "dmlvk.ray"}),
        ("dmlvk.onnx.folder", {"ray", "dmlvk.ray"}),
    ],
)
def test_importing_brings_only_what_was_asked_for(module: str, absent: set[str]) -> None:
    code = "import importlib, json, sys\nimportlib.import_module(sys.argv[1])\nprint(json.dumps(list(sys.modules)))"
    assert absent & set(json.loads(python(code, module))) == set()
