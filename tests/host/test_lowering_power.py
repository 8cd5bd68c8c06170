"""Plans of the pointwise rows with kernels or launches of their own, and the bounds of gradients, without a device."""

from __future__ import annotations

import math

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.plan import Plan, Source
from dmlvk.kernels.lowering import lower, newest
from dmlvk.spec import ops
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc, ScaleBias
from dmlvk.spec.tensor import TensorDesc

GPU = Capabilities(workgroup_invocations=1024, features=frozenset({"storage8", "storage16", "int64", "float64"}))
T = TensorDataType


def plan(desc: OperatorDesc, caps: Capabilities = GPU) -> Plan:
    desc.validate()
    return lower(desc, caps)


def power(base: T, exponent: T, scale_bias: ScaleBias | None = None) -> ops.ElementWisePow:
    x, e = TensorDesc(base, (5, 6)), TensorDesc(exponent, (5, 6))
    return ops.ElementWisePow(input_tensor=x, exponent_tensor=e, output_tensor=x, scale_bias=scale_bias)


def choice(data_type: T, sizes: tuple[int, ...] = (5, 6)) -> ops.ElementWiseIf:
    tensor = TensorDesc(data_type, sizes)
    return ops.ElementWiseIf(
        condition_tensor=TensorDesc(T.UINT8, sizes), a_tensor=tensor, b_tensor=tensor, output_tensor=tensor
    )


def test_the_exponents_type_is_a_constant_and_not_a_module() -> None:
    exponents = ops.ElementWisePow.fields[1].data_types
    kernels = [plan(power(T.INT16, exponent)).dispatches[0].kernel for exponent in exponents]
    assert len({kernel.variant for kernel in kernels}) == 1
    assert len({kernel.constants for kernel in kernels}) == len(exponents) == 8
    of_bytes = dict(kernels[exponents.index(T.UINT8)].constants)
    assert (of_bytes["EXPONENT_BYTES"], of_bytes["EXPONENT_IS_FLOAT"], of_bytes["EXPONENT_IS_SIGNED"]) == (1, 0, 0)


def test_a_power_is_of_the_scaled_base() -> None:
    (made,) = plan(power(T.FLOAT32, T.FLOAT32, ScaleBias(2.0, 1.0))).dispatches
    assert dict(made.kernel.constants)["HAS_SCALE_BIAS"] == 1


@pytest.mark.parametrize("data_type", ops.ElementWiseIf.fields[1].data_types)
def test_a_choice_is_of_bits(data_type: T) -> None:
    (made,) = plan(choice(data_type), Capabilities(features=frozenset({"storage8", "storage16"}))).dispatches
    bits = min(int("".join(filter(str.isdigit, data_type.name))), 32)
    assert dict(made.kernel.variant) == {"LANES": dict(made.kernel.variant)["LANES"], "T": "UINT8", "U": f"UINT{bits}"}


def test_both_halves_of_64_bits_have_one_condition() -> None:
    (made,) = plan(choice(T.INT64, (5, 7))).dispatches
    constants = dict(made.kernel.constants)
    assert constants["RANK"] == 2
    assert constants["CONDITION_MODE"] in (Access.ELEMENTS, Access.BROADCAST)


def image(data_type: T, bias: tuple[float, ...], height: int, width: int, batch: int = 2) -> ops.ValueScale2d:
    tensor = TensorDesc(data_type, (batch, len(bias), height, width))
    return ops.ValueScale2d(input_tensor=tensor, output_tensor=tensor, scale=1.5, bias=bias)


def test_a_channel_is_a_launch_with_its_bias() -> None:
    dispatches = plan(image(T.FLOAT16, (1.0, 2.0, 3.0), 8, 8)).dispatches
    assert len(dispatches) == 3
    assert [made.bindings[0].offset for made in dispatches] == [0, 128, 256]
    assert {made.bindings[1].source for made in dispatches} == {Source.OUTPUT}
    assert {made.bindings[0].nbytes for made in dispatches} == {(3 + 1) * 128}
    assert {dict(made.kernel.constants)["OPERATION"] for made in dispatches} == {OperatorType.ACTIVATION_LINEAR}
    assert len({made.params for made in dispatches}) == 3
    assert len({made.kernel for made in dispatches}) == 1


def test_a_channel_that_starts_inside_a_word_moves_by_elements() -> None:
    lanes = [
        dict(made.kernel.variant)["LANES"] for made in plan(image(T.FLOAT16, (1.0, 2.0, 3.0), 3, 4, batch=1)).dispatches
    ]
    assert lanes == ["8", "1", "8"]  # at bytes 0, 24 and 48


@pytest.mark.parametrize("bias", [[1.0], (math.nan,), ("1",), (1e39,)])
def test_a_bias_is_a_tuple_of_numbers(bias: object) -> None:
    desc = image(T.FLOAT32, (1.0,), 2, 2).replace(bias=bias)
    with pytest.raises(InvalidArgumentError, match="must be a tuple of numbers that fit a FLOAT32, not NaN"):
        desc.validate()


@pytest.mark.parametrize(
    ("data_type", "least", "most"), [(T.FLOAT32, -0.5, 1.5), (T.INT8, 0, 1), (T.UINT8, 0, 1), (T.INT64, 0, 1)]
)
def test_clip_grad_has_the_bounds_of_clip(data_type: T, least: float, most: float) -> None:
    x = TensorDesc(data_type, (4,))
    gradient = newest(
        ops.ElementWiseClipGrad(input_tensor=x, input_gradient_tensor=x, output_gradient_tensor=x, min=-0.5, max=1.5)
    )
    clip = newest(ops.ElementWiseClip(input_tensor=x, output_tensor=x, min=-0.5, max=1.5))
    assert isinstance(gradient, ops.ElementWiseClipGrad1)
    assert isinstance(clip, ops.ElementWiseClip1)
    assert (gradient.min_max_data_type, gradient.min, gradient.max) == (data_type, least, most)
    assert (clip.min, clip.max) == (gradient.min, gradient.max)
    gradient.validate()
