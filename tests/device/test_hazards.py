"""Dependent dispatches run in order, without the caller's doing. Under synchronisation validation a missing barrier is
a message, also on a driver that happens to keep the order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import BufferBinding, TensorDataType, TensorDesc

COUNT = 4099
TENSOR = TensorDesc(TensorDataType.FLOAT32, (COUNT,))
Floats = NDArray[np.float32]


class Bench:
    """Sums and products of vectors, recorded into one list."""

    def __init__(self, device: dmlvk.Device) -> None:
        self.device = device
        self.add = self._initialized(dmlvk.ElementWiseAdd)
        self.multiply = self._initialized(dmlvk.ElementWiseMultiply)
        self.commands = device.create_command_list()
        self.recorder = device.create_command_recorder()

    def _initialized(self, row: type[dmlvk.ElementWiseAdd] | type[dmlvk.ElementWiseMultiply]) -> dmlvk.CompiledOperator:
        desc = row(a_tensor=TENSOR, b_tensor=TENSOR, output_tensor=TENSOR)
        operator = self.device.compile_operator(self.device.create_operator(desc))
        initializer = self.device.create_operator_initializer([operator])
        commands = self.device.create_command_list()
        table = self.device.create_binding_table(initializer)
        self.device.create_command_recorder().record_dispatch(commands, initializer, table)
        self.device.execute(commands)
        return operator

    def vector(self, values: Floats) -> dmlvk.Buffer:
        buffer = self.device.create_buffer(values.nbytes)
        buffer.write(values)
        return buffer

    def record(self, operator: dmlvk.CompiledOperator, a: dmlvk.Buffer, b: dmlvk.Buffer, y: dmlvk.Buffer) -> None:
        table = self.device.create_binding_table(operator)
        table.bind_inputs([BufferBinding(a), BufferBinding(b)])
        table.bind_outputs([BufferBinding(y)])
        self.recorder.record_dispatch(self.commands, operator, table)


@pytest.fixture
def bench(device: dmlvk.Device) -> Bench:
    return Bench(device)


def values(buffer: dmlvk.Buffer) -> Floats:
    return buffer.read().view(np.float32)


def random(seed: int) -> Floats:
    return np.random.default_rng(seed).uniform(0.5, 1.5, COUNT).astype(np.float32)


@pytest.mark.quick
def test_two_dependent_dispatches_in_place_give_the_same_bits_a_thousand_times(bench: Bench) -> None:
    x, factor, term = random(1), random(2), random(3)
    work, b, c = bench.vector(x), bench.vector(factor), bench.vector(term)
    bench.record(bench.multiply, work, b, work)
    bench.record(bench.add, work, c, work)
    expected = x * factor + term
    for _ in range(1000):
        work.write(x)
        bench.commands.submit()
        np.testing.assert_array_equal(values(work), expected)


def test_a_chain_of_a_thousand_dispatches_in_place(bench: Bench) -> None:
    x, factor, term = random(4), random(5) * np.float32(0.5), random(6)
    work, b, c = bench.vector(x), bench.vector(factor), bench.vector(term)
    expected = x
    for _ in range(500):
        bench.record(bench.multiply, work, b, work)
        bench.record(bench.add, work, c, work)
        expected = expected * factor + term
    bench.device.execute(bench.commands)
    np.testing.assert_array_equal(values(work), expected)


def test_replays_of_a_list_follow_each_other(bench: Bench) -> None:
    work, one = bench.vector(np.zeros(COUNT, np.float32)), bench.vector(np.ones(COUNT, np.float32))
    bench.record(bench.add, work, one, work)
    for _ in range(100):
        bench.commands.submit()
    np.testing.assert_array_equal(values(work), np.full(COUNT, 100, np.float32))


def test_a_write_waits_for_an_earlier_read_and_for_an_earlier_write(bench: Bench) -> None:
    a, b = random(7), random(8)
    first, second = bench.vector(a), bench.vector(b)
    total, product = (bench.device.create_buffer(4 * COUNT) for _ in range(2))
    bench.record(bench.add, first, second, total)
    bench.record(bench.multiply, second, second, first)  # overwrites what the sum read
    bench.record(bench.add, total, total, product)
    bench.record(bench.multiply, second, second, product)  # overwrites what the line above wrote
    bench.device.execute(bench.commands)
    np.testing.assert_array_equal(values(total), a + b)
    np.testing.assert_array_equal(values(first), b * b)
    np.testing.assert_array_equal(values(product), b * b)


def test_copies_are_ordered_with_dispatches(bench: Bench) -> None:
    a = random(9)
    source, copy, total = bench.vector(a), bench.vector(np.zeros(COUNT, np.float32)), bench.vector(a)
    bench.commands.copy_buffer_region(copy, 0, source, 0, 4 * COUNT)
    bench.record(bench.add, copy, copy, total)
    bench.commands.copy_buffer_region(source, 0, total, 0, 4 * COUNT)
    bench.record(bench.add, source, source, copy)
    for factor in (4, 8):
        bench.device.execute(bench.commands)
        np.testing.assert_array_equal(values(copy), a * np.float32(factor))


def test_lists_submitted_one_after_the_other_are_ordered(bench: Bench) -> None:
    a = random(10)
    work = bench.vector(a)
    lists = []
    for _ in range(8):
        bench.commands = bench.device.create_command_list()
        bench.record(bench.add, work, work, work)
        lists.append(bench.commands)
    for commands in lists:
        commands.submit()
    np.testing.assert_array_equal(values(work), a * np.float32(256))


def test_uploads_are_ordered_with_lists(bench: Bench) -> None:
    work, total = (bench.vector(np.zeros(COUNT, np.float32)) for _ in range(2))
    bench.record(bench.add, total, work, total)
    for step in range(50):
        work.write(np.full(COUNT, step, np.float32))
        bench.commands.submit()
    np.testing.assert_array_equal(values(total), np.full(COUNT, sum(range(50)), np.float32))
