"""What makes wheels: the metadata, cibuildwheel's configuration, the workflows, and the check of a wheel."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from typing import Any

import check_wheel
import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CIBUILDWHEEL: dict[str, Any] = PROJECT["tool"]["cibuildwheel"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

METADATA = """\
Metadata-Version: 2.4
Name: dmlvk
Version: 0
Summary: Text
Keywords: Vulkan
License-Expression: Apache-2.0 AND BSD-3-Clause AND MIT
License-File: LICENSE
License-File: native/licenses/Kompute.txt
License-File: native/licenses/Vulkan-Headers.txt
License-File: native/licenses/VulkanMemoryAllocator.txt
License-File: native/licenses/nanobind.txt
Classifier: Typing :: Typed
Requires-Python: >=3.11
Requires-Dist: numpy>=1.26
Requires-Dist: click>=8.1.7
Requires-Dist: onnx>=1.17; extra == "onnx"
Provides-Extra: dispatch
Provides-Extra: docs
Provides-Extra: llm
Provides-Extra: onnx
Provides-Extra: ray
Provides-Extra: report
Provides-Extra: serve
Provides-Extra: test
Provides-Extra: torch
Description-Content-Type: text/markdown
"""
INFORMATION = "dmlvk-0.dist-info"
LICENCES = [f"{INFORMATION}/licenses/{path}" for path in re.findall("License-File: (.+)", METADATA)]


def contents() -> dict[str, bytes]:
    """Files of a wheel without faults, around this machine's own native module."""
    spec = importlib.util.find_spec("dmlvk.runtime._native")
    assert spec is not None and spec.origin is not None
    module = pathlib.Path(spec.origin)
    (plugin,) = (module.parent.parent / "ort").glob("_plugin.*[od]")  # .so or .pyd
    files = dict.fromkeys((*check_wheel.NEEDED, *LICENCES), b"text")
    files[f"{INFORMATION}/RECORD"] = b""
    files[f"{INFORMATION}/METADATA"] = METADATA.encode()
    files[f"dmlvk/runtime/{module.name}"] = module.read_bytes()
    files[f"dmlvk/ort/{plugin.name}"] = plugin.read_bytes()
    return files


def faults(folder: pathlib.Path, files: dict[str, bytes]) -> list[str]:
    with zipfile.ZipFile(folder / "dmlvk-0-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return check_wheel.faults(folder / "dmlvk-0-py3-none-any.whl")


def test_a_wheel_without_faults(tmp_path: pathlib.Path) -> None:
    assert faults(tmp_path, contents()) == []


@pytest.mark.parametrize("name", check_wheel.NEEDED)
def test_what_is_missing_is_named(tmp_path: pathlib.Path, name: str) -> None:
    files = contents()
    del files[name]
    assert faults(tmp_path, files) == [f"{name} is missing"]


@pytest.mark.parametrize("name", LICENCES)
def test_an_empty_licence_is_a_fault(tmp_path: pathlib.Path, name: str) -> None:
    assert faults(tmp_path, contents() | {name: b" "}) == [f"the licence {name.rpartition('/')[2]} is missing"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Keywords: Vulkan\n", "", "METADATA has no Keywords"),
        (" AND BSD-3-Clause", "", "METADATA's License-Expression is Apache-2.0 AND MIT"),
        ("Provides-Extra: docs\n", "", "METADATA has no extras docs"),
        ("numpy>=1.26", "torch", "METADATA requires ['torch', 'click>=8.1.7'], where numpy and click are all"),
        ("License-File: native/licenses/nanobind.txt\n", "", "the licence nanobind.txt is missing"),
        ("Typing :: Typed", "Typing :: Stubs Only", "METADATA lacks the classifier Typing :: Typed"),
    ],
)
def test_metadata_that_lacks_something(tmp_path: pathlib.Path, old: str, new: str, fault: str) -> None:
    assert old in METADATA
    changed = METADATA.replace(old, new).encode()
    assert faults(tmp_path, contents() | {f"{INFORMATION}/METADATA": changed}) == [fault]


def test_what_lies_outside_the_package_is_a_fault(tmp_path: pathlib.Path) -> None:
    assert faults(tmp_path, contents() | {"tests/test.py": b""}) == ["tests/test.py lies outside the package"]


def wheel_of(path: pathlib.Path, *names: str) -> pathlib.Path:
    """A wheel with files of these names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def test_a_wheel_has_what_the_sources_have_and_nothing_else(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    for name in ("style.css", "module.py", "module.pyc"):
        (package / name).touch()
    wheel = wheel_of(tmp_path / "w.whl", "package/module.py", "package/bench.py", "package/_native.so", "w.dist-info/RECORD")
    assert check_wheel.differences(wheel, package) == [
        "package/bench.py is in the wheel and not in the sources",
        "package/style.css is in the sources and not in the wheel",
    ]


@pytest.mark.slow
def test_the_wheel_of_the_benchmark(tmp_path: pathlib.Path) -> None:
    assert list(check_wheel.bench_faults(check_wheel.build(check_wheel.BENCH, tmp_path))) == []


def test_a_module_that_was_linked_carelessly(tmp_path: pathlib.Path) -> None:
    source, module = tmp_path / "module.cpp", tmp_path / "_native.so"
    source.write_text(f'extern const char path[] = "{ROOT}/build";\n')
    options = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-rpath,/somewhere", "-l:libvulkan.so.1"]
    subprocess.run(["g++", source, *options, "-o", module], check=True)
    files = {name: data for name, data in contents().items() if "_native." not in name or name.endswith(".pyi")}
    found = faults(tmp_path, files | {"dmlvk/runtime/_native.so": module.read_bytes()})
    assert any(fault == "_native.so is linked with libvulkan.so.1" for fault in found)
    assert any("has a search path" in fault and "/somewhere" in fault for fault in found)
    assert "_native.so contains the path of the build" in found


@pytest.mark.slow
def test_the_source_distribution_has_what_the_build_needs(tmp_path: pathlib.Path) -> None:
    script = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    tools = ("tools/build_kernels.py", "tools/generate_stubs.py")
    needed = [ROOT / name for name in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", *tools)]
    for folder in ("glsl", "native", "src/dmlvk"):
        needed += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix not in check_wheel.MADE]
    stubs = {f"src/{name}" for name in check_wheel.STUBS}
    assert {path.relative_to(ROOT).as_posix() for path in needed} - names - stubs == set()
    assert not any(name.startswith(("tests/", "bench/", "docs/")) for name in names)


def test_the_licences_are_those_that_the_wheel_names() -> None:
    files = {path.name for pattern in PROJECT["project"]["license-files"] for path in ROOT.glob(pattern)}
    assert files == set(check_wheel.LICENCES)
    assert set(PROJECT["project"]["optional-dependencies"]) == check_wheel.EXTRAS


@pytest.mark.parametrize(
    ("platform", "tag"), [("linux", "manylinux_x86_64"), ("windows", "win_amd64"), ("macos", "macosx_arm64")]
)
def test_cibuildwheel_reads_its_configuration(platform: str, tag: str) -> None:
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform, str(ROOT)]
    archs = ["--archs", "x86_64"] if platform == "linux" else []
    listed = subprocess.run([*command, *archs], check=True, capture_output=True, text=True).stdout.split()
    assert {f"cp311-{tag}", f"cp312-{tag}"} <= set(listed)
    assert all(name.endswith(tag) for name in listed), "no PyPy, no 32 bits, no musl"


@pytest.mark.parametrize("platform", ["linux", "windows", "macos"])
def test_every_platform_tries_what_it_built(platform: str) -> None:
    command = CIBUILDWHEEL[platform]["test-command"]
    (script,) = re.findall(r"\{project\}/(\S+)", command)
    assert (ROOT / script).is_file()
    assert ("--without-device" in command) == (platform != "linux"), "only Linux has a driver there"


def test_every_platform_takes_the_pack_that_the_workflow_hands_on() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["wheels"]["steps"]
    (handed,) = (step["with"] for step in steps if step.get("uses", "").startswith("actions/download-artifact"))
    for table in (CIBUILDWHEEL, CIBUILDWHEEL["macos"]):
        assert table["environment"]["CMAKE_ARGS"] == f"-DDMLVK_KERNELS={handed['path']}/kernels.zip"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one(path: pathlib.Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["name"] == path.stem
    assert True in workflow, "on: is read as the boolean"
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["runs-on"]
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), name
            for action in re.findall(r"^[^@]+@(.+)$", step.get("uses", "")):
                assert re.fullmatch(r"v\d+", action)
            for script in re.findall(r"(?:^|\s)((?:\.ci|tools)/\S+)", step.get("run", "")):
                assert (ROOT / script).is_file()


def test_there_are_workflows() -> None:
    assert {path.name for path in WORKFLOWS} == {"ci.yml", "wheels.yml"}


def test_the_native_modules_keep_to_the_interface_that_a_wheel_for_several_versions_has() -> None:
    """3.12's wheel has Python's stable interface, in which the macros that look into objects (``PyList_GET_ITEM``) are not:
    a build for 3.11 takes them, and the wheel for all later versions fails to compile."""
    macro = re.compile(r"\bPy[A-Z][A-Za-z]+_(?:GET|SET|AS)_[A-Z_]+\b")
    found = {
        f"{path.name}: {name}"
        for path in sorted((ROOT / "native").rglob("*.[ch]*"))
        for name in macro.findall(path.read_text(encoding="utf-8"))
    }
    assert found == set()
