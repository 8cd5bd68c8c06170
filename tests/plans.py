"""What every plan keeps to on the device that it is made for, and devices that differ in what decides it: least limits,
other subgroup sizes, with and without what makes kernels fast. What a pipeline takes is read from its SPIR-V, not from what
the lowering says."""

from __future__ import annotations

import functools

from spirv_modules import shared_bytes, storage_words

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.kernels.common.library import spirv
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan, Range, Source
from dmlvk.kernels.manifest import KERNELS

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
    "subgroups of 128": Capabilities(
        features=STORAGE | {"float16", "int16", "subgroup_size_control", "full_subgroups"},
        subgroup_size=128,
        minimum_subgroup_size=64,
        maximum_subgroup_size=128,
        workgroup_invocations=1024,
        shared_memory_bytes=32768,
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
        features=MATRICES | {"subgroup_size_control", "full_subgroups", "matrix_reductions"},
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
        matrix_fragments=True,
        allow_half_precision=True,
    ),
}


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
            words = module_words(launch.kernel.kernel, launch.kernel.variant)
            for slot, part in enumerate(launch.bindings):
                assert part.offset % words.get(slot, 1) == 0, "a range starts with a whole word of its kernel's"
            assert all(1 <= count <= most for count, most in zip(launch.grid, caps.workgroup_counts, strict=True))
            check_pipeline(launch.kernel, caps)
    for _, offset in plan.persistent_inputs:
        assert offset % 16 == 0
        assert offset < plan.persistent_bytes


def check_range(part: Range, size: int) -> None:
    assert part.nbytes > 0
    assert part.offset + part.nbytes <= size


@functools.lru_cache(1 << 14)
def check_pipeline(kernel: KernelVariant, caps: Capabilities) -> None:
    spec = KERNELS[kernel.kernel]
    given = dict(kernel.constants)
    assert given.keys() <= {name for name, _ in spec.constants}
    x, y, z = (int(given.get(f"LOCAL_SIZE_{axis}", dict(spec.constants).get(f"LOCAL_SIZE_{axis}", 1))) for axis in "XYZ")
    assert x * y * z <= caps.workgroup_invocations
    assert z <= 64, "the least that Vulkan guarantees of the third dimension"
    assert pipeline_shared_bytes(kernel) <= caps.shared_memory_bytes
    if kernel.subgroup_size:
        assert "subgroup_size_control" in caps.features
        assert caps.minimum_subgroup_size <= kernel.subgroup_size <= caps.maximum_subgroup_size


@functools.cache
def module_words(kernel: str, variant: tuple[tuple[str, str], ...]) -> dict[int, int]:
    """The bytes of what a variant of a kernel loads and stores at once, by binding, whatever the pipeline's constants."""
    return storage_words(spirv(kernel, variant))


@functools.lru_cache(1 << 14)
def pipeline_shared_bytes(kernel: KernelVariant) -> int:
    """The shared memory that a workgroup of the pipeline takes."""
    names = [name for name, _ in KERNELS[kernel.kernel].constants]
    constants = {names.index(name): value for name, value in kernel.constants}
    return shared_bytes(spirv(kernel.kernel, kernel.variant), constants)
