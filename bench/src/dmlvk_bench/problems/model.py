"""The description of a measured problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits
from dmlvk.verify.cases.model import Domain
from dmlvk.verify.cases.problem import slot_name
from dmlvk_bench.problems.data import memory, ordinary

FLOAT32, FLOAT16, UINT8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
FLOATS = (FLOAT32, FLOAT16)
Arrays = Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Group:
    """Problems that have a target together: the geometric mean of their ratios of rival time to ours is at least this."""

    name: str
    target: float


@dataclass(frozen=True)
class Problem:
    """An operator with sizes that is timed, and whose outputs are checked first.

    Attributes:
        name: The problem's name in the results.
        desc: The operator.
        rival: Given torch and the input tensors on its device, what the rival runs. It gives the first output that is
            present. What it gives for the same inputs in float32 is what both outputs are compared with.
        target: The least ratio of the rival's time to ours that is meant; 0 for none.
        bytes_moved: Bytes that any implementation must read and write.
        copy_target: The least share of the same run's copy bandwidth that is meant; 0 for none.
        domains: The values of inputs by the field's name in cases, "" for all others; ``ordinary`` where there is none.
        tolerance: Largest difference of an output, relative to its largest number.
        operations: Additions and multiplications, a multiply-add counted as two; 0 where bytes are what counts.
        prepare: Given torch and the input tensors, what the rival is given instead of these, made before time is taken:
            weights as its library wants them. A rival may change that: prepare anew before its output is compared.
        group: The group that the problem belongs to, None for none.
        check: The check of outputs that a rival's cannot stand for: given the inputs' and outputs' logical arrays, slot by
            slot without those that are absent, the largest difference from what the outputs should be.
        suite: "ops", "matmul" or "conv"; "" for the family's.
        family: The file that declares it, and
        position: its place there, both filled in by ``all_problems``.
    """

    name: str
    desc: OperatorDesc
    rival: Callable[..., Any]
    target: float
    bytes_moved: int
    copy_target: float = 0.0
    domains: Mapping[str, Domain] = field(default_factory=dict)
    tolerance: float = 1e-5
    operations: int = 0
    prepare: Callable[..., Sequence[Any]] | None = None
    group: Group | None = None
    check: Callable[[Arrays, Arrays], float] | None = None
    suite: str = ""
    family: str = ""
    position: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The key that a problem shares with itself at another scale."""
        return self.family, self.position

    @property
    def rival_tolerance(self) -> float:
        """The largest difference of a rival's output that counts as right. A rival may round to float16 between the steps of
        an operator, which costs PyTorch up to four times what the operator's own result needs. A tolerance of 0 stays 0."""
        return 4 * self.tolerance

    def inputs(self) -> list[np.ndarray[Any, Any]]:
        """The memory of each input slot that is present, in the slot's type, from its first element to its last: one
        dimension, the same bits each time."""
        found = []
        for slot in self.desc.input_slots():
            if slot.tensor is not None:
                name = slot_name(slot)
                domain = self.domains.get(name) or self.domains.get("") or ordinary
                found.append(memory(slot.tensor, domain, self.name, name))
        return found


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
    fields: dict[str, Any] = {"target": 0.0, "tolerance": tolerance, **goal, **more}
    return Problem(
        f"{name} {output.data_type.name} {'x'.join(map(str, output.sizes))}",
        row(**dict(zip(slots, tensors, strict=True)), **attributes),
        rival,
        bytes_moved=nbytes(*tensors),
        **fields,
    )
