"""What converters of all doors launch, of tensors without elements too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlvk.engine.launches import Launches
from dmlvk.engine.values import Value
from dmlvk.graph.step import Storage
from dmlvk.spec import ops
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError, UnsupportedError
from dmlvk.spec.tensor import packed_strides


class Plain(Launches[Value]):
    """The launches of a door that has nothing of its own."""

    def new(self, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Value:
        return Value(Storage(1024), dtype, sizes, packed_strides(sizes))

    def unsupported(self, reason: str) -> UnsupportedError:
        return UnsupportedError(reason)

    def invalid(self, rule: str, value: object, expected: object = None) -> DmlvkError:
        return InvalidArgumentError(rule, value=value, expected=expected)

    def upload(self, array: npt.NDArray[Any]) -> Value:
        return Value(Storage(array.nbytes, array), array.dtype, array.shape, packed_strides(array.shape))


def test_what_is_as_large_as_a_tensor_without_elements_has_none_and_launches_nothing() -> None:
    launches = Plain("")  # type: ignore[arg-type]  # an origin that nobody names
    empty = launches.new((1, 1, 0, 3), np.dtype(np.float32))
    assert launches.launch(ops.ActivationRelu, empty).sizes == (1, 1, 0, 3)
    assert launches.steps == []


def test_what_is_of_other_sizes_than_a_tensor_without_elements_must_be_given() -> None:
    """A product of no rows has the columns of its second factor."""
    launches = Plain("")  # type: ignore[arg-type]
    empty = launches.new((1, 1, 0, 3), np.dtype(np.float32))
    with pytest.raises(UnsupportedError, match="every size must be at least 1"):
        launches.launch(ops.Gemm, empty, launches.new((1, 1, 3, 4), np.dtype(np.float32)))
    output = launches.new((1, 1, 0, 4), np.dtype(np.float32))
    given = launches.launch(ops.Gemm, empty, launches.new((1, 1, 3, 4), np.dtype(np.float32)), output_tensor=output)
    assert given is output
    assert launches.steps == []
