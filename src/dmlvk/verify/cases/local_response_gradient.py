"""Cases of the gradient of local response normalization: the forward operator's, and long regions."""

from __future__ import annotations

import dataclasses

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.verify.cases.model import OperatorCases, Tolerance
from dmlvk.verify.cases.normalization import LOCAL_RESPONSES, local_response

_LONG = (
    local_response("a region of many channels", (2, 23, 3, 8), 19),
    local_response("several workgroups", (3, 10, 9, 28), 5, layouts=False),
)

CASES = (
    OperatorCases(
        ops.LocalResponseNormalizationGrad,
        {
            # At the size of the terms: the roundings of two sums of squares, each taken beta or beta + 1 times by a power,
            # of two powers, two quotients and the sum. 7.9 seen over a million values with powers from -2 to 2; of FLOAT16
            # there is the rounding of the result and little else.
            TensorDataType.FLOAT32: Tolerance(9),
            TensorDataType.FLOAT16: Tolerance(0.52),
        },
        tuple(
            dataclasses.replace(
                case, inputs=dict.fromkeys(("input_tensor", "input_gradient_tensor"), case.inputs["input_tensor"])
            )
            for case in LOCAL_RESPONSES + _LONG
        ),
    ),
)
