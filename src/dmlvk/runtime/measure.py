"""Measures how fast a device is: its copies, its dispatches, its processors and their arithmetic.

Each measurement takes some tens of milliseconds on a GPU. A submission is timed on the device's clock. Where there is none,
the host's clock is read before the call and once the work is seen done, and the call itself does not count beside so many
commands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dmlvk.devices.model import NumberSource, preferred
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, output_range
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.peak.arithmetic import Arithmetic, chains, matrices
from dmlvk.runtime.device import ComputeDevice, known_model, model_path
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.model_file import read_model, write_model
from dmlvk.runtime.recorder import BoundRange, Command, PreparedLaunches, Recording, Resources
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import DmlvkError, OutOfDeviceMemoryError
from dmlvk.spec.tensor import TensorDesc

_COPIED_BYTES: Final = 1 << 30
"""The size of a copy, where there is room: so large that starting and ending it takes no 1 % of the time."""
_COPIED_SHARE: Final = 32
"""A copy is at most such a part of the memory, which is more than a cache holds."""
_COPIED_BYTES_ON_CPU: Final = 64 << 20
_SMALL_BYTES: Final = 256
"""The size of a copy whose own cost is measured."""
_SECONDS: Final = 0.005
"""A run is at least so long: what submitting it costs the host is a hundredth."""
_WAKING_SECONDS: Final = 0.3
"""An idle GPU raises its clocks after so long at work: an H200 copied 1.7 to 2.9 TB/s before and 4.2 after."""
_WAKING_BYTES: Final = 64 << 20
_WAKING_COPIES: Final = 64
_RUNS: Final = 3
"""Runs in a row none of which is shorter by much: the last runs of a measurement."""
_SHORTER: Final = 0.99
"""The share of the shortest run so far below which a run is shorter by much."""
_MOST_COMMANDS: Final = 1024
_MANY_WORKGROUPS: Final = 8192
"""Workgroups that keep all processors busy to the end."""
_FULL_WORKGROUP: Final = 1024
"""Invocations that keep all arithmetic units of a processor busy, where a workgroup may have so many."""

_FRAGMENT_SUBGROUP: Final = 32
"""The invocations of a subgroup whose matrices are known."""

_lock = threading.Lock()
_learning = threading.Lock()


def copy_bandwidth(device: ComputeDevice) -> float:
    """Bytes that the device reads and writes a second, together, when it copies a large tensor. Measured at the first call
    for a device and kept.

    Raises:
        OutOfDeviceMemoryError: there is no room for two tensors of a 32nd of its memory, of 64 MiB on a CPU.
    """
    with _lock:
        bandwidth: float | None = device.kept.get(copy_bandwidth)
        if bandwidth is None:
            peak = device.memory()["peak"]
            caps = device.capabilities
            most = min(_COPIED_BYTES, device.info.memory_in_bytes // _COPIED_SHARE, caps.storage_buffer_bytes)
            nbytes = _COPIED_BYTES_ON_CPU if caps.is_cpu else most // 4 * 4
            _wake(device)
            bandwidth = 2 * nbytes / _of_one(device, _copies(device, nbytes, distinct=False))
            device.kept[copy_bandwidth] = bandwidth
            device.reset_peak_memory(peak)  # what measures is not what is measured
        return bandwidth


def measured_numbers(device: ComputeDevice) -> dict[str, float]:
    """A device's numbers of a ``DeviceModel``, rounded to ``preferred`` ones: all that can be measured in a second or two.

    Processors are counted as workgroups that are as fast together as very many: one has invocations enough for one of them.

    Raises:
        OutOfDeviceMemoryError: as ``copy_bandwidth``.
    """
    caps = device.capabilities
    _wake(device)
    waiting = _of_one(device, _copies(device, _SMALL_BYTES, distinct=False))
    free = _of_one(device, _copies(device, _SMALL_BYTES, distinct=True))
    products = chains(caps, "peak_float32", 2, _FULL_WORKGROUP)
    of_one, of_all = (_rate(device, products, workgroups) / 2 for workgroups in (1, _MANY_WORKGROUPS))
    processors = max(round(preferred(of_all / of_one)), 1)
    numbers = {
        "processors": processors,
        "bytes_per_microsecond": preferred(copy_bandwidth(device) / 1e6),
        "launch_microseconds": preferred(free * 1e6),
        "barrier_microseconds": preferred(max(waiting - free, free / 10) * 1e6),
        "products_per_microsecond": preferred(of_one / 1e6),
    }
    for name, operands, sums in (
        ("half_products_per_microsecond", "float16", "float32"),
        ("byte_products_per_microsecond", "int8", "int32"),
    ):
        ways = [way for way in matrices(caps, operands, sums) if way.is_possible(caps)]
        if ways:  # the first shape is the one that kernels use
            numbers[name] = preferred(_rate(device, ways[0], _MANY_WORKGROUPS) / 2 / processors / 1e6)
    return numbers


def measure_model(device: ComputeDevice) -> dict[str, float]:
    """Measures a device, whatever is known of it, and keeps the numbers where ``known_model`` finds them.

    Raises:
        OutOfDeviceMemoryError: as ``copy_bandwidth``.
        OSError: they cannot be written.
    """
    numbers = measured_numbers(device)
    if path := model_path(device.info):
        write_model(path, device.info.name, numbers)
    return numbers


def learn_model(device: ComputeDevice) -> None:
    """Measures a device of which too little is known, so that its rules know better from now on.

    That is a device without a shipped row, opened without a mask, and never measured before under this driver. Where the
    numbers cannot be kept it is not measured: the next process might choose other kernels. Of several that measure at once
    the first to finish says what all of them use.
    """
    if (
        NumberSource.GENERIC not in device.capabilities.model.sources
        or str(device.mask)
        or (path := model_path(device.info)) is None
        or not os.access(path.parent, os.W_OK)
    ):
        return
    with _learning:
        if read_model(path) is None:
            try:
                numbers = measured_numbers(device)
                if read_model(path) is None:  # another process may have been faster
                    write_model(path, device.info.name, numbers)
            except (DmlvkError, OSError) as error:
                warnings.warn(f"dmlvk could not measure {device.info.name}: {error}", RuntimeWarning, stacklevel=4)
            device.reset_peak_memory()
        device.capabilities = dataclasses.replace(device.capabilities, model=known_model(device.info))


def learn_fragments(device: ComputeDevice) -> None:
    """Asks a device where elements of matrices lie in a subgroup, which Vulkan does not tell: see
    ``glsl/matrix_fragments.comp``."""
    caps = device.capabilities
    shape = cooperative_matrix(caps, "float16", "float32")
    if shape is None or (shape.m, shape.n, shape.k) != (16, 16, 16) or caps.subgroup_size != _FRAGMENT_SUBGROUP:
        return
    with contextlib.suppress(OutOfDeviceMemoryError):  # of a limit that leaves no room for anything else, either
        device.capabilities = dataclasses.replace(caps, matrix_fragments=_has_fragments(device))
    device.reset_peak_memory()


def _has_fragments(device: ComputeDevice) -> bool:
    constants = {"LOCAL_SIZE_X": _FRAGMENT_SUBGROUP}
    ask = make_dispatch(
        "matrix_fragments", (output_range(),), (1, 1, 1), _FRAGMENT_SUBGROUP, variant={}, constants=constants
    )
    answers = device.create_buffer(4 * _FRAGMENT_SUBGROUP)
    recording = Recording(device, timestamps=False)
    recording.add(PreparedLaunches(device, "fragments", (ask,)).resolve(_resources([], [answers], 0, answers.size_in_bytes)))
    recording.submit()
    return bool(answers.read().view(np.uint32).all())


def _wake(device: ComputeDevice) -> None:
    """Keeps a GPU at work until its clocks are up."""
    if device.capabilities.is_cpu:
        return
    recording = Recording(device, timestamps=False)
    recording.add(_copies(device, _WAKING_BYTES, distinct=False)(_WAKING_COPIES))
    end = time.perf_counter() + _WAKING_SECONDS
    while time.perf_counter() < end:
        recording.submit()
        recording.wait()


def _copies(device: ComputeDevice, nbytes: int, *, distinct: bool) -> Callable[[int], list[Command]]:
    """The function that makes a number of copies: all to one place, so that each waits for the last, or each to its own."""
    tensor = TensorDesc(TensorDataType.UINT32, (nbytes // 4,))
    plan = lower(ops.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor), device.capabilities)
    source = device.create_buffer(nbytes)
    target = device.create_buffer(nbytes * (_MOST_COMMANDS if distinct else 1))
    program = PreparedLaunches(device, "copy", plan.dispatches)

    def commands(count: int) -> list[Command]:
        places = [index * nbytes if distinct else 0 for index in range(count)]
        return [command for place in places for command in program.resolve(_resources([source], [target], place, nbytes))]

    return commands


def _resources(inputs: Sequence[Buffer], outputs: Sequence[Buffer], place: int, nbytes: int) -> Resources:
    return Resources(
        [BoundRange(buffer, 0, nbytes) for buffer in inputs],
        [BoundRange(buffer, place, nbytes) for buffer in outputs],
        None,
        None,
    )


def _of_one(device: ComputeDevice, commands: Callable[[int], list[Command]]) -> float:
    """Seconds of one command, of so many that a run is long enough."""
    count = 1
    while True:
        seconds = _seconds(device, commands(count))
        if seconds >= _SECONDS or count == _MOST_COMMANDS:
            return seconds / count
        count = min(_MOST_COMMANDS, count * max(2, min(64, round(_SECONDS / seconds))))


def _seconds(device: ComputeDevice, commands: Sequence[Command]) -> float:
    """Seconds of the shortest run of commands. Runs go on while they get shorter, as the clocks of an idle device rise."""
    recording = Recording(device, timestamps=False)
    if device.has_timestamps:
        recording.timestamp()
    recording.add(commands)
    if device.has_timestamps:
        recording.timestamp()
    shortest, longer = math.inf, 0
    while longer < _RUNS:
        started = time.perf_counter()
        recording.submit()
        recording.wait()
        seconds = time.perf_counter() - started
        if device.has_timestamps:
            seconds = max(device.nanoseconds(*recording.timestamps()), 1.0) * 1e-9
        longer = 0 if seconds < _SHORTER * shortest else longer + 1
        shortest = min(shortest, seconds)
    return shortest


def _rate(device: ComputeDevice, way: Arithmetic, workgroups: int) -> float:
    """Operations a second of so many workgroups."""
    workgroups = min(workgroups, device.capabilities.storage_buffer_bytes // way.output_bytes)
    output = device.create_buffer(workgroups * way.output_bytes)
    rounds = 1
    while True:
        plan: Plan = way.plan(workgroups, rounds)
        program = PreparedLaunches(device, way.kernel, plan.dispatches)
        seconds = _seconds(device, program.resolve(_resources([], [output], 0, output.size_in_bytes)))
        if seconds >= _SECONDS / 2:
            return way.operations * workgroups * rounds / seconds
        rounds *= max(2, min(64, round(_SECONDS / seconds)))
