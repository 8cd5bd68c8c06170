"""Memory and timelines shared with CUDA: what Vulkan exports here, what CUDA is asked for by a stand-in, all of it where
there is CUDA."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest
import torch

import dmlvk
import dmlvk.torch
from dmlvk.spec.errors import InvalidArgumentError, StateError, UnsupportedError
from dmlvk.torch.memory import held
from dmlvk.torch.shared import CudaDevice, Sharing

DEVICE = dmlvk.default_device()
exports = pytest.mark.skipif("external_memory" not in DEVICE.capabilities.features, reason="the device exports no memory")


class StandIn:
    """Notes what CUDA is asked for. A descriptor that it takes is its own to close."""

    ordinal = 0

    def __init__(self, *, refuses: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refuses = refuses
        self.descriptor = -1

    def import_memory(self, descriptor: int, nbytes: int) -> int:
        self.descriptor = descriptor
        self.calls.append(("import", nbytes))
        if self.refuses:
            raise StateError("refused")
        os.close(descriptor)
        return 7

    def mapped(self, memory: int, nbytes: int) -> int:
        self.calls.append(("map", memory, nbytes))
        return 0x1000

    def release(self, memory: int, address: int) -> None:
        self.calls.append(("release", memory, address))

    def import_timeline(self, descriptor: int) -> int:
        self.calls.append(("timeline", descriptor))
        return 100 + descriptor

    def signal(self, timeline: int, value: int, stream: int) -> None:
        self.calls.append(("CUDA signals", timeline, value, stream))

    def wait(self, timeline: int, value: int, stream: int) -> None:
        self.calls.append(("CUDA waits", timeline, value, stream))


class Timeline:
    """Stands in for a timeline of a device."""

    def __init__(self, name: int, calls: list[tuple[Any, ...]]) -> None:
        self.name, self.calls = name, calls

    def export_semaphore(self) -> int:
        return self.name

    def signal(self, value: int) -> None:
        self.calls.append(("dmlvk signals", self.name, value))

    def wait(self, value: int) -> None:
        self.calls.append(("dmlvk waits", self.name, value))


class Timelines:
    """Stands in for a device that exports timelines."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self.calls, self.made = calls, 0

    def shared_timeline(self) -> Timeline:
        self.made += 1
        return Timeline(self.made, self.calls)


@exports
def test_shared_tensors_are_tensors_of_the_device() -> None:
    x = dmlvk.torch.empty_shared(3, 5, dtype=torch.bfloat16)
    x.copy_(torch.arange(15.0).reshape(3, 5))
    assert torch.equal((x[1:] + 1).cpu(), (torch.arange(15.0).reshape(3, 5)[1:] + 1).bfloat16())


@exports
def test_an_exported_buffer_gives_a_descriptor_of_all_its_memory() -> None:
    buffer = DEVICE.create_buffer(1000, exported=True)
    first, nbytes = buffer.export_memory()
    second, _ = buffer.export_memory()
    assert first != second and nbytes >= 1000
    for descriptor in (first, second):
        os.close(descriptor)  # fails where it is none
    buffer.write(np.arange(250, dtype=np.int32))
    assert np.array_equal(buffer.read(1000).view(np.int32), np.arange(250))


def test_another_buffer_has_no_memory_for_others() -> None:
    with pytest.raises(StateError, match="exported=True"):
        DEVICE.create_buffer(64).export_memory()
    with pytest.raises(ValueError, match="not allocated to be exported"):
        DEVICE.create_buffer(64).native.export_memory()


def test_a_device_without_the_features_says_so() -> None:
    device = dmlvk.Device(mask=dmlvk.Mask(disable=("external_memory", "external_semaphores")))
    with pytest.raises(UnsupportedError) as error:
        device.create_buffer(64, exported=True)
    assert error.value.features == ("external_memory",)
    with pytest.raises(UnsupportedError) as error:
        device.shared_timeline()
    assert error.value.features == ("external_semaphores",)
    with pytest.raises(ValueError, match="external_memory is off"):
        device.native.allocate(64, exported=True)
    with pytest.raises(ValueError, match="external_semaphores is off"):
        device.native.shared_timeline()


@exports
def test_views_share_one_import_and_say_where_elements_are() -> None:
    x = dmlvk.torch.empty_shared(4, 6)
    cuda = StandIn()
    sharing = Sharing(DEVICE, cuda)
    whole, part = sharing.elements(x), sharing.elements(x[1:, ::2])
    assert whole.__cuda_array_interface__ == {
        "shape": (4, 6),
        "typestr": "<f4",
        "strides": (24, 4),
        "data": (0x1000, False),
        "version": 3,
    }
    assert part.__cuda_array_interface__["shape"] == (3, 3)
    assert part.__cuda_array_interface__["strides"] == (24, 8)
    assert part.__cuda_array_interface__["data"] == (0x1000 + 24, False)
    assert [call[0] for call in cuda.calls] == ["import", "map"]
    narrow = sharing.elements(dmlvk.torch.empty_shared(2, dtype=torch.bfloat16))
    assert narrow.__cuda_array_interface__["typestr"] == "<i2"


@exports
def test_memory_lives_as_long_as_either_side() -> None:
    gc.collect()
    before = DEVICE.memory()["data"]
    x = dmlvk.torch.empty_shared(1024)
    cuda = StandIn()
    sharing = Sharing(DEVICE, cuda)
    elements = sharing.elements(x)
    buffer_bytes = held(x).buffer.size_in_bytes
    del x
    gc.collect()
    assert DEVICE.memory()["data"] == before + buffer_bytes
    assert ("release", 7, 0x1000) not in cuda.calls
    del elements
    gc.collect()
    assert cuda.calls[-1] == ("release", 7, 0x1000)
    DEVICE.wait_idle()
    assert DEVICE.memory()["data"] == before


@exports
def test_a_descriptor_that_cuda_refuses_is_closed() -> None:
    cuda = StandIn(refuses=True)
    with pytest.raises(StateError, match="refused"):
        Sharing(DEVICE, cuda).elements(dmlvk.torch.empty_shared(8))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(cuda.descriptor)


def test_each_side_waits_for_the_other_on_a_timeline_of_its_own() -> None:
    calls: list[tuple[Any, ...]] = []
    cuda = StandIn()
    cuda.calls = calls
    sharing = Sharing(Timelines(calls), cuda)  # type: ignore[arg-type]
    sharing.waits_for_cuda(5)
    sharing.cuda_waits(5)
    sharing.waits_for_cuda(6)
    sharing.cuda_waits(6)
    assert calls == [
        ("timeline", 1),
        ("CUDA signals", 101, 1, 5),
        ("dmlvk waits", 1, 1),
        ("timeline", 2),
        ("dmlvk signals", 2, 1),
        ("CUDA waits", 102, 1, 5),
        ("CUDA waits", 101, 1, 6),  # so that the other stream does not set less than what there is
        ("CUDA signals", 101, 2, 6),
        ("dmlvk waits", 1, 2),
        ("dmlvk signals", 2, 2),
        ("CUDA waits", 102, 2, 6),
    ]


def test_only_shared_memory_goes_to_cuda() -> None:
    with pytest.raises(InvalidArgumentError, match="on the device dmlvk"):
        dmlvk.torch.cuda_view(torch.zeros(3))
    with pytest.raises(InvalidArgumentError, match="empty_shared"):
        dmlvk.torch.cuda_view(torch.zeros(3).to("dmlvk"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_without_cuda_there_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="CUDA"):
        CudaDevice(DEVICE.info.uuid)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA")
def test_cuda_and_dmlvk_compute_one_after_the_other_in_the_same_memory() -> None:
    x, y = dmlvk.torch.empty_shared(512, 512), dmlvk.torch.empty_shared(512, 512)
    theirs = torch.rand(512, 512, device="cuda", dtype=torch.float32) / 512
    step = torch.compile(lambda a: a @ a + a, backend="dmlvk")
    seen = dmlvk.torch.cuda_view(x), dmlvk.torch.cuda_view(y)
    wanted = theirs.double()
    seen[0].copy_(theirs)
    for _ in range(20):
        dmlvk.torch.waits_for_cuda()
        y.copy_(step(x))
        dmlvk.torch.cuda_waits()
        seen[0].copy_(seen[1] / 2)
        wanted = (wanted @ wanted + wanted) / 2
    del x, y
    torch.testing.assert_close(seen[0].double(), wanted, rtol=1e-4, atol=1e-12)
