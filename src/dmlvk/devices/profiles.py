"""Named lesser devices: what a device is reduced to, so that users of a better one see what runs there, and how well.

A profile's facts are those of a public source, which stands beside them. Limits are a device's own where those are lower: a
profile takes away, and never adds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import PHONE, DeviceModel

_NARROW: Final = frozenset({"float16", "int8", "int16", "storage8", "storage16"})
_OBLIGATORY: Final = frozenset({"integer_dot_product", "buffer_device_address", "vulkan_memory_model"})
"""Features of dmlvk's that every device of Vulkan 1.3 has."""


@dataclass(frozen=True)
class Profile:
    """A lesser device.

    Attributes:
        name: The name that ``DMLVK_PROFILE`` takes.
        text: The devices that it stands for, as a phrase.
        source: The source of its facts, with its date.
        capabilities: The most that it can do.
        storage_alignment: Bytes that offsets of storage bindings are multiples of, at least.
        model: The speed that it has, None for the device's own.
    """

    name: str
    text: str
    source: str
    capabilities: Capabilities
    storage_alignment: int = 16
    model: DeviceModel | None = None

    def reduced(self, caps: Capabilities) -> Capabilities:
        """The less of a device and this profile in everything but the subgroups' size, which only a driver can change; that
        they may be as small as the profile's is what kernels then reckon with."""
        own = self.capabilities
        x, y, z = map(min, caps.workgroup_counts, own.workgroup_counts)
        return dataclasses.replace(
            caps,
            features=caps.features & own.features,
            minimum_subgroup_size=min(caps.minimum_subgroup_size, own.minimum_subgroup_size),
            shared_memory_bytes=min(caps.shared_memory_bytes, own.shared_memory_bytes),
            workgroup_invocations=min(caps.workgroup_invocations, own.workgroup_invocations),
            workgroup_counts=(x, y, z),
            storage_buffer_bytes=min(caps.storage_buffer_bytes, own.storage_buffer_bytes),
            cooperative_matrices=tuple(shape for shape in caps.cooperative_matrices if shape in own.cooperative_matrices),
            model=caps.model if self.model is None else self.model,
        )


_ALL: Final = (
    Profile(
        "vulkan13-minimum",
        "no more than Vulkan 1.3 demands, but for arithmetic and shuffles in subgroups, which every driver known to us has",
        "Vulkan specification 1.3 (2022-01), chapters Feature Requirements and Limit Requirements. subgroupSizeControl is "
        "demanded, but of no stage, so no kernel may require a size. The one limit left as it is: Vulkan demands 4 storage "
        "buffers of a shader stage, and kernels take up to 12.",
        Capabilities(features=SUBGROUPS | _OBLIGATORY),
        storage_alignment=256,
    ),
    Profile(
        "moltenvk",
        "Apple silicon, M1 and later, under MoltenVK: no float64, no cooperative matrices, 32 KiB of shared memory",
        "MoltenVK after 1.4.2, commit 1484e7f (2026-08-19): MoltenVK/GPUObjects/MVKDevice.mm, families from Apple7, and "
        "MoltenVK/Layers/MVKExtensions.def; a workgroup's 1024 invocations and 32 KiB: Apple's Metal feature set tables. "
        "Subgroups are of 32, perhaps of as few as 4, and no stage may require a size; atomic_float as of macOS 13.",
        Capabilities(
            features=SUBGROUPS | _NARROW | _OBLIGATORY | {"int64", "memory_budget", "atomic_float"},
            subgroup_size=32,
            minimum_subgroup_size=4,
            maximum_subgroup_size=32,
            shared_memory_bytes=32768,
            workgroup_invocations=1024,
            workgroup_counts=(2**30, 2**30, 2**30),
            storage_buffer_bytes=2**32 - 1,
        ),
    ),
    Profile(
        "mali",
        "Arm's Mali of the Valhall architecture under Mesa's PanVK: subgroups of 16, no float64, no cooperative matrices",
        "Mesa, commit 07fe297: src/panfrost/vulkan/panvk_vX_physical_device.c for PAN_ARCH 10, the first with Vulkan 1.4. "
        "How many invocations a workgroup may have is its kernel driver's to say, here 1024.",
        Capabilities(
            features=SUBGROUPS | _NARROW | _OBLIGATORY | {"int64", "subgroup_size_control", "full_subgroups"},
            subgroup_size=16,
            minimum_subgroup_size=16,
            maximum_subgroup_size=16,
            shared_memory_bytes=32768,
            workgroup_invocations=1024,
            storage_buffer_bytes=2**32 - 1,
        ),
        model=PHONE,
    ),
    Profile(
        "adreno",
        "Qualcomm's Adreno 6xx and 7xx under Mesa's Turnip: subgroups of 128 or 64, 128 MiB a binding, no types of 8 or "
        "64 bits",
        "Mesa, commit 738f9f1: src/freedreno/vulkan/tu_device.cc, with MAX_STORAGE_BUFFER_RANGE and cs_shared_mem_size, "
        "here 2^27 and 32 KiB. Subgroups are of 128 where the chip can double its threads, and a stage may require a size.",
        Capabilities(
            features=SUBGROUPS
            | _OBLIGATORY
            | {"float16", "int16", "storage16", "subgroup_size_control", "full_subgroups", "memory_budget"},
            subgroup_size=128,
            minimum_subgroup_size=64,
            maximum_subgroup_size=128,
            shared_memory_bytes=32768,
            workgroup_invocations=1024,
        ),
        model=PHONE,
    ),
)

PROFILES: Final = {profile.name: profile for profile in _ALL}
"""The profiles by name."""
