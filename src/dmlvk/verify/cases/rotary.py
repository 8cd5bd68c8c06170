"""Cases of ``ops.rotary``."""

from __future__ import annotations

from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance, uniform


def _case(
    name: str,
    sizes: tuple[int, int, int, int],
    tables: tuple[int, int, int],
    *,
    positions: T | None = None,
    interleaved: bool = False,
    quick: bool = False,
) -> Case:
    inputs: dict[str, tuple[int, ...]] = {"input_tensor": sizes, "cosines_tensor": tables, "sines_tensor": tables}
    if positions is not None:
        inputs["positions_tensor"] = sizes[:2]
    return Case(
        name,
        inputs,
        {"interleaved": interleaved},
        {"output_tensor": sizes},
        {} if positions is None else {"positions_tensor": positions},
        {"cosines_tensor": uniform(-1, 1), "sines_tensor": uniform(-1, 1), "positions_tensor": uniform(-2, tables[1] + 2)},
        quick=quick,
    )


CASES = (
    OperatorCases(
        RotaryEmbedding,
        # At the magnitude of the two terms.
        {T.FLOAT32: Tolerance(2), T.FLOAT16: Tolerance(1)},
        (
            _case("halves", (2, 5, 3, 16), (1, 5, 8), quick=True),
            _case("neighbours", (2, 5, 3, 16), (2, 5, 8), interleaved=True),
            _case("places", (2, 3, 2, 12), (1, 11, 4), positions=T.INT64, quick=True),
            _case("places of neighbours", (1, 7, 1, 10), (1, 9, 5), positions=T.INT32, interleaved=True),
            _case("places of each entry", (2, 3, 2, 9), (2, 6, 3), positions=T.INT32),
        ),
    ),
)
