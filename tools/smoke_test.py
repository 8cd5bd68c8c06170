"""What someone who has just installed dmlvk would try first, with the Python that runs this; no checkout is needed.

    python tools/smoke_test.py [--without-device]

Exit status 1, with the reason, where one of it fails. --without-device: for machines that have no Vulkan driver, where the
same calls must say so. What an extra brings is tried where that extra is installed, and said.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

OPERATORS = ("ElementWiseAdd", "Gemm", "Convolution", "ActivationSoftmax1", "TopK1")

#: A model of one node: y = sqrt(x), two rows of three.
MODEL = """
import sys
import onnx
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
graph = helper.make_graph([helper.make_node("Sqrt", ["x"], ["y"], name="root")], "root", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
"""


class Failed(Exception):
    """Something does not do what it says; the message is what it did."""


def say(message: str) -> None:
    print(f"[smoke test] {message}", flush=True)


def command(*arguments: str, status: int = 0, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``python -m dmlvk ARGUMENTS``, which must end with this status.

    Raises:
        Failed: it ends with another one.
    """
    done = subprocess.run(
        [sys.executable, "-m", "dmlvk", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if done.returncode != status:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Failed(f"python -m dmlvk {' '.join(arguments)} ended with {done.returncode}, not {status}: {said}")
    return done


def check_import() -> None:
    """The package is an installed one, with its types and licences."""
    import dmlvk

    (folder,) = dmlvk.__path__
    if (Path(folder).parent.parent / "pyproject.toml").exists():
        raise Failed(f"this is the checkout's dmlvk, not an installed one: {folder}")
    metadata = importlib.metadata.metadata("dmlvk")
    if metadata["Version"] != dmlvk.__version__:
        raise Failed(f"the distribution is {metadata['Version']}, the package says {dmlvk.__version__}")
    if not (Path(folder) / "py.typed").exists():
        raise Failed("py.typed is missing")
    licences = metadata.get_all("License-File") or []
    say(f"dmlvk {dmlvk.__version__} in {folder}, {len(licences)} licences")


def check_absence(environment: dict[str, str]) -> None:
    """Without a Vulkan loader or driver the package imports, and every way to a device says what is missing."""
    done = command("devices", status=2, environment=environment)
    if not done.stderr.startswith("dmlvk: NoDeviceError: "):
        raise Failed(f"python -m dmlvk devices says, without a device: {done.stderr}")
    say(done.stderr.strip())
    doctor = json.loads(command("doctor", "--json", status=1, environment=environment).stdout)
    mends = [item["mend"] for item in doctor["findings"] if item["state"] == "fault"]
    if not mends or not all(mends):
        raise Failed(f"without a device the doctor advises {mends}")
    say(f"the doctor advises: {mends[0]}")


def broken_loader(folder: Path) -> dict[str, str]:
    """An environment in which the loader is no library: what a machine without one looks like to whoever opens it."""
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (folder / name).write_text("no library")
    return {"LD_LIBRARY_PATH": str(folder)}


def check_device() -> None:
    """Operators, graphs and the command line do their work."""
    import dmlvk

    devices = json.loads(command("devices", "--json").stdout)
    say(f"{len(devices)} devices; chosen is {dmlvk.Device().info.name}")
    command("doctor")
    listed = json.loads(command("ops", "--json").stdout)["operators"]
    implemented = sum(row["status"] == "implemented" for row in listed)
    say(f"{implemented} of {len(listed)} operators implemented")
    say(command("verify", "--quick", *OPERATORS).stdout.strip().splitlines()[-1])

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = dmlvk.Graph()
    a = graph.input((2, 3))
    product = graph.compile(a @ graph.constant(np.ones((3, 2), np.float32)) + 1.0)
    np.testing.assert_array_equal(product(x).numpy(), [[4, 4], [13, 13]])
    np.testing.assert_array_equal(dmlvk.eager.activation_relu(x - 2), np.maximum(x - 2, 0))
    say("an operator and a graph agree with numpy")


def check_model(folder: Path) -> None:
    """An ONNX model, where the extra is installed."""
    if importlib.util.find_spec("onnx") is None:
        say("not tried: ONNX, since the extra onnx is not installed")
        return
    path = folder / "model.onnx"
    subprocess.run([sys.executable, "-c", MODEL, str(path)], check=True)
    report = json.loads(command("run", str(path), "--json").stdout)["report"]
    if report["gpu_nodes"] and report["dispatches"] == 1:
        say("an ONNX model runs, its node on the device")
    else:
        raise Failed(f"the report of a model of one node is {report}")


def check_evidence(folder: Path) -> None:
    """The benchmark and the pages, where what brings them is installed."""
    if importlib.util.find_spec("dmlvk_bench") is None:
        error = command("bench", status=2).stderr
        if not error.startswith("dmlvk: MissingPackageError: ") or "pip install dmlvk-bench" not in error:
            raise Failed(f"without the distribution dmlvk-bench the answer to bench is: {error}")
        say(error.strip())
    else:
        check_benchmark(folder)
    page = ("verify", "--quick", "ElementWiseAbs", "--html", str(folder / "card.html"))
    if all(importlib.util.find_spec(name) for name in ("jinja2", "matplotlib")):
        command(*page)
        say(f"an accuracy card as a page of {(folder / 'card.html').stat().st_size} bytes")
        return
    error = command(*page, status=2).stderr
    if not error.startswith("dmlvk: MissingPackageError: ") or "dmlvk[report]" not in error:
        raise Failed(f"without the extra report a page is asked for and the answer is: {error}")
    say(error.strip())


def check_benchmark(folder: Path) -> None:
    """The benchmark measures a problem, and compares the results that it kept."""
    said = command("bench", "--quick", "--suite", "matmul", "--only", "integer", "--json", str(folder / "bench.json"))
    say(said.stdout.strip().splitlines()[-1])
    command("bench", "compare", str(folder / "bench.json"), str(folder / "bench.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-device", action="store_true", help="there is no Vulkan driver here")
    options = parser.parse_args()
    check_import()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.without_device:
            check_absence({})
            return
        check_device()
        check_model(folder)
        check_evidence(folder)
        if sys.platform == "linux":
            check_absence(broken_loader(folder))


if __name__ == "__main__":
    try:
        main()
    except Failed as reason:
        sys.exit(f"[smoke test] FAILED: {reason}")
