"""Matrix products and convolutions against implementations that are not ours: PyTorch in float64, with each possible rule
forced, and ONNX's reference through a session."""

from __future__ import annotations

import dataclasses
import itertools
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dmlvk
from dmlvk import ConvolutionDirection, ConvolutionMode, MatrixTransform, TensorDataType, TensorDesc
from dmlvk.kernels.lowering import possible_rules
from dmlvk.onnx import InferenceSession
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import NUMPY_TYPES
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import of_blocks, run
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]
FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
FLOATS = (FLOAT32, FLOAT16)

HALF_UNIT = {FLOAT32: 2.0**-24, FLOAT16: 2.0**-11}
"""Half a unit in the last place, relative to a number just above a power of two."""


def random(*sizes: int, data_type: TensorDataType = FLOAT32) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(NUMPY_TYPES[data_type])


def results(device: dmlvk.Device, desc: OperatorDesc, arrays: list[Array | None], rule: str) -> Array:
    """The output of a desc for these inputs, by a rule."""
    inputs = []
    for slot, array in zip(desc.input_slots(), arrays, strict=True):
        tensor = None if slot.tensor is None else GuardedTensor(slot.tensor, 0)
        if tensor is not None:
            tensor.view()[...] = array
        inputs.append(tensor)
    (slot,) = desc.output_slots()
    assert slot.tensor is not None
    output = GuardedTensor(slot.tensor, 0)
    (data,) = run(device, Problem(desc, tuple(inputs), (output,)), rule).buffers
    assert data is not None
    return output.view(data)


def assert_close(found: Array, expected: Any, terms: Any, desc: OperatorDesc, rule: str) -> None:
    """Within what the operator's cases allow a rule, at the magnitude ``terms``, the sum of the terms' magnitudes."""
    entry = all_cases()[type(desc)]
    data_type = desc.output_slots()[0].tensor.data_type  # type: ignore[union-attr]
    tolerance = entry.rule_tolerance.get(rule, entry.tolerance)[data_type]
    scaled = of_blocks(Scaled(expected.numpy(), terms.numpy()), tolerance.block)
    assert isinstance(scaled, Scaled)
    worst = float((np.abs(found - scaled.value) / (HALF_UNIT[data_type] * (scaled.magnitude + 2.0**-14))).max())
    assert worst <= 2 * tolerance.ulp, f"{worst:.2f} half units in the last place by {rule}, for {desc}"


PRODUCTS = [
    ((65, 70, 131), 0, 0),
    ((129, 33, 66), 1, 1),
    ((1, 515, 67), 0, 1),
    ((67, 257, 5), 1, 0),
    ((17, 16, 64), 0, 0),
    ((1, 1, 1), 0, 0),
]
"""Rows, depth and columns, and whether A and B are transposed."""


@pytest.mark.parametrize(("product", "data_type"), crossed(PRODUCTS, FLOATS))
def test_products_agree_with_torch(
    device: dmlvk.Device, torch: ModuleType, product: tuple[tuple[int, int, int], int, int], data_type: TensorDataType
) -> None:
    (rows, depth, columns), trans_a, trans_b = product
    a, b, c = (random(2, *pair, data_type=data_type) for pair in ((rows, depth), (depth, columns), (rows, columns)))
    left, right, addend = (torch.from_numpy(x.astype(np.float64)) for x in (a, b, c))
    given = [a.swapaxes(1, 2) if trans_a else a, b.swapaxes(1, 2) if trans_b else b, c]
    desc = ops.Gemm(
        **{f"{name}_tensor": TensorDesc(data_type, x.shape) for name, x in zip("abc", given, strict=True)},
        output_tensor=TensorDesc(data_type, c.shape),
        trans_a=MatrixTransform(trans_a),
        trans_b=MatrixTransform(trans_b),
        alpha=0.75,
        beta=-2.0,
    )
    expected, terms = 0.75 * left @ right - 2 * addend, 0.75 * left.abs() @ right.abs() + 2 * addend.abs()
    for rule in possible_rules(desc, device.capabilities):
        assert_close(results(device, desc, list(given), rule), expected, terms, desc, rule)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 5, 67), (9, 5, 4), {"stride": 3, "padding": 2, "dilation": 2}),
    "1x1": ((2, 33, 9, 7), (65, 33, 1, 1), {}),
    "3x3": ((2, 17, 17, 9), (33, 17, 3, 3), {"padding": 1}),
    "3x3 of whole words": ((1, 32, 16, 16), (64, 32, 3, 3), {"padding": 1}),
    "stem": ((1, 3, 33, 35), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    "groups": ((1, 12, 9, 11), (20, 3, 3, 2), {"groups": 4, "stride": (2, 1), "padding": (0, 2), "dilation": (1, 3)}),
    "depthwise": ((2, 16, 13, 12), (16, 1, 5, 5), {"groups": 16, "padding": 2, "stride": 2}),
    "3-D": ((1, 4, 5, 6, 7), (6, 2, 2, 3, 3), {"groups": 2, "padding": (1, 0, 2), "stride": (1, 2, 1)}),
    "padding larger than the window": ((1, 4, 3, 3), (5, 4, 2, 2), {"padding": 5, "stride": 3}),
    "strides that skip input": ((1, 8, 23, 29), (8, 8, 1, 2), {"stride": (5, 7)}),
}


def spatial(value: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else value


def channels_last(tensor: TensorDesc) -> TensorDesc:
    """The tensor with its channels innermost."""
    _, channels, *image = tensor.sizes
    steps = [channels]
    for size in reversed(image[1:]):
        steps.append(steps[-1] * size)
    return dataclasses.replace(
        tensor, strides=(int(np.prod(tensor.sizes[1:])), 1, *reversed(steps)), total_tensor_size_in_bytes=0
    )


@pytest.mark.parametrize(("name", "form"), crossed(CONVOLUTIONS, itertools.product(FLOATS, ["NCHW", "NHWC"])))
def test_convolutions_agree_with_torch(
    device: dmlvk.Device, torch: ModuleType, name: str, form: tuple[TensorDataType, str]
) -> None:
    """FORWARD, and with the same filter BACKWARD, which is PyTorch's transposed convolution."""
    data_type, layout = form
    x_sizes, w_sizes, options = CONVOLUTIONS[name]
    count, groups = len(x_sizes) - 2, options.get("groups", 1)
    steps, dilations, padding = (
        spatial(options.get(key, value), count) for key, value in (("stride", 1), ("dilation", 1), ("padding", 0))
    )
    shared: dict[str, Any] = {
        "strides": steps,
        "dilations": dilations,
        "start_padding": padding,
        "end_padding": padding,
        "output_padding": (0,) * count,
        "group_count": groups,
        "mode": ConvolutionMode.CROSS_CORRELATION,
    }
    w, bias = random(*w_sizes, data_type=data_type), random(w_sizes[0], data_type=data_type)
    forward = getattr(torch.nn.functional, f"conv{count}d")
    backward = getattr(torch.nn.functional, f"conv_transpose{count}d")

    def check(x: Array, filters: Array, offsets: Array, direction: ConvolutionDirection) -> Any:
        function = forward if direction is ConvolutionDirection.FORWARD else backward
        pieces = [torch.from_numpy(part.astype(np.float64)) for part in (x, filters, offsets)]
        settings = {"stride": steps, "padding": padding, "dilation": dilations, "groups": groups}
        expected, terms = function(*pieces, **settings), function(*(piece.abs() for piece in pieces), **settings)
        arrays = [x, filters, offsets.reshape(1, -1, *(1,) * count)]
        tensors = [TensorDesc(data_type, part.shape) for part in arrays]
        output = TensorDesc(data_type, tuple(expected.shape))
        if layout == "NHWC":
            tensors[0], output = channels_last(tensors[0]), channels_last(output)
        names = ("input_tensor", "filter_tensor", "bias_tensor")
        desc = ops.Convolution(**dict(zip(names, tensors, strict=True)), output_tensor=output, direction=direction, **shared)
        for rule in possible_rules(desc, device.capabilities):
            assert_close(results(device, desc, list(arrays), rule), expected, terms, desc, rule)
        return expected

    y = check(random(*x_sizes, data_type=data_type), w, bias, ConvolutionDirection.FORWARD)
    gradient = random(*y.shape, data_type=data_type)
    offsets = random(w_sizes[1] * groups, data_type=data_type)
    check(gradient, w, offsets, ConvolutionDirection.BACKWARD)


@pytest.mark.full
@pytest.mark.parametrize(("trans_a", "trans_b", "data_type"), crossed([0, 1], [0, 1], FLOATS))
def test_gradients_of_products_agree_with_torch(
    device: dmlvk.Device, torch: ModuleType, trans_a: int, trans_b: int, data_type: TensorDataType
) -> None:
    """The gradients of y = 0.75 op(A) op(B) are products again: of dy and the other factor, either way round."""
    rows, depth, columns = 67, 129, 35
    a = random(2, *((depth, rows) if trans_a else (rows, depth)), data_type=data_type)
    b = random(2, *((columns, depth) if trans_b else (depth, columns)), data_type=data_type)
    dy = random(2, rows, columns, data_type=data_type)

    def autograd(a: Array, b: Array, dy: Array) -> Any:
        left, right = (torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in (a, b))
        y = 0.75 * (left.mT if trans_a else left) @ (right.mT if trans_b else right)
        return torch.autograd.grad(y, (left, right), torch.from_numpy(dy.astype(np.float64)))

    # dA = 0.75 dy op(B)^T and dB = 0.75 op(A)^T dy, or the transpose of that where A or B is one.
    factors = [((b, trans_b), (dy, 1)) if trans_a else ((dy, 0), (b, not trans_b))]
    factors += [((dy, 1), (a, trans_a)) if trans_b else ((a, not trans_a), (dy, 0))]
    expected, terms = autograd(a, b, dy), autograd(*map(np.abs, (a, b, dy)))
    for ((left, first), (right, second)), *wanted in zip(factors, expected, terms, strict=True):
        desc = ops.Gemm(
            a_tensor=TensorDesc(data_type, left.shape),
            b_tensor=TensorDesc(data_type, right.shape),
            output_tensor=TensorDesc(data_type, tuple(wanted[0].shape)),
            trans_a=MatrixTransform(first),
            trans_b=MatrixTransform(second),
            alpha=0.75,
        )
        for rule in possible_rules(desc, device.capabilities):
            assert_close(results(device, desc, [left, right, None], rule), *wanted, desc, rule)


def transposed(data_type: TensorDataType, sizes: tuple[int, ...], cropped: tuple[int, ...] = ()) -> TensorDesc:
    """A packed tensor of these sizes with its first two dimensions exchanged by strides, and maybe fewer pixels."""
    first, second, *steps = TensorDesc(data_type, sizes).effective_strides
    return TensorDesc(data_type, (sizes[1], sizes[0], *(cropped or sizes[2:])), (second, first, *steps))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "data_type"), crossed([name for name in CONVOLUTIONS if "groups" not in CONVOLUTIONS[name][2]], FLOATS)
)
def test_gradients_of_convolutions_agree_with_torch(
    device: dmlvk.Device, torch: ModuleType, name: str, data_type: TensorDataType
) -> None:
    """dx is the BACKWARD convolution of dy. dw is the FORWARD one of x with the filter dy, where samples and channels change
    places, by strides, and so do steps and dilations. Pixels that no window reaches are left out, or padded."""
    x_sizes, w_sizes, options = CONVOLUTIONS[name]
    count = len(x_sizes) - 2
    steps, dilations, padding = (
        spatial(options.get(key, value), count) for key, value in (("stride", 1), ("dilation", 1), ("padding", 0))
    )
    x, w = random(*x_sizes, data_type=data_type), random(*w_sizes, data_type=data_type)

    def forward(x: Array, w: Array) -> tuple[Any, ...]:
        leaves = tuple(torch.from_numpy(part.astype(np.float64)).requires_grad_() for part in (x, w))
        function = getattr(torch.nn.functional, f"conv{count}d")
        return (function(*leaves, stride=steps, dilation=dilations, padding=padding), leaves)

    dy = random(*forward(x, w)[0].shape, data_type=data_type)
    expected = torch.autograd.grad(*forward(x, w), torch.from_numpy(dy.astype(np.float64)))
    terms = torch.autograd.grad(*forward(np.abs(x), np.abs(w)), torch.from_numpy(np.abs(dy).astype(np.float64)))
    shared: dict[str, Any] = {"start_padding": padding, "output_padding": (0,) * count}

    def check(desc: ops.Convolution, first: Array, second: Array, wanted: Any, magnitudes: Any) -> None:
        for rule in possible_rules(desc, device.capabilities):
            assert_close(results(device, desc, [first, second, None], rule), wanted, magnitudes, desc, rule)

    dx = ops.Convolution(
        input_tensor=TensorDesc(data_type, dy.shape),
        filter_tensor=TensorDesc(data_type, w_sizes),
        output_tensor=TensorDesc(data_type, x_sizes),
        direction=ConvolutionDirection.BACKWARD,
        strides=steps,
        dilations=dilations,
        end_padding=padding,
        **shared,
    )
    check(dx, dy, w, expected[0], terms[0])

    reached = [
        (taps - 1) * dilation + (outputs - 1) * step + 1 - start
        for taps, dilation, outputs, step, start in zip(w_sizes[2:], dilations, dy.shape[2:], steps, padding, strict=True)
    ]
    pixels = tuple(map(min, reached, x_sizes[2:]))
    dw = ops.Convolution(
        input_tensor=transposed(data_type, x_sizes, pixels),
        filter_tensor=transposed(data_type, dy.shape),
        output_tensor=transposed(data_type, w_sizes),
        strides=dilations,
        dilations=steps,
        end_padding=tuple(a - b for a, b in zip(reached, pixels, strict=True)),
        **shared,
    )
    check(
        dw,
        x[(..., *map(slice, pixels))].swapaxes(0, 1),
        dy.swapaxes(0, 1),
        expected[1].transpose(0, 1),
        terms[1].transpose(0, 1),
    )


NODES: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "MatMul of a matrix and a stack": ("MatMul", [random(5, 33), random(3, 2, 33, 17)], {}),
    "MatMul of vectors": ("MatMul", [random(129), random(129)], {}),
    "Gemm": ("Gemm", [random(19, 65), random(33, 19), random(33)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": -1.0}),
    "Conv": (
        "Conv",
        [random(2, 6, 9, 10), random(4, 3, 3, 2), random(4)],
        {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]},
    ),
    "1-D Conv": ("Conv", [random(2, 5, 23), random(7, 5, 4)], {"strides": [3], "pads": [2, 1]}),
    "ConvTranspose": ("ConvTranspose", [random(1, 4, 5, 6), random(4, 3, 3, 3), random(3)], {"strides": [2, 2]}),
    "MatMulInteger": (
        "MatMulInteger",
        [*(np.random.default_rng(0).integers(0, 256, size).astype(np.uint8) for size in ((9, 35), (35, 17)))],
        {},
    ),
    "ConvInteger": (
        "ConvInteger",
        [*(np.random.default_rng(1).integers(0, 256, size).astype(np.uint8) for size in ((2, 3, 7, 8), (5, 3, 3, 3)))],
        {"pads": [1, 1, 1, 1]},
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_agree_with_the_onnx_reference(device: dmlvk.Device, name: str) -> None:
    op_type, arrays, attributes = NODES[name]
    names = [f"x{at}" for at in range(len(arrays))]
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    infos = [helper.make_tensor_value_info(*given) for given in zip(names, kinds, (x.shape for x in arrays), strict=True)]
    output = helper.make_tensor_value_info("y", TensorProto.INT32 if "Integer" in op_type else TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op_type, names, ["y"], **attributes)], name, infos, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feeds = dict(zip(names, arrays, strict=True))
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]
    found = InferenceSession(model, device).run(None, feeds)[0]
    assert found.shape == np.shape(expected)
    limit = 0.0 if "Integer" in op_type else 4e-6 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)
