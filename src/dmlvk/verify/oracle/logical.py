"""Logic, comparisons, predicates and bits, by numpy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec.enums import IsInfinityMode
from dmlvk.spec.schema import OperatorDesc

Array = NDArray[Any]
Oracle = Callable[..., Array]


def truth(function: Callable[..., Array]) -> Oracle:
    """The oracle of a function that tells true from false."""

    def oracle(desc: Any, *inputs: Array) -> Array:
        return function(*inputs).astype(dtype_of(desc.output_tensor.data_type))

    return oracle


element_wise_logical_and = truth(np.logical_and)
element_wise_logical_or = truth(np.logical_or)
element_wise_logical_xor = truth(np.logical_xor)
element_wise_logical_not = truth(np.logical_not)
element_wise_logical_equals = truth(np.equal)
element_wise_logical_greater_than = truth(np.greater)
element_wise_logical_less_than = truth(np.less)
element_wise_logical_greater_than_or_equal = truth(np.greater_equal)
element_wise_logical_less_than_or_equal = truth(np.less_equal)
element_wise_is_nan = truth(np.isnan)


def element_wise_is_infinity(desc: Any, x: Array) -> Array:
    mode = desc.infinity_mode
    positive, negative = np.isposinf(x), np.isneginf(x)
    accepted = (
        positive if mode is IsInfinityMode.POSITIVE else negative if mode is IsInfinityMode.NEGATIVE else positive | negative
    )
    return accepted.astype(np.uint8)


def bitwise(function: Callable[..., Array]) -> Oracle:
    """The oracle of a function of raw bits: numpy's functions of unsigned integers."""

    def oracle(desc: OperatorDesc, *inputs: Array) -> Array:
        bits = [x.view(f"u{x.dtype.itemsize}") for x in inputs]
        return function(*bits).view(inputs[0].dtype)

    return oracle


element_wise_bit_and = bitwise(np.bitwise_and)
element_wise_bit_or = bitwise(np.bitwise_or)
element_wise_bit_xor = bitwise(np.bitwise_xor)
element_wise_bit_not = bitwise(np.bitwise_not)
element_wise_bit_shift_left = bitwise(np.left_shift)
element_wise_bit_shift_right = bitwise(np.right_shift)


def element_wise_bit_count(desc: Any, x: Array) -> Array:
    counts: Array = np.unpackbits(np.ascontiguousarray(x)[..., np.newaxis].view(np.uint8), axis=-1).sum(axis=-1)
    return counts.astype(dtype_of(desc.output_tensor.data_type))
