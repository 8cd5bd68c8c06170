"""The rules of the largest and smallest elements."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import LEAST_SUBGROUP, Coalesced
from dmlvk.kernels.sort.manifest import BINS


@dataclass(frozen=True)
class TopKProblem:
    """The K largest or smallest elements of rows, as their kernels see them.

    Attributes:
        bits: The bits of an element.
        rows: Sets of elements that are compared.
        length: Elements of a row.
        k: The number of them that are wanted.
        unit_elements: Elements of a 16-byte word where rows consist of whole words, else 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept: The dimensions beside the axis, merged: steps of x, values, indices.
        steps: The steps of the three along the axis.
    """

    bits: int
    rows: int
    length: int
    k: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    steps: tuple[int, int, int]

    def most_sorted(self, caps: Capabilities, *, used: int = 0) -> int:
        """The largest power of two of elements, keys and positions, in shared memory of which so many bytes are used."""
        return 1 << ((caps.shared_memory_bytes - used) // (max(self.bits, 32) // 8 + 4)).bit_length() - 1

    def most_selected(self, caps: Capabilities) -> int:
        """``most_sorted`` for the kernel that counts in shared memory as well."""
        return self.most_sorted(caps, used=TOP_K_COUNT_BYTES)


TOP_K_COUNT_BYTES = 4 * (BINS + BINS // LEAST_SUBGROUP) + 64
"""Shared memory of ``top_k_select`` besides its candidates: a count for each bin and each run of bins, and a few numbers."""

TOP_K = (
    Rule(
        "sort",
        when=lambda problem, caps: problem.length <= 128 or (problem.length <= 1024 and problem.length <= 4 * problem.k),
        possible=lambda problem, caps: problem.length <= problem.most_sorted(caps),
        because="short rows, or most of their elements wanted: sorted whole in shared memory; one read of each byte",
    ),
    Rule(
        "chunks",
        when=lambda problem, caps: problem.rows < caps.model.workgroups(1) and problem.length >= 2**18,
        possible=lambda problem, caps: (
            problem.k <= problem.most_selected(caps) and problem.length >= max(4096, 512 * problem.k)
        ),
        because="few rows, and long: each is cut into chunks that choose their own K first, or too few workgroups would "
        "have work, and a loop would exceed the 65535 rounds after which a CPU's driver may end it. H200, 100 of 64 rows of "
        "2^20 float32: 218 us, PyTorch 837",
    ),
    Rule(
        "select",
        when=always,
        possible=lambda problem, caps: problem.k <= problem.most_selected(caps),
        because="K elements fit into shared memory: counts by digits find the K-th, and only what is not behind it is "
        "sorted; two reads of each byte. H200, 100 of 4096 rows of 32768 float32: 428 us, PyTorch 1610",
    ),
    Rule(
        "memory",
        when=always,
        possible=always,
        because="K too large for shared memory: whole rows sorted in temporary memory, 8 or 12 bytes an element. H200, "
        "8192 of 1024 rows of 8192 float32: 837 us, PyTorch 985",
    ),
)
