"""Operators that run by themselves: prepared once for each desc, recorded and submitted at each call."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from dmlvk.engine.operator import PreparedOperator, Ranges, lowered
from dmlvk.engine.stored_array import StoredArray
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_KEPT: Final = 512
Stored = TypeVar("Stored", bound=StoredArray)


class SingleOperator:
    """An operator that is ready to run; its inputs are given at each run. May run in several threads at once. It does not
    keep its device alive, which keeps it.

    Args:
        device: The device that runs it.
        desc: A desc without inputs that are OWNED_BY_DML.

    Attributes:
        inputs, outputs: The tensor of each slot, None for an absent optional one.

    Raises:
        InvalidArgumentError, UnsupportedError: as ``lowered``.
    """

    def __init__(self, device: ComputeDevice, desc: OperatorDesc) -> None:
        self._operator = PreparedOperator(device, desc, lowered(device, desc))
        assert not self._operator.plan.initialize and not self._operator.plan.persistent_bytes, "nothing is OWNED_BY_DML"
        self.inputs: tuple[TensorDesc | None, ...] = tuple(slot.tensor for slot in desc.input_slots())
        self.outputs: tuple[TensorDesc | None, ...] = tuple(slot.tensor for slot in desc.output_slots())

    def run(self, device: ComputeDevice, inputs: Ranges) -> list[Buffer | None]:
        """A new buffer for each output; returns without waiting for the device.

        Args:
            device: The operator's device.
            inputs: The range of each slot, None for an absent optional tensor.
        """
        sizes = [None if tensor is None else tensor.total_tensor_size_in_bytes for tensor in self.outputs]
        buffers = [None if nbytes is None else device.create_buffer(nbytes) for nbytes in sizes]
        self.run_into(
            device, inputs, [None if made is None else BoundRange(made, 0, made.size_in_bytes) for made in buffers]
        )
        return buffers

    def run_into(self, device: ComputeDevice, inputs: Ranges, outputs: Ranges) -> None:
        """As ``run``, but writes to the ranges that are given."""
        scratch = self._operator.temporary_bytes
        temporary = BoundRange(device.create_buffer(scratch, purpose=Purpose.TEMPORARY), 0, scratch) if scratch else None
        recording = Recording(device, timestamps=False)
        recording.add(self._operator.commands(inputs, outputs, temporary))
        recording.submit()


class _Cache:
    """The operators of one device by what asks for them, the least recently used one dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operators: collections.OrderedDict[Hashable, SingleOperator] = collections.OrderedDict()

    def get(self, key: Hashable) -> SingleOperator | None:
        """The operator that is ready for the key, None if there is none."""
        with self._lock:
            found = self._operators.get(key)
            if found is not None:
                self._operators.move_to_end(key)
            return found

    def put(self, key: Hashable, operator: SingleOperator) -> None:
        """Keeps an operator for a key."""
        with self._lock:
            self._operators[key] = operator
            if len(self._operators) > _KEPT:
                self._operators.popitem(last=False)


def single_operator(device: ComputeDevice, key: Hashable, describe: Callable[[], OperatorDesc]) -> SingleOperator:
    """The operator of a key on a device: from the cache, or made now.

    Args:
        device: The device that runs it.
        key: Equal for calls of the same desc.
        describe: Makes that desc.
    """
    cache: _Cache | None = device.kept.get(_Cache)
    if cache is None:
        cache = device.kept.setdefault(_Cache, _Cache())
    operator = cache.get(key)
    if operator is None:
        operator = SingleOperator(device, describe())
        cache.put(key, operator)
    return operator


def packed(array: Stored) -> Stored:
    """A packed copy of an array, made on the device. Does not wait for it."""
    target = TensorDesc(array.data_type, array.desc.sizes)

    def copy() -> OperatorDesc:
        return ops.ElementWiseIdentity(input_tensor=array.desc, output_tensor=target)

    operator = single_operator(array.device, ("packed", array.desc), copy)
    (buffer,) = operator.run(array.device, [bound(array)])
    assert buffer is not None, "a copy has an output"
    return type(array)(array.device, buffer, array.data_type, array.shape, is_bool=array.is_bool)


def bound(array: StoredArray) -> BoundRange:
    """The range of an array's bytes: its own or, where they cannot be bound, those of a copy made on the device."""
    buffer, offset, _ = array.binding()
    assert buffer is not None, "an array has memory"
    return BoundRange(buffer, offset, -(-array.span_in_bytes // 4) * 4)
