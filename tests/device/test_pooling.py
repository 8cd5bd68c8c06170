"""Pooling against oracles of others: the specification's figures, ONNX Runtime and PyTorch."""

from __future__ import annotations

import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dmlvk
from dmlvk import TensorDataType, eager

Array = NDArray[Any]
EXAMPLES = json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]


def example(name: str) -> dict[str, Any]:
    return next(entry for entry in EXAMPLES if entry["id"] == name)  # type: ignore[no-any-return]


def tensor(entry: dict[str, Any], name: str) -> Array:
    found = (entry["inputs"] | entry["outputs"])[name]
    return np.array(found["data"], np.dtype(found["dtype"].lower())).reshape(found["sizes"])


def spatial(entry: dict[str, Any], *names: str) -> dict[str, tuple[int, ...]]:
    fields = {"Strides": "strides", "WindowSize": "window_size", "StartPadding": "start_padding"}
    fields |= {"EndPadding": "end_padding", "Dilations": "dilations"}
    return {field: tuple(entry["params"][name]) for name, field in fields.items() if name in entry["params"]}


def test_the_specifications_average(device: dmlvk.Device) -> None:
    entry = example("average_pooling_1")
    found = eager.average_pooling(tensor(entry, "InputTensor"), **spatial(entry), include_padding=False, device=device)
    np.testing.assert_array_equal(found, tensor(entry, "OutputTensor"))


@pytest.mark.parametrize("index_type", [TensorDataType.UINT32, TensorDataType.UINT64])
def test_the_specifications_maximum(device: dmlvk.Device, index_type: TensorDataType) -> None:
    entry = example("max_pooling2_1")
    value, index = eager.max_pooling2(
        tensor(entry, "InputTensor"),
        **spatial(entry),
        outputs=("output_indices_tensor",),
        output_data_types=(TensorDataType.FLOAT32, index_type),
        device=device,
    )
    np.testing.assert_array_equal(value, tensor(entry, "OutputTensor"))
    np.testing.assert_array_equal(index, tensor(entry, "OutputIndicesTensor"))


def onnx_pool(op: str, x: Array, outputs: int, **attributes: Any) -> list[Array]:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = ["y", "indices"][:outputs]
    types = [kind, TensorProto.INT64]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, **attributes)],
        op,
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, types, strict=False)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})  # type: ignore[no-any-return]


GEOMETRIES = {
    "plain": ((2, 3, 9, 11), {"kernel_shape": (3, 2), "strides": (2, 1)}),
    "padded": ((2, 3, 9, 11), {"kernel_shape": (3, 4), "strides": (2, 3), "pads": (1, 2, 0, 1)}),
    "dilated": ((1, 2, 12, 13), {"kernel_shape": (3, 2), "dilations": (2, 3), "pads": (1, 1, 2, 0)}),
    "rounded up": ((1, 2, 8, 10), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    "rounded up, padded": ((1, 2, 7, 9), {"kernel_shape": (3, 4), "strides": (3, 2), "pads": (1,) * 4, "ceil_mode": 1}),
    "volume": ((1, 2, 5, 6, 7), {"kernel_shape": (2, 3, 2), "strides": (1, 2, 2), "pads": (0, 1, 1, 1, 0, 0)}),
}


def operator_attributes(geometry: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    window = geometry["kernel_shape"]
    rank = len(window)
    pads = geometry.get("pads", (0,) * (2 * rank))
    ones = (1,) * rank
    return {
        "window_size": window,
        "strides": geometry.get("strides", ones),
        "dilations": geometry.get("dilations", ones),
        "start_padding": pads[:rank],
        "end_padding": pads[rank:],
    }


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("include_padding", [False, True])
def test_average_agrees_with_onnx_runtime(device: dmlvk.Device, geometry: str, include_padding: bool) -> None:
    sizes, attributes = GEOMETRIES[geometry]
    x = np.random.default_rng(1).standard_normal(sizes).astype(np.float32)
    (expected,) = onnx_pool("AveragePool", x, 1, **attributes, count_include_pad=int(include_padding))
    found = eager.average_pooling1(
        x,
        **operator_attributes(attributes),
        include_padding=include_padding,
        output_sizes=expected.shape,
        device=device,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_maximum_agrees_with_onnx_runtime(device: dmlvk.Device, geometry: str) -> None:
    sizes, attributes = GEOMETRIES[geometry]
    # Few distinct values, so that windows hold equal ones and the index shows which of them counted.
    x = np.random.default_rng(2).integers(-3, 3, sizes).astype(np.float32)
    expected, indices = onnx_pool("MaxPool", x, 2, **attributes)
    found, index = eager.max_pooling2(
        x,
        **operator_attributes(attributes),
        outputs=("output_indices_tensor",),
        output_sizes=(expected.shape, expected.shape),
        output_data_types=(TensorDataType.FLOAT32, TensorDataType.UINT64),
        device=device,
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(index, indices)


@pytest.mark.parametrize("include_padding", [False, True])
def test_average_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, include_padding: bool) -> None:
    x = np.random.default_rng(3).standard_normal((2, 5, 13, 17)).astype(np.float32)
    expected = torch.nn.functional.avg_pool2d(
        torch.from_numpy(x), (4, 3), (3, 2), (2, 1), ceil_mode=True, count_include_pad=include_padding
    ).numpy()
    found = eager.average_pooling1(
        x,
        window_size=(4, 3),
        strides=(3, 2),
        dilations=(1, 1),
        start_padding=(2, 1),
        end_padding=(2, 1),
        include_padding=include_padding,
        output_sizes=expected.shape,
        device=device,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_maximum_agrees_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.random.default_rng(4).standard_normal((2, 5, 13, 17)).astype(np.float32)
    x[0, 1, 3, 4] = np.nan
    expected, indices = torch.nn.functional.max_pool2d(
        torch.from_numpy(x), (4, 3), (3, 2), (2, 1), (1, 2), return_indices=True
    )
    found, index = eager.max_pooling2(
        x,
        window_size=(4, 3),
        strides=(3, 2),
        dilations=(1, 2),
        start_padding=(2, 1),
        end_padding=(2, 1),
        outputs=("output_indices_tensor",),
        output_data_types=(TensorDataType.FLOAT32, TensorDataType.UINT32),
        device=device,
    )
    np.testing.assert_array_equal(found, expected.numpy())
    # torch counts within a plane, DirectML within the whole tensor.
    planes = np.arange(10).reshape(2, 5, 1, 1) * 13 * 17
    np.testing.assert_array_equal(index, indices.numpy() + planes)
