"""Masks and profiles, on capabilities alone: what is taken away, that nothing is added, and what cannot be asked for."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from dmlvk.devices.capabilities import FEATURE_NAMES, SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.devices.mask import GROUPS, Mask, Reduced
from dmlvk.devices.profiles import PROFILES, Profile
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError

GPU = Capabilities(
    features=frozenset(FEATURE_NAMES),
    subgroup_size=64,
    minimum_subgroup_size=32,
    maximum_subgroup_size=64,
    shared_memory_bytes=65536,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
    cooperative_matrices=(CooperativeMatrix(16, 16, 16, "float16", "float32"),),
)
"""A device that has everything, and chooses between two subgroup sizes."""

FIXED = dataclasses.replace(GPU, subgroup_size=8, minimum_subgroup_size=8, maximum_subgroup_size=8)
"""Capabilities with one subgroup size, as a CPU's driver has."""

LEAST = Capabilities(features=frozenset())


def reduced(mask: Mask, caps: Capabilities = GPU, *, most_subgroups: int = 64) -> Reduced:
    return mask.applied(caps, 16, most_subgroups)


def is_at_most(less: Capabilities, more: Capabilities) -> bool:
    """Whether nothing of the first is beyond the second."""
    return (
        less.features <= more.features
        and set(less.cooperative_matrices) <= set(more.cooperative_matrices)
        and less.shared_memory_bytes <= more.shared_memory_bytes
        and less.workgroup_invocations <= more.workgroup_invocations
        and all(few <= many for few, many in zip(less.workgroup_counts, more.workgroup_counts, strict=True))
        and less.storage_buffer_bytes <= more.storage_buffer_bytes
        and less.maximum_subgroup_size <= more.maximum_subgroup_size
    )


def test_an_empty_mask_takes_nothing_away() -> None:
    left = reduced(Mask())
    assert left == Reduced(GPU, (), 0, 16)
    assert str(Mask()) == ""


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("caps", [GPU, FIXED, LEAST], ids=["gpu", "fixed", "least"])
def test_a_profile_takes_away_and_never_adds(profile: Profile, caps: Capabilities) -> None:
    left = reduced(Mask(profile.name), caps)
    assert is_at_most(left.capabilities, caps)
    own = dataclasses.replace(profile.capabilities, maximum_subgroup_size=caps.maximum_subgroup_size)
    assert is_at_most(left.capabilities, own)
    assert left.capabilities.minimum_subgroup_size <= left.capabilities.subgroup_size <= caps.maximum_subgroup_size
    needed = {"subgroup_size_control", "full_subgroups"} if left.subgroup_size else set()
    assert set(left.disable) == set(FEATURE_NAMES) - left.capabilities.features - needed


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_a_profile_is_a_device_with_a_source(profile: Profile) -> None:
    caps = profile.capabilities
    assert caps.features <= set(FEATURE_NAMES)
    assert caps.minimum_subgroup_size <= caps.subgroup_size <= caps.maximum_subgroup_size
    assert is_at_most(dataclasses.replace(Capabilities(), maximum_subgroup_size=1), caps), "below what Vulkan 1.3 guarantees"
    assert profile.text
    assert profile.source
    assert PROFILES[profile.name] is profile


def test_the_least_profile_is_what_capabilities_are_by_default() -> None:
    least = PROFILES["vulkan13-minimum"].capabilities
    assert dataclasses.replace(least, features=SUBGROUPS) == Capabilities()
    assert all(least.features <= profile.capabilities.features for profile in PROFILES.values())


def test_a_profile_lays_storage_bindings_out_as_its_devices_do() -> None:
    left = reduced(Mask("vulkan13-minimum"))
    assert left.storage_alignment == 256
    assert left.capabilities.storage_buffer_bytes == 2**27 - 240, "room for a binding that starts before its tensor"


def test_what_moltenvk_lacks() -> None:
    left = reduced(Mask("moltenvk")).capabilities
    assert not left.features & {"float64", "bfloat16", "subgroup_size_control", *GROUPS["cooperative"]}
    assert left.features >= {"float16", "int8", "int16", "int64", "storage8", "storage16", "integer_dot_product"}
    assert left.cooperative_matrices == ()
    assert left.shared_memory_bytes == 32768


def test_a_profiles_subgroups_are_required_where_the_device_has_a_choice() -> None:
    left = reduced(Mask("moltenvk"))
    assert left.subgroup_size == left.capabilities.subgroup_size == 32
    assert "subgroup_size_control" not in left.disable, "Vulkan wants it on for a size to be required"
    assert "subgroup_size_control" not in left.capabilities.features, "and yet no rule counts on it"
    kept = reduced(Mask("moltenvk"), FIXED)
    assert (kept.subgroup_size, kept.capabilities.subgroup_size) == (0, 8)
    assert kept.capabilities.minimum_subgroup_size == 4, "as few as the profile's"
    assert reduced(Mask("mali")).subgroup_size == 0, "16 is not within 32 to 64"


def test_a_size_is_required_of_every_kernel() -> None:
    left = reduced(Mask(subgroup_size=32), most_subgroups=16)
    caps = left.capabilities
    assert left.subgroup_size == 32
    assert (caps.subgroup_size, caps.minimum_subgroup_size, caps.maximum_subgroup_size) == (32, 32, 32)
    assert caps.workgroup_invocations == 512, "16 subgroups of 32"
    assert reduced(Mask("moltenvk", subgroup_size=64)).capabilities.subgroup_size == 64


def test_the_only_size_of_a_device_needs_no_feature() -> None:
    caps = dataclasses.replace(FIXED, features=SUBGROUPS, cooperative_matrices=())
    left = reduced(Mask(subgroup_size=8), caps, most_subgroups=1)
    assert left.subgroup_size == 0
    assert left.capabilities == caps


@pytest.mark.parametrize(
    ("mask", "caps", "said"),
    [
        (Mask(subgroup_size=16), GPU, "from 32 to 64"),
        (Mask(subgroup_size=128), GPU, "from 32 to 64"),
        (Mask(subgroup_size=4), FIXED, "are of 8"),
        (Mask(disable=("subgroup_size_control",), subgroup_size=32), GPU, "without the feature subgroup_size_control"),
    ],
)
def test_sizes_that_a_device_has_not(mask: Mask, caps: Capabilities, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said) as caught:
        reduced(mask, caps)
    assert f"subgroups of {mask.subgroup_size}" in caught.value.reason


def test_features_are_left_off_by_name_and_by_group() -> None:
    left = reduced(Mask(disable=("64bit", "float16", "cooperative_matrix")))
    assert set(left.disable) == {"int64", "float64", "float16", "cooperative_matrix"}
    assert left.capabilities.cooperative_matrices == ()
    assert set(reduced(Mask(disable=("all",))).disable) == set(FEATURE_NAMES)
    for names in GROUPS.values():
        assert set(names) <= set(FEATURE_NAMES)
    assert not GROUPS.keys() & set(FEATURE_NAMES), "a name means one thing"


def test_a_claimed_size_is_no_size_to_count_on() -> None:
    left = reduced(Mask(claimed_subgroup_size=64), FIXED)
    caps = left.capabilities
    assert (caps.subgroup_size, caps.least_subgroup, left.subgroup_size) == (64, 8, 0)
    assert not caps.features & {"subgroup_size_control", "full_subgroups", "cooperative_matrix"}
    wide = dataclasses.replace(GPU, minimum_subgroup_size=64)
    assert wide.least_subgroup == 32, "64 have been reported of devices that had 32"
    assert FIXED.least_subgroup == 8


def test_limits_are_lowered_by_name_and_never_raised() -> None:
    mask = Mask(limits=(("shared_memory_bytes", 16384), ("workgroup_counts", 1000), ("storage_buffer_bytes", 2**40)))
    caps = reduced(mask).capabilities
    assert caps == dataclasses.replace(GPU, shared_memory_bytes=16384, workgroup_counts=(1000, 1000, 1000))


def test_a_mask_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_PROFILE", " moltenvk ")
    monkeypatch.setenv("DMLVK_DISABLE", " int8, ,64bit,")
    monkeypatch.setenv("DMLVK_SUBGROUP_SIZE", "16")
    monkeypatch.setenv("DMLVK_CLAIMED_SUBGROUP_SIZE", "64")
    monkeypatch.setenv("DMLVK_LIMITS", "shared_memory_bytes = 16384, workgroup_counts=65535")
    mask = Mask.from_environment()
    limits = (("shared_memory_bytes", 16384), ("workgroup_counts", 65535))
    assert mask == Mask("moltenvk", ("int8", "64bit"), 16, claimed_subgroup_size=64, limits=limits)
    assert str(mask) == (
        "profile moltenvk, without int8 64bit, subgroups of 16, claiming subgroups of 64, "
        "at most shared_memory_bytes=16384 workgroup_counts=65535"
    )
    for name in ("PROFILE", "DISABLE", "SUBGROUP_SIZE", "CLAIMED_SUBGROUP_SIZE", "LIMITS"):
        monkeypatch.setenv(f"DMLVK_{name}", "")
    assert Mask.from_environment() == Mask()


@pytest.mark.parametrize(
    ("variable", "value", "choices"),
    [
        ("DMLVK_PROFILE", "commodore64", "vulkan13-minimum, moltenvk, mali, adreno"),
        ("DMLVK_DISABLE", "flux_capacitor", "matrix_reductions"),
        ("DMLVK_DISABLE", "flux_capacitor", "64bit"),
        ("DMLVK_LIMITS", "patience=1", "workgroup_invocations"),
        ("DMLVK_LIMITS", "workgroup_invocations=few", "a number of at least 1"),
        ("DMLVK_CLAIMED_SUBGROUP_SIZE", "48", "power of two"),
        ("DMLVK_SUBGROUP_SIZE", "24", "power of two"),
        ("DMLVK_SUBGROUP_SIZE", "-8", "power of two"),
        ("DMLVK_SUBGROUP_SIZE", "wide", "power of two"),
    ],
)
def test_what_there_is_not_is_an_error_that_lists_what_there_is(
    variable: str, value: str, choices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgumentError, match=choices) as caught:
        Mask.from_environment()
    assert variable in caught.value.field
    assert str(caught.value.value) == value.replace("few", "0")


def _table() -> str:
    """The profiles as docs/devices.md has them."""
    lines = [
        "| profile | is | features off | shared memory | invocations | subgroups | facts from |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for profile in PROFILES.values():
        caps = profile.capabilities
        off = " ".join(name for name in FEATURE_NAMES if name not in caps.features)
        range_ = f", {caps.minimum_subgroup_size} at least" if caps.minimum_subgroup_size < caps.subgroup_size else ""
        cells = (
            f"`{profile.name}`",
            profile.text,
            off,
            f"{caps.shared_memory_bytes // 1024} KiB",
            str(caps.workgroup_invocations),
            f"{caps.subgroup_size}{range_}",
            profile.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_page_of_devices_has_the_profiles() -> None:
    page = (pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "devices.md").read_text()
    assert _table() in page, f"docs/devices.md is stale; its table of profiles is\n{_table()}"
    assert all(f"`{name}`" in page for name in (*FEATURE_NAMES, *GROUPS))
