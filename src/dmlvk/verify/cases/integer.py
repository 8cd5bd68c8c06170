"""Cases of the integer and quantized products: exact but for the one with a real output."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, special, uniform

_BYTES: Final = (T.INT8, T.UINT8)
_PAIRS: Final = tuple((a, b) for a in _BYTES for b in _BYTES)

# (name, M, K, N, leading sizes, zero points of A and B (and with them scales): "" for none, "one", "each")
_PRODUCTS: Final[tuple[tuple[str, int, int, int, tuple[int, ...], str, str], ...]] = (
    ("small", 5, 7, 11, (), "one", "each"),
    ("one past the tiles", 65, 133, 65, (), "each", "one"),
    ("one past larger tiles", 129, 67, 131, (), "one", ""),
    ("words of the depth", 33, 64, 40, (), "", "each"),
    ("one row", 1, 131, 37, (), "one", "one"),
    ("three rows of words", 3, 96, 48, (), "one", "each"),
    ("one column", 37, 130, 1, (), "each", "each"),
    ("one number", 1, 1, 1, (), "one", "one"),
    ("outer product", 19, 1, 29, (), "each", ""),
    ("no zero points", 17, 31, 23, (), "", ""),
    ("batch", 9, 35, 10, (3,), "each", "one"),
    ("batch of two by three", 6, 17, 18, (2, 3), "one", "each"),
)
_LAYOUTS: Final = ("small", "one past the tiles", "words of the depth", "batch of two by three")


def _scales(low: float, high: float) -> Domain:
    """Half of them powers of two, with which scaled sums are often half integers."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: T) -> Array:
        values = rng.uniform(low, high, sizes)
        power = 2.0 ** np.floor(np.log2(values))
        return np.where(rng.integers(0, 2, sizes) == 0, power, values).astype(NUMPY_TYPES[data_type])

    return domain


_SCALES: Final[dict[str, Domain]] = {
    **dict.fromkeys(("a_scale_tensor", "b_scale_tensor", "input_scale_tensor", "filter_scale_tensor"), _scales(0.01, 0.06)),
    "output_scale_tensor": _scales(0.1, 0.9),
}


def _parameter(kind: str, name: str, rank: int, place: int, size: int, zero_point: T, scale: T | None) -> dict[str, Any]:
    """Sizes and data types of a tensor's scale and zero point, by field.

    Args:
        kind: "" for a scale of one element alone, "one" for one element each, "each" for ``size`` of them.
        name: The tensor's name.
        rank: Dimensions.
        place: The dimension that has ``size`` elements.
        size: The number of elements with "each".
        zero_point: The zero point's type.
        scale: The scale's type; None for no scale.
    """
    sizes = [1] * rank
    if kind == "each":
        sizes[place] = size
    found: dict[str, Any] = {}
    if scale is not None:
        found[f"{name}_scale_tensor"] = (tuple(sizes), scale)
    if kind:
        found[f"{name}_zero_point_tensor"] = (tuple(sizes), zero_point)
    return found


def _product(
    row: tuple[str, int, int, int, tuple[int, ...], str, str],
    types: tuple[T, T],
    *,
    output: T,
    scale: T | None = None,
    bias: bool = False,
    output_parameters: str | None = None,
    rank: int = 0,
    quick: bool = False,
) -> Case:
    """One matrix product; ``rank`` is that of scales and zero points, 0 for the tensors' own."""
    name, rows, depth, columns, batch, of_a, of_b = row
    rank = rank or len(batch) + 2
    parameters = {
        **_parameter(of_a, "a", rank, rank - 2, rows, types[0], scale),
        **_parameter(of_b, "b", rank, rank - 1, columns, types[1], scale),
    }
    if output_parameters is not None:
        parameters |= _parameter(output_parameters, "output", rank, rank - 2, rows, output, T.FLOAT32)
    if bias:
        parameters["bias_tensor"] = ((*batch, rows, columns), output)
    inputs = {"a_tensor": (*batch, rows, depth), "b_tensor": (*batch, depth, columns)}
    return Case(
        f"{name}, {types[0].name} by {types[1].name} to {output.name}",
        {**inputs, **{field: sizes for field, (sizes, _) in parameters.items()}},
        data_types={
            "b_tensor": types[1],
            "output_tensor": output,
            **{field: data_type for field, (_, data_type) in parameters.items()},
        },
        domains=_SCALES,
        only=(types[0],),
        layouts=name in _LAYOUTS,
        quick=quick,
    )


def _integer_products() -> tuple[Case, ...]:
    cases = [_product(row, _PAIRS[number % 4], output=T.INT32, quick=number == 0) for number, row in enumerate(_PRODUCTS)]
    cases += [_product(_PRODUCTS[1], types, output=T.INT32) for types in _PAIRS if types != _PAIRS[1]]
    cases.append(_product(("parameters of four dimensions", *_PRODUCTS[0][1:]), _PAIRS[3], output=T.INT32, rank=4))
    edges = _product(("edges of the types", *_PRODUCTS[1][1:]), _PAIRS[2], output=T.INT32)
    return (*cases, Case(edges.name, edges.inputs, data_types=edges.data_types, domains={"": special}, only=edges.only))


def _quantized_products() -> tuple[Case, ...]:
    cases = []
    for number, row in enumerate(_PRODUCTS):
        of_output = ("one", "each", "")[number % 3]
        output = _BYTES[number // 2 % 2]
        cases.append(
            _product(row, _PAIRS[number % 4], output=output, scale=T.FLOAT32, output_parameters=of_output, quick=number == 0)
        )
    return tuple(cases)


def _products_to_float() -> tuple[Case, ...]:
    cases = []
    for number, row in enumerate(_PRODUCTS):
        for output in (T.FLOAT32, T.FLOAT16) if number % 3 == 0 else (T.FLOAT32,):
            types = _PAIRS[(number + (output is T.FLOAT16)) % 4]
            cases.append(_product(row, types, output=output, scale=output, bias=number % 2 == 0, rank=2, quick=number == 0))
    wide = ("wide integers", 9, 37, 13, (2,), "each", "one")
    for data_type in (T.INT32, T.INT16, T.UINT32, T.UINT16):
        cases.append(_product(wide, (data_type,) * 2, output=T.FLOAT32, scale=T.FLOAT32, bias=True))
    narrow = _product(wide, (T.INT16, T.INT16), output=T.FLOAT16, scale=T.FLOAT16, bias=True)
    # float16 ends at 65504, so the numbers are small.
    small = {**_SCALES, **dict.fromkeys(("a_tensor", "b_tensor"), uniform(-300, 300))}
    small |= dict.fromkeys(("a_zero_point_tensor", "b_zero_point_tensor"), uniform(-9, 9))
    cases.append(Case(narrow.name, narrow.inputs, data_types=narrow.data_types, domains=small, only=narrow.only))
    long = _product(
        ("more terms than 32 bits hold", 2, 33026, 3, (), "one", "one"), _PAIRS[3], output=T.FLOAT32, scale=T.FLOAT32
    )
    return (*cases, Case(long.name, long.inputs, data_types=long.data_types, domains=_SCALES, only=long.only, layouts=False))


# (name, input, filter, zero points of the input and the filter, attributes)
_Row = tuple[str, tuple[int, ...], tuple[int, ...], str, str, dict[str, Any]]
_CONVOLUTIONS: Final[tuple[_Row, ...]] = (
    ("3x3", (2, 3, 7, 11), (5, 3, 3, 3), "one", "each", {"start_padding": (1, 1), "end_padding": (1, 1)}),
    ("1x1", (2, 17, 5, 13), (33, 17, 1, 1), "one", "one", {}),
    ("1x1 with stride", (1, 8, 9, 8), (16, 8, 1, 1), "", "each", {"strides": (2, 3)}),
    (
        "words of channels, padded",
        (2, 16, 6, 7),
        (35, 16, 3, 3),
        "one",
        "one",
        {"start_padding": (1, 2), "end_padding": (2, 1)},
    ),
    (
        "everything differs by dimension",
        (2, 4, 13, 11),
        (6, 2, 2, 4),
        "one",
        "each",
        {"strides": (3, 2), "dilations": (2, 1), "start_padding": (2, 0), "end_padding": (1, 3), "group_count": 2},
    ),
    ("larger than a tile", (1, 19, 11, 13), (67, 19, 2, 2), "one", "each", {}),
    ("window as large as the input", (2, 5, 4, 3), (7, 5, 4, 3), "one", "", {}),
    (
        "windows wholly in the padding",
        (1, 2, 3, 3),
        (3, 2, 2, 2),
        "one",
        "one",
        {"start_padding": (3, 4), "end_padding": (4, 3)},
    ),
    (
        "depthwise 3x3",
        (2, 6, 9, 10),
        (6, 1, 3, 3),
        "one",
        "each",
        {"group_count": 6, "start_padding": (1, 1), "end_padding": (1, 1)},
    ),
    (
        "depthwise, dilated, two outputs a channel",
        (1, 3, 9, 9),
        (6, 1, 3, 2),
        "",
        "",
        {"dilations": (2, 3), "group_count": 3},
    ),
    ("groups of words", (1, 16, 5, 6), (12, 8, 3, 3), "one", "one", {"group_count": 2, "start_padding": (1, 0)}),
    (
        "1-D",
        (2, 5, 23),
        (4, 5, 3),
        "one",
        "each",
        {"strides": (2,), "dilations": (3,), "start_padding": (1,), "end_padding": (2,)},
    ),
    ("1-D depthwise", (1, 5, 23), (5, 1, 4), "one", "one", {"group_count": 5}),
)
_CONVOLUTION_LAYOUTS: Final = ("3x3", "words of channels, padded", "everything differs by dimension", "1-D")


def _convolution(
    row: _Row,
    types: tuple[T, T],
    *,
    output: T,
    scale: T | None = None,
    bias: bool = False,
    output_parameters: str | None = None,
    quick: bool = False,
) -> Case:
    name, x, w, of_input, of_filter, attributes = row
    count = len(x) - 2
    parameters = {
        **_parameter(of_input, "input", 1, 0, 1, types[0], scale),
        **_parameter(of_filter, "filter", len(w), 1, w[0], types[1], scale),
    }
    if bias:
        parameters["bias_tensor"] = ((1, w[0]) + (1,) * count, T.INT32)
    if output_parameters is not None:
        parameters |= _parameter(output_parameters, "output", len(x), 0, 1, output, T.FLOAT32)
    fields: dict[str, Any] = dict.fromkeys(("strides", "dilations"), (1,) * count)
    fields |= dict.fromkeys(("start_padding", "end_padding"), (0,) * count)
    return Case(
        f"{name}, {types[0].name} by {types[1].name} to {output.name}",
        {"input_tensor": x, "filter_tensor": w, **{field: sizes for field, (sizes, _) in parameters.items()}},
        {**fields, **attributes},
        data_types={
            "filter_tensor": types[1],
            "output_tensor": output,
            **{field: data_type for field, (_, data_type) in parameters.items()},
        },
        domains={**_SCALES, "bias_tensor": uniform(-20000, 20000)},
        only=(types[0],),
        layouts=name in _CONVOLUTION_LAYOUTS,
        quick=quick,
    )


def _integer_convolutions() -> tuple[Case, ...]:
    return tuple(
        _convolution(row, _PAIRS[number % 4], output=T.INT32, quick=number in (0, 11))
        for number, row in enumerate(_CONVOLUTIONS)
    )


def _quantized_convolutions() -> tuple[Case, ...]:
    cases = []
    for number, row in enumerate(_CONVOLUTIONS):
        of_output = ("one", "")[number % 2]
        output = _BYTES[number // 2 % 2]
        cases.append(
            _convolution(
                row,
                _PAIRS[(number + 1) % 4],
                output=output,
                scale=T.FLOAT32,
                bias=number % 3 != 1,
                output_parameters=of_output,
                quick=number == 0,
            )
        )
    return tuple(cases)


CASES: Final = (
    OperatorCases(ops.MatrixMultiplyInteger, {}, _integer_products()),
    OperatorCases(ops.QuantizedLinearMatrixMultiply, {}, _quantized_products()),
    OperatorCases(
        ops.MatrixMultiplyIntegerToFloat,
        # At the magnitude of the scaled sum and the bias: the sum, the product of the scales, the scaled sum and the result
        # are rounded, half a ULP each; the sums of wide integers err as Gemm's do. FLOAT16 shows the last rounding only.
        {T.FLOAT32: Tolerance(5), T.FLOAT16: Tolerance(1)},
        _products_to_float(),
    ),
    OperatorCases(ops.ConvolutionInteger, {}, _integer_convolutions()),
    OperatorCases(ops.QuantizedLinearConvolution, {}, _quantized_convolutions()),
)
