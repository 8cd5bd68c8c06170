"""Cases of ``ops.block_quantized``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm, NormalizedBlockGemm
from dmlvk.verify.cases.model import Array, Case, Domain, OperatorCases, Tolerance, any_bits, indices_around

_WITH_MINIMUM = (BlockFormat.Q4_1, BlockFormat.Q5_1, BlockFormat.Q4_K, BlockFormat.Q5_K)


def _file(format_: BlockFormat) -> Domain:
    """Rows of a format's bytes: random ones, whose FLOAT16 are ordinary numbers."""
    layout = format_.layout
    first = layout.factors if layout.scale.grouped else layout.scales
    halves = [first, first + 2] if format_ in _WITH_MINIMUM else [first]

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        groups = rng.integers(0, 256, (sizes[0], sizes[1] // layout.nbytes, layout.nbytes), dtype=np.uint8)
        for place in halves:
            numbers = (rng.standard_normal((*groups.shape[:-1], 1)) / 64).astype(np.float16)
            groups[..., place : place + 2] = numbers.view(np.uint8)
        return groups.reshape(sizes)

    return domain


def _scales(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
    """Small numbers, of UINT16 as BFLOAT16's bits."""
    numbers = (rng.standard_normal(sizes) / 8).astype(np.float32)
    if data_type is T.UINT16:
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(np.float16 if data_type is T.FLOAT16 else np.float32)


def _weights(
    format_: BlockFormat, columns: int, depth: int, block: int, scale: T, points: str, *, signed: bool
) -> tuple[dict[str, tuple[int, ...]], dict[str, T], dict[str, Domain]]:
    """Sizes, types and values of the weights; zero points are "codes", "real" or absent."""
    codes = T.INT8 if signed else T.UINT8
    if not format_.is_apart:
        of_file: dict[str, tuple[int, ...]] = {"weight_tensor": (columns, format_.row_bytes(depth))}
        return of_file, {"weight_tensor": codes}, {"weight_tensor": _file(format_)}
    bits, blocks = format_.layout.bits, -(-depth // block)
    sizes: dict[str, tuple[int, ...]] = {
        "weight_tensor": (columns, blocks * block * bits // 8),
        "scales_tensor": (columns, blocks),
    }
    types, domains = {"weight_tensor": codes, "scales_tensor": scale}, dict[str, Domain]()
    domains |= {"weight_tensor": any_bits, "scales_tensor": _scales}
    if points:
        is_real = points == "real"
        sizes["zero_points_tensor"] = (columns, blocks if is_real else -(-blocks * bits // 8))
        types["zero_points_tensor"] = scale if is_real else codes
        domains["zero_points_tensor"] = _scales if is_real else any_bits
    return sizes, types, domains


def _product(
    name: str,
    format_: BlockFormat,
    rows: int,
    depth: int,
    columns: int,
    *,
    block: int = 0,
    scale: T = T.FLOAT16,
    points: str = "",
    signed: bool = False,
    gate: Gate = Gate.NONE,
    plain: bool = False,
    quick: bool = False,
) -> Case:
    """``plain``: without a bias and something added."""
    weights, types, domains = _weights(format_, columns, depth, block, scale, points, signed=signed)
    inputs = {"input_tensor": (rows, depth), **weights}
    if not plain:
        inputs["bias_tensor"] = (columns,)
    if not plain and gate is Gate.NONE:
        inputs["addend_tensor"] = (rows, columns)
    attributes = {"format": format_, "block_size": block, "gate": gate}
    return Case(name, inputs, attributes, data_types=types, domains=domains, layouts=False, quick=quick)


def _normalized(
    name: str,
    format_: BlockFormat,
    rows: int,
    depth: int,
    columns: int,
    *,
    block: int = 0,
    points: str = "",
    gate: Gate = Gate.NONE,
    output: T | None = None,
    plain: bool = False,
    only: tuple[T, ...] = (),
    quick: bool = False,
) -> Case:
    """``plain``: without a bias and something added before; ``output``: the type of the output, and of what is added."""
    weights, types, domains = _weights(format_, columns, depth, block, T.FLOAT16, points, signed=False)
    width = columns if gate is Gate.NONE else columns // 2
    inputs = {"input_tensor": (rows, depth), **weights, "norm_scale_tensor": (depth,)}
    outputs = {"output_tensor": (rows, width)}
    if not plain:
        inputs |= {"bias_tensor": (columns,), "norm_addend_tensor": (rows, depth)}
        outputs["sum_tensor"] = (rows, depth)
    if output is not None:
        types |= dict.fromkeys(("bias_tensor", "norm_addend_tensor", "output_tensor"), output)
    attributes = {"epsilon": 1e-5, "format": format_, "block_size": block, "gate": gate}
    return Case(name, inputs, attributes, outputs, types, domains, layouts=False, only=only, quick=quick)


def _rows(
    name: str,
    format_: BlockFormat,
    table: int,
    depth: int,
    *,
    block: int = 0,
    scale: T = T.FLOAT16,
    points: str = "",
    signed: bool = False,
    indices: T = T.INT64,
    quick: bool = False,
) -> Case:
    weights, types, domains = _weights(format_, table, depth, block, scale, points, signed=signed)
    return Case(
        name,
        {"indices_tensor": (19,), **weights},
        {"format": format_, "block_size": block},
        {"output_tensor": (19, depth)},
        types | {"indices_tensor": indices},
        domains | {"indices_tensor": indices_around(table)},
        layouts=False,
        quick=quick,
    )


_APART_4, _APART_8 = BlockFormat.APART_4, BlockFormat.APART_8
_OF_FILES = tuple(format_ for format_ in BlockFormat if not format_.is_apart)
_FACTORS_OF_FLOAT16 = {T.FLOAT32: Tolerance(4096), T.FLOAT16: Tolerance(1)}

CASES = (
    OperatorCases(
        BlockQuantizedGemm,
        # At the magnitude of the summed terms: sums are float32, of at most 512 terms.
        {T.FLOAT32: Tolerance(8), T.FLOAT16: Tolerance(1)},
        (
            *(_product(format_.name, format_, 1, 512, 37, quick=format_ is BlockFormat.Q4_K) for format_ in _OF_FILES),
            _product("many rows", BlockFormat.Q4_K, 35, 512, 72, quick=True),
            _product("many rows of bytes", BlockFormat.Q8_0, 66, 96, 65),
            _product("half a group", BlockFormat.Q6_K, 3, 328, 9, plain=True),
            _product("a gate", BlockFormat.Q4_K, 3, 512, 48, gate=Gate.SILU),
            _product("another gate", _APART_4, 1, 304, 48, block=32, points="codes", gate=Gate.GELU, plain=True),
            _product("blocks of 16", _APART_4, 2, 75, 37, block=16, scale=T.FLOAT32, points="codes", quick=True),
            _product("signed codes", _APART_4, 1, 104, 37, block=32, points="codes", signed=True),
            _product("real zero points", _APART_4, 5, 300, 37, block=128, scale=T.UINT16, points="real"),
            _product("bytes", _APART_8, 1, 200, 37, block=64),
            _product("bytes and zero points", _APART_8, 9, 300, 6, block=256, scale=T.FLOAT32, points="codes"),
        ),
        # Matrices have factors of FLOAT16.
        rule_tolerance=dict.fromkeys(("cooperative", "strips"), _FACTORS_OF_FLOAT16),
    ),
    OperatorCases(
        NormalizedBlockGemm,
        # As of the product. What is normalized may be rounded to FLOAT16 in between, and digits of it are.
        {T.FLOAT32: Tolerance(8), T.FLOAT16: Tolerance(1)},
        (
            _normalized("Q4_0", BlockFormat.Q4_0, 1, 512, 37, quick=True),
            _normalized("rows of halves", BlockFormat.Q4_0, 3, 96, 40, output=T.FLOAT16, only=(T.FLOAT32,), quick=True),
            _normalized("a minimum", BlockFormat.Q4_K, 2, 512, 9, plain=True),
            _normalized("bytes", BlockFormat.Q8_0, 9, 64, 21),
            _normalized("a gate", BlockFormat.Q4_0, 2, 96, 48, gate=Gate.SILU, plain=True),
            _normalized("zero points", _APART_4, 1, 304, 37, block=32, points="codes"),
            _normalized("rows that are no whole words", _APART_4, 2, 75, 37, block=16),
        ),
    ),
    OperatorCases(
        BlockQuantizedGather,
        {},
        (
            *(_rows(format_.name, format_, 11, 512, quick=format_ is BlockFormat.Q4_K) for format_ in _OF_FILES),
            _rows("blocks of 16", _APART_4, 7, 75, block=16, scale=T.FLOAT32, points="codes", indices=T.INT32, quick=True),
            _rows("signed codes", _APART_4, 7, 104, block=32, points="codes", signed=True),
            _rows("real zero points", _APART_4, 7, 300, block=128, scale=T.UINT16, points="real"),
            _rows("bytes", _APART_8, 7, 200, block=64, indices=T.UINT32),
        ),
        data_types=(T.FLOAT32, T.FLOAT16),
    ),
)
