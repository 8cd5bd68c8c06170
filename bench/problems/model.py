"""What a measured problem is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlvk import TensorDataType, TensorDesc
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import element_bits

FLOAT32, FLOAT16, UINT8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
FLOATS = (FLOAT32, FLOAT16)


@dataclass(frozen=True)
class Group:
    """Problems that have a target together: the geometric mean of their ratios of rival time to ours is at least this."""

    name: str
    target: float


@dataclass(frozen=True)
class Problem:
    """One measured problem.

    Attributes:
        name: What the results call it.
        desc: The operator.
        rival: Given torch and the input tensors on its device, what the rival runs. What it gives for the same inputs
            in float32 is what both outputs are compared with.
        target: At least this ratio of rival time to ours; 0 for none.
        bytes_moved: Bytes that any implementation must read and write.
        copy_target: At least this share of the copy bandwidth of the same run; 0 for none.
        fill: Given torch, how an input is filled, by input field; standard normal numbers otherwise.
        tolerance: Largest difference from that, relative to the largest output.
        operations: Additions and multiplications, a multiply-add counted as two; 0 where bytes are what counts.
        prepare: Given torch and the input tensors, what the rival is given instead of these, made before time is taken:
            weights as its library wants them.
        group: What the problem belongs to.
        check: Where that cannot be compared, because outputs are undefined in parts or other random numbers: given torch,
            the inputs' memory as numpy arrays and the output tensors, the largest difference from what they should be.
    """

    name: str
    desc: OperatorDesc
    rival: Callable[..., Any]
    target: float
    bytes_moved: int
    copy_target: float = 0.0
    fill: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    tolerance: float = 1e-5
    operations: int = 0
    prepare: Callable[..., Sequence[Any]] | None = None
    group: Group | None = None
    check: Callable[..., float] | None = None


def nbytes(*tensors: TensorDesc) -> int:
    """Bytes of elements, those of a broadcast dimension counted once."""
    total = 0
    for tensor in tensors:
        steps = zip(tensor.sizes, tensor.effective_strides, strict=True)
        total += element_bits(tensor.data_type) // 8 * math.prod(size for size, step in steps if step)
    return total


def tensors_problem(
    name: str,
    row: type[OperatorDesc],
    tensors: Sequence[TensorDesc],
    rival: Callable[..., Any],
    goal: Mapping[str, float],
    **more: Any,
) -> Problem:
    """A problem of an operator whose tensors these are, in the struct's order."""
    slots = [spec.name for spec in row.fields if spec.kind.is_tensor]
    own = {spec.name for spec in row.fields}
    attributes = {key: more.pop(key) for key in list(more) if key in own}
    *_, output = tensors
    tolerance = 1e-3 if FLOAT16 in (tensor.data_type for tensor in tensors) else 1e-5
    return Problem(
        f"{name} {output.data_type.name} {'x'.join(map(str, output.sizes))}",
        row(**dict(zip(slots, tensors, strict=True)), **attributes),
        rival,
        bytes_moved=nbytes(*tensors),
        **{"tolerance": tolerance, **goal, **more},
    )
