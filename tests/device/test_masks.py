"""Devices that do as lesser ones: what is masked is off in Vulkan too, asking for it is a typed error, the rest runs."""

from __future__ import annotations

import json
import os

import numpy as np
import numpy.typing as npt
import pytest

import dmlvk
from dmlvk.cli import main
from dmlvk.devices.capabilities import FEATURE_NAMES
from dmlvk.devices.profiles import PROFILES
from dmlvk.kernels.common.library import spirv
from dmlvk.kernels.common.plan import KernelVariant
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime import _native
from dmlvk.runtime.device import validation_messages
from dmlvk.spec.errors import UnsupportedError
from dmlvk.verify.machine import describe

WHOLE = np.arange(-5000, 5000, dtype=np.float32).reshape(20, 500)
"""Numbers whose sums are exact, in any order."""

DOUBLE = (("LANES", "1"), ("T", "FLOAT64"), ("U", "FLOAT64"))


def sums(device: dmlvk.Device, values: npt.NDArray[np.generic] = WHOLE) -> npt.NDArray[np.generic]:
    """The sums of rows, which take subgroups' additions and shared memory."""
    found: npt.NDArray[np.generic] = dmlvk.eager.reduce(values, function=dmlvk.ReduceFunction.SUM, axes=(1,), device=device)
    return found


def check_runs(device: dmlvk.Device) -> None:
    """What every device can do."""
    np.testing.assert_array_equal(sums(device), WHOLE.sum(1, keepdims=True))
    factor = WHOLE[:, :40] / 1000
    np.testing.assert_allclose(dmlvk.eager.gemm(factor, factor.T.copy(), device=device), factor @ factor.T, rtol=1e-5)


@pytest.mark.quick
def test_names_are_those_of_the_native_module() -> None:
    assert _native.FEATURE_NAMES == FEATURE_NAMES


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_device_that_runs(name: str) -> None:
    device = dmlvk.Device(mask=dmlvk.Mask(name))
    assert describe(device).mask == f"profile {name}"
    on = {feature for feature, there in device.native.features.items() if there}
    assert device.capabilities.features <= on
    assert on <= PROFILES[name].capabilities.features | {"subgroup_size_control", "full_subgroups"}
    check_runs(device)
    with pytest.raises(UnsupportedError, match="float64") as caught:
        dmlvk.eager.cast(WHOLE, output_data_types=dmlvk.TensorDataType.FLOAT64, device=device)
    assert caught.value.limitation == "features"


def test_a_masked_feature_is_off_in_vulkan_too() -> None:
    """A kernel that used a masked feature without asking would be found out, by a strict driver or by the layer."""
    if os.environ.get("DMLVK_VALIDATION") != "1":
        pytest.skip("it takes the validation layer to tell")
    kernel = KERNELS["elementwise_unary"]
    for mask, complaints in ((dmlvk.Mask(), False), (dmlvk.Mask(disable=("float64",)), True)):
        device = dmlvk.Device(mask=mask)
        device.native.kernel(
            spirv(kernel.name, DOUBLE),
            name=kernel.name,
            storage_buffers=len(kernel.buffers),
            has_params=bool(kernel.params),
            push_bytes=4 * len(kernel.buffers),
        )
        assert any("Float64" in message for message in validation_messages()) == complaints


def test_a_workgroup_larger_than_the_masked_limit_is_refused() -> None:
    device = dmlvk.Device(mask=dmlvk.Mask("vulkan13-minimum"))
    kernel = next(spec for spec in KERNELS.values() if "LOCAL_SIZE_X" in dict(spec.constants) and not spec.variants)
    with pytest.raises(ValueError, match=f"{kernel.name}: workgroup invocations 256 exceeds 128"):
        device.kernel(KernelVariant(kernel.name, constants=(("LOCAL_SIZE_X", 256),)))


def test_the_mask_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DMLVK_PROFILE", "moltenvk")
    monkeypatch.setenv("DMLVK_DISABLE", "8bit")
    device = dmlvk.Device()
    assert device.mask == dmlvk.Mask("moltenvk", ("8bit",))
    assert not {"int8", "storage8", "float64"} & device.capabilities.features
    assert dmlvk.Device(mask=dmlvk.Mask()).capabilities.features > device.capabilities.features, "an argument goes first"
    assert main(["devices"]) == 0
    text = capsys.readouterr().out
    assert "mask: profile moltenvk, without 8bit" in text
    assert all(name in text for name in PROFILES)
    assert main(["devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["mask"] == "profile moltenvk, without 8bit"


@pytest.mark.quick
def test_a_subgroup_size_is_the_devices_own_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = dmlvk.Device(mask=dmlvk.Mask())
    size, most = plain.capabilities.subgroup_size, plain.capabilities.maximum_subgroup_size
    monkeypatch.setenv("DMLVK_SUBGROUP_SIZE", str(size))
    device = dmlvk.Device()
    assert device.capabilities.subgroup_size == device.capabilities.minimum_subgroup_size == size
    check_runs(device)
    monkeypatch.setenv("DMLVK_SUBGROUP_SIZE", str(2 * most))
    with pytest.raises(UnsupportedError, match=f"subgroups of {2 * most}"):
        dmlvk.Device()


def test_every_kernel_requires_the_size() -> None:
    """The subgroup size is required as on a device that has several. There is none here, so it is the size that it has."""
    device = dmlvk.Device(mask=dmlvk.Mask())
    size = device.capabilities.subgroup_size
    device._subgroup_size = size
    check_runs(device)
    device._subgroup_size = 2 * device.capabilities.maximum_subgroup_size
    with pytest.raises(ValueError, match="subgroup_size"):
        sums(device, WHOLE.astype(np.int32))
