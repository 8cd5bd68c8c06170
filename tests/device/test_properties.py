"""Properties of operators over random ranks, sizes, strides, types and offsets, and over mistakes: what is valid equals the
oracle and touches nothing else, what is not is refused. The pointwise operators are in test_pointwise_properties.py, whole
families of others in test_family_properties.py."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drawing import SIZES, draw_tensor, examples, fill
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc
from dmlvk.spec import ops
from dmlvk.spec.enums import InterpolationMode, ReduceFunction
from dmlvk.spec.errors import spelled
from dmlvk.spec.schema import FLOATS, OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import EXACT, NUMPY_TYPES, Case, normal
from dmlvk.verify.cases.problem import Problem, Variation
from dmlvk.verify.check import check_problem


def assert_right(
    device: dmlvk.Device,
    desc: OperatorDesc,
    inputs: tuple[GuardedTensor | None, ...],
    output: GuardedTensor,
    *,
    ulp: float | None = None,
) -> None:
    """Runs the desc twice: the same bits, within the tolerance of its cases (or ``ulp``), and no other byte changed."""
    entry, data_type = all_cases()[type(desc)], output.desc.data_type
    if ulp is not None:
        limit = entry.tolerance.get(data_type, EXACT)
        entry = dataclasses.replace(entry, tolerance={data_type: dataclasses.replace(limit, ulp=ulp)})
    variation = Variation(Case("drawn", {}), data_type, "drawn")
    outcome = check_problem(device, entry, variation, Problem(desc, inputs, (output,)))
    assert outcome.passed and not outcome.unsupported, f"{outcome.detail}\n{desc}"


def boxes(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Any:
    """Boxes inside, across and outside an image, empty, mirrored, and with what is no number."""
    values = rng.uniform(-12, 30, sizes)
    odd = rng.choice([0.0, 1.0, 7.5, -1e6, 1e6, np.inf, -np.inf, np.nan], sizes)
    values = np.where(rng.random(sizes) < 0.1, odd, values)
    values[..., 2:] = np.where(rng.random((*sizes[:-1], 1)) < 0.2, values[..., :2], values[..., 2:])
    with np.errstate(over="ignore"):
        return values.astype(NUMPY_TYPES[data_type])


def batch_indices(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Any:
    limits = np.iinfo(NUMPY_TYPES[data_type])
    choices = [0, 1, 2, 2**31, limits.max, limits.max - 1] + [2**32, 2**32 + 1, 2**40] * (limits.bits == 64)
    return rng.choice(np.array(choices, NUMPY_TYPES[data_type]), sizes)


ROI_ALIGN_PIPELINES = [
    combination
    for index, combination in enumerate(
        itertools.product(
            (TensorDataType.FLOAT32, TensorDataType.FLOAT16),
            (ReduceFunction.AVERAGE, ReduceFunction.MAX),
            (InterpolationMode.LINEAR, InterpolationMode.NEAREST_NEIGHBOR),
            (TensorDataType.UINT32, TensorDataType.UINT64),
        )
    )
    if index.bit_count() % 2 == 0
]
"""Any three values with each other: each combination is pipelines of its own, and so is each height of an output."""


@examples(40)
@given(data=st.data())
def test_roi_align(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    data_type, function, interpolation, kind = draw(st.sampled_from(ROI_ALIGN_PIPELINES))
    count, channels = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 17]))
    image = draw_tensor(draw, data_type, (draw(st.integers(1, 3)), channels, draw(SIZES), draw(SIZES)))
    roi = draw_tensor(draw, data_type, (*(1,) * draw(st.integers(0, 2)), count, 4))
    batch = draw_tensor(draw, kind, (*(1,) * draw(st.integers(0, 3)), count))
    crop = (draw(st.sampled_from([1, 7, 9])), draw(st.integers(1, 9)))
    output = draw_tensor(draw, data_type, (count, channels, *crop), is_output=True)
    fill(draw, image, normal)
    fill(draw, roi, boxes)
    fill(draw, batch, batch_indices)
    least = draw(st.integers(0, 4))
    desc = ops.RoiAlign(
        input_tensor=image.desc,
        roi_tensor=roi.desc,
        batch_indices_tensor=batch.desc,
        output_tensor=output.desc,
        reduction_function=function,
        interpolation_mode=interpolation,
        spatial_scale_x=draw(st.sampled_from([1.0, 0.25, 0.0, -1.0])),
        spatial_scale_y=draw(st.sampled_from([1.0, 0.5, 0.0])),
        out_of_bounds_input_value=draw(st.sampled_from([0.0, -2.5])),
        minimum_samples_per_output=least,
        maximum_samples_per_output=draw(st.integers(max(least, 1), 9)),
    )
    assert_right(device, desc, (image, roi, batch), output)


@examples(20)
@given(data=st.data())
def test_gemm(device: dmlvk.Device, data: st.DataObject) -> None:
    draw = data.draw
    data_type = draw(st.sampled_from(FLOATS))
    rows, depth, columns = draw(SIZES), draw(SIZES), draw(SIZES)
    batch = draw(st.sampled_from([(), (2, 1), (1, 3)]))
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    a = draw_tensor(draw, data_type, (*batch, depth, rows) if trans_a else (*batch, rows, depth))
    b = draw_tensor(draw, data_type, (*batch, columns, depth) if trans_b else (*batch, depth, columns))
    c = draw_tensor(draw, data_type, (*batch, rows, columns)) if draw(st.booleans()) else None
    output = draw_tensor(draw, data_type, (*batch, rows, columns), is_output=True)
    for tensor in (a, b) if c is None else (a, b, c):
        fill(draw, tensor, normal)
    desc = ops.Gemm(
        a_tensor=a.desc,
        b_tensor=b.desc,
        c_tensor=c and c.desc,
        output_tensor=output.desc,
        trans_a=dmlvk.MatrixTransform(int(trans_a)),
        trans_b=dmlvk.MatrixTransform(int(trans_b)),
        alpha=draw(st.sampled_from([1.0, -0.5])),
        beta=draw(st.sampled_from([0.0, 1.0, 2.0])),
    )
    # Random broadcasts may make all products of a sum equal, whose roundings then add up: the bound is n / 2.
    ulp = None if data_type is TensorDataType.FLOAT16 else max(8.0, depth / 2)
    assert_right(device, desc, (a, b, c), output, ulp=ulp)


# -- what is not valid


def _tensor(*sizes: int, data_type: TensorDataType = TensorDataType.FLOAT32, **fields: Any) -> TensorDesc:
    return TensorDesc(data_type, sizes, **fields)


X = _tensor(2, 3, 4, 5)
VALID = {
    "mvn": ops.MeanVarianceNormalization1(
        input_tensor=X, scale_tensor=_tensor(1, 3, 1, 1), bias_tensor=X, output_tensor=X, axes=(2, 3)
    ),
    "roi": ops.RoiAlign(
        input_tensor=X,
        roi_tensor=_tensor(6, 4),
        batch_indices_tensor=_tensor(6, data_type=TensorDataType.UINT32),
        output_tensor=_tensor(6, 3, 2, 2),
    ),
}
BROKEN_TENSORS: dict[str, Callable[[TensorDesc], object]] = {
    "type": lambda t: TensorDesc(TensorDataType.FLOAT64, t.sizes),
    "another type": lambda t: TensorDesc(TensorDataType.FLOAT16, t.sizes),
    "a size": lambda t: TensorDesc(t.data_type, (*t.sizes[:-1], t.sizes[-1] + 1)),
    "dimensions": lambda t: TensorDesc(t.data_type, (1,) * (8 - len(t.sizes)) + t.sizes),
    "no desc": lambda t: 3,
    "several": lambda t: (t, t),
    "none of several": lambda t: (),
}
BROKEN_ATTRIBUTES: dict[str, list[object]] = {
    "axes": [(4,), (1, 1), (-1,), (0.5,), (True,), 1, None, (2**32,), [1]],
    "normalize_variance": [1, None, "yes"],
    "epsilon": [math.nan, "x", None, 1e39, -1e300, 10**400, 1j, True],
    "fused_activation": [ops.ElementWiseAdd(), "relu", ops.ActivationRelu(input_tensor=X)],
    "reduction_function": [ReduceFunction.SUM, 99, None],
    "interpolation_mode": [99, "linear"],
    "spatial_scale_x": [math.inf, math.nan, 1e39],
    "out_of_bounds_input_value": [math.nan, 1e39, None],
    "minimum_samples_per_output": [-1, 2**32, 1.0],
    "maximum_samples_per_output": [0, -1, 2**32, None],
}
TENSOR_FIELDS = [(name, spec.name) for name, desc in VALID.items() for spec in desc.fields if spec.kind.is_tensor]
ATTRIBUTE_FIELDS = [
    (name, field, value)
    for name, desc in VALID.items()
    for field, values in BROKEN_ATTRIBUTES.items()
    if hasattr(desc, field)
    for value in values
]


def assert_refused(device: dmlvk.Device, desc: OperatorDesc) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        device.create_operator(desc)
    error = caught.value
    assert error.operator == desc.type.dml_name
    assert error.field and error.rule and spelled(error.value) in str(error)


@pytest.mark.parametrize("kind", BROKEN_TENSORS)
@pytest.mark.parametrize(("name", "field"), TENSOR_FIELDS)
def test_a_broken_tensor_is_refused(device: dmlvk.Device, name: str, field: str, kind: str) -> None:
    desc = VALID[name]
    tensor = desc.tensor(field)
    broken = BROKEN_TENSORS[kind](tensor)
    # What is broken for the other tensors and fields but right for these.
    if (field, kind) in {("roi_tensor", "dimensions"), ("batch_indices_tensor", "dimensions")}:
        broken = TensorDesc(tensor.data_type, (2, *tensor.sizes))
    if (name, field, kind) == ("roi", "input_tensor", "a size") or (name, field, kind) == ("roi", "output_tensor", "a size"):
        broken = TensorDesc(tensor.data_type, (tensor.sizes[0] + 1, tensor.sizes[1] + 1, *tensor.sizes[2:]))
    assert_refused(device, desc.replace(**{field: broken}))


@pytest.mark.parametrize(("name", "field", "value"), ATTRIBUTE_FIELDS)
def test_a_broken_attribute_is_refused(device: dmlvk.Device, name: str, field: str, value: object) -> None:
    assert_refused(device, VALID[name].replace(**{field: value}))


@pytest.mark.parametrize("field", [field for name, field in TENSOR_FIELDS if "output" in field])
def test_an_output_that_overlaps_itself_is_refused(device: dmlvk.Device, field: str) -> None:
    for desc in VALID.values():
        sizes = desc.tensor(field).sizes
        strides = (*TensorDesc(TensorDataType.FLOAT32, sizes).effective_strides[:-1], 0)
        assert_refused(device, desc.replace(**{field: TensorDesc(TensorDataType.FLOAT32, sizes, strides)}))
