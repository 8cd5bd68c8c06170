"""The rules of scatters."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class ScatterProblem:
    """A scatter as its kernels see it: updates, each of a row of elements, and places in the output that they may have.

    Attributes:
        element_bytes: The bytes of an element.
        row_elements: Elements of an update.
        updates: The number of updates.
        places: Rows of the output.
        alone: Whether no two updates can have one place.
    """

    element_bytes: int
    row_elements: int
    updates: int
    places: int
    alone: bool

    @property
    def table_bytes(self) -> int:
        """The bytes of the table that says which update each place gets."""
        return 4 * self.places

    @property
    def is_sparse(self) -> bool:
        """Whether a table that is only touched where there are updates saves more memory traffic than these cost: a read
        and a write of every entry against, for an update, two writes and a read of its entry and a read and a write of its
        row, in sectors of 32 bytes."""
        sectors = 3 * 32 + 2 * max(self.row_elements * self.element_bytes, 32)
        return sectors * self.updates < 2 * self.table_bytes


SCATTER = (
    Rule(
        "alone",
        when=always,
        possible=lambda p, caps: p.alone,
        because="one update along the indexed dimensions, so none has a place that another has: a copy of the input, over "
        "which the updates are written; no table and no temporary memory. H200, one row of 2^19: 0.95 of a copy",
    ),
    Rule(
        "sparse",
        when=lambda p, caps: p.is_sparse,
        possible=lambda p, caps: p.table_bytes <= caps.storage_buffer_bytes,
        because="few updates of many places: a copy of the input, over which are written those updates that a table calls "
        "the last ones; nothing else of it is touched. Its temporary memory is 4 bytes a row of the output. H200, 2^20 "
        "float32 into 2^26: 351 us against 583 with a whole table, but 2^24 in 3410 against 1680",
    ),
    Rule(
        "in_output",
        when=always,
        possible=lambda p, caps: p.row_elements == 1 and p.element_bytes >= 4,
        because="single elements with room for an update's position: the output itself is the table, and then in one pass "
        "becomes the input or the update; no temporary memory. H200, 2^24 float32 into 2^26: 1680 us, as with a table",
    ),
    Rule(
        "table",
        when=always,
        possible=always,
        because="a table says which update each row of the output gets, and one pass makes the output of the input and the "
        "updates: one read and one write of each byte of it. The temporary memory is 4 bytes a row of the output, of single "
        "elements of 8 or 16 bits more than the output itself; what no binding holds is done in parts. H200, 2^15 rows of "
        "4 KiB into 2^17: 4010 GB/s",
    ),
)
