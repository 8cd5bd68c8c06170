"""Plans for products with weights in blocks, and for rows of such tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.block_quantized.manifest import CHUNK
from dmlvk.kernels.block_quantized.packed import PackedPart, PackedWeights, with_packed
from dmlvk.kernels.block_quantized.rules import (
    BLOCK_GATHER,
    BLOCK_GEMM,
    MOST_ROWS,
    NORMALIZED_BLOCK_GEMM,
    STRIP_DEPTH,
    BlockGatherProblem,
    BlockProblem,
    NormalizedProblem,
    dot_shape,
    matrix_parts,
    strip_parts,
)
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import cooperative_constants, whole_words
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.gate import gate_launches
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Launch, Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import WORD_BITS, check_rounds, linear_grid, most_invocations, part_starts, power_of_two
from dmlvk.kernels.matmul.lowering import (
    Product,
    Strides,
    factor_access,
    output_quads,
    parts_and_merge,
    product_dispatch,
    split_sum,
)
from dmlvk.kernels.matmul.tiles import CPU_TILES, TiledProduct, fastest_tiles, whole_rounds
from dmlvk.kernels.root_mean_square.lowering import (
    NormSlots,
    are_norm_rows_packed,
    norm_apart,
    norm_buffers,
    norm_constants,
    norm_row_bytes,
)
from dmlvk.spec.block_formats import BlockLayout, OffsetKind
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm, NormalizedBlockGemm, layout_of
from dmlvk.spec.ops.elementwise import Cast
from dmlvk.spec.ops.matmul import GemmAdd
from dmlvk.spec.tensor import TensorDesc, element_bits

_BIAS, _ADDEND = 4, 5
"""Slots."""
_WEIGHTS = frozenset({"weight_tensor", "scales_tensor", "zero_points_tensor"})
_ROWS_STEP = 8
"""Rows of which a part has a multiple, so that it starts on whole words where all rows do."""
_GROUPS = CHUNK // 8


def _two(tensor: TensorDesc) -> tuple[int, int]:
    """The strides of rows and of columns."""
    row, column = tensor.effective_strides
    return row, column


def _problem(desc: BlockQuantizedGemm) -> BlockProblem:
    rows, columns = desc.tensor("output_tensor").sizes[0], desc.tensor("weight_tensor").sizes[0]
    x = desc.tensor("input_tensor")
    own = x.data_type, input_range(0), (0, 0, *_two(x)), 3, desc.depth
    return BlockProblem(
        rows,
        columns,
        desc.depth,
        nbytes=PackedWeights.of(desc).nbytes,
        is_half=x.data_type is TensorDataType.FLOAT16,
        half_factors=desc.half_factors,
        whole=whole_words(*own, along_depth=True),
        totals=_totals(layout_of(desc)),
        quad_words=_quad_words(layout_of(desc)),
    )


def _totals(layout: BlockLayout) -> int:
    """The sums of a chunk's numbers that are multiplied with offsets."""
    return 0 if layout.offset is OffsetKind.NONE else max(CHUNK // layout.block, 1)


def _quad_words(layout: BlockLayout) -> int:
    """The numbers of 32 bits that four columns of a chunk are on their way to a product."""
    terms = max(CHUNK // layout.block, 1) * (1 if layout.offset is OffsetKind.NONE else 2)
    return 4 * (layout.bits * CHUNK // 32 + terms)


class _Span(NamedTuple):
    """Rows, or columns, of which a part of an operator has some: the first one and how many, or all."""

    first: int
    size: int
    all: bool


def _spans(starts: Sequence[int], length: int) -> list[_Span]:
    """Those that begin with some of a length, which all begins with 0."""
    each = starts[1] if len(starts) > 1 else length
    return [_Span(start, length - start if start == starts[-1] else each, len(starts) == 1) for start in starts]


def _bound(whole: Range, tensor: TensorDesc, rows: _Span, columns: _Span) -> Range:
    """The bytes of a part of a tensor {rows, columns}."""
    if rows.all and columns.all:
        return whole
    row, column = tensor.effective_strides
    first = (rows.first * row + columns.first * column) * element_bits(tensor.data_type) // 8
    part = TensorDesc(tensor.data_type, (rows.size, columns.size), tensor.effective_strides)
    return whole._replace(offset=whole.offset + first, nbytes=part.total_tensor_size_in_bytes)


def _product(
    desc: BlockQuantizedGemm, weights: Range, rows: _Span, columns: _Span, place: Range, output: TensorDesc
) -> Product:
    """A part of an operator's product.

    Args:
        desc: The operator.
        weights: The packed weights of the columns.
        rows, columns: The part.
        place, output: What it is written to: the bytes, and the tensor that they are a part of.
    """
    x, bias, addend = desc.tensor("input_tensor"), desc.bias_tensor, desc.addend_tensor
    c = input_range(0 if bias is None else _BIAS)
    if bias is not None:
        c = _bound(
            c, TensorDesc(bias.data_type, (1, *bias.sizes), (0, *bias.effective_strides)), _Span(0, 1, all=True), columns
        )
    return Product(
        data_type=x.data_type,
        batch=(1, 1),
        rows=rows.size,
        columns=columns.size,
        depth=desc.depth,
        a=_bound(input_range(0), x, rows, _Span(0, desc.depth, all=True)),
        b=weights,
        c=c,
        y=place,
        a_strides=(0, 0, *_two(x)),
        b_strides=(0, 0, 0, 0),
        c_strides=(0, 0, 0, 0 if bias is None else bias.effective_strides[0]),
        y_strides=(0, 0, *_two(output)),
        has_c=bias is not None,
        alpha=1.0,
        beta=1.0,
        activation=fused(None),
        addend=None if addend is None else _bound(input_range(_ADDEND), addend, rows, columns),
        addend_strides=(0, 0, 0, 0) if addend is None else (0, 0, *_two(addend)),
    ).trimmed()


def _row_spans(desc: BlockQuantizedGemm, caps: Capabilities) -> list[_Span]:
    """The parts of the rows of which bindings hold all tensors."""
    y = desc.tensor("output_tensor")
    tensors = [desc.tensor("input_tensor"), y, *filter(None, (desc.addend_tensor,))]
    each = max((own.effective_strides[0] or 1) * element_bits(own.data_type) // 8 for own in tensors)
    if desc.gate:
        each = max(each, 2 * y.sizes[1] * element_bits(y.data_type) // 8)
    most = max(caps.storage_buffer_bytes // each // _ROWS_STEP, 1) * _ROWS_STEP
    return _spans([0] if y.sizes[0] <= most else part_starts(y.sizes[0], most), y.sizes[0])


Multiply = Callable[[Product, PackedWeights, int], Plan]
"""The plan of a product, given the packed weights and the bytes of temporary memory that are taken."""


def _in_parts(desc: BlockQuantizedGemm, caps: Capabilities, multiply: Multiply, *, gates: bool = False) -> Plan:
    """The plan of an operator: its weights are packed before, and where bindings do not hold its tensors there is a product
    for each part of them.

    Args:
        desc: The operator.
        caps: The device.
        multiply: Makes the plan of a product.
        gates: Whether it goes through the gate, too. Else the product is written to temporary memory, where a chain of
            operators takes it from.
    """

    def build(parts: Sequence[PackedPart], taken: int) -> Plan:
        launches: list[Launch] = []
        temporary, y = taken, desc.tensor("output_tensor")
        apart = desc.gate and not (gates and len(parts) == 1)
        for rows in _row_spans(desc, caps):
            place, output, end = output_range(), y, taken
            if apart:
                output = TensorDesc(y.data_type, (rows.size, desc.tensor("weight_tensor").sizes[0]))
                place = Range(Source.TEMPORARY, 0, taken, output.total_tensor_size_in_bytes)
                end += aligned(place.nbytes)
            spans = _spans([part.first for part in parts], output.sizes[1])
            for part, columns in zip(parts, spans, strict=True):
                own = _bound(place, output, rows._replace(first=0) if apart else rows, columns)
                plan = multiply(_product(desc, part.home, rows, columns, own, output), part.weights, end)
                launches += plan.dispatches
                temporary = max(temporary, end, plan.temporary_bytes)
            if apart:
                gated = TensorDesc(y.data_type, (rows.size, y.sizes[1]), y.effective_strides)
                home = _bound(output_range(), y, rows, _Span(0, y.sizes[1], all=True))
                launches += gate_launches(desc.gate, gated, place, home, caps, end)
        return Plan(tuple(launches), temporary)

    return with_packed(desc, caps, build)


def _whole_rows(product: Product) -> bool:
    """Whether rows of the input start on 16 bytes, and have whole groups of 8 numbers."""
    elements = WORD_BITS // element_bits(product.data_type)
    return product.a_strides[3] == 1 and product.a_strides[2] % elements == 0 and product.depth % 8 == 0


_MOST_CPU_ROWS = 4
"""The most rows that an invocation sums there: a CPU's driver takes seconds to compile the unrolled loops of more."""
_LEAST_LANES = 8
"""Lanes that share columns: as many read 128 bytes side by side."""
_TEAMS, _INVOCATIONS = 4, 256
"""Teams and invocations of a workgroup, at least: all of them share what it has of the input in shared memory."""
_WAVE = 0.5
"""Share of a wave that keeps enough loads in flight."""


def _vector(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        rows = min(product.rows, _MOST_CPU_ROWS if caps.is_cpu else MOST_ROWS)
        row_groups = -(-product.rows // rows)
        quads = -(-product.columns // 4)
        gated = weights.columns != product.columns
        most = min(128, most_invocations(caps))
        useful = power_of_two(weights.chunks)
        to_fill = 1 if caps.is_cpu else caps.model.invocations(_WAVE) // (quads * row_groups * (1 + gated))
        wanted = power_of_two(max(to_fill, 1))
        lanes = max(min(max(wanted, _LEAST_LANES), useful, most), min(_LEAST_LANES, caps.least_subgroup))
        near = min(lanes, caps.least_subgroup)
        local = 32 if caps.is_cpu else min(max(_INVOCATIONS, _TEAMS * lanes), most_invocations(caps))
        check_rounds(-(-weights.chunks // lanes) * (1 + _GROUPS), caps, desc.dml_name)
        vector = _whole_rows(product)
        words = rows * weights.chunks * CHUNK * element_bits(product.data_type) // WORD_BITS
        sums = rows * (1 + gated) * (local // near if lanes > near else 1)
        fits = 16 * (words + sums) <= caps.shared_memory_bytes
        constants = {
            "LOCAL_SIZE_X": local,
            **weights.constants,
            **({"GATE": desc.gate} if gated else {}),
            "ROWS": rows,
            "LANES": lanes,
            "LANES_NEAR": near,
            "UNROLL": 1 if caps.is_cpu else 2,
            "STAGED": words if vector and fits and not caps.is_cpu else 0,
            "VECTOR_A": int(vector),
            "VECTOR_Y": int(output_quads(product)),
        }
        grid = linear_grid(row_groups * -(-quads // (local // lanes)), caps)
        return Plan((product_dispatch("block_vector", product, constants, grid, {}, 0, **weights.params),))

    # A launch costs a CPU little, and its driver takes long to compile another variant of this kernel.
    return _in_parts(desc, caps, multiply, gates=not caps.is_cpu)


class _Dot(NamedTuple):
    """A dispatch by dot products: its constants and its grid."""

    constants: dict[str, int]
    grid: tuple[int, int, int]


def _by_dot(
    desc: BlockQuantizedGemm, problem: BlockProblem, product: Product, weights: PackedWeights, caps: Capabilities
) -> _Dot:
    quads, gated = -(-product.columns // 4), weights.columns != product.columns
    shape = dot_shape(problem, product.rows, quads, 1 + gated, caps)
    check_rounds(-(-weights.chunks // shape.lanes), caps, desc.dml_name)
    constants = {
        "LOCAL_SIZE_X": shape.local,
        **weights.constants,
        **({"GATE": desc.gate} if gated else {}),
        "LANES": shape.lanes,
        "LANES_NEAR": min(shape.lanes, caps.least_subgroup),
        "STAGED": weights.chunks,
        "WEIGHTS_FIRST": int(shape.weights_first),
        "VECTOR_Y": int(output_quads(product)),
    }
    return _Dot(constants, linear_grid(product.rows * -(-quads // (shape.local // shape.lanes)), caps))


def _dot(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        constants, grid = _by_dot(desc, problem, product, weights, caps)
        return Plan((product_dispatch("block_dot", product, constants, grid, {"DOT": 1}, **weights.params),))

    return _in_parts(desc, caps, multiply, gates=not caps.is_cpu)


def _cooperative(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        matrix = cooperative_matrix(caps, "float16", "float32")
        assert matrix is not None, "the rule asks for one"
        product = product.with_addend_as_c()
        parts = matrix_parts(product.rows, product.columns, product.depth, caps)
        return parts_and_merge(
            "block_cooperative",
            product,
            caps,
            {**cooperative_constants(parts.tile, matrix, caps), **weights.constants, "A_ALONG_K": 1, "B_ALONG_K": 1},
            parts.workgroups,
            split_sum(product, caps, -(-product.depth // parts.tile.depth), parts.parts),
            tiles=False,
            may_add_nothing=True,
            subgroup_size=caps.subgroup_size,
            taken=taken,
            more=weights.params,
        )

    return _in_parts(desc, caps, multiply)


def _in_halves(product: Product, caps: Capabilities, name: str, taken: int) -> tuple[Product, tuple[Launch, ...], int]:
    """The product of rows that are rounded to FLOAT16 before, what rounds them, and the bytes that are taken then."""
    sizes = product.rows, product.depth
    rows, halves = TensorDesc(product.data_type, sizes, product.a_strides[2:]), TensorDesc(TensorDataType.FLOAT16, sizes)
    place = Range(Source.TEMPORARY, 0, taken, halves.total_tensor_size_in_bytes)
    end = taken + aligned(place.nbytes)
    plan = chosen_plan(Cast(input_tensor=rows, output_tensor=halves), caps, name)
    launches = placed(plan, inputs=(product.a,), outputs=(place,), temporary=end)
    halved = dataclasses.replace(product, a=place, a_strides=(0, 0, product.depth, 1))
    return halved, launches, end + plan.temporary_bytes


def _strips(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        product = product.with_addend_as_c()
        before: tuple[Launch, ...] = ()
        if product.data_type is not TensorDataType.FLOAT16:
            product, before, taken = _in_halves(product, caps, desc.dml_name, taken)
        strips = strip_parts(product.rows, product.columns, product.depth, caps)
        depth = strips.deep * STRIP_DEPTH
        plan = parts_and_merge(
            "block_strips",
            product,
            caps,
            {
                "LOCAL_SIZE_X": strips.deep * caps.subgroup_size,
                "DEEP": strips.deep,
                "TILE_M": strips.rows,
                "TILE_K": depth,
                "WHOLE_ROUNDS": int(whole_rounds(product.depth, depth)),
                "SUB_N": strips.columns,
                **weights.constants,
            },
            strips.workgroups,
            split_sum(product, caps, -(-product.depth // depth), strips.parts),
            tiles=False,
            may_add_nothing=True,
            subgroup_size=caps.subgroup_size,
            taken=taken,
            more=weights.params,
        )
        return Plan((*before, *plan.dispatches), max(taken, plan.temporary_bytes))

    return _in_parts(desc, caps, multiply)


def _unpacked(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        kind = product.data_type
        groups = -(-weights.depth // 8)
        numbers = TensorDesc(kind, (weights.columns, weights.depth), (8 * groups, 1))
        place = Range(Source.TEMPORARY, 0, taken, numbers.total_tensor_size_in_bytes)
        local = min(128, most_invocations(caps))
        unpack = make_dispatch(
            "block_unpack",
            (product.b, place),
            linear_grid(-(-weights.columns * groups // local), caps),
            variant={"T": kind.name},
            constants={"LOCAL_SIZE_X": local, **weights.constants},
            columns=weights.columns,
            depth=weights.depth,
            **weights.params,
        )

        def tensor(rows: int, columns: int, strides: Strides) -> TensorDesc:
            return TensorDesc(kind, (rows, columns), strides[2:])

        sizes = product.rows, product.columns
        gemm = GemmAdd(
            a_tensor=tensor(product.rows, product.depth, product.a_strides),
            b_tensor=numbers,
            c_tensor=tensor(*sizes, product.c_strides) if product.has_c else None,
            addend_tensor=None if product.addend is None else tensor(*sizes, product.addend_strides),
            output_tensor=tensor(*sizes, product.y_strides),
            trans_b=MatrixTransform.TRANSPOSE,
        )
        end = taken + aligned(place.nbytes)
        plan = chosen_plan(gemm, caps, desc.dml_name)
        inputs = product.a, place, product.c if product.has_c else None, product.addend
        launches = placed(plan, inputs=inputs, outputs=(product.y,), temporary=end)
        return Plan((unpack, *launches), end + plan.temporary_bytes)

    return _in_parts(desc, caps, multiply)


_CPU_TILES = CPU_TILES._replace(depth=8)
"""As small as whole groups of eight codes allow."""


def _tiled(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def multiply(product: Product, weights: PackedWeights, taken: int) -> Plan:
        a = factor_access(product.data_type, product.a, product.a_strides, 2)
        vector = a.vector and a.along_depth
        sizes = TiledProduct(product.rows, product.columns, product.depth, 1, vector, True)
        tiles = _CPU_TILES if caps.is_cpu else fastest_tiles(sizes, caps, split=False)
        check_rounds(-(-product.depth // tiles.depth), caps, desc.dml_name)
        return parts_and_merge(
            "block_tiled",
            product,
            caps,
            {
                **tiles.constants,
                **weights.constants,
                "WHOLE_ROUNDS": int(whole_rounds(product.depth, tiles.depth)),
                "VECTOR_A": int(vector),
            },
            tiles.shape.tiles(product.rows, product.columns),
            split_sum(product, caps, -(-product.depth // tiles.depth), 1),
            tiles=False,
            taken=taken,
            more=weights.params,
        )

    return _in_parts(desc, caps, multiply)


_SCHEDULES = {
    "unpacked": _unpacked,
    "strips": _strips,
    "cooperative": _cooperative,
    "dot": _dot,
    "tiled": _tiled,
    "vector": _vector,
}

register(
    BlockQuantizedGemm,
    problem=_problem,
    rules=BLOCK_GEMM,
    schedules=_SCHEDULES,
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
    any_size=frozenset({"input_tensor", *_WEIGHTS, "addend_tensor", "output_tensor"}),
)


def _normalized_problem(desc: NormalizedBlockGemm) -> NormalizedProblem:
    of_weights = (desc.weight_tensor, desc.scales_tensor, desc.zero_points_tensor)
    largest = max(tensor.total_tensor_size_in_bytes for tensor in of_weights if tensor is not None)
    return NormalizedProblem(
        product=_problem(desc.product),
        quads=-(-desc.tensor("output_tensor").sizes[1] // 4),
        halves=2 if desc.gate else 1,
        packed=are_norm_rows_packed(desc.normalization),
        row_bytes=norm_row_bytes(desc.normalization),
        bound=max(PackedWeights.of(desc).nbytes, largest),
    )


_NORM_SLOTS = NormSlots(addend=5, scale=6)


def _joined(desc: NormalizedBlockGemm, problem: NormalizedProblem, caps: Capabilities) -> Plan:
    inner, norm, y = desc.product, desc.normalization, desc.tensor("output_tensor")

    def build(parts: Sequence[PackedPart], taken: int) -> Plan:
        (part,) = parts
        rows, columns = (_Span(0, size, all=True) for size in y.sizes)
        product = _product(inner, part.home, rows, columns, output_range(), y)
        constants, grid = _by_dot(inner, problem.product, product, part.weights, caps)
        dispatch = product_dispatch(
            "block_dot_normalized",
            product,
            {**constants, **norm_constants(norm)},
            grid,
            {"U": norm.tensor("input_tensor").data_type.name, "NORMALIZED": 1, "DOT": 1},
            0,
            norm_buffers(norm, _NORM_SLOTS),
            **part.weights.params,
            epsilon=desc.epsilon,
            zero=0,
        )
        return Plan((dispatch,), taken)

    return with_packed(desc, caps, build)


def _apart(desc: NormalizedBlockGemm, problem: NormalizedProblem, caps: Capabilities) -> Plan:
    rule = choose(BLOCK_GEMM, problem.product, caps)
    product = _SCHEDULES[rule.name](desc.product, problem.product, caps)
    return norm_apart(desc.normalization, product, _NORM_SLOTS, caps, desc.dml_name)


register(
    NormalizedBlockGemm,
    problem=_normalized_problem,
    rules=NORMALIZED_BLOCK_GEMM,
    schedules={"joined": _joined, "apart": _apart},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
    any_size=_WEIGHTS,
)


def _gather_problem(desc: BlockQuantizedGather) -> BlockGatherProblem:
    count, depth = desc.tensor("output_tensor").sizes
    return BlockGatherProblem(count, depth)


def _eights(desc: BlockQuantizedGather, problem: BlockGatherProblem, caps: Capabilities) -> Plan:
    indices, y = desc.tensor("indices_tensor"), desc.tensor("output_tensor")
    local = min(128, most_invocations(caps))
    each = max((y.effective_strides[0] or 1) * element_bits(y.data_type), indices.effective_strides[0] * 64) // 8
    most = max(caps.storage_buffer_bytes // each // _ROWS_STEP, 1) * _ROWS_STEP

    def build(parts: Sequence[PackedPart], taken: int) -> Plan:
        starts = [0] if problem.count <= most else part_starts(problem.count, most)
        return Plan(tuple(launch(part, rows) for rows in _spans(starts, problem.count) for part in parts))

    def launch(part: PackedPart, rows: _Span) -> Launch:
        weights, one = part.weights, _Span(0, 1, all=True)
        column = TensorDesc(indices.data_type, (problem.count, 1), (*indices.effective_strides, 0))
        return make_dispatch(
            "block_gather",
            (
                part.home,
                _bound(input_range(0), column, rows, one),
                _bound(output_range(), y, rows, one._replace(size=problem.depth)),
            ),
            linear_grid(-(-(rows.size * -(-problem.depth // 8)) // local), caps),
            variant={"T": y.data_type.name},
            constants={
                "LOCAL_SIZE_X": local,
                **weights.constants,
                "INDEX_WORDS": element_bits(indices.data_type) // 32,
                "INDEX_SIGNED": indices.data_type is not TensorDataType.UINT32,
            },
            count=rows.size,
            columns=weights.columns,
            first=part.first,
            rows=desc.tensor("weight_tensor").sizes[0],
            depth=weights.depth,
            index_stride=indices.effective_strides[0],
            y_strides=y.effective_strides,
            **weights.params,
        )

    return with_packed(desc, caps, build)


register(
    BlockQuantizedGather,
    problem=_gather_problem,
    rules=BLOCK_GATHER,
    schedules={"eights": _eights},
    any_size=frozenset({"indices_tensor", *_WEIGHTS, "output_tensor"}),
)
