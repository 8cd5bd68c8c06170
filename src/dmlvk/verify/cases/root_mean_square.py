"""Cases of ``ops.root_mean_square``."""

from __future__ import annotations

from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance


def _case(
    name: str,
    sizes: tuple[int, ...],
    *,
    addend: bool = False,
    scale: bool = False,
    total: bool = False,
    output: T | None = None,
    added: T | None = None,
    only: tuple[T, ...] = (),
    quick: bool = False,
) -> Case:
    inputs = {"input_tensor": sizes} | ({"addend_tensor": sizes} if addend else {})
    inputs |= {"scale_tensor": sizes[-1:]} if scale else {}
    outputs = {"output_tensor": sizes} | ({"sum_tensor": sizes} if total else {})
    types = {} if output is None else {"addend_tensor": output, "output_tensor": output}
    types |= {} if added is None else {"addend_tensor": added}
    return Case(name, inputs, {"epsilon": 1e-5}, outputs, types, only=only, quick=quick)


CASES = (
    OperatorCases(
        RootMeanSquare,
        {T.FLOAT32: Tolerance(4), T.FLOAT16: Tolerance(1)},
        (
            _case("odd rows", (5, 33), addend=True, scale=True, total=True, quick=True),
            _case("heads", (1, 2, 2, 8)),
            _case("rows of quads", (3, 7, 128), scale=True, quick=True),
            _case("long rows", (2, 3001), addend=True, total=True),
            _case("rows of halves", (2, 3, 64), addend=True, scale=True, total=True, output=T.FLOAT16, only=(T.FLOAT32,)),
            _case("halves are added", (3, 64), addend=True, scale=True, total=True, added=T.FLOAT16, only=(T.FLOAT32,)),
            _case("halves are added to odd rows", (3, 33), addend=True, added=T.FLOAT16, only=(T.FLOAT32,)),
        ),
    ),
)
