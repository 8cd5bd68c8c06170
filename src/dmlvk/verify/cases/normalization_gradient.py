"""Cases of the gradients of normalizations: every way that summed and kept dimensions lie, and every way to hold a row."""

from __future__ import annotations

from typing import Any

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance, normal, uniform
from dmlvk.verify.cases.normalization import _few_special

_BATCH_TOLERANCE = {
    # 1 / sqrt(variance + epsilon) with up to 2 ULP, and the roundings of x - mean and of two products: 3.5 over a million
    # values on lavapipe. Sums count at the size of all that was added.
    TensorDataType.FLOAT32: Tolerance(4),
    TensorDataType.FLOAT16: Tolerance(1),
}
_TRAINING_TOLERANCE = {
    # The last term has that root three times as a factor: 6.8 over a million values on lavapipe.
    TensorDataType.FLOAT32: Tolerance(8),
    TensorDataType.FLOAT16: Tolerance(1),
}


def _batch(
    name: str,
    sizes: tuple[int, ...],
    own: tuple[int, ...],
    *,
    quick: bool = False,
    layouts: bool = True,
    domain: Any = normal,
    mean: Any = normal,
    **attributes: object,
) -> Case:
    """A case whose mean, variance and scale have the sizes ``own``."""
    inputs = {"input_tensor": sizes, "input_gradient_tensor": sizes}
    inputs |= dict.fromkeys(("mean_tensor", "variance_tensor", "scale_tensor"), own)
    domains = {"input_tensor": domain, "mean_tensor": mean, "variance_tensor": uniform(0.25, 4)}
    return Case(name, inputs, attributes, domains=domains, layouts=layouts, quick=quick)


_BATCH = (
    _batch("channels", (3, 5, 3, 7), (1, 5, 1, 1), quick=True),
    _batch("channels of whole words", (3, 5, 4, 8), (1, 5, 1, 1), quick=True),
    _batch("channels last", (37, 24), (1, 24), quick=True),
    _batch("channels last, odd", (23, 70), (1, 70)),
    _batch("channels last, long", (1100, 16), (1, 16)),
    _batch("channels last, long and odd", (1031, 3), (1, 3), layouts=False),
    _batch("each image", (3, 5, 4, 8), (3, 5, 1, 1)),
    _batch("every other dimension", (3, 4, 5, 6), (3, 1, 5, 1)),
    _batch("long channels", (3, 2, 12000), (1, 2, 1), layouts=False),
    _batch("long channels of an odd length", (2, 33001), (2, 1)),
    _batch("long channels in chunks", (1, 2, 40008), (1, 2, 1), layouts=False),
    _batch("many short rows", (4099, 8), (4099, 1), layouts=False),
    _batch("one for all", (3, 5, 8), (1, 1, 1)),
    _batch("each element", (3, 5, 8), (3, 5, 8)),
    _batch("each element of odd sizes", (3, 5), (3, 5), layouts=False),
    _batch("one element", (1,), (1,), layouts=False),
    _batch("one dimension", (37,), (1,)),
    _batch("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (1, 1, 3, 1, 1, 2, 1, 2)),
    _batch("epsilon", (3, 24), (1, 24), epsilon=0.5, layouts=False),
    _batch("far from 0", (37, 24), (1, 24), domain=uniform(1000, 1010), mean=uniform(1000, 1010), layouts=False),
    _batch("infinities and NaN", (5, 3, 16), (5, 1, 1), domain=_few_special, layouts=False),
)

CASES = (
    OperatorCases(ops.BatchNormalizationGrad, _BATCH_TOLERANCE, _BATCH),
    OperatorCases(ops.BatchNormalizationTrainingGrad, _TRAINING_TOLERANCE, _BATCH),
)
