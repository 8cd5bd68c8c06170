"""The decoder of the benchmark is what it is said to be, and a cache that grows costs few lowerings."""

from __future__ import annotations

import choices
import onnx
import pytest

from dmlvk.engine.recipe import Recipes
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.lowering import lower
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec.mould import Mould
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import SizeTrace, is_symbolic
from dmlvk.spec.size_function import function_of, guards_of
from dmlvk_bench.models.decoder import BLOCKS, HEADS, LONGEST, WIDTH, decoder


def past_of(length: int) -> dict[str, tuple[int, ...]]:
    return {
        f"past_{kind}_{block}": (1, HEADS, length, WIDTH // HEADS) for kind in ("key", "value") for block in range(BLOCKS)
    }


def test_it_is_of_152_nodes_and_its_cache_grows() -> None:
    model = decoder()
    onnx.checker.check_model(model)
    assert len(model.graph.node) == 152
    network = Network(load_model(model))
    past = past_of(7)
    trace = network.trace_whole({"ids": (1, 1), **past}, {})
    grown = [trace.outputs[name.replace("past", "present")].sizes[2:] for name in past]  # type: ignore[union-attr]
    assert grown == [(8, WIDTH // HEADS)] * len(past)


@pytest.mark.parametrize("device", ["h200", "lavapipe"])
def test_a_cache_that_grows_by_one_is_filled(device: str) -> None:
    """Of all lengths, 98 of 100 need neither a trace nor a lowering; the others one operator's or two."""
    recorder = SizeTrace()
    sizes = past_of(recorder.symbol("past", 16))
    trace = Network(load_model(decoder())).trace_whole({"ids": (1, 1), **sizes}, {})
    lowered: list[int] = []
    length = 16

    def lowered_now(desc: OperatorDesc) -> tuple[OperatorDesc, Plan]:
        lowered.append(length)
        return desc, lower(desc, choices.DEVICES[device])

    moulds = {mould.key: mould for mould in (Mould(step.desc) for step in trace.steps if is_symbolic(step.desc))}
    recipes = [Recipes(mould, lowered_now) for mould in moulds.values()]
    symbols = function_of(recorder, tuple(mould.symbols for mould in moulds.values()))
    for length in range(16, LONGEST):
        values = symbols(length)
        assert values is not None, guards_of(recorder)
        for own, numbers in zip(recipes, values, strict=True):
            own.filled(numbers)
    lengths = set(lowered)
    assert len(recipes) < len(lowered) and len(lengths) < (LONGEST - 16) // 50, lowered
    assert len(lowered) < len(recipes) + 2 * len(lengths)
