"""Cases of the matrix product, and of rows of our own that add or gate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import FormatGemm, GemmAdd, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, OperatorCases, Tolerance

_F16, _F32 = TensorDataType.FLOAT16, TensorDataType.FLOAT32


def _case(
    name: str,
    rows: int,
    depth: int,
    columns: int,
    *,
    batch: tuple[int, ...] = (),
    c: bool = False,
    addend: bool = False,
    a_transposed: bool = False,
    b_transposed: bool = False,
    quick: bool = False,
    layouts: bool = True,
    **attributes: object,
) -> Case:
    inputs = {
        "a_tensor": (*batch, depth, rows) if a_transposed else (*batch, rows, depth),
        "b_tensor": (*batch, columns, depth) if b_transposed else (*batch, depth, columns),
    }
    if c:
        inputs["c_tensor"] = (*batch, rows, columns)
    if addend:
        inputs["addend_tensor"] = (*batch, rows, columns)
    transforms = {"trans_a": MatrixTransform(int(a_transposed)), "trans_b": MatrixTransform(int(b_transposed))}
    return Case(name, inputs, {**transforms, **attributes}, quick=quick, layouts=layouts)


def _bits(numbers: Array) -> Array:
    """The upper bits of numbers: of those that BFLOAT16 has, its bits."""
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _reals(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Normal numbers of BFLOAT16."""
    return _bits(rng.standard_normal(sizes))


def _whole(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Whole numbers of which a few hundred products add up to what FLOAT32 has, so that there is one right rounding; of
    UINT16 they are BFLOAT16's."""
    numbers = rng.integers(-100, 100, sizes)
    return _bits(numbers) if data_type is TensorDataType.UINT16 else numbers.astype(NUMPY_TYPES[data_type])


def _of_bits(
    name: str,
    m: int,
    k: int,
    n: int,
    *,
    batch: tuple[int, ...] = (),
    a_transposed: bool = False,
    b_transposed: bool = False,
    c: bool = False,
    c_of_bits: bool = False,
    reals: bool = False,
    quick: bool = False,
    layouts: bool = False,
    **attributes: Any,
) -> Case:
    """``reals``: factors are no whole numbers, and the output FLOAT32; ``c_of_bits``: there is a C, which holds bits."""
    case = _case(
        name,
        m,
        k,
        n,
        batch=batch,
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        c=c or c_of_bits,
        quick=quick,
        layouts=layouts,
        **attributes,
    )
    bits = ("a_tensor", "b_tensor", *(("c_tensor",) if c_of_bits else ()))
    return dataclasses.replace(
        case,
        data_types=dict.fromkeys(bits, TensorDataType.UINT16),
        domains={"": _reals if reals else _whole},
        only=(TensorDataType.FLOAT32,) if reals else (),
    )


def _normalized(
    name: str,
    rows: int,
    depth: int,
    columns: int,
    *,
    b_transposed: bool = False,
    gate: Gate = Gate.NONE,
    output: TensorDataType | None = None,
    plain: bool = False,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
) -> Case:
    """``plain``: without something added before, or a bias; ``output``: the type of all that the product has of its own, and
    of what is added."""
    inputs = {
        "input_tensor": (rows, depth),
        "b_tensor": (columns, depth) if b_transposed else (depth, columns),
        "norm_scale_tensor": (depth,),
    }
    outputs = {"output_tensor": (rows, columns // (1 if gate is Gate.NONE else 2))}
    if not plain:
        inputs["norm_addend_tensor"] = outputs["sum_tensor"] = (rows, depth)
        if gate is Gate.NONE:
            inputs["bias_tensor"] = (columns,)
    narrow = ("b_tensor", "bias_tensor", "norm_addend_tensor", "output_tensor")
    types = {} if output is None else {own: output for own in narrow if own in inputs or own in outputs}
    attributes = {"epsilon": 1e-5, "trans_b": MatrixTransform(int(b_transposed)), "gate": gate}
    return Case(name, inputs, attributes, outputs, types, layouts=False, only=only, quick=quick)


def _rows_normalized(
    name: str, rows: int, depth: int, columns: int, *, sides: int = 2, keeps: bool = False, **own: Any
) -> Case:
    """``sides``: whether what is normalized is scaled, and shifted; ``keeps``: whether the product is an output, too."""
    case = _case(name, rows, depth, columns, **{"layouts": False, **own})
    inputs = dict.fromkeys(("norm_scale_tensor", "norm_bias_tensor")[:sides], (columns,))
    sizes = (*own.get("batch", ()), rows, columns)
    outputs = {"output_tensor": sizes, **({"product_tensor": sizes} if keeps else {})}
    attributes = {"epsilon": 1e-5, **case.attributes}
    return dataclasses.replace(case, inputs={**case.inputs, **inputs}, attributes=attributes, outputs=outputs)


# At the magnitude of the summed terms: at most n / 2 ULP for a float32 sum of n products, and far less where rounding errors
# are of either sign. The broadcast layout can make all products of a sum equal, and then they are not: 4.4 ULP for 19
# products. FLOAT64 is summed in float64 as FLOAT32 is in float32.
_TOLERANCE = {
    **dict.fromkeys((TensorDataType.FLOAT64, TensorDataType.FLOAT32), Tolerance(8)),
    TensorDataType.FLOAT16: Tolerance(1),
}

CASES = (
    OperatorCases(
        ops.Gemm,
        _TOLERANCE,
        (
            _case("small", 5, 7, 11, c=True, quick=True),
            # Sizes that are no multiples of anything, then whole quads in both directions, then one past a tile's sizes.
            _case("ragged", 19, 23, 41, c=True, alpha=0.5, beta=-2.0),
            _case("whole quads", 20, 12, 36, c=True, alpha=0.5),
            _case("one past the tiles", 33, 33, 65, layouts=False),
            _case("whole tiles", 64, 48, 96, layouts=False),
            _case("A transposed", 35, 19, 41, a_transposed=True, layouts=False),
            _case("A transposed, whole quads", 36, 19, 40, a_transposed=True),
            _case("B transposed", 35, 19, 41, b_transposed=True, alpha=-1.5, layouts=False),
            _case("B transposed, whole quads", 36, 20, 41, b_transposed=True),
            _case("both transposed", 17, 19, 23, a_transposed=True, b_transposed=True, c=True),
            _case("both transposed, whole quads", 24, 36, 20, a_transposed=True, b_transposed=True, layouts=False),
            _case("one row", 1, 129, 67, c=True, quick=True),
            _case("one row, whole quads", 1, 256, 64, beta=0.5, c=True),
            _case("three rows, B transposed", 3, 65, 37, b_transposed=True),
            _case("eight rows, B transposed, whole quads", 8, 68, 36, b_transposed=True, layouts=False),
            _case("one column", 37, 131, 1, c=True),
            _case("two columns, A transposed", 31, 67, 2, a_transposed=True, beta=0.25, c=True),
            _case("a long sum", 2, 1100, 3, c=True, layouts=False),
            _case("one number", 1, 1, 1, c=True),
            _case("outer product", 13, 1, 29),
            _case("batch of three", 9, 17, 10, batch=(3,), c=True),
            _case("batch of two by three, both transposed", 6, 5, 18, batch=(2, 3), a_transposed=True, b_transposed=True),
            _case("batch of rows", 1, 33, 12, batch=(2, 2), c=True, beta=3.0),
            _case("deep batch", 10, 70, 12, batch=(2, 2), c=True, alpha=0.5, layouts=False),
            _case("fused tanh", 11, 9, 21, c=True, fused_activation=ops.ActivationTanh(), layouts=False),
            _case("fused tanh of a long sum", 11, 65, 24, c=True, fused_activation=ops.ActivationTanh(), layouts=False),
            _case("fused linear", 3, 9, 21, fused_activation=ops.ActivationLinear(alpha=0.75, beta=0.5), layouts=False),
            _case("fused softmax", 11, 9, 21, c=True, fused_activation=ops.ActivationSoftmax()),
            _case("fused softmax by its axis", 5, 9, 16, batch=(2,), fused_activation=ops.ActivationSoftmax1(axes=(2,))),
            _case("fused clip", 11, 9, 21, c=True, fused_activation=ops.ElementWiseClip(min=-1.0, max=0.5), layouts=False),
        ),
    ),
    OperatorCases(
        GemmAdd,
        _TOLERANCE,
        (
            _case("small", 5, 7, 11, c=True, addend=True, quick=True),
            _case("whole tiles", 64, 48, 96, addend=True, layouts=False),
            _case("three rows, B transposed", 3, 65, 37, c=True, addend=True, b_transposed=True, alpha=0.5),
            _case("one row, whole quads", 1, 256, 64, addend=True, layouts=False),
            _case("batch of three", 9, 17, 10, batch=(3,), c=True, addend=True),
            _case("fused relu", 11, 9, 21, c=True, addend=True, fused_activation=ops.ActivationRelu(), layouts=False),
        ),
        every_rule=False,
    ),
    OperatorCases(
        FormatGemm,
        {TensorDataType.FLOAT32: Tolerance(8)},  # bits are exact
        (
            _of_bits("small", 5, 7, 11, c=True, quick=True),
            _of_bits("small, of no whole numbers", 5, 70, 11, reals=True, quick=True),
            _of_bits("ragged", 19, 23, 41, c=True, alpha=0.5, beta=-2.0, layouts=True),
            _of_bits("whole quads", 20, 12, 36, c=True, alpha=0.5, layouts=True),
            _of_bits("C of bits", 18, 40, 33, c_of_bits=True, beta=0.5, layouts=True),
            _of_bits("one row, C of bits", 1, 128, 32, c_of_bits=True, quick=True),
            _of_bits("a long sum, C of bits", 3, 1100, 3, c_of_bits=True, reals=True),
            _of_bits("one past the tiles", 33, 33, 65),
            _of_bits("whole tiles", 64, 48, 96),
            _of_bits("whole tiles, of no whole numbers", 64, 96, 64, reals=True, b_transposed=True),
            _of_bits("A transposed, whole quads", 36, 19, 40, a_transposed=True),
            _of_bits("B transposed, whole quads", 36, 20, 41, b_transposed=True),
            _of_bits("both transposed", 17, 19, 23, a_transposed=True, b_transposed=True, c=True),
            _of_bits("one row, whole quads", 1, 256, 64, c=True),
            _of_bits("three rows, B transposed", 3, 65, 37, b_transposed=True),
            _of_bits("a long sum", 2, 1100, 3, reals=True),
            _of_bits("batch of two by three, both transposed", 6, 5, 18, batch=(2, 3), a_transposed=True, b_transposed=True),
        ),
        data_types=(TensorDataType.FLOAT32, TensorDataType.UINT16),
    ),
    OperatorCases(
        GemmGate,
        _TOLERANCE,
        (
            _case("three rows", 3, 65, 48, gate=Gate.SILU, quick=True),
            _case("three rows, B transposed", 3, 64, 32, b_transposed=True, gate=Gate.GELU),
            _case("many rows", 33, 40, 64, gate=Gate.SILU),
            _case("batch of two", 2, 24, 16, batch=(2,), gate=Gate.GELU),
        ),
    ),
    OperatorCases(
        GemmNormalization,
        _TOLERANCE,
        (
            _rows_normalized("whole quads", 5, 70, 36, c=True, addend=True, keeps=True, quick=True),
            _rows_normalized("no whole quads", 5, 40, 37, c=True, quick=True),
            _rows_normalized("a long row", 3, 40, 1100, addend=True, b_transposed=True, alpha=0.5),
            _rows_normalized("many rows", 70, 64, 64, c=True, beta=2.0, keeps=True),
            _rows_normalized("batch of two, without a mean", 9, 40, 24, batch=(2,), sides=1, use_mean=False, keeps=True),
            _rows_normalized("as it is", 4, 66, 20, sides=0, layouts=True),
        ),
    ),
    OperatorCases(
        NormalizedGemm,
        # What is normalized may be rounded to FLOAT16 in between, at half a ULP of it.
        {TensorDataType.FLOAT32: Tolerance(8), TensorDataType.FLOAT16: Tolerance(1)},
        (
            _normalized("three rows", 3, 96, 37, quick=True),
            _normalized(
                "rows of halves, B transposed", 1, 320, 40, b_transposed=True, output=_F16, only=(_F32,), quick=True
            ),
            _normalized("B transposed", 2, 68, 21, b_transposed=True, plain=True),
            _normalized("a gate", 2, 96, 48, gate=Gate.SILU),
            _normalized("a gate, B transposed", 4, 132, 32, gate=Gate.GELU, b_transposed=True, plain=True),
            _normalized("no whole quads", 2, 75, 24, b_transposed=True),
            _normalized("many rows", 9, 64, 24),
        ),
    ),
)
