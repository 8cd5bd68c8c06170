"""Attributes at the ends of their types: a desc is refused by a typed error, or lowered, whatever they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.pooling.lowering import _MOST_ORDER
from dmlvk.spec import ops
from dmlvk.spec.enums import InterpolationMode, TensorDataType
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError
from dmlvk.spec.schema import REGISTRY, FieldKind, OperatorDesc, ScaleBias, Size2D
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build

CAPS = Capabilities(features=frozenset({"storage8", "storage16", "int64", "float64"}))
F = TensorDataType.FLOAT32
FLOATS = (3.4e38, -3.4e38, math.inf, 0.0, 1e-45, 1e-50, 5e-324, 2**128 - 1, 10**40, 10**400, math.nan)
UINTS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**64)
INTS = (0, -1, -(2**31), 2**31 - 1)
EXTREMES: dict[FieldKind, tuple[float, ...]] = {
    FieldKind.FLOAT: FLOATS,
    FieldKind.SCALAR_UNION: (*FLOATS, 2**63, 2**64 - 1, -(2**63)),
    FieldKind.UINT: UINTS,
    FieldKind.INT: INTS,
    FieldKind.FLOAT_ARRAY: FLOATS,
    FieldKind.UINT_ARRAY: UINTS,
    FieldKind.INT_ARRAY: INTS,
}


def changes(desc: OperatorDesc) -> Iterator[dict[str, Any]]:
    """The desc's attributes, each at each end, those of floats also in pairs."""
    for field in desc.fields:
        value, extremes = getattr(desc, field.name), EXTREMES.get(field.kind, ())
        if isinstance(value, tuple) and extremes:
            yield from ({field.name: (extreme,) * len(value)} for extreme in extremes)
        elif field.kind is FieldKind.SIZE_2D:
            yield from ({field.name: Size2D(extreme, extreme)} for extreme in UINTS)
        elif field.kind is FieldKind.SCALE_BIAS:
            yield from ({field.name: ScaleBias(extreme, extreme)} for extreme in FLOATS)
        elif value is not None:
            yield from ({field.name: extreme} for extreme in extremes)
    floats = [field.name for field in desc.fields if field.kind is FieldKind.FLOAT]
    for pair in itertools.combinations(floats, 2):
        yield from (dict(zip(pair, values, strict=True)) for values in itertools.product(FLOATS[:2], repeat=2))


@pytest.mark.parametrize("row", sorted(REGISTRY.values(), key=lambda row: row.type), ids=lambda row: row.__name__)
def test_every_extreme_is_lowered_or_refused(row: type[OperatorDesc]) -> None:
    entry = all_cases()[row]
    case = entry.cases[0]
    desc = build(row, Variation(case, (case.only or entry.crossed_types)[0], "packed")).desc
    for change in changes(desc):
        try:
            changed = desc.replace(**change)
            changed.validate()
            lower(changed, CAPS)
        except DmlvkError as error:
            assert str(error), change


def test_numbers_that_float32_rounds_to_zero_are_zero() -> None:
    tensor = TensorDesc(F, (1, 1, 4, 4))
    fields: dict[str, Any] = {"input_tensor": tensor, "output_tensor": tensor}
    for scale in (1e-50, -5e-324, 2.0**-150):
        resample = ops.Resample(**fields, scales=(1, 1, scale, 1), interpolation_mode=InterpolationMode.LINEAR)
        with pytest.raises(InvalidArgumentError, match="Scales: scales must be finite and, as FLOAT32, not 0"):
            resample.validate()
        with pytest.raises(InvalidArgumentError, match="Steepness: steepness must not be 0"):
            ops.ActivationSoftplus(**fields, steepness=scale).validate()
    ops.ActivationSoftplus(**fields, steepness=2.0**-149).validate()


def test_a_whole_number_fits_float32_as_its_float_does() -> None:
    tensor = TensorDesc(TensorDataType.FLOAT16, (2,))
    for value, fits in ((10**30, True), (2**127, True), (2**128 - 1, False), (10**400, False)):
        fill = ops.FillValueConstant(output_tensor=tensor, value=value, value_data_type=TensorDataType.FLOAT16)
        if fits:
            fill.validate()
            assert lower(fill, CAPS).dispatches
        else:
            with pytest.raises(InvalidArgumentError, match="Value"):
                fill.validate()


def test_the_gradient_of_local_response_names_a_product_that_overflows() -> None:
    tensor = TensorDesc(F, (1, 2, 3, 4))
    fields = dict.fromkeys(("input_tensor", "input_gradient_tensor", "output_gradient_tensor"), tensor)
    desc = ops.LocalResponseNormalizationGrad(**fields, local_size=3, alpha=3e38, beta=-3e38)
    with pytest.raises(InvalidArgumentError, match="2 \\* alpha \\* beta / local_size must fit a FLOAT32"):
        desc.validate()


def test_the_cap_of_a_norms_order_is_within_the_last_bit() -> None:
    assert 2 ** (32 / _MOST_ORDER) - 1 < 0.4 * 2**-23
    assert (1 - 2.0**-24) ** _MOST_ORDER > 2.0**-126
    assert (1 + 2.0**-23) ** _MOST_ORDER * 2**32 < 2.0**128
