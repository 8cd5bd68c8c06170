"""One function for each operator: numpy in, numpy out.

``dmlvk.eager.element_wise_add(a, b)`` describes, compiles (once for each distinct call), binds, runs and reads back.
The functions are made from the operator table when they are first asked for:

- The name is the operator's in snake case: ``mean_variance_normalization1``, ``roi_align``.
- Input tensors come first, in the specification's order, None where an optional one is absent. All other fields are
  keywords of the same name as in the operator's class.
- ``outputs`` names optional outputs that are wanted as well. ``output_sizes`` and ``output_data_types`` say what the
  operator cannot infer: one entry for each output that is wanted, or a single one.
- An output's data type is inferred where the operator's rules tie it to that of an input or an attribute. Comparisons,
  predicates and counts of bits, which may be UINT8 or UINT32, are UINT8, numpy's size of a bool. ``cast`` must be told.
- Tensors of an element-wise operator broadcast as numpy's do. Python's numbers, and lists of them, take the type of the
  arrays beside them, or float32 and int64 where there is none. ``axis`` and ``axes`` count from the end where they are
  negative; a single one of several axes needs no sequence.
- One output is returned as it is, several as a tuple.
- Arrays may have any strides. They become the tensor's strides, and the bytes between an array's first and last
  element are uploaded once: a broadcast array stays as small as it is. Only negative strides, and strides that are no
  multiple of the element, cost a packed copy. An array without dimensions is a tensor of the sizes {1}; bool is UINT8.
- ``DeviceArray`` in gives ``DeviceArray`` out, without waiting; with numpy and device arrays mixed, too.
- A size may be 0. Nothing is launched for outputs without elements.
- numpy has no 4-bit types: as outputs their numbers come as int8 or uint8, inputs are given as ``DeviceArray``.

An invalid call raises the same typed error as the operator's desc would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmlvk.eager_calls import Call, execute
from dmlvk.spec.functions import EAGER_OPTIONS, documentation, function_name, row_named, rows_by_name, signature
from dmlvk.spec.schema import OperatorDesc


def _make_function(row: type[OperatorDesc]) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        return execute(Call(row, args, named))

    function.__name__ = function.__qualname__ = function_name(row)
    function.__doc__ = documentation(row, EAGER_OPTIONS)
    function.__signature__ = signature(row, EAGER_OPTIONS)  # type: ignore[attr-defined]  # for help()
    return function


def __getattr__(name: str) -> Callable[..., Any]:
    function = globals()[name] = _make_function(row_named(name, "dmlvk.eager"))
    return function


def __dir__() -> list[str]:
    return sorted(rows_by_name())
