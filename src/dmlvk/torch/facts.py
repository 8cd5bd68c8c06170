"""What PyTorch's compiler knows of a graph's values: types, sizes that may be symbols, and which inputs a run changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import sympy
import torch
from torch import fx
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from dmlvk.graph.views import Sizes
from dmlvk.spec.errors import UnsupportedError
from dmlvk.torch.registry import ROWS, missing
from dmlvk.torch.types import is_stored

Expression: TypeAlias = Any
"""A size: a number, or sympy's expression of symbols."""
Symbols = dict[Any, int]
"""The values of symbols."""


class TensorFacts(NamedTuple):
    """What is known of a tensor.

    Attributes:
        dtype: PyTorch's type of an element.
        sizes, strides: Elements a dimension, and between neighbours of each.
        order: The dimensions from the one with the largest steps to the one with the least; those of a packed tensor are in
            order.
        is_on_host: Whether PyTorch has it in the host's memory.
    """

    dtype: torch.dtype
    sizes: tuple[Expression, ...]
    order: tuple[int, ...]
    is_on_host: bool


Facts = TensorFacts | Expression | None | list["Facts"]


def facts_of(value: object) -> Facts:
    """What is known of a node's value: of several a list, of a number its expression, None of anything else."""
    if isinstance(value, torch.Tensor):
        sizes = tuple(expression_of(size) for size in value.shape)
        strides = [_hint(stride) for stride in value.stride()]
        extents = [_hint(size) for size in value.shape]
        return TensorFacts(value.dtype, sizes, order_of(extents, strides), value.device.type == "cpu")
    if isinstance(value, list | tuple):
        return [facts_of(item) for item in value]
    if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
        return expression_of(value)
    return None


def expression_of(size: int | torch.SymInt) -> Expression:
    """A size as a number or an expression of symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else int(size)


def _hint(size: int | torch.SymInt) -> int:
    """A number of the size that the compiler saw."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node.hint is None:
        raise UnsupportedError(
            f"the size {size} follows from numbers on the device; a graph's sizes are known before it runs"
        )
    return int(size.node.hint)


def order_of(sizes: tuple[int, ...] | list[int], strides: tuple[int, ...] | list[int]) -> tuple[int, ...]:
    """The order in which the dimensions of a tensor lie in memory without gaps: from the largest steps to the least. Where
    they do not, their own order."""
    own = tuple(range(len(sizes)))
    order = tuple(sorted(own, key=lambda axis: (-strides[axis], axis)))
    return order if is_packed_in(order, sizes, strides) and not is_packed_in(own, sizes, strides) else own


def is_packed_in(order: tuple[int, ...], sizes: tuple[int, ...] | list[int], strides: tuple[int, ...] | list[int]) -> bool:
    """Whether the elements lie without gaps with the dimensions in this order."""
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step:
            return False
        step *= sizes[axis]
    return True


def number_of(expression: Expression, symbols: Symbols) -> int:
    """The value of a size, which records what is computed of it where a symbol's does."""
    if isinstance(expression, int):
        return expression
    found = sympy_interp(PythonReferenceAnalysis, symbols, expression)
    number: int = int(found) if isinstance(found, sympy.Integer) else found  # what a real number is cut off to
    return number


def sizes_of(facts: TensorFacts, symbols: Symbols) -> Sizes:
    """The sizes of a tensor."""
    return tuple(number_of(size, symbols) for size in facts.sizes)


def bind(symbols: Symbols, expressions: tuple[Expression, ...], values: Sizes) -> None:
    """Notes the values of symbols that stand for sizes by themselves."""
    for index, expression in enumerate(expressions):
        if isinstance(expression, sympy.Symbol):
            symbols.setdefault(expression, values[index])


def operator_name(node: fx.Node) -> str:
    """The name of a node's operator, with its overload."""
    return (
        str(node.target)
        if isinstance(node.target, torch._ops.OpOverload)
        else getattr(node.target, "__name__", str(node.target))
    )


def is_host_node(node: fx.Node) -> bool:
    """Whether a node computes with sizes alone, or takes one of several outputs."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return not isinstance(node.target, torch._ops.HigherOrderOperator)
    return operator_name(node) in HOST


HOST = frozenset({"aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel.default", "aten.sym_storage_offset.default"})
"""Operators that give a size."""
ASSERTIONS = frozenset(
    {
        "aten._assert_scalar.default",
        "aten._assert_async.msg",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
"""Operators that compute nothing: what they see to, the compiler's guards have seen to already."""
WRITES = "aten.copy_.default"
"""The operator at a graph's end that writes what an input is afterwards."""


def device_nodes(graph: fx.Graph) -> Iterator[fx.Node]:
    """The nodes that need a converter."""
    for node in graph.nodes:
        if node.op == "call_function" and not is_host_node(node) and operator_name(node) not in (*ASSERTIONS, WRITES):
            yield node


def is_foreign(node: fx.Node) -> bool:
    """Whether a node has no converter, or has to do with tensors whose elements no device has."""
    values = [own.meta.get("val") for own in (node, *node.all_input_nodes)]
    tensors = [item for value in values for item in (value if isinstance(value, list | tuple) else (value,))]
    return operator_name(node) not in ROWS or any(
        isinstance(item, torch.Tensor) and not is_stored(item.dtype) for item in tensors
    )


def missing_operators(graph: fx.Graph) -> list[str]:
    """The operators of a graph that have no converter."""
    return missing(operator_name(node) for node in device_nodes(graph))
