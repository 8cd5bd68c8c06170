"""Ranges that start behind addresses that a device binds: kernels read how far where that may be, and nothing elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDataType
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.lowering import lower
from dmlvk.runtime.recorder import BoundRange, Command, NativeLaunches, PreparedLaunches, Recording, Resources
from dmlvk.spec import ops
from dmlvk.spec.tensor import TensorDesc

COUNT = 32
TENSOR = TensorDesc(TensorDataType.FLOAT32, (COUNT,))
ADD = ops.ElementWiseAdd(a_tensor=TENSOR, b_tensor=TENSOR, output_tensor=TENSOR)


def sums(device: dmlvk.Device, starts: tuple[int, int, int]) -> None:
    """Adds two tensors; each starts at a byte of a buffer of its own."""
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(COUNT).astype(np.float32) for _ in range(2)]
    buffers = [device.create_buffer(start + 4 * COUNT) for start in starts]
    for buffer, start, own in zip(buffers, starts, values, strict=False):
        buffer.write(own, offset=start)
    bound = [dmlvk.BufferBinding(buffer, start, 4 * COUNT) for buffer, start in zip(buffers, starts, strict=True)]
    commands = device.create_command_list()
    ReadyOperator(device, ADD).record(commands, bound[:2], bound[2:])
    commands.submit()
    commands.wait()
    found = np.frombuffer(buffers[2].read(4 * COUNT, offset=starts[2]), np.float32)
    np.testing.assert_array_equal(found, values[0] + values[1])


@pytest.mark.parametrize("profile", [None, "vulkan13-minimum"])
def test_tensors_start_at_multiples_of_16_bytes(profile: str | None) -> None:
    device = dmlvk.Device(mask=dmlvk.Mask(profile) if profile else dmlvk.Mask())
    (launch,) = lower(ADD, device.capabilities).dispatches
    assert isinstance(launch, Dispatch)
    assert device.pipeline(launch).has_byte_offsets == (device.storage_alignment > 16)
    sums(device, (0, 0, 0))
    created = device.pipelines_created
    sums(device, (16, 32, 48))
    assert device.pipelines_created == created, "one pipeline for all places of tensors"


def test_a_number_that_starts_in_between_is_read_there(device: dmlvk.Device) -> None:
    """As the states of several sequences lie: nothing but the launch says that more than words of 16 bytes may."""
    number = TensorDesc(TensorDataType.FLOAT32, (1,))
    (launch,) = lower(ADD.replace(a_tensor=number, b_tensor=number, output_tensor=number), device.capabilities).dispatches
    assert isinstance(launch, Dispatch) and not device.pipeline(launch).has_byte_offsets
    ready = PreparedLaunches(device, "add", (launch,))
    buffers = [device.create_buffer(32) for _ in range(2)]
    buffers[0].write(np.arange(1, 9, dtype=np.float32))
    buffers[1].write(np.zeros(8, np.float32))
    recording = Recording(device, timestamps=False)
    for start in (0, 4, 12, 16, 28):
        source, target = (BoundRange(buffer, start, 4) for buffer in buffers)
        recording.add(ready.resolve(Resources((source, source), (target,), None, None)))
    recording.submit()
    assert recording.wait()
    np.testing.assert_array_equal(buffers[1].read().view(np.float32), [2, 4, 0, 8, 10, 0, 0, 16])


def test_a_pipeline_without_offsets_refuses_them(device: dmlvk.Device) -> None:
    """Of our own mistakes: nothing of the launch is recorded."""
    (launch,) = lower(ADD, device.capabilities).dispatches
    ready = PreparedLaunches(device, "add", (launch,))
    bound = BoundRange(device.create_buffer(1024), 0, 4 * COUNT)
    ((labels, arguments),) = ready.resolve(Resources((bound, bound), (bound,), None, None))
    assert isinstance(arguments, NativeLaunches)
    moved = Resources((bound._replace(offset=4), bound), (bound,), None, None)
    recording = Recording(device, timestamps=False)
    with pytest.raises(RuntimeError, match="storage buffer 0 starts 4 bytes behind what is bound"):
        recording.add([Command(labels, arguments._replace(resources=moved))])
    recording.submit()
    assert recording.wait() and not recording.labels
