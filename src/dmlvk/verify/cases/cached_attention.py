"""Cases of ``ops.cached_attention``: with the past beside the cache, or a cache that the new rows fill, so that all of it is
known afterwards."""

from __future__ import annotations

from typing import Any

from dmlvk.spec.enums import TensorDataType as T
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.verify.cases.model import Case, Domain, OperatorCases, Tolerance, fixed, uniform


def _case(
    name: str,
    lengths: tuple[int, ...],
    heads: tuple[int, int],
    *,
    rows: int = 1,
    size: int = 16,
    value_size: int = 0,
    capacity: int = 70,
    in_place: bool = False,
    pairs: int = 0,
    positions: bool = False,
    bias: bool = False,
    sinks: bool = False,
    only: tuple[T, ...] = (),
    quick: bool = False,
    **attributes: object,
) -> Case:
    batch, value_size = len(lengths), value_size or size
    inputs: dict[str, tuple[int, ...]] = {
        "query_tensor": (batch, rows, heads[0], size),
        "key_tensor": (batch, rows, heads[1], size),
        "value_tensor": (batch, rows, heads[1], value_size),
        "lengths_tensor": (batch,),
    }
    domains: dict[str, Domain] = {"lengths_tensor": fixed(*lengths)}
    if pairs:
        inputs |= dict.fromkeys(("cosines_tensor", "sines_tensor"), (capacity, pairs))
        domains |= {"cosines_tensor": uniform(-1, 1), "sines_tensor": uniform(-1, 1)}
    if positions:
        inputs["positions_tensor"] = (batch, rows)
        domains["positions_tensor"] = uniform(0, capacity - 1)
    if not in_place:
        inputs["past_key_tensor"] = (batch, heads[1], capacity, size)
        inputs["past_value_tensor"] = (batch, heads[1], capacity, value_size)
    if bias:
        inputs["bias_tensor"] = (batch, heads[0], rows, capacity)
    if sinks:
        inputs["sinks_tensor"] = (heads[0],)
    return Case(
        name,
        inputs,
        {"scale": size**-0.5, **attributes},
        {
            "output_tensor": (batch, rows, heads[0], value_size),
            "cache_key_tensor": (batch, heads[1], capacity, size),
            "cache_value_tensor": (batch, heads[1], capacity, value_size),
        },
        {"lengths_tensor": T.INT32, "positions_tensor": T.INT64},
        domains,
        layouts=False,
        only=only,
        quick=quick,
    )


_ALL: dict[str, Any] = {
    "pairs": 6,
    "interleaved": True,
    "positions": True,
    "bias": True,
    "sinks": True,
    "window": 9,
    "softcap": 2.0,
}

CASES = (
    OperatorCases(
        CachedAttention,
        # At the size of the summed terms, as ``MultiheadAttention1``.
        {T.FLOAT32: Tolerance(4), T.FLOAT16: Tolerance(1)},
        (
            _case("a word", (0, 33, 69), (4, 2), pairs=8, quick=True),
            _case("everything", (7, 50), (3, 1), rows=2, size=24, value_size=8, **_ALL),
            _case("no room", (69, 90, -3), (2, 2), rows=3, pairs=4),
            _case("a prompt in place", (0, 0), (4, 2), rows=40, capacity=40, in_place=True, quick=True),
            _case("a prompt behind another", (5, 30), (2, 1), rows=37, size=32, capacity=80),
            _case("rows that meet all", (0, 9), (2, 2), rows=5, causal=False),
            _case("a window", (3, 60), (4, 4), rows=4, window=16),
            _case("a prompt of many tiles", (0, 37, 60), (4, 2), rows=290, size=64, capacity=330, only=(T.FLOAT16,)),
            _case("tiles that meet all", (0, 9), (2, 1), rows=150, size=96, capacity=170, causal=False, only=(T.FLOAT16,)),
            _case("words of halves", (5, 68), (4, 4), rows=2, size=40, pairs=20, only=(T.FLOAT16,)),
        ),
    ),
)
