"""Plans for matrix products."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import Activation, fused
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import (
    cooperative_constants,
    parted_tile,
    staged_tile,
    whole_words,
    word_access,
)
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.gate import gate_launches
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, STORAGE_BINDING
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import check_rounds, linear_grid, most_invocations, pair_type, power_of_two
from dmlvk.kernels.common.terms import WordAccess
from dmlvk.kernels.elementwise.lowering import scalar_words
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.matmul.manifest import DOUBLE_BLOCK, DOUBLE_DEPTH, DOUBLE_EDGE, Addend, LinesOfC, OperandC
from dmlvk.kernels.matmul.rules import (
    GEMM,
    GEMM_DOUBLE,
    GEMM_GATE,
    GEMM_NORMALIZATION,
    GEMM_STAGED_ROWS,
    GEMM_VECTOR_ROWS,
    NORMALIZED_GEMM,
    QUAD,
    GemmNormalizationProblem,
    GemmProblem,
    NormalizedGemmProblem,
    partial_bytes,
    rule_in_parts,
)
from dmlvk.kernels.matmul.streams import MATRIX, PACKED_DEPTH, WORD, packed_bytes, streamed_parts
from dmlvk.kernels.matmul.tiles import CPU_TILES, FEW_ROWS, TiledProduct, fastest_tiles, whole_rounds
from dmlvk.kernels.root_mean_square.lowering import (
    NormSlots,
    are_norm_rows_packed,
    norm_apart,
    norm_buffers,
    norm_constants,
    norm_row_bytes,
)
from dmlvk.kernels.softmax.lowering import over_last_dimension
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, OperatorType, TensorDataType
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import FormatGemm, GemmAdd, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

Strides = tuple[int, int, int, int]
"""Strides in elements of (outer batch, inner batch, row, column)."""


@dataclass(frozen=True)
class RowNormalization:
    """What becomes of the rows of a product whose parts are added: y, of packed rows.

    Attributes:
        scale, bias: The ranges of a number for each column, None where there are none.
        y: The range of what is normalized.
        use_mean: Whether the mean is subtracted first.
        epsilon: What is added to the variance.
        keeps_product: Whether the product is written, too.
    """

    scale: Range | None
    bias: Range | None
    y: Range
    use_mean: bool
    epsilon: float
    keeps_product: bool


@dataclass(frozen=True)
class Product:
    """y = activation(alpha * a b + beta * c + addend), matrix by matrix, whichever operator asked for it.

    Attributes:
        data_type: That of the factors; of UINT16 they are the bits of BFLOAT16.
        result_type: That of all else, where it is another one.
        c_of_bits: Whether c is of the factors' type instead.
        batch: Outer and inner batch sizes.
        rows, columns, depth: The rows and columns of y, and the terms of each sum.
        a, b, c, y: The ranges of the operands; c may be any range where ``has_c`` is False.
        a_strides, b_strides, c_strides, y_strides: The strides of the untransposed product: a is (rows, depth), b (depth,
            columns).
        normalization: What becomes of the rows; the product is made in parts then, though it be one.
        is_kept: Whether b is OWNED_BY_DML.
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
    addend: Range | None = None
    addend_strides: Strides = (0, 0, 0, 0)
    result_type: TensorDataType | None = None
    c_of_bits: bool = False
    normalization: RowNormalization | None = None
    is_kept: bool = False

    @property
    def results(self) -> TensorDataType:
        """The data type of c, addend and y."""
        return self.data_type if self.result_type is None else self.result_type

    @property
    def kind_of_c(self) -> OperandC:
        """What kernels read of C."""
        return OperandC.NONE if not self.has_c else OperandC.BITS if self.c_of_bits else OperandC.OWN

    @property
    def is_bfloat16(self) -> bool:
        """Whether the factors are bits of BFLOAT16."""
        return self.data_type is TensorDataType.UINT16

    @property
    def matrices(self) -> int:
        """The matrices of the whole batch."""
        return math.prod(self.batch)

    def trimmed(self) -> Product:
        """The product with strides of 0 in dimensions of size 1."""

        def trim(strides: Strides, rows: int, columns: int) -> Strides:
            outer, inner, row, column = (
                0 if size == 1 else step for size, step in zip((*self.batch, rows, columns), strides, strict=True)
            )
            return (outer, inner, row, column)

        return dataclasses.replace(
            self,
            a_strides=trim(self.a_strides, self.rows, self.depth),
            b_strides=trim(self.b_strides, self.depth, self.columns),
            c_strides=trim(self.c_strides, self.rows, self.columns),
            y_strides=trim(self.y_strides, self.rows, self.columns),
            addend_strides=trim(self.addend_strides, self.rows, self.columns),
        )

    def with_addend_as_c(self) -> Product:
        """The product whose addend is C, where there is no other: kernels that read both take more registers."""
        if self.addend is None or self.has_c:
            return self
        return dataclasses.replace(
            self,
            c=self.addend,
            c_strides=self.addend_strides,
            has_c=True,
            beta=1.0,
            addend=None,
            addend_strides=(0, 0, 0, 0),
        )

    def normalized(self) -> Product:
        """Trimmed, and written the way round in which y's columns are neighbours where one of them is."""
        trimmed = self.trimmed()
        return trimmed.transposed() if trimmed.y_strides[2] == 1 != trimmed.y_strides[3] else trimmed

    def transposed(self) -> Product:
        """The product written as y^T = b^T a^T."""
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
            addend_strides=_transposed(self.addend_strides),
        )


def _transposed(strides: Strides) -> Strides:
    outer, inner, rows, columns = strides
    return (outer, inner, columns, rows)


def _shape_params(product: Product) -> dict[str, int | Strides]:
    """The parameters that every product's kernel has."""
    return {
        "rows": product.rows,
        "columns": product.columns,
        "depth": product.depth,
        "inner_batch": product.batch[1],
        "a_strides": product.a_strides,
        "b_strides": product.b_strides,
        "c_strides": product.c_strides,
        "y_strides": product.y_strides,
    }


def _kernel_type(data_type: TensorDataType) -> str:
    """The kernels' name of a product's data type."""
    return "BFLOAT16" if data_type is TensorDataType.UINT16 else data_type.name


def product_dispatch(
    kernel: str,
    product: Product,
    constants: Mapping[str, int],
    grid: tuple[int, int, int],
    variant: Mapping[str, int | str] | None = None,
    subgroup_size: int = 0,
    more: Sequence[Range] = (),
    /,
    **params: float,
) -> Dispatch:
    """A dispatch of a product's kernel, whose further buffers are ``more``."""
    addend = Addend.NONE if product.addend is None else Addend.LAST
    types = {"T": product.data_type, "R": product.results}
    constants = {"ADDEND": addend, **constants, "ACTIVATION": product.activation.id, "HAS_C": product.kind_of_c}
    return make_dispatch(
        kernel,
        (product.a, product.b, product.c, product.a if product.addend is None else product.addend, product.y, *more),
        grid,
        subgroup_size,
        variant={
            **{macro: _kernel_type(own) for macro, own in types.items() if macro in KERNELS[kernel].macros},
            **(variant or {}),
        },
        constants=constants,
        alpha=product.alpha,
        beta=product.beta,
        addend_strides=product.addend_strides,
        **_shape_params(product),
        **product.activation.params,
        **params,
    )


def naive(product: Product, caps: Capabilities) -> Plan:
    """The plan in which an invocation makes one element of y."""
    local = min(128, caps.workgroup_invocations)
    count = product.matrices * product.rows * product.columns
    grid = linear_grid(-(-count // local), caps)
    return Plan((product_dispatch("gemm_naive", product, {"LOCAL_SIZE_X": local}, grid, count=count),))


_ROWS_BY_WORK = ((1 << 26, 32), (1 << 22, 16))
"""The fewest multiply-adds of a matrix whose invocations have so many rows: each row more saves reads, and takes the driver
longer to compile. lavapipe (Mesa 22.3, two cores, 2026-11-30), ms of 128x768 of depth 768 with 8, 16, 32 and 64 rows 56, 36,
23 and 15, transposed 37, 21, 17 and 15; seconds to compile 0.35, 0.6, 1.2 and 3."""
_FEWEST_ROWS = 8
_MOST_QUADS = 32
"""The most quads of columns of a workgroup, one an invocation."""


def rows(product: Product, caps: Capabilities) -> Plan:
    """Several rows of four columns an invocation."""
    product = product.normalized()
    a = factor_access(product.data_type, product.a, product.a_strides, 2)
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    quads, sharers = -(-product.columns // QUAD), min(_FEWEST_ROWS, caps.least_subgroup)
    work = product.rows * product.columns * product.depth
    block = next((most for least, most in _ROWS_BY_WORK if work >= least and product.rows > most // 2), sharers)
    local = min(max(power_of_two(quads), caps.least_subgroup), _MOST_QUADS)
    constants = {
        "LOCAL_SIZE_X": local,
        "ROWS": block,
        "SHARERS": sharers,
        "ALONG_K": int(b.along_depth),
        "VECTOR_A": int(a.vector and a.along_depth),
        "VECTOR_B": int(b.vector),
        "VECTOR_Y": int(output_quads(product)),
        "C_LINES": _lines_of_c(product),
    }
    grid = (-(-quads // local), -(-product.rows // block), product.matrices)
    return Plan((product_dispatch("gemm_rows", product, constants, grid, {"W": pair_type(caps)}),))


def _lines_of_c(product: Product) -> LinesOfC:
    if not product.has_c:
        return LinesOfC.NONE
    if product.c_strides[3] == 0:
        return LinesOfC.ROWS
    return LinesOfC.COLUMNS if product.c_strides[2] == 0 else LinesOfC.NONE


_LEAST_ROUNDS = 8
"""The fewest rounds of a part of a split sum: fewer are not worth its start and its trip through memory."""


class FactorAccess(NamedTuple):
    """The way in which a kernel reads a factor: neighbours along the depth or across it, four of them at once or one."""

    along_depth: bool
    vector: bool


def factor_access(data_type: TensorDataType, place: Range, strides: Strides, across: int) -> FactorAccess:
    """The access to a factor whose rows or columns are dimension ``across`` and whose depth is the other one. The strides of
    dimensions of size 1 are 0."""
    depth = 5 - across
    along = strides[depth] != 0 and (strides[across] == 0 or strides[depth] <= strides[across])
    inner = depth if along else across
    return FactorAccess(along, strides[inner] == 1 and _whole_quads(data_type, place, strides, inner))


def _whole_quads(data_type: TensorDataType, place: Range, strides: Strides, inner: int) -> bool:
    """Whether every run along a dimension begins at a multiple of four elements."""
    # The innermost first: where it says no, a plan for open sizes is not bound to what the others say.
    starts = all(strides[dimension] % QUAD == 0 for dimension in reversed(range(len(strides))) if dimension != inner)
    return starts and place.offset % (QUAD * element_bits(data_type) // 8) == 0


def output_quads(product: Product) -> bool:
    return (
        product.y_strides[3] == 1
        and product.columns % QUAD == 0
        and _whole_quads(product.results, product.y, product.y_strides, 3)
    )


def split_sum(product: Product, caps: Capabilities, rounds: int, parts: int) -> tuple[int, int]:
    """Into how many parts a sum of so many rounds is split, about as many as wanted, and the rounds of each."""
    most = caps.storage_buffer_bytes // partial_bytes(product.matrices, product.rows, product.columns)
    each = -(-rounds // max(min(parts, most, rounds), 1))
    return -(-rounds // each), each


def _addend_time(product: Product) -> Addend:
    """When tiles add the addend: before all products where nothing scales them, so that its loads wait for memory together
    with those of the first tile, and not for the stores of other outputs."""
    if product.addend is None:
        return Addend.NONE
    if product.alpha != 1.0:
        return Addend.LAST
    in_quads = product.addend_strides[3] == 1 and product.columns % QUAD == 0
    in_quads = in_quads and _whole_quads(product.results, product.addend, product.addend_strides, 3)
    return Addend.FIRST_QUADS if in_quads else Addend.FIRST


def parts_and_merge(
    kernel: str,
    product: Product,
    caps: Capabilities,
    constants: Mapping[str, int],
    workgroups: int,
    parts: tuple[int, int],
    *,
    tiles: bool = True,
    may_add_nothing: bool = False,
    variant: Mapping[str, int] | None = None,
    subgroup_size: int = 0,
    taken: int = 0,
    more: Mapping[str, int] | None = None,
) -> Plan:
    """A kernel that may split sums, and where it does the dispatch that adds them.

    Args:
        kernel: The kernel.
        product: The product.
        caps: The device.
        constants: The kernel's own constants.
        workgroups: The workgroups of a part.
        parts: The parts, and the rounds of each.
        tiles: Whether sums may begin with an addend.
        may_add_nothing: Whether the kernel has a variant that reads no addend.
        variant: What the kernel has beside the data type.
        subgroup_size: The subgroup size that it requires.
        taken: The bytes of temporary memory before those of the sums.
        more: The kernel's own parameters.
    """
    splits, split_rounds = parts
    pitch = -(-product.columns // QUAD) * QUAD
    params = {"matrices": product.matrices, "splits": splits, "partial_pitch": pitch}
    constants = {**constants, "VECTOR_Y": int(output_quads(product)), "PARTIAL": int(splits > 1)}
    grid = linear_grid(workgroups * splits, caps)

    def multiplied(operands: Product) -> Dispatch:
        own = {**(variant or {}), **({"ADDS": int(operands.addend is not None)} if may_add_nothing else {})}
        return product_dispatch(
            kernel, operands, constants, grid, own, subgroup_size, **params, split_rounds=split_rounds, **(more or {})
        )

    if splits == 1 and product.normalization is None:
        if tiles:
            constants["ADDEND"] = _addend_time(product)
        return Plan((multiplied(product),))
    scratch = Range(Source.TEMPORARY, 0, taken, splits * partial_bytes(product.matrices, product.rows, product.columns))
    constants["PARTIAL"] = 1
    sums = dataclasses.replace(
        product, y=scratch, c=product.a, has_c=False, activation=fused(None), addend=None, normalization=None
    )
    merged = dataclasses.replace(product, a=scratch, b=scratch, c=product.c if product.has_c else scratch)
    return Plan((multiplied(sums), _merge(merged, caps, params)), temporary_bytes=taken + scratch.nbytes)


def _merge(product: Product, caps: Capabilities, params: Mapping[str, int]) -> Dispatch:
    """The dispatch that adds the parts of a product, which are its A."""
    norm = product.normalization
    if norm is not None:
        return _merge_normalized(product, norm, caps, params)
    local = min(128, caps.workgroup_invocations)
    grid = linear_grid(-(-product.matrices * product.rows * (params["partial_pitch"] // QUAD) // local), caps)
    constants = {"LOCAL_SIZE_X": local, "VECTOR_Y": int(output_quads(product))}
    return product_dispatch("gemm_merge", product, constants, grid, **params)


def _merge_normalized(product: Product, norm: RowNormalization, caps: Capabilities, params: Mapping[str, int]) -> Dispatch:
    """The dispatch that normalizes the rows, too."""
    quads, most = product.columns // QUAD, most_invocations(caps)
    lanes = min(power_of_two(quads), most)  # a quad each, if there are as many: each waits for memory once
    local = max(lanes, min(64, most))
    constants = {
        "LOCAL_SIZE_X": local,
        "LANES": lanes,
        "UNITS": -(-quads // lanes),
        "HAS_PRODUCT": int(norm.keeps_product),
        "HAS_SCALE": int(norm.scale is not None),
        "HAS_BIAS": int(norm.bias is not None),
        "USE_MEAN": int(norm.use_mean),
    }
    return product_dispatch(
        "gemm_merge_normalized",
        product,
        constants,
        linear_grid(-(-product.matrices * product.rows // (local // lanes)), caps),
        None,
        0,
        (*(norm.y if part is None else part for part in (norm.scale, norm.bias)), norm.y),
        epsilon=norm.epsilon,
        **params,
    )


def tiled(product: Product, caps: Capabilities) -> Plan:
    """The plan in which workgroups make tiles of y from tiles of a and b in shared memory."""
    return _tiled(product, caps, split=False)


def split(product: Product, caps: Capabilities) -> Plan:
    """Tiles of parts of the depth, whose sums a second dispatch adds."""
    return _tiled(product, caps, split=True)


def _tiled(product: Product, caps: Capabilities, *, split: bool) -> Plan:
    product = product.normalized()
    if product.columns <= FEW_ROWS < product.rows and product.normalization is None:  # flat tiles are for few rows
        product = product.transposed()
    a = factor_access(product.data_type, product.a, product.a_strides, 2)
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    sizes = product.rows, product.columns, product.depth, product.matrices
    merged = product.normalization is not None
    tiles = fastest_tiles(TiledProduct(*sizes, a.vector and b.vector, b.along_depth, merged), caps, split=split)
    rounds = -(-product.depth // tiles.depth)
    workgroups = tiles.shape.tiles(product.rows, product.columns) * product.matrices
    constants = {
        **tiles.constants,
        "WHOLE_ROUNDS": int(whole_rounds(product.depth, tiles.depth)),
        "A_ALONG_K": int(a.along_depth),
        "B_ALONG_K": int(b.along_depth),
        "VECTOR_A": int(a.vector),
        "VECTOR_B": int(b.vector),
    }
    divided = split_sum(product, caps, rounds, tiles.parts)
    return parts_and_merge("gemm_tiled", product, caps, constants, workgroups, divided)


def cooperative(product: Product, caps: Capabilities) -> Plan:
    """Tiles by cooperative matrices, in parts of the depth where they are few."""
    product = product.normalized().with_addend_as_c()
    matrix = cooperative_matrix(caps, "bfloat16" if product.is_bfloat16 else "float16", "float32")
    assert matrix is not None, "the rule asks for one"
    a = factor_access(product.data_type, product.a, product.a_strides, 2)
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    sizes = product.rows, product.columns, product.depth, product.matrices
    merged = product.normalization is not None
    words = [
        word_access(product.data_type, place, strides, inner, size, along_depth=access.along_depth)
        for place, strides, access, inner, size in (
            (product.a, product.a_strides, a, *((3, product.depth) if a.along_depth else (2, product.rows))),
            (product.b, product.b_strides, b, *((2, product.depth) if b.along_depth else (3, product.columns))),
        )
    ]
    is_whole = all(access is WordAccess.WORDS for access in words)
    is_narrow = product.data_type != TensorDataType.FLOAT32
    tile, parts = parted_tile(*sizes, caps, b_along_depth=b.along_depth, merged=merged, patient=is_whole and is_narrow)
    if is_narrow:
        tile = staged_tile(tile, caps, whole_words=is_whole)
    constants = {
        **cooperative_constants(tile, matrix, caps),
        "A_ALONG_K": int(a.along_depth),
        "B_ALONG_K": int(b.along_depth),
        "VECTOR_A": words[0],
        "VECTOR_B": words[1],
    }
    workgroups = tile.tiles(product.rows, product.columns) * product.matrices
    divided = split_sum(product, caps, -(-product.depth // tile.depth), parts)
    return parts_and_merge(
        "gemm_cooperative_bfloat16" if product.is_bfloat16 else "gemm_cooperative",
        product,
        caps,
        constants,
        workgroups,
        divided,
        may_add_nothing=True,
        variant={"WHOLE": is_whole},
        subgroup_size=caps.subgroup_size,
    )


_PACK_INVOCATIONS = 128


def streamed(product: Product, caps: Capabilities) -> Plan:
    """Tiles by cooperative matrices whose second factor is laid out for them: at initialisation where it is OWNED_BY_DML,
    else by a first dispatch."""
    product = product.normalized().with_addend_as_c()
    sizes = product.rows, product.columns, product.depth, product.matrices
    tile, parts = streamed_parts(*sizes, caps, merged=product.normalization is not None)
    steps = -(-product.depth // PACKED_DEPTH) * (PACKED_DEPTH // MATRIX)
    nbytes = packed_bytes(product.columns, product.depth)
    packed = Range(Source.PERSISTENT if product.is_kept else Source.TEMPORARY, 0, 0, nbytes)
    pack = make_dispatch(
        "gemm_pack",
        (product.b, packed),
        linear_grid(-(-nbytes // 16 // _PACK_INVOCATIONS), caps),
        variant={"T": TensorDataType.UINT16.name},
        constants={"LOCAL_SIZE_X": _PACK_INVOCATIONS},
        columns=product.columns,
        depth=product.depth,
        column_stride=product.b_strides[3],
        depth_stride=product.b_strides[2],
        steps=steps,
        count=nbytes // 16,
    )
    taken = 0 if product.is_kept else aligned(nbytes)
    plan = parts_and_merge(
        "gemm_streamed",
        dataclasses.replace(product, b=packed),
        caps,
        {**tile.constants(caps.subgroup_size), "WHOLE_ROUNDS": int(whole_rounds(product.depth, tile.depth))},
        tile.tiles(product.rows, product.columns) * product.matrices,
        split_sum(product, caps, -(-product.depth // tile.depth), parts),
        may_add_nothing=True,
        subgroup_size=caps.subgroup_size,
        taken=taken,
        more={"steps": steps},
    )
    if product.is_kept:
        return dataclasses.replace(plan, persistent_bytes=nbytes, initialize=(pack,))
    return dataclasses.replace(plan, dispatches=(pack, *plan.dispatches), temporary_bytes=max(plan.temporary_bytes, taken))


def products_of_halves(a: TensorDesc, b: TensorDesc, y: TensorDesc, caps: Capabilities, *, alpha: float = 1.0) -> Plan:
    """FLOAT16 rows times rows, alpha a b^T, in FLOAT32, which no operator gives; the device has matrices."""
    (outer, inner, rows, depth), columns = a.sizes, b.sizes[2]

    def strides(tensor: TensorDesc) -> Strides:
        first, second, row, column = tensor.effective_strides
        return (first, second, row, column)

    of_b = strides(b)
    product = Product(
        data_type=a.data_type,
        result_type=y.data_type,
        batch=(outer, inner),
        rows=rows,
        columns=columns,
        depth=depth,
        a=input_range(0),
        b=input_range(1),
        c=input_range(0),
        y=output_range(),
        a_strides=strides(a),
        b_strides=(of_b[0], of_b[1], of_b[3], of_b[2]),
        c_strides=(0, 0, 0, 0),
        y_strides=strides(y),
        has_c=False,
        alpha=alpha,
        beta=1.0,
        activation=fused(None),
    )
    return cooperative(product, caps)


_VECTOR_WAVE = 0.5
"""Share of a wave that keeps enough loads in flight."""
_LEAST_INVOCATIONS = 64
"""Invocations of a workgroup whose lanes lie along the depth, at least."""


class _VectorShape(NamedTuple):
    """The cover of columns by a workgroup of the schedule for vectors: quads of them, the lanes that share the depth of
    each, and the blocks of four by four that each lane loads at a time."""

    columns: int
    lanes: int
    unroll: int


def _vector_shape(
    quads: int, depth: int, caps: Capabilities, *, along_depth: bool, least: int = _LEAST_INVOCATIONS
) -> _VectorShape:
    """The shape for so many quads of columns of all matrices."""
    most = min(most_invocations(caps), power_of_two(caps.shared_memory_bytes // 40 + 1) // 2)
    wanted = power_of_two(max(caps.model.invocations(_VECTOR_WAVE) // quads, 1))
    useful = power_of_two(-(-depth // QUAD))
    # Neighbours read at least 128 bytes side by side: lanes along the depth, or columns.
    if along_depth:
        lanes = max(2, min(max(wanted, 32), useful, most))
        columns = max(1, min(least, most) // lanes)
    else:
        columns = next((count for count in (32, 16) if quads >= count * caps.model.workgroups(1)), 8)
        columns = min(columns, power_of_two(quads), most // 2)
        lanes = max(2, min(wanted, useful, most // columns))
    return _VectorShape(columns, lanes, 1 if caps.is_cpu else 2)


def vector(product: Product, caps: Capabilities) -> Plan:
    """Few rows, or few columns after swapping the operands."""
    return _vector(product.transposed() if product.rows > GEMM_VECTOR_ROWS else product, caps)


def _vector(product: Product, caps: Capabilities, gate: Gate = Gate.NONE) -> Plan:
    """Few rows; with a gate the product's columns are those behind it."""
    product = product.trimmed()
    cover = _vector_cover(product, caps, gate)
    parts = 1 if gate else min(caps.model.workgroups(1) // cover.workgroups, cover.rounds // _LEAST_ROUNDS)
    divided = split_sum(product, caps, cover.rounds, parts)
    return parts_and_merge("gemm_vector", product, caps, cover.constants, cover.workgroups, divided, tiles=False)


class _VectorCover(NamedTuple):
    """The constants of the schedule for vectors, its workgroups, and the rounds of each."""

    constants: dict[str, int]
    workgroups: int
    rounds: int


def _vector_cover(product: Product, caps: Capabilities, gate: Gate, least: int = _LEAST_INVOCATIONS) -> _VectorCover:
    a = factor_access(product.data_type, product.a, product.a_strides, 2)
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    quads = -(-product.columns // QUAD)
    shape = _vector_shape(quads * product.matrices, product.depth, caps, along_depth=b.along_depth, least=least)
    constants = {
        "LOCAL_SIZE_X": shape.lanes * shape.columns,
        "ROWS": product.rows,
        "LANES": shape.lanes,
        "LANES_NEAR": min(32, caps.least_subgroup),
        "GATE": gate,
        "ALONG_K": int(b.along_depth),
        "UNROLL": shape.unroll,
        "VECTOR_A": int(a.vector and a.along_depth),
        "VECTOR_B": int(b.vector),
    }
    workgroups = -(-quads // shape.columns) * product.matrices
    return _VectorCover(constants, workgroups, -(-product.depth // (QUAD * shape.lanes)))


class _StagedShape(NamedTuple):
    """The cover of columns by a workgroup of the staged schedule: quads of them, the lanes that share the depth of each, the
    blocks that each lane has on its way, and the parts of the depth."""

    columns: int
    lanes: int
    unroll: int
    parts: int

    def shared_bytes(self, rows: int) -> int:
        """Shared memory for two turns' terms of so many rows, and for two sums of each invocation."""
        return 16 * (2 * rows * self.unroll * self.lanes + 2 * self.lanes * self.columns)


_STAGED_INVOCATIONS = 256
_STAGED_BLOCKS = 2
_STAGED_LANES = ((32, 1), (16, 2), (8, 2))
"""The lanes of a column, and the workgroups that a processor takes of those at a time: with 32 lanes they need more
registers."""
_FEWEST_TURNS, _MOST_TURNS = 3, 8
"""The fewest turns of its loop that a workgroup should have, and those from which on a sum is split."""


def _staged_shape(product: Product, caps: Capabilities) -> _StagedShape:
    """As many lanes as leave one wave of workgroups; parts of long sums where that is far from full."""
    if caps.is_cpu:
        return _StagedShape(4, 4, 1, 1)
    quads, invocations = -(-product.columns // QUAD), min(_STAGED_INVOCATIONS, most_invocations(caps))
    found = _StagedShape(invocations // _STAGED_LANES[-1][0], _STAGED_LANES[-1][0], _STAGED_BLOCKS, 1)
    for lanes, resident in _STAGED_LANES:
        shape = found._replace(columns=invocations // lanes, lanes=lanes)
        workgroups, full = -(-quads // shape.columns) * product.matrices, caps.model.workgroups(resident)
        if workgroups > full or shape.shared_bytes(product.rows) > caps.shared_memory_bytes:
            continue
        turns = product.depth // (QUAD * lanes * _STAGED_BLOCKS)
        parts = max(min(full // workgroups, turns // _FEWEST_TURNS), 1) if turns >= _MOST_TURNS else 1
        if resident > 1 or turns <= _MOST_TURNS * parts:
            return shape._replace(parts=parts)
    return found


def staged(product: Product, caps: Capabilities) -> Plan:
    """A few more rows, or columns after swapping the operands, whose terms pass through shared memory."""
    product = (product.transposed() if product.rows > GEMM_STAGED_ROWS else product).trimmed()
    a = factor_access(product.data_type, product.a, product.a_strides, 2)
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    shape = _staged_shape(product, caps)
    constants = {
        "LOCAL_SIZE_X": shape.lanes * shape.columns,
        "ROWS": product.rows,
        "LANES": shape.lanes,
        "LANES_NEAR": min(32, caps.least_subgroup),
        "ALONG_K": int(b.along_depth),
        "UNROLL": shape.unroll,
        "VECTOR_A": int(a.vector and a.along_depth),
        "VECTOR_B": int(b.vector),
    }
    quads = -(-product.columns // QUAD)
    workgroups = -(-quads // shape.columns) * product.matrices
    divided = split_sum(product, caps, -(-product.depth // (QUAD * shape.lanes)), shape.parts)
    return parts_and_merge(
        "gemm_vector_staged", product, caps, constants, workgroups, divided, tiles=False, variant={"STAGED": 1}
    )


def _strides(tensor: TensorDesc, transform: MatrixTransform = MatrixTransform.NONE) -> Strides:
    outer, inner, row, column = (0,) * (4 - tensor.dimension_count) + tensor.effective_strides
    return (outer, inner, column, row) if transform == MatrixTransform.TRANSPOSE else (outer, inner, row, column)


def _product(desc: ops.Gemm | FormatGemm | GemmGate) -> Product:
    a, b, y = desc.tensor("a_tensor"), desc.tensor("b_tensor"), desc.tensor("output_tensor")
    outer, inner, row_count, column_count = (1,) * (4 - y.dimension_count) + y.sizes
    c, alpha, beta, activation = (
        (None, 1.0, 1.0, None)
        if isinstance(desc, GemmGate)
        else (desc.c_tensor, desc.alpha, desc.beta, _own_activation(desc))
    )
    addend = desc.addend_tensor if isinstance(desc, GemmAdd) else None
    return Product(
        data_type=a.data_type,
        batch=(outer, inner),
        rows=row_count,
        columns=column_count,
        depth=a.sizes[-2] if desc.trans_a == MatrixTransform.TRANSPOSE else a.sizes[-1],
        a=input_range(0),
        b=input_range(1),
        c=input_range(0 if c is None else 2),
        y=output_range(),
        a_strides=_strides(a, desc.trans_a),
        b_strides=_strides(b, desc.trans_b),
        c_strides=(0, 0, 0, 0) if c is None else _strides(c),
        y_strides=_strides(y),
        has_c=c is not None,
        alpha=alpha,
        beta=beta,
        activation=fused(activation),
        addend=None if addend is None else input_range(3),
        addend_strides=(0, 0, 0, 0) if addend is None else _strides(addend),
        result_type=None if y.data_type is a.data_type else y.data_type,
        c_of_bits=c is not None and c.data_type is not y.data_type,
        is_kept=b.owned_by_dml,
    )


def _is_softmax(activation: OperatorDesc | None) -> bool:
    return isinstance(activation, ops.ActivationSoftmax | ops.ActivationSoftmax1)


def _own_activation(desc: ops.Gemm | FormatGemm) -> OperatorDesc | None:
    """The activation that is the end of a product; a softmax is a dispatch of its own."""
    activation = None if isinstance(desc, FormatGemm) else desc.fused_activation
    return None if _is_softmax(activation) else activation


def _problem(desc: ops.Gemm | FormatGemm | GemmGate) -> GemmProblem:
    product = _product(desc)
    sizes = product.rows, product.columns, product.depth, product.matrices
    return GemmProblem(
        *sizes,
        is_half=product.data_type is TensorDataType.FLOAT16,
        scales_clip=product.activation.id == OperatorType.ELEMENT_WISE_CLIP1,
        is_bfloat16=product.is_bfloat16,
        starts_anywhere=element_bits(product.data_type) == 16 and _columns_start_anywhere(product),
        may_stream=product.data_type is product.results is TensorDataType.FLOAT16 and _may_stream(product.normalized()),
        is_kept=product.is_kept,
    )


def _may_stream(product: Product) -> bool:
    """Whether the second factor is the operator's, and the same for all matrices, and rows of the first are whole words."""
    if product.b.slot != 1 or any(product.b_strides[:2]) or product.depth % WORD != 0 or product.a_strides[3] != 1:
        return False
    return whole_words(product.data_type, product.a, product.a_strides, 3, product.depth, along_depth=True)


def _columns_start_anywhere(product: Product) -> bool:
    """Whether columns of the second factor are neighbours, and not whole quads of them."""
    b = factor_access(product.data_type, product.b, product.b_strides, 3)
    return not b.along_depth and not b.vector and product.b_strides[3] == 1


def _schedule(
    build: Callable[[Product, Capabilities], Plan], round_depth: int = 1
) -> Callable[[ops.Gemm | FormatGemm, GemmProblem, Capabilities], Plan]:
    """A rule's schedule; a CPU's invocation covers at least ``round_depth`` of a sum in a round of its loop."""

    def schedule(desc: ops.Gemm | FormatGemm, problem: GemmProblem, caps: Capabilities) -> Plan:
        check_rounds(-(-problem.depth // round_depth), caps, desc.dml_name)
        plan = build(_product(desc), caps)
        if isinstance(desc, FormatGemm) or not _is_softmax(desc.fused_activation):
            return plan
        softmax = over_last_dimension(desc.tensor("output_tensor"), output_range(), caps)
        return dataclasses.replace(plan, dispatches=plan.dispatches + softmax)

    return schedule


register(
    ops.Gemm,
    GemmAdd,
    FormatGemm,
    problem=_problem,
    rules=GEMM,
    schedules={
        "vector": _schedule(vector, QUAD),
        "streamed": _schedule(streamed),
        "cooperative": _schedule(cooperative),
        "staged": _schedule(staged, QUAD),
        "split": _schedule(split, CPU_TILES.depth),
        "tiled": _schedule(tiled, CPU_TILES.depth),
        "rows": _schedule(rows, QUAD),
        "naive": _schedule(naive),
    },
    limitations=(LOOP_ROUNDS,),
)


def _gated_vector(desc: GemmGate, problem: GemmProblem, caps: Capabilities) -> Plan:
    check_rounds(-(-problem.depth // QUAD), caps, desc.dml_name)
    return _vector(_product(desc), caps, desc.gate)


def _apart(desc: GemmGate, problem: GemmProblem, caps: Capabilities) -> Plan:
    y = desc.tensor("output_tensor")
    whole = TensorDesc(y.data_type, (*y.sizes[:-1], 2 * y.sizes[-1]))
    place = Range(Source.TEMPORARY, 0, 0, whole.total_tensor_size_in_bytes)
    if place.nbytes > caps.storage_buffer_bytes:
        raise STORAGE_BINDING.error(f"{place.nbytes} bytes of a product before its gate", desc.dml_name)
    fields = {name: getattr(desc, name) for name in ("a_tensor", "b_tensor", "trans_a", "trans_b")}
    product = chosen_plan(ops.Gemm(**fields, output_tensor=whole), caps, desc.dml_name)
    taken = aligned(place.nbytes)
    inputs = (input_range(0), input_range(1), None)
    launches = placed(product, inputs=inputs, outputs=(place,), temporary=taken, keeps=True)
    behind = gate_launches(desc.gate, y, place, output_range(), caps, taken)
    return Plan(
        (*launches, *behind), taken + product.temporary_bytes, product.persistent_bytes, initialize=product.initialize
    )


register(
    GemmGate,
    problem=_problem,
    rules=GEMM_GATE,
    schedules={"vector": _gated_vector, "apart": _apart},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)


_NORM_SLOTS = NormSlots(addend=3, scale=4)
_LEAST_OF_NORMALIZED = 128
"""Invocations of a workgroup, at least: its quads find a row in the processor's cache together. On an H100 a token of the 1B
shape takes 1 % less with 128 than with 64, of two sequences 5 %."""


def _normalized_problem(desc: NormalizedGemm) -> NormalizedGemmProblem:
    norm = desc.normalization
    return NormalizedGemmProblem(_problem(desc.product), are_norm_rows_packed(norm), norm_row_bytes(norm))


def _joined(desc: NormalizedGemm, problem: NormalizedGemmProblem, caps: Capabilities) -> Plan:
    check_rounds(-(-problem.product.depth // QUAD), caps, desc.dml_name)
    norm, product = desc.normalization, _product(desc.product).trimmed()
    cover = _vector_cover(product, caps, desc.gate, _LEAST_OF_NORMALIZED)
    dispatch = product_dispatch(
        "gemm_vector_normalized",
        product,
        {**cover.constants, "VECTOR_Y": int(output_quads(product)), "PARTIAL": 0, **norm_constants(norm)},
        linear_grid(cover.workgroups, caps),
        {"U": norm.tensor("input_tensor").data_type.name, "NORMALIZED": 1},
        0,
        norm_buffers(norm, _NORM_SLOTS),
        matrices=1,
        splits=1,
        partial_pitch=0,
        split_rounds=cover.rounds,
        epsilon=desc.epsilon,
        zero=0,
    )
    return Plan((dispatch,))


def _normalized_apart(desc: NormalizedGemm, problem: NormalizedGemmProblem, caps: Capabilities) -> Plan:
    product = chosen_plan(desc.product, caps, desc.dml_name)
    return norm_apart(desc.normalization, product, _NORM_SLOTS, caps, desc.dml_name)


register(
    NormalizedGemm,
    problem=_normalized_problem,
    rules=NORMALIZED_GEMM,
    schedules={"joined": _joined, "apart": _normalized_apart},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)


def _normalization_problem(desc: GemmNormalization) -> GemmNormalizationProblem:
    product = _product(desc.product).normalized()
    tensors = (desc.output_tensor, desc.product_tensor, desc.norm_scale_tensor, desc.norm_bias_tensor)
    return GemmNormalizationProblem(
        _problem(desc.product),
        b_along_depth=factor_access(product.data_type, product.b, product.b_strides, 3).along_depth,
        packed=all(own is None or own.effective_strides == packed_strides(own.sizes) for own in tensors),
    )


def _merged(desc: GemmNormalization, problem: GemmNormalizationProblem, caps: Capabilities) -> Plan:
    scale, bias = desc.norm_scale_tensor, desc.norm_bias_tensor
    norm = RowNormalization(
        scale=None if scale is None else input_range(4),
        bias=None if bias is None else input_range(5),
        y=output_range(0),
        use_mean=desc.use_mean,
        epsilon=desc.epsilon,
        keeps_product=desc.product_tensor is not None,
    )
    y = norm.y if desc.product_tensor is None else output_range(1)
    product = dataclasses.replace(_product(desc.product), y=y, normalization=norm)
    check_rounds(-(-problem.product.depth // CPU_TILES.depth), caps, desc.dml_name)
    by_rule = {"streamed": streamed, "cooperative": cooperative}
    return by_rule.get(rule_in_parts(problem.product, caps), split)(product, caps)


def _normalization_apart(desc: GemmNormalization, problem: GemmNormalizationProblem, caps: Capabilities) -> Plan:
    first, second = (chosen_plan(part, caps, desc.dml_name) for part in (desc.product, desc.normalization))
    taken = aligned(first.temporary_bytes)
    made = output_range(1)
    if desc.product_tensor is None:
        made = Range(Source.TEMPORARY, 0, taken, desc.product.tensor("output_tensor").total_tensor_size_in_bytes)
        taken += aligned(made.nbytes)
    launches = placed(first, inputs=tuple(map(input_range, range(4))), outputs=(made,), keeps=True)
    behind = placed(second, inputs=(made, input_range(4), input_range(5)), outputs=(output_range(),), temporary=taken)
    return Plan((*launches, *behind), taken + second.temporary_bytes, first.persistent_bytes, initialize=first.initialize)


register(
    GemmNormalization,
    problem=_normalization_problem,
    rules=GEMM_NORMALIZATION,
    schedules={"merged": _merged, "apart": _normalization_apart},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)


def _double(desc: ops.Gemm, problem: GemmProblem, caps: Capabilities) -> Plan:
    product = _product(desc).normalized()
    check_rounds(-(-product.depth // DOUBLE_DEPTH), caps, desc.dml_name)
    tile = DOUBLE_EDGE * DOUBLE_BLOCK
    row_tiles, column_tiles = -(-product.rows // tile), -(-product.columns // tile)
    count = product.matrices * row_tiles * column_tiles
    dispatch = make_dispatch(
        "gemm_double",
        (product.a, product.b, product.c, product.y),
        linear_grid(count, caps),
        variant={"T": "FLOAT64"},
        constants={"LOCAL_SIZE_X": DOUBLE_EDGE**2, "HAS_C": int(product.has_c)},
        count=count,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        alpha=scalar_words(product.alpha, TensorDataType.FLOAT64),
        beta=scalar_words(product.beta, TensorDataType.FLOAT64),
        **_shape_params(product),
    )
    return Plan((dispatch,))


register(
    ops.Gemm,
    when=lambda desc: desc.tensor("a_tensor").data_type is TensorDataType.FLOAT64,
    problem=_problem,
    rules=GEMM_DOUBLE,
    schedules={"double": _double},
    limitations=(LOOP_ROUNDS,),
)
