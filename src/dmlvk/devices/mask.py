"""Masks: a device is opened with less than it has, so that it does as a lesser one would."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dmlvk.devices.capabilities import FEATURE_NAMES, Capabilities
from dmlvk.devices.model import MODELS
from dmlvk.devices.profiles import PROFILES
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "8bit": ("int8", "storage8"),
    "16bit": ("float16", "bfloat16", "int16", "storage16"),
    "64bit": ("int64", "float64"),
    "subgroups": ("subgroup_arithmetic", "subgroup_shuffle"),
    "cooperative": ("cooperative_matrix", "matrix_reductions"),
    "all": FEATURE_NAMES,
}
"""Names for several features that are left off together."""

LIMITS: Final = ("shared_memory_bytes", "workgroup_invocations", "workgroup_counts", "storage_buffer_bytes")
"""The limits that a mask may lower by name; the number of workgroups in x, y and z alike."""

_SIZE_CONTROL: Final = frozenset({"subgroup_size_control", "full_subgroups"})
_SIZE_RULE: Final = "must be a power of two, or 0 for the device's choice"


class Reduced(NamedTuple):
    """A device under a mask.

    Attributes:
        capabilities: The capabilities that kernels may rely on.
        disable: The features to open it without.
        subgroup_size: The subgroup size that every pipeline requires, 0 for none.
        storage_alignment: The alignment of offsets of storage bindings, in bytes.
    """

    capabilities: Capabilities
    disable: tuple[str, ...]
    subgroup_size: int
    storage_alignment: int


@dataclass(frozen=True)
class Mask:
    """A lesser device: a profile, features to leave off, a subgroup size. By default nothing is taken away.

    Attributes:
        profile: A name among ``dmlvk.devices.profiles.PROFILES``, "" for none.
        disable: Feature names (``FEATURE_NAMES``) and group names (``GROUPS``).
        subgroup_size: The size of every kernel's subgroups, 0 for the choice of the device or the profile.
        claimed_subgroup_size: The size that the device is taken to report, whatever its subgroups are: a driver that
            reports 64 and runs kernels in subgroups of 32 is one of 32 that claims 64. Kernels may count on
            ``Capabilities.least_subgroup`` alone, and require no size. 0 for what it reports.
        limits: Names among ``LIMITS``, each with the most that the device may have of it.
        model: A name among ``dmlvk.devices.model.MODELS``: kernels are chosen as for such a device. "" for the profile's
            model, or the device's own, which a CPU always keeps.

    Raises:
        InvalidArgumentError: no such profile, feature, limit or model, a limit below 1, or a size that is no power of two.
    """

    profile: str = ""
    disable: tuple[str, ...] = ()
    subgroup_size: int = 0
    model: str = ""
    claimed_subgroup_size: int = 0
    limits: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.model and self.model not in MODELS:
            raise InvalidArgumentError(f"must be one of {', '.join(MODELS)}", field="model (DMLVK_MODEL)", value=self.model)
        if self.profile and self.profile not in PROFILES:
            rule = f"must be one of {', '.join(PROFILES)}"
            raise InvalidArgumentError(rule, field="profile (DMLVK_PROFILE)", value=self.profile)
        for name in self.disable:
            if name not in FEATURE_NAMES and name not in GROUPS:
                rule = f"must name features among {', '.join(FEATURE_NAMES)} or groups of them: {', '.join(GROUPS)}"
                raise InvalidArgumentError(rule, field="disable (DMLVK_DISABLE)", value=name)
        for name, most in self.limits:
            if name not in LIMITS or most < 1:
                rule = f"must be NAME=NUMBER with a name among {', '.join(LIMITS)} and a number of at least 1"
                raise InvalidArgumentError(rule, field="limits (DMLVK_LIMITS)", value=f"{name}={most}")
        for field, size in (("subgroup_size", self.subgroup_size), ("claimed_subgroup_size", self.claimed_subgroup_size)):
            if size < 0 or size & (size - 1):
                raise InvalidArgumentError(_SIZE_RULE, field=f"{field} (DMLVK_{field.upper()})", value=size)

    @classmethod
    def from_environment(cls) -> Mask:
        """The mask that DMLVK_PROFILE, DMLVK_DISABLE, DMLVK_SUBGROUP_SIZE, DMLVK_CLAIMED_SUBGROUP_SIZE, DMLVK_LIMITS and
        DMLVK_MODEL ask for now.

        Raises:
            InvalidArgumentError: as the class, or a size or limit that is no number.
        """
        profile, model = (os.environ.get(name, "").strip() for name in ("DMLVK_PROFILE", "DMLVK_MODEL"))
        limits = []
        for text in _listed("DMLVK_LIMITS"):
            name, _, most = text.partition("=")
            limits.append((name.strip(), int(most) if most.strip().isdecimal() else 0))
        size, claimed = _size("subgroup_size"), _size("claimed_subgroup_size")
        return cls(profile, _listed("DMLVK_DISABLE"), size, model, claimed, tuple(limits))

    def __str__(self) -> str:
        """The mask in words, such as "profile moltenvk, without int8, subgroups of 16"; "" if it takes nothing away."""
        parts = (
            self.profile and f"profile {self.profile}",
            self.disable and f"without {' '.join(self.disable)}",
            self.subgroup_size and f"subgroups of {self.subgroup_size}",
            self.claimed_subgroup_size and f"claiming subgroups of {self.claimed_subgroup_size}",
            self.limits and f"at most {' '.join(f'{name}={most}' for name, most in self.limits)}",
            self.model and f"model {self.model}",
        )
        return ", ".join(part for part in parts if part)

    def takes(self, feature: str) -> bool:
        """Whether a device that has the feature is opened without it."""
        named = any(feature in GROUPS.get(name, (name,)) for name in self.disable)
        return named or (self.profile != "" and feature not in PROFILES[self.profile].capabilities.features)

    def applied(self, reported: Capabilities, storage_alignment: int, most_subgroups: int) -> Reduced:
        """The device under the mask. Nothing becomes more than it was.

        A profile's subgroup size is required of a device that can be asked for it and would else choose; on others
        subgroups keep the device's own size, as no driver could change that.

        Args:
            reported: The capabilities that the device reports.
            storage_alignment: The alignment of storage offsets that the device reports.
            most_subgroups: The most subgroups of a workgroup whose subgroup size is required.

        Raises:
            UnsupportedError: the device has no subgroups of ``subgroup_size``.
        """
        off = {feature for name in self.disable for feature in GROUPS.get(name, (name,))}
        features = reported.features - off
        caps = dataclasses.replace(reported, features=features)
        smallest, largest = reported.minimum_subgroup_size, reported.maximum_subgroup_size
        can_require = "subgroup_size_control" in features and smallest != largest
        required = 0
        if self.profile:
            profile = PROFILES[self.profile]
            caps = profile.reduced(caps)
            storage_alignment = max(storage_alignment, profile.storage_alignment)
            if can_require and smallest <= profile.capabilities.subgroup_size <= largest:
                required = profile.capabilities.subgroup_size
                caps = dataclasses.replace(caps, subgroup_size=required, maximum_subgroup_size=required)
        caps = _limited(caps, self.limits)
        if self.model:
            caps = dataclasses.replace(caps, model=MODELS[self.model])
        if reported.is_cpu:  # a lesser model would make its loops longer than its driver lets them run
            caps = dataclasses.replace(caps, model=reported.model)
        if size := self.subgroup_size:
            if not smallest <= size <= largest or not (can_require or smallest == largest):
                own = f"from {smallest} to {largest}" if smallest != largest else f"of {smallest}"
                reason = f"subgroups of {size} (DMLVK_SUBGROUP_SIZE): this device's are {own}"
                without = ", and no size can be required of it without the feature subgroup_size_control"
                raise UnsupportedError(reason + ("" if can_require or smallest == largest else without))
            required = size if can_require else 0
            caps = dataclasses.replace(caps, subgroup_size=size, minimum_subgroup_size=size, maximum_subgroup_size=size)
        if required:
            caps = dataclasses.replace(
                caps, workgroup_invocations=min(caps.workgroup_invocations, required * most_subgroups)
            )
        if claimed := self.claimed_subgroup_size:
            kept_features = caps.features - _SIZE_CONTROL - set(GROUPS["cooperative"])
            least = min(caps.least_subgroup, claimed)
            caps = dataclasses.replace(
                caps,
                features=kept_features,
                subgroup_size=claimed,
                minimum_subgroup_size=least,
                maximum_subgroup_size=claimed,
            )
            required = 0
        if "cooperative_matrix" not in caps.features:
            caps = dataclasses.replace(caps, cooperative_matrices=())
        kept = caps.features | (_SIZE_CONTROL & features if required else frozenset())
        # A binding may start up to one alignment before its tensor (see ``recorder``), which the limit must still hold.
        caps = dataclasses.replace(caps, storage_buffer_bytes=caps.storage_buffer_bytes - max(storage_alignment - 16, 0))
        return Reduced(caps, tuple(name for name in FEATURE_NAMES if name not in kept), required, storage_alignment)


def _listed(variable: str) -> tuple[str, ...]:
    """The items between a variable's commas."""
    return tuple(filter(None, (text.strip() for text in os.environ.get(variable, "").split(","))))


def _size(field: str) -> int:
    """The number of a variable, 0 where it is not set."""
    text = os.environ.get(f"DMLVK_{field.upper()}", "").strip() or "0"
    if not text.isdecimal():
        raise InvalidArgumentError(_SIZE_RULE, field=f"{field} (DMLVK_{field.upper()})", value=text)
    return int(text)


def _limited(caps: Capabilities, limits: tuple[tuple[str, int], ...]) -> Capabilities:
    """Capabilities with each limit at most what is named; of a name that stands twice the last counts."""
    lowered: dict[str, Any] = {}
    for name, most in limits:
        own = getattr(caps, name)
        lowered[name] = tuple(min(count, most) for count in own) if isinstance(own, tuple) else min(own, most)
    return dataclasses.replace(caps, **lowered)
