"""The abilities of a device, as the rules see them: numbers and features, never a vendor; its speed is its ``model``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from dmlvk.devices.model import CPU, GENERIC_GPU, DeviceModel

FEATURE_NAMES: Final = (
    "float16",
    "int8",
    "int16",
    "int64",
    "float64",
    "storage16",
    "storage8",
    "subgroup_size_control",
    "full_subgroups",
    "subgroup_arithmetic",
    "subgroup_shuffle",
    "cooperative_matrix",
    "matrix_reductions",
    "bfloat16",
    "integer_dot_product",
    "memory_budget",
    "buffer_device_address",
    "vulkan_memory_model",
    "atomic_float",
    "executable_properties",
    "external_memory",
    "external_semaphores",
)
"""dmlvk's names of the features that a Vulkan device may lack; what each stands for is in docs/devices.md."""

SUBGROUPS = frozenset({"subgroup_arithmetic", "subgroup_shuffle"})
"""Features that Vulkan 1.3 leaves optional and every driver known to us has."""

_TRUSTED_SUBGROUP: Final = 32


class CooperativeMatrix(NamedTuple):
    """A shape of ``VK_KHR_cooperative_matrix`` that a subgroup multiplies: (m, k) by (k, n) plus (m, n).

    Attributes:
        m, n, k: Its sizes.
        operands: Component type of both factors, such as "float16" or "int8".
        sums: Component type of the addend and the result.
    """

    m: int
    n: int
    k: int
    operands: str
    sums: str


@dataclass(frozen=True)
class Capabilities:
    """A device's abilities. The defaults are the least that Vulkan 1.3 guarantees, and ``SUBGROUPS``.

    Attributes:
        features: Names of the features switched on (``float16``, ``storage8``, ``cooperative_matrix``, ...).
        subgroup_size: Invocations in a subgroup, as the device chooses.
        minimum_subgroup_size, maximum_subgroup_size: The sizes that ``subgroup_size_control`` may require.
        shared_memory_bytes: The shared memory of one workgroup.
        workgroup_invocations: Most invocations in a workgroup.
        workgroup_counts: Most workgroups in x, y, z.
        storage_buffer_bytes: Most bytes of one storage binding.
        storage_buffers: Most storage bindings of a launch.
        cooperative_matrices: The shapes that ``cooperative_matrix`` multiplies, in the driver's order.
        matrix_fragments: Whether elements of matrices lie in invocations as ``glsl/include/matrix_fragments.glsl`` has them:
            what a device is asked when it is opened.
        allow_half_precision: Whether FLOAT32 may be computed in float16: what an operator is compiled with
            (``ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION``), not what the device can.
        max_launches: The most launches of one operator: what the host is ready to prepare, not what the device can
            (``Device(max_launches=...)``).
        is_cpu: Whether a CPU implements the device: workgroups run one after another on few cores.
        model: The device's speed. Without one of its own a CPU has the shipped one of a CPU, any other device that of a GPU
            of which nothing is known.
    """

    features: frozenset[str] = SUBGROUPS
    subgroup_size: int = 32
    minimum_subgroup_size: int = 32
    maximum_subgroup_size: int = 32
    shared_memory_bytes: int = 16384
    workgroup_invocations: int = 128
    workgroup_counts: tuple[int, int, int] = (65535, 65535, 65535)
    storage_buffer_bytes: int = 2**27
    storage_buffers: int = 4
    cooperative_matrices: tuple[CooperativeMatrix, ...] = ()
    matrix_fragments: bool = False
    allow_half_precision: bool = False
    max_launches: int = 1 << 14
    is_cpu: bool = False
    model: DeviceModel = GENERIC_GPU

    def __post_init__(self) -> None:
        if self.is_cpu and self.model is GENERIC_GPU:
            object.__setattr__(self, "model", CPU)

    @property
    def least_subgroup(self) -> int:
        """The invocations of a subgroup that kernels count on: no more than 32, because drivers that report 64 have been
        seen to run kernels in subgroups of 32."""
        return min(self.minimum_subgroup_size, _TRUSTED_SUBGROUP)
