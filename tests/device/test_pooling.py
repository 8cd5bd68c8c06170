"""Pooling against oracles of others: the specification's figures, ONNX Runtime, ONNX's reference and PyTorch; and random
windows against our own."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import onnxruntime
import pytest
from crossed import crossed
from drawing import draw_tensor, examples
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk import TensorDataType, TensorDesc, eager
from dmlvk.kernels.lowering import possible_rules
from dmlvk.kernels.pooling import lowering as pooling
from dmlvk.onnx import InferenceSession
from dmlvk.spec import ops
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, normal, special
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check, check_problem

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


@pytest.mark.parametrize(
    ("geometry", "order"), crossed([name for name in GEOMETRIES if "rounded" not in name], [1, 2, 3, 7])
)
def test_norm_agrees_with_onnx(device: dmlvk.Device, geometry: str, order: int) -> None:
    sizes, attributes = GEOMETRIES[geometry]
    x = np.random.default_rng(5).standard_normal(sizes).astype(np.float32)
    (expected,) = onnx_pool("LpPool", x, 1, **attributes, p=order)
    found = eager.lp_pooling1(x, **operator_attributes(attributes), p=order, device=device)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_norm_agrees_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.random.default_rng(6).random((2, 5, 13, 17), np.float32)  # positive: PyTorch's odd powers keep the sign
    for order in (1, 2, 5):
        expected = torch.nn.functional.lp_pool2d(torch.from_numpy(x), order, (4, 3), (3, 2)).numpy()
        none = {"start_padding": (0, 0), "end_padding": (0, 0), "dilations": (1, 1)}
        found = eager.lp_pooling1(x, window_size=(4, 3), strides=(3, 2), **none, p=order, device=device)
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_norms_do_not_overflow_on_the_way(device: dmlvk.Device) -> None:
    x = np.full((1, 1, 4, 4), 3e38, np.float32)
    x[0, 0, 0, :2] = 4e-30, -3e-30
    x[0, 0, 1, :2] = 0
    whole = {"strides": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0), "dilations": (1, 1)}
    (small, large) = (
        eager.lp_pooling1(part, window_size=part.shape[2:], p=2, **whole, device=device).item()
        for part in (x[:, :, :2, :2].copy(), x[:, :, 2:3, 2:3].copy())
    )
    assert small == pytest.approx(5e-30, rel=1e-6)
    assert large == np.float32(3e38)


@pytest.mark.parametrize("source", [np.int8, np.uint8])
@pytest.mark.parametrize("geometry", [name for name in GEOMETRIES if name not in ("dilated", "volume")])
@pytest.mark.parametrize("include_padding", [False, True])
def test_quantized_average_agrees_with_onnx_runtime(
    device: dmlvk.Device, geometry: str, include_padding: bool, source: type
) -> None:
    """ONNX Runtime rounds numbers to float32 before it averages them, so these are scales without means close to a half; and
    with sizes rounded up it divides by the whole window, unlike its own AveragePool."""
    sizes, attributes = GEOMETRIES[geometry]
    if include_padding and "ceil_mode" in attributes:
        attributes = {name: value for name, value in attributes.items() if name != "ceil_mode"}
    info = np.iinfo(source)
    x = np.random.default_rng(7).integers(info.min, info.max, sizes, source, endpoint=True)
    numbers = {"scale": np.float32(0.0317), "zero": source(7), "new_scale": np.float32(0.0171), "new_zero": source(-3 % 100)}
    node = helper.make_node(
        "QLinearAveragePool",
        ["x", *numbers],
        ["y"],
        domain="com.microsoft",
        count_include_pad=int(include_padding),
        **attributes,
    )
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "quantized",
        [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    found = eager.quantized_linear_average_pooling(
        x,
        *(np.array([value]) for value in numbers.values()),
        **operator_attributes(attributes),
        include_padding=include_padding,
        output_sizes=expected.shape,
        device=device,
    )
    np.testing.assert_array_equal(found, expected)
    (of_the_model,) = InferenceSession(model, device=device).run(None, {"x": x})
    np.testing.assert_array_equal(of_the_model, found)


def test_a_quantized_mean_halfway_rounds_to_even(device: dmlvk.Device) -> None:
    x = np.array([[[[1, 2, 3, 4, 6, 7]]]], np.uint8)  # means 1.5, 3.5, 6.5
    one = np.ones(1, np.float32)
    found = eager.quantized_linear_average_pooling(
        x,
        one,
        None,
        one,
        None,
        window_size=(1, 2),
        strides=(1, 2),
        start_padding=(0, 0),
        end_padding=(0, 0),
        dilations=(1, 1),
        output_data_types=(TensorDataType.UINT8,),
        device=device,
    )
    np.testing.assert_array_equal(found, [[[[2, 4, 6]]]])


def test_unpooling_inverts_the_maximum(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.random.default_rng(8).standard_normal((2, 3, 8, 10)).astype(np.float32)
    values, positions = torch.nn.functional.max_pool2d(torch.from_numpy(x), 2, 2, return_indices=True)
    expected = torch.nn.functional.max_unpool2d(values, positions, 2, 2).numpy()
    planes = np.arange(6).reshape(2, 3, 1, 1) * 80  # PyTorch counts within a plane
    indices = (positions.numpy() + planes).astype(np.uint32)
    found = eager.max_unpooling(values.numpy(), indices, output_sizes=x.shape, device=device)
    np.testing.assert_array_equal(found, expected)


def test_unpooling_agrees_with_the_reference(device: dmlvk.Device) -> None:
    """The last of several elements with one index stays."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((1, 2, 6, 5)).astype(np.float32)
    indices = rng.integers(0, 240, x.shape)
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=(2, 2), strides=(2, 2))
    infos = [helper.make_tensor_value_info(name, kind, x.shape) for name, kind in (("x", 1), ("i", 7))]
    graph = helper.make_graph([node], "unpool", infos, [helper.make_tensor_value_info("y", 1, (1, 2, 12, 10))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "i": indices})
    assert len(np.unique(indices)) < indices.size
    found = eager.max_unpooling(x, indices.astype(np.uint64), output_sizes=expected.shape, device=device)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("data_type", [TensorDataType.INT8, TensorDataType.FLOAT16], ids=lambda kind: kind.name)
def test_unpooling_in_parts(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, data_type: TensorDataType) -> None:
    """A binding that just holds the tensors holds the table of a part of a narrow output only."""
    entry = all_cases()[ops.MaxUnpooling]
    parts = []
    for case in entry.cases:
        variation = Variation(case, data_type, "packed")
        slots = [*(desc := build(ops.MaxUnpooling, variation).desc).input_slots(), *desc.output_slots()]
        most = max(slot.tensor.total_tensor_size_in_bytes for slot in slots if slot.tensor is not None)
        with monkeypatch.context() as patch:
            patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, storage_buffer_bytes=most))
            outcome = check(device, entry, variation)
        assert outcome.passed and not outcome.unsupported, (case.name, outcome.detail)
        parts.append(outcome.dispatches // 3)
    assert max(parts) > 1


# -- random windows

TYPES = {
    ops.AveragePooling1: (TensorDataType.FLOAT32, TensorDataType.FLOAT16),
    ops.MaxPooling2: (TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.INT8, TensorDataType.UINT16),
}
# Sizes in groups of lanes and not; few windows, because each is a pipeline of its own.
SIZES = st.sampled_from([1, 4, 7, 8, 9, 16, 24])
PLANES = st.sampled_from([((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 4), (3, 1)), ((1, 3), (2, 4)), ((5, 1), (1, 2))])
PADDINGS = st.sampled_from([(1, 1), (1, 1), (0, 0), (2, 1), (3, 5)])


def channels_last(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [0] * len(sizes), 1
    for axis in (1, *reversed(range(2, len(sizes))), 0):
        strides[axis] = step
        step *= sizes[axis]
    return tuple(strides)


@examples(15)
@given(data=st.data())
def test_random_windows(device: dmlvk.Device, data: st.DataObject) -> None:
    """Small windows with any padding, in any layout, with several rows an invocation as on a large GPU."""
    draw = data.draw
    row = draw(st.sampled_from(list(TYPES)))
    window, strides = draw(PLANES)
    start, end = draw(PADDINGS), draw(PADDINGS)
    spatial, dilations = (draw(SIZES), draw(SIZES)), (1, 1)
    if draw(st.integers(0, 4)) == 0:
        window, strides, dilations = (2, *window), (draw(st.integers(1, 2)), *strides), (draw(st.integers(1, 2)), 1, 1)
        spatial, start, end = (draw(st.integers(3, 5)), *spatial), (draw(st.integers(0, 2)), *start), (0, *end)
    rooms = [
        size + a + b - (taps - 1) * gap - 1
        for size, a, b, taps, gap in zip(spatial, start, end, window, dilations, strict=True)
    ]
    assume(min(rooms) >= 0)
    up = draw(st.booleans())
    counts = tuple((-(-room // step) if up else room // step) + 1 for room, step in zip(rooms, strides, strict=True))
    head = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 8, 16])))
    outputs = {"output_tensor": (*head, *counts)}
    index_type = draw(st.sampled_from([None, TensorDataType.UINT32, TensorDataType.UINT64]))
    arrays = {"window_size": window, "strides": strides, "dilations": dilations}
    attributes: dict[str, object] = {**arrays, "start_padding": start, "end_padding": end}
    if row is ops.AveragePooling1:
        attributes["include_padding"] = draw(st.booleans())
    elif index_type is not None:
        outputs["output_indices_tensor"] = (*head, *counts)
    case = Case(
        f"random {draw(st.integers(0, 2**32))}",
        inputs={"input_tensor": (*head, *spatial)},
        attributes=attributes,
        outputs=outputs,
        data_types={} if index_type is None else {"output_indices_tensor": index_type},
        domains={"": normal if row is ops.AveragePooling1 else draw(st.sampled_from([normal, special]))},
    )

    def place(
        data_type: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool
    ) -> GuardedTensor:
        how = draw(st.sampled_from(["packed", "packed", "NHWC", "NHWC", "any"]))
        if how == "any":
            return draw_tensor(draw, data_type, sizes, is_output=is_output)
        strides = channels_last(sizes) if how == "NHWC" else None
        return GuardedTensor(TensorDesc(data_type, sizes, strides), 16 * draw(st.integers(0, 3)))

    variation = Variation(case, draw(st.sampled_from(TYPES[row])), "packed")
    problem = build(row, variation, place)
    rule = draw(st.sampled_from(["lanes", "lanes", "lanes", *possible_rules(problem.desc, device.capabilities)]))
    rows = draw(st.sampled_from([1, 2, 4]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "_rows_each", lambda *problem: rows)
        outcome = check_problem(device, all_cases()[row], dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.operator}, {rows} rows, {outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported


@pytest.mark.parametrize("order", [100, 2**29, 2**31 - 2, 2**31 - 1, 2**32 - 1])
def test_a_norm_of_a_high_order_is_the_largest_element(device: dmlvk.Device, order: int) -> None:
    """Or a little more: the sum of n elements that are nearly as large is up to n ** (1 / order) of it."""
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 9)).astype(np.float32)
    window = {"strides": (1, 1), "window_size": (3, 3), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
    found = eager.lp_pooling1(x, **window, p=order, device=device)
    windows = np.abs(np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3)))
    largest = windows.max(axis=(-2, -1))
    sums = ((windows / largest[..., None, None]) ** order).sum(axis=(-2, -1))
    np.testing.assert_allclose(found, largest * sums ** (1 / order), rtol=3e-7)
