"""What the runner's cases cannot show of the fills: calls without input tensors, exact bits, numpy as a second oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, eager
from dmlvk.engine.numpy_types import dtype_of
from dmlvk.kernels.lowering import lower


def test_a_fill_needs_sizes_and_nothing_else(device: dmlvk.Device) -> None:
    filled = eager.fill_value_constant(output_sizes=(2, 3), value_data_type=TensorDataType.INT16, value=-7)
    assert filled.dtype == np.int16
    np.testing.assert_array_equal(filled, np.full((2, 3), -7))
    with pytest.raises(InvalidArgumentError, match=r"FILL_VALUE_CONSTANT\.OutputTensor"):
        eager.fill_value_constant(value_data_type=TensorDataType.INT16, value=-7)
    with pytest.raises(InvalidArgumentError, match=r"FILL_VALUE_CONSTANT\.Value\b.*40000"):
        eager.fill_value_constant(output_sizes=(2,), value_data_type=TensorDataType.INT16, value=40000)
    with pytest.raises(InvalidArgumentError, match=r"DIAGONAL_MATRIX\.output_data_types"):
        eager.diagonal_matrix(output_sizes=(3, 3))
    with pytest.raises(InvalidArgumentError, match=r"DIAGONAL_MATRIX1\.OutputTensor"):
        eager.diagonal_matrix1(value_data_type=TensorDataType.FLOAT32, value=1)


@pytest.mark.parametrize(
    ("data_type", "value", "bits"),
    [
        (TensorDataType.FLOAT64, -0.0, 1 << 63),
        (TensorDataType.FLOAT64, 5e-324, 1),
        (TensorDataType.FLOAT32, -0.0, 1 << 31),
        (TensorDataType.FLOAT32, 1e-45, 1),
        (TensorDataType.FLOAT32, math.nan, 0x7FC00000),
        (TensorDataType.FLOAT16, 6e-8, 1),
        (TensorDataType.FLOAT16, 1 + 2.0**-11, 0x3C00),
        (TensorDataType.FLOAT16, -65520.0, 0xFC00),
        (TensorDataType.INT64, -(2**63), 1 << 63),
        (TensorDataType.UINT64, 2**64 - 2, 2**64 - 2),
    ],
)
def test_a_constant_keeps_its_bits(device: dmlvk.Device, data_type: TensorDataType, value: float, bits: int) -> None:
    filled = eager.fill_value_constant(output_sizes=(21,), value_data_type=data_type, value=value)
    assert set(filled.view(f"u{filled.itemsize}").tolist()) == {bits}


def test_long_sequences_are_numpys(device: dmlvk.Device) -> None:
    count = 3_000_017
    kinds = {TensorDataType.INT64: (-(2**62), 0x123456789ABC), TensorDataType.UINT16: (65000, -3)}
    for data_type, (start, delta) in kinds.items():
        found = eager.fill_value_sequence(
            output_sizes=(count,), value_data_type=data_type, value_start=start, value_delta=delta
        )
        wide = (start + np.arange(count, dtype=object) * delta) % 2 ** (8 * found.itemsize)
        np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), wide.astype(f"u{found.itemsize}"))
    found = eager.fill_value_sequence(
        output_sizes=(count,), value_data_type=TensorDataType.FLOAT32, value_start=0.1, value_delta=1 / 3
    )
    expected = np.float32(0.1) + np.arange(count).astype(np.float32) * np.float32(1 / 3)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.int64])
def test_sequences_are_onnxs_range(device: dmlvk.Device, kind: type[np.generic]) -> None:
    start, limit, delta = (np.array(value, kind) for value in (-9, 1500, 7))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    names = ("start", "limit", "delta")
    graph = helper.make_graph(
        [helper.make_node("Range", names, ["y"])],
        "range",
        [helper.make_tensor_value_info(name, element, ()) for name in names],
        [helper.make_tensor_value_info("y", element, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    (expected,) = ReferenceEvaluator(model).run(None, dict(zip(names, (start, limit, delta), strict=True)))
    data_type = next(kind_ for kind_ in dmlvk.FillValueSequence.fields[0].data_types if dtype_of(kind_) == kind)
    found = eager.fill_value_sequence(
        output_sizes=expected.shape, value_data_type=data_type, value_start=start.item(), value_delta=delta.item()
    )
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_is_onnxs(device: dmlvk.Device, axis: int) -> None:
    rng = np.random.default_rng(axis + 1)
    depth = 6
    indices = rng.integers(-depth, depth, (4, 5))
    values = np.array([2.5, -1.0], np.float32)
    graph = helper.make_graph(
        [helper.make_node("OneHot", ["indices", "depth", "values"], ["y"], axis=axis)],
        "one_hot",
        [
            helper.make_tensor_value_info("indices", TensorProto.INT64, indices.shape),
            helper.make_tensor_value_info("depth", TensorProto.INT64, ()),
            helper.make_tensor_value_info("values", TensorProto.FLOAT, (2,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    feeds = {"indices": indices, "depth": np.array(depth), "values": values}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    found = eager.one_hot(np.expand_dims(indices, axis), values.reshape(1, 1, 2), axis=axis % 3, output_sizes=expected.shape)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("offset", [-(2**31), -7, -1, 0, 3, 9, 2**31 - 1])
def test_diagonals_are_numpys(device: dmlvk.Device, offset: int) -> None:
    options = {"output_sizes": (5, 9), "output_data_types": TensorDataType.INT8}
    found = eager.diagonal_matrix(offset=offset, value=-3.9, **options)
    np.testing.assert_array_equal(found, np.eye(5, 9, k=offset, dtype=np.int8) * np.int8(-3))


def test_triangles_are_numpys(device: dmlvk.Device) -> None:
    matrix = np.random.default_rng(3).integers(-99, 99, (3, 6, 11))
    options = {"value_data_type": TensorDataType.INT64, "value": 0}
    upper = eager.diagonal_matrix1(matrix, diagonal_fill_begin=-(2**31), diagonal_fill_end=2, **options)
    np.testing.assert_array_equal(upper, np.triu(matrix, 2))
    lower_part = eager.diagonal_matrix1(
        matrix.transpose(0, 2, 1), diagonal_fill_begin=1, diagonal_fill_end=2**31 - 1, **options
    )
    np.testing.assert_array_equal(lower_part, np.tril(matrix.transpose(0, 2, 1)))


def test_a_fill_is_one_dispatch_that_writes_words(device: dmlvk.Device) -> None:
    tensor = dmlvk.TensorDesc(TensorDataType.FLOAT16, (1024, 1024))
    desc = dmlvk.FillValueConstant(output_tensor=tensor, value_data_type=TensorDataType.FLOAT16, value=1)
    (dispatch,) = lower(desc, device.capabilities).dispatches
    assert dict(dispatch.kernel.variant)["WORDS"] == "1"
