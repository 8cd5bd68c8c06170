"""Convolution against oracles of others: ONNX Runtime and PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compiled import assert_in_registers
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import ConvolutionDirection, ConvolutionMode, TensorDataType, TensorDesc, TensorFlags, calculate_strides, eager
from dmlvk.devices.model import H200
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.convolution import cooperative as convolution_cooperative
from dmlvk.kernels.convolution import lowering as convolution
from dmlvk.kernels.convolution import rules as convolution_rules
from dmlvk.kernels.convolution import tiles as convolution_tiles
from dmlvk.kernels.convolution import winograd as convolution_winograd
from dmlvk.kernels.convolution.matrix_tiles import MATRIX_TILES
from dmlvk.kernels.convolution.rules import TILE_SHAPES, TileChoice, WeightsBlock
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.verify.cases.convolution import CASES
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import Outcome, check, check_problem

Array = NDArray[Any]


def random(*sizes: int, key: int = 0) -> Array:
    return np.random.default_rng([key, *sizes]).standard_normal(sizes).astype(np.float32)


def assert_close(found: Array, expected: Array) -> None:
    """Two plans that sum in float32 in different orders are apart by a few ULP of the largest values."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


def onnx_convolution(op: str, operands: list[Array], **attributes: Any) -> Array:
    names = ["x", "w", "b"][: len(operands)]
    kinds = [helper.np_dtype_to_tensor_dtype(operand.dtype) for operand in operands]
    inputs = [
        helper.make_tensor_value_info(name, kind, operand.shape)
        for name, kind, operand in zip(names, kinds, operands, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", kinds[0], None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, operands, strict=True)))[0]  # type: ignore[no-any-return]


Problems = dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]
"""Sizes of x and w, and the ONNX attributes."""

FORWARD: Problems = {
    "plain": ((2, 3, 9, 11), (5, 3, 3, 2), {}),
    "strided and padded": ((2, 3, 9, 11), (5, 3, 3, 4), {"strides": (2, 3), "pads": (1, 2, 0, 1)}),
    "dilated, in groups": ((1, 6, 12, 13), (4, 3, 3, 2), {"dilations": (2, 3), "pads": (1, 1, 2, 0), "group": 2}),
    "depthwise": ((1, 8, 14, 15), (8, 1, 5, 5), {"pads": (2, 2, 2, 2), "strides": (2, 1), "group": 8}),
    "depthwise, pairs": ((2, 5, 9, 14), (5, 1, 5, 5), {"pads": (2, 2, 2, 2), "group": 5}),
    "depthwise, pairs from the one before": (
        (1, 3, 7, 18),
        (3, 1, 3, 3),
        {"pads": (1, 1, 1, 1), "strides": (1, 2), "group": 3},
    ),
    "depthwise, dilated": ((2, 3, 9, 22), (3, 1, 3, 3), {"pads": (2, 3, 2, 3), "dilations": (2, 3), "group": 3}),
    "depthwise, windows wider than a subgroup": ((1, 3, 6, 20), (3, 1, 3, 11), {"pads": (1, 5, 1, 5), "group": 3}),
    "depthwise, two outputs each": ((1, 4, 8, 10), (8, 1, 3, 3), {"pads": (1, 1, 1, 1), "group": 4}),
    "pointwise": ((1, 32, 7, 7), (48, 32, 1, 1), {}),
    "pointwise, in groups": ((3, 12, 5, 6), (20, 6, 1, 1), {"group": 2}),
    "vector": ((1, 4, 31), (3, 4, 5), {"strides": (2,), "pads": (3, 1)}),
    "volume": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"strides": (1, 2, 2), "pads": (0, 1, 1, 1, 0, 0)}),
}
BACKWARD: Problems = {
    "plain": ((2, 3, 5, 4), (3, 5, 3, 2), {}),
    "strided and padded": ((2, 3, 5, 4), (3, 5, 3, 4), {"strides": (2, 3), "pads": (1, 2, 0, 1)}),
    "dilated, in groups": ((1, 6, 5, 6), (6, 2, 3, 2), {"dilations": (2, 3), "strides": (2, 1), "group": 2}),
    "larger output": ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": (3, 2), "output_padding": (2, 1), "pads": (1, 1, 0, 1)}),
    "vector": ((1, 4, 9), (4, 3, 5), {"strides": (2,), "pads": (3, 1)}),
    "volume": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": (1, 2, 2)}),
}


def operator_attributes(rank: int, attributes: dict[str, Any]) -> dict[str, Any]:
    pads = attributes.get("pads", (0,) * (2 * rank))
    return {
        "strides": attributes.get("strides", (1,) * rank),
        "dilations": attributes.get("dilations", (1,) * rank),
        "start_padding": pads[:rank],
        "end_padding": pads[rank:],
        "output_padding": (0,) * rank,
        "group_count": attributes.get("group", 1),
    }


@pytest.mark.parametrize("name", FORWARD)
def test_forward_agrees_with_onnx_runtime(device: dmlvk.Device, name: str) -> None:
    x_sizes, w_sizes, attributes = FORWARD[name]
    x, w, bias = random(*x_sizes), random(*w_sizes), random(w_sizes[0])
    expected = onnx_convolution("Conv", [x, w, bias], **attributes)
    rank = len(x_sizes) - 2
    found = eager.convolution(
        x, w, bias.reshape(1, -1, *(1,) * rank), **operator_attributes(rank, attributes), device=device
    )
    assert_close(found, expected)


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_agrees_with_onnx_runtime(device: dmlvk.Device, name: str) -> None:
    x_sizes, w_sizes, attributes = BACKWARD[name]
    x, w = random(*x_sizes), random(*w_sizes)
    expected = onnx_convolution("ConvTranspose", [x, w], **attributes)
    found = eager.convolution(
        x,
        w,
        **operator_attributes(len(x_sizes) - 2, attributes),
        direction=ConvolutionDirection.BACKWARD,
        output_sizes=expected.shape,
        device=device,
    )
    assert_close(found, expected)


def test_backward_is_the_gradient_of_forward(device: dmlvk.Device, torch: ModuleType) -> None:
    x, w = torch.from_numpy(random(2, 4, 9, 8)).requires_grad_(), torch.from_numpy(random(6, 2, 3, 2))
    y = torch.nn.functional.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)
    gradient = random(*y.shape, key=1)
    y.backward(torch.from_numpy(gradient))
    shared = operator_attributes(2, {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 1, 0), "group": 2})
    assert_close(eager.convolution(x.detach().numpy(), w.numpy(), **shared, device=device), y.detach().numpy())
    found = eager.convolution(
        gradient,
        w.numpy(),
        **shared,
        direction=ConvolutionDirection.BACKWARD,
        output_sizes=tuple(x.shape),
        device=device,
    )
    assert_close(found, x.grad.numpy())


@pytest.mark.parametrize("direction", ConvolutionDirection)
def test_mode_convolution_reverses_the_taps(device: dmlvk.Device, direction: ConvolutionDirection) -> None:
    x, w = random(1, 3, 6, 7), random(3, 3, 2, 3)
    attributes = {**operator_attributes(2, {"strides": (1, 2)}), "direction": direction}
    reversed_taps = np.ascontiguousarray(w[..., ::-1, ::-1])
    np.testing.assert_array_equal(
        eager.convolution(x, w, **attributes, mode=ConvolutionMode.CONVOLUTION, device=device),
        eager.convolution(x, reversed_taps, **attributes, device=device),
    )


def place_for_speed(
    data_type: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool
) -> GuardedTensor:
    """Weights OWNED_BY_DML, and under the layout "NHWC" contiguous channels of the input and the output."""
    owned = turn in (1, 2) and not is_output
    count = len(sizes)
    strides = [1] * count
    for axis, inner in zip((*range(count - 2, 1, -1), 0), (*range(count - 1, 2, -1), 2), strict=True):
        strides[axis] = strides[inner] * sizes[inner]
    strides = [1 if axis == 1 else step * sizes[1] for axis, step in enumerate(strides)]
    return GuardedTensor(
        TensorDesc(
            data_type,
            sizes,
            tuple(strides) if layout == "NHWC" and not owned else None,
            flags=TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE,
        ),
        0,
    )


SPEED_CASES = (
    "1x1",
    "1x1, whole words of channels and of planes",
    "64 channels, stride 2",
    "7x7 stem, stride 2",
    "3x3, one past blocks of 4x4",
    "3x3, whole quads, groups, taps reversed",
    "depthwise 3x3, rows of whole groups",
    "depthwise 5x5, stride 2, rows of whole groups",
    "backward, groups, dilated, reversed, padded output",
)


@pytest.mark.parametrize(
    ("name", "form"),
    crossed(SPEED_CASES, itertools.product(["NCHW", "NHWC"], [TensorDataType.FLOAT32, TensorDataType.FLOAT16])),
)
def test_owned_weights_and_contiguous_channels(device: dmlvk.Device, name: str, form: tuple[str, TensorDataType]) -> None:
    entry, _ = CASES
    layout, data_type = form
    case = next(case for case in entry.cases if case.name == name)
    variation = Variation(case, data_type, layout)
    problem = build(entry.operator, variation, place_for_speed)
    for rule in set(possible_rules(problem.desc, device.capabilities)) - {"direct", "naive"}:
        outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
        assert outcome.passed, (str(outcome.variation), outcome.detail)


@pytest.mark.parametrize("name", [name for name in FORWARD if name.startswith("depthwise")] + ["channels of a volume"])
def test_neighbours_may_be_channels(device: dmlvk.Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the depthwise kernel: the same bits as where they are runs."""
    volume = (1, 7, 3, 5, 9), (7, 1, 2, 3, 3), {"pads": (1, 1, 1, 0, 1, 1), "strides": (1, 2, 1), "group": 7}
    x_sizes, w_sizes, attributes = FORWARD.get(name, volume)
    rank = len(x_sizes) - 2
    x, w, bias = random(*x_sizes), random(*w_sizes), random(1, w_sizes[0], *(1,) * rank)
    found = []
    for inside in (False, True):
        monkeypatch.setattr(convolution, "_channels_inside", lambda *_, inside=inside: inside)
        desc = dmlvk.Convolution(
            **{
                f"{field}_tensor": TensorDesc(TensorDataType.FLOAT32, array.shape)
                for field, array in (("input", x), ("filter", w), ("bias", bias))
            },
            **operator_attributes(rank, attributes),
        )
        desc = desc.replace(output_tensor=TensorDesc(TensorDataType.FLOAT32, desc.inferred_output_sizes()[0]))
        operator = ReadyOperator(device, desc, "depthwise")
        (launch,) = operator.compiled.plan.dispatches
        assert isinstance(launch, Dispatch) and dict(launch.kernel.constants)["CHANNELS_INSIDE"] == inside
        buffers = [device.create_buffer(array.nbytes) for array in (x, w, bias)]
        for buffer, array in zip(buffers, (x, w, bias), strict=True):
            buffer.write(array)
        output = device.create_buffer(desc.tensor("output_tensor").total_tensor_size_in_bytes)
        commands = device.create_command_list()
        operator.record(commands, [*map(BufferBinding, buffers)], [BufferBinding(output)])
        commands.submit()
        found.append(output.read().view(np.float32))
    assert_close(found[0], eager.convolution(x, w, bias, **operator_attributes(rank, attributes), device=device).ravel())
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "sizes",
    [
        ((32, 256, 56, 56), (256, 256, 3, 3)),
        ((4, 512, 64, 64), (512, 512, 3, 3)),
        ((2, 320, 64, 64), (320, 320, 3, 3)),
        ((32, 512, 7, 7), (512, 512, 3, 3)),
        ((16, 192, 17, 17), (192, 192, 1, 7)),
        ((8, 64, 56, 56), (256, 64, 1, 1)),
        ((1, 128, 256, 256), (3, 128, 3, 3)),
    ],
    ids=str,
)
def test_tiles_of_matrices_keep_their_sums_in_registers(
    device: dmlvk.Device, sizes: tuple[tuple[int, ...], tuple[int, ...]], layout: str
) -> None:
    """On an H200 sums in local memory take ten times as long."""
    x, w = (TensorDesc(TensorDataType.FLOAT16, own, dmlvk.calculate_strides(layout, own)) for own in sizes)
    pads = tuple(size // 2 for size in sizes[1][2:])
    desc = dmlvk.Convolution(input_tensor=x, filter_tensor=w, **operator_attributes(2, {"pads": (*pads, *pads)}))
    (own,) = desc.inferred_output_sizes()
    output = TensorDesc(TensorDataType.FLOAT16, own, dmlvk.calculate_strides(layout, own))
    assert_in_registers(device, desc.replace(output_tensor=output), "cooperative", "convolution_cooperative")


@pytest.mark.parametrize("padding", [1, 2])
def test_pairs_past_the_end_of_a_row_count_nothing(device: dmlvk.Device, padding: int) -> None:
    """Behind each row of an odd number of inputs there is NaN."""
    sizes, window = (2, 3, 5, 13), 2 * padding + 1
    whole = np.full((*sizes[:3], 14), np.nan, np.float32)
    x, w = whole[..., :13], random(3, 1, window, window)
    x[...] = random(*sizes)
    attributes = operator_attributes(2, {"pads": (padding,) * 4, "group": 3})
    desc = dmlvk.Convolution(
        input_tensor=TensorDesc(TensorDataType.FLOAT32, sizes, tuple(step // 4 for step in x.strides)),
        filter_tensor=TensorDesc(TensorDataType.FLOAT32, w.shape),
        output_tensor=TensorDesc(TensorDataType.FLOAT32, sizes),
        **attributes,
    )
    buffers = [device.create_buffer(array.nbytes) for array in (whole, w, x)]
    for buffer, array in zip(buffers, (whole, w), strict=False):
        buffer.write(array)
    operator = ReadyOperator(device, desc, "depthwise")
    commands = device.create_command_list()
    operator.record(commands, [*map(BufferBinding, buffers[:2]), None], [BufferBinding(buffers[2])])
    commands.submit()
    found = buffers[2].read().view(np.float32).reshape(sizes)
    assert_close(found, eager.convolution(np.ascontiguousarray(x), w, **attributes, device=device))


@pytest.mark.parametrize("name", ["strided and padded", "dilated, in groups", "volume", "pointwise"])
def test_several_pixels_of_an_invocation_are_the_same_bits(
    device: dmlvk.Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some pixels are behind the last one, and some channels."""
    if not device.capabilities.is_cpu:
        pytest.skip("only an invocation on a CPU has several")
    x_sizes, w_sizes, attributes = FORWARD[name]
    x, w, bias = random(*x_sizes), random(*w_sizes), random(1, w_sizes[0], *(1,) * (len(x_sizes) - 2))
    desc = dmlvk.Convolution(
        input_tensor=TensorDesc(TensorDataType.FLOAT32, x_sizes),
        filter_tensor=TensorDesc(TensorDataType.FLOAT32, w_sizes),
        bias_tensor=TensorDesc(TensorDataType.FLOAT32, bias.shape),
        **operator_attributes(len(x_sizes) - 2, attributes),
    )
    desc = desc.replace(output_tensor=TensorDesc(TensorDataType.FLOAT32, desc.inferred_output_sizes()[0]))
    buffers = [device.create_buffer(array.nbytes) for array in (x, w, bias)]
    for buffer, array in zip(buffers, (x, w, bias), strict=True):
        buffer.write(array)
    output = device.create_buffer(desc.tensor("output_tensor").total_tensor_size_in_bytes)
    found = []
    for most in (0, 8, 16, 32):
        monkeypatch.setattr(convolution, "_CPU_CHANNELS", ((0, most),))
        operator = ReadyOperator(device, desc, "direct")
        (launch,) = operator.compiled.plan.dispatches
        assert isinstance(launch, Dispatch)
        constants = dict(launch.kernel.constants)
        assert constants["PIXELS"] == (4 if most else 1)
        assert (constants["CHANNELS"] > 8) == (min(most, w_sizes[0]) > 8)
        output.write(np.full_like(output.read(), 0xFF))  # what is not written is NaN, and not what was there before
        commands = device.create_command_list()
        operator.record(commands, [*map(BufferBinding, buffers)], [BufferBinding(output)])
        commands.submit()
        found.append(output.read())
    assert np.isfinite(found[0].view(np.float32)).all()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_winograd_in_several_parts(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, _ = CASES
    case = next(case for case in entry.cases if case.name == "3x3, one past blocks of 4x4")
    monkeypatch.setattr(convolution_winograd, "_WINOGRAD_BYTES", 1)
    for layout in ("NCHW", "NHWC"):
        variation = Variation(case, TensorDataType.FLOAT32, layout, rule="winograd")
        outcome = check_problem(device, entry, variation, build(entry.operator, variation, place_for_speed))
        assert outcome.passed and outcome.dispatches == 6, (outcome.dispatches, outcome.detail)


@pytest.mark.parametrize(("shape", "name"), crossed(TILE_SHAPES, ["larger than a tile", "64 channels, stride 2"]))
def test_every_tile_shape(device: dmlvk.Device, shape: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shape gives right results, also those that no rule would choose on this device."""
    entry, _ = CASES
    monkeypatch.setattr(convolution_tiles, "decided_tiles", lambda *_, split: TileChoice(shape, 8, 2, 0.0))
    case = next(case for case in entry.cases if case.name == name)
    outcome = check(device, entry, Variation(case, TensorDataType.FLOAT32, "packed", rule="split"))
    assert outcome.passed, outcome.detail


@pytest.mark.parametrize(
    ("block", "form"),
    crossed(
        [WeightsBlock(4, 1), WeightsBlock(8, 2), WeightsBlock(16, 2), WeightsBlock(32, 1)],
        itertools.product(
            [
                "larger than a tile",
                "64 channels, stride 2",
                "3-D",
                "3x3, whole quads, groups, taps reversed",
                "backward, groups, dilated, reversed, padded output",
            ],
            ["NCHW", "NHWC"],
        ),
    ),
)
def test_every_block_of_shared_weights(
    device: dmlvk.Device, block: WeightsBlock, form: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they come in several parts, of 12 terms, the last of fewer."""
    (name, layout), (entry, _) = form, CASES
    monkeypatch.setattr(convolution, "decided_block", lambda *_: block)
    monkeypatch.setattr(convolution, "_SHARED_WEIGHTS_BYTES", 12 * 4 * block.channels)
    case = next(case for case in entry.cases if case.name == name)
    variation = Variation(case, TensorDataType.FLOAT32, layout, rule="shared_weights")
    outcome = check_problem(device, entry, variation, build(entry.operator, variation, place_for_speed))
    assert outcome.passed, outcome.detail


@pytest.mark.parametrize(("channels", "together"), [(8, 4), (6, 3), (10, 2), (5, 1)])
def test_shared_weights_read_and_write_quads_of_channels(device: dmlvk.Device, channels: int, together: int) -> None:
    """The same bits wherever channels lie."""
    x, w = random(2, channels, 9, 10), random(12, channels, 3, 3)
    found = []
    for layout in ("NCHW", "NHWC"):
        tensors = {"input": x, "filter": w}
        desc = dmlvk.Convolution(
            **{f"{field}_tensor": TensorDesc(TensorDataType.FLOAT32, array.shape) for field, array in tensors.items()},
            **operator_attributes(2, {"pads": (1, 1, 1, 1)}),
        )
        lying = TensorDesc(TensorDataType.FLOAT32, x.shape, calculate_strides(layout, x.shape))
        made = TensorDesc(TensorDataType.FLOAT32, (2, 12, 9, 10), calculate_strides(layout, (2, 12, 9, 10)))
        operator = ReadyOperator(device, desc.replace(input_tensor=lying, output_tensor=made), "shared_weights")
        (launch,) = operator.compiled.plan.dispatches
        assert isinstance(launch, Dispatch)
        constants, inside = dict(launch.kernel.constants), layout == "NHWC"
        modes = [constants[name] for name in ("TOGETHER", "X_QUADS", "Y_QUADS")]
        assert modes == [together, inside and together == 4, inside]
        axes = (0, 2, 3, 1) if inside else (0, 1, 2, 3)
        inputs = [np.ascontiguousarray(x.transpose(axes)), w]
        buffers = [device.create_buffer(array.nbytes) for array in inputs]
        for buffer, array in zip(buffers, inputs, strict=True):
            buffer.write(array)
        output = device.create_buffer(made.total_tensor_size_in_bytes)
        commands = device.create_command_list()
        operator.record(commands, [*map(BufferBinding, buffers), None], [BufferBinding(output)])
        commands.submit()
        y = output.read().view(np.float32)
        found.append(y.reshape(2, 9, 10, 12).transpose(0, 3, 1, 2) if inside else y.reshape(2, 12, 9, 10))
    np.testing.assert_array_equal(found[1], found[0])
    assert_close(found[0], eager.convolution(x, w, None, **operator_attributes(2, {"pads": (1, 1, 1, 1)}), device=device))


def cooperative_outcome(device: dmlvk.Device, name: str, layout: str, rule: str = "cooperative") -> Outcome:
    entry, _ = CASES
    case = next(case for case in entry.cases if case.name == name)
    variation = Variation(case, TensorDataType.FLOAT16, layout, rule=rule)
    problem = build(entry.operator, variation, place_for_speed)
    if rule not in possible_rules(problem.desc, device.capabilities) or not device.capabilities.cooperative_matrices:
        pytest.skip("the device has no cooperative matrices")
    return check_problem(device, entry, variation, problem)


@pytest.mark.parametrize(
    ("row", "form"),
    crossed(MATRIX_TILES, itertools.product([1, 2], ["3x3, sums of many terms", "64 channels, stride 2"], ["NCHW", "NHWC"])),
)
def test_every_matrix_tile(
    device: dmlvk.Device, row: Any, form: tuple[int, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tile gives right results, in parts, too, also those that no rule would choose."""
    if device.capabilities.is_cpu:
        pytest.skip("the driver of a CPU compiles each for minutes")
    parts, name, layout = form
    monkeypatch.setattr(convolution_cooperative, "product_tile", lambda *_, b_along_depth: (row.tile, parts))
    outcome = cooperative_outcome(device, name, layout)
    assert outcome.passed, outcome.detail


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_parts_of_cooperative_sums(device: dmlvk.Device, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = convolution_cooperative.product_tile
    monkeypatch.setattr(convolution_cooperative, "product_tile", lambda *sizes, **ways: (own(*sizes, **ways)[0], 3))
    for name in ("3x3, sums of many terms", "3x3, whole quads, groups, taps reversed"):
        outcome = cooperative_outcome(device, name, layout)
        assert outcome.passed, outcome.detail


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_phases_reach_planes_through_a_copy(device: dmlvk.Device, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_cooperative, "_INTERLEAVED_BANDWIDTH", 1e-9)
    monkeypatch.setattr(convolution_rules, "matrices_pay", lambda *_: True)
    name = "backward, whole words of channels, stride beyond the window"
    outcome = cooperative_outcome(device, name, layout, "phases")
    # Six phases, and the copies of the input and of the outputs.
    assert outcome.passed and outcome.dispatches == (8 if layout == "NCHW" else 6), (outcome.dispatches, outcome.detail)


def test_channels_last_gives_the_same_bits(device: dmlvk.Device) -> None:
    x, w = random(2, 5, 8, 9), random(7, 5, 3, 3)
    attributes = operator_attributes(2, {"pads": (1, 1, 1, 1)})
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(
        eager.convolution(last, w, **attributes, device=device), eager.convolution(x, w, **attributes, device=device)
    )


def test_a_fused_activation_is_the_activation(device: dmlvk.Device) -> None:
    x, w = random(1, 4, 9, 9), random(8, 4, 3, 3)
    attributes = operator_attributes(2, {})
    plain = eager.convolution(x, w, **attributes, device=device)
    for fused, alone in (
        (dmlvk.ActivationRelu(), eager.activation_relu(plain, device=device)),
        (dmlvk.ActivationSigmoid(), eager.activation_sigmoid(plain, device=device)),
        (dmlvk.ActivationElu(alpha=0.5), eager.activation_elu(plain, alpha=0.5, device=device)),
        (dmlvk.ElementWiseClip(min=0.0, max=6.0), eager.element_wise_clip(plain, min=0.0, max=6.0, device=device)),
    ):
        found = eager.convolution(x, w, **attributes, fused_activation=fused, device=device)
        np.testing.assert_array_equal(found, alone, err_msg=type(fused).__name__)


ADDED: dict[str, tuple[tuple[int, ...], tuple[int, ...], str, dict[str, Any]]] = {
    "whole quads": ((2, 20, 6, 8), (37, 20, 1, 1), "NCHW", {}),
    "odd planes": ((2, 20, 5, 7), (33, 20, 1, 1), "NCHW", {}),
    "quads of channels": ((2, 20, 5, 7), (36, 20, 1, 1), "NHWC", {}),
    "3x3, whole rows": ((1, 32, 9, 8), (34, 32, 3, 3), "NCHW", {"start_padding": (1, 1), "end_padding": (1, 1)}),
    "3x3, odd rows": ((2, 32, 6, 9), (33, 32, 3, 3), "NCHW", {"start_padding": (1, 1), "end_padding": (1, 1)}),
    "1x1, whole words of planes": ((2, 24, 4, 8), (37, 24, 1, 1), "NCHW", {}),
    "3x3, sums of many terms": ((1, 64, 4, 6), (36, 64, 3, 3), "NHWC", {"start_padding": (1, 1), "end_padding": (1, 1)}),
    "groups, stride 2": ((1, 32, 9, 9), (48, 16, 3, 3), "NCHW", {"strides": (2, 2), "group_count": 2}),
}
"""Sizes of x and w, the layout, and attributes."""


@pytest.mark.parametrize(("name", "data_type"), crossed(ADDED, [TensorDataType.FLOAT32, TensorDataType.FLOAT16]))
def test_what_a_convolution_adds_is_added_as_by_itself(device: dmlvk.Device, name: str, data_type: TensorDataType) -> None:
    x_sizes, w_sizes, layout, changes = ADDED[name]
    attributes = {"strides": (1, 1), "dilations": (1, 1), "group_count": 1}
    attributes |= dict.fromkeys(("start_padding", "end_padding", "output_padding"), (0, 0))
    dtype = np.float32 if data_type == TensorDataType.FLOAT32 else np.float16
    x, w, bias = (random(*sizes).astype(dtype) for sizes in (x_sizes, w_sizes, (1, w_sizes[0], 1, 1)))

    def tensor(sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(data_type, sizes, dmlvk.calculate_strides(layout, sizes))

    plain = dmlvk.Convolution(
        input_tensor=tensor(x_sizes),
        filter_tensor=TensorDesc(data_type, w_sizes),
        bias_tensor=TensorDesc(data_type, bias.shape),
        **(attributes | changes),
    )
    y_tensor = tensor(plain.inferred_output_sizes()[0])
    plain = plain.replace(output_tensor=y_tensor)
    fields = {spec.name: getattr(plain, spec.name) for spec in plain.fields}
    adding = ConvolutionAdd(**{**fields, "fused_activation": dmlvk.ActivationRelu()}, addend_tensor=y_tensor)
    addend = random(*y_tensor.sizes, key=1).astype(dtype)
    if layout == "NHWC":
        x, addend = (np.ascontiguousarray(array.transpose(0, 2, 3, 1)) for array in (x, addend))

    buffers = [device.create_buffer(-(-array.nbytes // 4) * 4) for array in (x, w, bias, addend)]
    for buffer, array in zip(buffers, (x, w, bias, addend), strict=True):
        buffer.write(array)
    inputs = [BufferBinding(buffer) for buffer in buffers]
    output = BufferBinding(device.create_buffer(buffers[3].size_in_bytes))
    rules = possible_rules(adding, device.capabilities)
    assert {"tiled", "direct", "naive"} <= set(rules) <= set(possible_rules(plain, device.capabilities))
    for rule in rules:
        commands = device.create_command_list()
        ReadyOperator(device, plain, rule).record(commands, inputs[:3], [output])
        commands.submit()
        sums = output.buffer.read(addend.nbytes).view(dtype)
        expected = np.maximum(sums + addend.reshape(-1), dtype(0))
        # Over the addend, too, which is what the row allows.
        for target in (output, inputs[3]):
            buffers[3].write(addend)
            commands = device.create_command_list()
            ReadyOperator(device, adding, rule).record(commands, inputs, [target])
            commands.submit()
            found = target.buffer.read(addend.nbytes).view(dtype)
            if dtype == np.float16:  # one rounding where there were two
                np.testing.assert_allclose(found, expected, rtol=2e-3, atol=4e-3, err_msg=rule)
            elif rule == "tiled":  # whose sums begin with it
                assert_close(found, expected)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=rule)


@pytest.mark.parametrize("rule", ["tiled", "split"])
def test_a_filter_whose_taps_go_backwards_is_read_as_it_lies(device: dmlvk.Device, rule: str) -> None:
    """As a large GPU does, for which a copy of it is not worth its dispatch. On an H100 the first channel was wrong."""
    entry, _ = CASES
    case = next(case for case in entry.cases if case.name == "3x3, whole quads, groups, taps reversed")
    variation = Variation(case, TensorDataType.FLOAT32, "packed", rule=rule)
    problem = build(entry.operator, variation)
    caps = dataclasses.replace(device.capabilities, is_cpu=False, model=H200, workgroup_invocations=1024)
    plan = lower(problem.desc, caps, force=rule)
    assert {dispatch.kernel.kernel for dispatch in plan.dispatches} <= {"convolution_tiled", "convolution_merge"}
    outcome = check_problem(device, entry, variation, problem, plan)
    assert outcome.passed, outcome.detail
