"""The rules of products with weights in blocks, and of rows of such tables."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.kernels.common.rule import Rule, always


@dataclass(frozen=True)
class BlockProblem:
    """A product with weights in blocks, as its rules see it: rows and columns of the output, terms of each sum."""

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class BlockGatherProblem:
    """Rows of a table in blocks, as their rule sees them: indices, numbers of a row."""

    count: int
    depth: int


BLOCK_GEMM = (
    Rule(
        "vector",
        when=always,
        possible=always,
        because="bound by one read of the weights: invocations side by side load 16 bytes of each of four columns",
    ),
)

BLOCK_GATHER = (
    Rule("eights", when=always, possible=always, because="an invocation has eight codes, whose scale it finds itself"),
)
