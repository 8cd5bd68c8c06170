"""Build the wheels of dmlvk and of its benchmark, look into them, install them into a clean virtual environment outside the
checkout and try them there.

    .venv/bin/python tools/check_wheel.py [WHEEL]

WHEEL is dmlvk's, which is then not built. A build reuses the objects in build/. Exit status 1, with every fault that was
found.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"

#: Wheels of what dmlvk depends on, kept: a second run needs no network.
KEPT = ROOT / ".cache" / "wheels"

#: Compiled in, besides dmlvk's own code; each has a text in native/licenses/.
LICENCES = ("LICENSE", "Kompute.txt", "VulkanMemoryAllocator.txt", "Vulkan-Headers.txt", "nanobind.txt")
EXPRESSION = {"Apache-2.0", "BSD-3-Clause", "MIT"}
EXTRAS = {"dispatch", "docs", "llm", "onnx", "ray", "report", "serve", "test", "torch"}

#: Files that are made among the sources by running or building in place, by suffix.
MADE = (".partial", ".pyc", ".pyd", ".so", ".zip")

#: Made among the sources, too: what type checkers know of the operators.
STUBS = ("dmlvk/eager.pyi", "dmlvk/graph_methods.pyi")

#: What a wheel would be useless, or untyped, without.
NEEDED = ("dmlvk/py.typed", "dmlvk/runtime/_native.pyi", "dmlvk/ort/_plugin.pyi", "dmlvk/kernels/kernels.zip", *STUBS)

#: The native modules: the one that computes, and ONNX Runtime's plug-in.
MODULES = ("dmlvk/runtime/_native", "dmlvk/ort/_plugin")

#: What the native module may be linked with: the C library, in its parts. Vulkan's loader is opened at run time.
LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux[-\w]*)\.so\.\d+")

#: What a user writes. mypy must reveal the types below, in their order, and refuse the lines that say so.
TYPED = """
import numpy as np

import dmlvk
from dmlvk import ElementWiseAdd, TensorDataType, TensorDesc

array = np.ones((2, 3), np.float32)
on_device = dmlvk.DeviceArray.from_numpy(array)
graph = dmlvk.Graph()
x = graph.input((2, 3))
function = graph.compile(graph.activation_softmax1(x + array, axes=(1,)))
tensor = TensorDesc(TensorDataType.FLOAT32, (2, 3))
operator = dmlvk.Device().create_operator(ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor))
reveal_type(function)
reveal_type(function(array))
reveal_type(graph.compile(x, x + array)(array))
reveal_type(graph.compile(*[x])(array))
reveal_type(tensor.total_tensor_size_in_bytes)
reveal_type(operator)
reveal_type(dmlvk.eager.element_wise_add([[1.0]], array))
reveal_type(dmlvk.eager.element_wise_add(array, on_device))
reveal_type(graph.gemm(x, x, trans_b=dmlvk.MatrixTransform.TRANSPOSE))
reveal_type(dmlvk.eager.random_generator(array))
reveal_type(dmlvk.eager.random_generator(array, outputs=("output_state_tensor",)))
reveal_type(dmlvk.eager.random_generator(on_device, outputs=["output_state_tensor"]))
reveal_type(graph.split(x, axis=1, output_sizes=((2, 1), (2, 2))))
count: str = dmlvk.Device().dispatches  # refused
dmlvk.nosuchname  # refused
dmlvk.eager.nosuchfunction(1)  # refused
dmlvk.eager.reduce(array, function=dmlvk.ReduceFunction.SUM, axis=(1,))  # refused
dmlvk.eager.gemm(array)  # refused
graph.nosuchmethod(x)  # refused
graph.activation_softmax1(x, axis=(1,))  # refused
graph.activation_softmax1(array, axes=(1,))  # refused
graph.gemm(x, x, alpha="2")  # refused
graph.split(x, axis=1)  # refused
first, second = function(array)  # refused
dmlvk.eager.random_generator(array, outputs=("nosuchoutput",))  # refused
"""
REVEALED = (
    "dmlvk.builder.Function[dmlvk.engine.device_array.DeviceArray]",
    "dmlvk.engine.device_array.DeviceArray",
    "tuple[dmlvk.engine.device_array.DeviceArray, dmlvk.engine.device_array.DeviceArray]",
    "dmlvk.engine.device_array.DeviceArray | tuple[dmlvk.engine.device_array.DeviceArray, ...]",
    "int",
    "dmlvk.directml.operator.Operator",
    "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]",
    "dmlvk.engine.device_array.DeviceArray",
    "dmlvk.builder.Expression",
    "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]",
    "tuple[numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]], numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]]",
    "dmlvk.engine.device_array.DeviceArray | tuple[dmlvk.engine.device_array.DeviceArray, ...]",
    "tuple[dmlvk.builder.Expression, ...]",
)

#: What README's snippets take as given.
GIVEN = """
from typing import Any

array: Any
x: Any
"""


def say(message: str) -> None:
    print(f"[wheel] {message}", flush=True)


def run(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command outside the checkout's own paths; its output comes back."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True)


def build(project: Path, folder: Path) -> Path:
    """The wheel of a project of this checkout, made in ``folder``."""
    done = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, project)
    if done.returncode:
        sys.exit(f"[wheel] the build failed:\n{done.stdout}{done.stderr}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_faults(metadata: Message) -> Iterator[str]:
    """What is missing of the metadata."""
    for field in (
        "Name",
        "Version",
        "Summary",
        "Keywords",
        "License-Expression",
        "Requires-Python",
        "Description-Content-Type",
    ):
        if not metadata[field]:
            yield f"METADATA has no {field}"
    if set(re.split(r" AND ", metadata["License-Expression"] or "")) != EXPRESSION:
        yield f"METADATA's License-Expression is {metadata['License-Expression']}"
    if lacking := EXTRAS - set(metadata.get_all("Provides-Extra") or []):
        yield f"METADATA has no extras {', '.join(sorted(lacking))}"
    needed = [text for text in metadata.get_all("Requires-Dist") or [] if "extra ==" not in text]
    if [re.split(r"\W", text)[0] for text in needed] != ["numpy", "click"]:
        yield f"METADATA requires {needed}, where numpy and click are all"
    if "Typing :: Typed" not in (metadata.get_all("Classifier") or []):
        yield "METADATA lacks the classifier Typing :: Typed"


def module_faults(module: Path) -> Iterator[str]:
    """What a Linux user's machine could not load of the native module, or what the build left in it."""
    dynamic = subprocess.run(["readelf", "-dW", str(module)], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
        if not LIBRARIES.fullmatch(library):
            yield f"{module.name} is linked with {library}"
    if found := re.search(r"\((RPATH|RUNPATH)\).*", dynamic):
        yield f"{module.name} has a search path: {found[0]}"
    if str(ROOT).encode() in module.read_bytes():
        yield f"{module.name} contains the path of the build"


def faults(wheel: Path) -> list[str]:
    """All that is wrong with a wheel's contents, one sentence each."""
    found: list[str] = []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as scratch:
        names = archive.namelist()
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        information = record.rpartition("/")[0]
        found += [f"{name} lies outside the package" for name in names if not name.startswith(("dmlvk/", f"{information}/"))]
        found += [f"{name} is missing" for name in NEEDED if name not in names]
        metadata = email.message_from_bytes(archive.read(f"{information}/METADATA"))
        found += metadata_faults(metadata)
        licences = metadata.get_all("License-File") or []
        for name in LICENCES:
            paths = [path for path in licences if path.rpartition("/")[2] == name]
            if not paths or any(not archive.read(f"{information}/licenses/{path}").strip() for path in paths):
                found.append(f"the licence {name} is missing")
        modules = []
        for module in MODULES:
            found_here = [name for name in names if re.fullmatch(rf"{module}\..*(so|pyd)", name)]
            if len(found_here) != 1:
                found.append(f"there are the native modules {found_here}, where one {module} is wanted")
            modules += found_here
        found += [
            fault
            for name in modules
            if name.endswith(".so")
            for fault in module_faults(Path(archive.extract(name, scratch)))
        ]
    return found


def differences(wheel: Path, package: Path) -> list[str]:
    """Files that are in a package's sources or in its wheel alone. Styles and scripts are easily forgotten, and what an
    earlier build left is easily taken along."""
    sources = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    alone = [(name, "sources", "wheel") for name in sources - packed] + [(n, "wheel", "sources") for n in packed - sources]
    return [
        f"{name} is in the {one} and not in the {other}"
        for name, one, other in sorted(alone)
        if Path(name).suffix not in MADE and name not in STUBS
    ]


def bench_faults(wheel: Path) -> Iterator[str]:
    """What is wrong with the contents of the benchmark's wheel."""
    yield from differences(wheel, BENCH / "src" / "dmlvk_bench")
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/entry_points.txt"))
    if not wheel.name.endswith("-py3-none-any.whl"):
        yield f"{wheel.name} is not for every Python and every platform"
    if "[dmlvk.commands]\nbench = " not in entries:
        yield f"{wheel.name} adds no command bench: {entries}"


def snippets(page: str) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def type_faults(python: Path, folder: Path) -> Iterator[str]:
    """What this environment's mypy does not know of the package that is installed for ``python``."""
    script = folder / "script.py"
    script.write_text(TYPED)
    options = ("--strict", "--config-file", os.devnull, "--python-executable", python)
    said = run(sys.executable, "-m", "mypy", *options, script, folder=folder).stdout
    if tuple(re.findall(r'Revealed type is "(.+)"$', said, re.MULTILINE)) != REVEALED:
        yield f"mypy reveals other types of a script than {REVEALED}: {said}"
    refused = {number for number, line in enumerate(TYPED.splitlines(), 1) if line.endswith("# refused")}
    if {int(number) for number in re.findall(r"^script\.py:(\d+): error: ", said, re.MULTILINE)} != refused:
        yield f"mypy refuses other lines of a script than {sorted(refused)}: {said}"
    for index, block in enumerate(snippets((ROOT / "README.md").read_text(encoding="utf-8"))):
        snippet = folder / f"snippet{index}.py"
        snippet.write_text(GIVEN + block)
        checked = run(sys.executable, "-m", "mypy", *options, snippet, folder=folder)
        if checked.returncode:
            yield f"mypy refuses a snippet of README: {checked.stdout}"


def install(wheel: Path, bench: Path, folder: Path) -> Path:
    """The Python of a new virtual environment in ``folder`` with dmlvk's wheel, its extra onnx and the benchmark.

    The extra report, which the benchmark asks for, is left out: the smoke test tries what is said without it.
    """
    venv.create(folder / "clean", with_pip=True)
    python = folder / "clean" / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
    offline = (*pip, "install", "--no-index", "--find-links", KEPT, f"{wheel}[onnx]")
    if run(*offline, folder=folder).returncode:
        run(*pip, "download", "--dest", KEPT, f"{wheel}[onnx]", folder=folder)
        (KEPT / wheel.name).unlink(missing_ok=True)  # the one that was given is the one to try
        done = run(*offline, folder=folder)
        if done.returncode:
            sys.exit(f"[wheel] the installation failed:\n{done.stderr}")
    done = run(*pip, "install", "--no-index", "--no-deps", bench, folder=folder)
    if done.returncode:
        sys.exit(f"[wheel] the installation of the benchmark failed:\n{done.stderr}")
    return python


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheel = Path(sys.argv[1]).resolve() if sys.argv[1:] else build(ROOT, folder / "dmlvk")
        bench = build(BENCH, folder / "bench")
        found = [*faults(wheel), *differences(wheel, ROOT / "src" / "dmlvk"), *bench_faults(bench)]
        sizes = " and ".join(f"{path.name}, {path.stat().st_size / 2**20:.2f} MiB" for path in (wheel, bench))
        say(f"{sizes}: {len(found)} faults in their contents")

        python = install(wheel, bench, folder)
        unknown = list(type_faults(python, folder))
        say(f"types: {len(unknown)} faults")
        tried = run(python, ROOT / "tools" / "smoke_test.py", folder=folder)
        print(tried.stdout, end="", flush=True)
        if tried.returncode:
            found.append(f"it does not work where it is installed: {tried.stderr.strip()}")
        if found or unknown:
            sys.exit("\n".join(f"[wheel] FAULT: {fault}" for fault in [*found, *unknown]))
        say("installed into a clean environment, where it works")


if __name__ == "__main__":
    main()
