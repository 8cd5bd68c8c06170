"""Cases of ``ops.fold``."""

from __future__ import annotations

import dataclasses
import math

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.fold import Fold, Unfold
from dmlvk.verify.cases.model import MOVED, Case, OperatorCases, Tolerance, any_bits

_FLOAT32, _FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16

# At most 31 additions in a line in these cases, each off by half an ULP at most of a partial sum, which grows to the
# magnitude that errors are counted at: 8 ULP at worst, 1.25 seen. float16 rounds once, at the end.
_SUM = {_FLOAT32: Tolerance(8), _FLOAT16: Tolerance(1)}


def _case(
    name: str,
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    *,
    strides: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    start: tuple[int, ...] = (),
    end: tuple[int, ...] = (),
    leading: int = 0,
    layouts: bool = True,
    quick: bool = False,
) -> tuple[Case, tuple[int, ...]]:
    """A case of ``Unfold`` and the sizes of its output, before both of which stand so many sizes 1."""
    rank = len(window)
    arrays = {
        "window_sizes": window,
        "strides": strides or (1,) * rank,
        "dilations": dilations or (1,) * rank,
        "start_padding": start or (0,) * rank,
        "end_padding": end or (0,) * rank,
    }
    blocks = 1
    for size, taps, step, gap, before, after in zip(sizes[2:], *arrays.values(), strict=True):
        blocks *= (size + before + after - gap * (taps - 1) - 1) // step + 1
    ones = (1,) * leading
    columns = (*ones, sizes[0], sizes[1] * math.prod(window), blocks)
    return Case(name, {"input_tensor": (*ones, *sizes)}, arrays, layouts=layouts, quick=quick), columns


_CASES = (
    _case("an image", (2, 3, 7, 9), (3, 2), start=(1, 0), end=(1, 1), quick=True),
    _case("strides and dilations", (2, 2, 11, 13), (3, 4), strides=(2, 3), dilations=(3, 2), start=(2, 1), end=(0, 3)),
    _case("steps with a common divisor", (1, 2, 17, 23), (4, 5), strides=(4, 6), dilations=(2, 4), start=(3, 5), end=(6, 0)),
    _case("a line", (3, 2, 19), (4,), strides=(2,), start=(1,), layouts=False, quick=True),
    _case("patches side by side", (2, 3, 8, 12), (2, 4), strides=(2, 4), layouts=False),
    _case("patches apart", (1, 2, 9, 11), (2, 1), strides=(3, 4), layouts=False),
    _case("whole words", (1, 3, 6, 32), (3, 3), start=(1, 1), end=(1, 1), layouts=False),
    _case("lines of an image", (2, 3, 9, 10), (3, 1), dilations=(2, 1), start=(1, 0), end=(2, 0), layouts=False),
    _case("every other line", (1, 3, 9, 16), (3, 1), strides=(2, 1), start=(1, 0), end=(2, 0), layouts=False),
    _case("a column", (1, 2, 12, 1), (5, 1), start=(2, 0), end=(2, 0), layouts=False),
    _case("volumes", (1, 2, 4, 5, 6), (2, 3, 2), strides=(1, 2, 1), dilations=(2, 1, 1), start=(1, 0, 1), end=(0, 1, 2)),
    _case("six dimensions", (1, 2, 3, 2, 3, 2, 3, 4), (2, 1, 2, 2, 1, 2), end=(0, 1, 0, 0, 0, 1), layouts=False),
    _case("sizes 1 before", (1, 2, 5, 6), (2, 3), start=(0, 2), end=(1, 0), leading=3),
    _case("blocks in the padding", (1, 2, 3, 4), (2, 2), strides=(1, 3), start=(4, 2), end=(3, 5), layouts=False),
    _case("one block", (2, 3, 4, 5), (4, 5), layouts=False),
    _case("a long window", (1, 1, 40), (31,), layouts=False),
)


def _folded(case: Case, columns: tuple[int, ...]) -> Case:
    """The inverse of a case."""
    return dataclasses.replace(
        case, inputs={"input_tensor": columns}, outputs={"output_tensor": case.inputs["input_tensor"]}
    )


def _moved(case: Case) -> Case:
    return dataclasses.replace(case, domains={"": any_bits})


CASES = (
    OperatorCases(Fold, _SUM, tuple(_folded(*case) for case in _CASES)),
    OperatorCases(Unfold, MOVED, tuple(_moved(case) for case, _ in _CASES)),
)
