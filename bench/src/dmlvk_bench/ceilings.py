"""The most that a machine can do, measured on it: every other figure is given as a share of these limits.

Copies are those of the operator that copies. Arithmetic rates come from kernels of their own that compute in registers and
write a number each at the end (``glsl/peak_*.comp``), so that no operator can be faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.operator import Signature, TensorSlot
from dmlvk.directml.ready_operator import ReadyOperator, initialize
from dmlvk.kernels.peak.arithmetic import Arithmetic, chains, matrices
from dmlvk.runtime.measure import copy_bandwidth
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.elementwise import ElementWiseIdentity
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.results import Ceilings
from dmlvk_bench.timing import QUICK, SOFTWARE, THOROUGH, Pace, recorded, sample, settled_samples, time_executions

_PART_BYTES: Final = 1 << 24
"""The size of the block of random numbers with which a large buffer is filled, over and over."""


@dataclass(frozen=True)
class _Effort:
    """How much is measured on a device.

    Attributes:
        pace, warm_pace: The pace of a measurement; the second is for clocks that are up already.
        transfer_bytes: The bytes that are sent to the device's memory and read back.
        seconds: The least duration of a dispatch of arithmetic, so that starting it counts for nothing.
        workgroups: The workgroups of a dispatch of arithmetic: enough to keep every core busy to the end.
    """

    pace: Pace
    warm_pace: Pace
    transfer_bytes: int
    seconds: float
    workgroups: int

    @staticmethod
    def of(device: Device, *, quick: bool) -> _Effort:
        """The effort for a kind of device."""
        if device.capabilities.is_cpu:
            pace = QUICK if quick else SOFTWARE
            return _Effort(pace, pace, 1 << (24 if quick else 26), 0.005, 64)
        if quick:
            return _Effort(QUICK, QUICK, 1 << 26, 0.001, 16384)
        return _Effort(THOROUGH, replace(THOROUGH, warm_up=0.05, longest=0.5), 1 << 28, 0.004, 16384)


def measure(device: Device, *, quick: bool = False) -> Ceilings:
    """A device's limits.

    Args:
        device: The device to measure.
        quick: Smaller and shorter, to see that everything works.
    """
    caps, effort = device.capabilities, _Effort.of(device, quick=quick)
    upload, download = _transfers(device, effort)
    return Ceilings(
        copy_gb_per_s=copy_bandwidth(device) * 1e-9,
        float32_tflop_per_s=_best(device, [chains(caps, "peak_float32", 2)], effort),
        float16_tflop_per_s=_best(device, [chains(caps, "peak_float16", 4)], effort),
        int8_top_per_s=_best(device, [chains(caps, "peak_int8", 8)], effort),
        matrix_float16_tflop_per_s=_best(device, matrices(caps, "float16", "float32"), effort),
        matrix_int8_top_per_s=_best(device, matrices(caps, "int8", "int32"), effort),
        upload_gb_per_s=upload,
        download_gb_per_s=download,
    )


def copy_seconds(device: Device, bytes_moved: int, pace: Pace) -> float:
    """The seconds of a copy that caches and launches may decide, timed exactly as a problem is, in as many executions a
    submission, so that a problem's share compares like with like.

    Args:
        device: The device that copies.
        bytes_moved: Read and written, together, at least 8. Where a binding, or a quarter of the memory, is smaller, less
            is copied and its time is scaled.
        pace: How long to warm up and to take samples.
    """
    most = min(2 * device.capabilities.storage_buffer_bytes, device.info.memory_in_bytes // 4)
    count = min(bytes_moved, most) // 8
    tensor = TensorDesc(TensorDataType.FLOAT32, (count,))
    operator = ReadyOperator(device, ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor))
    source, target = (device.create_buffer(4 * count) for _ in range(2))
    _fill(source)
    record = partial(operator.record, inputs=[BufferBinding(source)], outputs=[BufferBinding(target)])
    return bytes_moved / (8 * count) * time_executions(device, record, pace).seconds


def _best(device: Device, ways: Iterable[Arithmetic], effort: _Effort) -> float:
    """Trillions of operations a second of the fastest way that the device has, 0 where it has none."""
    return max(
        (
            rate(device, way, effort.workgroups, effort.seconds, effort.warm_pace)
            for way in ways
            if way.is_possible(device.capabilities)
        ),
        default=0.0,
    )


def rate(device: Device, way: Arithmetic, workgroups: int, seconds: float, pace: Pace) -> float:
    """Trillions of operations a second.

    Args:
        device: The device that computes.
        way: The kind of arithmetic.
        workgroups: The workgroups of a dispatch; fewer run where their output would not fit one binding.
        seconds: The least duration of a dispatch.
        pace: How long to warm up and to take samples.
    """
    workgroups = min(workgroups, device.capabilities.storage_buffer_bytes // way.output_bytes)
    output = device.create_buffer(workgroups * way.output_bytes)
    rounds = 1
    while True:
        record = prepared(device, way, output, rounds)
        once = recorded(device, record)
        sample(once)  # the driver may compile at the first execution
        taken = sample(once).device
        if taken >= seconds / 2:
            return way.operations * workgroups * rounds / time_executions(device, record, pace).seconds * 1e-12
        rounds *= max(2, min(64, round(seconds / max(taken, 1e-9))))


def prepared(device: Device, way: Arithmetic, output: Buffer, rounds: int) -> Callable[[CommandList], None]:
    """Returns the function that records one dispatch of arithmetic in a command list.

    Args:
        device: The device that computes.
        way: The kind of arithmetic.
        output: A buffer of ``way.output_bytes`` for each workgroup.
        rounds: The rounds of arithmetic of each workgroup.
    """
    tensor = TensorDesc(TensorDataType.UINT32, (output.size_in_bytes // 4,))
    signature = Signature(way.kernel, (), (TensorSlot("Y", tensor),), frozenset())
    compiled = device.compile_plan(signature, way.plan(output.size_in_bytes // way.output_bytes, rounds))
    initialize(device, compiled)
    table = device.create_binding_table(compiled)
    table.bind_outputs([BufferBinding(output)])
    recorder = device.create_command_recorder()
    return partial(recorder.record_dispatch, dispatchable=compiled, binding_table=table)


def _transfers(device: Device, effort: _Effort) -> tuple[float, float]:
    """GB a second from the host's memory to a buffer, until the device has them, and back."""
    nbytes = min(effort.transfer_bytes, device.info.memory_in_bytes // 4)
    buffer = device.create_buffer(nbytes)
    values = np.resize(_random(), nbytes)

    def upload() -> None:
        buffer.write(values)
        buffer.read(4)

    upload()  # memory of this size is touched, and staging memory made, for the first time
    times = [
        statistics.median(settled_samples(partial(host_seconds, run), float, effort.pace))
        for run in (upload, partial(buffer.read_into, values))
    ]
    return nbytes / times[0] * 1e-9, nbytes / times[1] * 1e-9


def host_seconds(run: Callable[[], object]) -> float:
    """The seconds that a call takes on the host's clock."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _fill(buffer: Buffer) -> None:
    """Fills a buffer with random bytes."""
    part = _random()
    for offset in range(0, buffer.size_in_bytes, part.nbytes):
        buffer.write(part[: buffer.size_in_bytes - offset], offset)


def _random() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, _PART_BYTES, np.uint8)
