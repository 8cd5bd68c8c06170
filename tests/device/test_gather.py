"""Gathers: every bit, every layout, every kind of index, against the oracle, ONNX's reference and PyTorch.

DirectML's printed examples run in ``test_examples.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import onnx.reference
import pytest
from drawing import BROKEN_VALUES, Draw, broken_tensors, draw_sizes, draw_tensor, examples, fill
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc, eager
from dmlvk.kernels.copy import lowering as copy
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.spec.schema import FieldSpec, OperatorDesc
from dmlvk.verify.cases.layouts import unflagged
from dmlvk.verify.cases.model import NUMPY_TYPES, indices_around
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run
from dmlvk.verify.oracle import oracle

T = TensorDataType
Array = NDArray[Any]
Sizes = tuple[int, ...]
ROWS = (ops.Gather, ops.GatherElements, ops.GatherNd, ops.GatherNd1)
OPERATORS = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 17, 33])


# -- random problems


def random_bits(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
    """Any bits: of floats also NaN of every kind."""
    kind = NUMPY_TYPES[data_type]
    return np.frombuffer(rng.bytes(int(np.prod(sizes)) * kind.itemsize), kind).reshape(sizes)


class Shapes(NamedTuple):
    """The sizes of a drawn operator's tensors.

    Attributes:
        inputs, indices, output: Sizes, of one dimension count.
        chosen: Sizes of the dimensions of the input that indices are for.
        attributes: The operator's.
    """

    inputs: Sizes
    indices: Sizes
    output: Sizes
    chosen: Sizes
    attributes: dict[str, int]


def filled(draw: Draw, *shapes: Sizes) -> list[Sizes]:
    """The shapes with leading ones, so that all have one dimension count."""
    count = draw(st.integers(max(1, *map(len, shapes)), 8))
    return [(*(1,) * (count - len(sizes)), *sizes) for sizes in shapes]


def draw_gather(draw: Draw) -> Shapes:
    own = draw_sizes(draw, 1, 5, 300, SIZES)
    meant = draw_sizes(draw, 0, 9 - max(len(own), 2), 40, SIZES)
    axis = draw(st.integers(0, len(own) - 1))
    joined = (*own[:axis], *meant, *own[axis + 1 :])
    inputs, indices, output = filled(draw, own, meant, joined)
    attributes = {"axis": axis + len(inputs) - len(own), "index_dimensions": len(meant)}
    return Shapes(inputs, indices, output, (own[axis],), attributes)


def draw_elements(draw: Draw) -> Shapes:
    own = draw_sizes(draw, 1, 8, 400, SIZES)
    axis = draw(st.integers(0, len(own) - 1))
    indices = (*own[:axis], draw(SIZES), *own[axis + 1 :])
    return Shapes(own, indices, indices, (own[axis],), {"axis": axis})


def draw_nd(draw: Draw, *, batched: bool) -> Shapes:
    own = draw_sizes(draw, 1, 8, 400, SIZES)
    batches = draw(st.integers(0, min(len(own) - 1, 3))) if batched else 0
    length = draw(st.integers(1, len(own) - batches))
    rest = own[batches + length :]
    array = draw_sizes(draw, 0, min(7 - batches, 8 - batches - len(rest)), 40, SIZES)
    meant = (*own[:batches], *array, length)
    inputs, indices, output = filled(draw, own, meant, (*own[:batches], *array, *rest))
    attributes = {"input_dimension_count": len(own), "indices_dimension_count": len(meant)}
    attributes |= {"batch_dimension_count": batches} if batched else {}
    return Shapes(inputs, indices, output, own[batches : batches + length], attributes)


def draw_shapes(draw: Draw, row: type[OperatorDesc]) -> Shapes:
    if row is ops.Gather:
        return draw_gather(draw)
    return draw_elements(draw) if row is ops.GatherElements else draw_nd(draw, batched=row is ops.GatherNd1)


def draw_problem(draw: Draw, row: type[Any]) -> Problem:
    shapes = draw_shapes(draw, row)
    data_type, index_type = (draw(st.sampled_from(row.fields[at].data_types)) for at in (0, 1))
    x = draw_tensor(draw, data_type, shapes.inputs)
    indices = draw_tensor(draw, index_type, shapes.indices)
    output = draw_tensor(draw, data_type, shapes.output, is_output=True)
    fill(draw, x, random_bits)
    fill(draw, indices, indices_around(*shapes.chosen))
    desc = row(input_tensor=x.desc, indices_tensor=indices.desc, output_tensor=output.desc, **shapes.attributes)
    return Problem(desc, (x, indices), (output,))


def bits(array: Array) -> Array:
    """The elements' bits, which are equal where NaNs are the same NaN."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def expected(problem: Problem) -> Array:
    """What the oracle says."""
    (output,) = problem.desc.output_slots()
    assert output.tensor is not None
    function = oracle(type(problem.desc))
    assert function is not None
    packed = problem.desc.replace(output_tensor=unflagged(output.tensor))
    result: Array = function(packed, *(np.array(tensor.view()) for tensor in problem.inputs if tensor is not None))
    return result


@OPERATORS
@examples(30)
@given(data=st.data())
def test_every_bit_of_what_is_valid_equals_the_oracle(
    device: dmlvk.Device, row: type[OperatorDesc], data: st.DataObject
) -> None:
    problem = draw_problem(data.draw, row)
    (output,) = problem.outputs
    assert output is not None
    assert problem.desc.inferred_output_sizes() == (output.desc.sizes,)
    with pytest.MonkeyPatch.context() as patch:
        items = data.draw(st.sampled_from([0, 1, 2, 4]))
        if items:  # otherwise only large problems have several
            patch.setattr(copy, "unit_items", lambda *_: items)
        rule = data.draw(st.sampled_from(["", *possible_rules(problem.desc, device.capabilities)]))
        first, again = run(device, problem, rule), run(device, problem, rule)
    assert first.dispatches == again.dispatches == 1
    (found,), (repeated,) = first.buffers, again.buffers
    assert found is not None
    np.testing.assert_array_equal(bits(output.view(found)), bits(expected(problem)), str(problem.desc))
    assert output.stray_bytes(found) == 0
    np.testing.assert_array_equal(found, repeated)


def broken_attributes(desc: Any, spec: FieldSpec) -> Iterator[object]:
    """What an attribute must not be beside the tensors that this desc has."""
    yield from BROKEN_VALUES[spec.kind]
    count = desc.tensor("input_tensor").dimension_count
    yield from (2**32 - 1, count + 1)
    if spec.name == "axis":
        yield count
    elif spec.name in ("input_dimension_count", "indices_dimension_count"):
        yield 0
    elif spec.name == "batch_dimension_count":
        yield desc.indices_dimension_count


@OPERATORS
@examples(6)
@given(data=st.data())
def test_every_mistake_in_a_desc_is_refused(device: dmlvk.Device, row: type[OperatorDesc], data: st.DataObject) -> None:
    desc = draw_problem(data.draw, row).desc
    before = (device.dispatches, device.native.submissions, device.pipelines_created)
    desc.validate()
    for spec in desc.fields:
        for value in broken_tensors(desc, spec) if spec.kind.is_tensor else broken_attributes(desc, spec):
            with pytest.raises(InvalidArgumentError) as caught:
                device.create_operator(desc.replace(**{spec.name: value}))
                pytest.fail(f"{spec.name} = {value!r} is accepted in {desc}")
            assert caught.value.operator == desc.type.dml_name
            assert caught.value.field == spec.dml_name, f"{spec.name} = {value!r}: {caught.value}"
    assert (device.dispatches, device.native.submissions, device.pipelines_created) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_tensor": TensorDesc(T.FLOAT16, (1, 3, 7))}, "same data type"),
        ({"indices_tensor": TensorDesc(T.INT64, (2, 2, 3))}, "IndicesTensor: the sizes"),
        ({"input_tensor": TensorDesc(T.FLOAT32, (2, 5, 7))}, "IndexDimensions: .* not counting ones"),
        ({"output_tensor": TensorDesc(T.FLOAT32, (1, 3, 7))}, "OutputTensor: must have the sizes"),
    ],
)
def test_tensors_must_fit_each_other(changes: dict[str, Any], message: str) -> None:
    desc = ops.Gather(
        input_tensor=TensorDesc(T.FLOAT32, (1, 5, 7)),
        indices_tensor=TensorDesc(T.INT64, (1, 2, 3)),
        output_tensor=TensorDesc(T.FLOAT32, (2, 3, 7)),
        axis=1,
        index_dimensions=2,
    )
    desc.validate()
    with pytest.raises(InvalidArgumentError, match=message):
        desc.replace(**changes).validate()


# -- indices

_OUTSIDE: dict[Any, tuple[list[int], list[int]]] = {
    np.int32: ([-1, -5, -6, -(2**31), 0, 4, 5, 2**31 - 1], [4, 0, 0, 0, 0, 4, 4, 4]),
    np.uint32: ([0, 4, 5, 2**31, 2**32 - 1], [0, 4, 4, 4, 4]),
    np.int64: (
        [-1, -6, -(2**31) - 1, -(2**32), -(2**32) - 1, -(2**63), 0, 5, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1],
        [4, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4],
    ),
    np.uint64: ([0, 4, 5, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1], [0, 4, 4, 4, 4, 4, 4, 4]),
}
"""Indices of a dimension of 5 by their type, and the elements that they choose."""


@pytest.mark.quick
@pytest.mark.parametrize("index_type", _OUTSIDE)
@pytest.mark.parametrize("row_size", [1, 37])
def test_an_index_out_of_range_is_the_nearest(device: dmlvk.Device, index_type: Any, row_size: int) -> None:
    indices, places = _OUTSIDE[index_type]
    x = np.arange(5 * row_size, dtype=np.int16).reshape(5, row_size)
    given_indices = np.array([indices], index_type)
    found = eager.gather(x, given_indices, axis=0, index_dimensions=1, device=device)
    np.testing.assert_array_equal(found, x[places])
    if row_size == 1:
        wanted = np.array([places], np.int16).T
        np.testing.assert_array_equal(eager.gather_elements(x, given_indices.T, axis=0, device=device), wanted)


def test_each_index_of_a_tuple_is_clamped_on_its_own(device: dmlvk.Device) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    tuples = np.array([[9, 1], [-1, -9], [-9, 9], [1, -1]], np.int64)
    found = eager.gather_nd1(x, tuples, input_dimension_count=2, indices_dimension_count=2, device=device)
    np.testing.assert_array_equal(found, [[9, 8, 3, 7]])


def test_a_repeated_index_is_stored_once(device: dmlvk.Device) -> None:
    """Indices of stride 0: then rows of an element-wise gather lie side by side."""
    x = np.arange(6 * 64, dtype=np.int8).reshape(6, 64)
    indices = np.broadcast_to(np.array([[5], [0], [-2]], np.int32), (3, 64))
    found = eager.gather_elements(x, indices, axis=0, device=device)
    np.testing.assert_array_equal(found, x[[5, 0, 4]])


# -- second oracles


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, axis: int) -> None:
    rng = np.random.default_rng(axis)
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    indices = rng.integers(-x.shape[axis], x.shape[axis], (4, 5, 6))

    def reference(op_type: str, places: Array, **attributes: int) -> Array:
        node = helper.make_node(op_type, ["x", "indices"], ["y"], **attributes)
        found: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x, "indices": places})
        return np.asarray(found[0])

    found = eager.gather_elements(x, indices, axis=axis, device=device)
    np.testing.assert_array_equal(found, reference("GatherElements", indices, axis=axis))

    vector = indices[0, 0]
    found = eager.gather(x, vector.reshape(1, 1, -1), axis=axis, index_dimensions=1, device=device)
    np.testing.assert_array_equal(found, reference("Gather", vector, axis=axis))

    tuples = rng.integers(-4, 4, (7, axis + 1))
    counts = {"input_dimension_count": 3, "indices_dimension_count": 2}
    found = eager.gather_nd(x, tuples[None], **counts, device=device)
    np.testing.assert_array_equal(np.squeeze(found), np.squeeze(reference("GatherND", tuples)))


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int64, np.int16, np.uint8])
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, kind: Any) -> None:
    rng = np.random.default_rng(7)
    x = (100 * rng.random((300, 41))).astype(kind)
    rows = rng.integers(0, 300, 1000)
    found = eager.gather(x, rows[None], axis=0, index_dimensions=1, device=device)
    np.testing.assert_array_equal(found, torch.index_select(torch.from_numpy(x), 0, torch.from_numpy(rows)).numpy())
    places = rng.integers(0, 41, (300, 41))
    found = eager.gather_elements(x, places, axis=1, device=device)
    np.testing.assert_array_equal(found, torch.gather(torch.from_numpy(x), 1, torch.from_numpy(places)).numpy())


# -- large problems


@pytest.mark.parametrize("sizes", [(70001, 3), (9, 65537)])
def test_more_than_a_grids_first_dimension(device: dmlvk.Device, sizes: Sizes) -> None:
    """The device is given 100 workgroups in x, so that grids need their second dimension."""
    x = np.random.default_rng(0).integers(0, 255, sizes, np.uint8)
    indices = np.random.default_rng(1).integers(-9, 9, (1, 2 * sizes[0]))
    with pytest.MonkeyPatch.context() as patch:
        few = dataclasses.replace(device.capabilities, workgroup_counts=(100, 65535, 65535), is_cpu=False)
        patch.setattr(device, "capabilities", few)
        found = eager.gather(x, indices, axis=0, index_dimensions=1, device=device)
    np.testing.assert_array_equal(found, x[indices[0]])
