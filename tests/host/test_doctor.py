"""``python -m dmlvk doctor`` on machines that lack something: fake roots and environments, one finding each."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from dmlvk import cli
from dmlvk.devices.capabilities import FEATURE_NAMES, Capabilities
from dmlvk.doctor import command, findings, trial
from dmlvk.doctor.findings import Finding
from dmlvk.doctor.system import System
from dmlvk.runtime.device import DeviceInfo
from dmlvk.spec.errors import NoDeviceError

NATIVE = pathlib.Path(__file__).parent.parent.parent / "native" / "api.cpp"
APT = "sudo apt-get update && "
DEBIAN = "ID=debian\n"
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
FEDORA = "ID=fedora\n"
ARCH = "ID=manjaro\nID_LIKE=arch\n"
MANIFEST = "/usr/share/vulkan/icd.d/driver.json"
NVIDIA_KERNEL = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
NVIDIA_GPU = {"/sys/bus/pci/devices/0/class": "0x030200\n", "/sys/bus/pci/devices/0/vendor": "0x10de\n"}
AMD_GPU = {"/sys/bus/pci/devices/0/class": "0x030000\n", "/sys/bus/pci/devices/0/vendor": "0x1002\n"}
DOCKER_NVIDIA = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all"
INFO = DeviceInfo(0, "Device", "00000000-0000-0000-0000-000000000000", "driver 1", "cpu", (1, 3, 0), 1 << 30, {})

Make = Callable[..., System]


def manifest(library: str) -> str:
    return json.dumps({"ICD": {"library_path": library}})


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Make:
    """Makes a machine of files, an environment, libraries that cannot be opened and files that may not be used."""

    def make(
        files: dict[str, str], *, closed: dict[str, str] | None = None, forbidden: tuple[str, ...] = (), **given: Any
    ) -> System:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def opens(library: str) -> str:
            return next((reason for name, reason in (closed or {}).items() if library.endswith(name)), "")

        def may_use(path: pathlib.Path) -> bool:
            return f"/{path.relative_to(tmp_path)}" not in forbidden

        given = {"platform": "linux", "environment": {}, "is_root": False, **given}
        return System(root=tmp_path, opens=opens, may_use=may_use, **given)

    return make


def only(found: Any, state: str = "fault") -> Finding:
    (finding,) = [item for item in found if item.state == state]
    assert isinstance(finding, Finding)
    return finding


NO_LOADER = {"libvulkan.so.1": "no file", "libvulkan.so": "no file either"}


@pytest.mark.parametrize(
    ("release", "root", "mend"),
    [
        (DEBIAN, False, f"{APT}sudo apt-get install -y libvulkan1"),
        (UBUNTU, True, "apt-get update && apt-get install -y libvulkan1"),
        (FEDORA, False, "sudo dnf install -y vulkan-loader"),
        (ARCH, False, "sudo pacman -S --needed vulkan-icd-loader"),
        ("ID=other\n", False, "with this system's package manager, install the Vulkan loader"),
    ],
)
def test_no_loader(machine: Make, release: str, root: bool, mend: str) -> None:
    found = only(findings.loader(machine({"/etc/os-release": release}, closed=NO_LOADER, is_root=root)))
    assert (found.text, found.mend) == ("no file; no file either", mend)


def test_no_loader_on_other_systems(machine: Make) -> None:
    closed = {"vulkan-1.dll": "not found", "libvulkan.1.dylib": "not found"}
    assert "https://www.nvidia.com/drivers" in only(findings.loader(machine({}, closed=closed, platform="win32"))).mend
    assert only(findings.loader(machine({}, closed=closed, platform="darwin")), "ok").text == "libMoltenVK.dylib"
    closed["libMoltenVK.dylib"] = "not found"
    assert only(findings.loader(machine({}, closed=closed, platform="darwin"))).mend.startswith("brew install")


def test_the_loader_has_the_names_by_which_the_native_module_opens_it() -> None:
    names = re.findall(r'"((?:lib)?(?:vulkan|MoltenVK)[-\w.]*\.(?:so|so\.1|dll|dylib))"', NATIVE.read_text())
    assert sorted(names) == sorted(name for listed in findings.LOADERS.values() for name in listed)


def test_variables(machine: Make) -> None:
    nowhere = machine({"/a.json": ""}, environment={"VK_ICD_FILENAMES": "/a.json:/b.json", "HOME": "/"})
    found = only(findings.variables(nowhere))
    assert "/b.json" in found.text and "/a.json" not in found.text and found.mend == "unset VK_ICD_FILENAMES"
    in_force = {"DMLVK_PROFILE": "moltenvk", "VK_LOADER_LAYERS_DISABLE": "*", "VK_DRIVER_FILES": "/a.json"}
    notes = list(findings.variables(machine({}, environment=in_force, platform="linux")))
    assert [(item.state, item.part) for item in notes] == [("note", name) for name in sorted(in_force)]
    assert only(findings.variables(machine({}, environment={"VK_LAYER_PATH": "/c"}, platform="win32"))).mend == (
        "set VK_LAYER_PATH="
    )


def test_no_manifest(machine: Make) -> None:
    found = only(findings.drivers(machine({"/etc/os-release": DEBIAN})))
    assert found.mend == f"{APT}sudo apt-get install -y mesa-vulkan-drivers" and "/usr/share/vulkan/icd.d" in found.text


def test_manifests_and_their_libraries(machine: Make) -> None:
    assert only(findings.drivers(machine({MANIFEST: manifest("libdriver.so")})), "ok").text == "libdriver.so"
    narrow = {MANIFEST: manifest("/lib/libdriver.so"), "/etc/vulkan/icd.d/narrow.json": manifest("libnarrow.so")}
    found = list(findings.drivers(machine(narrow, closed={"libnarrow.so": "wrong ELF class"})))
    assert [(item.state, item.part) for item in found] == [("ok", f"driver {MANIFEST}")]
    closed = {"libdriver.so": "libz.so.1: no such file"}
    assert only(findings.drivers(machine({"/etc/os-release": DEBIAN}, closed=closed))).mend.endswith("mesa-vulkan-drivers")


def test_a_broken_manifest(machine: Make) -> None:
    assert "is no manifest" in only(findings.drivers(machine({MANIFEST: "{}"}))).text


def test_a_variable_replaces_what_is_installed(machine: Make) -> None:
    files = {MANIFEST: manifest("libinstalled.so"), "/own/own.json": manifest("./libown.so")}
    given = machine(files, environment={"VK_DRIVER_FILES": "/own", "VK_ICD_FILENAMES": "/none"})
    assert only(findings.drivers(given), "ok").part == "driver /own/own.json"
    added = machine(files, environment={"VK_ADD_DRIVER_FILES": "/own/own.json"})
    assert [item.state for item in findings.drivers(added)] == ["ok", "ok"]


def test_a_container_without_the_graphics_part_of_nvidias_driver(machine: Make) -> None:
    files = {"/proc/driver/nvidia/version": NVIDIA_KERNEL, MANIFEST: manifest("liblavapipe.so"), "/.dockerenv": ""}
    found = only(findings.drivers(machine(files, environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"})))
    assert "535.104.05" in found.text and "compute,utility" in found.text and DOCKER_NVIDIA in found.mend


def test_nvidias_driver_without_its_vulkan_part(machine: Make) -> None:
    files = {"/proc/driver/nvidia/version": NVIDIA_KERNEL, MANIFEST: manifest("liblavapipe.so"), "/etc/os-release": UBUNTU}
    assert only(findings.drivers(machine(files))).mend == f"{APT}sudo apt-get install -y libnvidia-gl-535"


def test_nvidias_driver_without_the_libraries_of_windows(machine: Make) -> None:
    files = {"/usr/share/vulkan/icd.d/nvidia_icd.json": manifest("libGLX_nvidia.so.0"), "/etc/os-release": DEBIAN}
    closed = {"libGLX_nvidia.so.0": "libX11.so.6: cannot open shared object file"}
    assert only(findings.drivers(machine(files, closed=closed))).mend == f"{APT}sudo apt-get install -y libx11-6 libxext6"


@pytest.mark.parametrize(
    ("files", "environment"),
    [
        ({"/run/.containerenv": ""}, {}),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
        ({"/proc/self/mountinfo": "612 529 0:56 / / rw,relatime - overlay overlay rw\n"}, {}),
    ],
)
def test_what_is_a_container(machine: Make, files: dict[str, str], environment: dict[str, str]) -> None:
    assert not machine({"/proc/self/mountinfo": "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}).in_container
    assert machine(files, environment=environment).in_container


def test_device_files_of_others(machine: Make) -> None:
    render = "/dev/dri/renderD128"
    found = only(findings.device_files(machine({render: ""}, forbidden=(render,))))
    assert render in found.text and re.match("sudo (usermod|chmod)", found.mend)
    within = machine({}, forbidden=(render,), environment={"container": "podman"})
    assert "docker run --group-add" in only(findings.device_files(within)).mend


@pytest.mark.parametrize(
    ("files", "mend"),
    [
        (AMD_GPU, "sudo modprobe amdgpu"),
        (NVIDIA_GPU, "https://www.nvidia.com/drivers"),
        ({**AMD_GPU, "/.dockerenv": ""}, "--device /dev/dri"),
        ({**NVIDIA_GPU, "/.dockerenv": ""}, DOCKER_NVIDIA),
    ],
)
def test_a_gpu_without_device_files(machine: Make, files: dict[str, str], mend: str) -> None:
    assert mend in only(findings.device_files(machine(files))).mend


def test_a_gpu_with_its_device_files(machine: Make) -> None:
    files = {**NVIDIA_GPU, "/dev/nvidia0": "", "/dev/nvidiactl": ""}
    assert [item.state for item in findings.device_files(machine(files))] == ["ok", "ok"]


def test_a_cache_that_cannot_be_written(machine: Make, tmp_path: pathlib.Path) -> None:
    system = machine({"/file": ""})
    assert "DMLVK_CACHE_DIR" in only(findings.cache(system, lambda: tmp_path / "file" / "cache")).mend
    assert only(findings.cache(system, lambda: tmp_path / "new" / "cache"), "ok").part == "pipeline cache"


def test_packages_that_are_not_installed(machine: Make) -> None:
    found = list(findings.packages(machine({}), lambda name: None if name in ("onnx", "jinja2") else name))
    assert [item.part for item in found if item.state == "note"] == ["onnx", "jinja2"]
    assert "'dmlvk[onnx]'" in found[0].mend


def test_no_device(machine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    system = machine({"/etc/os-release": DEBIAN})

    def fail(error: Exception) -> Callable[[], list[DeviceInfo]]:
        def find() -> list[DeviceInfo]:
            raise error

        return find

    for find, text in (
        (fail(NoDeviceError("the Vulkan loader is 1.1, dmlvk needs 1.3")), "the Vulkan loader is 1.1, dmlvk needs 1.3"),
        (fail(ImportError("no module _native")), "no module _native"),
        (list[DeviceInfo], "the drivers have no device of Vulkan 1.3"),
    ):
        found, faults = trial.find_devices(system, find)
        assert not found and only(faults).text.startswith(text) and only(faults).mend
    monkeypatch.setenv("DMLVK_DEVICE", "another")
    found, faults = trial.find_devices(system, lambda: [INFO])
    assert found == [INFO] and only(faults).part == "DMLVK_DEVICE"


def test_a_gpu_that_the_drivers_do_not_find(machine: Make) -> None:
    files = {**AMD_GPU, "/etc/os-release": ARCH}
    found = only(trial.overlooked(machine(files), [INFO]), "note")
    assert "a GPU of AMD" in found.text and found.mend == "sudo pacman -S --needed vulkan-swrast vulkan-radeon vulkan-intel"
    replaced = machine(files, environment={"VK_ICD_FILENAMES": "/lavapipe.json"})
    assert only(trial.overlooked(replaced, [INFO]), "note").mend == "unset VK_ICD_FILENAMES"
    assert not list(trial.overlooked(machine(files), [INFO, dataclasses.replace(INFO, type="discrete")]))


def test_features_that_a_device_lacks() -> None:
    assert not list(trial.lacks("device", Capabilities(frozenset(FEATURE_NAMES))))
    found = list(trial.lacks("device", Capabilities(frozenset(FEATURE_NAMES) - {"subgroup_shuffle", "storage16"})))
    assert "subgroup_shuffle" in only(found).text
    assert "FLOAT16 (storage16)" in only(found, "note").text and "subgroup" not in only(found, "note").text


def test_without_a_device_the_status_is_1_and_every_fault_has_a_mend(
    machine: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    system = machine({"/etc/os-release": DEBIAN}, closed=NO_LOADER)
    fault = Finding("fault", "devices", "no Vulkan loader", "mend")
    monkeypatch.setattr(command, "find_devices", lambda _: ([], [fault]))
    examine = command.diagnose
    monkeypatch.setattr(command, "diagnose", lambda _, say: examine(system, say))
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert f"-> {APT}sudo apt-get install -y libvulkan1" in said and said.endswith(
        "0 of 0 devices work; mend the faults above\n"
    )
    assert cli.main(["doctor", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["works"] is False and told["devices"] == []
    assert all(item["mend"] for item in told["findings"] if item["state"] == "fault")


def test_every_no_device_error_names_the_doctor() -> None:
    assert str(NoDeviceError("there is none")) == "there is none; `python -m dmlvk doctor` says what mends it"
