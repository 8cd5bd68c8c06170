"""What the operators' limitations say is what their lowerings raise: every one that is listed is met by a desc below, and
none is raised that is not listed."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
from typing import Any

import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels import lowering
from dmlvk.kernels.common import limitation
from dmlvk.kernels.common.data_types import unsupported_types
from dmlvk.kernels.common.limitation import EVERY_OPERATOR, LOOP_ROUNDS, POSITIONS, SAMPLES, Limitation
from dmlvk.kernels.common.registry import LOWERINGS, has_kernels, limitations_of, lowered_as
from dmlvk.kernels.lowering import check_data_types, lower
from dmlvk.spec import ops
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import InterpolationMode, PaddingMode, ReduceFunction, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGemm, NormalizedBlockGemm
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.ops.matmul import FormatGemm, GemmAdd, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.ops.resample import ResampleWeights
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.ops.suppression import NonMaxSuppression
from dmlvk.spec.schema import REGISTRY, OperatorDesc, Size2D
from dmlvk.spec.tensor import TensorDesc, packed_strides
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import Variation, build

FEATURES = SUBGROUPS | {"float64", "int64", "storage8", "storage16"}
GPU = Capabilities(features=FEATURES, workgroup_invocations=1024, storage_buffer_bytes=2**32 - 1)
CPU = dataclasses.replace(GPU, is_cpu=True)


def tensors(data_type: str, **sizes: tuple[int, ...]) -> dict[str, TensorDesc]:
    """Packed tensors of one data type by field name, without "_tensor"."""
    return {f"{name}_tensor": TensorDesc(TensorDataType[data_type], own) for name, own in sizes.items()}


def windows(dimensions: int, **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The attributes of windows, those that are not given as if there were none."""
    plain = {"strides": 1, "dilations": 1, "start_padding": 0, "end_padding": 0}
    return {name: (value,) * dimensions for name, value in plain.items()} | given


_SCALES = {name: TensorDesc(TensorDataType.FLOAT32, (1, 1, 1, 1)) for name in ("input_scale_tensor", "output_scale_tensor")}
_DEEP = 2**17
_FAR = {"start_padding": (0, 2**31 - 1), "end_padding": (0, 2), "strides": (1, 2**31)}
"""Two windows, of which the second begins 2^31 positions after the first."""


def _recurrent(
    row: type[OperatorDesc], gates: int, functions: int, steps: int = 1, inputs: int = 2**20, hidden: int = 4
) -> OperatorDesc:
    rows = gates * hidden
    sizes = {"input": (1, steps, 1, inputs), "weight": (1, 1, rows, inputs), "recurrence": (1, 1, rows, hidden)}
    tanh = (ops.ActivationTanh(),) * functions
    return row(**tensors("FLOAT32", **sizes, output_single=(1, 1, 1, hidden)), activation_descs=tanh)


def _integer(row: type[OperatorDesc], **given: Any) -> OperatorDesc:
    """An integer product or convolution with the scales that its row asks for."""
    scales = {spec.name: _ONE for spec in row.fields if "scale" in spec.name}
    output = "INT8" if row.__name__.startswith("Quantized") else "FLOAT32" if "Float" in row.__name__ else "INT32"
    data_types = dict.fromkeys(("a", "b", "input", "filter"), "INT8") | {"output": output}
    sizes = {name: given.pop(name) for name in data_types if name in given}
    parts = [tensors(data_types[name], **{name: own}) for name, own in sizes.items()]
    return row(**{name: tensor for part in parts for name, tensor in part.items()}, **scales, **given)


_ONE = TensorDesc(TensorDataType.FLOAT32, (1,))
_PRODUCT: dict[str, Any] = {"a": (8, _DEEP), "b": (_DEEP, 8), "output": (8, 8)}
_PRODUCTS = (ops.MatrixMultiplyInteger, ops.MatrixMultiplyIntegerToFloat, ops.QuantizedLinearMatrixMultiply)
_CONVOLUTIONS = (ops.ConvolutionInteger, ops.QuantizedLinearConvolution)
_DEEP_IMAGES: dict[str, Any] = {"input": (1, _DEEP, 4, 4), "filter": (1, _DEEP, 3, 3), "output": (1, 1, 2, 2)}
_FAR_IMAGES: dict[str, Any] = {"input": (1, 1, 1, 1), "filter": (1, 1, 1, 1), "output": (1, 1, 1, 2)}
_FAR_WINDOWS: dict[str, Any] = {**tensors("FLOAT32", input=(1, 1, 1, 1), output=(1, 1, 1, 2)), **windows(2, **_FAR)}
_NO_OUTPUT_PADDING: dict[str, Any] = {"output_padding": (0, 0)}
_FLOATING = (ops.Convolution, ConvolutionAdd)


def _floating(
    row: type[ops.Convolution], x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], **given: tuple[int, ...]
) -> OperatorDesc:
    sizes = {"input": x, "filter": w, "output": y} | ({"addend": y} if row is ConvolutionAdd else {})
    return row(**tensors("FLOAT32", **sizes), **windows(2, **given), **_NO_OUTPUT_PADDING)


def _roi_align(edge: int, least: int) -> OperatorDesc:
    return ops.RoiAlign1(
        **tensors("FLOAT32", input=(1, 1, edge, edge), roi=(1, 4), output=(1, 1, 1, 1)),
        **tensors("UINT32", batch_indices=(1,)),
        minimum_samples_per_output=least,
        maximum_samples_per_output=2**32 - 1,
        reduction_function=ReduceFunction.AVERAGE,
        interpolation_mode=InterpolationMode.LINEAR,
    )


def _roi_align_gradient(regions: int, least: int) -> OperatorDesc:
    return ops.RoiAlignGrad(
        **tensors("FLOAT32", input_gradient=(regions, 1, 16, 16), roi=(regions, 4), output_gradient=(1, 1, 32, 32)),
        **tensors("UINT32", batch_indices=(regions,)),
        minimum_samples_per_output=least,
    )


def _resample_gradient(width: int, gradients: int, scale: float) -> OperatorDesc:
    return ops.ResampleGrad1(
        **tensors("FLOAT32", input_gradient=(1, 1, 1, gradients), output_gradient=(1, 1, 1, width)),
        interpolation_mode=InterpolationMode.LINEAR,
        scales=(1.0, 1.0, 1.0, scale),
        input_pixel_offsets=(0.5,) * 4,
        output_pixel_offsets=(-0.5,) * 4,
    )


def _weights(scale: float, filter_scale: float) -> OperatorDesc:
    return ResampleWeights(
        **tensors("FLOAT32", output=(2, 4)),
        scale=scale,
        input_pixel_offset=0.5,
        output_pixel_offset=-0.5,
        filter_scale=filter_scale,
        cubic=True,
        coefficient=-0.75,
        inside_only=False,
        normalized=True,
    )


def _suppression(boxes: int) -> OperatorDesc:
    return NonMaxSuppression(
        **tensors("FLOAT32", boxes=(1, boxes, 4), scores=(1, 1, boxes), overlap=(1,)),
        **tensors("INT64", most=(1,), output_rows=(boxes, 3)),
        **tensors("UINT32", output_count=(1,)),
    )


def _undilated(given: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """The attributes for a row without dilations."""
    return {name: value for name, value in given.items() if name != "dilations"}


MET: list[tuple[Limitation, OperatorDesc]] = [
    (
        LOOP_ROUNDS,
        ops.MultiheadAttention1(
            **tensors("FLOAT16", query=(1, 1, 8), key=(1, _DEEP, 8), value=(1, _DEEP, 8), output=(1, 1, 8)),
            query_head_count=1,
            key_value_head_count=1,
            scale=1.0,
        ),
    ),
    *((LOOP_ROUNDS, _floating(row, (1, _DEEP, 4, 4), (1, _DEEP, 3, 3), (1, 1, 2, 2))) for row in _FLOATING),
    *((POSITIONS, _floating(row, (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 2), **_FAR)) for row in _FLOATING),
    *((LOOP_ROUNDS, _integer(row, **_PRODUCT)) for row in _PRODUCTS),
    *((LOOP_ROUNDS, _integer(row, **_DEEP_IMAGES, **windows(2))) for row in _CONVOLUTIONS),
    *((POSITIONS, _integer(row, **_FAR_IMAGES, **windows(2, **_FAR))) for row in _CONVOLUTIONS),
    (
        LOOP_ROUNDS,
        BlockQuantizedGemm(
            **tensors("FLOAT16", input=(1, 2**27), output=(1, 1)),
            weight_tensor=TensorDesc(TensorDataType.UINT8, (1, BlockFormat.Q4_0.row_bytes(2**27))),
            format=BlockFormat.Q4_0,
        ),
    ),
    (
        LOOP_ROUNDS,
        NormalizedBlockGemm(
            **tensors("FLOAT16", input=(1, 2**27), norm_scale=(2**27,), output=(1, 1)),
            weight_tensor=TensorDesc(TensorDataType.UINT8, (1, BlockFormat.Q4_0.row_bytes(2**27))),
            format=BlockFormat.Q4_0,
            epsilon=0.0,
        ),
    ),
    (
        LOOP_ROUNDS,
        NormalizedGemm(
            **tensors("FLOAT32", input=(64, 2**20), b=(2**20, 64), norm_scale=(2**20,), output=(64, 64)),
            epsilon=0.0,
        ),
    ),
    (LOOP_ROUNDS, FormatGemm(**tensors("UINT16", a=(64, 2**20), b=(2**20, 64), output=(64, 64)))),
    (LOOP_ROUNDS, ops.Gemm(**tensors("FLOAT32", a=(64, 2**20), b=(2**20, 64), output=(64, 64)))),
    (
        LOOP_ROUNDS,
        GemmNormalization(**tensors("FLOAT32", a=(64, 2**20), b=(2**20, 64), output=(64, 64)), epsilon=1e-5),
    ),
    (LOOP_ROUNDS, GemmAdd(**tensors("FLOAT32", a=(64, 2**20), b=(2**20, 64), addend=(64, 64), output=(64, 64)))),
    (LOOP_ROUNDS, GemmGate(**tensors("FLOAT32", a=(64, 2**20), b=(2**20, 64), output=(64, 32)), gate=Gate.SILU)),
    *(
        (LOOP_ROUNDS, _recurrent(row, gates, functions))
        for row, gates, functions in ((ops.Rnn, 1, 1), (ops.Gru, 3, 2), (ops.Lstm, 4, 3))
    ),
    (
        LOOP_ROUNDS,
        ops.LocalResponseNormalization(
            **tensors("FLOAT32", input=(1, 1, 400, 400), output=(1, 1, 400, 400)), cross_channel=False, local_size=300
        ),
    ),
    (
        LOOP_ROUNDS,
        ops.QuantizedLinearAveragePooling(
            **tensors("UINT8", input=(1, 1, 1024, 1024), output=(1, 1, 1, 1)),
            **_SCALES,
            **windows(2),
            window_size=(1024, 1024),
        ),
    ),
    (
        POSITIONS,
        ops.QuantizedLinearAveragePooling(
            **tensors("UINT8", input=(1, 1, 1, 1), output=(1, 1, 1, 2)), **_SCALES, **windows(2, **_FAR), window_size=(1, 1)
        ),
    ),
    *(
        (POSITIONS, row(**_FAR_WINDOWS, window_size=(1, 1), **own))
        for row, own in (
            (ops.AveragePooling1, {"include_padding": True}),
            (ops.LpPooling1, {"p": 2}),
            (ops.MaxPooling2, {}),
        )
    ),
    (
        LOOP_ROUNDS,
        ops.Fold(
            **tensors("FLOAT16", input=(1, 46_000, 46_000), output=(1, 1, 91_999, 1, 1)),
            **windows(3, strides=(1, 2, 2), start_padding=(0, 1, 1)),
            window_sizes=(46_000, 1, 1),
        ),
    ),
    (
        POSITIONS,
        ops.Fold(**tensors("FLOAT32", input=(1, 1, 2), output=(1, 1, 1, 1)), **windows(2, **_FAR), window_sizes=(1, 1)),
    ),
    (
        POSITIONS,
        ops.Unfold(**tensors("FLOAT32", input=(1, 1, 1, 1), output=(1, 1, 2)), **windows(2, **_FAR), window_sizes=(1, 1)),
    ),
    (
        POSITIONS,
        ops.Padding1(
            **tensors("UINT8", input=(2**31 + 8,), output=(2**31 + 9,)),
            padding_mode=PaddingMode.SYMMETRIC,
            padding_value_data_type=TensorDataType.UINT8,
            padding_value=0,
            start_padding=(1,),
            end_padding=(0,),
        ),
    ),
    (
        LOOP_ROUNDS,
        ops.Resample3(
            **tensors("FLOAT32", input=(1, 1, 2048, 2048), output=(1, 1, 2, 2)),
            interpolation_mode=InterpolationMode.LINEAR,
            scales=(1.0, 1.0, 2**-10, 2**-10),
            input_pixel_offsets=(0.5,) * 4,
            output_pixel_offsets=(-0.5,) * 4,
            antialiased=True,
        ),
    ),
    (
        POSITIONS,
        ops.Resample3(
            **tensors("FLOAT32", input=(1, 1, 4, 4), output=(1, 1, 2, 2)),
            interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
            scales=(1.0, 1.0, 1.0, 2.0**-32),
            input_pixel_offsets=(0.5,) * 4,
            output_pixel_offsets=(-0.5,) * 4,
        ),
    ),
    (LOOP_ROUNDS, _weights(0.5, 2.0**-16)),
    (POSITIONS, _weights(2.0**-32, 1.0)),
    (POSITIONS, _weights(0.5, 1e-40)),
    (
        LOOP_ROUNDS,
        ops.RoiPooling(
            **tensors("FLOAT32", input=(1, 1, 1024, 1024), roi=(1, 1, 1, 5), output=(1, 1, 2, 2)),
            pooled_size=Size2D(2, 2),
            spatial_scale=1.0,
        ),
    ),
    (LOOP_ROUNDS, _suppression(2**21)),
    (LOOP_ROUNDS, _roi_align(1024, 1)),
    (SAMPLES, _roi_align(8, 1025)),
    (LOOP_ROUNDS, _roi_align_gradient(4096, 1)),
    (SAMPLES, _roi_align_gradient(1, 1025)),
    (
        LOOP_ROUNDS,
        ops.LocalResponseNormalizationGrad(
            **tensors("FLOAT32", **dict.fromkeys(("input", "input_gradient", "output_gradient"), (1, 1, 400, 400))),
            cross_channel=False,
            local_size=300,
        ),
    ),
    (LOOP_ROUNDS, _resample_gradient(1, 2**20, 2.0**20)),
    (POSITIONS, _resample_gradient(4, 2, 2.0**-32)),
    (
        LOOP_ROUNDS,
        ops.AveragePoolingGrad(
            **tensors("FLOAT32", input_gradient=(1, 1, 400, 400), output_gradient=(1, 1, 799, 799)),
            **_undilated(windows(2)),
            window_size=(400, 400),
        ),
    ),
    (
        LOOP_ROUNDS,
        ops.MaxPoolingGrad(
            **tensors("FLOAT32", input=(1, 1, 799, 799), input_gradient=(1, 1, 400, 400), output_gradient=(1, 1, 799, 799)),
            **windows(2),
            window_size=(400, 400),
        ),
    ),
    (
        POSITIONS,
        ops.AveragePoolingGrad(
            **tensors("FLOAT32", input_gradient=(1, 1, 1, 2), output_gradient=(1, 1, 1, 1)),
            **_undilated(windows(2, **_FAR)),
            window_size=(1, 1),
        ),
    ),
    (
        POSITIONS,
        ops.MaxPoolingGrad(
            **tensors("FLOAT32", input=(1, 1, 1, 1), input_gradient=(1, 1, 1, 2), output_gradient=(1, 1, 1, 1)),
            **windows(2, **_FAR),
            window_size=(1, 1),
        ),
    ),
    (
        LOOP_ROUNDS,
        CachedAttention(
            **tensors("FLOAT32", query=(1, 1, 1, 3), key=(1, 1, 1, 3), value=(1, 1, 1, 3), output=(1, 1, 1, 3)),
            **tensors("FLOAT32", cache_key=(1, 1, 2**27, 3), cache_value=(1, 1, 2**27, 3)),
            **tensors("INT32", lengths=(1,)),
            scale=1.0,
        ),
    ),
    (
        LOOP_ROUNDS,
        RootMeanSquare(**tensors("FLOAT32", input=(2**27,), output=(2**27,)), epsilon=1e-5),
    ),
]
"""A desc that meets each limitation on a CPU, but for those of every operator."""


@pytest.mark.parametrize(("expected", "desc"), MET, ids=lambda item: getattr(item, "name", type(item).__name__))
def test_a_limitation_is_raised_and_listed(expected: Limitation, desc: OperatorDesc) -> None:
    desc.validate()
    with pytest.raises(UnsupportedError) as caught:
        lower(desc, CPU if expected is LOOP_ROUNDS else GPU)
    assert caught.value.limitation == expected.name
    assert expected in limitations_of(type(desc))
    if expected is LOOP_ROUNDS:
        lower(desc, GPU)


def test_every_listed_limitation_is_met() -> None:
    """A limitation that no desc meets would be a fiction, and one that is no longer met should go."""
    listed = {(row, found.name) for row, lowering in LOWERINGS.items() for found in lowering.limitations}
    assert listed == {(type(desc), found.name) for found, desc in MET}
    assert not any(found in EVERY_OPERATOR for lowering in LOWERINGS.values() for found in lowering.limitations)


@pytest.mark.parametrize(
    ("name", "change", "desc"),
    [
        ("features", {"features": SUBGROUPS}, ops.ActivationRelu(**tensors("FLOAT16", input=(4,), output=(4,)))),
        (
            "storage_binding",
            {"storage_buffer_bytes": 2**20},
            ops.ActivationSoftmax1(**tensors("FLOAT32", input=(2**20,), output=(2**20,)), axes=(0,)),
        ),
        (
            "workgroups",
            {"workgroup_counts": (2, 2, 2)},
            ops.ActivationRelu(**tensors("FLOAT32", input=(2**20,), output=(2**20,))),
        ),
    ],
)
def test_limitations_of_every_operator(name: str, change: dict[str, Any], desc: OperatorDesc) -> None:
    lower(desc, GPU)
    with pytest.raises(UnsupportedError) as caught:
        lower(desc, dataclasses.replace(GPU, **change))
    assert caught.value.limitation == name
    assert name in {limitation.name for limitation in EVERY_OPERATOR}


def far(data_type: str, *sizes: int) -> TensorDesc:
    """A tensor whose last elements lie 2**31 apart."""
    return TensorDesc(TensorDataType[data_type], sizes, (*packed_strides(sizes)[:-1], 2**31))


@pytest.mark.parametrize(
    ("name", "desc"),
    [
        *(
            ("launches", _recurrent(row, gates, functions, steps=2**14 + 1, inputs=1, hidden=4096))
            for row, gates, functions in ((ops.Rnn, 1, 1), (ops.Gru, 3, 2), (ops.Lstm, 4, 3))
        ),
        ("launches", ops.ActivationTanh(input_tensor=far("FLOAT16", 3, 2**20), **tensors("FLOAT16", output=(3, 2**20)))),
        ("launches", ops.ElementWiseIdentity(input_tensor=far("UINT8", 3, 2**20), **tensors("UINT8", output=(3, 2**20)))),
        (
            "storage_binding",
            ops.Gather(
                input_tensor=far("UINT16", 2, 5),
                **tensors("INT64", indices=(1, 3)),
                **tensors("UINT16", output=(3, 5)),
                axis=0,
                index_dimensions=1,
            ),
        ),
    ],
    ids=lambda item: getattr(item, "name", type(item).__name__),
)
def test_what_reaches_too_far_is_refused_at_once(name: str, desc: OperatorDesc) -> None:
    """Neither are millions of parts made, nor numbers that parameters have no room for."""
    desc.validate()
    with pytest.raises(UnsupportedError) as caught:
        lower(desc, GPU)
    assert caught.value.limitation == name


def test_a_table_larger_than_a_binding_is_a_limitation_too() -> None:
    caps = dataclasses.replace(GPU, storage_buffer_bytes=2**20)
    values = tensors("UINT8", input=(1, 2**19), output_value=(1, 2**17))
    desc = ops.TopK1(**values, **tensors("UINT32", output_index=(1, 2**17)), axis=1, k=2**17)
    with pytest.raises(UnsupportedError, match="needs a table of 2097152 bytes") as caught:
        lower(desc, caps)
    assert caught.value.limitation == "storage_binding"


def test_kernels_refuse_nothing_but_what_is_declared() -> None:
    """No UnsupportedError is made in ``dmlvk.kernels`` but by a Limitation, or where an operator has no kernel at all."""
    root = pathlib.Path(limitation.__file__).parent.parent
    allowed = {pathlib.Path(limitation.__file__): 1, pathlib.Path(lowering.__file__): 1}
    for path in root.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        made = sum(isinstance(called, ast.Name) and called.id == "UnsupportedError" for called in calls)
        assert made == allowed.get(path, 0), path


def missing_features(desc: OperatorDesc, caps: Capabilities) -> frozenset[str]:
    """The device features that a desc needs and a device lacks, found by lowering it."""
    missing: frozenset[str] = frozenset()
    while True:
        own = dataclasses.replace(caps, features=caps.features | missing)
        try:
            check_data_types(desc, own)
            lower(desc, own)
        except UnsupportedError as error:
            if not error.features:
                raise
            missing |= frozenset(error.features)
        else:
            return missing


def found_missing(entry: OperatorCases, caps: Capabilities) -> dict[TensorDataType, frozenset[str]]:
    """The fewest features that a case lacks, for each data type of an operator's cases.

    A case is called after the type of its first tensors; others may have types of their own, such as the conditions of an
    ElementWiseIf, so the case that takes least speaks for a data type.
    """
    found: dict[TensorDataType, frozenset[str]] = {}
    for case in sorted(entry.cases, key=lambda case: not case.quick):
        for data_type in case.only or entry.crossed_types:
            known = found.get(data_type)
            if known is None or known:
                missing = missing_features(build(entry.operator, Variation(case, data_type, "packed")).desc, caps)
                found[data_type] = missing if known is None else min(known, missing, key=len)
    return found


DEVICES = [frozenset(), SUBGROUPS, frozenset({"storage8", "storage16"}), SUBGROUPS | {"storage16", "int64"}, FEATURES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", sorted(filter(has_kernels, REGISTRY.values()), key=lambda row: row.type), ids=lambda row: row.__name__
)
def test_what_a_device_lacks_is_what_lowering_finds(row: type[OperatorDesc]) -> None:
    """What is declared of data types is what lowering the cases finds: no more, and of the newest re-issue no less, whose
    cases have every kernel."""
    assert unsupported_types(row, GPU) == {}
    for features in DEVICES:
        caps = Capabilities(features=features)
        declared = unsupported_types(row, caps)
        for data_type, found in found_missing(all_cases()[row], caps).items():
            lacking = declared.get(data_type, frozenset())
            assert lacking <= found, data_type
            assert lacking == found or row is not lowered_as(row), data_type
    assert limitations_of(row) == limitations_of(lowered_as(row))
