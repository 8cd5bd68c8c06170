"""Cases of ``ops.linear_attention``."""

from __future__ import annotations

from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.ops.linear_attention import LinearAttention
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance, uniform


def _case(
    name: str,
    batch: int,
    rows: int,
    heads: tuple[int, int],
    size: int,
    value_size: int,
    *,
    past: bool = False,
    decay: bool = False,
    rate: bool = False,
    quick: bool = False,
) -> Case:
    query_heads, key_heads = heads
    state = (batch, key_heads, size, value_size)
    inputs: dict[str, tuple[int, ...]] = {
        "query_tensor": (batch, rows, query_heads, size),
        "key_tensor": (batch, rows, key_heads, size),
        "value_tensor": (batch, rows, key_heads, value_size),
    }
    if past:
        inputs["past_state_tensor"] = state
    if decay:
        inputs["decay_tensor"] = (batch, rows, key_heads, size)
    if rate:
        inputs["rate_tensor"] = (batch, rows, key_heads)
    return Case(
        name,
        inputs,
        {"scale": size**-0.5},
        {"output_tensor": (batch, rows, query_heads, value_size), "present_state_tensor": state},
        # So that a state neither grows nor turns over from row to row, which errors would do with it.
        domains={"decay_tensor": uniform(-1, 0), "rate_tensor": uniform(0, 0.1)},
        quick=quick,
    )


CASES = (
    OperatorCases(
        LinearAttention,
        # At the magnitude of all terms that have come to the state. Sums and the state are float32.
        {T.FLOAT32: Tolerance(8), T.FLOAT16: Tolerance(1)},
        (
            _case("a word", 2, 1, (2, 2), 8, 8, past=True, decay=True, rate=True, quick=True),
            _case("a prompt", 1, 9, (4, 2), 16, 12, quick=True),
            _case("decay", 2, 5, (2, 1), 7, 33, past=True, decay=True),
            _case("a rate", 1, 6, (2, 2), 32, 16, rate=True),
            _case("everything", 2, 7, (6, 2), 24, 40, past=True, decay=True, rate=True),
        ),
    ),
)
