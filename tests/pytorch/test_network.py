"""Graphs of PyTorch's as traces: no device."""

from __future__ import annotations

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dmlvk.engine.trace import Trace
from dmlvk.spec import ops
from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.network import Network


def trace(function: object, *inputs: torch.Tensor) -> Trace:
    module = make_fx(torch.func.functionalize(function), decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    network = Network(module)
    names = [node.name for node in network.inputs]
    written = frozenset(node.name for node in network.written)
    region = network.region(dict.fromkeys(names, (0,)), written)
    specs = {name: (np.dtype(np.float32), tuple(own.shape)) for name, own in zip(names, inputs, strict=True)}
    return network.trace(region, specs, {})


def test_a_product_with_what_is_filled_is_no_swish() -> None:
    found = trace(lambda x: [x * torch.full_like(x, 2.0)], torch.ones(4))
    assert not any(isinstance(step.desc, ops.ActivationSwish) for step in found.steps)


def test_an_input_is_changed_where_it_lies() -> None:
    def add_relu(x: torch.Tensor) -> list[torch.Tensor]:
        x.add_(torch.relu(x * 2))
        return []

    found = trace(add_relu, torch.ones(4))
    (place,) = found.outside
    (step,) = found.steps
    assert step.inputs == (place,)
    assert step.outputs == (place,)


def test_what_is_read_afterwards_is_not_overwritten() -> None:
    def moved(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        before = x * 2
        x.copy_(y)
        return [before]

    found = trace(moved, torch.ones(4), torch.ones(4))
    writes = [index for index, step in enumerate(found.steps) if found.inputs["x_1"].storage in step.outputs]
    reads = [index for index, step in enumerate(found.steps) if found.inputs["x_1"].storage in step.inputs]
    assert writes and max(reads) < min(writes)


def test_places_that_follow_from_no_input_are_computed_once() -> None:
    """PyTorch takes a roll apart into elements at places, which it counts from 0."""
    found = trace(lambda x: [torch.roll(x, 3, 0) * 2], torch.ones(64))
    filled = [step for step in found.steps if not step.inputs]
    assert filled
    assert all(step.runs_once for step in filled)
    assert sum(not step.runs_once for step in found.steps) <= 2


def test_large_fills_take_no_memory_between_runs() -> None:
    found = trace(lambda x: [torch.zeros(1 << 20).index_add(0, torch.arange(4), x)], torch.ones(4))
    assert [step.runs_once for step in found.steps if not step.inputs and step.outputs[0].nbytes > 1 << 20] == [False]
