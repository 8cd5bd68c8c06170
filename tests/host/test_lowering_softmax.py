"""The rules and plans of softmax and its relatives, without a device."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, newest, possible_rules
from dmlvk.kernels.softmax.rules import SOFTMAX, SOFTMAX_HELD_ALONE, SOFTMAX_HELD_BY_ALL, SoftmaxProblem, SoftmaxUnit
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152, storage_buffer_bytes=2**32 - 1)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
LEAST = Capabilities()
ELEMENT, ALONG, ACROSS, ANYWHERE = SoftmaxUnit


def softmax(sizes: tuple[int, ...], axes: tuple[int, ...], data_type: TensorDataType = FLOAT32) -> Any:
    tensor = TensorDesc(data_type, sizes)
    return ops.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=axes)


def problem_of(desc: Any) -> SoftmaxProblem:
    found: SoftmaxProblem = LOWERINGS[type(desc)].problem(desc)
    return found


def test_older_rows_become_the_newest() -> None:
    tensor = TensorDesc(FLOAT32, (1, 3, 5))
    for old, new in (
        (ops.ActivationSoftmax, ops.ActivationSoftmax1),
        (ops.ActivationLogSoftmax, ops.ActivationLogSoftmax1),
        (ops.ActivationHardmax, ops.ActivationHardmax1),
    ):
        upgraded = newest(old(input_tensor=tensor, output_tensor=tensor))
        assert upgraded == new(input_tensor=tensor, output_tensor=tensor, axes=(2,))


@pytest.mark.parametrize(
    ("desc", "rule", "unit", "elements"),
    [
        (softmax((64, 1024), (1,)), "whole", ALONG, 4),
        (softmax((64, 1024), (1,), FLOAT16), "whole", ALONG, 8),
        (softmax((64, 1023), (1,)), "whole", ANYWHERE, 4),
        (softmax((64, 1023), (1,), FLOAT16), "whole", ANYWHERE, 8),
        (softmax((64, 95), (1,)), "whole", ELEMENT, 1),
        (softmax((64, 31, 33), (1, 2)), "whole", ANYWHERE, 4),
        (softmax((2000, 50257), (1,)), "whole", ANYWHERE, 4),
        (softmax((2000, 90001), (1,), FLOAT16), "whole", ANYWHERE, 8),
        (softmax((2, 50257), (1,)), "split", ANYWHERE, 4),
        (softmax((2000, 60000), (1,)), "looped", ALONG, 4),
        (softmax((2, 21, 64, 64), (1,)), "whole", ACROSS, 4),
        (softmax((2, 21, 7, 7), (1,)), "whole", ELEMENT, 1),
        (softmax((3, 8, 40), ()), "whole", ACROSS, 4),
        (softmax((2, 200001), (1,)), "split", ANYWHERE, 4),
        (softmax((2000, 200000), (1,)), "looped", ALONG, 4),
        (softmax((8192, 16384), (0,)), "looped", ACROSS, 4),
        (softmax((200000, 64), (0,)), "split", ACROSS, 4),
    ],
)
def test_rules(desc: Any, rule: str, unit: SoftmaxUnit, elements: int) -> None:
    problem = problem_of(desc)
    assert choose(SOFTMAX, problem, GPU).name == rule
    assert (problem.unit, problem.unit_elements) == (unit, elements)


@pytest.mark.parametrize(("x", "y", "unit"), [(1003, 1007, ANYWHERE), (1003, 1006, ELEMENT), (1004, 1008, ELEMENT)])
def test_rows_start_at_the_same_place_of_a_word_in_both_tensors(x: int, y: int, unit: SoftmaxUnit) -> None:
    steps = 2 if unit is ELEMENT and x == 1004 else 1
    tensors = (TensorDesc(FLOAT32, (9, 301), (step * steps, steps)) for step in (x, y))
    desc = ops.ActivationSoftmax1(**dict(zip(("input_tensor", "output_tensor"), tensors, strict=True)), axes=(1,))
    assert problem_of(desc).unit is unit


@pytest.mark.parametrize("caps", [GPU, CPU, LEAST], ids=["GPU", "CPU", "least"])
def test_workgroups_cover_rows_on_every_device(caps: Capabilities) -> None:
    caps = dataclasses.replace(caps, features=caps.features | {"storage16"})
    for size in (1, 7, 16, 17, 255, 1000, 4096, 9001, 32768, 50257):
        for desc in (softmax((3, size), (1,)), softmax((2, size, 37), (1,)), softmax((size, 64), (0,), FLOAT16)):
            problem = problem_of(desc)
            for rule in possible_rules(desc, caps):
                for dispatch in lower(desc, caps, force=rule).dispatches:
                    constants = dict(dispatch.kernel.constants)
                    lanes, columns, local = constants["LANES"], constants["COLUMNS"], constants["LOCAL_SIZE_X"]
                    assert local <= caps.workgroup_invocations and local % (lanes * columns) == 0
                    assert 16 * constants["MERGED"] <= caps.shared_memory_bytes
                    assert math.prod(dispatch.grid) * (local // lanes) >= problem.groups
                    if rule == "whole":
                        assert lanes * constants["UNITS"] >= problem.row_units
                        registers = constants["UNITS"] * problem.unit_elements // (1 + constants.get("PACKED", 0))
                        alone = lanes == local and lanes in (512, 1024) and not problem.side_by_side
                        most = SOFTMAX_HELD_BY_ALL if lanes == 1024 else 2 * SOFTMAX_HELD_ALONE
                        assert constants["UNITS"] <= problem.units_held or (alone and registers <= most)


@pytest.mark.parametrize(
    ("data_type", "size", "shape"),
    [
        (FLOAT16, 8192, (256, 4, 0, 0)),
        (FLOAT16, 8200, (128, 9, 1, 0)),
        (FLOAT16, 20000, (256, 10, 1, 0)),
        (FLOAT16, 32000, (512, 8, 1, 0)),
        (FLOAT16, 32776, (512, 9, 1, 5)),
        (FLOAT16, 40960, (512, 10, 1, 5)),
        (FLOAT16, 40968, (256, 21, 1, 11)),
        (FLOAT16, 50257, (256, 25, 1, 11)),
        (FLOAT16, 53248, (256, 26, 1, 11)),
        (FLOAT16, 53256, (1024, 7, 1, 0)),
        (FLOAT32, 4096, (128, 8, 0, 0)),
        (FLOAT32, 10001, (256, 10, 0, 0)),
        (FLOAT32, 22528, (512, 11, 0, 0)),
        (FLOAT32, 22532, (1024, 8, 0, 0)),
    ],
)
def test_many_long_rows_share_processors(data_type: Any, size: int, shape: tuple[int, int, int, int]) -> None:
    caps = dataclasses.replace(GPU, features=GPU.features | {"storage16"})

    def shape_of(desc: Any, caps: Capabilities = caps) -> tuple[int, ...]:
        (dispatch,) = lower(desc, caps, force="whole").dispatches
        constants = dict(dispatch.kernel.constants)
        on_shelf = 16 * constants["LANES"] * constants.get("SHELF", 0)
        assert on_shelf + 16 * constants["MERGED"] <= caps.shared_memory_bytes
        assert ("UNIT", str(int(ANYWHERE))) in dispatch.kernel.variant or not on_shelf
        return (constants["LANES"], constants["UNITS"], constants.get("PACKED", 0), constants.get("SHELF", 0))

    assert shape_of(softmax((2000, size), (1,), data_type)) == shape
    few = shape_of(softmax((GPU.model.workgroups(1), size), (1,), data_type))
    is_shared = size not in (4096, 8192, 22532, 53256)
    assert (few[0] > shape[0]) == is_shared, "a row that is alone on a processor has more invocations"
    assert not few[3]
    assert not shape_of(softmax((2000, size), (1,), data_type), dataclasses.replace(caps, shared_memory_bytes=16384))[3]


@pytest.mark.parametrize(
    ("data_type", "size", "lanes", "units"),
    [
        (FLOAT32, 45056, 1024, 11),
        (FLOAT32, 45057, 512, 23),
        (FLOAT32, 53248, 512, 26),
        (FLOAT16, 90112, 1024, 11),
        (FLOAT16, 98304, 512, 24),
    ],
)
def test_rows_of_many_registers_have_half_the_invocations(data_type: Any, size: int, lanes: int, units: int) -> None:
    caps = dataclasses.replace(GPU, features=GPU.features | {"storage16"})
    (dispatch,) = lower(softmax((2000, size), (1,), data_type), caps, force="whole").dispatches
    constants = dict(dispatch.kernel.constants)
    assert (constants["LOCAL_SIZE_X"], constants["LANES"], constants["UNITS"]) == (lanes, lanes, units)


def test_split_rows_keep_to_the_temporary_memory() -> None:
    for sizes, axis in (((4, 2**22), 1), ((2**22, 4), 0), ((2**20, 16), 0), ((2**14, 2**13), 0)):
        desc = softmax(sizes, (axis,))
        plan = lower(desc, GPU, force="split")
        assert len(plan.dispatches) == 2
        assert 0 < plan.temporary_bytes <= max(2**20, 4 * math.prod(sizes) // 100)


def test_hardmax_keeps_the_order_of_its_axes() -> None:
    tensor = TensorDesc(FLOAT32, (2, 3, 5), (1, 10, 2))
    for row, wanted in ((ops.ActivationSoftmax1, (30,)), (ops.ActivationHardmax1, (2, 15))):
        desc = row(input_tensor=tensor, output_tensor=tensor, axes=(2, 1, 0))
        assert problem_of(desc).row.sizes == wanted
