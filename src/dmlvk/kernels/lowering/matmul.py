"""Plans for matrix products."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dmlvk import ops
from dmlvk.enums import MatrixTransform, TensorDataType
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.fused import Activation, fused
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.lowering.softmax import over_last_dimension
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, Range, input_range, output_range
from dmlvk.kernels.select.matmul import GEMM, GEMM_VECTOR_ROWS, GemmProblem
from dmlvk.kernels.shapes import check_rounds, linear_grid
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import TensorDesc

Strides = tuple[int, int, int, int]
"""In elements, of (outer batch, inner batch, row, column)."""


@dataclass(frozen=True)
class Product:
    """y = activation(alpha * a b + beta * c), matrix by matrix, whichever operator asked for it.

    Attributes:
        batch: Outer and inner batch sizes.
        rows, columns, depth: Of y, y and the sums.
        a, b, c, y: Where the operands lie; c may be any range where ``has_c`` is False.
        a_strides, b_strides, c_strides, y_strides: Of the untransposed product: a is (rows, depth), b (depth, columns).
    """

    data_type: TensorDataType
    batch: tuple[int, int]
    rows: int
    columns: int
    depth: int
    a: Range
    b: Range
    c: Range
    y: Range
    a_strides: Strides
    b_strides: Strides
    c_strides: Strides
    y_strides: Strides
    has_c: bool
    alpha: float
    beta: float
    activation: Activation

    def transposed(self) -> Product:
        """The same product written as y^T = b^T a^T."""
        return dataclasses.replace(
            self,
            rows=self.columns,
            columns=self.rows,
            a=self.b,
            b=self.a,
            a_strides=_transposed(self.b_strides),
            b_strides=_transposed(self.a_strides),
            c_strides=_transposed(self.c_strides),
            y_strides=_transposed(self.y_strides),
        )


def _transposed(strides: Strides) -> Strides:
    outer, inner, rows, columns = strides
    return (outer, inner, columns, rows)


def _dispatch(kernel: str, product: Product, constants: dict[str, int], grid: tuple[int, int, int], **params: int) -> Plan:
    constants = {**constants, "ACTIVATION": product.activation.id, "HAS_C": int(product.has_c)}
    block = KERNELS[kernel].pack(
        rows=product.rows,
        columns=product.columns,
        depth=product.depth,
        inner_batch=product.batch[1],
        a_strides=product.a_strides,
        b_strides=product.b_strides,
        c_strides=product.c_strides,
        y_strides=product.y_strides,
        alpha=product.alpha,
        beta=product.beta,
        param0=product.activation.param0,
        param1=product.activation.param1,
        **params,
    )
    variant = KernelVariant(kernel, (("T", product.data_type.name),), tuple(constants.items()))
    return Plan((Dispatch(variant, (product.a, product.b, product.c, product.y), block, grid),))


def naive(product: Product, caps: Capabilities) -> Plan:
    """One invocation an output."""
    local = min(128, caps.workgroup_invocations)
    count = math.prod(product.batch) * product.rows * product.columns
    grid = linear_grid(-(-count // local), caps)
    return _dispatch("gemm_naive", product, {"LOCAL_SIZE_X": local}, grid, count=count)


def rows(product: Product, caps: Capabilities) -> Plan:
    """Several rows of one column an invocation."""
    local = 32 if caps.is_cpu else 64
    block = min(8, caps.minimum_subgroup_size)
    grid = (-(-product.columns // local), -(-product.rows // block), math.prod(product.batch))
    return _dispatch("gemm_rows", product, {"LOCAL_SIZE_X": local, "ROWS": block}, grid)


class TileShape(NamedTuple):
    """How a workgroup covers a tile: invocations along columns and rows, and the block that each has in registers."""

    local_x: int
    local_y: int
    block_rows: int
    block_columns: int

    @property
    def rows(self) -> int:
        """Of the tile."""
        return self.local_y * self.block_rows

    @property
    def columns(self) -> int:
        """Of the tile."""
        return self.local_x * self.block_columns


_TILE_SHAPES = (TileShape(16, 16, 8, 8), TileShape(16, 16, 4, 4), TileShape(16, 8, 4, 4))
_TILES_TO_FILL_A_DEVICE = 128
_CPU_TILE_SHAPE = TileShape(8, 8, 2, 2)
"""Small, because a CPU's driver takes seconds to compile a large block's unrolled loops, and no rule chooses tiles there."""


def tile_shape(rows: int, columns: int, batch: int, caps: Capabilities) -> TileShape:
    """The largest shape that still gives the device enough workgroups, else the smallest."""
    if caps.is_cpu:
        return _CPU_TILE_SHAPE
    for shape in _TILE_SHAPES[:-1]:
        tiles = -(-rows // shape.rows) * -(-columns // shape.columns) * batch
        if tiles >= _TILES_TO_FILL_A_DEVICE and shape.local_x * shape.local_y <= caps.workgroup_invocations:
            return shape
    return _TILE_SHAPES[-1]


def tile_depth(shape: TileShape, depth: int, caps: Capabilities) -> int:
    """How much of the depth is staged at a time: as much as fits in shared memory (rows of the tiles are padded by 4
    words) and, next to large blocks, in registers, but little more than there is."""
    deepest = 8 if caps.is_cpu else 32 if shape.block_rows * shape.block_columns <= 16 else 16
    while deepest > 8 and (
        deepest * (shape.rows + shape.columns + 8) * 4 > caps.shared_memory_bytes or deepest >= 2 * depth
    ):
        deepest //= 2
    return deepest


def tiled(product: Product, caps: Capabilities) -> Plan:
    """Tiles through shared memory."""
    batch = math.prod(product.batch)
    shape = tile_shape(product.rows, product.columns, batch, caps)
    constants = {
        "LOCAL_SIZE_X": shape.local_x,
        "LOCAL_SIZE_Y": shape.local_y,
        "THREAD_M": shape.block_rows,
        "THREAD_N": shape.block_columns,
        "TILE_K": tile_depth(shape, product.depth, caps),
        "A_ALONG_K": int(product.a_strides[3] <= product.a_strides[2]),
        "B_ALONG_K": int(product.b_strides[2] < product.b_strides[3]),
    }
    grid = (-(-product.columns // shape.columns), -(-product.rows // shape.rows), batch)
    return _dispatch("gemm_tiled", product, constants, grid)


def vector(product: Product, caps: Capabilities) -> Plan:
    """Few rows, or few columns after swapping the operands."""
    if product.rows > GEMM_VECTOR_ROWS:
        product = product.transposed()
    along_k = product.b_strides[2] < product.b_strides[3]
    # Neighbours read at least 64 bytes side by side: a subgroup of lanes along the depth, or 16 columns.
    local = min(128 if along_k else 512, 1 << (caps.workgroup_invocations.bit_length() - 1))
    lanes = 32 if along_k else local // 16
    constants = {
        "LOCAL_SIZE_X": local,
        "ROWS": product.rows,
        "LANES": lanes,
        "ALONG_K": int(along_k),
    }
    x, y, _ = linear_grid(-(-product.columns // (local // lanes)), caps)
    return _dispatch("gemm_vector", product, constants, (x, y, math.prod(product.batch)))


def _strides(tensor: TensorDesc, transform: MatrixTransform = MatrixTransform.NONE) -> Strides:
    outer, inner, row, column = (0,) * (4 - tensor.dimension_count) + tensor.effective_strides
    return (outer, inner, column, row) if transform == MatrixTransform.TRANSPOSE else (outer, inner, row, column)


def _product(desc: ops.Gemm) -> Product:
    a, b, y = desc.tensor("a_tensor"), desc.tensor("b_tensor"), desc.tensor("output_tensor")
    outer, inner, row_count, column_count = (1,) * (4 - y.dimension_count) + y.sizes
    has_c = desc.c_tensor is not None
    return Product(
        data_type=a.data_type,
        batch=(outer, inner),
        rows=row_count,
        columns=column_count,
        depth=a.sizes[-2] if desc.trans_a == MatrixTransform.TRANSPOSE else a.sizes[-1],
        a=input_range(0),
        b=input_range(1),
        c=input_range(2 if has_c else 0),
        y=output_range(),
        a_strides=_strides(a, desc.trans_a),
        b_strides=_strides(b, desc.trans_b),
        c_strides=(0, 0, 0, 0) if desc.c_tensor is None else _strides(desc.c_tensor),
        y_strides=_strides(y),
        has_c=has_c,
        alpha=desc.alpha,
        beta=desc.beta,
        activation=fused(None if _is_softmax(desc.fused_activation) else desc.fused_activation),
    )


def _is_softmax(activation: OperatorDesc | None) -> bool:
    return isinstance(activation, ops.ActivationSoftmax | ops.ActivationSoftmax1)


def _problem(desc: ops.Gemm) -> GemmProblem:
    product = _product(desc)
    return GemmProblem(product.rows, product.columns, product.depth, math.prod(product.batch))


def _schedule(build: Callable[[Product, Capabilities], Plan]) -> Callable[[ops.Gemm, GemmProblem, Capabilities], Plan]:
    def schedule(desc: ops.Gemm, problem: GemmProblem, caps: Capabilities) -> Plan:
        check_rounds(problem.depth, caps, desc.type.dml_name)
        plan = build(_product(desc), caps)
        if not _is_softmax(desc.fused_activation):
            return plan
        return Plan((*plan.dispatches, over_last_dimension(desc.tensor("output_tensor"), output_range(), caps)))

    return schedule


register(
    ops.Gemm,
    problem=_problem,
    rules=GEMM,
    schedules={
        "vector": _schedule(vector),
        "tiled": _schedule(tiled),
        "rows": _schedule(rows),
        "naive": _schedule(naive),
    },
)
