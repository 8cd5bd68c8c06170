"""Coordinates of what is not zero: against numpy, ONNX's reference and PyTorch, over random layouts and schedules, and what
must not be touched.

DirectML's printed example runs in ``test_examples.py``."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from drawing import draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.compaction import lowering
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.verify.cases import compaction as cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, special
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check_problem

Array = NDArray[Any]
T = TensorDataType
(ENTRY,) = cases.CASES


def nonzero(device: dmlvk.Device, x: Array) -> Array:
    count, rows = eager.nonzero_coordinates(x, output_data_types=(T.UINT32, T.UINT32), device=device)
    return rows.reshape(-1, x.ndim)[: count.item()]  # type: ignore[no-any-return]


@pytest.mark.quick
@pytest.mark.parametrize(
    "bits",
    [
        np.array([0, 0x80000000, 1, 0x80000001, 0x7FC00000, 0xFF800001, 0x7F800000, 0, 0x007FFFFF], np.uint32),
        np.array([0, 0x8000, 1, 0x8001, 0x7E00, 0xFC01, 0x7C00, 0, 0x03FF], np.uint16),
    ],
    ids=["float32", "float16"],
)
def test_only_zeros_of_either_sign_are_zero(device: dmlvk.Device, bits: Array) -> None:
    """Subnormal numbers are not, whatever the device makes of them in arithmetic, and NaN is not."""
    x = bits.view(f"f{bits.dtype.itemsize}")
    assert nonzero(device, x).ravel().tolist() == [2, 3, 4, 5, 6, 8]
    assert nonzero(device, bits).ravel().tolist() == [1, 2, 3, 4, 5, 6, 8]


def test_agrees_with_the_onnx_reference(device: dmlvk.Device) -> None:
    x = np.random.default_rng(1).integers(-1, 2, (5, 7, 11)).astype(np.float32)
    reference = onnx.reference.ReferenceEvaluator(helper.make_node("NonZero", ["x"], ["y"]))
    np.testing.assert_array_equal(nonzero(device, x).T, reference.run(None, {"x": x})[0])  # type: ignore[index]


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int16, np.uint8])
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, kind: Any) -> None:
    x = np.random.default_rng(2).integers(0, 3, (6, 1, 83, 67)).astype(kind)
    np.testing.assert_array_equal(nonzero(device, x), torch.nonzero(torch.from_numpy(x)).numpy())


def test_rows_behind_the_last_are_not_written(device: dmlvk.Device) -> None:
    x = np.zeros((3, 700), np.uint8)
    x[1, 5] = x[2, 699] = 9
    desc = dmlvk.NonzeroCoordinates(
        input_tensor=TensorDesc(T.UINT8, x.shape),
        output_count_tensor=TensorDesc(T.UINT32, (1,)),
        output_coordinates_tensor=TensorDesc(T.UINT32, (2100, 2)),
    )
    for rule in possible_rules(desc, device.capabilities):
        buffers = [device.create_buffer(size) for size in (x.nbytes, 4, 4 * 4200)]
        for buffer, content in zip(buffers, (x, np.full(4, 0xA5, np.uint8), np.full(4 * 4200, 0xA5, np.uint8)), strict=True):
            buffer.write(content)
        commands = device.create_command_list()
        source, *outputs = map(BufferBinding, buffers)
        ReadyOperator(device, desc, rule).record(commands, [source], outputs)
        device.execute(commands)
        assert buffers[1].read().view(np.uint32).tolist() == [2]
        rows = buffers[2].read().view(np.uint32)
        assert rows[:4].tolist() == [1, 5, 2, 699]
        assert (rows[4:] == 0xA5A5A5A5).all()


@examples(25)
@given(data=st.data())
def test_any_layout_and_schedule(device: dmlvk.Device, data: st.DataObject) -> None:
    """Chunks of several tiles, which only large inputs would have, included."""
    draw = data.draw
    sizes = draw_sizes(
        draw, elements=draw(st.sampled_from([50, 3000, 40000])), each=st.sampled_from([1, 2, 3, 8, 16, 65, 257])
    )
    rank = len(sizes)
    least = next((rank - axis for axis, size in enumerate(sizes) if size != 1), 1)
    columns = draw(st.integers(least, rank))
    coordinates = (*(1,) * draw(st.integers(0, 6)), int(np.prod(sizes)), columns)
    domain = draw(st.sampled_from([special, *map(cases.sparse, (0.0, 0.02, 0.5, 1.0))]))
    case = Case(
        f"drawn #{draw(st.integers(0, 2**32 - 1))}",
        {"input_tensor": sizes},
        outputs={"output_count_tensor": (1,) * draw(st.integers(1, 8)), "output_coordinates_tensor": coordinates},
        data_types={"output_count_tensor": T.UINT32, "output_coordinates_tensor": T.UINT32},
        domains={"": domain},
    )
    variation = Variation(case, draw(st.sampled_from(ENTRY.crossed_types)), "drawn")

    def place(kind: T, own: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return draw_tensor(draw, kind, own, is_output=is_output)

    problem = build(ENTRY.operator, variation, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=draw(st.booleans())))
        patch.setattr(lowering, "_MOST_CHUNKS", draw(st.sampled_from([1, 2, 3, 4096])))
        rule = draw(st.sampled_from(possible_rules(problem.desc, device.capabilities)))
        outcome = check_problem(device, ENTRY, dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported


def desc(sizes: tuple[int, ...], count: tuple[int, ...], coordinates: tuple[int, ...]) -> dmlvk.NonzeroCoordinates:
    return dmlvk.NonzeroCoordinates(
        input_tensor=TensorDesc(T.FLOAT32, sizes),
        output_count_tensor=TensorDesc(T.UINT32, count),
        output_coordinates_tensor=TensorDesc(T.UINT32, coordinates),
    )


@pytest.mark.parametrize(
    ("sizes", "count", "coordinates", "field"),
    [
        ((1, 2, 4), (1, 2), (8, 3), "OutputCountTensor"),
        ((1, 2, 4), (1,), (7, 3), "OutputCoordinatesTensor"),
        ((1, 2, 4), (1,), (2, 4, 3), "OutputCoordinatesTensor"),
        ((1, 2, 4), (1,), (8, 1), "OutputCoordinatesTensor"),
        ((1, 2, 4), (1,), (8, 4), "OutputCoordinatesTensor"),
    ],
)
def test_mistakes_are_refused(
    device: dmlvk.Device, sizes: tuple[int, ...], count: tuple[int, ...], coordinates: tuple[int, ...], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        device.create_operator(desc(sizes, count, coordinates))
    assert caught.value.field == field


def test_a_vector_and_ones_without_any_rank_are_accepted(device: dmlvk.Device) -> None:
    for valid in (desc((5,), (1,), (5, 1)), desc((1, 1, 1), (1, 1), (1, 1)), desc((1, 1, 1), (1,), (1, 1, 1, 3))):
        device.create_operator(valid)
