"""The rules of compaction."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.common.shapes import Coalesced


@dataclass(frozen=True)
class NonzeroProblem:
    """A search for what is not zero, as its kernels see it.

    Attributes:
        bits: The bits of an element.
        elements: The elements of the input.
        unit_elements: Elements of a 16-byte word where the input's rows consist of whole words, else 1.
        walk: The dimensions of the input, merged, and its strides, in elements.
    """

    bits: int
    elements: int
    unit_elements: int
    walk: Coalesced


_MOST_IN_ONE_WORKGROUP = 2**16
_ELEMENTS_EACH = 8
"""Elements for each invocation that a processor holds, which one workgroup finds before a second dispatch would start."""

NONZERO = (
    Rule(
        "whole",
        when=lambda problem, caps: problem.elements <= _ELEMENTS_EACH * caps.model.resident_invocations,
        possible=lambda problem, caps: problem.elements <= _MOST_IN_ONE_WORKGROUP,
        because="so few elements that one workgroup is done before a second dispatch would start",
    ),
    Rule(
        "chunks",
        when=always,
        possible=always,
        because="each chunk of the input is a workgroup's: one read of each byte, which leaves a bit an element (a 32nd of "
        "FLOAT32 input) in temporary memory, from which a second dispatch writes the rows. H200, 2^28 float32, one in a "
        "thousand not zero: 3000 GB/s",
    ),
)
