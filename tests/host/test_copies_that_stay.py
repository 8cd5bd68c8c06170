"""What the passes that save copies leave alone: what outlives a run, which a step reads as the last one left it and another
writes for the next; and tensors that start on more bytes than a part of a storage does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlvk.graph.passes import PASSES, optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

HALF, WHOLE = (TensorDesc(TensorDataType.FLOAT32, (rows, 4)) for rows in (2, 4))
ROWS = TensorDesc(TensorDataType.FLOAT32, (2, 2, 4))
TURN = ops.ElementWiseIdentity(input_tensor=dataclasses.replace(ROWS, strides=(4, 8, 1)), output_tensor=ROWS)
SAVING = ("identity", "constants", "layout", "split", "join")


def state() -> Storage:
    return Storage(64, np.zeros(16, np.float32))


def unary(row: type[OperatorDesc], x: Storage, y: Storage, tensor: TensorDesc = WHOLE) -> Step:
    return Step(row.__name__, row(input_tensor=tensor, output_tensor=tensor), (x,), (y,))


def alone(names: str, steps: list[Step], *outputs: Storage) -> tuple[Step, ...]:
    return optimized(steps, outputs, without=[item.name for item in PASSES if item.name not in names.split()])


@pytest.mark.parametrize("name", SAVING)
def test_what_is_read_before_it_is_written_is_copied(name: str) -> None:
    x, before, y, kept = Storage(64), Storage(64), Storage(64), state()
    first, second = Storage(32), Storage(32)
    split = ops.Split(input_tensor=WHOLE, output_tensors=(HALF, HALF), axis=0)
    steps = [
        unary(ops.ElementWiseIdentity, kept, before),
        Step("split", split, (kept,), (first, second)),
        unary(ops.ElementWiseExp, x, kept),
        unary(ops.ElementWiseAbs, before, y),
    ]
    found = alone(name, steps, y, first)
    assert [step.origin for step in found] == [step.origin for step in steps]
    assert not any(step.runs_once for step in found)
    assert before in found[0].outputs and first.part_of is second.part_of is None


@pytest.mark.parametrize("name", SAVING)
def test_what_is_kept_is_written_as_a_whole_and_last(name: str) -> None:
    x, a, b, kept, y = Storage(32), Storage(32), Storage(32), state(), Storage(64)
    join = ops.Join(input_tensors=(HALF, HALF), output_tensor=WHOLE, axis=0)
    steps = [
        unary(ops.ElementWiseAbs, x, a, HALF),
        unary(ops.ElementWiseExp, x, b, HALF),
        unary(ops.ElementWiseNegate, kept, y),
        Step("join", join, (a, b), (kept,)),
    ]
    assert alone(name, steps, y) == tuple(steps)
    assert a.part_of is b.part_of is None


@pytest.mark.parametrize("name", SAVING)
def test_a_copy_to_what_is_kept_is_made(name: str) -> None:
    x, kept, y, z = Storage(64), state(), Storage(64), Storage(64)
    for copy in (unary(ops.ElementWiseIdentity, x, kept), Step("turn", TURN, (x,), (kept,))):
        steps = [unary(ops.ElementWiseNegate, kept, y, ROWS), copy, unary(ops.ElementWiseAbs, kept, z, ROWS)]
        assert alone(name, steps, y, z) == tuple(steps)
    assert kept.part_of is None


@pytest.mark.parametrize("name", SAVING)
def test_what_reads_before_a_write_does_not_move_behind_it(name: str) -> None:
    x, kept, t, y, b, j, z = Storage(64), state(), Storage(64), Storage(64), Storage(64), Storage(128), Storage(192)
    wide, wider = (TensorDesc(TensorDataType.FLOAT32, (4, columns)) for columns in (8, 12))
    steps = [
        unary(ops.ElementWiseNegate, kept, t, ROWS),
        Step("join", ops.Join(input_tensors=(WHOLE, WHOLE), output_tensor=wide, axis=1), (kept, b), (j,)),
        unary(ops.ElementWiseExp, x, kept),
        Step("turn", TURN, (t,), (y,)),
        Step("wider", ops.Join(input_tensors=(wide, WHOLE), output_tensor=wider, axis=1), (j, b), (z,)),
    ]
    assert alone(name, steps, y, z) == tuple(steps)


def test_a_tensor_that_starts_on_more_bytes_is_no_part() -> None:
    x, y = Storage(64), Storage(64)
    first, second, a, b = (Storage(32) for _ in range(4))
    aligned = dataclasses.replace(HALF, guaranteed_base_offset_alignment=64)
    split = ops.Split(input_tensor=WHOLE, output_tensors=(HALF, HALF), axis=0)
    join = ops.Join(input_tensors=(HALF, aligned), output_tensor=WHOLE, axis=0)
    steps = [
        Step("split", split, (x,), (first, second)),
        unary(ops.ElementWiseAbs, first, a, aligned),
        unary(ops.ElementWiseAbs, second, b, HALF),
        Step("join", join, (a, b), (y,)),
    ]
    alone("split", steps, y)
    assert first.part_of is None and second.part_of is not None
    alone("join", steps, y)
    assert a.part_of is None and b.part_of is None


def test_a_copy_of_a_copy_is_looked_at_as_it_is_by_then() -> None:
    """The first copy's reader, itself a copy, is another step when its turn comes; both go."""
    x, turned, back, y, z = (Storage(64) for _ in range(5))
    steps = [
        Step("turn", TURN, (x,), (turned,)),
        unary(ops.ElementWiseExp, turned, y, ROWS),
        Step("back", TURN, (turned,), (back,)),
        unary(ops.ElementWiseAbs, back, z, ROWS),
    ]
    first, second = alone("layout split", steps, y, z)
    assert [first.origin, second.origin] == ["ElementWiseExp", "ElementWiseAbs"]
    assert [storage and storage.place.storage for storage in (*first.inputs, *second.inputs)] == [x, x]
    assert [step.desc.tensor("input_tensor").effective_strides for step in (first, second)] == [(4, 8, 1), (8, 4, 1)]


@pytest.mark.parametrize("name", ["identity", "split"])
def test_a_copy_that_a_later_step_writes_over_stays(name: str) -> None:
    """A scatter into a part of a copy would else write into what was copied, which another step still reads."""
    x, y, places, updates, z = Storage(64), Storage(64), Storage(32), Storage(32), Storage(64)
    index = TensorDesc(TensorDataType.INT32, HALF.sizes)
    scatter = ops.ScatterElements(input_tensor=HALF, indices_tensor=index, updates_tensor=HALF, output_tensor=HALF, axis=1)
    ratio = ops.ElementWiseDivide(a_tensor=WHOLE, b_tensor=WHOLE, output_tensor=WHOLE)
    steps = [
        unary(ops.ElementWiseIdentity, x, y),
        Step("scatter", scatter, (x, places, updates), (y,)),
        Step("ratio", ratio, (y, x), (z,)),
    ]
    found = alone(name, steps, z)
    assert [step.origin for step in found] == [step.origin for step in steps]
    assert x not in found[1].outputs
