"""Pipelines: a pointwise operator needs one for each data type and class of layouts, and none for another shape."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import pytest
from drawing import POINTWISE

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.kernels.common.kernel import module_name
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Launch
from dmlvk.kernels.lowering import lower
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import generator
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import run

Sizes = tuple[int, ...]


@pytest.fixture
def fresh() -> dmlvk.Device:
    """A device that has no pipelines yet."""
    device = dmlvk.Device()
    assert device.pipelines_created == 0
    return device


def binary(operator: type[OperatorDesc], sizes: Sizes, strides_of_b: Sizes | None = None) -> Problem:
    """A problem in float32 whose tensors lie packed but for b."""
    packed = TensorDesc(TensorDataType.FLOAT32, sizes)
    b = TensorDesc(TensorDataType.FLOAT32, sizes, strides_of_b)
    desc = operator(a_tensor=packed, b_tensor=b, output_tensor=packed)
    problem = Problem(desc, (GuardedTensor(packed, 0), GuardedTensor(b, 16)), (GuardedTensor(packed, 0),))
    for tensor in problem.inputs:
        assert tensor is not None
        tensor.view()[...] = 3
    return problem


def random_sizes(count: int) -> list[Sizes]:
    """Distinct sizes of every rank, of at most about 10,000 elements."""
    rng = generator("pipelines")
    found: dict[Sizes, None] = {}
    while len(found) < count:
        rank = len(found) % 8 + 1
        found[tuple(map(int, rng.integers(1, 3 + round(10_000 ** (1 / rank)), rank)))] = None
    return list(found)


def test_a_new_packed_shape_compiles_nothing(fresh: dmlvk.Device) -> None:
    shapes = random_sizes(50)
    assert {len(sizes) for sizes in shapes} == set(range(1, 9))
    for sizes in shapes:
        problem = binary(ops.ElementWiseAdd, sizes)
        (data,), dispatches, _ = run(fresh, problem)
        (output,) = problem.outputs
        assert data is not None and output is not None and dispatches == 1
        assert (output.view(data) == 6).all()
    assert fresh.pipelines_created == 1


@pytest.mark.parametrize(
    ("shapes", "strides_of_b"),
    [
        ([(rows, 4 * groups) for rows in (2, 3, 65) for groups in (1, 2, 17, 129)], (0, 1)),  # a bias for each column
        ([(rows, 4 * groups) for rows in (2, 3, 65) for groups in (1, 2, 17, 129)], (1, 0)),  # and for each row
        ([(rows, columns) for rows in (2, 3, 13) for columns in (5, 7, 131)], (1, 200)),  # transposed, too small for tiles
    ],
)
def test_a_new_shape_of_a_class_of_layouts_compiles_nothing(
    fresh: dmlvk.Device, shapes: Sequence[Sizes], strides_of_b: Sizes
) -> None:
    for sizes in shapes:
        run(fresh, binary(ops.ElementWiseAdd, sizes, strides_of_b))
    assert fresh.pipelines_created == 1


def kernel(launch: Launch) -> KernelVariant | str:
    """The pipeline, or the name of the copy command that needs none."""
    return launch.kernel if isinstance(launch, Dispatch) else launch.name


@pytest.mark.parametrize("is_cpu", [True, False])
def test_packed_shapes_of_every_operator_share_a_pipeline(device: dmlvk.Device, is_cpu: bool) -> None:
    """Of every operator of tensors of equal sizes; from a million elements on, an invocation may take several items."""
    caps = dataclasses.replace(device.capabilities, is_cpu=is_cpu)
    for entry in POINTWISE:
        if any(spec.dimension_counts not in ((0, 0), (1, 8)) for spec in entry.operator.fields):
            continue
        for case in entry.cases:
            if len({*case.inputs.values(), *case.outputs.values()}) > 1:
                continue
            kernels = set()
            for sizes in ((5,), (1, 1, 4, 1, 9, 2), (2, 3, 5, 7), (64, 65)):
                inputs, outputs = dict.fromkeys(case.inputs, sizes), dict.fromkeys(case.outputs, sizes)
                resized = dataclasses.replace(case, inputs=inputs, outputs=outputs)
                for data_type in case.only or entry.crossed_types:
                    desc = build(entry.operator, Variation(resized, data_type, "packed")).desc
                    kernels |= {(data_type, kernel(launch)) for launch in lower(desc, caps).dispatches}
            assert len(kernels) == len(case.only or entry.crossed_types), (entry.operator, case.name)


def test_pipelines_of_the_family(fresh: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample with the quick cases of every operator, each in its first data type."""
    descs = [
        build(entry.operator, Variation(case, (case.only or entry.crossed_types)[0], "packed")).desc
        for entry in POINTWISE
        for case in entry.cases
        if case.quick
    ]
    launches = [launch for desc in descs for launch in lower(desc, fresh.capabilities).dispatches]
    needed = {launch.kernel for launch in launches if isinstance(launch, Dispatch)}
    modules = {module_name(kernel.kernel, kernel.variant) for kernel in needed}
    for desc in (*descs, *descs):
        fresh.compile_operator(fresh.create_operator(desc))
    assert fresh.pipelines_created == len(needed) <= len(descs)
    with capsys.disabled():
        print(f"\n{len(descs)} descs of {len(POINTWISE)} operators: {len(needed)} pipelines, {len(modules)} SPIR-V modules")


def test_time_of_a_first_call(fresh: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    """Shows what a new shape costs beside a new operator; only the pipelines are held to anything."""

    def milliseconds(operator: type[OperatorDesc], sizes: Sizes) -> float:
        problem = binary(operator, sizes)
        start = time.perf_counter()
        run(fresh, problem)
        return 1000 * (time.perf_counter() - start)

    milliseconds(ops.ElementWiseMultiply, (16,))
    operators = (ops.ElementWiseAdd, ops.ElementWiseSubtract, ops.ElementWiseMax, ops.ElementWiseAtanYx)
    first = [milliseconds(operator, (16,)) for operator in operators]
    assert fresh.pipelines_created == 1 + len(operators)
    again = [milliseconds(operator, sizes) for operator in operators for sizes in ((17,), (3, 5), (2, 2, 2, 2))]
    assert fresh.pipelines_created == 1 + len(operators)
    with capsys.disabled():
        print(f"\nfirst call of an operator: {np.median(first):.1f} ms; of a new shape: {np.median(again):.1f} ms (medians)")


def test_a_driver_tells_what_it_made_of_a_kernel(device: dmlvk.Device) -> None:
    tensor = TensorDesc(TensorDataType.FLOAT32, (1024,))
    launch = lower(ops.ElementWiseAbs(input_tensor=tensor, output_tensor=tensor), device.capabilities).dispatches[0]
    assert isinstance(launch, Dispatch)
    if "executable_properties" not in device.capabilities.features:
        with pytest.raises(dmlvk.UnsupportedError, match="VK_KHR_pipeline_executable_properties") as caught:
            device.programs(launch)
        assert caught.value.features == ("executable_properties",)
        return
    for program in device.programs(launch):
        assert program.name and program.subgroup_size and str(program).startswith(program.name)
        assert len({statistic.name for statistic in program.statistics}) == len(program.statistics)
        assert all(form.text for form in program.representations)
    assert [program.name for program in device.programs(launch)], "it tells again"
