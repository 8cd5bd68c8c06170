"""Cases of the gradients of pointwise operators. Nothing is computed, so all of it is exact."""

from __future__ import annotations

from typing import Final

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType as T
from dmlvk.verify.cases.elementwise import CLIP1_BOUNDS, QUICK, SHAPES
from dmlvk.verify.cases.model import Case, OperatorCases, special, uniform

INPUTS: Final = ("input_tensor", "input_gradient_tensor")
TWICE: Final = dict.fromkeys(INPUTS, (3, 7, 29))

CASES: Final = (
    OperatorCases(
        ops.ActivationReluGrad,
        {},
        (
            Case(QUICK, dict.fromkeys(INPUTS, SHAPES[QUICK]), quick=True),
            Case("special", TWICE, domains={"": special}, layouts=False),
        ),
        every_rule=False,
    ),
    OperatorCases(
        ops.ElementWiseClipGrad,
        {},
        (
            Case("at the bounds", TWICE, {"min": -1.0, "max": 7.0}, domains={"": special}, layouts=False, quick=True),
            Case("truncated bounds", TWICE, {"min": 1.5, "max": 9.9}, domains={"": uniform(0, 12)}, layouts=False),
            Case("no bounds", TWICE, {"min": float("-inf"), "max": float("inf")}, layouts=False),
        ),
        every_rule=False,
    ),
    OperatorCases(
        ops.ElementWiseClipGrad1,
        {},
        tuple(
            Case(
                f"{data_type.name} bounds",
                TWICE,
                {"min_max_data_type": data_type, "min": low, "max": high},
                only=(data_type,),
                layouts=data_type in (T.FLOAT16, T.INT32),
            )
            for data_type, low, high in CLIP1_BOUNDS
        ),
        every_rule=False,
    ),
)
