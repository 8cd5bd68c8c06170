"""Plans for products with weights in blocks, and for rows of such tables."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.block_quantized.manifest import CHUNK
from dmlvk.kernels.block_quantized.packed import PackedWeights, with_packed
from dmlvk.kernels.block_quantized.rules import (
    BLOCK_GATHER,
    BLOCK_GEMM,
    MOST_ROWS,
    BlockGatherProblem,
    BlockProblem,
    matrix_parts,
)
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import cooperative_constants, whole_words
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.plan import Plan, Range, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import WORD_BITS, check_rounds, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.matmul.lowering import Product, factor_access, output_quads, parts_and_merge, product_dispatch, split_sum
from dmlvk.kernels.matmul.tiles import CPU_TILES, TiledProduct, fastest_tiles
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.spec.tensor import TensorDesc, element_bits

_BIAS, _ADDEND = 4, 5
"""Slots."""
_GROUPS = CHUNK // 8


def _two(tensor: TensorDesc) -> tuple[int, int]:
    """The strides of rows and of columns."""
    row, column = tensor.effective_strides
    return row, column


def _problem(desc: BlockQuantizedGemm) -> BlockProblem:
    rows, columns = desc.tensor("output_tensor").sizes
    x = desc.tensor("input_tensor")
    own = x.data_type, input_range(0), (0, 0, *_two(x)), 3, desc.depth
    return BlockProblem(
        rows,
        columns,
        desc.depth,
        nbytes=PackedWeights.of(desc).nbytes,
        is_half=x.data_type is TensorDataType.FLOAT16,
        whole=whole_words(*own, along_depth=True),
    )


def _product(desc: BlockQuantizedGemm, weights: Range) -> Product:
    x, y, bias, addend = desc.tensor("input_tensor"), desc.tensor("output_tensor"), desc.bias_tensor, desc.addend_tensor
    rows, columns = y.sizes
    return Product(
        data_type=x.data_type,
        batch=(1, 1),
        rows=rows,
        columns=columns,
        depth=desc.depth,
        a=input_range(0),
        b=weights,
        c=input_range(0 if bias is None else _BIAS),
        y=output_range(),
        a_strides=(0, 0, *_two(x)),
        b_strides=(0, 0, 0, 0),
        c_strides=(0, 0, 0, 0 if bias is None else bias.effective_strides[0]),
        y_strides=(0, 0, *_two(y)),
        has_c=bias is not None,
        alpha=1.0,
        beta=1.0,
        activation=fused(None),
        addend=None if addend is None else input_range(_ADDEND),
        addend_strides=(0, 0, 0, 0) if addend is None else (0, 0, *_two(addend)),
    ).trimmed()


def _whole_rows(product: Product) -> bool:
    """Whether rows of the input start on 16 bytes, and have whole groups of 8 numbers."""
    elements = WORD_BITS // element_bits(product.data_type)
    return product.a_strides[3] == 1 and product.a_strides[2] % elements == 0 and product.depth % 8 == 0


_MOST_CPU_ROWS = 4
"""The most rows that an invocation sums there: a CPU's driver takes seconds to compile the unrolled loops of more."""
_LEAST_LANES = 8
"""Lanes that share columns: as many read 128 bytes side by side."""
_TEAMS = 4
"""Teams of a workgroup, at least: near lanes of so many read the same of the input."""
_WAVE = 0.5
"""Share of a wave that keeps enough loads in flight."""


def _vector(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def build(weights: PackedWeights, home: Range, taken: int) -> Plan:
        product = _product(desc, home)
        rows = min(problem.rows, _MOST_CPU_ROWS if caps.is_cpu else MOST_ROWS)
        row_groups = -(-problem.rows // rows)
        quads = -(-problem.columns // 4)
        unroll = 1 if caps.is_cpu else 2
        near = min(_LEAST_LANES, caps.least_subgroup)
        most = min(128, most_invocations(caps))
        useful = power_of_two(-(-weights.chunks // unroll))
        to_fill = 1 if caps.is_cpu else caps.model.invocations(_WAVE) // (quads * row_groups)
        wanted = power_of_two(max(to_fill, 1))
        lanes = max(min(max(wanted, _LEAST_LANES), useful, most), near)
        local = 32 if caps.is_cpu else min(max(128, _TEAMS * lanes), most_invocations(caps))
        check_rounds(-(-weights.chunks // (lanes * unroll)) * (1 + _GROUPS), caps, desc.dml_name)
        constants = {
            "LOCAL_SIZE_X": local,
            **weights.constants,
            "ROWS": rows,
            "LANES": lanes,
            "LANES_NEAR": near,
            "UNROLL": unroll,
            "VECTOR_A": int(_whole_rows(product)),
            "VECTOR_Y": int(output_quads(product)),
        }
        grid = linear_grid(row_groups * -(-quads // (local // lanes)), caps)
        return Plan((product_dispatch("block_vector", product, constants, grid, {}, 0, **weights.params),))

    return with_packed(desc, caps, build)


def _cooperative(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def build(weights: PackedWeights, home: Range, taken: int) -> Plan:
        product = _product(desc, home)
        matrix = cooperative_matrix(caps, "float16", "float32")
        assert matrix is not None, "the rule asks for one"
        parts = matrix_parts(problem.rows, problem.columns, problem.depth, caps)
        return parts_and_merge(
            "block_cooperative",
            product,
            caps,
            {**cooperative_constants(parts.tile, matrix, caps), **weights.constants, "A_ALONG_K": 1, "B_ALONG_K": 1},
            parts.workgroups,
            split_sum(product, caps, -(-problem.depth // parts.tile.depth), parts.parts),
            tiles=False,
            subgroup_size=caps.subgroup_size,
            taken=taken,
            more=weights.params,
        )

    return with_packed(desc, caps, build)


_CPU_TILES = CPU_TILES._replace(depth=8)
"""As small as whole groups of eight codes allow."""


def _tiled(desc: BlockQuantizedGemm, problem: BlockProblem, caps: Capabilities) -> Plan:
    def build(weights: PackedWeights, home: Range, taken: int) -> Plan:
        product = _product(desc, home)
        a = factor_access(product.data_type, product.a, product.a_strides, 2)
        vector = a.vector and a.along_depth
        sizes = TiledProduct(problem.rows, problem.columns, problem.depth, 1, vector, True)
        tiles = _CPU_TILES if caps.is_cpu else fastest_tiles(sizes, caps, split=False)
        check_rounds(-(-problem.depth // tiles.depth), caps, desc.dml_name)
        return parts_and_merge(
            "block_tiled",
            product,
            caps,
            {**tiles.constants, **weights.constants, "VECTOR_A": int(vector)},
            tiles.shape.tiles(problem.rows, problem.columns),
            split_sum(product, caps, -(-problem.depth // tiles.depth), 1),
            tiles=False,
            taken=taken,
            more=weights.params,
        )

    return with_packed(desc, caps, build)


register(
    BlockQuantizedGemm,
    problem=_problem,
    rules=BLOCK_GEMM,
    schedules={"vector": _vector, "cooperative": _cooperative, "tiled": _tiled},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)


def _gather_problem(desc: BlockQuantizedGather) -> BlockGatherProblem:
    count, depth = desc.tensor("output_tensor").sizes
    return BlockGatherProblem(count, depth)


def _eights(desc: BlockQuantizedGather, problem: BlockGatherProblem, caps: Capabilities) -> Plan:
    indices, y = desc.tensor("indices_tensor"), desc.tensor("output_tensor")

    def build(weights: PackedWeights, home: Range, taken: int) -> Plan:
        local = min(128, most_invocations(caps))
        count = problem.count * -(-problem.depth // 8)
        dispatch = make_dispatch(
            "block_gather",
            (home, input_range(0), output_range()),
            linear_grid(-(-count // local), caps),
            variant={"T": y.data_type.name},
            constants={
                "LOCAL_SIZE_X": local,
                **weights.constants,
                "INDEX_WORDS": element_bits(indices.data_type) // 32,
                "INDEX_SIGNED": indices.data_type is not TensorDataType.UINT32,
            },
            count=problem.count,
            columns=weights.columns,
            depth=weights.depth,
            index_stride=indices.effective_strides[0],
            y_strides=y.effective_strides,
            **weights.params,
        )
        return Plan((dispatch,))

    return with_packed(desc, caps, build)


register(BlockQuantizedGather, problem=_gather_problem, rules=BLOCK_GATHER, schedules={"eights": _eights})
