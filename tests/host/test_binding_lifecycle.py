"""What a table, an initialiser and a command list may be asked for, and when; and what reaches the native list."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dmlvk.directml.binding import BindingTable, BufferArrayBinding
from dmlvk.directml.command import CommandList, CommandRecorder
from dmlvk.directml.operator import CompiledOperator, OperatorInitializer, Signature, TensorSlot
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan, Range, Source, input_range, output_range
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import ExecutionFlags, TensorDataType, TensorFlags
from dmlvk.spec.errors import BindingError, InvalidArgumentError, StateError
from dmlvk.spec.tensor import TensorDesc

TENSOR = TensorDesc(TensorDataType.FLOAT32, (4, 4))
OWNED = TensorDesc(TensorDataType.FLOAT32, (5, 5), flags=TensorFlags.OWNED_BY_DML)


def dispatch(read: Range, written: Range) -> Dispatch:
    return Dispatch(KernelVariant("fake"), (read, written), b"", (1, 1, 1))


class Bench:
    """One operator y = f(x) with an initialiser, a table each and buffers."""

    def __init__(
        self,
        device: Any,
        plan: Plan | None = None,
        tensor: TensorDesc = TENSOR,
        flags: ExecutionFlags = ExecutionFlags.NONE,
    ) -> None:
        self.device = device
        self.operator = CompiledOperator(
            device,
            Signature("UNARY", (TensorSlot("InputTensor", tensor),), (TensorSlot("OutputTensor", TENSOR),), frozenset()),
            plan or Plan((dispatch(input_range(0), output_range()),)),
            flags,
        )
        self.initializer = OperatorInitializer(device, [self.operator])
        self.recorder = CommandRecorder(device)
        self.x, self.y, self.home = (device.create_buffer(4096) for _ in range(3))

    def new_list(self) -> CommandList:
        return CommandList(self.device)

    def record_initializer(self, commands: CommandList) -> None:
        table = BindingTable(self.device, self.initializer)
        if self.operator.signature.owned_inputs:
            table.bind_inputs([BufferArrayBinding([BufferBinding(self.x, 32)])])
        if self.operator.plan.persistent_bytes:
            table.bind_outputs([BufferBinding(self.home, 256)])
        self.recorder.record_dispatch(commands, self.initializer, table)

    def bound_table(self) -> BindingTable:
        table = BindingTable(self.device, self.operator)
        table.bind_inputs([None if self.operator.signature.owned_inputs else BufferBinding(self.x, 80)])
        table.bind_outputs([BufferBinding(self.y)])
        if self.operator.plan.persistent_bytes:
            table.bind_persistent_resource(BufferBinding(self.home, 256))
        return table

    def record(self, commands: CommandList) -> None:
        self.recorder.record_dispatch(commands, self.operator, self.bound_table())

    def initialize(self) -> None:
        commands = self.new_list()
        self.record_initializer(commands)
        commands.submit()


@pytest.fixture
def bench(fake_device: Callable[[], Any]) -> Bench:
    return Bench(fake_device())


# -- initialisation


def test_initialised_in_the_same_list(bench: Bench) -> None:
    commands = bench.new_list()
    bench.record_initializer(commands)
    bench.record(commands)
    commands.submit()
    assert bench.operator.initialized


def test_executing_without_an_initializer_is_refused(bench: Bench) -> None:
    commands = bench.new_list()
    with pytest.raises(StateError, match="must be initialised before"):
        bench.record(commands)
    bench.record_initializer(commands)
    bench.record(commands)
    commands.submit()


def test_the_order_of_submission_counts(bench: Bench) -> None:
    first, second = bench.new_list(), bench.new_list()
    bench.record_initializer(first)
    bench.record(second)
    with pytest.raises(StateError, match="must be submitted before one that executes it"):
        second.submit()
    first.submit()
    second.submit()
    second.replay()


def test_initialising_twice_is_refused(bench: Bench) -> None:
    commands = bench.new_list()
    bench.record_initializer(commands)
    other = bench.new_list()
    bench.record_initializer(other)  # whichever is submitted first does it: a list that never is must not be in the way
    with pytest.raises(StateError, match="only once"):
        bench.record_initializer(commands)
    commands.submit()
    with pytest.raises(StateError, match="only once"):
        other.submit()
    with pytest.raises(StateError, match="only once"):
        commands.replay()
    with pytest.raises(StateError, match="only once"):
        OperatorInitializer(bench.device, [bench.operator])
    with pytest.raises(StateError, match="each operator only once"):
        OperatorInitializer(bench.device, [Bench(bench.device).operator] * 2)


def test_a_list_dropped_unsubmitted_has_initialised_nothing(bench: Bench) -> None:
    commands = bench.new_list()
    bench.record_initializer(commands)
    execution = bench.new_list()
    bench.record(execution)
    del commands
    gc.collect()
    with pytest.raises(StateError, match="must be submitted before one that executes it"):
        execution.submit()
    bench.initialize()
    execution.submit()


def test_a_failed_submission_initialises_nothing(bench: Bench) -> None:
    commands = bench.new_list()
    bench.record_initializer(commands)
    native = bench.device.lists[-1]
    native.submit = lambda **_: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError):
        commands.submit()
    assert not bench.operator.initialized
    del native.submit
    commands.submit()
    assert bench.operator.initialized


def test_a_list_that_an_exception_keeps_alive_is_in_nobody_s_way(bench: Bench) -> None:
    commands = bench.new_list()
    bench.record_initializer(commands)
    bench.device.lists[-1].submit = lambda **_: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError) as kept:
        commands.submit()
    bench.initialize()
    execution = bench.new_list()
    bench.record(execution)
    execution.submit()
    assert kept.value.__traceback__ is not None


def test_a_list_whose_recording_failed_half_way_is_not_submitted(bench: Bench) -> None:
    bench.initialize()
    commands = bench.new_list()
    bench.record(commands)
    native = bench.device.lists[-1]
    native.dispatch = lambda *_: (_ for _ in ()).throw(MemoryError)
    with pytest.raises(MemoryError):
        bench.record(commands)
    with pytest.raises(StateError, match="failed half-way"):
        commands.submit()
    assert not native.submissions


def test_a_refused_recording_leaves_the_list_as_it_was(bench: Bench) -> None:
    bench.initialize()
    commands = bench.new_list()
    bench.record(commands)
    with pytest.raises(BindingError):
        bench.recorder.record_dispatch(commands, bench.operator, BindingTable(bench.device, bench.operator))
    commands.submit()


# -- owned inputs and the persistent resource


def kept_bench(device: Any, flags: ExecutionFlags = ExecutionFlags.NONE) -> Bench:
    """An operator with a persistent resource."""
    return Bench(device, Plan((dispatch(input_range(0), output_range()),), persistent_bytes=300), flags=flags)


@pytest.mark.parametrize("flags", [ExecutionFlags.NONE, ExecutionFlags.DESCRIPTORS_VOLATILE])
def test_a_persistent_resource_that_nobody_wrote_is_refused(fake_device: Callable[[], Any], flags: ExecutionFlags) -> None:
    bench = kept_bench(fake_device(), flags)
    bench.record_initializer(bench.new_list())  # recorded and dropped
    execution = bench.new_list()
    bench.record(execution)
    bench.home = bench.device.create_buffer(4096)
    bench.initialize()
    with pytest.raises(BindingError, match="the range that the initialiser wrote"):
        execution.submit()
    again = bench.new_list()
    bench.record(again)
    again.submit()


def test_what_another_thread_has_recorded_is_not_what_was_written(fake_device: Callable[[], Any]) -> None:
    bench = kept_bench(fake_device())
    written = bench.home
    first, second = bench.new_list(), bench.new_list()
    bench.record_initializer(first)
    bench.home = bench.device.create_buffer(4096)
    bench.record_initializer(second)
    first.submit()
    with pytest.raises(BindingError, match="the range that the initialiser wrote"):
        bench.record(bench.new_list())
    bench.home = written
    bench.record(bench.new_list())


def test_of_two_threads_one_initialises(fake_device: Callable[[], Any]) -> None:
    bench = kept_bench(fake_device())
    lists = [bench.new_list() for _ in range(8)]
    for commands in lists:
        bench.record_initializer(commands)
    refused = []

    def submit(commands: CommandList) -> None:
        try:
            commands.submit()
        except StateError as error:
            refused.append(error)

    threads = [threading.Thread(target=submit, args=(commands,)) for commands in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7 and sum(native.submissions for native in bench.device.lists) == 1


def test_an_owned_input_that_execution_reads_is_kept(fake_device: Callable[[], Any]) -> None:
    bench = Bench(fake_device(), Plan((dispatch(input_range(0), output_range()),), persistent_bytes=300), OWNED)
    assert bench.operator.get_binding_properties().persistent_resource_size == 768
    commands = bench.new_list()
    bench.record_initializer(commands)
    bench.record(commands)
    copy, run = bench.device.lists[-1].commands
    assert copy == ("copy", bench.x.native, 32, bench.home.native, 256 + 512, 100)
    assert run[2] == [(bench.home.native, 256 + 512, 100), (bench.y.native, 0, 64)]


def test_an_owned_input_that_initialisation_transforms_is_not_copied(fake_device: Callable[[], Any]) -> None:
    kept = Range(Source.PERSISTENT, 0, 0, 128)
    plan = Plan((dispatch(kept, output_range()),), persistent_bytes=128, initialize=(dispatch(input_range(0), kept),))
    bench = Bench(fake_device(), plan, OWNED)
    assert bench.operator.get_binding_properties().persistent_resource_size == 256
    commands = bench.new_list()
    bench.record_initializer(commands)
    bench.record(commands)
    initialize, execute = bench.device.lists[-1].commands
    assert initialize[2] == [(bench.x.native, 0, 132), (bench.home.native, 256, 128)]
    assert execute[2] == [(bench.home.native, 256, 128), (bench.y.native, 0, 64)]


def test_the_persistent_resource_stays_where_it_was_written(fake_device: Callable[[], Any]) -> None:
    bench = Bench(fake_device(), tensor=OWNED)
    bench.initialize()
    table = bench.bound_table()
    table.bind_persistent_resource(BufferBinding(bench.home, 512))
    with pytest.raises(BindingError, match="the initialiser wrote"):
        bench.recorder.record_dispatch(bench.new_list(), bench.operator, table)
    bench.record(bench.new_list())


def test_volatile_bindings_keep_to_the_persistent_resource(fake_device: Callable[[], Any]) -> None:
    bench = Bench(fake_device(), tensor=OWNED, flags=ExecutionFlags.DESCRIPTORS_VOLATILE)
    bench.initialize()
    table, commands = bench.bound_table(), bench.new_list()
    bench.recorder.record_dispatch(commands, bench.operator, table)
    table.bind_persistent_resource(BufferBinding(bench.home, 512))
    with pytest.raises(BindingError, match="the initialiser wrote"):
        commands.submit()
    table.bind_persistent_resource(BufferBinding(bench.home, 256))
    commands.submit()


# -- what is recorded


def test_a_binding_starts_at_the_device_alignment_and_the_kernel_gets_the_rest(bench: Bench) -> None:
    bench.initialize()
    commands = bench.new_list()
    bench.record(commands)
    _, kernel, buffers, writes, params, push, grid = bench.device.lists[-1].commands[0]
    assert (kernel, writes, params, grid) == ("fake", 0b10, None, (1, 1, 1))
    assert buffers == [(bench.x.native, 64, 16 + 64), (bench.y.native, 0, 64)]
    assert push == struct.pack("<2I", 16, 0)


def test_bindings_are_read_when_recorded(bench: Bench) -> None:
    bench.initialize()
    commands, table = bench.new_list(), bench.bound_table()
    bench.recorder.record_dispatch(commands, bench.operator, table)
    table.bind_outputs([BufferBinding(bench.home)])
    bench.recorder.record_dispatch(commands, bench.operator, table)
    table.reset()
    commands.submit()
    first, second = bench.device.lists[-1].commands
    assert (first[2][1][0], second[2][1][0]) == (bench.y.native, bench.home.native)


def test_volatile_bindings_are_read_when_submitted(fake_device: Callable[[], Any]) -> None:
    bench = Bench(fake_device(), flags=ExecutionFlags.DESCRIPTORS_VOLATILE)
    bench.initialize()
    commands = bench.new_list()
    table = BindingTable(bench.device, bench.operator)
    bench.recorder.record_dispatch(commands, bench.operator, table)
    with pytest.raises(BindingError, match="InputTensor"):
        commands.submit()
    table.bind_inputs([BufferBinding(bench.x)])
    table.bind_outputs([BufferBinding(bench.y)])
    commands.submit()
    first = bench.device.lists[-1]
    commands.submit()
    assert first.submissions == 2 and bench.device.lists[-1] is first
    table.bind_outputs([BufferBinding(bench.home)])
    commands.submit()
    second = bench.device.lists[-1]
    assert (first.commands[0][2][1][0], second.commands[0][2][1][0]) == (bench.y.native, bench.home.native)
    assert (first.submissions, second.submissions) == (2, 1)
    table.reset()
    commands.submit()
    assert second.submissions == 2


def test_copies_stay_inside_their_buffers(bench: Bench) -> None:
    commands = bench.new_list()
    for target, offset, source, size in (
        (bench.y, 4000, bench.x, 97),
        (bench.y, -4, bench.x, 4),
        (bench.y, 0, bench.x, 0),
        (bench.x, 8, bench.x, 16),
    ):
        with pytest.raises(InvalidArgumentError):
            commands.copy_buffer_region(target, offset, source, 0, size)
    commands.copy_buffer_region(bench.y, 4000, bench.x, 1, 96)
    assert bench.device.lists[-1].commands == [("copy", bench.x.native, 1, bench.y.native, 4000, 96)]


# -- objects that do not belong together, and calls in the wrong order


def test_objects_of_different_devices_do_not_mix(bench: Bench, fake_device: Callable[[], Any]) -> None:
    other = Bench(fake_device())
    bench.initialize()
    for call in (
        lambda: BindingTable(bench.device, other.operator),
        lambda: OperatorInitializer(bench.device, [other.operator]),
        lambda: bench.recorder.record_dispatch(other.new_list(), bench.operator, bench.bound_table()),
        lambda: other.recorder.record_dispatch(bench.new_list(), bench.operator, bench.bound_table()),
        lambda: bench.new_list().copy_buffer_region(bench.x, 0, other.x, 0, 16),
    ):
        with pytest.raises(StateError, match="must belong to the same Device"):
            call()
    bench.record(bench.new_list())


def test_a_table_serves_one_dispatchable(bench: Bench) -> None:
    bench.initialize()
    other = Bench(bench.device)
    table = bench.bound_table()
    with pytest.raises(StateError, match="serves another"):
        bench.recorder.record_dispatch(bench.new_list(), other.operator, table)
    table.reset()
    with pytest.raises(StateError, match="serves no dispatchable"):
        table.bind_inputs([])
    with pytest.raises(StateError, match="serves another"):
        bench.recorder.record_dispatch(bench.new_list(), bench.operator, table)


def test_an_initializer_that_was_reset_needs_its_table_reset(bench: Bench) -> None:
    other = Bench(bench.device)
    table = BindingTable(bench.device, bench.initializer)
    bench.initializer.reset([other.operator])
    with pytest.raises(StateError, match="reset the table too"):
        bench.recorder.record_dispatch(bench.new_list(), bench.initializer, table)
    table.reset(bench.initializer)
    commands = bench.new_list()
    bench.recorder.record_dispatch(commands, bench.initializer, table)
    commands.submit()
    assert other.operator.initialized and not bench.operator.initialized


def test_a_closed_list_takes_no_commands(bench: Bench) -> None:
    bench.initialize()
    commands = bench.new_list()
    commands.close()
    with pytest.raises(StateError, match="closed"):
        bench.record(commands)
    commands.submit()
    assert commands.wait()


def test_waiting_and_replaying_need_a_submission(bench: Bench) -> None:
    commands = bench.new_list()
    for call in (commands.wait, commands.replay):
        with pytest.raises(StateError, match="has not been submitted"):
            call()
    with pytest.raises(StateError, match="timestamps=True"):
        commands.timings()


def test_buffers_check_their_ranges(bench: Bench) -> None:
    buffer: Buffer = bench.x
    for call in (
        lambda: buffer.write(bytes(4097)),
        lambda: buffer.write(bytes(4), 4093),
        lambda: buffer.write(bytes(4), -4),
        lambda: buffer.read(4097),
        lambda: buffer.read(1, 4096),
        lambda: buffer.read(offset=4097),
    ):
        with pytest.raises(InvalidArgumentError, match="inside the buffer"):
            call()
