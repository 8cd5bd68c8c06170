"""Rewriting and placing a graph takes time in proportion to its steps."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

from dmlvk.graph.passes import optimized
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Step, Storage
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

FEW, TIMES = 800, 10
MOST = 1.8
"""What a step of many may take of what one of few takes; a graph's length would be a factor of ``TIMES``."""
TENSOR = TensorDesc(TensorDataType.FLOAT32, (4, 8))
SCORES = ops.ActivationSoftmax1(input_tensor=TENSOR, output_tensor=TENSOR, axes=(1,))
SUM = ops.ElementWiseAdd(a_tensor=TENSOR, b_tensor=TENSOR, output_tensor=TENSOR)
COPY = ops.ElementWiseIdentity(input_tensor=TENSOR, output_tensor=TENSOR)
PATTERN: Sequence[OperatorDesc] = (SCORES, COPY, SUM, ops.ActivationRelu(input_tensor=TENSOR, output_tensor=TENSOR), SUM)


def chain(length: int) -> tuple[list[Step], Storage]:
    """Steps one after the other, where every sum reads the same tensor as well; and what the last one writes."""
    shared, storage = Storage(128), Storage(128)
    steps = []
    for index in range(length):
        desc = PATTERN[index % len(PATTERN)]
        written = Storage(128)
        steps.append(Step(index, desc, (storage, shared)[: len(desc.input_slots())], (written,)))
        storage = written
    return steps, storage


def best_seconds(length: int) -> float:
    found = []
    for _ in range(3):
        steps, result = chain(length)
        gc.collect()
        start = time.process_time()
        made = optimized(steps, [result])
        Placement(made, [steps[0].inputs[0]], [result], [0] * len(made))  # type: ignore[list-item]  # it has an input
        found.append(time.process_time() - start)
    return min(found)


def test_a_step_costs_the_same_in_a_longer_graph() -> None:
    best_seconds(FEW)  # fills caches
    assert best_seconds(FEW * TIMES) < MOST * TIMES * best_seconds(FEW)
