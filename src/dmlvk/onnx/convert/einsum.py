"""Einsum: sums of products over named dimensions, as matrix products of views."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.matmul import multiply
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.ops.reduction import FUNCTION_TYPES
from dmlvk.spec.schema import DOUBLE, NUMERIC

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


class _Named(NamedTuple):
    """A tensor whose dimensions have names, each once."""

    value: Value
    names: tuple[str, ...]


_SUMMED = (*DOUBLE, *FUNCTION_TYPES[ReduceFunction.SUM])


def _refuse(node: NodeFacts) -> None:
    """What sums takes the types of sums; products and views take any."""
    terms, output = _sides(node)
    if any(name not in output for term in terms for name in term.replace("...", "")):
        node.takes(0, _SUMMED, "sums take")


@converts("Einsum", 12, types=NUMERIC, doubles=True, check=_refuse)
def einsum(node: Conversion) -> Value:
    """The inputs are taken two at a time, from the first on. Transposed and diagonal ones are views."""
    inputs = [node[index] for index in range(node.input_count)]
    terms, output = _parsed(node, inputs)
    sizes: dict[str, int] = {}
    for value, names in zip(inputs, terms, strict=True):
        for size, name in zip(value.sizes, names, strict=True):
            if size != 1 and sizes.setdefault(name, size) != size:
                raise node.invalid(f"dimension {name!r} must have one size in all inputs", size, sizes[name])
    operands = [_named(node, value, names, sizes) for value, names in zip(inputs, terms, strict=True)]
    result = operands[0]
    for index, operand in enumerate(operands[1:], 1):
        needed = {*output, *(name for later in operands[index + 1 :] for name in later.names)}
        result = _product(node, result, operand, needed)
    result = _summed(node, result, output)
    kept = tuple(name for name in output if name in result.names)
    value = result.value.transpose([result.names.index(name) for name in kept])
    value = node.reshape(value, tuple(sizes.get(name, 1) if name in kept else 1 for name in output))
    return value.broadcast_to(tuple(sizes.get(name, 1) for name in output))


def _sides(node: NodeFacts) -> tuple[list[str], str]:
    """The equation's terms and its output; where that is left out, it has what comes once, in order."""
    left, arrow, right = node.attribute("equation", "").replace(" ", "").partition("->")
    letters = left.replace("...", "").replace(",", "")
    once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return left.split(","), right if arrow else f"...{once}"


def _parsed(node: Conversion, inputs: Sequence[Value]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Each input's names and the output's. Dimensions behind "..." are named by numbers that count from the last one, so
    that they meet as numpy broadcasts."""
    equation = node.attribute("equation", "")
    terms, right = _sides(node)
    if len(terms) != len(inputs) or not all(_TERM.fullmatch(term) for term in (*terms, right)):
        raise node.invalid(f"the equation must have one term of letters for each of the {len(inputs)} inputs", equation)
    hidden = [value.rank - len(term.replace("...", "")) for term, value in zip(terms, inputs, strict=True)]
    if any(count < 0 or (count and "..." not in term) for count, term in zip(hidden, terms, strict=True)):
        rule = "each term of the equation must have a letter for each dimension of its input, or ..."
        raise node.invalid(rule, (equation, [value.rank for value in inputs]))

    def names(term: str, count: int) -> tuple[str, ...]:
        before, dots, after = term.partition("...")
        return (*before, *(str(number) for number in range(count, 0, -1) if dots), *after)

    named = [names(term, count) for term, count in zip(terms, hidden, strict=True)]
    output = names(right, max(hidden, default=0))
    if len(set(output)) < len(output) or not {*output} <= {name for term in named for name in term}:
        raise node.invalid("the equation's output must name dimensions of the inputs, each once", equation)
    return named, output


def _named(node: Conversion, value: Value, names: Sequence[str], sizes: dict[str, int]) -> _Named:
    """An input with each name once. A dimension of 1 that others have more of is left out: it broadcasts; one whose name
    comes twice is walked along its diagonal."""
    kept = [axis for axis, name in enumerate(names) if value.sizes[axis] == sizes.get(name, 1)]
    value = replace(
        value, sizes=tuple(value.sizes[axis] for axis in kept), strides=tuple(value.strides[axis] for axis in kept)
    )
    names = [names[axis] for axis in kept]
    once = tuple(dict.fromkeys(names))
    strides = tuple(sum(step for step, own in zip(value.strides, names, strict=True) if own == name) for name in once)
    return _Named(replace(value, sizes=tuple(sizes.get(name, 1) for name in once), strides=strides), once)


def _product(node: Conversion, a: _Named, b: _Named, needed: Collection[str]) -> _Named:
    """The sum of products over what both have and nothing else needs."""
    a, b = _summed(node, a, {*needed, *b.names}), _summed(node, b, {*needed, *a.names})
    rows = tuple(name for name in a.names if name not in b.names)
    columns = tuple(name for name in b.names if name not in a.names)
    batch = tuple(name for name in a.names if name in b.names and name in needed)
    inner = tuple(name for name in a.names if name in b.names and name not in needed)
    names = (*batch, *rows, *columns)
    if inner and a.value.dtype.kind == "f":
        left, right = _matrices(node, a, batch, rows, inner), _matrices(node, b, batch, inner, columns)
        sizes = dict(zip((*a.names, *b.names), (*a.value.sizes, *b.value.sizes), strict=True))
        return _Named(node.reshape(multiply(node, left, right), tuple(sizes[name] for name in names)), names)
    full = (*names, *inner)
    y = node.elementwise(ops.ElementWiseMultiply, _spread(a, full), _spread(b, full))
    return _summed(node, _Named(y, full), needed)


def _matrices(node: Conversion, operand: _Named, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Value:
    """The tensor as one matrix, or a stack of them."""
    names = operand.names
    value = operand.value.transpose([names.index(name) for name in (*batch, *rows, *columns)])
    at, further = len(batch), len(batch) + len(rows)
    sizes = value.sizes
    stack = (math.prod(sizes[:at]),) if batch else ()
    return node.reshape(value, (*stack, math.prod(sizes[at:further]), math.prod(sizes[further:])))


def _spread(operand: _Named, names: Sequence[str]) -> Value:
    """The tensor with a dimension for each name, of size 1 for those it does not have."""
    own = [operand.names.index(name) if name in operand.names else None for name in names]
    value = operand.value
    return replace(
        value,
        sizes=tuple(1 if axis is None else value.sizes[axis] for axis in own),
        strides=tuple(0 if axis is None else value.strides[axis] for axis in own),
    )


def _summed(node: Conversion, operand: _Named, needed: Collection[str]) -> _Named:
    """The tensor without the dimensions that nothing needs."""
    axes = tuple(axis for axis, name in enumerate(operand.names) if name not in needed)
    if not axes:
        return operand
    value, names = operand.value, tuple(name for name in operand.names if name in needed)
    sizes = tuple(size for axis, size in enumerate(value.sizes) if axis not in axes)
    if 0 in value.sizes:
        return _Named(node.fill(sizes, value.dtype.type(0)), names)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(value.sizes))
    y = node.launch(ops.Reduce, value, output_tensor=node.new(kept, value.dtype), function=ReduceFunction.SUM, axes=axes)
    return _Named(node.reshape(y, sizes), names)
