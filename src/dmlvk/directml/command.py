"""``IDMLCommandRecorder`` and the command list that it records into.

A list is recorded by one thread, closed, submitted and replayed as often as wanted; lists of one device are
independent. What a table holds is read when it is recorded. Only an operator compiled with
``ExecutionFlags.DESCRIPTORS_VOLATILE`` is read later, at each submission, so that its bindings may be set or changed
after recording.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from dmlvk.directml.binding import BindingTable, InitializerBindings, OperatorBindings
from dmlvk.directml.operator import CompiledOperator, Dispatchable
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import BoundRange, Command, DispatchTiming, Recording, copy_between
from dmlvk.spec.enums import ExecutionFlags
from dmlvk.spec.errors import BindingError, InvalidArgumentError, StateError, UnsupportedError, other_device

_initialization_lock = threading.Lock()
"""Held while the initialisation of operators is checked, recorded or submitted, and noted, all in one step."""


class _Use(NamedTuple):
    """An operator that a list initialises, or executes.

    Attributes:
        operator: The operator.
        bindings: The bindings that it is executed with; None where it is initialised.
        persistent: The persistent range that was bound when it was recorded.
    """

    operator: CompiledOperator
    bindings: OperatorBindings | None
    persistent: BoundRange | None

    def bound(self) -> BoundRange | None:
        """The persistent range that the next submission uses: of a DESCRIPTORS_VOLATILE operator what is bound now."""
        if self.bindings is not None and self.operator.flags & ExecutionFlags.DESCRIPTORS_VOLATILE:
            return self.bindings.persistent
        return self.persistent


class _VolatileSegment:
    """The dispatch of a DESCRIPTORS_VOLATILE operator: recorded anew for a submission when its bindings changed."""

    def __init__(self, device: ComputeDevice, bindings: OperatorBindings, *, timestamps: bool) -> None:
        self._device, self._bindings, self._timestamps = device, bindings, timestamps
        self._commands: list[Command] | None = None
        self.recording: Recording | None = None

    def refresh(self) -> None:
        """Brings the recording up to date with the bindings."""
        commands = self._bindings.commands()
        if commands is not self._commands:
            check_home(self._bindings)
            recording = Recording(self._device, timestamps=self._timestamps)
            recording.add(commands)
            self.recording, self._commands = recording, commands


class CommandList:
    """Commands recorded once and submitted as often as wanted. Made by ``Device.create_command_list``.

    The list keeps the device memory that it uses alive.

    Attributes:
        device: Its device.
    """

    def __init__(self, device: ComputeDevice, *, timestamps: bool = False) -> None:
        self.device = device
        self._timestamps = timestamps
        self._segments: list[Recording | _VolatileSegment] = []
        self._uses: list[_Use] = []
        self._is_whole = True
        self._closed = False
        self._submitted = False

    @property
    def command_count(self) -> int:
        """Dispatches and copies recorded so far, as many as ``timings`` will have; without those of DESCRIPTORS_VOLATILE
        operators, which are not known yet."""
        return sum(len(part.labels) for part in self._segments if isinstance(part, Recording))

    def copy_buffer_region(
        self, target: Buffer, target_offset: int, source: Buffer, source_offset: int, size_in_bytes: int
    ) -> None:
        """Records a copy of bytes from one buffer to another, or to another part of the same one.

        Raises:
            InvalidArgumentError: a range that leaves its buffer, or ranges that overlap.
            StateError: a closed list, or a buffer of another device.
        """
        ranges = []
        for name, buffer, offset in (("target", target, target_offset), ("source", source, source_offset)):
            if buffer.device is not self.device:
                raise other_device(f"the {name}", buffer.device, "the command list", self.device)
            if offset < 0 or size_in_bytes < 1 or offset + size_in_bytes > buffer.size_in_bytes:
                rule = f"offset and size must be those of at least 1 byte inside the buffer's {buffer.size_in_bytes} bytes"
                raise InvalidArgumentError(rule, field=name, value=(offset, size_in_bytes))
            ranges.append(BoundRange(buffer, offset, size_in_bytes))
        if ranges[0].intersects(ranges[1]):
            raise InvalidArgumentError(
                "source and target may not share bytes of a buffer", field="target", value=(ranges[1], ranges[0])
            )
        self._add([copy_between("CopyBufferRegion", ranges[1], ranges[0])])

    def record(self, bindings: OperatorBindings | InitializerBindings) -> None:
        """Records a dispatch whose device and table ``CommandRecorder.record_dispatch`` has checked."""
        if isinstance(bindings, InitializerBindings):
            self._record_initializer(bindings)
        else:
            self._record_operator(bindings)

    def _record_operator(self, bindings: OperatorBindings) -> None:
        operator = bindings.dispatchable
        if not (operator.initialized or operator.recorded_homes):
            raise StateError(f"{operator.signature.operator}: a compiled operator must be initialised before it is executed")
        uses = [] if operator.initialized else [_Use(operator, bindings, bindings.persistent)]
        if operator.flags & ExecutionFlags.DESCRIPTORS_VOLATILE:
            self._require_open()
            self._uses += uses
            self._segments.append(_VolatileSegment(self.device, bindings, timestamps=self._timestamps))
        else:
            commands = bindings.commands()
            check_home(bindings)
            self._add(commands, uses)

    def _record_initializer(self, bindings: InitializerBindings) -> None:
        commands = bindings.commands()
        uses = [_Use(operator, None, home) for operator, home in bindings.targets()]
        known = {use.operator for use in self._uses if use.bindings is None}
        with _initialization_lock:
            for operator, _, _ in uses:
                operator.require_uninitialized()
                if operator in known:
                    raise StateError(f"{operator.signature.operator}: a list can initialise a compiled operator only once")
            self._add(commands, uses)
            for operator, _, home in uses:
                operator.note_recorded(home)

    def _add(self, commands: Sequence[Command], uses: Sequence[_Use] = ()) -> None:
        """Appends commands, and what they use. A list in which that has failed is of no more use."""
        recording = self._recording()
        self._is_whole = False
        recording.add(commands)
        self._uses += uses
        self._is_whole = True

    def close(self) -> None:
        """Ends recording. ``submit`` does so too."""
        self._closed = True

    def submit(self, *, defer: bool = False) -> None:
        """Hands the list to the device and returns. A replay waits for the list's own previous submission first.

        Args:
            defer: Hands it over together with whatever is submitted, written or read next on the device, by anybody, in the
                order in which the calls came: one submission where there would be several. A wait does so too.

        Raises:
            StateError: an operator is executed before its initialiser was submitted, or initialised a second time; or
                recording the list has failed half-way.
            BindingError: bindings of a DESCRIPTORS_VOLATILE operator are missing or conflict, or a persistent resource is
                not the range that the initialiser wrote.
            DeviceLostError, OutOfDeviceMemoryError, OutOfHostMemoryError: from Vulkan.
        """
        if not self._is_whole:
            raise StateError(
                "recording the command list has failed half-way, so that it cannot be submitted; record another"
            )
        self._closed = True
        for segment in self._segments:
            if isinstance(segment, _VolatileSegment):
                segment.refresh()
        if self._uses:
            self.device.require_alive()
            with _initialization_lock:
                homes = self._checked_homes()
                self._submit(defer)
                for operator, home in homes.items():
                    operator.note_submitted(home)
                self._uses = [use for use in self._uses if use.bindings is None]
        else:
            self._submit(defer)

    def _submit(self, defer: bool) -> None:
        for recording in self._recordings():
            recording.submit(defer=defer)
        self._submitted = True

    def replay(self) -> None:
        """``submit`` of a list that has been submitted before.

        Raises:
            StateError: it has not; and what ``submit`` raises.
        """
        if not self._submitted:
            raise StateError("the command list has not been submitted; call submit first")
        self.submit()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the last submission.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Returns:
            False when the time ran out. The list stays as it was, and can be waited for again.

        Raises:
            InvalidArgumentError: a negative timeout, or NaN.
            StateError: the list has not been submitted.
            DeviceLostError: the device was lost.
        """
        if timeout is not None and not timeout >= 0:
            raise InvalidArgumentError("must be None or at least 0 seconds", field="timeout", value=timeout)
        if not self._submitted:
            raise StateError("the command list has not been submitted; call submit first")
        # One queue runs a list's parts in order: the last one is done last.
        recordings = self._recordings()
        return not recordings or recordings[-1].wait(timeout)

    def timings(self) -> list[DispatchTiming]:
        """Every dispatch and copy of the last submission in order. Waits for it.

        Times count from the first dispatch of the list; those of a DESCRIPTORS_VOLATILE operator, and of what follows
        it, from the first of that part.

        Raises:
            StateError: the list was created without timestamps, or has not been submitted.
        """
        if not self._timestamps:
            raise StateError("the command list takes no times; create it with timestamps=True")
        self.wait()
        result: list[DispatchTiming] = []
        for recording in self._recordings():
            recording.wait()
            result += recording.timings()
        return result

    def timestamp(self) -> None:
        """Records the taking of the device's time, once everything recorded before it is done. Nothing else waits for it.

        Raises:
            UnsupportedError: the device's queue has no timestamps.
            StateError: a closed list.
        """
        if not self.device.has_timestamps:
            raise UnsupportedError(f"the compute queue of {self.device.info.name} writes no timestamps")
        self._recording().timestamp()

    def timestamps(self) -> list[float]:
        """The time of each ``timestamp`` of the last submission, in order: nanoseconds after the first. Waits for it.

        Raises:
            StateError: the list has not been submitted.
        """
        self.wait()
        ticks: list[int] = []
        for recording in self._recordings():
            recording.wait()
            ticks += recording.timestamps()
        return [self.device.nanoseconds(ticks[0], tick) for tick in ticks]

    def _require_open(self) -> None:
        if self._closed:
            raise StateError("the command list is closed and takes no more commands; create another one")

    def _recording(self) -> Recording:
        """The recording that takes further commands: the list's last part, or a new one after a volatile dispatch."""
        self._require_open()
        last = self._segments[-1] if self._segments else None
        if not isinstance(last, Recording):
            last = Recording(self.device, timestamps=self._timestamps)
            self._segments.append(last)
        return last

    def _recordings(self) -> list[Recording]:
        parts = [part.recording if isinstance(part, _VolatileSegment) else part for part in self._segments]
        return [part for part in parts if part is not None]

    def _checked_homes(self) -> dict[CompiledOperator, BoundRange | None]:
        """The operators that the list initialises, with the ranges that it writes, once each use finds what it needs."""
        homes: dict[CompiledOperator, BoundRange | None] = {}
        for use in self._uses:
            operator = use.operator
            if use.bindings is None:
                operator.require_uninitialized()
                homes[operator] = use.persistent
            elif operator.initialized or operator in homes:
                _require_home(operator, use.bound(), homes.get(operator, operator.persistent_home))
            else:
                raise StateError(
                    f"{operator.signature.operator}: the list with the operator's initialiser must be submitted before one "
                    "that executes it"
                )
        return homes


def check_home(bindings: OperatorBindings) -> None:
    """Raises BindingError unless the persistent resource is a range that an initialiser writes: that of the one that was
    submitted, or else of any that is recorded."""
    operator = bindings.dispatchable
    homes = operator.recorded_homes or (operator.persistent_home,)
    if bindings.persistent not in homes:
        _require_home(operator, bindings.persistent, homes[-1])


def _require_home(operator: CompiledOperator, bound: BoundRange | None, written: BoundRange | None) -> None:
    if operator.plan.persistent_bytes and bound != written:
        raise BindingError(
            "must be the range that the initialiser wrote",
            operator=operator.signature.operator,
            field="PersistentResource",
            value=bound,
            expected=written,
        )


class CommandRecorder:
    """``IDMLCommandRecorder``: stateless, shared freely between threads. Made by ``Device.create_command_recorder``.

    Attributes:
        device: Its device.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self.device = device

    def record_dispatch(self, command_list: CommandList, dispatchable: Dispatchable, binding_table: BindingTable) -> None:
        """``IDMLCommandRecorder::RecordDispatch``. The list inserts the barriers that dependent dispatches need.

        The table may be reset, rebound or dropped afterwards; see the module's text for DESCRIPTORS_VOLATILE.

        Raises:
            BindingError: bindings are missing or conflict.
            StateError: objects of different devices, a table for another dispatchable, a closed list, or an operator
                whose initialiser has not been recorded (or, of an initialiser, has been already).
        """
        bindings = binding_table.bindings
        device = self.device
        parts = (
            ("the command list", command_list),
            ("the dispatchable", dispatchable),
            ("the binding table", binding_table),
        )
        for name, part in parts:
            if part.device is not device:
                raise other_device(name, part.device, "the command recorder", device)
        if bindings is None or bindings.dispatchable is not dispatchable:
            raise StateError("the binding table serves another dispatchable; call reset with this one first")
        command_list.record(bindings)
