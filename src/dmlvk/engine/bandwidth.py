"""What a memory-bound operator is measured against: how fast a device copies from its memory to its memory."""

from __future__ import annotations

import threading
import weakref
from typing import Final

from dmlvk.directml.binding import BufferBinding
from dmlvk.directml.device import Device
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_BYTES: Final = 256 << 20
"""What is copied: more than any cache holds, so that it is memory that is measured."""
_BYTES_ON_CPU: Final = 64 << 20
_RUNS: Final = 5

_measured: weakref.WeakKeyDictionary[Device, float] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def copy_bandwidth(device: Device) -> float:
    """Bytes that the device reads and writes a second, together, when it copies a large tensor: the best of a few copies,
    measured at the first call for a device and kept.

    Raises:
        OutOfDeviceMemoryError: there is no room for twice 256 MiB, on a CPU for twice 64 MiB.
    """
    with _lock:
        if device not in _measured:
            peak = device.memory()["peak"]
            _measured[device] = _measure(device)
            device.reset_peak_memory(peak)  # what measures is not what is measured
        return _measured[device]


def _measure(device: Device) -> float:
    nbytes = _BYTES_ON_CPU if device.capabilities.is_cpu else _BYTES
    tensor = TensorDesc(TensorDataType.UINT32, (nbytes // 4,))
    desc = ops.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor)
    ready = ReadyOperator(device, desc)
    source, target = (BufferBinding(device.create_buffer(nbytes)) for _ in range(2))
    commands = device.create_command_list(timestamps=True)
    for _ in range(_RUNS):
        ready.record(commands, [source], [target])
    device.execute(commands)
    return 2 * nbytes / min(timing.end - timing.start for timing in commands.timings()) * 1e9
