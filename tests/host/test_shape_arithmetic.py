"""The arithmetic of shapes and of constants computes what ONNX's reference does, in the same types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import dmlvk
from dmlvk.onnx import shape_arithmetic
from dmlvk.onnx.model import Array, Node, read_initializer, read_node

i32, i64, f32, f64 = np.int32, np.int64, np.float32, np.float64
OPSETS = {"": 18}

Operands = tuple[Array | None, ...]
Case = tuple[Operands, dict[str, Any]]


def node_of(op_type: str, operands: Operands, attributes: dict[str, Any]) -> Node:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(operands)]
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    return read_node(helper.make_node(op_type, names, outputs, **attributes), OPSETS)


def evaluated(node: Node, operands: Operands) -> list[Array]:
    made = shape_arithmetic.evaluate(node, operands)
    assert made is not None
    return made


def referred(node: Node, operands: Operands) -> list[Array]:
    infos = [helper.make_empty_tensor_value_info(name) for name in node.inputs if name]
    results = [helper.make_empty_tensor_value_info(name) for name in node.outputs]
    graph = helper.make_graph([node.proto], "g", infos, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    feeds = {name: array for name, array in zip(node.inputs, operands, strict=True) if array is not None}
    return [np.asarray(item) for item in onnx.reference.ReferenceEvaluator(model).run(None, feeds)]


def integers(rng: np.random.Generator, *sizes: int, low: int = -9, dtype: type = i64) -> Array:
    return rng.integers(low, 10, sizes).astype(dtype)


def pair(rng: np.random.Generator, low: int = -9) -> Operands:
    """Two operands that broadcast, of any type of numbers."""
    dtype = [i32, i64, f32, f64][rng.integers(4)]
    sizes = [(), (3,), (1,), (2, 3)]
    return tuple(integers(rng, *sizes[rng.integers(4)], low=low, dtype=dtype) for _ in range(2))


def reals(rng: np.random.Generator, *sizes: int) -> Array:
    return rng.normal(0, 3, sizes).astype([f32, f64][rng.integers(2)])


def booleans(rng: np.random.Generator, *sizes: int) -> Array:
    return rng.random(sizes) < 0.5


def _counts(rng: np.random.Generator) -> Operands:
    start, delta = integers(rng), integers(rng, low=1) * rng.choice([-1, 1])
    return (start, integers(rng), np.asarray(delta, i64))


def _slices(rng: np.random.Generator) -> Case:
    steps = rng.choice([-2, -1, 1, 2], 2)
    bounds = [np.array([int(rng.choice([-(2**62), -7, -1, 0, 2, 4, 2**62])) for _ in range(2)], i64) for _ in range(2)]
    axes = np.array([1, 0] if rng.random() < 0.5 else [-2, -1], i64)
    return (integers(rng, 4, 5), *bounds, axes, steps.astype(i64)), {}


def _casts(rng: np.random.Generator) -> Case:
    kinds = [TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL]
    return ((pair(rng)[0] / np.float32(2),), {"to": int(rng.choice(kinds))})


def _reductions(rng: np.random.Generator) -> Case:
    axes = [None, np.array([0], i64), np.array([1, -2], i64)][rng.integers(3)]
    return (integers(rng, 2, 3), axes), {"keepdims": int(rng.integers(2))}


def _parts(given: int) -> dict[str, Any]:
    return {"axis": 1} if given else {"axis": 1, "num_outputs": 2}


def _chosen(rng: np.random.Generator) -> Case:
    return (booleans(rng, 2, 1), *(integers(rng, 3) for _ in range(2))), {}


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater"], lambda rng: (pair(rng), {})),
    "GreaterOrEqual": lambda rng: (pair(rng), {}),
    "Div": lambda rng: ((integers(rng, 3, low=0), integers(rng, 2, 1, low=1)), {}),
    "Mod": lambda rng: ((integers(rng, 3), integers(rng, 2, 1, low=1)), {}),
    **dict.fromkeys(["Max", "Min"], lambda rng: (tuple(integers(rng, 3) for _ in range(rng.integers(2, 4))), {})),
    **dict.fromkeys(["Neg", "Abs", "Identity"], lambda rng: ((integers(rng, 2, 3),), {})),
    **dict.fromkeys(["And", "Or"], lambda rng: ((booleans(rng, 3), booleans(rng, 2, 1)), {})),
    "Not": lambda rng: ((booleans(rng, 3),), {}),
    **dict.fromkeys(["Floor", "Ceil"], lambda rng: (((integers(rng, 4) / 4).astype(f32),), {})),
    "Cast": _casts,
    "Where": _chosen,
    "Range": lambda rng: (_counts(rng), {}),
    "Gather": lambda rng: ((integers(rng, 3, 2), integers(rng, 2, low=-3) % 2), {"axis": int(rng.integers(2))}),
    "Slice": _slices,
    "Concat": lambda rng: ((integers(rng, 2, 3), integers(rng, 2, 1)), {"axis": -1}),
    "Squeeze": lambda rng: ((integers(rng, 1, 3, 1), [None, np.array([-1], i64)][rng.integers(2)]), {}),
    "Unsqueeze": lambda rng: ((integers(rng, 3), np.array([0, -1], i64)), {}),
    "Reshape": lambda rng: ((integers(rng, 2, 6), np.array([[0, 2, -1], [-1, 4, 1]][rng.integers(2)], i64)), {}),
    "Transpose": lambda rng: ((integers(rng, 2, 3),), {}),
    "ConstantOfShape": lambda rng: ((integers(rng, 2, low=0),), {}),
    "Expand": lambda rng: ((integers(rng, 1, 3), np.array([2, 4, 1], i64)), {}),
    **dict.fromkeys(["ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"], _reductions),
    **dict.fromkeys(["Cos", "Exp", "Round", "Sin", "Sum"], lambda rng: ((reals(rng, 3, 2),), {})),
    **dict.fromkeys(["Log", "Reciprocal", "Sqrt"], lambda rng: ((np.abs(reals(rng, 4)) + f32(0.1),), {})),
    "CastLike": lambda rng: ((integers(rng, 3), np.zeros(1, [f32, f64, i32][rng.integers(3)])), {}),
    "Clip": lambda rng: ((reals(rng, 5), [None, np.array(-1, f32)][rng.integers(2)], np.array(2, f32)), {}),
    "CumSum": lambda rng: (
        (integers(rng, 3, 4), np.array(rng.integers(-2, 2), i64)),
        {"reverse": int(rng.integers(2)), "exclusive": int(rng.integers(2))},
    ),
    "Flatten": lambda rng: ((integers(rng, 2, 3, 4),), {"axis": int(rng.integers(0, 4))}),
    "GatherElements": lambda rng: ((integers(rng, 4, 5), integers(rng, 4, 2, low=-5) % 4), {"axis": 1}),
    "GatherND": lambda rng: ((integers(rng, 2, 3, 4), rng.integers(0, 2, (2, 3, 1))), {"batch_dims": int(rng.integers(2))}),
    "NonZero": lambda rng: ((booleans(rng, 3, 4),), {}),
    "Pow": lambda rng: (
        (integers(rng, 3, low=1, dtype=[i64, f32][rng.integers(2)]), integers(rng, 1, low=0, dtype=i32)),
        {},
    ),
    "ReduceMean": lambda rng: ((reals(rng, 2, 3), np.array([-1], i64)), {"keepdims": int(rng.integers(2))}),
    "ScatterElements": lambda rng: (
        (integers(rng, 3, 5), rng.permuted([[0, 1, -1]], axis=1), integers(rng, 1, 3)),
        {"axis": 1},
    ),
    "ScatterND": lambda rng: ((integers(rng, 4, 2), rng.permutation(4)[:3, None], integers(rng, 3, 2)), {}),
    "Sign": lambda rng: ((reals(rng, 4),), {}),
    "Split": lambda rng: ((integers(rng, 2, 5), [None, np.array([1, 4], i64)][at := rng.integers(2)]), _parts(at)),
    "Tile": lambda rng: ((integers(rng, 2, 3), np.array([2, 3], i64)), {}),
    "Trilu": lambda rng: ((integers(rng, 4, 4), np.array(rng.integers(-2, 3), i64)), {"upper": int(rng.integers(2))}),
    "Xor": lambda rng: ((booleans(rng, 3), booleans(rng, 2, 1)), {}),
}


def test_every_operator_is_tried() -> None:
    assert CASES.keys() == shape_arithmetic._RULES.keys()


@pytest.mark.parametrize("op_type", CASES)
def test_as_the_reference(op_type: str) -> None:
    for seed in range(40):
        operands, attributes = CASES[op_type](np.random.default_rng(seed))
        if op_type == "ReduceMax" or op_type == "ReduceMin":
            operands = tuple(array for array in operands if array is not None)
        node = node_of(op_type, operands, attributes)
        for found, expected in zip(evaluated(node, operands), referred(node, operands), strict=True):
            assert found.dtype == expected.dtype, (seed, operands, attributes)
            np.testing.assert_array_equal(found, expected, strict=True)


def test_quotients_are_rounded_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7, -6], i64), np.array([2, 2, -2, -2, 3], i64)
    (found,) = evaluated(node_of("Div", (a, b), {}), (a, b))
    np.testing.assert_array_equal(found, np.array([3, -3, -3, 3, -2]))


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Div", (np.array([1], i64), np.array([0], i64)), {}),
        ("Gather", (np.array([1], i64), np.array([3], i64)), {}),
        ("Add", (np.array([1, 2], i64), np.array([1, 2, 3], i64)), {}),
        ("Reshape", (np.array([1, 2], i64), np.array([3], i64)), {}),
    ],
)
def test_what_does_not_fit_is_an_error(op_type: str, operands: Operands, attributes: dict[str, Any]) -> None:
    with pytest.raises(dmlvk.ModelError, match=f"{op_type}\\) does not fit its inputs"):
        shape_arithmetic.evaluate(node_of(op_type, operands, attributes), operands)


def test_elements_may_be_fewer_than_along_other_axes() -> None:
    """Which the reference refuses: plain exports of BERT have it."""
    x, indices = np.arange(20).reshape(4, 5), np.array([[0, -1], [2, 2]])
    (found,) = evaluated(node_of("GatherElements", (x, indices), {"axis": 1}), (x, indices))
    np.testing.assert_array_equal(found, [[0, 4], [7, 7]])


def test_narrow_floats_are_moved_and_not_computed_with() -> None:
    bits = read_initializer(onnx.TensorProto(name="x", data_type=TensorProto.BFLOAT16, dims=[2, 3], int32_data=range(6)))
    (moved,) = evaluated(node_of("Transpose", (bits,), {}), (bits,))
    assert moved.dtype == bits.dtype
    np.testing.assert_array_equal(moved.view(np.uint16), np.arange(6).reshape(2, 3).T)
    assert not shape_arithmetic.has_types(node_of("Add", (bits, bits), {}), (bits, bits))
