"""Every rule's plan of every operator keeps to the device that it is made for: least limits, other subgroup sizes, with and
without what makes kernels fast. What a pipeline takes is read from its SPIR-V, not from what the lowering says."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import pytest
from spirv_modules import shared_bytes

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.kernels.common.library import spirv
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan, Range, Source
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import Variation, build

STORAGE = SUBGROUPS | {"storage8", "storage16", "int64", "float64"}
"""What the operators' data types need, and no arithmetic in narrow ones."""

MATRICES = STORAGE | {"float16", "int8", "int16", "integer_dot_product", "cooperative_matrix", "vulkan_memory_model"}

DEVICES = {
    "least": Capabilities(features=STORAGE),
    "subgroups of 8": Capabilities(
        features=STORAGE,
        subgroup_size=8,
        minimum_subgroup_size=8,
        maximum_subgroup_size=8,
        workgroup_invocations=256,
        is_cpu=True,
    ),
    "subgroups of 16, matrices": Capabilities(
        features=MATRICES | {"subgroup_size_control", "full_subgroups"},
        subgroup_size=16,
        minimum_subgroup_size=8,
        maximum_subgroup_size=32,
        workgroup_invocations=512,
        shared_memory_bytes=32768,
        cooperative_matrices=(
            CooperativeMatrix(8, 16, 16, "float16", "float32"),
            CooperativeMatrix(8, 16, 16, "float16", "float16"),
            CooperativeMatrix(8, 16, 32, "int8", "int32"),
        ),
    ),
    "subgroups of 64": Capabilities(
        features=STORAGE | {"float16", "int8", "int16", "integer_dot_product"},
        subgroup_size=64,
        minimum_subgroup_size=32,
        maximum_subgroup_size=64,
        workgroup_invocations=1024,
        shared_memory_bytes=65536,
    ),
    "matrices, least shared memory": Capabilities(
        features=MATRICES | {"subgroup_size_control", "full_subgroups"},
        subgroup_size=32,
        minimum_subgroup_size=32,
        maximum_subgroup_size=32,
        cooperative_matrices=(
            CooperativeMatrix(16, 16, 16, "float16", "float32"),
            CooperativeMatrix(16, 16, 16, "float16", "float16"),
            CooperativeMatrix(16, 16, 32, "int8", "int32"),
        ),
        allow_half_precision=True,
    ),
    "matrices": Capabilities(
        features=MATRICES | {"subgroup_size_control", "full_subgroups", "cooperative_matrix2"},
        subgroup_size=32,
        minimum_subgroup_size=32,
        maximum_subgroup_size=32,
        workgroup_invocations=1024,
        shared_memory_bytes=49152,
        cooperative_matrices=(
            CooperativeMatrix(16, 16, 16, "float16", "float16"),
            CooperativeMatrix(16, 16, 16, "float16", "float32"),
            CooperativeMatrix(16, 8, 16, "float16", "float32"),
            CooperativeMatrix(16, 16, 32, "int8", "int32"),
            CooperativeMatrix(16, 16, 32, "uint8", "uint32"),
        ),
        allow_half_precision=True,
    ),
}

PLAIN = ("least", "subgroups of 8", "subgroups of 64")
"""Names of the devices for families that know no matrices."""

MATRIX_FAMILIES = {f"dmlvk.spec.ops.{name}" for name in ("attention", "convolution", "integer", "matmul", "recurrent")}


def descs(entry: OperatorCases) -> Iterator[OperatorDesc]:
    """Every case of an operator with every type, packed and strided; of matrix families also with weights to keep."""
    for case in entry.cases:
        for data_type in case.only or entry.crossed_types:
            for layout in ("packed", "strided") if case.layouts else ("packed",):
                desc = build(entry.operator, Variation(case, data_type, layout)).desc
                yield desc
                if entry.operator.__module__ in MATRIX_FAMILIES:
                    yield with_weights_owned(desc)


def with_weights_owned(desc: OperatorDesc) -> OperatorDesc:
    """The desc with every input but the first OWNED_BY_DML."""
    tensors = [(slot.field.name, slot.tensor) for slot in desc.input_slots()[1:] if slot.tensor is not None]
    return desc.replace(**{name: dataclasses.replace(tensor, flags=TensorFlags.OWNED_BY_DML) for name, tensor in tensors})


def check_plan(plan: Plan, caps: Capabilities) -> None:
    """A plan's pipelines fit the device, its grids too, and its ranges stay inside what it asks for."""
    sizes = {Source.TEMPORARY: plan.temporary_bytes, Source.PERSISTENT: plan.persistent_bytes}
    for launch in (*plan.initialize, *plan.dispatches):
        for part in launch.bindings:
            if part.source in sizes:
                check_range(part, sizes[part.source])
        if isinstance(launch, Dispatch):
            spec = KERNELS[launch.kernel.kernel]
            assert len(launch.bindings) == len(spec.buffers)
            assert all(1 <= count <= most for count, most in zip(launch.grid, caps.workgroup_counts, strict=True))
            check_pipeline(launch.kernel, caps)
    for _, offset in plan.persistent_inputs:
        assert offset % 16 == 0
        assert offset < plan.persistent_bytes


def check_range(part: Range, size: int) -> None:
    assert part.offset % 16 == 0, "kernels may load whole words of 16 bytes"
    assert part.nbytes > 0
    assert part.offset + part.nbytes <= size


@functools.cache
def check_pipeline(kernel: KernelVariant, caps: Capabilities) -> None:
    spec = KERNELS[kernel.kernel]
    names = [name for name, _ in spec.constants]
    given = dict(kernel.constants)
    assert given.keys() <= set(names)
    x, y, z = (int(given.get(f"LOCAL_SIZE_{axis}", dict(spec.constants).get(f"LOCAL_SIZE_{axis}", 1))) for axis in "XYZ")
    assert x * y * z <= caps.workgroup_invocations
    assert z <= 64, "the least that Vulkan guarantees of the third dimension"
    constants = {names.index(name): value for name, value in given.items()}
    assert shared_bytes(spirv(kernel.kernel, kernel.variant), constants) <= caps.shared_memory_bytes
    if kernel.subgroup_size:
        assert "subgroup_size_control" in caps.features
        assert caps.minimum_subgroup_size <= kernel.subgroup_size <= caps.maximum_subgroup_size


@pytest.mark.parametrize("every_device", [pytest.param(True, marks=pytest.mark.full, id="every device"), False])
@pytest.mark.parametrize("operator", [row for row in all_cases() if row in LOWERINGS], ids=lambda row: row.__name__)
def test_every_plan_keeps_to_its_device(operator: type[OperatorDesc], every_device: bool) -> None:
    """Each desc under each rule on devices that take turns, and each rule on each device; or all on all of them."""
    names = tuple(DEVICES) if operator.__module__ in MATRIX_FAMILIES else PLAIN
    met: set[tuple[str, str]] = set()
    for turn, desc in enumerate(descs(all_cases()[operator])):
        for place, name in enumerate(names):
            caps = DEVICES[name]
            for rule in possible_rules(desc, caps):
                if not every_device and turn % len(names) != place and (name, rule) in met:
                    continue
                met.add((name, rule))
                try:
                    check_plan(lower(desc, caps, force=rule), caps)
                except Exception as error:
                    error.add_note(f"{name}: {rule} for {desc}")
                    raise
