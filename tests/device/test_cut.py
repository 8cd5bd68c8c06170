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

POOLS: Any = {name: value for name, value in WINDOWS.items() if name != "output_padding"}

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
    "a transposed operand": lambda device: dmlvk.eager.element_wise_add(numbers(70, 53).T, numbers(53, 70), device=device),
    "a transposed copy": lambda device: dmlvk.eager.element_wise_identity(numbers(71, 53).T, device=device),
    "softmax of columns": lambda device: dmlvk.eager.activation_softmax1(numbers(40, 150), axes=(0,), device=device),
    "a product with a table by rows": lambda device: dmlvk.eager.gemm(numbers(5, 48), numbers(48, 100), device=device),
    "many output channels": lambda device: dmlvk.eager.convolution(
        numbers(1, 3, 5, 5), numbers(50, 3, 3, 3), **WINDOWS, device=device
    ),
    "a filter a channel": lambda device: dmlvk.eager.convolution(
        numbers(1, 40, 6, 6), numbers(40, 1, 3, 3), **WINDOWS, group_count=40, device=device
    ),
    "rows of a table": lambda device: dmlvk.eager.gather(
        numbers(300, 12), np.array([[0, 299, 150, -1, 86, 85, 1000]]), axis=0, index_dimensions=1, device=device
    ),
    "many rows of a small table": lambda device: dmlvk.eager.gather(
        numbers(9, 12), np.arange(700).reshape(1, -1) % 9, axis=0, index_dimensions=1, device=device
    ),
    "an element a column": lambda device: dmlvk.eager.gather_elements(
        numbers(400, 7), np.arange(21).reshape(3, 7) * 19, axis=0, device=device
    ),
    "joined end to end": lambda device: dmlvk.eager.join([numbers(3, 333), numbers(5, 333)], axis=0, device=device),
    "joined side by side": lambda device: dmlvk.eager.join([numbers(50, 13), numbers(50, 21)], axis=1, device=device),
    "the pieces of a split": lambda device: dmlvk.eager.join(
        dmlvk.eager.split(numbers(9, 331), output_sizes=[(9, 100), (9, 231)], axis=1, device=device)[::-1],
        axis=1,
        device=device,
    ),
    "every second row backwards": lambda device: dmlvk.eager.slice1(
        numbers(90, 51),
        input_window_offsets=(0, 3),
        input_window_sizes=(90, 40),
        input_window_strides=(-2, 1),
        device=device,
    ),
    "tiles": lambda device: dmlvk.eager.tile(numbers(5, 70), repeats=(7, 2), device=device),
    "layers of a transformer": lambda device: dmlvk.eager.mean_variance_normalization2(
        numbers(40, 65), numbers(1, 65), numbers(1, 65), axes=(1,), device=device
    ),
    "images over their channels": lambda device: dmlvk.eager.mean_variance_normalization2(
        numbers(1, 12, 11, 13), axes=(1,), device=device
    ),
    "a batch by given statistics": lambda device: dmlvk.eager.batch_normalization(
        numbers(1, 9, 14, 14), *(np.abs(numbers(1, 9, 1, 1)) for _ in range(4)), device=device
    ),
    "padded images": lambda device: dmlvk.eager.padding1(
        numbers(2, 5, 11, 13),
        padding_value_data_type=dmlvk.TensorDataType.FLOAT32,
        padding_value=2.0,
        start_padding=(0, 0, 1, 2),
        end_padding=(0, 0, 3, 0),
        device=device,
    ),
    "pooled images": lambda device: dmlvk.eager.average_pooling1(
        numbers(2, 5, 12, 12), **POOLS, window_size=(2, 2), device=device
    ),
    "sorted rows": lambda device: dmlvk.eager.top_k1(
        numbers(33, 40),
        axis=1,
        k=40,
        output_data_types=(dmlvk.TensorDataType.FLOAT32, dmlvk.TensorDataType.UINT32),
        device=device,
    )[0],
    "running sums": lambda device: dmlvk.eager.cumulative_summation(numbers(33, 40), axis=0, device=device),
    "scattered columns": lambda device: dmlvk.eager.scatter_elements(
        numbers(40, 30), np.arange(30).reshape(1, 30), numbers(1, 30), axis=0, device=device
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


def test_rules_are_those_of_a_part() -> None:
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (64, 100))
    desc = dmlvk.ActivationTanh(input_tensor=tensor, output_tensor=tensor)
    caps = dmlvk.Device(mask=SMALL).capabilities
    assert any(holds for _, holds in explain(desc, caps))
    plan = lower(desc, caps)
    assert len(plan.dispatches) > 6 and all(part.nbytes <= 4096 for launch in plan.dispatches for part in launch.bindings)
