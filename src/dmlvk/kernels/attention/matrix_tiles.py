"""Tiles of attention by matrices of subgroups: the shapes that a workgroup may cover, and which is taken."""

from __future__ import annotations

import math
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.attention.problem import AttentionProblem
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix


class CooperativeShape(NamedTuple):
    """The cover of a tile by subgroups that multiply matrices; see ``glsl/attention_cooperative.comp``.

    Attributes:
        subgroups: The subgroups of a workgroup.
        blocks: Rows of matrices that each has.
        keys: The keys of a tile.
        widest, narrower: The heads that it is meant for: no wider than the one, and wider than the other. A subgroup's
            registers must hold the sums of its rows.
        held: Columns of queries that stay in matrices, where a head has as many; the others are in shared memory.
        together: Columns of matrices whose scores are made at once, where matrices have reductions.
    """

    subgroups: int
    blocks: int
    keys: int
    widest: int = 128
    narrower: int = 0
    held: int = 256
    together: int = 1

    def shared_memory_bytes(
        self, matrix: CooperativeMatrix, head: int, value: int, *, reductions: bool, bias: bool = False
    ) -> int:
        """The shared memory of a workgroup, with heads of whole matrices."""
        rows = self.subgroups * self.blocks * matrix.m
        columns = min(self.keys, 32) if reductions else self.keys
        tiles, scores = self.keys * (head // 8 + 1 + value // 8 + 1), rows * (columns // 4 + 1)
        words = max(tiles, scores) if reductions else tiles + scores
        if bias:
            words += rows * (self.keys // 8 + 1)
        if self.held < head:
            words += rows * ((head - self.held) // 8 + 1)
        return 16 * words + (0 if reductions else 4 * rows)


ATTENTION_SHAPES = {
    True: (
        CooperativeShape(4, 2, 64, widest=48, together=2),
        CooperativeShape(4, 2, 64, narrower=48, widest=80),
        CooperativeShape(8, 1, 64, widest=96),
        CooperativeShape(8, 1, 64, narrower=96, widest=128, together=2),
        CooperativeShape(8, 1, 64, narrower=128, widest=160, together=2),
        CooperativeShape(8, 1, 32, narrower=128, widest=256, held=224),
        CooperativeShape(4, 1, 64),
        CooperativeShape(4, 1, 32),
        CooperativeShape(4, 1, 16, narrower=128, widest=256, held=64),
    ),
    False: (
        CooperativeShape(4, 2, 32),
        CooperativeShape(4, 1, 64),
        CooperativeShape(2, 1, 64),
        CooperativeShape(4, 1, 32),
        CooperativeShape(2, 1, 32),
    ),
}
"""The shapes, by whether matrices have reductions, from the one with most rows to that with the fewest. H100, 16 heads of
2048 rows, us of a call, some 10 of them the host's, without a bias, with one, and where no query sees a later key: of 64
elements 91, 121 and 121; 80: 125, 172 and 162 (with 8 subgroups 135, 193 and 146); 96: 145, 204 and 160. On the device,
without a bias and with one: of 40 65 and 105, and of 4096 rows 252, with two columns of scores together 232; 128: 172 and
224 with four columns together, with two 158 without one; 160: 234 and 334; 192: 271 and 361; 256: 441 and 634, where tiles
take 4,800."""


def whole_matrices(size: int, matrix: CooperativeMatrix) -> int:
    """A head's size, rounded up to the sizes that the matrix kernel has."""
    whole = math.lcm(matrix.n, matrix.k, 8)
    return -(-size // whole) * whole


def matrix_shape(
    problem: AttentionProblem, caps: Capabilities, *, reductions: bool
) -> tuple[CooperativeShape, CooperativeMatrix] | None:
    """The shape with most rows that the device has room for and that still gives it enough workgroups, else the one with the
    fewest; with the matrices to multiply. None where nothing fits."""
    matrix = cooperative_matrix(caps, "float16", "float32")
    if matrix is None:
        return None
    head, value = whole_matrices(problem.head_size, matrix), whole_matrices(problem.value_size, matrix)
    found: CooperativeShape | None = None
    for shape in ATTENTION_SHAPES[reductions]:
        rows = shape.blocks * matrix.m
        if (
            not shape.narrower < max(head, value) <= shape.widest
            or caps.subgroup_size % rows
            or shape.keys % matrix.k
            or shape.held % matrix.k
            or shape.keys % (matrix.n * shape.together)
            or shape.keys % (8 * caps.subgroup_size // rows)
            or shape.subgroups * caps.subgroup_size > caps.workgroup_invocations
            or shape.shared_memory_bytes(matrix, head, value, reductions=reductions, bias=problem.bias)
            > caps.shared_memory_bytes
        ):
            continue
        if found is None or found.subgroups * found.blocks > shape.subgroups * shape.blocks:
            found = shape
        if problem.heads * -(-problem.rows // (shape.subgroups * rows)) >= caps.model.processors:
            break
    return None if found is None else (found, matrix)
