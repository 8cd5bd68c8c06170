"""Properties of every pointwise operator over random types, ranks, sizes, strides, offsets, aliasing and schedules, and over
random mistakes: what is valid equals the oracle and touches nothing else, what is not is refused before the GPU sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from drawing import Draw, draw_pointwise, examples
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import TensorDesc
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.lowering import elementwise, possible_rules, quantization
from dmlvk.tensor import element_bits
from dmlvk.verify import check_problem


@contextmanager
def schedules(device: dmlvk.Device, draw: Draw) -> Iterator[None]:
    """Schedules as on a CPU or as on a GPU, and as many items an invocation as only large problems have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=draw(st.booleans())))
        items = draw(st.sampled_from([0, 0, 2, 3, 4]))
        if items:
            for lowering in (elementwise, quantization):
                patch.setattr(lowering, "_item_count", lambda *problem: items)
        yield


def nests(desc: TensorDesc) -> bool:
    """Whether each stride is larger than the reach of the smaller ones."""
    reach = 0
    for step, size in sorted(zip(desc.effective_strides, desc.sizes, strict=True)):
        if size > 1 and step <= reach:
            return False
        reach += (size - 1) * step
    return True


@examples(200)
@given(data=st.data())
def test_what_is_valid_equals_the_oracle(device: dmlvk.Device, data: st.DataObject) -> None:
    entry, variation, problem = draw_pointwise(data.draw)
    (output,) = problem.desc.output_slots()
    assert output.tensor is not None
    with schedules(device, data.draw):
        if element_bits(output.tensor.data_type) == 4 and not nests(output.tensor):
            with pytest.raises(UnsupportedError, match="nest"):
                possible_rules(problem.desc, device.capabilities)
            return
        rule = data.draw(st.sampled_from(["", *possible_rules(problem.desc, device.capabilities)]))
        outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.operator}, {outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported
