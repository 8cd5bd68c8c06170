"""The decoder of the benchmark is what it is said to be."""

from __future__ import annotations

import onnx

from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk_bench.models.decoder import BLOCKS, HEADS, WIDTH, decoder


def test_it_is_of_152_nodes_and_its_cache_grows() -> None:
    model = decoder()
    onnx.checker.check_model(model)
    assert len(model.graph.node) == 152
    network = Network(load_model(model))
    past = {f"past_{kind}_{block}": (1, HEADS, 7, WIDTH // HEADS) for kind in ("key", "value") for block in range(BLOCKS)}
    trace = network.trace_whole({"ids": (1, 1), **past}, {})
    grown = [trace.outputs[name.replace("past", "present")].sizes[2:] for name in past]  # type: ignore[union-attr]
    assert grown == [(8, WIDTH // HEADS)] * len(past)
