"""Matrix products."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import MatrixTransform, TensorDataType, TensorFlags
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import FormatGemm, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import Array
from dmlvk_bench.problems.data import ordinary
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Arrays, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "matmul"


_FEW_ROWS = 16
"""A product of no more of them is bound by one read of the other factor, so it has as many at every scale."""
_CHECKED_ROWS = 64
"""Rows of a product of BFLOAT16 that are compared, by the host."""


def _elements(sizes: Sizes) -> int:
    """The elements of the largest matrices, given batch, rows, depth and columns."""
    batch, rows, depth, columns = sizes
    return batch * max(rows * depth, depth * columns, rows * columns)


def _operations(sizes: Sizes) -> int:
    return 2 * math.prod(sizes)


def _product(
    scale: Scale,
    data_type: TensorDataType,
    rows: int,
    depth: int,
    columns: int,
    target: float,
    *,
    copy_target: float = 0.0,
    batch: int = 1,
    transposed: bool = False,
    kept: bool = False,
) -> Problem:
    """A product whose B is {columns, depth} where it is transposed. ``kept``: it is OWNED_BY_DML, so packed once."""

    def rival(torch: Any, a: Any, b: Any) -> Any:
        return a @ (b.transpose(-1, -2) if transposed else b)

    sizes = (batch, rows, depth, columns)
    free = [axis for axis, size in enumerate(sizes) if size > _FEW_ROWS]
    batch, rows, depth, columns = scale.fit(sizes, *free, elements=_elements, operations=_operations)
    leading = (batch,) * (batch > 1)
    matrices = (rows, depth), (columns, depth) if transposed else (depth, columns), (rows, columns)
    a, b, y = (TensorDesc(data_type, (*leading, *matrix)) for matrix in matrices)
    b = dataclasses.replace(b, flags=TensorFlags.OWNED_BY_DML if kept else TensorFlags.NONE)
    desc = dmlvk.Gemm(a_tensor=a, b_tensor=b, output_tensor=y, trans_b=MatrixTransform(int(transposed)))
    return Problem(
        f"GEMM{' B transposed' * transposed}{' B kept' * kept} depth {depth} {data_type.name} {'x'.join(map(str, y.sizes))}",
        desc,
        rival,
        target,
        copy_target=copy_target,
        bytes_moved=nbytes(a, b, y),
        operations=_operations((batch, rows, depth, columns)),
        tolerance=1e-3 if data_type == FLOAT16 else 1e-5,
    )


def _bits(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
    """The bits of normal numbers, cut to BFLOAT16."""
    return (ordinary(rng, sizes, FLOAT32).view(np.uint32) >> 16).astype(np.uint16)


def _numbers(bits: Array) -> Array:
    """The numbers of BFLOAT16's bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _off(inputs: Arrays, outputs: Arrays) -> float:
    """How far the first rows of a product of BFLOAT16 are from those of float32."""
    (a, b), (y,) = inputs, outputs
    expected = _numbers(a[:_CHECKED_ROWS]) @ _numbers(b)
    return float(np.abs(_numbers(y[:_CHECKED_ROWS]) - expected).max() / np.abs(expected).max())


def _of_bits(scale: Scale, rows: int, depth: int, columns: int, target: float, *, copy_target: float = 0.0) -> Problem:
    """A product of BFLOAT16, whose tensors hold bits."""

    def rival(torch: Any, a: Any, b: Any) -> Any:
        return a.view(torch.bfloat16) @ b.view(torch.bfloat16)

    sizes = (1, rows, depth, columns)
    free = [axis for axis, size in enumerate(sizes) if size > _FEW_ROWS]
    _, rows, depth, columns = scale.fit(sizes, *free, elements=_elements, operations=_operations)
    a, b, y = (TensorDesc(TensorDataType.UINT16, matrix) for matrix in ((rows, depth), (depth, columns), (rows, columns)))
    return Problem(
        f"GEMM of bits depth {depth} BFLOAT16 {rows}x{columns}",
        FormatGemm(a_tensor=a, b_tensor=b, output_tensor=y),
        rival,
        target,
        copy_target=copy_target,
        bytes_moved=nbytes(a, b, y),
        operations=_operations((1, rows, depth, columns)),
        domains={"": _bits},
        tolerance=2**-8,
        check=_off,
    )


def _gated(scale: Scale, rows: int, depth: int, columns: int) -> Problem:
    """What a decoder's layer feeds forward: the SiLU of half of the columns times the other half."""

    def rival(torch: Any, a: Any, b: Any) -> Any:
        gate, other = (a @ b.T).chunk(2, -1)
        return torch.nn.functional.silu(gate) * other

    sizes = (1, rows, depth, columns)
    free = [axis for axis, size in enumerate(sizes) if size > _FEW_ROWS]
    _, rows, depth, columns = scale.fit(sizes, *free, elements=_elements, operations=_operations, least=64)
    columns = -(-columns // 16) * 16
    a, b, y = (TensorDesc(FLOAT16, matrix) for matrix in ((rows, depth), (columns, depth), (rows, columns // 2)))
    return Problem(
        f"GEMM with a gate depth {depth} FLOAT16 {rows}x{columns}",
        GemmGate(a_tensor=a, b_tensor=b, output_tensor=y, trans_b=MatrixTransform.TRANSPOSE, gate=Gate.SILU),
        rival,
        0.0,
        bytes_moved=nbytes(a, b, y),
        copy_target=0.7 if rows <= _FEW_ROWS else 0.0,
        operations=_operations((1, rows, depth, columns)),
        tolerance=2e-3,
    )


def _normalized(scale: Scale, rows: int, depth: int, columns: int) -> Problem:
    """What a decoder's layer begins with: rows divided by their root mean square, and products of them."""
    epsilon = 1e-5

    def rival(torch: Any, x: Any, b: Any, norm_scale: Any) -> Any:
        wide = x.float()
        divided = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon)
        return (divided * norm_scale.float()).to(x.dtype) @ b.T

    sizes = (1, rows, depth, columns)
    free = [axis for axis, size in enumerate(sizes) if size > _FEW_ROWS]
    _, rows, depth, columns = scale.fit(sizes, *free, elements=_elements, operations=_operations, least=64)
    x, b, y = (TensorDesc(FLOAT16, matrix) for matrix in ((rows, depth), (columns, depth), (rows, columns)))
    norm_scale = TensorDesc(FLOAT16, (depth,))
    desc = NormalizedGemm(
        input_tensor=x,
        b_tensor=b,
        norm_scale_tensor=norm_scale,
        output_tensor=y,
        epsilon=epsilon,
        trans_b=MatrixTransform.TRANSPOSE,
    )
    return Problem(
        f"GEMM of normalized rows depth {depth} FLOAT16 {rows}x{columns}",
        desc,
        rival,
        0.0,
        bytes_moved=nbytes(x, b, norm_scale, y),
        copy_target=0.7 if rows <= _FEW_ROWS else 0.0,
        operations=_operations((1, rows, depth, columns)),
        tolerance=2e-3,
    )


def _rows_normalized(scale: Scale, data_type: TensorDataType, rows: int, depth: int, columns: int) -> Problem:
    """What the halves of an encoder's layer end with: a product with its bias, what goes round it, and a normalization."""
    epsilon = 1e-5

    def rival(torch: Any, a: Any, b: Any, bias: Any, addend: Any, norm_scale: Any, norm_bias: Any) -> Any:
        total = torch.addmm(bias[0], a, b) + addend
        return torch.nn.functional.layer_norm(total, total.shape[-1:], norm_scale, norm_bias, epsilon)

    _, rows, depth, columns = scale.fit((1, rows, depth, columns), 1, 2, 3, elements=_elements, operations=_operations)
    a, b, y = (TensorDesc(data_type, matrix) for matrix in ((rows, depth), (depth, columns), (rows, columns)))
    bias, side = TensorDesc(data_type, (rows, columns), (0, 1)), TensorDesc(data_type, (columns,))
    desc = GemmNormalization(
        a_tensor=a,
        b_tensor=b,
        c_tensor=bias,
        addend_tensor=y,
        norm_scale_tensor=side,
        norm_bias_tensor=side,
        output_tensor=y,
        epsilon=epsilon,
    )
    return Problem(
        f"GEMM with normalized rows depth {depth} {data_type.name} {rows}x{columns}",
        desc,
        rival,
        1.0,
        bytes_moved=nbytes(a, b, bias, y, side, side, y),
        operations=_operations((1, rows, depth, columns)),
        tolerance=2e-3 if data_type is FLOAT16 else 1e-5,
    )


_ENDS = ((128, 768, 768), (128, 3072, 768), (197, 768, 768), (197, 3072, 768), (512, 1024, 1024), (512, 4096, 1024))
"""Rows, depth and columns of the products before the normalizations of BERT, ViT-B/16 and a larger encoder."""


_WIDE = ((128, 4096, 14336), (256, 14336, 4096), (512, 4096, 4096), (2048, 4096, 14336))
"""Rows, depth and columns of the products of a language model's layers with the words of a prompt."""


_KEPT = ((197, 768, 3072), (197, 3072, 768), (512, 768, 3072), (256, 1024, 4096), (1500, 512, 512), (1576, 768, 768))
"""Rows, depth and columns of products by weights: of ViT-B/16 with one picture and with eight, of other encoders."""


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    large = 16384
    found = [
        _product(scale, FLOAT32, 4096, 4096, 4096, 0.9),
        _product(scale, FLOAT32, 4096, 4096, 4096, 0.9, transposed=True),
        _product(scale, FLOAT32, 8192, 8192, 8192, 0.9),
        _product(scale, FLOAT32, 4093, 4093, 4093, 0.85),
        _product(scale, FLOAT32, 1024, 1024, 1024, 0.9),
        _product(scale, FLOAT32, 512, 512, 512, 0.9, batch=64),
        _product(scale, FLOAT32, 32, 32, 32, 0.9, batch=4096),
        _product(scale, FLOAT32, 256, large, 256, 0.9),
        _product(scale, FLOAT32, 128, 768, 3072, 0.9),
        _product(scale, FLOAT16, 4096, 4096, 4096, 0.6),
        _product(scale, FLOAT16, 8192, 8192, 8192, 0.6),
        _product(scale, FLOAT16, 1024, 1024, 1024, 0.7),
        _product(scale, FLOAT16, 4093, 4093, 4093, 0.6),
        _product(scale, FLOAT16, 512, 768, 50257, 0.9),
        _product(scale, FLOAT16, 2048, 4097, 1024, 0.9, transposed=True),
    ]
    for data_type, target, small in ((FLOAT32, 0.92, 0.92), (FLOAT16, 0.6, 0.75)):
        for sizes in _WIDE:
            found += [_product(scale, data_type, *sizes, target, transposed=transposed) for transposed in (False, True)]
        found.append(_product(scale, data_type, 1000, 1000, 1000, small))
        found.append(_product(scale, data_type, 128, 64, 128, small, batch=192))
    for data_type in FLOATS:
        for rows in (1, 4, 8, 16):
            for transposed in (False, True):
                found.append(_product(scale, data_type, rows, large, large, 0.9, copy_target=0.9, transposed=transposed))
        found.append(_product(scale, data_type, large, large, 1, 0.9, copy_target=0.9))
    found += [_product(scale, FLOAT16, *sizes, 0.6, kept=True) for sizes in _KEPT]
    found += [_of_bits(scale, size, size, size, 0.6) for size in (4096, 8192)]
    found += [_of_bits(scale, *sizes, 0.6) for sizes in _WIDE]
    found += [_of_bits(scale, rows, large, large, 0.9, copy_target=0.9) for rows in (1, 16)]
    gated = (_gated(scale, rows, 2048, 16384) for rows in (1, 512))
    ends = (_rows_normalized(scale, data_type, *sizes) for data_type in FLOATS for sizes in _ENDS)
    return [*found, *gated, _normalized(scale, 1, 2048, 3072), *ends]
