"""Pointwise rows and plans, without a device."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.common.shapes import divisors
from dmlvk.kernels.elementwise.lowering import ROWS
from dmlvk.kernels.elementwise.rules import ELEMENTWISE
from dmlvk.kernels.lowering import lower, newest
from dmlvk.spec import ops
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import REGISTRY, OperatorDesc, ScaleBias
from dmlvk.spec.tensor import TensorDesc, cast_scalar, packed_strides

FLOAT32, FLOAT16, INT8, INT64 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "INT8", "INT64"))
GPU = Capabilities(workgroup_invocations=1024, features=frozenset({"storage8", "storage16", "int64", "float64"}))


def dispatch(desc: OperatorDesc, caps: Capabilities = GPU) -> Dispatch:
    desc.validate()
    (only,) = lower(desc, caps).dispatches
    assert isinstance(only, Dispatch)
    return only


def constants(desc: OperatorDesc, caps: Capabilities = GPU) -> dict[str, int]:
    return dict(dispatch(desc, caps).kernel.constants)


def add(sizes: tuple[int, ...], *strides: tuple[int, ...] | None, data_type: TensorDataType = FLOAT32) -> Any:
    a, b, output = (TensorDesc(data_type, sizes, steps) for steps in strides or (None,) * 3)
    return ops.ElementWiseAdd(a_tensor=a, b_tensor=b, output_tensor=output)


def rule(desc: OperatorDesc) -> str:
    return choose(ELEMENTWISE, LOWERINGS[type(newest(desc))].problem(newest(desc)), GPU).name


def unary(operator: Any, data_type: TensorDataType = FLOAT32, sizes: tuple[int, ...] = (5,), **fields: Any) -> Any:
    tensor = TensorDesc(data_type, sizes)
    return operator(input_tensor=tensor, output_tensor=tensor, **fields)


def test_packed_tensors_are_one_row_of_words() -> None:
    desc = add((2, 3, 5, 7))
    assert rule(desc) == "groups"
    assert constants(desc)["RANK"] == 1
    assert dispatch(desc).kernel.variant == (("LANES", "4"), ("T", "FLOAT32"), ("U", "FLOAT32"))


def test_tensors_of_one_layout_are_packed_whatever_it_is() -> None:
    nhwc = (7 * 5 * 3, 1, 7 * 3, 3)
    assert constants(add((2, 3, 5, 7), nhwc, nhwc, nhwc))["RANK"] == 1


def test_a_new_packed_shape_needs_no_new_pipeline() -> None:
    kernels = {dispatch(add(sizes)).kernel for sizes in ((5,), (2, 3, 5, 7), (64, 64), (1, 1, 4, 1, 9, 2))}
    assert len(kernels) == 1


def test_a_broadcast_operand_keeps_groups() -> None:
    packed = packed_strides((2, 64, 8, 8))
    channel = constants(add((2, 64, 8, 8), packed, (0, 1, 0, 0), packed))
    scalar = constants(add((2, 64, 8, 8), packed, (0, 0, 0, 0), packed))
    assert (channel["RANK"], channel["A_MODE"], channel["B_MODE"]) == (3, Access.GROUPS, Access.BROADCAST)
    assert (scalar["RANK"], scalar["A_MODE"], scalar["B_MODE"]) == (1, Access.GROUPS, Access.BROADCAST)


@pytest.mark.parametrize(
    ("sizes", "strides", "name"),
    [
        ((4, 8), (8, 1), "groups"),
        ((4, 7), (8, 1), "groups"),
        ((4, 8), (9, 1), "runs"),
        ((4, 8), (16, 2), "runs"),
        ((4, 8), (1, 4), "runs"),
        ((8, 3), (9, 1), "elements"),
    ],
)
def test_groups_need_rows_that_start_on_groups(sizes: tuple[int, ...], strides: tuple[int, ...], name: str) -> None:
    output = (8, 1) if sizes == (4, 7) else None
    assert rule(add(sizes, strides, output, output)) == name


def test_runs_need_a_packed_output_of_rows_that_hold_a_group() -> None:
    assert rule(add((5, 7), (9, 1), (7, 1), (8, 2))) == "elements"
    assert rule(add((5, 4), (9, 1), (5, 1), None)) == "runs"
    assert rule(add((5, 4), (9, 1), (5, 1), None, data_type=FLOAT16)) == "elements"


def test_runs_move_what_is_packed_as_the_output_in_groups() -> None:
    made = constants(add((5, 7), None, (9, 1), None))
    assert (made["RUNS"], made["A_MODE"], made["B_MODE"]) == (1, Access.GROUPS, Access.ELEMENTS)
    assert made["OUTPUT_MODE"] == Access.GROUPS


def test_a_cast_takes_groups_of_both_types() -> None:
    for source, target, lanes in ((FLOAT32, INT8, 4), (FLOAT16, INT8, 8), (INT64, FLOAT32, 2), (INT64, INT8, 4)):
        desc = ops.Cast(input_tensor=TensorDesc(source, (5, 3)), output_tensor=TensorDesc(target, (5, 3)))
        variant = dict(dispatch(desc).kernel.variant)
        assert variant["LANES"] == str(lanes)
        assert variant["T"] == source.name


def test_a_cast_between_integers_has_no_module_for_each_sign_of_its_output() -> None:
    kernels = {
        dispatch(ops.Cast(input_tensor=TensorDesc(INT8, (5,)), output_tensor=TensorDesc(TensorDataType[name], (5,)))).kernel
        for name in ("INT32", "UINT32")
    }
    assert len(kernels) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10, 641, 2**16 - 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
def test_divisors(size: int) -> None:
    """A division by multiplier and shifts, computed as ``quotient`` of tensor.glsl does."""
    multiplier, shifts = divisors((size,))
    assert multiplier < 2**32
    numbers = {0, 1, 2**32 - 1, *(size * k + d for k in (1, 2, 99, 2**32 // size) for d in (-1, 0, 1))}
    for number in (number for number in numbers if 0 <= number < 2**32):
        high = number * multiplier >> 32
        assert high + (number - high >> (shifts & 1)) >> (shifts >> 1) == number // size


NCHW, NHWC = packed_strides((2, 64, 40, 56)), (64 * 40 * 56, 1, 56 * 64, 64)


@pytest.mark.parametrize(
    ("strides", "odd"),
    [((NHWC, NCHW, NCHW), 0), ((NCHW, NHWC, NCHW), 1), ((NHWC, NHWC, NCHW), 2), ((NCHW, NCHW, NHWC), 2)],
)
def test_operands_of_two_layouts_meet_in_tiles(strides: tuple[tuple[int, ...], ...], odd: int) -> None:
    desc = add((2, 64, 40, 56), *strides)
    made = dispatch(desc)
    assert made.kernel.kernel == "elementwise_binary_tiles"
    assert dict(made.kernel.constants)["ODD"] == odd


def test_three_layouts_do_not() -> None:
    assert rule(add((64, 64, 64), (1, 64, 4096), (4096, 1, 64), (4096, 64, 1))) == "runs"


def test_large_grids_are_folded() -> None:
    caps = Capabilities(features=GPU.features, storage_buffer_bytes=2**32 - 4)
    scalar, packed = (0,), (1,)
    columns, rows, _ = dispatch(add((2**32 - 8,), scalar, scalar, packed, data_type=INT8), caps).grid
    assert columns <= 65535
    assert columns * rows >= (2**32 - 8) / (16 * 128)


def test_the_least_device_runs_workgroups_of_128() -> None:
    assert constants(add((5,)), Capabilities())["LOCAL_SIZE_X"] == 128


def test_identity_with_a_scale_is_arithmetic() -> None:
    desc = unary(ops.ElementWiseIdentity, INT64, scale_bias=ScaleBias(2.0, 1.0))
    assert dict(dispatch(desc).kernel.variant)["T"] == "INT64"
    with pytest.raises(UnsupportedError, match="int64"):
        lower(desc, Capabilities())


def test_attributes_are_parameters_in_the_structs_order() -> None:
    params = dispatch(unary(ops.ActivationScaledTanh, alpha=1.5, beta=0.25)).params
    assert struct.unpack("<fIfI", params[-16:]) == (1.5, 0, 0.25, 0)


def test_integer_bounds_keep_all_their_bits() -> None:
    low, high = -(2**62) - 1, 2**63 - 2
    desc = unary(ops.ElementWiseClip1, INT64, min_max_data_type=INT64, min=low, max=high)
    assert struct.unpack("<2q", dispatch(desc).params[-16:]) == (low, high)


def test_clip_becomes_clip1_with_its_bounds_cast() -> None:
    desc = newest(unary(ops.ElementWiseClip, INT8, min=-1000.0, max=3.9))
    assert isinstance(desc, ops.ElementWiseClip1)
    assert (desc.min_max_data_type, desc.min, desc.max) == (INT8, -128, 3)
    desc.validate()


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"min_max_data_type": FLOAT32}, "MinMaxDataType"), ({"min": -129}, "Min"), ({"max": 0.5}, "Max")],
)
def test_clip1_bounds_fit_the_type(changes: dict[str, Any], field: str) -> None:
    desc = unary(ops.ElementWiseClip1, INT8, **{"min_max_data_type": INT8, "min": 0, "max": 5, **changes})
    with pytest.raises(InvalidArgumentError) as caught:
        desc.validate()
    assert caught.value.field == field


@pytest.mark.parametrize(("operator", "field"), [(ops.ActivationCelu, "alpha"), (ops.ActivationSoftplus, "steepness")])
def test_a_divisor_is_not_0(operator: Any, field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        unary(operator, **{field: 0.0}).validate()


@pytest.mark.parametrize(
    ("value", "data_type", "cast"),
    [(0.1, FLOAT32, 0.1), (-3.9, INT8, -3), (300.0, INT8, 127), (-math.inf, INT64, -(2**63)), (2**63, INT64, 2**63 - 1)],
)
def test_cast_scalar(value: float, data_type: TensorDataType, cast: float) -> None:
    assert cast_scalar(value, data_type) == cast


def test_fused_activations() -> None:
    assert fused(None) == (OperatorType.INVALID, 0.0, 0.0, 1.0, 0.0)
    assert fused(ops.ActivationRelu()) == (OperatorType.ACTIVATION_RELU, 0.0, 0.0, 1.0, 0.0)
    assert fused(ops.ActivationShrink(bias=2.0, threshold=3.0)) == (OperatorType.ACTIVATION_SHRINK, 2.0, 3.0, 1.0, 0.0)
    assert fused(ops.ElementWiseClip(min=0.0, max=6.0)) == (OperatorType.ELEMENT_WISE_CLIP, 0.0, 6.0, 1.0, 0.0)
    scaled = ops.ElementWiseClip(min=0.0, max=6.0, scale_bias=ScaleBias(2.0, -3.0))
    assert fused(scaled) == (OperatorType.ELEMENT_WISE_CLIP1, 0.0, 6.0, 2.0, -3.0)


def test_every_fusable_activation_is_a_row_of_its_own() -> None:
    fusable = {row for row in REGISTRY.values() if row.fusable}
    assert fusable <= set(ROWS)
    assert len(fusable) == 19
