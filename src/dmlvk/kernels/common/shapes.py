"""Shape arithmetic that lowerings share: dropping and merging dimensions, and grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.limitation import LAUNCHES, LOOP_ROUNDS
from dmlvk.spec.tensor import TensorDesc

WORD_BITS = 128
"""The bits of the widest access of an invocation; WORD_BYTES in GLSL are as many."""
MOST_ITEMS = 4
"""The most items of an invocation of a kernel that keeps the loads of several in flight; MOST_ITEMS in GLSL."""
LEAST_SUBGROUP = 4
"""The fewest invocations of a subgroup wherever Vulkan 1.3 runs; LEAST_SUBGROUP in GLSL."""
MOST_INVOCATIONS = 1024
"""The most invocations of a workgroup of any kernel; MOST_INVOCATIONS in GLSL. Devices may have more."""

_MOST_CPU_ROUNDS = 65535
"""The most loop rounds of lavapipe (Mesa's LP_MAX_TGSI_LOOP_ITERATIONS), over all loops of an invocation together."""


class Coalesced(NamedTuple):
    """Sizes of a joint index space and, for each tensor, its strides in elements, dimension for dimension."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def coalesce(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Coalesced:
    """The same element walk with the fewest dimensions: those of size 1 dropped, neighbours merged where every tensor
    steps through both as through one. At least one dimension remains."""
    kept: list[tuple[int, tuple[int, ...]]] = []
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        steps = tuple(tensor[axis] for tensor in strides)
        if kept and all(outer == inner * size for outer, inner in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, steps)
        else:
            kept.append((size, steps))
    if not kept:
        kept = [(1, (1,) * len(strides))]
    return Coalesced(tuple(size for size, _ in kept), tuple(zip(*(steps for _, steps in kept), strict=True)))


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << (least - 1).bit_length()


def most_invocations(caps: Capabilities) -> int:
    """The largest power of two of invocations in a workgroup."""
    return min(1 << (caps.workgroup_invocations.bit_length() - 1), MOST_INVOCATIONS)


def pair_type(caps: Capabilities) -> str:
    """The type, as manifest rows name it, of two numbers of 32 bits that are read at once. One of 64 bits, where a device
    has it, is one read on a processor, too, where a vector of two is two."""
    return "UINT64" if "int64" in caps.features else "BITS64"


WAVES_OF_ITEMS = 4
"""Waves of invocations from which on a pointwise kernel gives each several items: fewer would leave the device idle."""


def within_rounds(rounds: int, caps: Capabilities) -> bool:
    """Whether a CPU's driver lets an invocation's loops run so many rounds, those of nested ones multiplied."""
    return not caps.is_cpu or rounds <= _MOST_CPU_ROUNDS


def check_rounds(rounds: int, caps: Capabilities, operator: str) -> None:
    """Refuses loops that a CPU's driver would leave too early, without an error and with a wrong result. Whoever asks
    names LOOP_ROUNDS among the limitations of its rows (``register``).

    Args:
        rounds: The most rounds of all loops that an invocation goes through, those of nested ones multiplied.
        caps: The device's.
        operator: The operator's DirectML name.
    """
    if not within_rounds(rounds, caps):
        raise LOOP_ROUNDS.error(
            f"a CPU's driver ends the loops of a shader after {_MOST_CPU_ROUNDS} rounds, and here there may be {rounds}",
            operator,
        )


def divisors(sizes: Sequence[int]) -> tuple[int, ...]:
    """Two words a size with which ``quotient`` in ``glsl/include/tensor.glsl`` divides any 32-bit index by it: the
    multiplier of Granlund and Montgomery's round-up method, and its two shifts as first | second << 1. The shifts
    are 1 and the bits of the size but one; of a size of 1 there are none."""
    words: list[int] = []
    for size in sizes:
        bits = (size - 1).bit_length()
        words += [2**32 * (2**bits - size) // size + 1, max(2 * bits - 1, 0)]
    return tuple(words)


def check_launches(launches: int, caps: Capabilities, operator: str) -> None:
    """Refuses what is cut into more launches than ``Device(max_launches=...)`` allows, at best before they are made.

    Args:
        launches: How many there will be at least.
        caps: The device's.
        operator: The operator's DirectML name.
    """
    if launches > caps.max_launches:
        found = f"is cut into {launches} launches or more; Device(max_launches=...) allows {caps.max_launches}"
        raise LAUNCHES.error(found, operator)


def part_starts(length: int, part: int) -> list[int]:
    """The first index of each part of a length; all parts but the last are equally long. Of sizes that record only the
    number of parts is pinned."""
    return [index * part for index in range(-(-length // part))]


def group_lanes(*bits: int) -> int:
    """The number of elements that an invocation of a pointwise kernel handles at once where all lie contiguous, by the bits
    of its data types: a 16-byte word of the widest, and at least 4 bytes of the narrowest."""
    return max(WORD_BITS // max(bits), 32 // min(bits))


def pooling_lanes(bits: int) -> tuple[int, ...]:
    """The numbers of neighbouring outputs that an invocation of a pooling kernel may make: 16 bytes of at most 8, or 4
    narrower ones where rows are not whole groups of that many."""
    return (8, 4) if bits < 32 else (WORD_BITS // bits,)


def convolution_lanes(bits: int) -> tuple[int, ...]:
    """The numbers of neighbouring outputs that an invocation of a depthwise convolution, or of the gradient of a resampling
    by a whole number, may make: those of 16 bytes, or fewer where rows are not whole groups of that many."""
    return (8, 4, 2) if bits < 32 else (4, 2)


def tile_edge(bits: int) -> int:
    """Elements along an edge of the tiles in which tensors of an element type are transposed: lines of 64 to 128 bytes in
    at most 9 KiB."""
    return 64 if bits < 32 else 32


def tile_lanes(bits: int) -> int:
    """The number of elements that an invocation moves at once into and out of such a tile: those of 4 bytes, or one."""
    return max(32 // bits, 1)


def broadcast_strides(tensor: TensorDesc, sizes: Sequence[int]) -> tuple[int, ...]:
    """The tensor's strides over larger sizes: 0 where its own size is 1."""
    return tuple(
        0 if own == 1 and full != 1 else step
        for own, full, step in zip(tensor.sizes, sizes, tensor.effective_strides, strict=True)
    )


def linear_grid(workgroups: int, caps: Capabilities) -> tuple[int, int, int]:
    """A grid of at least this many workgroups for ``linear_workgroup()``; kernels ignore those past the end."""
    most = caps.workgroup_counts[0]
    if workgroups <= most:
        return (workgroups, 1, 1)
    rows = -(-workgroups // most)
    return (-(-workgroups // rows), rows, 1)
