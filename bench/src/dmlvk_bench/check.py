"""Whether a problem's outputs are right: nothing is timed before that is known.

A difference is the largest of any element from what it should be, relative to the largest number there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.layouts import unflagged
from dmlvk.verify.cases.problem import fields_of, slot_name
from dmlvk.verify.oracle import Scaled, oracle
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.rivals.base import Array, logical, present
from dmlvk_bench.rivals.base import difference as distance


def difference(problem: Problem, inputs: Sequence[Array], outputs: Sequence[Array], *, by_oracle: bool) -> float:
    """The largest difference of outputs from what they should be: infinite where only one of two is NaN, or infinite.

    Args:
        problem: The problem that was computed.
        inputs, outputs: The memory of each present slot.
        by_oracle: Whether that is what the float64 oracle says, which takes seconds for a million elements, or the problem's
            own ``check``.
    """
    desc = problem.desc
    given = [logical(*pair) for pair in zip(inputs, present(desc.input_slots()), strict=True)]
    found = [logical(*pair) for pair in zip(outputs, present(desc.output_slots()), strict=True)]
    if not by_oracle:
        assert problem.check is not None
        return float(problem.check(given, found))
    worst = 0.0
    for mine, wanted in zip(found, _expected(desc, given), strict=True):
        defined = ~np.ma.getmaskarray(wanted)  # what is masked is undefined, and any number is as good
        right = np.ma.getdata(wanted)[defined]
        if mine.dtype == np.float16:
            right = right.astype(np.float16)  # an output can be no nearer
        worst = max(worst, distance(mine[defined], right))
    return worst


def _expected(desc: OperatorDesc, given: Sequence[Array]) -> list[Array]:
    """The oracle's result for each present output."""
    function = oracle(type(desc))
    assert function is not None, f"{type(desc).__name__} is measured and has no oracle"
    slots = [*desc.input_slots(), *desc.output_slots()]
    packed = {slot_name(slot): unflagged(slot.tensor) for slot in slots if slot.tensor is not None}
    arrays = iter(given)
    with np.errstate(all="ignore"):
        result = function(
            desc.replace(**fields_of(packed)),
            *(None if slot.tensor is None else np.array(next(arrays)) for slot in desc.input_slots()),
        )
    if isinstance(result, Scaled) or not isinstance(result, tuple):
        result = (result,)
    values = [item.value if isinstance(item, Scaled) else item for item in result]
    there = [slot.tensor is not None for slot in desc.output_slots()]
    return [value for value, is_there in zip(values, there, strict=False) if is_there]
