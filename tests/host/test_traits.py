"""What rows say of their operators beyond the struct, held against what the operators compute and what passes make of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.graph.passes import PASSES, optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.elementwise.rules import ELEMENTWISE
from dmlvk.kernels.lowering import lower
from dmlvk.spec import ops
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import ConvolutionDirection, InterpolationMode, MatrixTransform
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGemm, NormalizedBlockGemm
from dmlvk.spec.ops.chain import PointwiseChain
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.ops.matmul import FormatGemm, GemmGate, NormalizedGemm
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.schema import REGISTRY, OperatorDesc, Traits
from dmlvk.spec.tensor import calculate_strides
from dmlvk.verify.oracle import oracle

F16, F32, F64, U8 = (TensorDataType[name] for name in ("FLOAT16", "FLOAT32", "FLOAT64", "UINT8"))
NEWEST = [row for row in REGISTRY.values() if row.upgrade is OperatorDesc.upgrade]
POINTWISE = [row for row in NEWEST if row.traits.pointwise]
OF_OVERFLOWS = (ops.ElementWiseIsInfinity, ops.ElementWiseIsNan)
OF_NUMBERS = [
    row
    for row in POINTWISE
    if F32 in row.fields[0].data_types and F64 not in row.fields[0].data_types and row not in OF_OVERFLOWS
]
PLACES = np.arange(-2, 2.25, 0.25)
"""Where operators are tried: those that jump do so at one of these."""
ROUNDING = 1e-5


def _desc(row: type[OperatorDesc], sizes: tuple[int, ...]) -> OperatorDesc:
    """A desc whose numbers are among the places."""
    fields: dict[str, Any] = {}
    for field in row.fields:
        if field.kind.is_tensor:
            fields[field.name] = TensorDesc(F32 if F32 in field.data_types else U8, sizes)
        elif field.enumeration is TensorDataType:
            fields[field.name] = F32
        elif field.enumeration is not None:
            fields[field.name] = next(iter(field.enumeration))
        elif not field.optional:
            fields[field.name] = 0.5 if field.name in ("min", "bias") else 1.5
    return row(**fields)


def _jumps(row: type[OperatorDesc]) -> bool:
    """Whether results differ by much where inputs differ by a rounding; what grows without bound does not count."""
    compute, count = oracle(row), sum(field.kind.is_input for field in row.fields)
    assert compute is not None
    places = [grid.ravel() for grid in np.meshgrid(*[PLACES] * count)]
    desc, results = _desc(row, places[0].shape), []
    for steps in itertools.product((-ROUNDING, 0, ROUNDING), repeat=count):
        inputs = [(own + step).astype(np.float32) for own, step in zip(places, steps, strict=True)]
        with np.errstate(all="ignore"):
            result = compute(desc, *inputs)
        results.append(np.asarray(getattr(result, "value", result), np.float64))
    found = np.stack(results)
    bounded = np.all(np.abs(found) < 100, axis=0)  # NaN is not
    return bool(np.any((found.max(axis=0) - found.min(axis=0))[bounded] > 0.05))


@pytest.mark.parametrize("row", OF_NUMBERS, ids=lambda row: row.__name__)
def test_a_row_says_whether_its_operator_jumps(row: type[OperatorDesc]) -> None:
    assert _jumps(row) == row.traits.discontinuous


def test_a_rounding_may_overflow() -> None:
    assert all(row.traits.discontinuous for row in OF_OVERFLOWS)


def test_no_other_row_jumps() -> None:
    assert {row for row in NEWEST if row.traits.discontinuous} - set(OF_NUMBERS) == set(OF_OVERFLOWS)


def test_rows_of_the_elementwise_kernels_are_pointwise() -> None:
    assert {row for row in LOWERINGS if LOWERINGS[row].rules is ELEMENTWISE} == set(POINTWISE)


def test_these_rows_take_strides() -> None:
    taking = {ops.ElementWiseIf, ops.ElementWisePow, ops.Gemm, ops.MultiheadAttention1}
    assert {row for row in NEWEST if row.traits.strided} == taking
    assert PointwiseChain.traits.strided and RotaryEmbedding.traits.strided


_COSTLY_ACTIVATIONS = (
    "Celu",
    "Elu",
    "Gelu",
    "ParametricSoftplus",
    "ScaledElu",
    "ScaledTanh",
    "Sigmoid",
    "Softplus",
    "Swish",
)
_COSTLY_INVERSES = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh")
COSTLY = {
    *(f"Activation{name}" for name in (*_COSTLY_ACTIVATIONS, "Tanh")),
    *(f"ElementWise{name}" for name in (*_COSTLY_INVERSES, "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh")),
    *(f"ElementWise{name}" for name in ("ConstantPow", "Erf", "Log", "Pow")),
}
"""What takes an H200 longer than memory does, for it calls a function that has no instruction."""


def test_these_rows_are_costly() -> None:
    assert {row.__name__ for row in NEWEST if row.traits.costly} == COSTLY


def test_versions_of_a_row_have_the_same_traits() -> None:
    versions: dict[str, set[Traits]] = {}
    for row in REGISTRY.values():
        # Resample3 was never tried on images that lie otherwise; an addition with an activation has no FLOAT64.
        if row not in (ops.Resample3, ops.ElementWiseAdd1):
            versions.setdefault(row.__name__.rstrip("0123456789"), set()).add(row.traits)
    assert all(len(traits) == 1 for traits in versions.values())
    assert ops.Upsample2d.traits == Traits(), "a resample under another name"


def test_these_rows_compute_images_however_they_lie() -> None:
    assert {row for row in NEWEST if row.traits.alike} == {ops.AveragePooling1, ops.Convolution, ops.MaxPooling2}


@pytest.mark.parametrize(
    ("row", "items"),
    [(ops.ActivationSigmoid, 2), (ops.ElementWiseErf, 2), (ops.ElementWiseLog, 2), (ops.ActivationRelu, 1)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_costly_operator_has_two_items_in_flight(row: type[OperatorDesc], items: int) -> None:
    (launch,) = lower(_desc(row, (2**24,)), Capabilities()).dispatches
    assert isinstance(launch, Dispatch)
    assert dict(launch.kernel.constants)["ITEMS"] == items


# -- layouts

IMAGE = (2, 16, 10, 12)
WINDOW: dict[str, Any] = {"strides": (1, 1), "window_size": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}
SAME: dict[str, Any] = {"interpolation_mode": InterpolationMode.LINEAR, "scales": (1.0,) * 4}
SHIFT: dict[str, Any] = {"input_pixel_offsets": (0.5,) * 4, "output_pixel_offsets": (-0.5,) * 4}
BETWEEN: dict[type[OperatorDesc], dict[str, Any]] = {
    ops.ActivationRelu: {},
    ops.AveragePooling: {**WINDOW, "include_padding": False},
    ops.AveragePooling1: {**WINDOW, "dilations": (1, 1), "include_padding": False},
    ops.MaxPooling: WINDOW,
    ops.MaxPooling1: WINDOW,
    ops.MaxPooling2: {**WINDOW, "dilations": (1, 1)},
    ops.Resample: SAME,
    ops.Resample1: {**SAME, **SHIFT},
    ops.Resample2: {**SAME, **SHIFT},
}


def _convolution(x: TensorDesc, groups: int = 1, **more: Any) -> ops.Convolution:
    filters = TensorDesc(x.data_type, (16, 16 // groups, 3, 3))
    arrays = {"strides": (1, 1), "dilations": (1, 1), "output_padding": (0, 0), "group_count": groups}
    padding = {"start_padding": (1, 1), "end_padding": (1, 1)}
    return ops.Convolution(input_tensor=x, filter_tensor=filters, output_tensor=x, **arrays, **padding, **more)


def _only(name: str, steps: list[Step], output: Storage) -> tuple[Step, ...]:
    """The steps after one pass."""
    return optimized(steps, [output], without=[item.name for item in PASSES if item.name != name])


@pytest.mark.parametrize("row", BETWEEN, ids=lambda row: row.__name__)
@pytest.mark.parametrize("groups", [1, 16])
def test_images_between_convolutions_of_one_group_move(row: type[OperatorDesc], groups: int) -> None:
    x = TensorDesc(F16, IMAGE)
    storages = [Storage(x.total_tensor_size_in_bytes) for _ in range(4)]
    desc = row(input_tensor=x, output_tensor=x, **BETWEEN[row])
    weights = {"filter_tensor": Storage(16 * 16 * 9 * 2)}
    steps = [
        Step.of("", desc, {**more, "input_tensor": storages[at], "output_tensor": storages[at + 1]})
        for at, (desc, more) in enumerate([(_convolution(x), weights), (desc, {}), (_convolution(x, groups), weights)])
    ]
    moved = [step.desc.tensor("output_tensor").effective_strides for step in _only("channels_last", steps, storages[3])]
    lies = calculate_strides("NHWC" if groups == 1 else "NCHW", IMAGE)
    assert moved == [lies, lies, calculate_strides("NCHW", IMAGE)]


def test_what_a_convolution_adds_lies_as_its_output() -> None:
    assert ops.Convolution.traits.alike == ("output_tensor",)
    assert ConvolutionAdd.traits.alike == ("addend_tensor", "output_tensor")


TURNED = TensorDesc(F32, (1, 2, 8, 4), (64, 4, 8, 1))
PACKED = TensorDesc(F32, (1, 2, 8, 4))


@pytest.mark.parametrize(
    "desc",
    [
        ops.ActivationRelu(input_tensor=PACKED, output_tensor=PACKED),
        ops.ElementWisePow(input_tensor=PACKED, exponent_tensor=PACKED, output_tensor=PACKED),
        ops.ElementWiseIf(
            condition_tensor=TensorDesc(U8, PACKED.sizes), a_tensor=PACKED, b_tensor=PACKED, output_tensor=PACKED
        ),
        ops.Gemm(a_tensor=PACKED, b_tensor=TensorDesc(F32, (1, 2, 4, 4)), output_tensor=PACKED),
    ],
    ids=lambda desc: type(desc).__name__,
)
def test_what_takes_strides_writes_where_its_result_would_be_copied(desc: OperatorDesc) -> None:
    made, copied = Storage(256), Storage(256)
    inputs = tuple(Storage(slot.tensor.total_tensor_size_in_bytes) for slot in desc.input_slots() if slot.tensor)
    inputs += (None,) * (len(desc.input_slots()) - len(inputs))
    copy = ops.ElementWiseIdentity(input_tensor=PACKED, output_tensor=TURNED)
    steps = [Step("", desc, inputs, (made,)), Step("", copy, (made,), (copied,))]
    (only,) = _only("layout", steps, copied)
    assert type(only.desc) is type(desc)
    assert only.desc.tensor("output_tensor").effective_strides == TURNED.strides


# -- operations


def test_flops_of_products_and_convolutions() -> None:
    a, b, y = TensorDesc(F32, (2, 5, 3)), TensorDesc(F32, (2, 5, 7)), TensorDesc(F32, (2, 3, 7))
    assert ops.Gemm(a_tensor=a, b_tensor=b, output_tensor=y, trans_a=MatrixTransform.TRANSPOSE).flops() == 2 * 2 * 3 * 5 * 7
    image = TensorDesc(F32, IMAGE)
    sums = 2 * image.element_count * 16 * 9
    assert _convolution(image).flops() == sums
    wide = _convolution(image, direction=ConvolutionDirection.BACKWARD)
    assert wide.replace(output_tensor=TensorDesc(F32, (2, 32, 10, 12))).flops() == sums, "each input goes to as many"
    left, right = (TensorDesc(TensorDataType.INT8, sizes) for sizes in ((2, 3, 7), (2, 7, 4)))
    product = ops.MatrixMultiplyInteger(a_tensor=left, b_tensor=right, output_tensor=TensorDesc(F32, (2, 3, 4)))
    assert product.flops() == 2 * 2 * 3 * 7 * 4
    gated = GemmGate(a_tensor=a, b_tensor=b, output_tensor=y, trans_a=MatrixTransform.TRANSPOSE)
    assert gated.flops() == 2 * (2 * 2 * 3 * 5 * 7), "twice as many columns as are left behind the gate"
    filters = TensorDesc(TensorDataType.INT8, (16, 8, 3, 3))
    convolution = ops.ConvolutionInteger(
        input_tensor=TensorDesc(TensorDataType.INT8, IMAGE),
        filter_tensor=filters,
        output_tensor=TensorDesc(TensorDataType.INT32, IMAGE),
        dilations=(1, 1),
        **{name: value for name, value in WINDOW.items() if name != "window_size"},
        group_count=2,
    )
    assert convolution.flops() == sums // 2, "half of the channels are another group's"
    blocks = BlockQuantizedGemm(
        input_tensor=TensorDesc(F32, (3, 64)),
        weight_tensor=TensorDesc(U8, (20, BlockFormat.Q8_0.row_bytes(64))),
        output_tensor=TensorDesc(F32, (3, 10)),
        format=BlockFormat.Q8_0,
        gate=Gate.SILU,
    )
    assert blocks.flops() == 2 * 3 * 64 * 20
    normalized = NormalizedBlockGemm(
        **{name: getattr(blocks, name) for name in ("input_tensor", "weight_tensor", "output_tensor", "format", "gate")},
        norm_scale_tensor=TensorDesc(F32, (1, 64)),
        epsilon=1e-5,
    )
    assert normalized.flops() == blocks.flops()
    bits = {name: TensorDesc(TensorDataType.UINT16, sizes) for name, sizes in (("a_tensor", (5, 3)), ("b_tensor", (3, 7)))}
    assert FormatGemm(**bits, output_tensor=TensorDesc(F32, (5, 7))).flops() == 2 * 5 * 3 * 7
    x, square, scale = TensorDesc(F32, (5, 3)), TensorDesc(F32, (16, 3)), TensorDesc(F32, (3,))
    halved = NormalizedGemm(
        input_tensor=x,
        b_tensor=square,
        norm_scale_tensor=scale,
        output_tensor=TensorDesc(F32, (5, 8)),
        epsilon=1e-5,
        trans_b=MatrixTransform.TRANSPOSE,
        gate=Gate.SILU,
    )
    assert halved.flops() == 2 * 5 * 3 * 16
    assert ops.ActivationRelu(input_tensor=y, output_tensor=y).flops() is None
