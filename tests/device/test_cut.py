"""Tensors larger than a storage binding: operators run in parts, with the bits that they have as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dmlvk
from dmlvk.kernels.lowering import explain, lower
from dmlvk.spec.errors import UnsupportedError

Array = npt.NDArray[Any]
SMALL = dmlvk.Mask(limits=(("storage_buffer_bytes", 4096),))
"""Bindings of 4 KiB, in place of 128 MiB."""


def numbers(*sizes: int) -> Array:
    return np.random.default_rng(7).standard_normal(sizes, dtype=np.float32)


WINDOWS: Any = {
    **dict.fromkeys(("strides", "dilations"), (1, 1)),
    **dict.fromkeys(("start_padding", "end_padding", "output_padding"), (0, 0)),
}

CASES: dict[str, Callable[[dmlvk.Device], Any]] = {
    "a packed pair": lambda device: dmlvk.eager.element_wise_add(numbers(70, 53), numbers(70, 53), device=device),
    "rows too large themselves": lambda device: dmlvk.eager.activation_tanh(numbers(3, 2, 2000), device=device),
    "a broadcast operand": lambda device: dmlvk.eager.element_wise_multiply(
        numbers(90, 64), np.broadcast_to(numbers(1, 64), (90, 64)), device=device
    ),
    "narrow elements": lambda device: dmlvk.eager.cast(
        numbers(99, 31), output_data_types=dmlvk.TensorDataType.FLOAT16, device=device
    ),
    "a table by columns": lambda device: dmlvk.eager.gemm(
        numbers(5, 48), numbers(100, 48), trans_b=dmlvk.MatrixTransform.TRANSPOSE, device=device
    ),
    "a product by rows": lambda device: dmlvk.eager.gemm(numbers(200, 9), numbers(9, 12), device=device),
    "products by matrices": lambda device: dmlvk.eager.gemm(numbers(2, 3, 20, 24), numbers(2, 3, 24, 20), device=device),
    "images": lambda device: dmlvk.eager.convolution(numbers(6, 3, 12, 12), numbers(4, 3, 3, 3), **WINDOWS, device=device),
    "softmax of rows": lambda device: dmlvk.eager.activation_softmax1(numbers(40, 150), axes=(1,), device=device),
    "sums of rows": lambda device: dmlvk.eager.reduce(
        numbers(50, 120), function=dmlvk.ReduceFunction.SUM, axes=(1,), device=device
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_parts_have_the_bits_of_the_whole(case: Callable[[dmlvk.Device], Any]) -> None:
    small, whole = dmlvk.Device(mask=SMALL), dmlvk.Device(mask=dmlvk.Mask())
    found, wanted = case(small), case(whole)
    assert small.dispatches > whole.dispatches
    np.testing.assert_array_equal(found, wanted)
    assert found.tobytes() == wanted.tobytes()


def test_a_chain_of_a_graph_is_cut_too() -> None:
    x = numbers(64, 60)
    results = []
    for mask in (SMALL, dmlvk.Mask()):
        device = dmlvk.Device(mask=mask)
        graph = dmlvk.Graph(device)
        a, table = graph.input(x.shape), graph.input((80, 60), owned_by_dml=True)
        scores = graph.gemm(graph.activation_tanh(a * 2.0 + 1.0), table, trans_b=dmlvk.MatrixTransform.TRANSPOSE)
        run = graph.compile(graph.element_wise_sqrt(scores * scores) - scores)
        run.initialize({table: numbers(80, 60)})
        results.append(run(x).numpy())
    assert results[0].tobytes() == results[1].tobytes()


def test_what_cannot_be_cut_is_a_declared_limitation() -> None:
    device = dmlvk.Device(mask=SMALL)
    with pytest.raises(UnsupportedError, match="larger than a storage binding") as caught:
        dmlvk.eager.reduce(numbers(1, 5000), function=dmlvk.ReduceFunction.SUM, axes=(1,), device=device)
    assert caught.value.limitation == "storage_binding"
    with pytest.raises(UnsupportedError, match="at most 4096 bytes"):
        dmlvk.eager.element_wise_add(numbers(70, 53).T, numbers(53, 70), device=device)


def test_rules_are_those_of_a_part() -> None:
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (64, 100))
    desc = dmlvk.ActivationTanh(input_tensor=tensor, output_tensor=tensor)
    caps = dmlvk.Device(mask=SMALL).capabilities
    assert any(holds for _, holds in explain(desc, caps))
    plan = lower(desc, caps)
    assert len(plan.dispatches) > 6 and all(part.nbytes <= 4096 for launch in plan.dispatches for part in launch.bindings)
