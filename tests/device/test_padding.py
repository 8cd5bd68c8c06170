"""Random paddings and reversed subsequences, in any layout and by any rule, against their oracles."""

from __future__ import annotations

import dataclasses

import numpy as np
from drawing import draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import PaddingMode, TensorDataType
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, any_bits
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check_problem

TYPES = st.sampled_from([TensorDataType.UINT8, TensorDataType.FLOAT16, TensorDataType.FLOAT32, TensorDataType.FLOAT64])


def check(device: dmlvk.Device, data: st.DataObject, row: type[OperatorDesc], case: Case, data_type: TensorDataType) -> None:
    """The case in drawn layouts, half of them packed, by a drawn rule."""
    draw = data.draw
    packed = draw(st.booleans())

    def place(kind: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        if packed:
            return GuardedTensor(dmlvk.TensorDesc(kind, sizes), 16 * draw(st.integers(0, 3)))
        return draw_tensor(draw, kind, sizes, is_output=is_output)

    variation = Variation(case, data_type, "drawn")
    problem = build(row, variation, place)
    rule = draw(st.sampled_from(possible_rules(problem.desc, device.capabilities)))
    outcome = check_problem(device, all_cases()[row], dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.operator}, {outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported


@examples(100)
@given(data=st.data())
def test_random_paddings(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw_sizes(draw, 1, 8, 400)
    pads = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 8, 17] if len(sizes) < 4 else [0, 0, 0, 0, 0, 1, 2])
    data_type = draw(TYPES)
    case = Case(
        f"random {draw(st.integers(0, 2**32))}",
        inputs={"input_tensor": sizes},
        attributes={
            "padding_mode": draw(st.sampled_from(PaddingMode)),
            "padding_value_data_type": data_type,
            "padding_value": draw(st.integers(0, 255)),
            "start_padding": tuple(draw(pads) for _ in sizes),
            "end_padding": tuple(draw(pads) for _ in sizes),
        },
        domains={"": any_bits},
    )
    check(device, data, ops.Padding1, case, data_type)


@examples(60)
@given(data=st.data())
def test_random_reversals(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw_sizes(draw, 1, 8, 1500)
    axis = draw(st.integers(0, len(sizes) - 1))
    most = draw(st.sampled_from([2, sizes[axis], 2 * sizes[axis]]))

    def lengths(rng: np.random.Generator, own: tuple[int, ...], data_type: TensorDataType) -> Array:
        return rng.integers(0, most, own, dtype=NUMPY_TYPES[data_type], endpoint=True)

    case = Case(
        f"random {draw(st.integers(0, 2**32))}",
        inputs={"input_tensor": sizes, "sequence_lengths_tensor": (*sizes[:axis], 1, *sizes[axis + 1 :])},
        attributes={"axis": axis},
        data_types={"sequence_lengths_tensor": draw(st.sampled_from([TensorDataType.UINT32, TensorDataType.UINT64]))},
        domains={"input_tensor": any_bits, "sequence_lengths_tensor": lengths},
    )
    check(device, data, ops.ReverseSubsequences, case, draw(TYPES))
